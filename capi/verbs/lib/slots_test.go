package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"softib/node/hca"
)

// TestSlots holds handles against a map: they are never 0, never given out twice at a time, and found as long as they
// are held.
func TestSlots(t *testing.T) {
	var s slots[int]
	r := rand.New(rand.NewPCG(1, 2))
	held := map[uint32]*int{}
	for range 20000 {
		if r.IntN(3) > 0 {
			v := new(int)
			h := s.put(v)
			if h == 0 || held[h] != nil {
				t.Fatalf("handle %d is no object's, or another's", h)
			}
			held[h] = v
			continue
		}
		for h := range held {
			s.drop(h)
			s.drop(h) // is nothing
			delete(held, h)
			break
		}
	}
	for h, v := range held {
		if s.get(h) != v {
			t.Fatalf("handle %d is lost", h)
		}
	}
	n := 0
	s.all(func(h uint32, v *int) {
		n++
		if held[h] != v {
			t.Errorf("handle %d is not held", h)
		}
	})
	if n != len(held) {
		t.Errorf("%d objects, want %d", n, len(held))
	}
	for _, h := range []uint32{0, s.next + 1, slotChunk * slotChunks, 1<<32 - 1} {
		if s.get(h) != nil {
			t.Errorf("handle %d is an object's", h)
		}
		if h < slotChunk*slotChunks {
			s.drop(h)
		}
	}
}

// TestSlotsFull wants 0 when all handles are taken, and one again afterwards.
func TestSlotsFull(t *testing.T) {
	if testing.Short() {
		t.Skip("two million objects")
	}
	var s slots[int]
	v, n := new(int), 0
	for s.put(v) != 0 {
		n++
	}
	if n != slotChunk*slotChunks-1 {
		t.Errorf("%d handles, want %d", n, slotChunk*slotChunks-1)
	}
	s.drop(77)
	if h := s.put(v); h != 77 {
		t.Errorf("handle %d, want the one that came back", h)
	}
}

// TestPipe writes more than a pipe holds: everything comes out, in order, as long as somebody asks.
func TestPipe(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	p := &pipe{fd: fds[1]}
	const events = 20000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint32(events) {
			p.put(event{typ: i})
		}
	})
	wg.Wait()
	if pipes.full.Load() != 1 {
		t.Fatalf("%d pipes are full, want 1", pipes.full.Load())
	}
	var e event
	b := unsafe.Slice((*byte)(unsafe.Pointer(&e)), eventSize)
	for i := range uint32(events) {
		if n, err := syscall.Read(fds[0], b); n != eventSize || err != nil {
			t.Fatalf("record %d: %d bytes, %v", i, n, err)
		}
		if e.typ != i {
			t.Fatalf("record %d came after %d", e.typ, i-1)
		}
		flushPipe(fds[1])
	}
	if _, err := syscall.Read(fds[0], b); err != syscall.EAGAIN {
		t.Errorf("after the last record: %v, want nothing", err)
	}
	for range events {
		p.put(event{})
	}
	p.end()
	p.put(event{})
	if pipes.full.Load() != 0 || len(pipes.by) != 0 {
		t.Error("a pipe that has ended is still waited for")
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{&hca.AttrError{Kind: hca.ErrInvalid}, syscall.EINVAL},
		{&hca.AttrError{Kind: hca.ErrFull}, syscall.ENOMEM},
		{&hca.AttrError{Kind: hca.ErrBusy}, syscall.EBUSY},
		{fmt.Errorf("open: %w", syscall.EMFILE), syscall.EMFILE},
		{errors.New("anything else"), syscall.EIO},
	} {
		if got := errnoOf(c.err); got != int32(c.want) {
			t.Errorf("%v is %d to C, want %d", c.err, got, c.want)
		}
	}
}
