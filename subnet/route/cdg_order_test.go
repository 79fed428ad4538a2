package route

import (
	"math/rand/v2"
	"testing"
)

// Dependencies come and go at random; whether one closes a cycle is also found by a search of the whole graph.
func TestDepOrder(t *testing.T) {
	for seed := range uint64(20) {
		n := netOf(t, "random:switches=6,hosts=6,links=10")
		c := newChart(n)
		r := rand.New(rand.NewPCG(seed, 9))
		order := c.channelOrder(c.heights(nil))
		g := newDepOrder(c, order)
		has := map[[2]int32]bool{}
		reaches := func(from, to int32) bool {
			seen := map[int32]bool{from: true}
			for list := []int32{from}; len(list) > 0; list = list[1:] {
				if list[0] == to {
					return true
				}
				for dep := range has {
					if dep[0] == list[0] && !seen[dep[1]] {
						seen[dep[1]] = true
						list = append(list, dep[1])
					}
				}
			}
			return false
		}
		refused := 0
		for range 400 {
			x := order[r.IntN(len(order))]
			first, end := c.out(c.to[x])
			y := first + int32(r.IntN(int(end-first)))
			if c.to[y] < 0 {
				continue
			}
			dep := [2]int32{x, y}
			if g.has(x, y) != has[dep] {
				t.Fatalf("seed %d: has %v is %v", seed, dep, g.has(x, y))
			}
			switch {
			case has[dep] && r.IntN(3) == 0:
				g.remove(x, y)
				delete(has, dep)
			case !has[dep]:
				want := !reaches(y, x)
				if got := g.add(x, y); got != want {
					t.Fatalf("seed %d: add %v is %v: want %v", seed, dep, got, want)
				}
				if want {
					has[dep] = true
				} else {
					refused++
				}
			}
			for dep := range has {
				if g.rank[dep[0]] >= g.rank[dep[1]] {
					t.Fatalf("seed %d: %v is against the order", seed, dep)
				}
			}
		}
		if refused < 10 {
			t.Errorf("seed %d: only %d were refused", seed, refused)
		}
	}
}
