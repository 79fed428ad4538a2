package link

import (
	"testing"
	"unsafe"
)

// TestLayout holds the sizes that the speed of a simulation, and the memory of a large fabric, rest on.
func TestLayout(t *testing.T) {
	var (
		f Frame
		p Port
		l lane
		c cold
	)
	for _, size := range []struct {
		what      string
		got, want uintptr
	}{
		{"Frame", unsafe.Sizeof(f), 64},
		{"Port", unsafe.Sizeof(p), 128},
		{"first line of Port", unsafe.Offsetof(p.Site), 64},
		{"lane", unsafe.Sizeof(l), 64},
		{"what few packets touch", unsafe.Sizeof(c), 648}, // of each of a million ports
	} {
		if size.got != size.want {
			t.Errorf("%s: %d bytes, want %d", size.what, size.got, size.want)
		}
	}
}
