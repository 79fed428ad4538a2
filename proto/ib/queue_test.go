package ib

import (
	"math/rand/v2"
	"testing"
)

func TestQueueKeepsOrder(t *testing.T) {
	var q Queue[int]
	next, want := 0, 0
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		if rng.IntN(2) == 0 {
			q.Push(next)
			next++
		} else if v, ok := q.Pop(); ok != (want < next) || ok && v != want {
			t.Fatalf("popped %d, %v; want %d", v, ok, want)
		} else if ok {
			want++
		}
		if q.Len() != next-want {
			t.Fatalf("%d are left; want %d", q.Len(), next-want)
		}
	}
}
