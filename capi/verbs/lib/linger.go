package main

// #include "../clib/exports.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	"softib/driver/endpoint"
)

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
