package endpoint

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What endpoints of one process need of each other takes no descriptors and no threads: memory is ordinary memory, and
// who sleeps is a goroutine.

// localBell is what sleepers at a page of this process wait for.
type localBell struct {
	c     chan struct{}
	timer *time.Timer // of the one sleeper, made with its first sleep
}

// NewLocalPage is a page whose users are all in this process.
func NewLocalPage() *Page {
	return &Page{h: new(pageHead), local: &localBell{c: make(chan struct{}, 1)}}
}

// isLocal reports whether who has the page is in this process, and shares ordinary memory with us.
func (p *Page) isLocal() bool { return p.local != nil }

// ring ends a sleep, or the next one if nobody sleeps.
func (b *localBell) ring() {
	select {
	case b.c <- struct{}{}:
	default:
	}
}

// wait sleeps for at most ns nanoseconds; negative is for ever.
func (b *localBell) wait(ns int64) {
	if ns < 0 {
		<-b.c
		return
	}
	if b.timer == nil {
		b.timer = time.NewTimer(time.Duration(ns))
	} else {
		b.timer.Reset(time.Duration(ns))
	}
	select {
	case <-b.c:
		b.timer.Stop()
	case <-b.timer.C:
	}
}

// Local is memory that users of this process share. It is filled with zeros, takes no room before it is touched, and
// is given back when nobody refers to the Local any more.
type Local struct{ Mem []byte }

// NewLocal makes memory.
func NewLocal(size int) (*Local, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("endpoint: memory: %w", err)
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // most of it is never touched
	l := &Local{mem}
	runtime.AddCleanup(l, Unmap, mem)
	return l, nil
}

// NewLocalRing makes the memory of a ring.
func NewLocalRing() (*Local, error) {
	if !racing {
		return NewLocal(RingBytes)
	}
	// To the race detector, what goes through memory that is not Go's has no order.
	mem := make([]byte, RingBytes+PageBytes)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (PageBytes - 1)
	return &Local{mem[off : off+RingBytes]}, nil
}
