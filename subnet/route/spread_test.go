package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

var anyShapes = []string{
	"fat-tree:radix=4,levels=3", "fat-tree:radix=8,levels=2", "torus:4x4", "torus:5x3x3", "mesh:3x3", "ring:7",
	"dragonfly:a=4,h=2,p=2,g=9",
	"random:switches=12,hosts=20,seed=3", "random:switches=30,hosts=40,seed=5", "star:4", "line:4",
}

// TestAnyShape damages fabrics of all shapes: what cables join, minhop joins by shortest ways, and updn by legal ones
// that no cycle of channels is in.
func TestAnyShape(t *testing.T) {
	for seed := range uint64(44) {
		spec := anyShapes[seed%uint64(len(anyShapes))]
		t.Run(fmt.Sprintf("%s/%d", spec, seed), func(t *testing.T) {
			n := RemoveLinks(netOf(t, spec), float64(seed/uint64(len(anyShapes)))*0.06, rand.New(rand.NewPCG(seed, 3)))
			min, err := minHop{}.Compute(n, Options{})
			if err != nil {
				t.Fatal(err)
			}
			waysOf{n, min}.check(t, 0)
			ud, err := upDown{}.Compute(n, Options{})
			if err != nil {
				t.Fatal(err)
			}
			waysOf{n, ud}.check(t, len(n.Switches))
			if r := Judge(n, ud, JudgeOptions{}); !r.OK() {
				t.Errorf("updn: %v", r)
			}
			again, _ := upDown{}.Compute(n, Options{})
			if Diff(ud, again).Entries != 0 {
				t.Error("two runs differ")
			}
		})
	}
}

func TestUpdnRoots(t *testing.T) {
	n := netOf(t, "torus:4x4")
	for _, roots := range [][]int32{{5}, {0, 15}, {3, 4, 5}} {
		tab, err := upDown{}.Compute(n, Options{Roots: roots})
		if err != nil {
			t.Fatal(err)
		}
		waysOf{n, tab}.check(t, 16)
		if r := Judge(n, tab, JudgeOptions{}); !r.OK() {
			t.Errorf("roots %v: %v", roots, r)
		}
	}
	if _, err := (upDown{}).Compute(n, Options{Roots: []int32{16}}); !errors.Is(err, ErrUnfit) {
		t.Errorf("root 16 of 16 switches: got %v, want ErrUnfit", err)
	}
}

func BenchmarkSpread(b *testing.B) {
	full := netOf(b, bigNet())
	n := RemoveLinks(full, 0.01, rand.New(rand.NewPCG(1, 1)))
	b.Run("minhop", func(b *testing.B) {
		for b.Loop() {
			newSpreader(n, newAdjacency(n), nil).all()
		}
	})
	b.Run("updn", func(b *testing.B) {
		for b.Loop() {
			w := newAdjacency(n)
			dir, err := orient(w, nil)
			if err != nil {
				b.Fatal(err)
			}
			newSpreader(n, w, dir).all()
		}
	})
	b.Run("minhop-tree", func(b *testing.B) {
		for b.Loop() {
			if _, err := (minHop{}).Compute(full, Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
