package ib

import "testing"

func TestWidestAndLesser(t *testing.T) {
	for set, want := range map[Width]Width{0: 0, Width1x: Width1x, Width1x | Width4x: Width4x,
		Width2x | Width1x: Width2x, Width12x | Width2x | Width4x: Width12x} {
		if got := set.Widest(); got != want {
			t.Errorf("the widest of %#x is %v, want %v", uint8(set), got, want)
		}
	}
	// Width2x is a higher bit than Width4x, and fewer lanes.
	a, b := LinkRate{Width2x, NDR}, LinkRate{Width4x, HDR}
	if got, want := a.Lesser(b), (LinkRate{Width2x, HDR}); got != want || b.Lesser(a) != want {
		t.Errorf("%v and %v are %v together, want %v", a, b, got, want)
	}
	if got := a.Lesser(LinkRate{}); got != (LinkRate{}) {
		t.Errorf("with nothing: %v", got)
	}
}
