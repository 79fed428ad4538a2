package wiring

import (
	"math"
	"testing"

	"softib/proto/ib"
)

func TestBisection(t *testing.T) {
	for _, c := range []struct {
		spec  string
		wired float64
	}{
		{"fat-tree:radix=8,levels=2", 1}, {"fat-tree:radix=8,levels=3", 1},
		{"fat-tree:radix=8,levels=2,oversub=3", 1.0 / 3}, {"fat-tree:radix=12,levels=3,oversub=2", 0.5},
		{"star:8", 1}, {"torus:4x4", 1}, // 4 rows of 4 are cut twice, for 8 hosts
		{"line:4", 0.5},
	} {
		b := Check(gen(t, c.spec), Options{}).Bisection
		if b == nil || math.Abs(b.Wired-c.wired) > 1e-9 {
			t.Errorf("%s: %+v, want %v", c.spec, b, c.wired)
		}
	}
	// A leaf that lost three of four uplinks takes its hosts' share with it.
	g := gen(t, "fat-tree:radix=8,levels=2")
	leaf := g.ByName("leaf1")
	for p := 5; p <= 7; p++ {
		if err := g.Disconnect(leaf.Index, ib.PortNum(p)); err != nil {
			t.Fatal(err)
		}
	}
	r := Check(g, Options{})
	if want := 13.0 / 16; r.Bisection.Wired != want || r.Bisection.Hosts != 16 || r.Levels[0].Worst != 4 ||
		r.Levels[0].WorstAt != "leaf1" {
		t.Errorf("%+v, want %v; %+v", r.Bisection, want, r.Levels[0])
	}
	if w := warnings(r); len(w) != 3 {
		t.Errorf("%v", r.Findings)
	}
}

// TestFlowIsMinimumCut compares the largest flow with the smallest of all cuts.
func TestFlowIsMinimumCut(t *testing.T) {
	r := newRand(7)
	for range 200 {
		n := 2 + r.IntN(7)
		var room [8][8]int64
		f := newFlow(n)
		for a := range n {
			for b := range a {
				if r.IntN(3) > 0 {
					x, y := int64(r.IntN(10)), int64(r.IntN(10))
					room[a][b], room[b][a] = x, y
					f.add(int32(a), int32(b), x, y)
				}
			}
		}
		least := int64(math.MaxInt64)
		for set := range 1 << n {
			if set&1 == 0 || set>>(n-1)&1 == 1 {
				continue // node 0 is the source, the last one the sink
			}
			cut := int64(0)
			for a := range n {
				for b := range n {
					if set>>a&1 == 1 && set>>b&1 == 0 {
						cut += room[a][b]
					}
				}
			}
			least = min(least, cut)
		}
		if got := f.most(0, int32(n-1)); got != least {
			t.Fatalf("flow %d, smallest cut %d", got, least)
		}
	}
}

func TestOversubscription(t *testing.T) {
	for spec, want := range map[string][]float64{
		"fat-tree:radix=8,levels=2": {1, 0}, "fat-tree:radix=8,levels=2,oversub=3": {3, 0},
		"fat-tree:radix=12,levels=3,oversub=2": {2, 1, 0},
	} {
		r := Check(gen(t, spec), Options{})
		for l := range want {
			if r.Levels[l].Oversubscription != want[l] {
				t.Errorf("%s: level %d: %+v, want %v", spec, l, r.Levels[l], want[l])
			}
		}
	}
}

func TestRoutedBisection(t *testing.T) {
	g := gen(t, "fat-tree:radix=8,levels=2")
	b := Check(g, Options{Engines: "ftree", Seed: 1}).Bisection
	if b.Engine != "ftree" || b.Routed == nil || *b.Routed < 0.5 || *b.Routed > 1 || *b.Shift != 1 ||
		b.RoutedBad != "" {
		t.Errorf("%+v", b)
	}
	if b := Check(gen(t, "torus:3x3"), Options{Engines: "ftree"}).Bisection; b.Routed != nil || b.RoutedBad == "" {
		t.Errorf("an engine that does not fit: %+v", b)
	}
}
