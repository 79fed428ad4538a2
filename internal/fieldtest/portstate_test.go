package fieldtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// stateSheet is what ibportstate shows of a port.
func stateSheet(n *topo.Node, p int, pi *mad.PortInfo, keys bool) sheet {
	all := portSheet(pi, keys)
	s := sheet{}
	for _, name := range []string{
		"LinkState", "PhysLinkState", "Lid", "SMLid", "LMC", "LinkWidthSupported", "LinkWidthEnabled",
		"LinkWidthActive",
		"LinkSpeedSupported", "LinkSpeedEnabled", "LinkSpeedActive",
	} {
		s[name] = all[name]
	}
	for _, name := range []string{"LinkSpeedExtSupported", "LinkSpeedExtEnabled", "LinkSpeedExtActive"} {
		if v, ok := all[name]; ok {
			s[name] = v
		}
	}
	if !n.IsSwitch() || p == 0 {
		for _, name := range []string{"Mkey", "MkeyLeasePeriod", "ProtectBits"} {
			s[name] = all[name]
		}
	}
	return s
}

func TestIbportstateQuery(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, at := range []struct {
		name string
		port int
	}{{"h1", 1}, {"h20", 1}, {"leaf1", 1}, {"leaf1", 6}, {"leaf7", 3}, {"spine2", 8}, {"spine4", 0}} {
		n := w.node(at.name)
		for _, way := range w.ways(n, 1) {
			out := w.run("h1", "ibportstate", append(slices.Clone(way.args), dec(at.port), "query")...)
			near, far, hasPeer := strings.Cut(out, "Peer PortInfo:\n")
			pi := w.portInfo(n, at.port)
			what := fmt.Sprintf("%s[%d] by %s", n.Name, at.port, way.name)
			read(t, near).expect(t, what, stateSheet(n, at.port, &pi, false))
			same(t, what+": shows the far end", hasPeer, n.IsSwitch() && at.port != 0)
			if hasPeer {
				m, p, _ := w.peer(n, at.port)
				pi := w.portInfo(m, p)
				read(t, far).expect(t, "far end of "+what, stateSheet(m, p, &pi, false))
			}
		}
	}
	h := w.node("h20")
	pi := w.portInfo(h, 1)
	read(t, w.run("h1", "ibportstate", "-K", dec(w.lid(h, 1)), "1")).expect(t, "-K", stateSheet(h, 1, &pi, true))
}

// active reports whether every cabled port is Active.
func (w *world) active() bool {
	for _, n := range w.g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			if n.Ports[p].Connected() && w.PortState(ref(n, p)) != ib.PortActive {
				return false
			}
		}
	}
	return true
}

// reachable walks the switches' tables between all hosts and reports the pairs that they do not join.
func (w *world) reachable() (bad []string) {
	tables := map[*topo.Node][]ib.PortNum{}
	for _, s := range w.g.Switches() {
		tables[s] = w.lft(s)
	}
	for _, a := range w.g.Hosts() {
		for _, b := range w.g.Hosts() {
			for p := 1; p <= b.NumPorts(); p++ {
				if !b.Ports[p].Connected() || w.PortState(ref(b, p)) != ib.PortActive {
					continue
				}
				for q := 1; q <= a.NumPorts(); q++ {
					if a.Ports[q].Connected() && w.PortState(ref(a, q)) == ib.PortActive &&
						!w.joined(tables, a, q, b, p) {
						bad = append(bad, fmt.Sprintf("%s[%d] to %s[%d]", a.Name, q, b.Name, p))
					}
				}
			}
		}
	}
	return bad
}

func (w *world) joined(tables map[*topo.Node][]ib.PortNum, a *topo.Node, out int, b *topo.Node, in int) bool {
	dst := w.lid(b, in)
	if a == b && out == in {
		return true
	}
	n := a
	for range len(w.g.Nodes) {
		if w.PortState(ref(n, out)) != ib.PortActive {
			return false
		}
		to, at, ok := w.peer(n, out)
		if !ok {
			return false
		}
		if !to.IsSwitch() {
			return to == b && at == in
		}
		t := tables[to]
		if int(dst) >= len(t) || int(t[dst]) > to.NumPorts() || t[dst] == 0 {
			return false
		}
		n, out = to, int(t[dst])
	}
	return false
}

// whole waits until every port is Active and every pair of hosts joined.
func (w *world) whole(after string) {
	w.Helper()
	w.eventually("every port to be Active again after "+after, w.active)
	w.sm.wait(w, "the sweeps after "+after+" to end", func(m *sm.Manager) bool { return !m.Sweeping() })
	// A sweep that comes after may be at its tables just now.
	var bad []string
	for deadline := time.Now().Add(inTime()); ; time.Sleep(2 * time.Millisecond) {
		if bad = w.reachable(); len(bad) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("after %s: no way from %s", after, strings.Join(bad, ", "))
		}
	}
}

// still is for what a sweep would put right.
func still(c *sm.Config) { c.SweepInterval = -1 }

// brisk lets ports tell of their changes many times a second.
func brisk(c *sm.Config) { c.SubnetTimeout = 5 }

func TestIbportstateLinks(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk)
	for _, at := range []struct {
		name string
		port int
	}{{"leaf2", 6}, {"spine3", 7}, {"leaf4", 1}} {
		n := w.node(at.name)
		far, in, _ := w.peer(n, at.port)
		port := func(ops ...string) string {
			return w.run("h1", "ibportstate", append([]string{dec(w.lid(n, 0)), dec(at.port)}, ops...)...)
		}
		downed := func() [2]uint64 {
			return [2]uint64{w.Counters(ref(n, at.port))[ib.LinkDownedCounter],
				w.Counters(ref(far, in))[ib.LinkDownedCounter]}
		}
		for _, word := range [][2]string{{"disable", "enable"}, {"off", "on"}} {
			before := downed()
			_, after, _ := strings.Cut(port(word[0]), "After PortInfo set:")
			s := read(t, after)
			same(t, word[0]+": state", s["LinkState"]+" "+s["PhysLinkState"], "Down Disabled")
			pi, peer := w.portInfo(n, at.port), w.portInfo(far, in)
			same(t, word[0]+": the fabric's state", pi.PortState, ib.PortDown)
			same(t, word[0]+": the fabric's physical state", pi.PortPhysicalState, ib.PhysDisabled)
			same(t, word[0]+": the far end's state", peer.PortState, ib.PortDown)
			same(t, word[0]+": the far end's physical state", peer.PortPhysicalState, ib.PhysPolling)
			same(t, word[0]+": links downed", downed(), [2]uint64{before[0] + 1, before[1] + 1})
			// The manager finds other ways.
			w.eventually("other ways after "+word[0], func() bool { return len(w.reachable()) == 0 })
			port(word[1])
			w.whole(word[1])
		}
		same(t, "on twice", strings.Contains(port("on"), "Port is already in enable state"), true)

		before := downed()
		port("reset")
		w.whole("reset")
		same(t, "reset: links downed", downed(), [2]uint64{before[0] + 1, before[1] + 1})
		port("down")
		w.whole("down")
		same(t, "down: links downed", downed(), [2]uint64{before[0] + 2, before[1] + 2})

		// Speeds and widths take effect when the link trains anew.
		for _, set := range []struct {
			ops  []string
			want ib.LinkRate
		}{
			{[]string{"speed", "1", "espeed", "30"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.SDR}},
			{[]string{"speed", "3", "espeed", "30"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.DDR}},
			{[]string{"speed", "7", "espeed", "30"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.QDR}},
			{[]string{"speed", "15", "espeed", "1"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR}},
			{[]string{"espeed", "3"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.EDR}},
			{[]string{"espeed", "7", "width", "1"}, ib.LinkRate{Width: ib.Width1x, Speed: ib.HDR}},
			{[]string{"espeed", "31", "width", "255"}, ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}},
		} {
			old := w.rate(n, at.port)
			what := strings.Join(set.ops, " ")
			port(set.ops...)
			same(t, what+": the rate before training", w.rate(n, at.port), old)
			port("reset")
			w.whole(what)
			same(t, what+": the rate", w.rate(n, at.port), set.want)
			same(t, what+": the far end's rate", w.rate(far, in), set.want)
			// ibportstate itself looks whether both ends run at the best that both are enabled for, and warns if not.
			port("query")
		}
	}
}

func TestIbportstateFDR10(t *testing.T) {
	t.Parallel()
	w := up(t, "star:4,speed=FDR10", brisk)
	sw := w.g.Switches()[0]
	lid := dec(w.lid(sw, 0))
	far, in, _ := w.peer(sw, 2)
	want := ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR10}
	active := func() mad.MlnxExtPortInfo { return attr[mad.MlnxExtPortInfo](w, sw, mad.AttrMlnxExtPortInfo, 2) }
	same(t, "at first", active(), mad.MlnxExtPortInfo{LinkSpeedSupported: 1, LinkSpeedEnabled: 1, LinkSpeedActive: 1})
	same(t, "rate", w.g.LinkRate(ref(sw, 2)), want)
	w.run("h1", "ibportstate", lid, "2", "fdr10", "0")
	w.run("h1", "ibportstate", lid, "2", "reset")
	w.whole("fdr10 0")
	same(t, "fdr10 0", active().LinkSpeedActive, 0)
	same(t, "fdr10 0 at the far end", attr[mad.MlnxExtPortInfo](w, far, mad.AttrMlnxExtPortInfo,
		uint32(in)).LinkSpeedActive, 0)
	w.run("h1", "ibportstate", lid, "2", "fdr10", "1")
	w.run("h1", "ibportstate", lid, "2", "reset")
	w.whole("fdr10 1")
	same(t, "fdr10 1", active().LinkSpeedActive, 1)

	// A link of another kind has no FDR10 to enable.
	ndr := up(t, "star:2")
	wants(t, ndr.fails("h1", "ibportstate", dec(ndr.lid(ndr.g.Switches()[0], 0)), "1", "fdr10", "1"),
		"smp set MLNX ext portinfo failed")
}

func TestIbportstateAddresses(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk, still)
	n := w.node("h6")
	by := func(args ...string) string {
		return w.run("h1", "ibportstate", append([]string{"-D", w.route(w.node("h1"), n), "1"}, args...)...)
	}
	was := w.portInfo(n, 1)
	for _, c := range []struct {
		ops  []string
		want func(*mad.PortInfo)
	}{
		{[]string{"lid", "200"}, func(p *mad.PortInfo) { p.LID = 200 }},
		{[]string{"lid", "208", "lmc", "3"}, func(p *mad.PortInfo) { p.LID, p.LMC = 208, 3 }},
		{[]string{"smlid", "77"}, func(p *mad.PortInfo) { p.LID, p.LMC, p.MasterSMLID = 208, 3, 77 }},
		{[]string{"mtu", "3"}, func(p *mad.PortInfo) {
			p.LID, p.LMC, p.MasterSMLID, p.NeighborMTU = 208, 3, 77,
				ib.MTU1024
		}},
		{[]string{"vls", "2"}, func(p *mad.PortInfo) {
			p.LID, p.LMC, p.MasterSMLID, p.NeighborMTU, p.OperationalVLs = 208, 3, 77, ib.MTU1024, 2
		}},
	} {
		what := strings.Join(c.ops, " ")
		_, after, ok := strings.Cut(by(c.ops...), "After PortInfo set:")
		if !ok {
			t.Fatalf("%s: nothing set", what)
		}
		want := was
		c.want(&want)
		got := w.portInfo(n, 1)
		same(t, what, got, want)
		read(t, after).expect(t, what, stateSheet(n, 1, &want, false))
	}
	// The manager puts all of it right.
	if err := w.sm.Do(func(m *sm.Manager) { m.Sweep(w.Now(), "an operator asked") }); err != nil {
		t.Fatal(err)
	}
	w.eventually("the port to be as it was", func() bool { return w.portInfo(n, 1) == was })
	w.whole("a sweep")
}

func TestIbportstateKeys(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk, still)
	n := w.node("h6")
	lid := dec(w.lid(n, 1))
	key := func() mad.PortInfo { return attr[mad.PortInfo](w, n, mad.AttrPortInfo, 1) }
	const secret = "0xc0ffee"
	w.run("h1", "ibportstate", lid, "1", "mkeylease", "60")
	same(t, "mkeylease", key().MKeyLeasePeriod, 60)
	w.run("h1", "ibportstate", lid, "1", "mkey", secret)
	w.run("h1", "ibportstate", "-y", secret, lid, "1", "mkeyprot", "2")
	// Now nothing goes without the key, not even a look; with it, all goes and the key is shown.
	wants(t, w.fails("h1", "ibportstate", "-t", "100", lid, "1"), "failed")
	wants(t, w.fails("h1", "smpquery", "-t", "100", "portinfo", lid, "1"), "failed")
	out := w.run("h1", "ibportstate", "-y", secret, "-K", lid, "1")
	s := read(t, out)
	same(t, "Mkey", s["Mkey"], "0x0000000000c0ffee")
	same(t, "MkeyLeasePeriod", s["MkeyLeasePeriod"], "60")
	same(t, "ProtectBits", s["ProtectBits"], "2")
	w.run("h1", "ibportstate", "-y", secret, lid, "1", "mkeyprot", "0", "mkey", "0", "mkeylease", "0")
	pi := key()
	read(t, w.run("h1", "ibportstate", "-K", lid, "1")).expect(t, "without a key", stateSheet(n, 1, &pi, true))
	same(t, "key and protection", fmt.Sprint(pi.MKey, pi.MKeyProtectBits, pi.MKeyLeasePeriod), "0 0 0")
	if pi.MKeyViolations == 0 {
		t.Error("no violation was counted")
	}
}

// Without a manager, ibportstate itself can take a link up.
func TestIbportstateByHand(t *testing.T) {
	t.Parallel()
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, g)
	h := w.node("h1")
	sw, port, _ := w.peer(h, 1)
	states := func() string {
		return portState(w.PortState(ref(h, 1))) + " " + portState(w.PortState(ref(sw, port)))
	}
	same(t, "at first", states(), "Initialize Initialize")
	w.run("h1", "ibportstate", "-D", "0", "1", "lid", "0x12", "smlid", "0x12", "arm")
	same(t, "h1 armed", states(), "Armed Initialize")
	w.run("h1", "ibportstate", "-D", "0,1", dec(port), "arm")
	same(t, "both armed", states(), "Armed Armed")
	w.run("h1", "ibportstate", "-D", "0,1", dec(port), "active")
	w.run("h1", "ibportstate", "-D", "0", "1", "active")
	same(t, "both active", states(), "Active Active")
	same(t, "LID", w.lid(h, 1), 0x12)
	// from Initialize there is no way to Active
	wants(t, w.fails("h1", "ibportstate", "-D", "0,1", dec(3-port), "active"), "failed")
	w.run("h1", "ibportstate", "-D", "0,1", dec(port), "down")
	w.eventually("the link to train again", func() bool { return states() == "Initialize Initialize" })
}
