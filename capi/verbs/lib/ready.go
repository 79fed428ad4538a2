package main

// #include "../clib/exports.h"
import "C"

import (
	"sync/atomic"

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

var _ [hca.OutsideMax - readyMax]struct{}
