package wiring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// jumble pulls, plugs and moves cables without any thought.
func jumble(t *testing.T, g *topo.Graph, r *rand.Rand, times int) {
	t.Helper()
	port := func(want bool) (topo.PortRef, bool) {
		for range 200 {
			n := g.Nodes[r.IntN(len(g.Nodes))]
			at := topo.PortRef{Node: n.Index, Port: ib.PortNum(1 + r.IntN(n.NumPorts()))}
			if g.Port(at).Connected() == want {
				return at, true
			}
		}
		return topo.PortRef{}, false
	}
	for range times {
		if at, ok := port(true); ok && r.IntN(2) == 0 {
			if err := g.Disconnect(at.Node, at.Port); err != nil {
				t.Fatal(err)
			}
		}
		a, okA := port(false)
		b, okB := port(false)
		if okA && okB && a != b && r.IntN(3) > 0 {
			l := topo.LinkSpec{}
			if r.IntN(4) == 0 {
				l.Speed = ib.EDR
			}
			if err := g.Connect(a.Node, a.Port, b.Node, b.Port, l); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// isSame is the slow way to compare two fabrics with the same nodes.
func isSame(a, b *topo.Graph) bool {
	for i := range a.Nodes {
		for p := range a.Nodes[i].Ports {
			x, y := a.Nodes[i].Ports[p], b.Nodes[i].Ports[p]
			if x.Connected() != y.Connected() || x.Connected() &&
				(x.Peer != y.Peer || x.PeerPort != y.PeerPort || x.LengthMM != y.LengthMM ||
					a.LinkRate(topo.PortRef{Node: i, Port: ib.PortNum(p)}) != b.LinkRate(topo.PortRef{Node: i,
						Port: ib.PortNum(p)})) {
				return false
			}
		}
	}
	return true
}

// TestJumbles: whatever is plugged in where, everything answers; a fabric is as its own plan, and two are the same
// exactly if all their ports are.
func TestJumbles(t *testing.T) {
	specs := []string{"fat-tree:radix=4,levels=2", "fat-tree:radix=8,levels=2,hosts=20", "fat-tree:radix=4,levels=3",
		"torus:3x3", "star:6", "dragonfly", "ring:5", "pair"}
	for seed := range uint64(400) {
		r := newRand(seed)
		spec := specs[r.IntN(len(specs))]
		g, err := topo.ParseSpec(spec)
		if err != nil {
			g = gen(t, "mesh:3x3")
		}
		plan := g.Clone()
		jumble(t, g, r, r.IntN(20))
		other := g.Clone()
		jumble(t, other, r, r.IntN(4))
		what := fmt.Sprintf("%s, seed %d", spec, seed)
		if report := Check(g, Options{Engines: "ftree,updn,minhop"}); report.OK != (len(warnings(report)) == 0) {
			t.Errorf("%s: OK is %v: %v", what, report.OK, report.Findings)
		}
		for _, f := range Check(g, Options{Plan: g.Clone()}).Findings {
			if f.Kind != Fabric {
				t.Errorf("%s by its own plan: %v", what, f)
			}
		}
		Check(g, Options{Plan: plan})
		if d := Diff(g, other); d.Same != isSame(g, other) {
			t.Errorf("%s: same is %v: %v", what, d.Same, d.Changes)
		}
		l := DefaultLayout(g)
		b, err := NewBill(g, l)
		if err != nil || b.CableCount+len(b.TooLong)+b.Internal != g.NumCables() {
			t.Errorf("%s: %v %+v", what, err, b)
		}
	}
}
