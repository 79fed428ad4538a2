package link

import (
	"testing"
	"unsafe"
)

// TestLayout holds the sizes that the speed of a simulation rests on.
func TestLayout(t *testing.T) {
	var (
		f Frame
		p Port
		l lane
	)
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"Frame", unsafe.Sizeof(f), 64},
		{"Port", unsafe.Sizeof(p), 128},
		{"first line of Port", unsafe.Offsetof(p.Site), 64},
		{"lane", unsafe.Sizeof(l), 64},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, c.got, c.want)
		}
	}
}
