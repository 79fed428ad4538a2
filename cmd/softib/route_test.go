package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/internal/cputime"
	"softib/operate/forwarding"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// lab is a fabric of this process with commands that talk to it.
type lab struct {
	*fabric
	t   *testing.T
	mgr *manager.Manager
}

// newLab starts a fabric with a manager, or without one and brought up once.
func newLab(t *testing.T, spec string, cfg *sm.Config) *lab {
	t.Helper()
	l := newBareLab(t, spec, cfg)
	if cfg == nil {
		if _, err := l.BringUp(); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// newBareLab starts a fabric whose subnet nobody brings up but the manager, if there is one.
func newBareLab(t *testing.T, spec string, cfg *sm.Config) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // t.TempDir would be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	p, err := newPlace(defaultName)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := p.claim()
	if err != nil {
		t.Fatal(err)
	}
	g, err := loadTopology(newTerminal(io.Discard), spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(t.Context(), defaultName, spec, g, cfg, nil, io.Discard, toTerminal(newTerminal(io.Discard)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := f.manage(p, upOptions{state: stateNone})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve(ctx, p, f, mgr, cancel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.close()
		mgr.Close()
		f.Close()
		lock.Close()
	})
	return &lab{f, t, mgr}
}

// alarm waits until an alarm of a kind stands.
func (l *lab) alarm(kind health.Kind) manager.OpenAlarm {
	l.t.Helper()
	samples := l.mgr.Samples(l.t.Context())
	late := time.After(time.Minute)
	for {
		for _, a := range l.mgr.OpenAlarms() {
			if a.Kind == kind {
				return a
			}
		}
		select {
		case <-samples:
		case <-late:
			l.t.Fatalf("no alarm %q among %+v", kind, l.mgr.OpenAlarms())
		}
	}
}

// softib runs a command.
func softib(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	root := newRoot()
	var o, e bytes.Buffer
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), progressLine.ReplaceAllString(e.String(), ""), err
}

// progressLine is what a command says that takes more than a second, as any may on a busy machine.
var progressLine = regexp.MustCompile(`(?m)^[a-z][a-z ,]*: [0-9]+ s\n`)

// shown is the output of a command that must succeed, within the width of a terminal.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := softib(t, args...)
	if err != nil || errs != "" {
		t.Fatalf("softib %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	if !slices.Contains(args, "--json") && args[0] != "log" {
		narrow(t, out)
	}
	return out
}

// broken is the output and the error of one that must fail.
func broken(t *testing.T, code int, words []string, args ...string) string {
	t.Helper()
	out, _, err := softib(t, args...)
	if err == nil || exitCode(err) != code || nextOf(err) == "" {
		t.Fatalf("softib %s: %v, exit code %d, next %q\n%s", strings.Join(args, " "), err, exitCode(err), nextOf(err),
			out)
	}
	wants(t, err.Error(), words...)
	narrow(t, out)
	return out
}

// narrow wants lines that fit a terminal.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func asJSON[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return v
}

// ref is a port by name.
func (l *lab) ref(node string, port int) topo.PortRef {
	l.t.Helper()
	n := l.Graph().ByName(node)
	if n == nil {
		l.t.Fatalf("no node %s", node)
	}
	return topo.PortRef{Node: n.Index, Port: ib.PortNum(port)}
}

func (l *lab) lidOf(node string) ib.LID {
	l.t.Helper()
	n := l.Graph().ByName(node)
	r := topo.PortRef{Node: n.Index}
	if !n.IsSwitch() {
		r.Port = 1
	}
	pi, _ := l.PortInfo(r)
	return pi.LID
}

// set writes an attribute of a node, as a manager would.
func (l *lab) set(node string, attr mad.AttrID, mod uint32, data []byte) {
	l.t.Helper()
	b, err := (&mad.SMP{Method: mad.MethodSet, Attr: attr, Modifier: mod, Directed: true, Data: data}).Append(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	var resp [mad.Size]byte
	if !l.SMP(l.Graph().ByName(node).Index, 0, (*[mad.Size]byte)(b), &resp) ||
		mad.View(resp[:]).Status() != mad.StatusOK {
		l.t.Fatalf("%s: Set(%v) was answered with %v", node, attr, mad.View(resp[:]).Status())
	}
}

// plant writes one forwarding entry of a switch.
func (l *lab) plant(sw string, lid ib.LID, port ib.PortNum) {
	l.t.Helper()
	t, _ := l.Tables(l.Graph().ByName(sw).Index)
	block := make([]byte, mad.LFTPerBlock)
	first := int(lid) / mad.LFTPerBlock * mad.LFTPerBlock
	for i := range block {
		block[i] = byte(route.NoPort)
		if at := first + i; at < len(t.LFT) {
			block[i] = byte(t.LFT[at])
		}
	}
	block[int(lid)-first] = byte(port)
	l.set(sw, mad.AttrLFT, uint32(first/mad.LFTPerBlock), block)
}

func TestRouteShow(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", nil)
	g := l.Graph()
	list := asJSON[[]forwarding.Switch](t, shown(t, "route", "show", "--json"))
	if len(list) != len(g.Switches()) {
		t.Fatalf("%d switches, want %d", len(list), len(g.Switches()))
	}
	lids := len(g.Hosts()) + len(g.Switches())
	for i, n := range g.Switches() {
		s := list[i]
		held, _ := l.Tables(n.Index)
		if s.Switch != n.Name || s.LID != held.LID || int(s.Top) != len(held.LFT)-1 || s.Filled != lids ||
			s.Missing != 0 || len(s.Entries) != lids || s.NumGroups != len(held.Groups) {
			t.Errorf("%s is shown as %+v", n.Name, s)
		}
		for _, e := range s.Entries {
			if e.Port != held.LFT[e.LID] || e.Name == "" || l.lidOf(strings.TrimSuffix(e.Name, "[1]")) != e.LID {
				t.Errorf("%s: %+v, the table has port %d", n.Name, e, held.LFT[e.LID])
			}
			want := n.Name
			if e.Port > 0 {
				x := n.Ports[e.Port]
				want = g.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort})
			}
			if e.To != want {
				t.Errorf("%s: LID %d leads to %s, want %s", n.Name, e.LID, e.To, want)
			}
		}
		if len(s.Groups) != len(held.Groups) || len(s.Groups) > 0 &&
			(s.Groups[0].MLID != "0xc000" || !slices.Equal(s.Groups[0].Ports, held.Groups[0].Ports)) {
			t.Errorf("%s: groups are %v, the table has %v", n.Name, s.Groups, held.Groups)
		}
	}
	wants(t, shown(t, "route", "show"), "leaf1", "spine1", "LIDs per port")
	wants(t, shown(t, "route", "show", "leaf1"), "leads to", "itself", "0xc000", "1:h1[1]")
	h3 := l.lidOf("h3")
	held, _ := l.Tables(g.ByName("leaf1").Index)
	for _, word := range []string{"h3", fmt.Sprint(h3), fmt.Sprintf("0x%x", int(h3)), "h3[1]",
		fmt.Sprintf("0x%x", uint64(g.ByName("h3").PortGUID(1)))} {
		wants(t, shown(t, "route", "show", "leaf1", word), fmt.Sprintf("to h3[1], LID %d", h3),
			fmt.Sprintf("\n  leaf1      %d  spine", held.LFT[h3]))
	}
	if out := shown(t, "route", "show", "h3"); strings.Count(out, "\n") != 2+len(g.Switches()) {
		t.Errorf("the entries for h3:\n%s", out)
	}
	l.plant("leaf1", h3, route.NoPort)
	wants(t, shown(t, "route", "show", "leaf1", "h3"), "-  nowhere: dropped")
	wants(t, shown(t, "route", "show", "leaf1"), "1 address in use has no entry")
	broken(t, exitUsage, []string{"h99"}, "route", "show", "h99")
	broken(t, exitUsage, []string{`"h1" is no switch`}, "route", "show", "h1", "h2")
	broken(t, exitUsage, []string{"multicast"}, "route", "show", "leaf1", "0xc000")
}

// A trace goes where packets go: the ports that count them are the ports that it names.
func TestRouteTraceIsTrue(t *testing.T) {
	for _, c := range []struct{ spec, engine string }{{"fat-tree:radix=4,levels=3", "ftree"}, {"torus:4x4", "dor"}} {
		l := newLab(t, c.spec, &sm.Config{Engines: c.engine, SweepInterval: -1})
		l.rests()
		hosts := l.Graph().Hosts()
		for i := 1; i < len(hosts); i += 5 {
			a, b := hosts[0].Name, hosts[i].Name
			ways := asJSON[[]traced](t, shown(t, "route", "trace", a, b, "--both", "--json"))
			if len(ways) != 2 || !ways[0].Arrives || !ways[1].Arrives || ways[0].Told != "the administrator's" {
				t.Fatalf("%s: %+v", c.spec, ways)
			}
			want := map[string]bool{}
			for _, w := range ways {
				for _, h := range w.Hops {
					want[h.Out] = true
				}
			}
			before := l.sent()
			x, err := l.Host(a)
			if err != nil {
				t.Fatal(err)
			}
			y, err := l.Host(b)
			if err != nil {
				t.Fatal(err)
			}
			cfg := perf.Config{Test: perf.SendLat, Iters: 50, Sizes: []int{8}}
			if err := perf.Run(t.Context(), x.Device(), y.Device(), cfg,
				func(perf.Row) error { return nil }); err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for port, n := range l.sent() {
				if n > before[port] {
					got[port] = true
				}
			}
			for port := range want {
				if !got[port] {
					t.Errorf("%s, %s to %s: the trace has %s, where nothing went", c.spec, a, b, port)
				}
			}
			for port := range got {
				if !want[port] {
					t.Errorf("%s, %s to %s: packets went by %s, which the trace has not", c.spec, a, b, port)
				}
			}
		}
	}
}

// await waits until something is so.
func (l *lab) await(what string, is func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("not in a minute: %s", what)
		}
	}
}

// rests waits until the manager has nothing to do.
func (l *lab) rests() {
	l.t.Helper()
	l.await("the manager has nothing to do", func() (is bool) {
		if err := l.runner.Do(func(m *sm.Manager) { is = !m.Sweeping() }); err != nil {
			l.t.Fatal(err)
		}
		return is
	})
}

// sent counts what every port has sent.
func (l *lab) sent() map[string]uint64 {
	m := map[string]uint64{}
	g := l.Graph()
	for _, n := range g.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			m[g.PortName(r)] = l.Counters(r)[ib.PortXmitPkts]
		}
	}
	return m
}

// Each way in which packets end has its words.
func TestRouteTraceEnds(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", nil)
	first := func(out string) string { // where leaf1 sends it
		return asJSON[[]traced](t, out)[0].Hops[1].Out
	}
	h5 := l.lidOf("h5")
	out := shown(t, "route", "trace", "h1", "h5")
	wants(t, out, "h1[1], LID ", "(assumed: no administrator answers)",
		"arrives over 4 links and 3 switches: at most 4x NDR (400 Gb/s), MTU 4096")
	up := first(shown(t, "route", "trace", "h1", "h5", "--json"))
	var port int
	if _, err := fmt.Sscanf(up, "leaf1[%d]", &port); err != nil {
		t.Fatalf("%s: %v", up, err)
	}
	wants(t, shown(t, "route", "trace", "h1", "h1"), "the same port")
	wants(t, shown(t, "route", "trace", "leaf1", "h5"), "arrives over 3 links")
	wants(t, shown(t, "route", "trace", "h1", "spine1"), "arrives over 2 links")

	// The cable, then its other end's host.
	if err := l.SetLink(l.ref("leaf1", port), false); err != nil {
		t.Fatal(err)
	}
	wants(t, broken(t, exitFailed, []string{"packets of h1[1] do not reach h5[1]", "the link from " + up + " to spine",
		"is DOWN"}, "route", "trace", "h1", "h5"), "ends: the link from "+up)
	if err := l.SetLink(l.ref("leaf1", port), true); err != nil {
		t.Fatal(err)
	}
	broken(t, exitFailed, []string{"is INITIALIZE"}, "route", "trace", "h1", "h5")
	if _, err := l.BringUp(); err != nil {
		t.Fatal(err)
	}
	shown(t, "route", "trace", "h1", "h5")

	// No entry; a LID that nobody has.
	l.plant("leaf1", h5, route.NoPort)
	broken(t, exitFailed, []string{fmt.Sprintf("leaf1 has no entry for LID %d", h5)}, "route", "trace", "h1", "h5")
	broken(t, exitFailed, []string{"leaf1 has no entry for LID 4000"}, "route", "trace", "h1", "4000")
	broken(t, exitUsage, []string{"there is no way back"}, "route", "trace", "h1", "4000", "--both")
	// To the wrong host, to the switch itself, to a port without a cable.
	l.plant("leaf1", h5, 2)
	broken(t, exitFailed, []string{fmt.Sprintf("it comes to h2[1], whose LID is %d, not %d", l.lidOf("h2"), h5)},
		"route", "trace", "h1", "h5")
	l.plant("leaf1", h5, 0)
	broken(t, exitFailed, []string{fmt.Sprintf("it comes to leaf1, whose LID is %d, not %d", l.lidOf("leaf1"), h5)},
		"route", "trace", "h1", "h5")
	// Back, and round.
	l.plant("leaf1", h5, 1)
	broken(t, exitFailed, []string{"leaf1 sends it back by leaf1[1]"}, "route", "trace", "h1", "h5")
	l.plant("leaf1", h5, ib.PortNum(port))
	x := l.Graph().ByName("leaf1").Ports[port]
	spine := l.Graph().Nodes[x.Peer]
	l.plant(spine.Name, h5, x.PeerPort)
	broken(t, exitFailed, []string{"the tables run in a circle", spine.Name}, "route", "trace", "h1", "h5")
	other := l.Graph().Nodes[spine.Ports[2].Peer] // another leaf
	l.plant(spine.Name, h5, 2)
	l.plant(other.Name, h5, spine.Ports[2].PeerPort)
	broken(t, exitFailed, []string{"the tables run in a circle"}, "route", "trace", "h1", "h5")
	// Partitions.
	broken(t, exitFailed, []string{"h1[1] is not in partition 0x9234 itself"}, "route", "trace", "h1", "h2", "--pkey",
		"0x9234")
	broken(t, exitUsage, []string{"--sl 16"}, "route", "trace", "h1", "h2", "--sl", "16")
	broken(t, exitUsage, []string{"--pkey x"}, "route", "trace", "h1", "h2", "--pkey", "x")
	broken(t, exitUsage, nil, "route", "trace", "h1")
	if w := asJSON[[]traced](t, shown(t, "route", "trace", "h1", "h2", "--sl", "3", "--pkey", "0xffff",
		"--json"))[0]; w.SL != 3 || w.Told != "as asked for" {
		t.Errorf("with --sl 3: %+v", w)
	}
}

// Partitions end a way at the switch that enforces them, or at the port that is in another one.
func TestRouteTracePartitions(t *testing.T) {
	for _, enforce := range []sm.Enforcement{sm.EnforceBoth, sm.EnforceOut, sm.EnforceOff} {
		guid := func(h int) string { return fmt.Sprintf("0x0250f11b010000%d1", h) }
		conf, _, err := policy.ParsePartitions("p.conf",
			[]byte("Default=0x7fff,ipoib:ALL=limited,SELF=full;\nA=0x1:"+guid(1)+"=full,"+guid(2)+"=full;\nB=0x2:"+
				guid(2)+"=full,"+guid(3)+"=full;\n"))
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, "star:4", &sm.Config{Partitions: conf, Enforce: enforce, SweepInterval: -1})
		if got := l.Graph().ByName("h1").PortGUID(1).String(); got != guid(1) {
			t.Fatalf("h1 is %s", got)
		}
		wants(t, shown(t, "status"), "0xffff Default: 0 full members, 4 limited ones", "0x8002 B: 2 full members")
		wants(t, shown(t, "route", "trace", "h2", "h3"), "partition 0x8002 (the administrator's)", "arrives")
		wants(t, shown(t, "route", "trace", "h2", "h1"), "arrives")
		// limited to full: the manager is there
		wants(t, shown(t, "route", "trace", "h4", "sw1"), "partition 0x7fff", "arrives")
		broken(t, exitFailed, []string{"h1[1] is not in partition 0x8002 itself"}, "route", "trace", "h1", "h3",
			"--pkey", "0x8002")
		// Both limited, and no other partition.
		if enforce == sm.EnforceOff {
			broken(t, exitFailed, []string{"both are limited members of partition 0xffff"}, "route", "trace", "h4",
				"h3")
			broken(t, exitFailed, []string{"h3[1] is not in partition 0x8001"}, "route", "trace", "h2", "h3", "--pkey",
				"0x8001")
		} else {
			broken(t, exitFailed, []string{"both are limited"}, "route", "trace", "h4", "h3")
			broken(t, exitFailed, []string{"sw1[3] lets nothing of partition 0x8001 out"}, "route", "trace", "h2", "h3",
				"--pkey", "0x8001")
		}
	}
}

func TestRouteCheckRunning(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", nil)
	n := route.FromGraph(l.Graph())
	pairs := int64(n.Switches[0].Ends*4) * int64(len(n.Dests)-1)
	out := shown(t, "route", "check")
	wants(t, out, "fabric default, tables in force", "good", fmt.Sprintf("all %d pairs", pairs), "loops       none",
		"none possible: 1 lane", "effective bisection")
	r := asJSON[[]judged](t, shown(t, "route", "check", "--json"))[0]
	if !r.OK || r.Report.Pairs != pairs || r.Report.HopsMax != 2 || len(r.Switches) != 6 || r.Report.Shift.Max != 1 {
		t.Errorf("judged %+v", r.Report)
	}
	out = shown(t, "route", "check", "--compare", "ftree,updn,dor")
	wants(t, out, "\nin force  good ", "\nftree     good ", "\nupdn      good ", "\ndor       refused: ")
	wants(t, shown(t, "route", "check", "--engine", "ftree,updn"), "tables by ftree, computed in")

	// A planted loop is found, named and counted.
	h5 := l.lidOf("h5")
	held, _ := l.Tables(l.Graph().ByName("leaf1").Index)
	x := l.Graph().ByName("leaf1").Ports[held.LFT[h5]]
	spine := l.Graph().Nodes[x.Peer].Name
	l.plant(spine, h5, x.PeerPort)
	out = broken(t, exitFailed, []string{"not good"}, "route", "check")
	wants(t, out, "NOT GOOD", "pairs are NOT", fmt.Sprintf("to h5[1] (LID %d) it goes", h5),
		fmt.Sprintf("leaf1[%d] -> %s[%d]", held.LFT[h5], spine, x.PeerPort),
		fmt.Sprintf("%s[%d] -> leaf1[%d]", spine, x.PeerPort, held.LFT[h5]), "and round again")
	out = broken(t, exitFailed, []string{"in force"}, "route", "check", "--compare", "updn")
	wants(t, out, "in force  LOOPS", "updn      good")

	// Links that are down do not count, nor hosts behind them.
	l.plant(spine, h5, held.LFT[h5])
	if _, err := l.BringUp(); err != nil {
		t.Fatal(err)
	}
	if err := l.SetLink(l.ref("h8", 1), false); err != nil {
		t.Fatal(err)
	}
	r = asJSON[[]judged](t, shown(t, "route", "check", "--json"))[0]
	if r.Report.EndPorts != 7 || !r.OK {
		t.Errorf("with h8 away: %+v", r.Report)
	}
	broken(t, exitUsage, []string{"need a TOPOLOGY"}, "route", "check", "--remove", "1%")
	broken(t, exitUsage, []string{"unknown routing engine"}, "route", "check", "--compare", "x")
	broken(t, exitUsage, []string{"use one of them"}, "route", "check", "--compare", "updn", "--engine", "updn")
}

// A ring whose packets all go the same way round waits for itself; two lanes that take turns do not.
func TestRouteCheckDeadlock(t *testing.T) {
	l := newLab(t, "torus:5", nil)
	g := l.Graph()
	ring := g.Switches()
	// The way round that every switch is to send by: to the next one, found by walking the cables.
	at, came := ring[0], -1
	onward := map[string]ib.PortNum{}
	for range ring {
		for p := 1; p < len(at.Ports); p++ {
			if x := at.Ports[p]; x.Connected() && g.Nodes[x.Peer].IsSwitch() && p != came {
				onward[at.Name] = ib.PortNum(p)
				came = int(x.PeerPort)
				at = g.Nodes[x.Peer]
				break
			}
		}
	}
	if at != ring[0] || len(onward) != 5 {
		t.Fatalf("the ring is %v", onward)
	}
	for _, sw := range ring {
		for _, h := range g.Hosts() {
			if x := h.Ports[1]; x.Peer != sw.Index {
				l.plant(sw.Name, l.lidOf(h.Name), onward[sw.Name])
			}
		}
	}
	out := broken(t, exitFailed, []string{"not good"}, "route", "check")
	wants(t, out, "reachable   all ", "loops       none", "POSSIBLE: on 1 lane these 5 wait for each other",
		"and round again")
	for _, sw := range ring {
		wants(t, out, fmt.Sprintf("%s[%d] -> ", sw.Name, onward[sw.Name]))
	}
	r := asJSON[[]judged](t, func() string { out, _, _ := softib(t, "route", "check", "--json"); return out }())[0]
	if r.OK || len(r.Deadlock) != 5 || r.Report.Unreached != 0 || !strings.HasSuffix(r.Deadlock[0], "on VL 0") {
		t.Errorf("judged %+v", r)
	}
	wants(t, broken(t, exitFailed, nil, "route", "check", "--compare", "updn"), "in force  DEADLOCK", "updn      good")
}

// Lanes and service levels count as the fabric has them: dor on a torus is safe only with its two lanes.
func TestRouteCheckLanes(t *testing.T) {
	l := newLab(t, "torus:4x4", &sm.Config{Engines: "dor", SweepInterval: -1})
	out := shown(t, "route", "check")
	wants(t, out, "by dor", "none possible: 2 lanes", "service levels: asked of the administrator")
	// One map for all: everything on lane 0.
	for _, sw := range l.Graph().Switches() {
		for p := 1; p < len(sw.Ports); p++ {
			for in := range sw.Ports {
				l.set(sw.Name, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ib.PortNum(p)), make([]byte, 8))
			}
		}
	}
	wants(t, broken(t, exitFailed, nil, "route", "check"), "POSSIBLE: on 1 lane")
}

func TestRouteCheckFiles(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", nil)
	g := l.Graph()
	t.Chdir(t.TempDir())
	file := func(name, text string) string {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	net := file("lab.topo", string(topo.Append(nil, g)))
	var b strings.Builder
	book := forwarding.NewBook(l.Fabric)
	for _, n := range g.Switches() {
		held, _ := l.Tables(n.Index)
		fmt.Fprintf(&b, "Unicast lids [0-%d] of switch Lid %d guid 0x%016x ('%s'):\n", len(held.LFT)-1, held.LID,
			uint64(n.GUID), n.Name)
		count := 0
		for lid, p := range held.LFT {
			if ref, ok := book.Who(ib.LID(lid)); ok {
				count++
				fmt.Fprintf(&b, "0x%04x %03d # Channel Adapter portguid 0x%016x: 'x'\n", lid, p,
					uint64(g.Nodes[ref.Node].PortGUID(ref.Port)))
			}
		}
		fmt.Fprintf(&b, "%d lids dumped\n", count)
	}
	lfts := file("opensm-lfts.dump", b.String())
	running := asJSON[[]judged](t, shown(t, "route", "check", "--json"))[0]
	fromFile := asJSON[[]judged](t, shown(t, "route", "check", net, "--lfts", lfts, "--json"))[0]
	if !fromFile.OK || fromFile.Report.Pairs != running.Report.Pairs ||
		fromFile.Report.LinkUse != running.Report.LinkUse || fromFile.Report.Bisection != running.Report.Bisection {
		t.Errorf("from files %+v\nrunning    %+v", fromFile.Report, running.Report)
	}
	wants(t, shown(t, "route", "check", "--topo", net, "--lfts", lfts), "opensm-lfts.dump", "no service levels")
	wants(t, shown(t, "route", "check", net, "--lfts", lfts, "--compare", "ftree"), "opensm-lft…  good ",
		"ftree        good ")

	// A file without one switch, a broken one, one of another fabric.
	text := b.String()
	cut := strings.Index(text, "Unicast lids [0-"+fmt.Sprint(fromFile.Report.LIDs)+"] of switch Lid "+
		fmt.Sprint(l.lidOf("leaf2")))
	end := cut + strings.Index(text[cut:], "dumped\n") + len("dumped\n")
	wants(t, broken(t, exitFailed, nil, "route", "check", net, "--lfts", file("less", text[:cut]+text[end:])),
		"leaf2 has no table", "pairs are NOT")
	if _, _, err := softib(t, "route", "check", net, "--lfts", file("bad", "hello\n")); err == nil ||
		!strings.Contains(err.Error(), "bad:1:") {
		t.Errorf("a bad file: %v", err)
	}
	broken(t, exitFailed, []string{"no switch of"}, "route", "check", net, "--lfts",
		file("other", strings.ReplaceAll(text, "guid 0x02", "guid 0x08")))
	broken(t, exitFailed, nil, "route", "check", net, "--lfts", "none")
}

func TestRouteCheckEngines(t *testing.T) {
	out := shown(t, "route", "check", "fat-tree:radix=8,levels=3", "--remove", "5%")
	wants(t, out, "fat-tree:radix=8,levels=3, tables by ftree",
		"taken away: 13 of 256 cables between switches (seed 1)", "good")
	if again := shown(t, "route", "check", "fat-tree:radix=8,levels=3", "--remove", "13"); !strings.Contains(again,
		"13 of 256 cables") {
		t.Errorf("13 cables:\n%s", again)
	}
	out = shown(t, "route", "check", "torus:4x4", "--compare", "all")
	for _, name := range route.Names() {
		wants(t, out, "\n"+name)
	}
	wants(t, out, "sw1 and sw2 are on one level")
	list := asJSON[[]judged](t, shown(t, "route", "check", "torus:4x4", "--compare", "all", "--json"))
	if len(list) != len(route.Names()) {
		t.Errorf("%d engines were judged", len(list))
	}
	out = shown(t, "route", "check", "fat-tree:radix=8,levels=3", "--engine", "ftree", "--remove", "1")
	wants(t, out, "tables of the whole network change in ", "blocks to write; computed in")
	out = shown(t, "route", "check", "fat-tree:radix=8,levels=3", "--adaptive", "--remove", "5%")
	wants(t, out, "of the ways have a choice", "whatever is chosen arrives, and nothing waits in a circle")
	out = shown(t, "route", "check", "fat-tree:radix=8,levels=3", "--adaptive", "--json")
	for _, x := range asJSON[[]judged](t, out) {
		if c := x.Choices; c == nil || c.Pairs != c.All || c.All == 0 {
			t.Errorf("choices: %+v", c)
		}
	}
	out = shown(t, "route", "check", "dragonfly:a=4,h=2,p=1", "--adaptive", "--engine", "dragonfly")
	wants(t, out, "91.4 % have detours, by way of a third group", "nothing waits in a circle")
	broken(t, exitUsage, []string{"--adaptive goes with"}, "route", "check", "--adaptive")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"route", "check", "fat-tree:radix=24,levels=3", "--engine", "nue"})
	before := cputime.Used(t)
	err := root.ExecuteContext(stopped)
	if used := cputime.Used(t) - before; !errors.Is(err, context.Canceled) || used > 30*time.Second {
		t.Errorf("interrupted: %v after %v of a processor's time", err, used)
	}
	broken(t, exitFailed, []string{"no engine fits torus:4x4"}, "route", "check", "torus:4x4", "--engine", "ftree")
	broken(t, exitFailed, []string{"pyramid"}, "route", "check", "pyramid")
	broken(t, exitUsage, []string{"--remove"}, "route", "check", "torus:4x4", "--remove", "lots")
	broken(t, exitUsage, []string{"--vls"}, "route", "check", "torus:4x4", "--vls", "16")
	broken(t, exitUsage, []string{"two topologies"}, "route", "check", "torus:4x4", "--topo", "star:2")
	broken(t, exitUsage, nil, "route", "draw")
	wants(t, shown(t, "route"), "show", "trace", "check")
}

// waitLog waits for a line of the manager's log.
func (l *lab) waitLog(from int, words ...string) {
	l.t.Helper()
	deadline := time.After(60 * time.Second)
	for at := from; ; {
		lines, next, more := l.log.from(at)
		at = next
		for _, line := range lines {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
		select {
		case <-more:
		case <-deadline:
			have, _, _ := l.log.from(0)
			l.t.Fatalf("no line with %q in\n%s", words, strings.Join(have, "\n"))
		}
	}
}
