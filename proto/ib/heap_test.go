package ib

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type ranked struct{ at, turn int }

func (r *ranked) Before(o *ranked) bool { return r.at < o.at || r.at == o.at && r.turn < o.turn }

// TestHeap wants what a sorted list gives, with pushes between pops.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var h Heap[ranked, *ranked]
	var list []ranked
	for turn := range 20000 {
		if r.IntN(5) < 3 {
			v := ranked{r.IntN(100), turn}
			h.Push(v)
			at, _ := slices.BinarySearchFunc(list, v, func(a, b ranked) int {
				if a.Before(&b) {
					return -1
				}
				return 1
			})
			list = slices.Insert(list, at, v)
		} else if len(list) > 0 {
			if got := h.Pop(); got != list[0] {
				t.Fatalf("turn %d: %v is first, want %v", turn, got, list[0])
			}
			list = list[1:]
		}
	}
}
