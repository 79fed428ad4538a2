package link

import (
	"testing"
	"unsafe"
)

func TestFrameLayout(t *testing.T) {
	var f Frame
	if s := unsafe.Sizeof(f); s%64 != 0 {
		t.Errorf("Frame is %d bytes: want a multiple of 64", s)
	}
	if e := unsafe.Offsetof(f.Packet) + unsafe.Offsetof(f.Packet.LRH) + unsafe.Sizeof(f.Packet.LRH); e > 64 {
		t.Errorf("LRH ends at %d: want the first cache line", e)
	}
	var p Port
	if s := unsafe.Sizeof(p); s%64 != 0 {
		t.Errorf("Port is %d bytes: want a multiple of 64", s)
	}
	if o := unsafe.Offsetof(p.tx); o%64 != 0 {
		t.Errorf("tx at %d: want a cache line's start", o)
	}
	if s := unsafe.Sizeof(p.tx[0]); s != 64 {
		t.Errorf("txVL is %d bytes: want 64", s)
	}
	if s := unsafe.Sizeof(p.rx[0]); s != 32 {
		t.Errorf("rxVL is %d bytes: want 32", s)
	}
}
