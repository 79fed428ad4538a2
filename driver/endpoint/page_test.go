package endpoint

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestRingsReuseAddresses: a ring's addresses stay readable after it is given back, and the next one gets them.
func TestRingsReuseAddresses(t *testing.T) {
	var rings Rings
	var first unsafe.Pointer
	for i := range 50 {
		fd, mem, err := NewMemory("test", RingBytes)
		if err != nil {
			t.Fatal(err)
		}
		ring, err := rings.Map(fd)
		if err != nil {
			t.Fatal(err)
		}
		at := unsafe.Pointer(unsafe.SliceData(ring))
		if i == 0 {
			first = at
		} else if at != first {
			t.Fatalf("ring %d is at %p: want %p, which is free", i, at, first)
		}
		ring[RingBytes-1] = byte(i + 1)
		if mem[RingBytes-1] != byte(i+1) {
			t.Fatal("the mapping is not the memory's")
		}
		rings.Unmap(ring)
		if *(*byte)(unsafe.Add(first, RingBytes-1)) != 0 {
			t.Fatal("what was given back still shows the ring")
		}
		Unmap(mem)
		unix.Close(fd)
	}
}

// TestMemoryMustBeSealed: memory that its maker can shrink is refused, and so is memory that is too small.
func TestMemoryMustBeSealed(t *testing.T) {
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, RingBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := MapMemory(fd, RingBytes); !errors.Is(err, ErrMemory) {
		t.Errorf("memory without a seal: %v", err)
	}
	small, mem, err := NewMemory("small", PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(small)
	defer Unmap(mem)
	if _, err := new(Rings).Map(small); !errors.Is(err, ErrMemory) {
		t.Errorf("memory that is too small: %v", err)
	}
}
