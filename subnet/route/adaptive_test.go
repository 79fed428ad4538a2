package route

import (
	"errors"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// TestAdaptive: whatever switches choose, packets arrive, and nothing waits in a circle.
func TestAdaptive(t *testing.T) {
	for _, c := range []struct {
		spec, engine string
		pairs        float64 // of all pairs of a leaf and an end port elsewhere, how many have a choice
	}{
		{"fat-tree:radix=8,levels=2", "ftree", 1},
		{"fat-tree:radix=8,levels=3", "ftree", 1},
		{"fat-tree:radix=6,levels=4,pods=3", "ftree", 1},
		{"fat-tree:radix=12,levels=2,oversub=2", "updn", 1},
		{"fat-tree:radix=8,levels=3,oversub=3", "ftree", 1},
		{"torus:4x4", "updn", 0.1},
		{"dragonfly:a=4,p=2,h=2", "updn", 0.01},
		{"star:8", "updn", 0},
	} {
		n := netOf(t, c.spec)
		tab, err := ByName(c.engine).Compute(n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := Adaptive(n, tab)
		if err != nil {
			t.Fatal(err)
		}
		got := JudgeGroups(n, tab, g)
		if !got.OK() {
			t.Errorf("%s: %d unreached, such as %+v; cycle %v", c.spec, got.Unreached, got.Misses, got.Cycle)
		}
		if share := float64(got.Pairs) / float64(max(got.All, 1)); share < c.pairs {
			t.Errorf("%s: %.3f of the pairs have a choice, want %.3f", c.spec, share, c.pairs)
		}
	}
}

// TestAdaptiveDamage: the same of trees that have lost cables.
func TestAdaptiveDamage(t *testing.T) {
	for seed := range uint64(20) {
		n := RemoveLinks(netOf(t, "fat-tree:radix=8,levels=3"), 0.1, rand.New(rand.NewPCG(seed, 1)))
		res, err := Compute(n, "ftree,updn", Options{Adaptive: true})
		if err != nil {
			t.Fatal(err)
		}
		g, err := Adaptive(n, res.Tables)
		if err != nil {
			t.Fatal(err)
		}
		if got := JudgeGroups(n, res.Tables, g); !got.OK() {
			t.Errorf("seed %d: %d unreached, such as %+v; cycle %v", seed, got.Unreached, got.Misses, got.Cycle)
		}
	}
}

// TestJudgeGroups: wrong groups are found out.
func TestJudgeGroups(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=3")
	tab := ftreeOf(t, n)
	group := func(ports ...ib.PortNum) (m ib.PortMask) {
		for _, p := range ports {
			m.Set(p)
		}
		return m
	}
	for name, spoil := range map[string]func(g *Groups){
		"a choice without a cable": func(g *Groups) { g.Sets[0][0].Set(200) },
		"any port": func(g *Groups) {
			for s := range g.Sets {
				var all ib.PortMask
				for p, h := range n.Switches[s].Ports {
					if h.To != NoSwitch {
						all.Set(ib.PortNum(p))
					}
				}
				g.Sets[s] = []ib.PortMask{all}
				for d := range g.Of[s] {
					g.Of[s][d] = 1
				}
			}
		},
		"an empty group": func(g *Groups) { g.Sets[0][0] = group() },
	} {
		g, err := Adaptive(n, tab)
		if err != nil {
			t.Fatal(err)
		}
		spoil(g)
		if got := JudgeGroups(n, tab, g); got.OK() {
			t.Errorf("%s: was not found", name)
		}
	}
	// Minimal choices on a ring reach everything and can wait in a circle.
	ring := netOf(t, "torus:6")
	minimal, err := ByName("minhop").Compute(ring, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Adaptive(ring, minimal); !errors.Is(err, ErrUnfit) {
		t.Errorf("groups for minhop: %v, want %v", err, ErrUnfit)
	}
	none := &Groups{Sets: make([][]ib.PortMask, len(ring.Switches)), Of: make([][]uint16, len(ring.Switches))}
	for s := range none.Of {
		none.Of[s] = make([]uint16, len(ring.Dests))
	}
	if got := JudgeGroups(ring, minimal, none); got.Cycle == nil || got.Unreached != 0 {
		t.Errorf("minhop on a ring: cycle %v, %d unreached", got.Cycle, got.Unreached)
	}
}
