package ib

import (
	"math/rand/v2"
	"testing"
)

// oracleSub finds the signed distance from q to p by walking the circle one
// step at a time, forward and backward at once, until it meets p.
func oracleSub(p, q PSN) int {
	forward, backward := q, q
	for n := 0; ; n++ {
		// At exactly half the space both walks arrive together, and the
		// distance counts as negative: [-2^23, 2^23).
		if backward == p {
			return -n
		}
		if forward == p {
			return n
		}
		if forward++; forward == 1<<24 {
			forward = 0
		}
		if backward == 0 {
			backward = 1 << 24
		}
		backward--
	}
}

func TestPSNSub(t *testing.T) {
	for _, c := range []struct {
		p, q PSN
		want int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xFFFFFF, 1},
		{0xFFFFFF, 0, -1},
		{5, 0xFFFFFB, 10},
		{0x7FFFFF, 0, 0x7FFFFF},
		{0x800000, 0, -0x800000},
		{0, 0x800000, -0x800000},
		{0x800001, 0, -0x7FFFFF},
		{0x123456, 0x923456, -0x800000},
	} {
		if got := c.p.Sub(c.q); got != c.want {
			t.Errorf("%#x - %#x = %d, want %d", c.p, c.q, got, c.want)
		}
		if got := oracleSub(c.p, c.q); got != c.want {
			t.Errorf("the oracle is wrong: %#x - %#x = %d, want %d", c.p, c.q, got, c.want)
		}
	}
}

func TestPSNAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		p := PSN(r.Uint32()) & PSNMask
		// Mostly near neighbours, where the walk is short and the code is used.
		q := p.Add(r.IntN(601) - 300)
		want := oracleSub(p, q)
		if got := p.Sub(q); got != want {
			t.Fatalf("%#x - %#x = %d, want %d", p, q, got, want)
		}
		if p.Before(q) != (want < 0) || p.After(q) != (want > 0) {
			t.Fatalf("%#x and %#x, %d apart: Before %v, After %v", p, q, want, p.Before(q), p.After(q))
		}
		if back := q.Add(want); back != p {
			t.Fatalf("%#x + %d = %#x, want %#x", q, want, back, p)
		}
	}
}

// TestPSNFarApart compares with plain arithmetic where walking takes too long.
func TestPSNFarApart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		p, q := PSN(r.Uint32())&PSNMask, PSN(r.Uint32())&PSNMask
		want := int(p) - int(q)
		if want >= PSNWindow {
			want -= 1 << 24
		}
		if want < -PSNWindow {
			want += 1 << 24
		}
		if got := p.Sub(q); got != want {
			t.Fatalf("%#x - %#x = %d, want %d", p, q, got, want)
		}
		// Order is antisymmetric, but for the one PSN that is exactly half way.
		if p != q && want != -PSNWindow && p.Before(q) == q.Before(p) {
			t.Fatalf("%#x and %#x: each before the other, or neither", p, q)
		}
	}
}

func TestPSNAdd(t *testing.T) {
	for _, c := range []struct {
		p    PSN
		n    int
		want PSN
	}{
		{0, 0, 0},
		{0, 1, 1},
		{0xFFFFFF, 1, 0},
		{0, -1, 0xFFFFFF},
		{0xFFFFF0, 0x20, 0x10},
		{7, 1 << 24, 7},
		{7, -(1 << 24), 7},
		{0x800000, 0x800000, 0},
	} {
		if got := c.p.Add(c.n); got != c.want {
			t.Errorf("%#x + %d = %#x, want %#x", c.p, c.n, got, c.want)
		}
	}
}
