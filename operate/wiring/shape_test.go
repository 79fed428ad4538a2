package wiring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// build makes a two-level tree by hand: leaves with hosts, and cables[leaf][spine] of them to each spine. Ports of
// uplinks are dealt in order, or shuffled by r.
func build(t testing.TB, hosts, leaves, spines int, cables func(leaf, spine int) int, r *rand.Rand) *topo.Graph {
	t.Helper()
	g := &topo.Graph{}
	add := func(n topo.Node, ports int) *topo.Node {
		n.GUID = ib.GUID(len(g.Nodes)*16 + 0x1000)
		n.Desc = n.Name
		x, err := g.Add(n, ports)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	deal := func() []ib.PortNum {
		var list []ib.PortNum
		for p := 1; p <= 128; p++ {
			list = append(list, ib.PortNum(p))
		}
		if r != nil {
			r.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
		}
		return list
	}
	var low, high []*topo.Node
	free := map[*topo.Node][]ib.PortNum{}
	for i := range leaves {
		low = append(low, add(topo.Node{Name: fmt.Sprintf("edge%d", i+1), Type: ib.NodeSwitch}, 128))
		free[low[i]] = deal()
	}
	for i := range spines {
		high = append(high, add(topo.Node{Name: fmt.Sprintf("top%d", i+1), Type: ib.NodeSwitch}, 128))
		free[high[i]] = deal()
	}
	take := func(n *topo.Node) ib.PortNum {
		p := free[n][0]
		free[n] = free[n][1:]
		return p
	}
	join := func(a, b *topo.Node) {
		pa, pb := ib.PortNum(1), ib.PortNum(1)
		if a.IsSwitch() {
			pa = take(a)
		}
		pb = take(b)
		if err := g.Connect(a.Index, pa, b.Index, pb, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range leaves {
		for h := range hosts {
			join(add(topo.Node{Name: fmt.Sprintf("n%d-%d", i+1, h+1), Type: ib.NodeCA}, 1), low[i])
		}
		for s := range spines {
			for range cables(i, s) {
				join(low[i], high[s])
			}
		}
	}
	return g
}

func warnings(r *Report) []Finding {
	var list []Finding
	for _, f := range r.Findings {
		if f.Severity != Note {
			list = append(list, f)
		}
	}
	return list
}

func TestTreesThatNoGeneratorMakes(t *testing.T) {
	shuffled := func(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
	for _, c := range []struct {
		name string
		g    *topo.Graph
	}{
		{"four cables to each of four spines", build(t, 16, 8, 4, func(l, s int) int { return 4 }, nil)},
		{"the same with ports by chance", build(t, 16, 8, 4, func(l, s int) int { return 4 }, shuffled(1))},
		{"eighteen uplinks over five spines, alike", build(t, 18, 10, 5, func(l, s int) int { return 4 - s/3 }, nil)},
		{"eighteen uplinks over five spines, rotated",
			build(t, 18, 10, 5, func(l, s int) int { return 4 - (l+s)%5/3 }, nil)},
		{"one spine", build(t, 4, 6, 1, func(l, s int) int { return 2 }, nil)},
		{"one cable each, ports by chance", build(t, 18, 36, 18, func(l, s int) int { return 1 }, shuffled(2))},
		{"two leaves", build(t, 4, 2, 2, func(l, s int) int { return 1 }, nil)},
	} {
		clean(t, c.name, c.g, Options{})
	}
}

func TestMistakesWherePortsFollowNoRule(t *testing.T) {
	right := build(t, 18, 36, 18, func(l, s int) int { return 1 }, rand.New(rand.NewPCG(3, 1)))
	between := func(g *topo.Graph, a, b string) topo.PortRef {
		n := g.ByName(a)
		for p := range n.Ports {
			if x := &n.Ports[p]; x.Connected() && g.Nodes[x.Peer].Name == b {
				return topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			}
		}
		t.Fatalf("no cable %s %s", a, b)
		return topo.PortRef{}
	}
	g := right.Clone()
	if err := g.Disconnect(between(g, "edge3", "top5").Node, between(g, "edge3", "top5").Port); err != nil {
		t.Fatal(err)
	}
	r := Check(g, Options{})
	if w := warnings(r); len(w) != 1 || w[0].Kind != Missing || w[0].Wanted[0].String() != "edge3[?] top5[?]" ||
		r.PortRules {
		t.Errorf("missing: %v", r.Findings)
	}

	// Two exchanged ends: by nodes alone either of edge3's two cables to top9 may be the wrong one.
	g = right.Clone()
	a, c := between(g, "edge3", "top5"), between(g, "edge7", "top9")
	b, d := topo.PortRef{Node: g.Port(a).Peer, Port: g.Port(a).PeerPort},
		topo.PortRef{Node: g.Port(c).Peer, Port: g.Port(c).PeerPort}
	for _, x := range []topo.PortRef{a, c} {
		if err := g.Disconnect(x.Node, x.Port); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range [][2]topo.PortRef{{a, d}, {c, b}} {
		if err := g.Connect(x[0].Node, x[0].Port, x[1].Node, x[1].Port, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	r = Check(g, Options{})
	w := warnings(r)
	if len(w) != 1 || w[0].Kind != Swapped {
		t.Fatalf("swapped: %v", r.Findings)
	}
	for _, x := range w[0].Wired {
		if s := nodeOf(x.A) + " " + nodeOf(x.B); s != "edge3 top9" && s != "edge7 top5" && s != "top5 edge7" &&
			s != "top9 edge3" {
			t.Errorf("swapped: %v", w[0])
		}
	}
	// With a plan there is no doubt.
	r = Check(g, Options{Plan: right})
	if w := warnings(r); len(w) != 1 || w[0].Kind != Swapped ||
		!hasWires([]Wire{{g.PortName(a), g.PortName(d)}, {g.PortName(c), g.PortName(b)}}, w[0].Wired) {
		t.Errorf("swapped by plan: %v", r.Findings)
	}
}

func TestPartlyFilledTrees(t *testing.T) {
	for _, spec := range []string{
		"fat-tree:radix=36,levels=2,hosts=600", "fat-tree:radix=8,levels=3,hosts=100",
		"fat-tree:radix=8,levels=3,hosts=33", "fat-tree:radix=8,levels=3,hosts=50",
		"fat-tree:radix=16,levels=3,hosts=500", "fat-tree:radix=8,levels=2,hosts=1",
		"fat-tree:radix=6,levels=4,hosts=75",
	} {
		r := Check(gen(t, spec), Options{})
		if w := warnings(r); len(w) > 0 || !r.IsTree {
			t.Errorf("%s: %v, %s", spec, w, r.NotATree)
		}
	}
}

func TestWhatIsNoFatTree(t *testing.T) {
	for spec, why := range map[string]string{
		"torus:4x4":         "all 16 switches have hosts, and 32 cables between them",
		"torus:4x4x4":       "lead neither up nor down",
		"mesh:3x3":          "lead neither up nor down",
		"ring:6":            "lead neither up nor down",
		"dragonfly:a=4,h=2": "lead neither up nor down",
		"random:20":         "",
		"pair":              "it has no switch",
	} {
		g, err := topo.ParseSpec(spec)
		if err != nil {
			for _, x := range topo.Generators() {
				if strings.HasPrefix(spec, x.Name) {
					g = gen(t, x.Example)
				}
			}
		}
		r := Check(g, Options{Engines: "ftree,updn,minhop"})
		if r.IsTree || !strings.Contains(r.NotATree, why) || r.NotATree == "" {
			t.Errorf("%s: tree %v: %q, want %q", spec, r.IsTree, r.NotATree, why)
		}
		if len(warnings(r)) > 0 {
			t.Errorf("%s: %v", spec, r.Findings)
		}
		if len(g.Switches()) > 0 && (r.Bisection == nil || r.Bisection.Routed == nil || r.Bisection.RoutedBad != "") {
			t.Errorf("%s: bisection %+v", spec, r.Bisection)
		}
		// A slow cable is found anyway.
		c := g.Cables()[g.NumCables()/2]
		if len(g.Switches()) > 0 {
			g.Port(c.A).Width, g.Port(c.B).Width = ib.Width1x, ib.Width1x
			if w := warnings(Check(g, Options{})); len(w) != 1 || w[0].Kind != Degraded {
				t.Errorf("%s: a slow cable: %v", spec, w)
			}
		}
	}
}

func TestDumpsOfRealFabrics(t *testing.T) {
	for file, levels := range map[string]int{"cluster.topo": 2, "default.topo": 2, "ibnetdiscover-pair.topo": 0,
		"ibnetdiscover-torus.topo": 0} {
		text, err := os.ReadFile("../../proto/topo/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		g, err := topo.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		r := Check(g, Options{Engines: "ftree,updn,minhop"})
		if len(r.Levels) != levels {
			t.Errorf("%s: %d levels, want %d: %s", file, len(r.Levels), levels, r.NotATree)
		}
		for _, f := range warnings(r) {
			if f.Kind != Degraded || file != "cluster.topo" {
				t.Errorf("%s: %v", file, f)
			}
		}
		clean := Check(g, Options{Plan: g.Clone()})
		if !clean.OK {
			t.Errorf("%s against itself: %v", file, clean.Findings)
		}
	}
}

// TestReductionNodes: the node for reductions inside a switch is no host, wherever the switch stands.
func TestReductionNodes(t *testing.T) {
	g := widen(t, gen(t, "fat-tree:radix=8,levels=2"), 9)
	for _, sw := range g.Switches() {
		n, err := g.Add(topo.Node{Name: "an-" + sw.Name, Type: ib.NodeCA, GUID: sw.GUID + 8, SystemGUID: sw.SystemGUID,
			Desc: "Mellanox Technologies Aggregation Node"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Connect(n.Index, 1, sw.Index, 9, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	r := clean(t, "with reduction nodes", g, Options{})
	if r.Levels[0].Down != 32 {
		t.Errorf("%+v", r.Levels)
	}
}
