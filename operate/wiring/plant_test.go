package wiring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// mistake is one wiring mistake that was planted, with what has to be found.
type mistake struct {
	what          string
	planned       Finding // with a plan
	inferred      Finding // without one
	detectable    bool    // without a plan
	wantSeverity  Severity
	inferSeverity Severity
}

func (m mistake) String() string {
	return fmt.Sprintf("%s: %v %v -> %v", m.what, m.planned.Kind, m.planned.Wanted, m.planned.Wired)
}

// planter makes mistakes in a tree. It never touches a cable or a port twice, so that each mistake stays the one that
// it is.
type planter struct {
	t    *testing.T
	r    *rand.Rand
	g    *topo.Graph
	used map[topo.PortRef]bool
	// pairs of nodes whose cable some mistake took: another cable between the two could pass for it.
	pairs map[[2]int]bool
	// lower and upper are the levels between which cables are mistaken.
	lower, upper func(*topo.Node) bool
}

func newPlanter(t *testing.T, seed uint64, g *topo.Graph) *planter {
	return &planter{t, rand.New(rand.NewPCG(seed, 5)), g.Clone(), map[topo.PortRef]bool{}, map[[2]int]bool{}, isLeaf,
		isSpine}
}

func (p *planter) wire(a, b topo.PortRef) Wire { return Wire{p.g.PortName(a), p.g.PortName(b)} }

func (p *planter) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Levels of generated trees, by name.
func isHost(n *topo.Node) bool  { return !n.IsSwitch() }
func isLeaf(n *topo.Node) bool  { return strings.HasPrefix(n.Name, "leaf") }
func isSpine(n *topo.Node) bool { return strings.HasPrefix(n.Name, "spine") }
func isCore(n *topo.Node) bool  { return strings.HasPrefix(n.Name, "core") }

// pick is a cable whose lower end suits low and whose upper end suits high, from the lower end; the cable is then
// taken.
func (p *planter) pick(low, high func(*topo.Node) bool, and func(a, b topo.PortRef) bool) (a, b topo.PortRef) {
	p.t.Helper()
	cables := p.g.Cables()
	for range 100_000 {
		c := cables[p.r.IntN(len(cables))]
		a, b = c.A, c.B
		if !low(p.g.Nodes[a.Node]) || !high(p.g.Nodes[b.Node]) {
			a, b = b, a
		}
		if !low(p.g.Nodes[a.Node]) || !high(p.g.Nodes[b.Node]) || p.used[a] || p.used[b] ||
			p.pairs[pairOf(a.Node, b.Node)] || and != nil && !and(a, b) {
			continue
		}
		p.used[a], p.used[b] = true, true
		p.pairs[pairOf(a.Node, b.Node)] = true
		return a, b
	}
	p.t.Fatal("no such cable is left")
	return
}

// free is a port without a cable that no mistake used.
func (p *planter) free(is func(*topo.Node) bool) topo.PortRef {
	p.t.Helper()
	for range 100_000 {
		n := p.g.Nodes[p.r.IntN(len(p.g.Nodes))]
		if !is(n) {
			continue
		}
		at := topo.PortRef{Node: n.Index, Port: ib.PortNum(1 + p.r.IntN(n.NumPorts()))}
		if !p.g.Port(at).Connected() && !p.used[at] {
			p.used[at] = true
			return at
		}
	}
	p.t.Fatal("no such port is free")
	return topo.PortRef{}
}

func (p *planter) pull(a topo.PortRef) topo.LinkSpec {
	x := *p.g.Port(a)
	p.must(p.g.Disconnect(a.Node, a.Port))
	return topo.LinkSpec{Width: x.Width, Speed: x.Speed, LengthMM: x.LengthMM}
}

func (p *planter) plug(a, b topo.PortRef, l topo.LinkSpec) {
	p.t.Helper()
	p.must(p.g.Connect(a.Node, a.Port, b.Node, b.Port, l))
}

// both is a mistake that is found alike with and without a plan.
func both(what string, f Finding) mistake {
	return mistake{what: what, planned: f, inferred: f, detectable: true, wantSeverity: Warning, inferSeverity: Warning}
}

// swap exchanges the far ends of a–b and x–d.
func (p *planter) swap(a, b, x, d topo.PortRef) Finding {
	l := p.pull(a)
	p.pull(x)
	p.plug(a, d, l)
	p.plug(x, b, l)
	return Finding{Kind: Swapped, Wired: []Wire{p.wire(a, d), p.wire(x, b)}, Wanted: []Wire{p.wire(a, b), p.wire(x, d)}}
}

func node(g *topo.Graph, r topo.PortRef) *topo.Node { return g.Nodes[r.Node] }

// kindsOfMistakes each plant one. Those with needsFree want switches with free ports.
var kindsOfMistakes = []struct {
	name      string
	needsFree bool
	plant     func(p *planter) mistake
}{
	{"missing uplink", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		p.pull(a)
		return both("missing uplink", Finding{Kind: Missing, Wanted: []Wire{p.wire(a, b)}})
	}},
	{"missing host cable", false, func(p *planter) mistake {
		a, b := p.pick(isHost, isLeaf, nil)
		p.pull(a)
		m := both("missing host cable", Finding{Kind: Missing, Wanted: []Wire{p.wire(a, b)}})
		m.inferred = Finding{Kind: Fabric, Node: node(p.g, a).Name}
		m.inferSeverity = Broken
		return m
	}},
	{"swapped uplinks of two leaves and two spines", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		x, d := p.pick(p.lower, p.upper, func(x, d topo.PortRef) bool { return x.Node != a.Node && d.Node != b.Node })
		return both("swapped uplinks", p.swap(a, b, x, d))
	}},
	{"swapped uplinks of one leaf", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		x, d := p.pick(p.lower, p.upper, func(x, d topo.PortRef) bool { return x.Node == a.Node })
		m := both("swapped on one leaf", p.swap(a, b, x, d))
		m.inferSeverity = Note // as good either way round
		return m
	}},
	{"swapped uplinks at one spine", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		x, d := p.pick(p.lower, p.upper, func(x, d topo.PortRef) bool { return d.Node == b.Node })
		m := both("swapped at one spine", p.swap(a, b, x, d))
		m.inferSeverity = Note
		return m
	}},
	{"swapped hosts", false, func(p *planter) mistake {
		a, b := p.pick(isHost, isLeaf, nil)
		x, d := p.pick(isHost, isLeaf, func(x, d topo.PortRef) bool { return d.Node != b.Node })
		m := both("swapped hosts", p.swap(a, b, x, d))
		m.detectable = false
		return m
	}},
	{"swapped host and uplink", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		x, d := p.pick(isHost, isLeaf, func(x, d topo.PortRef) bool { return d.Node != a.Node })
		return both("swapped host and uplink", p.swap(a, b, x, d))
	}},
	{"two uplinks joined to one cable", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		x, d := p.pick(p.lower, p.upper, func(x, d topo.PortRef) bool { return x.Node != a.Node && d.Node != b.Node })
		l := p.pull(a)
		p.pull(x)
		p.plug(a, x, l)
		// It is one of the two uplinks, and the other is missing: which is which nothing can say.
		return both("leaf to leaf", Finding{Kind: Miswired, Wired: []Wire{p.wire(a, x)},
			Wanted: []Wire{p.wire(a, b), p.wire(x, d)}})
	}},
	{"uplink in another spine", true, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		to := p.free(func(n *topo.Node) bool { return p.upper(n) && n.Index != b.Node })
		p.plug(a, to, p.pull(a))
		return both("uplink in another spine", Finding{Kind: Miswired, Wired: []Wire{p.wire(a, to)},
			Wanted: []Wire{p.wire(a, b)}})
	}},
	{"uplink in a leaf", true, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		to := p.free(func(n *topo.Node) bool { return p.lower(n) && n.Index != a.Node })
		p.plug(a, to, p.pull(a))
		return both("uplink in a leaf", Finding{Kind: Miswired, Wired: []Wire{p.wire(a, to)},
			Wanted: []Wire{p.wire(a, b)}})
	}},
	{"downlink in another leaf", true, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		to := p.free(func(n *topo.Node) bool { return p.lower(n) && n.Index != a.Node })
		p.plug(b, to, p.pull(a))
		return both("downlink in another leaf", Finding{Kind: Miswired, Wired: []Wire{p.wire(b, to)},
			Wanted: []Wire{p.wire(a, b)}})
	}},
	{"host in a spine", true, func(p *planter) mistake {
		a, b := p.pick(isHost, isLeaf, nil)
		to := p.free(p.upper)
		p.plug(a, to, p.pull(a))
		m := both("host in a spine", Finding{Kind: Miswired, Wired: []Wire{p.wire(a, to)},
			Wanted: []Wire{p.wire(a, b)}})
		m.inferred = Finding{Kind: Extra, Wired: m.planned.Wired} // to which leaf it belongs, nothing says
		return m
	}},
	{"host in another leaf", true, func(p *planter) mistake {
		a, b := p.pick(isHost, isLeaf, nil)
		to := p.free(func(n *topo.Node) bool { return isLeaf(n) && n.Index != b.Node })
		p.plug(a, to, p.pull(a))
		m := both("host in another leaf", Finding{Kind: Miswired, Wired: []Wire{p.wire(a, to)},
			Wanted: []Wire{p.wire(a, b)}})
		m.inferred = Finding{Kind: Uneven, Node: node(p.g, to).Name}
		return m
	}},
	{"extra cable between spines", true, func(p *planter) mistake {
		a := p.free(p.upper)
		b := p.free(func(n *topo.Node) bool { return p.upper(n) && n.Index != a.Node })
		p.plug(a, b, topo.LinkSpec{})
		return both("extra between spines", Finding{Kind: Extra, Wired: []Wire{p.wire(a, b)}})
	}},
	{"extra cable between leaves", true, func(p *planter) mistake {
		a := p.free(p.lower)
		b := p.free(func(n *topo.Node) bool { return p.lower(n) && n.Index != a.Node })
		p.plug(a, b, topo.LinkSpec{})
		return both("extra between leaves", Finding{Kind: Extra, Wired: []Wire{p.wire(a, b)}})
	}},
	{"extra uplink", true, func(p *planter) mistake {
		a := p.free(p.lower)
		b := p.free(func(n *topo.Node) bool { return p.upper(n) && !p.pairs[pairOf(a.Node, n.Index)] })
		p.pairs[pairOf(a.Node, b.Node)] = true
		p.plug(a, b, topo.LinkSpec{})
		return both("extra uplink", Finding{Kind: Extra, Wired: []Wire{p.wire(a, b)}})
	}},
	{"uplink in a wrong port", true, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		to := p.free(func(n *topo.Node) bool { return n.Index == b.Node })
		p.plug(a, to, p.pull(a))
		m := both("uplink in a wrong port", Finding{Kind: WrongPort, Wired: []Wire{p.wire(a, to)},
			Wanted: []Wire{p.wire(a, b)}})
		m.inferSeverity = Note
		return m
	}},
	{"uplink at one lane", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		l := p.pull(a)
		l.Width = ib.Width1x
		p.plug(a, b, l)
		return both("uplink at 1x", Finding{Kind: Degraded, Wired: []Wire{p.wire(a, b)}})
	}},
	{"slow host", false, func(p *planter) mistake {
		a, b := p.pick(isHost, isLeaf, nil)
		l := p.pull(a)
		l.Speed = ib.HDR
		p.plug(a, b, l)
		return both("slow host", Finding{Kind: Degraded, Wired: []Wire{p.wire(a, b)}})
	}},
	{"ends that disagree", false, func(p *planter) mistake {
		a, b := p.pick(p.lower, p.upper, nil)
		l := p.pull(a)
		slow := l
		slow.Speed = ib.EDR
		p.must(p.g.ConnectAsym(a.Node, a.Port, b.Node, b.Port, l, slow))
		return both("ends that disagree", Finding{Kind: Degraded, Wired: []Wire{p.wire(a, b)}})
	}},
}

// widen is the same fabric with switches of more ports.
func widen(t testing.TB, g *topo.Graph, ports int) *topo.Graph {
	t.Helper()
	w := &topo.Graph{Kind: g.Kind}
	for _, n := range g.Nodes {
		num := n.NumPorts()
		if n.IsSwitch() {
			num = max(num, ports)
		}
		if _, err := w.Add(*n, num); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range g.Cables() {
		x := g.Port(c.A)
		if err := w.Connect(c.A.Node, c.A.Port, c.B.Node, c.B.Port,
			topo.LinkSpec{Width: x.Width, Speed: x.Speed, LengthMM: x.LengthMM}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func sameWire(a, b Wire) bool { return a == b || a.A == b.B && a.B == b.A }

func hasWires(all, some []Wire) bool {
	for _, w := range some {
		if !slices.ContainsFunc(all, func(x Wire) bool { return sameWire(x, w) }) {
			return false
		}
	}
	return true
}

// isFor reports whether a finding names a mistake: its kind, the cables as they are and as they should be.
func isFor(f, want Finding) bool {
	if f.Kind != want.Kind && !(want.Kind == Fabric && f.Kind == Missing) {
		return false
	}
	if want.Node != "" {
		return f.Node == want.Node
	}
	if len(f.Wired) != len(want.Wired) || !hasWires(f.Wired, want.Wired) {
		return false
	}
	if want.Kind == Degraded {
		return true
	}
	return len(f.Wanted) > 0 == (len(want.Wanted) > 0) && hasWires(want.Wanted, f.Wanted)
}

// judge wants each mistake found and nothing else but what follows from them.
func judge(t *testing.T, r *Report, list []mistake, planned bool) {
	t.Helper()
	hit := make([]bool, len(r.Findings))
	for _, m := range list {
		want, severity := m.inferred, m.inferSeverity
		if planned {
			want, severity = m.planned, m.wantSeverity
		}
		if !planned && !m.detectable {
			continue
		}
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return isFor(f, want) })
		if i < 0 {
			t.Errorf("not found (planned %v): %v; want %v %v -> %v %s", planned, m, want.Kind, want.Wanted, want.Wired,
				want.Node)
			continue
		}
		hit[i] = true
		if r.Findings[i].Severity != severity && !(want.Kind == Uneven) {
			t.Errorf("%v: severity %v, want %v", m, r.Findings[i].Severity, severity)
		}
	}
	for i, f := range r.Findings {
		if hit[i] || f.Severity == Note {
			continue
		}
		// The second half of two uplinks joined to one is missing; of an isolated host or an unequal leaf both sides
		// may be named.
		if slices.ContainsFunc(list, func(m mistake) bool {
			return m.what == "leaf to leaf" && f.Kind == Missing && hasWires(m.planned.Wanted, f.Wanted)
		}) {
			continue
		}
		t.Errorf("raised for nothing (planned %v): %v", planned, f)
	}
	if t.Failed() {
		for i, f := range r.Findings {
			if i < 20 {
				t.Logf("finding: %v", f)
			}
		}
	}
}

func TestFindsEachOf200Mistakes(t *testing.T) {
	right := gen(t, "fat-tree:radix=36,levels=2")
	if len(right.Hosts()) != 648 {
		t.Fatalf("%d hosts", len(right.Hosts()))
	}
	wide := widen(t, right, 40)
	clean(t, "the right tree", right, Options{})
	clean(t, "the right tree with free ports", wide, Options{})
	clean(t, "the right tree by its plan", wide, Options{Plan: right})
	for n := range 200 {
		kind := kindsOfMistakes[n%len(kindsOfMistakes)]
		base := right
		if kind.needsFree || n >= 100 {
			base = wide
		}
		t.Run(fmt.Sprintf("%d %s", n, kind.name), func(t *testing.T) {
			p := newPlanter(t, uint64(n), base)
			m := kind.plant(p)
			judge(t, Check(p.g, Options{Plan: base}), []mistake{m}, true)
			r := Check(p.g, Options{})
			judge(t, r, []mistake{m}, false)
			if !r.IsTree {
				t.Errorf("no tree any more: %s", r.NotATree)
			}
			if !m.detectable && len(r.Findings) > 0 {
				t.Errorf("called undetectable, but %v", r.Findings)
			}
		})
	}
}

func TestFinds200MistakesAtOnce(t *testing.T) {
	wide := widen(t, gen(t, "fat-tree:radix=36,levels=2"), 64)
	for seed := range uint64(5) {
		p := newPlanter(t, 1000+seed, wide)
		var list []mistake
		for n := range 200 {
			list = append(list, kindsOfMistakes[n%len(kindsOfMistakes)].plant(p))
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			judge(t, Check(p.g, Options{Plan: wide}), list, true)
			// Of the hosts of a leaf only the sum shows, and another mistake may have evened it.
			for i := range list {
				list[i].detectable = list[i].detectable && list[i].inferred.Kind != Uneven
			}
			judge(t, Check(p.g, Options{}), list, false)
		})
	}
}

// TestFindsMistakesInOtherTrees is the same at other sizes and heights, one mistake at a time: in trees that are large
// enough for a majority.
func TestFindsMistakesInOtherTrees(t *testing.T) {
	for _, c := range []struct {
		spec         string
		ports        int
		lower, upper func(*topo.Node) bool
	}{
		{"fat-tree:radix=8,levels=2", 12, isLeaf, isSpine},
		{"fat-tree:radix=12,levels=2,oversub=2", 14, isLeaf, isSpine},
		{"fat-tree:radix=8,levels=3", 12, isLeaf, isSpine},
		{"fat-tree:radix=8,levels=3", 12, isSpine, isCore},
		{"fat-tree:radix=12,levels=3,oversub=3", 16, isLeaf, isSpine},
		{"fat-tree:radix=12,levels=3,pods=5", 16, isSpine, isCore},
		{"fat-tree:radix=6,levels=4,pods=4", 10, isSpine, isCore},
		{"fat-tree:radix=8,levels=4,pods=3", 12, isLeaf, isSpine},
	} {
		base := widen(t, gen(t, c.spec), c.ports)
		for n := range 60 {
			kind := kindsOfMistakes[n%len(kindsOfMistakes)]
			t.Run(fmt.Sprintf("%s %d %s", c.spec, n, kind.name), func(t *testing.T) {
				p := newPlanter(t, uint64(n), base)
				p.lower, p.upper = c.lower, c.upper
				m := kind.plant(p)
				judge(t, Check(p.g, Options{Plan: base}), []mistake{m}, true)
				judge(t, Check(p.g, Options{}), []mistake{m}, false)
			})
		}
	}
}
