package madrpc

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Against a map: what was put is taken once by its cookie and by no other, and a place that is taken again has another
// cookie, also when the upper half begins anew.
func TestAsked(t *testing.T) {
	a := Asked[int]{gen: ^uint32(0) - 500}
	under := map[uint64]int{}
	var over []uint64
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		if len(under) < 20 || r.IntN(2) == 0 {
			c := a.Put(i)
			if _, twice := under[c]; twice || c>>32 == 0 || TransactionOf(c)>>32 != 0 {
				t.Fatalf("cookie %x", c)
			}
			under[c] = i
			continue
		}
		over = append(over, slices.Sorted(maps.Keys(under))[r.IntN(len(under))])
		c := over[len(over)-1]
		if got, ok := a.Take(c); !ok || got != under[c] {
			t.Fatalf("%x is %d, %v; want %d", c, got, ok, under[c])
		}
		delete(under, c)
		if _, ok := a.Take(over[r.IntN(len(over))]); ok {
			t.Fatal("taken twice")
		}
	}
	n := 0
	for i := range a.All() {
		n++
		if !slices.Contains(slices.Collect(maps.Values(under)), i) {
			t.Errorf("%d is not under way", i)
		}
	}
	if n != len(under) || a.Len() != n || a.Cap() < n {
		t.Errorf("%d of %d, %d, %d", n, len(under), a.Len(), a.Cap())
	}
	if _, ok := a.Take(uint64(a.Cap()) | 1<<32); ok {
		t.Error("a cookie from nowhere")
	}
}
