package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// The first of many are those that come first when all are put in order.
func TestForemost(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		keys, list := make([]int, rng.IntN(50)), []int(nil)
		for i := range keys {
			keys[i] = rng.IntN(8)
			list = append(list, i)
		}
		order := func(a, b int) int { return cmp.Or(cmp.Compare(keys[b], keys[a]), cmp.Compare(a, b)) }
		n := 1 + rng.IntN(20)
		got := foremost(list, n, order)
		if want := slices.SortedFunc(slices.Values(list), order); !slices.Equal(got, want[:min(n, len(want))]) {
			t.Fatalf("%d of %v: %v, not %v", n, keys, got, want)
		}
	}
}
