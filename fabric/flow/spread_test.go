package flow

import (
	"math"
	"testing"

	"softib/proto/topo"
	"softib/subnet/route"
)

// TestSpread: what comes into a switch leaves it, by as many ports as it may choose, and all of it comes to its goal.
func TestSpread(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=3")
	if err != nil {
		t.Fatal(err)
	}
	n := route.FromGraph(g)
	res, err := route.Compute(n, "ftree", route.Options{Adaptive: true})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := route.Adaptive(n, res.Tables)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWays(g, n, res.Tables, groups, Timing{Switch: 100, PerMM: 5})
	hosts := g.Hosts()
	for _, c := range []struct {
		to, links int // of 128 hosts, 4 on a leaf and 16 in a pod
	}{{1, 2}, {5, 2 + 2*4}, {127, 2 + 2*4 + 2*16}} {
		from, to := topo.PortRef{Node: hosts[0].Index, Port: 1}, topo.PortRef{Node: hosts[c.to].Index, Port: 1}
		path, parts, latency, err := w.Spread(nil, nil, from, to)
		if err != nil || len(path) != c.links || len(parts) != c.links {
			t.Fatalf("to host %d by %d links, want %d: %v", c.to, len(path), c.links, err)
		}
		left := make([]float64, len(g.Nodes)) // by node: what came in and did not go out
		left[from.Node] = 1
		for i, l := range path {
			left[w.Port(l).Node] -= parts[i]
			left[w.next[l]] += parts[i]
		}
		left[to.Node]--
		for node, x := range left {
			if math.Abs(x) > 1e-12 {
				t.Errorf("to host %d: %v stays at %s", c.to, x, g.Nodes[node].Name)
			}
		}
		// Cables of a tree are alike, so all ways take as long as the one of the tables.
		if _, want, err := w.Path(nil, from, to, nil); err != nil || latency != want {
			t.Errorf("to host %d it takes %v, by the tables %v (%v)", c.to, latency, want, err)
		}
	}
}
