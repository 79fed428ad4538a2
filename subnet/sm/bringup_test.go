package sm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"softib/internal/benchsize"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

var shapes = []struct {
	spec     string
	shortest bool
}{
	{"pair", true},
	{"star:4", true},
	{topo.DefaultSpec, true},
	{"fat-tree:radix=4,levels=3", true},
	{"fat-tree:radix=4,levels=4", true},
	{"line:5", true},
	{"ring:6", false},
	{"mesh:3x4", false},
	{"torus:4x4", false},
	{"torus:5x5x3", false},
	{"dragonfly:a=4,h=2,p=2,g=9", false},
	{"random:switches=8,hosts=16,seed=1", false},
	{"random:switches=20,hosts=40,seed=7", false},
}

// TestAllPairs walks the tables that the switches hold between all hosts, and from
// all hosts to all switches.
func TestAllPairs(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.spec, func(t *testing.T) {
			g := spec(t, shape.spec)
			w := build(t, g)
			r := mustBringUp(t, w)
			if r.MADs != w.mads || r.Links != g.NumCables() || len(r.Down) != 0 || r.Hosts != len(g.Hosts()) ||
				r.Switches != len(g.Switches()) {
				t.Errorf("report %+v: %d MADs were sent", r, w.mads)
			}
			deps := dependencies{}
			for _, from := range hostPorts(g) {
				dist := g.Distances(from.Node)
				for _, to := range hostPorts(g) {
					if from == to {
						continue
					}
					hops, at, ok := w.walk(from, r.LID(to))
					if !ok || at != to {
						t.Fatalf("%s to %s: ended at %s after %d hops", g.PortName(from), g.PortName(to),
							g.PortName(at), len(hops))
					}
					if shape.shortest && len(hops) != dist[to.Node] {
						t.Errorf("%s to %s: %d hops, shortest is %d", g.PortName(from), g.PortName(to), len(hops),
							dist[to.Node])
					}
					deps.add(hops)
				}
				for _, s := range g.Switches() {
					if _, at, ok := w.walk(from, r.LID(topo.PortRef{Node: s.Index})); !ok || at.Node != s.Index {
						t.Fatalf("%s to %s: ended at %s", g.PortName(from), s.Name, g.PortName(at))
					}
				}
			}
			if c := deps.cycle(); c != nil {
				t.Errorf("links wait for each other in a circle: %v", c)
			}
			// From any switch to any other.
			for _, s := range g.Switches() {
				for _, d := range g.Switches() {
					lid := r.LID(topo.PortRef{Node: d.Index})
					out := w.switches[s.Index].Route(lid)
					if s == d {
						if out != 0 {
							t.Errorf("%s: own LID goes to port %d", s.Name, out)
						}
						continue
					}
					if _, at, ok := w.walk(topo.PortRef{Node: s.Index, Port: out}, lid); !ok || at.Node != d.Index {
						t.Fatalf("%s to %s: ended at %s", s.Name, d.Name, g.PortName(at))
					}
				}
			}
			w.checkPorts(t, r)
		})
	}
}

// checkPorts looks at every engine for what the bring-up should have left there.
func (w *world) checkPorts(t *testing.T, r Report) {
	t.Helper()
	seen := map[ib.LID]bool{}
	for i, n := range w.g.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			l, ref := w.links[i][p], topo.PortRef{Node: i, Port: ib.PortNum(p)}
			if !n.Ports[p].Connected() {
				if l.State() != ib.PortDown {
					t.Errorf("%s has no cable and is %v", w.g.PortName(ref), l.State())
				}
				continue
			}
			if l.State() != ib.PortActive || l.NeighborMTU() != ib.MTU4096 || l.OperVLs() != 8 {
				t.Errorf("%s: %v, MTU %v, %d VLs", w.g.PortName(ref), l.State(), l.NeighborMTU(), l.OperVLs())
			}
			if n.IsSwitch() {
				continue
			}
			h := w.hcas[i].Port(ib.PortNum(p))
			if h.LID != r.LID(ref) || h.LID == 0 || seen[h.LID] || h.SMLID != r.SMLID || h.State != ib.PortActive {
				t.Errorf("%s: %+v, report says LID %v and SMLID %v", w.g.PortName(ref), *h, r.LID(ref), r.SMLID)
			}
			seen[h.LID] = true
		}
		if s := w.switches[i]; s != nil {
			lid, _ := s.LID()
			if lid == 0 || seen[lid] || lid != r.LID(topo.PortRef{Node: i}) {
				t.Errorf("%s: LID %v", n.Name, lid)
			}
			seen[lid] = true
		}
	}
}

// dependencies is the graph of which link waits for which.
type dependencies map[topo.PortRef]map[topo.PortRef]bool

func (d dependencies) add(hops []topo.PortRef) {
	for i := 1; i < len(hops); i++ {
		if d[hops[i-1]] == nil {
			d[hops[i-1]] = map[topo.PortRef]bool{}
		}
		d[hops[i-1]][hops[i]] = true
	}
}

// cycle finds links that wait for each other in a circle; nil if there are none.
func (d dependencies) cycle() []topo.PortRef {
	state := map[topo.PortRef]int{}
	var stack []topo.PortRef
	var visit func(topo.PortRef) bool
	visit = func(r topo.PortRef) bool {
		state[r] = 1
		stack = append(stack, r)
		for next := range d[r] {
			if state[next] == 1 || state[next] == 0 && visit(next) {
				return true
			}
		}
		state[r] = 2
		stack = stack[:len(stack)-1]
		return false
	}
	for r := range d {
		if state[r] == 0 && visit(r) {
			return stack
		}
	}
	return nil
}

func TestDependenciesFindCycle(t *testing.T) {
	a, b, c := topo.PortRef{Node: 1}, topo.PortRef{Node: 2}, topo.PortRef{Node: 3}
	d := dependencies{}
	d.add([]topo.PortRef{a, b})
	d.add([]topo.PortRef{b, c})
	if d.cycle() != nil {
		t.Fatal("found a cycle where there is none")
	}
	d.add([]topo.PortRef{c, a})
	if d.cycle() == nil {
		t.Fatal("missed the cycle")
	}
}

// TestBalance counts what crosses each link between switches when all hosts send to all.
func TestBalance(t *testing.T) {
	for _, s := range []string{topo.DefaultSpec, "fat-tree:radix=4,levels=3", "fat-tree:radix=8,levels=3"} {
		g := spec(t, s)
		w := build(t, g)
		r := mustBringUp(t, w)
		flows := map[topo.PortRef]int{}
		for _, from := range hostPorts(g) {
			for _, to := range hostPorts(g) {
				if from != to {
					hops, _, _ := w.walk(from, r.LID(to))
					for _, h := range hops {
						flows[h]++
					}
				}
			}
		}
		// LIDs of hosts by uplink of each leaf, and flows on all links that go up.
		tier := func(n *topo.Node) int { return g.Distances(n.Index)[nearestHost(g, n)] }
		tiers := map[int]int{}
		for _, n := range g.Switches() {
			tiers[n.Index] = tier(n)
		}
		for _, n := range g.Switches() {
			count := map[ib.PortNum]int{}
			low, high := 1<<30, 0
			for p := 1; p < len(n.Ports); p++ {
				x := &n.Ports[p]
				if !x.Connected() || !g.Nodes[x.Peer].IsSwitch() || tiers[x.Peer] < tiers[n.Index] {
					continue
				}
				count[ib.PortNum(p)] = 0
				f := flows[topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}]
				low, high = min(low, f), max(high, f)
			}
			if len(count) == 0 {
				continue
			}
			if low != high {
				t.Errorf("%s: %s: links up carry %d to %d flows", s, n.Name, low, high)
			}
			for _, to := range hostPorts(g) {
				out := w.switches[n.Index].Route(r.LID(to))
				if _, up := count[out]; up {
					count[out]++
				}
			}
			if tiers[n.Index] > 1 {
				continue
			}
			low, high = 1<<30, 0
			for _, c := range count {
				low, high = min(low, c), max(high, c)
			}
			if high-low > 1 || low == 0 {
				t.Errorf("%s: %s: uplinks have %d to %d LIDs", s, n.Name, low, high)
			}
		}
	}
}

func nearestHost(g *topo.Graph, n *topo.Node) int {
	dist, best := g.Distances(n.Index), -1
	for _, h := range g.Hosts() {
		if best < 0 || dist[h.Index] < dist[best] {
			best = h.Index
		}
	}
	return best
}

func TestLinkEndsAgree(t *testing.T) {
	g := spec(t, "star:3")
	sw := g.Switches()[0].Index
	w := build(t, g, func(w *world) {
		w.vls = func(n int) uint8 {
			if n == 0 {
				return 4
			}
			return 15
		}
		w.mtu = func(n int) ib.MTU {
			if n == 1 {
				return ib.MTU1024
			}
			return ib.MTU4096
		}
	})
	mustBringUp(t, w)
	for h, want := range []struct {
		vls uint8
		mtu ib.MTU
	}{{4, ib.MTU4096}, {15, ib.MTU1024}, {15, ib.MTU4096}} {
		x := g.Nodes[h].Ports[1]
		for _, l := range []interface {
			OperVLs() uint8
			NeighborMTU() ib.MTU
		}{w.links[h][1], w.links[sw][x.PeerPort]} {
			if l.OperVLs() != want.vls || l.NeighborMTU() != want.mtu {
				t.Errorf("host %d: %d VLs, MTU %v, want %d, %v", h+1, l.OperVLs(), l.NeighborMTU(), want.vls, want.mtu)
			}
		}
		// No service level maps to a lane that the link does not have.
		for _, vl := range w.switches[sw].SL2VL(g.Nodes[(h+1)%3].Ports[1].PeerPort, x.PeerPort) {
			if uint8(vl) >= want.vls {
				t.Errorf("host %d: VL %d of %d", h+1, vl, want.vls)
			}
		}
	}
}

// TestAgain brings a fabric up after a link has gone and come back.
func TestAgain(t *testing.T) {
	g := spec(t, topo.DefaultSpec)
	w := build(t, g)
	first := mustBringUp(t, w)
	leaf := g.ByName("leaf1")
	up := ib.PortNum(leaf.NumPorts())
	x := leaf.Ports[up]
	both := []topo.PortRef{{Node: leaf.Index, Port: up}, {Node: x.Peer, Port: x.PeerPort}}
	for _, r := range both {
		w.links[r.Node][r.Port].Down(0)
	}
	second := mustBringUp(t, w)
	if len(second.Down) != 2 || second.Links != first.Links-1 || second.SMLID != first.SMLID {
		t.Errorf("report %+v", second)
	}
	for _, from := range hostPorts(g) {
		for _, to := range hostPorts(g) {
			if _, at, ok := w.walk(from, second.LID(to)); from != to && (!ok || at != to) {
				t.Fatalf("%s does not reach %s", g.PortName(from), g.PortName(to))
			}
		}
		if first.LID(from) != second.LID(from) {
			t.Errorf("%s changed its LID", g.PortName(from))
		}
	}
	// Clients must join their groups anew.
	asked := 0
	for e, ok := w.hcas[0].PollEvent(); ok; e, ok = w.hcas[0].PollEvent() {
		if e.Type == hca.EventClientReregister {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("client reregistration was asked for %d times, want once", asked)
	}
	for _, r := range both {
		w.links[r.Node][r.Port].Train()
		w.links[r.Node][r.Port].LinkUp(0)
	}
	third := mustBringUp(t, w)
	if len(third.Down) != 0 || third.Links != first.Links {
		t.Errorf("report %+v", third)
	}
	w.checkPorts(t, third)
}

func TestHints(t *testing.T) {
	for _, name := range []string{"cluster.topo", "ibnetdiscover-torus.topo"} {
		g := load(t, name)
		hinted := true
		eachEnd(g, func(r topo.PortRef) { hinted = hinted && g.Port(r).LID != 0 })
		w := build(t, g)
		r := mustBringUp(t, w)
		kept := true
		eachEnd(g, func(p topo.PortRef) {
			if hinted && r.LID(p) != g.Port(p).LID {
				t.Logf("%s: LID %v, the dump has %v", g.PortName(p), r.LID(p), g.Port(p).LID)
				kept = false
			}
		})
		if hinted && !kept {
			t.Errorf("%s: LIDs of the dump are not honoured", name)
		}
		for _, from := range hostPorts(g) {
			dist := g.Distances(from.Node)
			for _, to := range hostPorts(g) {
				if from.Node == to.Node || dist[to.Node] == topo.Unreachable {
					continue
				}
				if _, at, ok := w.walk(from, r.LID(to)); !ok || at != to {
					t.Fatalf("%s: %s to %s: ended at %s", name, g.PortName(from), g.PortName(to), g.PortName(at))
				}
			}
		}
	}
	// Hints with an LMC: all LIDs of a port lead there, by different ways.
	g := spec(t, topo.DefaultSpec)
	lid := ib.LID(4)
	eachEnd(g, func(r topo.PortRef) {
		p := g.Port(r)
		p.LID = lid
		if r.Port != 0 {
			p.LMC = 2
		}
		lid += 4
	})
	w := build(t, g)
	r := mustBringUp(t, w)
	ports := hostPorts(g)
	ways := map[topo.PortRef]bool{}
	for off := range ib.LID(4) {
		hops, at, ok := w.walk(ports[0], r.LID(ports[31])+off)
		if !ok || at != ports[31] {
			t.Fatalf("LID %d of the last host: ended at %s", off, g.PortName(at))
		}
		ways[hops[1]] = true
	}
	if r.LID(ports[1]) != 8 || w.hcas[1].Port(1).LMC != 2 || len(ways) != 4 {
		t.Errorf("LID %v, LMC %d, %d ways", r.LID(ports[1]), w.hcas[1].Port(1).LMC, len(ways))
	}
	// Doubled, unaligned and missing ones are not, and cost nobody else an address.
	for _, spoil := range []func(*topo.Port){
		func(p *topo.Port) { p.LID = 4 }, func(p *topo.Port) { p.LID++ }, func(p *topo.Port) { p.LID = 0 },
		func(p *topo.Port) { p.LID = 0xC000 },
	} {
		c := g.Clone()
		spoil(&c.Nodes[3].Ports[1])
		bad := topo.PortRef{Node: 3, Port: 1}
		rep := mustBringUp(t, build(t, c))
		had := map[ib.LID]bool{}
		eachEnd(c, func(r topo.PortRef) {
			lid := rep.LID(r)
			if r != bad && lid != g.Port(r).LID || r == bad && lid == c.Port(r).LID || lid == 0 || had[lid] {
				t.Errorf("%s has LID %d, in the dump %d", c.PortName(r), lid, c.Port(r).LID)
			}
			had[lid] = true
		})
	}
}

// eachEnd visits the end ports of a graph.
func eachEnd(g *topo.Graph, f func(topo.PortRef)) {
	for i, n := range g.Nodes {
		for p := range n.Ports {
			if n.IsSwitch() == (p == 0) && (p == 0 || n.Ports[p].Connected()) {
				f(topo.PortRef{Node: i, Port: ib.PortNum(p)})
			}
		}
	}
}

func load(t *testing.T, name string) *topo.Graph {
	t.Helper()
	text, err := os.ReadFile("../../proto/topo/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestErrorsName(t *testing.T) {
	g := spec(t, topo.DefaultSpec)
	w := build(t, g)
	w.mute = g.ByName("spine2").Index
	_, err := BringUp(g, w, Config{})
	if !errors.Is(err, ErrBringUp) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a mute switch: %v", err)
	}
	w = build(t, g)
	refuse := &refusing{world: w, node: 3, attr: mad.AttrPKeyTable}
	_, err = BringUp(g, refuse, Config{})
	if !errors.Is(err, ErrBringUp) || !strings.Contains(err.Error(), "h4") ||
		!strings.Contains(err.Error(), "P_KeyTable") {
		t.Errorf("a refused table: %v", err)
	}
}

// refusing answers one attribute of one node with InvalidField.
type refusing struct {
	*world
	node int
	attr mad.AttrID
}

func (r *refusing) SMP(node int, in ib.PortNum, req, resp *[mad.Size]byte) bool {
	ok := r.world.SMP(node, in, req, resp)
	if v := mad.View(resp[:]); node == r.node && v.AttrID() == r.attr {
		v.SetStatus(mad.StatusInvalidField)
	}
	return ok
}

func BenchmarkBringUp(b *testing.B) {
	for _, s := range []string{topo.DefaultSpec, "fat-tree:radix=16,levels=3", "fat-tree:radix=36,levels=3"} {
		b.Run(s, func(b *testing.B) {
			g := spec(b, benchsize.Tree(s))
			for b.Loop() {
				b.StopTimer()
				w := build(b, g)
				b.StartTimer()
				r := mustBringUp(b, w)
				b.ReportMetric(float64(r.MADs), "MADs")
			}
		})
	}
}
