package fieldtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// lines are the lines of a text, sorted: programs list nodes in the order in which their answers came.
func lines(text string) []string {
	out := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		out = nil
	}
	slices.Sort(out)
	return out
}

// sameLines compares two lists that are in any order.
func sameLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	missing := slices.DeleteFunc(slices.Clone(want),
		func(s string) bool { _, ok := slices.BinarySearch(got, s); return ok })
	extra := slices.DeleteFunc(slices.Clone(got),
		func(s string) bool { _, ok := slices.BinarySearch(want, s); return ok })
	if len(missing)+len(extra) > 0 || len(got) != len(want) {
		t.Errorf("%s: %d lines, want %d; missing:\n\t%s\nnot wanted:\n\t%s", what, len(got), len(want),
			strings.Join(missing, "\n\t"), strings.Join(extra, "\n\t"))
	}
}

// kind is what ibnetdiscover calls a node.
func kind(n *topo.Node) string { return word(n.Type, "", "Ca", "Switch", "Rt") }

// sameGraph holds one graph against another whose nodes are in another order: nodes, ports, cables and addresses.
func (w *world) sameGraph(what string, got *topo.Graph) {
	w.Helper()
	same(w, what+": nodes", len(got.Nodes), len(w.g.Nodes))
	same(w, what+": cables", got.NumCables(), w.g.NumCables())
	for _, n := range w.g.Nodes {
		m := got.ByGUID(n.GUID)
		if m == nil {
			w.Errorf("%s: no node %v (%s)", what, n.GUID, n.Name)
			continue
		}
		same(w, what+": "+n.Name+": name", m.Name, n.Name)
		same(w, what+": "+n.Name+": type", m.Type, n.Type)
		same(w, what+": "+n.Name+": description", m.Desc, n.Desc)
		same(w, what+": "+n.Name+": system", m.SystemGUID, n.SystemGUID)
		same(w, what+": "+n.Name+": vendor", m.VendorID, n.VendorID)
		same(w, what+": "+n.Name+": device", m.DeviceID, n.DeviceID)
		if m.NumPorts() != n.NumPorts() {
			w.Errorf("%s: %s has %d ports, want %d", what, n.Name, m.NumPorts(), n.NumPorts())
			continue
		}
		for p := endPort(n, 1); p <= n.NumPorts(); p++ {
			a, b := &m.Ports[p], &n.Ports[p]
			at := fmt.Sprintf("%s: %s[%d]: ", what, n.Name, p)
			if p == endPort(n, p) && (b.Connected() || p == 0) {
				pi := w.portInfo(n, p)
				same(w, at+"GUID", a.GUID, b.GUID)
				same(w, at+"LID", a.LID, pi.LID)
				same(w, at+"LMC", a.LMC, pi.LMC)
			}
			if p == 0 {
				continue
			}
			same(w, at+"cable", a.Connected(), b.Connected())
			if a.Connected() && b.Connected() {
				same(w, at+"far node", got.Nodes[a.Peer].GUID, w.g.Nodes[b.Peer].GUID)
				same(w, at+"far port", a.PeerPort, b.PeerPort)
				same(w, at+"rate", a.Rate(), w.rate(n, p))
			}
		}
	}
}

// parse reads what ibnetdiscover printed.
func (w *world) parse(text string) *topo.Graph {
	w.Helper()
	g, err := topo.Parse("ibnetdiscover", []byte(text))
	if err != nil {
		w.Fatalf("%v\n%s", err, text)
	}
	return g
}

func TestIbnetdiscover(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{defaultSpec, "star:4,speed=EDR", "torus:3x3,hosts=2,speed=FDR"} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			w := up(t, spec)
			w.sameGraph("ibnetdiscover", w.parse(w.run("h1", "ibnetdiscover")))
			w.sameGraph("ibnetdiscover from the last host",
				w.parse(w.run(w.g.Hosts()[len(w.g.Hosts())-1].Name, "ibnetdiscover")))
			w.sameGraph("ibnetdiscover -f", w.parse(w.run("h1", "ibnetdiscover", "-f")))
			w.sameGraph("ibnetdiscover -g", w.parse(w.run("h1", "ibnetdiscover", "-g")))
			w.sameGraph("ibnetdiscover -o 1", w.parse(w.run("h1", "ibnetdiscover", "-o", "1")))
			wants(t, w.run("h1", "ibnetdiscover", "-m"), fmt.Sprintf("# Reported max hops discovered: %d\n",
				w.farthest("h1")))
			w.sameGraph("ibnetdiscover -C -P", w.parse(w.run("h1", "ibnetdiscover", "-C", "softib0", "-P", "1")))
		})
	}
}

// farthest is how many hops it is from a host to the node that is farthest away.
func (w *world) farthest(name string) (most int) {
	w.Helper()
	from := w.node(name)
	for _, n := range w.g.Nodes {
		most = max(most, strings.Count(w.route(from, n), ","))
	}
	return most
}

func TestNodeLists(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	w.nodeLists()
}

// nodeLists holds every list of nodes against the graph.
func (w *world) nodeLists() {
	w.Helper()
	host := w.g.Hosts()[0].Name
	brief := func(nodes []*topo.Node) (out []string) {
		for _, n := range nodes {
			out = append(out, fmt.Sprintf("%s\t : %s ports %d devid %#x vendid %#x %q",
				word(n.Type, "", "Ca", "Switch", "Router"), hexGUID(n.GUID), n.NumPorts(), n.DeviceID, n.VendorID,
				n.Desc))
		}
		return out
	}
	sameLines(w, "ibnetdiscover -H", lines(w.run(host, "ibnetdiscover", "-H")), brief(w.g.Hosts()))
	sameLines(w, "ibnetdiscover -S", lines(w.run(host, "ibnetdiscover", "-S")), brief(w.g.Switches()))
	sameLines(w, "ibnetdiscover -R", lines(w.run(host, "ibnetdiscover", "-R")), brief(w.g.Routers()))
	sameLines(w, "ibnetdiscover -l", lines(w.run(host, "ibnetdiscover", "-l")), brief(w.g.Nodes))

	long := func(nodes ...*topo.Node) (out []string) {
		for _, n := range nodes {
			s := fmt.Sprintf("%s\t: %s ports %d %q", kind(n), hexGUID(n.GUID), n.NumPorts(), n.Desc)
			if n.IsSwitch() {
				pi := w.portInfo(n, 0)
				s += fmt.Sprintf(" base port 0 lid %d lmc %d", pi.LID, pi.LMC)
			}
			out = append(out, s)
		}
		return out
	}
	sameLines(w, "ibhosts", lines(w.run(host, "ibhosts")), long(w.g.Hosts()...))
	sameLines(w, "ibswitches", lines(w.run(host, "ibswitches")), long(w.g.Switches()...))
	sameLines(w, "ibrouters", lines(w.run(host, "ibrouters")), long(w.g.Routers()...))
	sameLines(w, "ibnodes", lines(w.run(host, "ibnodes")),
		long(append(slices.Clone(w.g.Hosts()), w.g.Switches()...)...))

	// From a file instead of the fabric.
	dump := filepath.Join(w.TempDir(), "dump")
	if err := os.WriteFile(dump, []byte(w.run(host, "ibnetdiscover")), 0o600); err != nil {
		w.Fatal(err)
	}
	sameLines(w, "ibhosts FILE", lines(w.run(host, "ibhosts", dump)), long(w.g.Hosts()...))
	sameLines(w, "ibswitches FILE", lines(w.run(host, "ibswitches", dump)), long(w.g.Switches()...))

	// ibnetdiscover -p: one line for each port, with its far end.
	var ports []string
	short := func(n *topo.Node) string { return word(n.Type, "", "CA", "SW", "RT") }
	for _, n := range w.g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			rate := w.rate(n, p)
			speed := rate.Speed.String()
			if rate.Speed == 0 {
				speed = "???"
			}
			near := fmt.Sprintf("%s %5d %2d %s %s %s", short(n), w.lid(n, p), p, hexGUID(n.PortGUID(ib.PortNum(p))),
				rate.Width, speed)
			if far, in, ok := w.peer(n, p); ok {
				ports = append(ports, fmt.Sprintf("%s - %s %5d %2d %s ( '%s' - '%s' )", near, short(far),
					w.lid(far, in), in, hexGUID(far.PortGUID(ib.PortNum(in))), n.Desc, far.Desc))
			} else {
				ports = append(ports, fmt.Sprintf("%s%36s'%s'", near, "", n.Desc))
			}
		}
	}
	sameLines(w, "ibnetdiscover -p", lines(w.run(host, "ibnetdiscover", "-p")), ports)

	// With a map of names.
	names := filepath.Join(w.TempDir(), "names")
	n := w.g.Hosts()[0]
	if err := os.WriteFile(names, fmt.Appendf(nil, "0x%016x \"the first\"\n", uint64(n.GUID)), 0o600); err != nil {
		w.Fatal(err)
	}
	wants(w, w.run(host, "ibnetdiscover", "-H", "--node-name-map", names),
		fmt.Sprintf("%s ports %d devid %#x vendid %#x \"the first\"\n", hexGUID(n.GUID), n.NumPorts(), n.DeviceID,
			n.VendorID))
}

// A cache holds what was found; a difference to it is printed.
func TestIbnetdiscoverCache(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	cache := filepath.Join(t.TempDir(), "cache")
	w.sameGraph("--cache", w.parse(w.run("h1", "ibnetdiscover", "--cache", cache)))
	w.sameGraph("--load-cache", w.parse(w.run("h1", "ibnetdiscover", "--load-cache", cache)))
	same(t, "no difference", w.run("h1", "ibnetdiscover", "--diff", cache), "")

	leaf, spine := w.node("leaf2"), w.node("spine1")
	port, farPort := 0, 0
	for p := 1; p <= leaf.NumPorts(); p++ {
		if far, in, _ := w.peer(leaf, p); far == spine {
			port, farPort = p, in
		}
	}
	if err := w.SetLink(ref(leaf, port), false); err != nil {
		t.Fatal(err)
	}
	diff := w.run("h1", "ibnetdiscover", "--diff", cache)
	wants(t, diff, fmt.Sprintf("< [%d]\t\"S-%016x\"[%d]", port, uint64(spine.GUID), farPort),
		fmt.Sprintf("< [%d]\t\"S-%016x\"[%d]", farPort, uint64(leaf.GUID), port))
	if strings.Contains(diff, "\n> [") {
		t.Errorf("a cable that is new:\n%s", diff)
	}
}

// linkText is one line of iblinkinfo without the columns' padding.
func linkText(s string) string { return strings.Join(strings.Fields(s), " ") }

// linkWords is what iblinkinfo writes between the two ends.
func (w *world) linkWords(n *topo.Node, p int) string {
	pi := w.portInfo(n, p)
	if pi.PortState == ib.PortDown {
		return fmt.Sprintf("==( %s/ %s)==>", portState(pi.PortState), physState(pi.PortPhysicalState))
	}
	speed := activeSpeed(pi.LinkSpeedActive)
	if pi.LinkSpeedExtActive != 0 {
		speed = activeSpeedExt(pi.LinkSpeedExtActive)
	}
	return fmt.Sprintf("==( %s %s %s/ %s)==>", widths(pi.LinkWidthActive), speed, portState(pi.PortState),
		physState(pi.PortPhysicalState))
}

// linkLines are all lines of iblinkinfo -l.
func (w *world) linkLines(nodes []*topo.Node) (out []string) {
	w.Helper()
	for _, n := range nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			s := fmt.Sprintf("%s \" %s\" %d %d[ ] %s", hexGUID(n.PortGUID(ib.PortNum(p))), n.Desc, w.lid(n, p), p,
				w.linkWords(n, p))
			far, in, ok := w.peer(n, p)
			if ok && w.portInfo(n, p).PortState != ib.PortDown {
				s += fmt.Sprintf(" %s %d %d[ ] %q (%s )", hexGUID(far.PortGUID(ib.PortNum(in))), w.lid(far, in), in,
					far.Desc, w.couldBe(n, p))
			} else {
				s += ` [ ] "" ( )`
			}
			out = append(out, linkText(s))
		}
	}
	return out
}

// couldBe is what iblinkinfo says of a link that has fewer lanes than both of its ends can do.
func (w *world) couldBe(n *topo.Node, p int) string {
	at := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
	if can := w.g.CapableLink(at).Width; can != w.g.LinkRate(at).Width {
		return fmt.Sprintf("Could be %dX", can.Lanes())
	}
	return ""
}

func linkTexts(text string) []string {
	out := lines(text)
	for i := range out {
		out[i] = linkText(out[i])
	}
	return out
}

func TestIblinkinfo(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	all := w.linkLines(w.g.Nodes)
	sameLines(t, "iblinkinfo -l", linkTexts(w.run("h1", "iblinkinfo", "-l")), all)
	sameLines(t, "iblinkinfo -l --switches-only", linkTexts(w.run("h1", "iblinkinfo", "-l", "--switches-only")),
		w.linkLines(w.g.Switches()))
	sameLines(t, "iblinkinfo -l --cas-only", linkTexts(w.run("h1", "iblinkinfo", "-l", "--cas-only")),
		w.linkLines(w.g.Hosts()))
	leaf := w.node("leaf5")
	sameLines(t, "iblinkinfo -l -S", linkTexts(w.run("h1", "iblinkinfo", "-l", "-S", hexGUID(leaf.GUID))),
		w.linkLines([]*topo.Node{leaf}))
	sameLines(t, "iblinkinfo -l -G", linkTexts(w.run("h1", "iblinkinfo", "-l", "-G", hexGUID(leaf.GUID))),
		w.linkLines([]*topo.Node{leaf}))
	sameLines(t, "iblinkinfo -l -D", linkTexts(w.run("h1", "iblinkinfo", "-l", "-D", w.route(w.node("h1"), leaf))),
		w.linkLines([]*topo.Node{leaf}))
	same(t, "iblinkinfo -d", w.run("h1", "iblinkinfo", "-d"), "")

	// From a cache, with a map of names, one question at a time, around a node.
	saved := filepath.Join(t.TempDir(), "saved")
	w.run("h1", "ibnetdiscover", "--cache", saved)
	sameLines(t, "iblinkinfo -l --load-cache", linkTexts(w.run("h1", "iblinkinfo", "-l", "--load-cache", saved)), all)
	sameLines(t, "iblinkinfo -l -o 1", linkTexts(w.run("h1", "iblinkinfo", "-l", "-o", "1")), all)
	names := filepath.Join(t.TempDir(), "names")
	w.check(os.WriteFile(names, fmt.Appendf(nil, "%s \"the fifth\"\n", hexGUID(leaf.GUID)), 0o600))
	wants(t, w.run("h1", "iblinkinfo", "-S", hexGUID(leaf.GUID), "--node-name-map", names), "the fifth:\n")
	// Of nodes at the edge of a partial scan it knows no neighbours; those within have all of theirs.
	around := linkTexts(w.run("h1", "iblinkinfo", "-l", "-a", "-n", "1", "-S", hexGUID(leaf.GUID)))
	for _, line := range w.linkLines([]*topo.Node{leaf}) {
		if !slices.Contains(around, line) {
			t.Errorf("iblinkinfo -l -a -n 1: no line %q", line)
		}
	}
	for p := 1; p <= leaf.NumPorts(); p++ {
		far, in, _ := w.peer(leaf, p)
		if !strings.Contains(strings.Join(around, "\n"), hexGUID(far.PortGUID(ib.PortNum(in)))+
			fmt.Sprintf(" \" %s\"", far.Desc)) {
			t.Errorf("iblinkinfo -l -a -n 1: no line of %s", far.Name)
		}
	}

	// By node, with the further settings of each port.
	for _, n := range []*topo.Node{leaf, w.node("spine2")} {
		out := w.run("h1", "iblinkinfo", "-p", "-S", hexGUID(n.GUID))
		var got []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "==>") {
				got = append(got, linkText(line))
			}
		}
		var want []string
		for p := 1; p <= n.NumPorts(); p++ {
			far, in, _ := w.peer(n, p)
			pi := w.portInfo(n, p)
			link := strings.TrimSuffix(w.linkWords(n, p), "==>") +
				fmt.Sprintf(" (HOQ:%d VL_Stall:%d)==>", pi.HOQLife, pi.VLStallCount)
			want = append(want, linkText(fmt.Sprintf("%d %d[ ] %s %d %d[ ] %q ( )", w.lid(n, p), p, link,
				w.lid(far, in), in, far.Desc)))
		}
		sameLines(t, "iblinkinfo -p -S", got, want)
		wants(t, out, fmt.Sprintf("Switch: %s %s:\n", hexGUID(n.GUID), n.Desc))
	}

	// A cable taken out, and one that is slower than its ports.
	cache := filepath.Join(t.TempDir(), "cache")
	w.run("h1", "ibnetdiscover", "--cache", cache)
	same(t, "iblinkinfo --diff", w.run("h1", "iblinkinfo", "--diff", cache), "")
	h := w.node("h32")
	if err := w.SetLink(ref(h, 1), false); err != nil {
		t.Fatal(err)
	}
	edge, port, _ := w.peer(h, 1)
	down := w.run("h1", "iblinkinfo", "-l", "-d")
	want := slices.DeleteFunc(w.linkLines([]*topo.Node{edge}),
		func(s string) bool { return !strings.Contains(s, fmt.Sprintf(" %d[ ] ==( Down", port)) })
	sameLines(t, "iblinkinfo -l -d", linkTexts(down), want)
	same(t, "lines", len(want), 1)
	wants(t, w.run("h1", "iblinkinfo", "--diff", cache), h.Desc)
}

func TestIbidsverify(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	cmd := w.command("h1", "ibidsverify", "-R")
	w.ownCache(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("ibidsverify: %v\n%s", err, out)
	}
	// Two nodes with one address.
	a, b := w.node("h3"), w.node("h4")
	pi := w.portInfo(b, 1)
	pi.LID = w.lid(a, 1)
	pi.PortState, pi.PortPhysicalState, pi.LinkDownDefaultState = 0, 0, 0
	w.write(b, 0x15, 1, pi.Append(nil))
	cmd = w.command("h1", "ibidsverify", "-R")
	w.ownCache(cmd)
	out, err = cmd.CombinedOutput()
	if err == nil {
		t.Error("ibidsverify is content with one LID at two nodes")
	}
	wants(t, string(out), fmt.Sprintf("LID %d already defined for NodeGUID 0x", pi.LID))
}

// routed is two hosts and a router with two ports at one switch, and a second switch with a host of two ports.
const routed = `
vendid=0x2c9
devid=0x1234
sysimgguid=0x2c90000001000
switchguid=0x2c90000001000(2c90000001000)
Switch	6 "S-0002c90000001000"		# "edge" base port 0 lid 10 lmc 0
[1]	"H-0002c90000002000"[1](2c90000002001) 		# "one HCA-1" lid 1 4xEDR
[2]	"R-0002c90000003000"[1](2c90000003001) 		# "gate" lid 3 4xEDR
[3]	"S-0002c90000001100"[1]		# "core" lid 11 4xEDR
[4]	"S-0002c90000001100"[2]		# "core" lid 11 1xEDR
[5]	"H-0002c90000002100"[1](2c90000002101) 		# "two HCA-1" lid 5 4xEDR

vendid=0x2c9
devid=0x1235
sysimgguid=0x2c90000001100
switchguid=0x2c90000001100(2c90000001100)
Switch	4 "S-0002c90000001100"		# "core" base port 0 lid 11 lmc 0
[1]	"S-0002c90000001000"[3]		# "edge" lid 10 4xEDR
[2]	"S-0002c90000001000"[4]		# "edge" lid 10 1xEDR
[3]	"H-0002c90000002100"[2](2c90000002102) 		# "two HCA-1" lid 6 4xEDR
[4]	"R-0002c90000003000"[2](2c90000003002) 		# "gate" lid 4 4xEDR

vendid=0x2c9
devid=0x3000
sysimgguid=0x2c90000002000
caguid=0x2c90000002000
Ca	1 "H-0002c90000002000"		# "one HCA-1"
[1](2c90000002001) 	"S-0002c90000001000"[1]		# lid 1 lmc 0 "edge" lid 10 4xEDR

vendid=0x2c9
devid=0x3000
sysimgguid=0x2c90000002100
caguid=0x2c90000002100
Ca	2 "H-0002c90000002100"		# "two HCA-1"
[1](2c90000002101) 	"S-0002c90000001000"[5]		# lid 5 lmc 0 "edge" lid 10 4xEDR
[2](2c90000002102) 	"S-0002c90000001100"[3]		# lid 6 lmc 0 "core" lid 11 4xEDR

vendid=0x2c9
devid=0x4000
sysimgguid=0x2c90000003000
rtguid=0x2c90000003000
Rt	2 "R-0002c90000003000"		# "gate"
[1](2c90000003001) 	"S-0002c90000001000"[2]		# lid 3 lmc 0 "edge" lid 10 4xEDR
[2](2c90000003002) 	"S-0002c90000001100"[4]		# lid 4 lmc 0 "core" lid 11 4xEDR
`

func TestRouters(t *testing.T) {
	t.Parallel()
	g, err := topo.Parse("routed", []byte(routed))
	if err != nil {
		t.Fatal(err)
	}
	w := upGraph(t, g)
	same(t, "routers", len(w.g.Routers()), 1)
	host := w.g.Hosts()[0].Name
	w.sameGraph("ibnetdiscover", w.parse(w.run(host, "ibnetdiscover")))
	w.nodeLists()
	sameLines(t, "iblinkinfo -l", linkTexts(w.run(host, "iblinkinfo", "-l")), w.linkLines(w.g.Nodes))
	router := w.g.Routers()[0]
	read(t, w.run(host, "smpquery", "nodeinfo", dec(w.lid(router, 1)))).expect(t, "NodeInfo", nodeSheet(router, 1))
}
