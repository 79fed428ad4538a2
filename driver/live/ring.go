package live

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"softib/internal/cacheline"
	"softib/node/hca"
)

const (
	// ringCells is a ring's room: the credit of one source on one lane.
	ringCells = 256
	// creditEvery is how many cells the receiver empties before it says so.
	creditEvery = 32
	// ownAhead is how far ahead of its position the sender asks for cells: farther
	// than the receiver's prefetchers, which would take them away again.
	ownAhead = 48
	// voidEvery is how often the void mark is brought along.
	voidEvery = 1 << 24
)

// ring carries packets from one host to one port of another, on one lane.
// One goroutine at a time is its sender (the holder of the source's lock), one
// its receiver.
//
// A payload by reference lies in the sender's registered memory, which is the
// program's again once the request has ended. A request that ends well was
// acknowledged, so its packets were used, or are duplicates whose payload nobody
// looks at. One that is given up may have packets in the ring: the sender then
// declares everything before its position void (revoke) and waits until
// the receiver is not in the middle of such a cell. To the receiver a void cell
// is a packet that was lost.
type ring struct {
	cells []cell
	src   *Host
	dst   *Host
	port  uint8

	_ [64]byte
	// Sender's.
	tail   uint32 // next cell to fill
	limit  uint32 // tail may not reach it: taken+ringCells as last read
	parked []*hca.QP

	_ [64]byte
	// Receiver's.
	head     uint32 // next cell to empty
	lastTold uint32

	_ [64]byte
	// Shared.
	taken uint32      // cells emptied: the credit that went back
	wants atomic.Bool // the sender waits for credit
	_     [48]byte
	void  atomic.Uint32 // by-reference cells before this are void
	busy  uint32        // the receiver may be copying from by-reference cells
}

func newRing(src, dst *Host, port uint8) *ring {
	// One cell more makes this a large object, which begins on a page: smaller
	// ones may begin 8 bytes behind one.
	return &ring{cells: make([]cell, ringCells+1)[:ringCells], src: src, dst: dst, port: port, limit: ringCells}
}

// pending reports whether the receiver has packets to take in. It may be called
// by anyone.
func (r *ring) pending() bool {
	t := atomic.LoadUint32(&r.taken)
	return atomic.LoadUint32(&r.cells[t%ringCells].seq) == t+1
}

// reserve is the next free cell, nil if there is no credit.
func (r *ring) reserve() *cell {
	if r.tail == r.limit {
		r.limit = atomic.LoadUint32(&r.taken) + ringCells
		if r.tail == r.limit {
			return nil
		}
	}
	return &r.cells[r.tail%ringCells]
}

// room reports whether reserve would succeed.
func (r *ring) room() bool { return r.reserve() != nil }

// publish hands the reserved cell to the receiver.
func (r *ring) publish(c *cell) {
	r.tail++
	if r.tail%voidEvery == 0 {
		// Cells are numbered around a circle; a void mark left behind would come
		// to lie ahead. Everything this far back has been taken.
		r.void.Store(r.tail - ringCells)
	}
	cacheline.StoreRelease(&c.seq, r.tail)
	cacheline.Own(unsafe.Pointer(&r.cells[(r.tail+ownAhead)%ringCells]))
}

// next is the oldest packet, nil if there is none.
func (r *ring) next() *cell {
	c := &r.cells[r.head%ringCells]
	if atomic.LoadUint32(&c.seq) != r.head+1 {
		return nil
	}
	return c
}

// backlog reports whether at least two packets wait.
func (r *ring) backlog() bool {
	if r.next() == nil {
		return false
	}
	c := &r.cells[(r.head+1)%ringCells]
	return atomic.LoadUint32(&c.seq) == r.head+2
}

// take makes sure that the payload of the oldest packet may be read, until done; false
// means that the packet counts as lost.
func (r *ring) take(c *cell) bool {
	if c.kind&cellByRef == 0 {
		return true
	}
	if r.busy == 0 {
		atomic.StoreUint32(&r.busy, 1) // seen by others before void is looked at
	}
	return int32(r.void.Load()-(r.head+1)) < 0
}

// done ends what take has begun.
func (r *ring) done() {
	if r.busy != 0 {
		cacheline.StoreRelease(&r.busy, 0)
	}
}

// release gives the oldest packet's cell back.
func (r *ring) release() {
	r.head++
	if r.head-r.lastTold >= creditEvery {
		r.tell()
	}
}

// tell returns credit to the sender, and wakes it if it waits for some and nobody
// looks.
func (r *ring) tell() {
	if r.lastTold == r.head {
		return
	}
	r.lastTold = r.head
	cacheline.StoreRelease(&r.taken, r.head)
	if r.wants.Load() && r.wants.CompareAndSwap(true, false) && !r.src.attended.Load() {
		r.src.ring()
	}
}

// revoke makes every payload by reference in the ring void.
func (r *ring) revoke() {
	r.void.Store(r.tail)
	for atomic.LoadUint32(&r.busy) != 0 {
		runtime.Gosched()
	}
}
