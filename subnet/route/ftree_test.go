package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/internal/benchsize"
)

func ftreeOf(t testing.TB, n *Network) *Tables {
	t.Helper()
	tab, err := fatTree{}.Compute(n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestFtreeShifts: in complete trees no shift loads a cable with more flows than the tree is oversubscribed.
func TestFtreeShifts(t *testing.T) {
	for _, c := range []struct {
		spec string
		most int
	}{
		{"fat-tree:radix=4,levels=2", 1},
		{"fat-tree:radix=8,levels=2", 1},
		{"fat-tree:radix=4,levels=3", 1},
		{"fat-tree:radix=6,levels=3", 1},
		{"fat-tree:radix=8,levels=3", 1},
		{"fat-tree:radix=4,levels=4", 1},
		{"fat-tree:radix=6,levels=4,pods=3", 1},
		{"fat-tree:radix=8,levels=3,pods=5", 1},
		{"fat-tree:radix=8,levels=3,hosts=80", 1},
		{"fat-tree:radix=8,levels=3,hosts=77", 2}, // the shift wraps around in the middle of a leaf
		{"fat-tree:radix=8,levels=3,oversub=3", 3},
		{"fat-tree:radix=12,levels=2,oversub=2", 2},
	} {
		n := netOf(t, c.spec)
		tab := ftreeOf(t, n)
		o := waysOf{n, tab}
		o.check(t, 0)
		tr, err := newTree(n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.upDown(t, tr.dir)
		if most, mean := o.shifts(); most > c.most {
			t.Errorf("%s: %d flows on a cable in some shift, %.2f in the mean: want %d", c.spec, most, mean, c.most)
		}
	}
}

func TestFtreeDamage(t *testing.T) {
	// In trees of radix 4 and 6 the loss of two cables can leave no way up and down at all.
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=8,levels=3", "fat-tree:radix=6,levels=3",
		"fat-tree:radix=4,levels=4"} {
		for seed := range uint64(12) {
			for _, fraction := range []float64{0.01, 0.05, 0.2} {
				t.Run(fmt.Sprintf("%s/%v/%d", spec, fraction, seed), func(t *testing.T) {
					n := RemoveLinks(netOf(t, spec), fraction, rand.New(rand.NewPCG(seed, 7)))
					tab, err := fatTree{}.Compute(n, Options{})
					if errors.Is(err, ErrUnfit) && fraction > 0.1 {
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					o := waysOf{n, tab}
					o.check(t, 6)
					tr, err := newTree(n, Options{})
					if err != nil {
						t.Fatal(err)
					}
					if tab.VLs == 1 {
						o.upDown(t, tr.dir)
					}
					if r := Judge(n, tab, JudgeOptions{}); !r.OK() {
						t.Fatalf("judged: %v", r)
					}
					most, mean := o.shifts()
					pm, pmean := o.permutations(100, rand.New(rand.NewPCG(1, 1)))
					t.Logf("shifts %d %.2f random %d %.2f", most, mean, pm, pmean)
				})
			}
		}
	}
}

func BenchmarkFtree(b *testing.B) {
	for _, spec := range []string{"fat-tree:radix=36,levels=3", "fat-tree:radix=64,levels=3,pods=44"} {
		n := netOf(b, benchsize.Tree(spec))
		for _, gone := range []float64{0, 0.05} {
			c := RemoveLinks(n, gone, rand.New(rand.NewPCG(1, 1)))
			b.Run(fmt.Sprintf("%d/%v", len(n.Dests), gone), func(b *testing.B) {
				for b.Loop() {
					ftreeOf(b, c)
				}
			})
		}
	}
}
