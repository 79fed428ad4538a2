package main

// #include "../clib/exports.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	"softib/driver/endpoint"
	"softib/internal/cacheline"
	"softib/node/hca"
)

// readyList is a struct softib_ready: the completions that C has not taken yet, as far as there is room.
type readyList C.struct_softib_ready

const readyMax = C.SOFTIB_READY

// len is how many are there.
func (r *readyList) len() int {
	return int(atomic.LoadUint32((*uint32)(&r.tail)) - atomic.LoadUint32((*uint32)(&r.head)))
}

// move moves completions to where C finds them. The device is locked, and nobody else writes there.
func (o *cqObj) move() {
	r := o.ready
	tail := uint32(r.tail)
	for room := readyMax - r.len(); room > 0; {
		n := o.it.Poll(o.polled[:min(room, pollBatch)])
		for i := range o.polled[:n] {
			setWC(&r.wc[tail%readyMax], &o.polled[i])
			tail++
		}
		room -= n
		if n < pollBatch {
			break
		}
	}
	if tail != uint32(r.tail) {
		cacheline.StoreRelease(&moves, moves+1)
	}
	more := uint32(0)
	if o.it.Len() > 0 {
		more = 1
	}
	atomic.StoreUint32((*uint32)(&r.more), more)
	cacheline.StoreRelease((*uint32)(&r.tail), tail)
}

// moves counts what was moved, to any queue; it is written under the device's lock, of which a process has one.
var moves uint32

// linger waits a moment for packets, or for room to send, until there is a completion; where another queue has got one,
// which the program may poll in turn, not for long. It is for a program that does nothing but poll: the way from C to
// Go is behind it when the packet comes.
func (o *cqObj) linger() {
	hint := (*C.struct_softib_hint)(o.ctx.dev.Hint())
	stirs, moved := atomic.LoadUint32((*uint32)(&hint.stirs)), atomic.LoadUint32(&moves)
	empty := 0
	for i := 0; i < endpoint.LingerLooks && o.ready.len() == 0 &&
		atomic.LoadUint32((*uint32)(&hint.stirs)) == stirs; i++ {
		if now := atomic.LoadUint32(&moves); now != moved {
			// The acknowledgement of what is answered there is often next.
			moved, i = now, max(i, endpoint.LingerLooks-endpoint.LingerGap)
		}
		if packetWaits(hint) || i%endpoint.LingerGap == endpoint.LingerGap-1 &&
			atomic.LoadUint32((*uint32)(&hint.parked)) != 0 {
			if o.ctx.dev.Advance(o.it, empty/endpoint.LingerGap) {
				// That may be what the program waits for, by looking at its memory: this is not the place to wait then.
				if o.ready.len() == 0 {
					atomic.StoreUint32((*uint32)(&o.ready.away), endpoint.LingerNot)
				}
				return
			}
			i += endpoint.LingerLooks / 8 // there is an end to it
			empty = 0
		} else {
			empty++
		}
	}
}

// packetWaits reports whether a packet waits to be taken in, as C does.
func packetWaits(hint *C.struct_softib_hint) bool {
	n := atomic.LoadUint32((*uint32)(&hint.nrings))
	if n > uint32(len(hint.ring)) {
		return true
	}
	for i := range hint.ring[:n] {
		if r := &hint.ring[i]; atomic.LoadUint32((*uint32)(unsafe.Pointer(r.seq))) == uint32(r.want) {
			return true
		}
	}
	return false
}

var _ [hca.OutsideMax - readyMax]struct{}
