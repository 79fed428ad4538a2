package main

// #include "../clib/exports.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"softib/hca"
)

// recent are the queues that were polled last. Programs often have two, one for sends and one for receives, and poll them in turn: what comes
// for one while the other is polled is put where its next poll finds it without a call.
var recent [2]atomic.Pointer[cqObj]

// lookAhead takes in what waits for the other queue of the recent ones, if there is something.
func (o *cqObj) lookAhead(hint *C.struct_softib_hint) {
	other := recent[0].Load()
	if other == o {
		other = recent[1].Load()
	} else {
		recent[1].Store(other)
		recent[0].Store(o)
	}
	if other == nil || other.cq.Len() == 0 && !packetWaits(hint) || !other.polling.CompareAndSwap(false, true) {
		return
	}
	if !other.gone && other.ready.wanted() {
		n := other.ctx.dev.Poll(other.cq, other.polled[:min(pollBatch, readyMax)])
		count := atomic.LoadUint32((*uint32)(&hint.commits)) // see softib_poll_cq
		other.ready.put(other.polled[:n], count, other.cq.Len() == 0)
	}
	other.unlock()
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

// readyList is a struct softib_ready.
type readyList C.struct_softib_ready

const readyMax = C.SOFTIB_READY

// wanted reports whether C looks there, and has taken what was there before.
func (r *readyList) wanted() bool { return r.on != 0 && r.empties() }

func (r *readyList) empties() bool {
	return atomic.LoadUint32((*uint32)(&r.head)) == atomic.LoadUint32((*uint32)(&r.tail))
}

// lock excludes C, which holds it for a moment.
func (r *readyList) lock() {
	for i := 0; atomic.SwapUint32((*uint32)(&r.locked), 1) != 0; i++ {
		if i > 100 {
			runtime.Gosched()
		}
	}
}

func (r *readyList) unlock() { atomic.StoreUint32((*uint32)(&r.locked), 0) }

// put adds completions; empty says that the queue is, at the hint's count.
func (r *readyList) put(wcs []hca.WC, count uint32, empty bool) {
	r.lock()
	tail := uint32(r.tail)
	for i := range wcs {
		setWC(&r.wc[tail%readyMax], &wcs[i])
		tail++
	}
	r.empty, r.empty_at = 0, C.uint32_t(count)
	if empty {
		r.empty = 1
	}
	atomic.StoreUint32((*uint32)(&r.tail), tail)
	r.unlock()
}

// take moves what is there to a caller that asked for it.
func (r *readyList) take(out []C.struct_ibv_wc) int {
	if r.empties() {
		return 0
	}
	r.lock()
	n, head := 0, uint32(r.head)
	for ; n < len(out) && head != uint32(r.tail); n++ {
		out[n] = r.wc[head%readyMax]
		head++
	}
	atomic.StoreUint32((*uint32)(&r.head), head)
	r.unlock()
	return n
}
