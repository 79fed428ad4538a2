package sm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/ib"
	"softib/topo"
)

// TestBroken cuts random cables of random fabrics: hosts that cables still join reach each
// other, nobody waits in a circle, and no packet goes round for ever.
func TestBroken(t *testing.T) {
	bases := []string{
		"fat-tree:radix=4,levels=3", "fat-tree:radix=8,levels=2", "torus:4x4", "mesh:3x3", "ring:7", "dragonfly:a=4,h=2,p=2,g=9",
		"random:switches=12,hosts=20,seed=3", "star:4", "line:4",
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		name := bases[seed%uint64(len(bases))]
		g := spec(t, name)
		for _, c := range g.Cables() {
			// Host cables hold more often, so that there is somebody to reach.
			odds := 6
			if !g.Nodes[c.A.Node].IsSwitch() {
				odds = 30
			}
			if rng.IntN(odds) == 0 {
				if err := g.Disconnect(c.A.Node, c.A.Port); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
			w := build(t, g)
			r := mustBringUp(t, w)
			deps := dependencies{}
			for _, from := range hostPorts(g) {
				dist := g.Distances(from.Node)
				flood := map[topo.PortRef]int{}
				if g.Nodes[g.Port(from).Peer].IsSwitch() {
					flood = w.flood(t, from, BroadcastMLID)
				}
				for _, to := range hostPorts(g) {
					if from == to {
						continue
					}
					hops, at, ok := w.walk(from, r.LID(to))
					joined := dist[to.Node] != topo.Unreachable
					if ok != joined || ok && at != to || flood[to] > 1 || flood[to] == 1 != joined {
						t.Fatalf("%s to %s: joined %v, arrived %v at %s, %d copies", g.PortName(from), g.PortName(to), joined, ok, g.PortName(at), flood[to])
					}
					if ok {
						deps.add(hops)
					}
				}
			}
			if c := deps.cycle(); c != nil {
				t.Errorf("links wait for each other in a circle: %v", c)
			}
		})
	}
}

// TestTiersNotLegal has leaves in a chain of spines: the tiers are those of a tree, yet
// a way from end to end would go up twice.
func TestTiersNotLegal(t *testing.T) {
	g := &topo.Graph{}
	add := func(name string, typ ib.NodeType, ports int) *topo.Node {
		n, err := g.Add(topo.Node{Name: name, Type: typ, GUID: ib.GUID(0x1000 + len(g.Nodes)*16)}, ports)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	cable := func(a *topo.Node, pa int, b *topo.Node, pb int) {
		if err := g.Connect(a.Index, ib.PortNum(pa), b.Index, ib.PortNum(pb), topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	var leaves []*topo.Node
	for i := range 3 {
		h, l := add(fmt.Sprintf("h%d", i+1), ib.NodeCA, 1), add(fmt.Sprintf("leaf%d", i+1), ib.NodeSwitch, 4)
		cable(h, 1, l, 1)
		leaves = append(leaves, l)
	}
	s1, s2 := add("spine1", ib.NodeSwitch, 4), add("spine2", ib.NodeSwitch, 4)
	cable(leaves[0], 2, s1, 1)
	cable(leaves[1], 2, s1, 2)
	cable(leaves[1], 3, s2, 1)
	cable(leaves[2], 2, s2, 2)
	w := build(t, g)
	r := mustBringUp(t, w)
	for _, from := range hostPorts(g) {
		for _, to := range hostPorts(g) {
			if _, at, ok := w.walk(from, r.LID(to)); from != to && (!ok || at != to) {
				t.Errorf("%s does not reach %s", g.PortName(from), g.PortName(to))
			}
		}
	}
}

// TestDeterminism programs two fabrics of one shape alike.
func TestDeterminism(t *testing.T) {
	for _, s := range []string{"fat-tree:radix=8,levels=3", "dragonfly:a=4,h=2,p=2,g=9"} {
		a, b := build(t, spec(t, s)), build(t, spec(t, s))
		ra, rb := mustBringUp(t, a), mustBringUp(t, b)
		if ra.MADs != rb.MADs || ra.Routing != rb.Routing {
			t.Errorf("%s: %+v, %+v", s, ra, rb)
		}
		for i, x := range a.switches {
			if x == nil {
				continue
			}
			for block := range 4 {
				ta, err := x.LFT(block)
				tb, err2 := b.switches[i].LFT(block)
				if err != nil || err2 != nil || ta != tb {
					t.Fatalf("%s: tables of %s differ", s, a.g.Nodes[i].Name)
				}
			}
		}
	}
}
