package endpoint

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
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

// Local is memory that is given back when nobody in this process refers to the Local any more.
type Local struct{ Mem []byte }

func newLocal(mem []byte) *Local {
	l := &Local{mem}
	runtime.AddCleanup(l, Unmap, mem)
	return l
}

// MapLocal maps memory that is shared with another process.
func MapLocal(fd, size int) (*Local, error) {
	mem, err := MapMemory(fd, size)
	if err != nil {
		return nil, err
	}
	return newLocal(mem), nil
}

// MapPage maps a page that is shared with other processes, until nobody refers to the Page any more.
func MapPage(fd int) (*Page, error) {
	mem, err := MapMemory(fd, PageBytes)
	if err != nil {
		return nil, err
	}
	p, err := NewPage(mem)
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(p, Unmap, mem)
	return p, nil
}

// NewLocal makes memory for users of this process, filled with zeros. It takes no room before it is touched.
func NewLocal(size int) (*Local, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("endpoint: memory: %w", err)
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // most of it is never touched
	return newLocal(mem), nil
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

// NewLocalOut is NewOut for a ring in a Local.
func NewLocalOut(l *Local, peer *Page, pid int) (*Out, error) {
	r, err := NewOut(l.Mem, peer, pid)
	if err == nil {
		r.keep = l
	}
	return r, err
}

// NewLocalIn is NewIn for a ring in a Local.
func NewLocalIn(l *Local, src *Page, pid int, port ib.PortNum) (*In, error) {
	r, err := NewIn(l.Mem, src, pid, port)
	if err == nil {
		r.keep = l
	}
	return r, err
}
