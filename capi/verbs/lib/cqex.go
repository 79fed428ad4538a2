package main

// #include "../clib/exports.h"
import "C"

import (
	"time"
	"unsafe"

	"softib/proto/ib"
)

// stampNs turns a time of the device into its clock's count. Between readings of the clock the device's time
// runs a little ahead: nothing was made later than now.
func stampNs(at, now ib.Time) uint64 { return uint64(min(at, now) / ib.Nanosecond) }

// wallOffset is what to add to the device's clock for the time of day in nanoseconds.
func wallOffset(now ib.Time) int64 { return time.Now().UnixNano() - int64(now/ib.Nanosecond) }

//export softib_clock
func softib_clock(context uint32, ns *C.uint64_t, wall *C.int64_t) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	now := c.dev.Now()
	*ns, *wall = C.uint64_t(stampNs(now, now)), C.int64_t(wallOffset(now))
	return 0
}

//export softib_modify_cq
func softib_modify_cq(cq, count, periodUs uint32) int32 {
	o := table.cqs.get(cq)
	if o == nil {
		return einval
	}
	h := o.ctx.dev.Enter()
	defer o.ctx.dev.Leave()
	return errnoOf(h.ModifyCQ(o.cq, int(count), ib.Time(periodUs)*ib.Microsecond))
}

//export softib_poll_stamped
func softib_poll_stamped(cq uint32, room int32, out *C.struct_ibv_wc, ns *C.uint64_t, wall *C.int64_t) int32 {
	o := table.cqs.get(cq)
	if o == nil {
		return -einval
	}
	o.lock()
	defer o.unlock()
	wcs := o.polled[:]
	n := o.ctx.dev.Poll(o.cq, wcs[:min(max(room, 0), pollBatch)])
	if n == 0 {
		return 0
	}
	now := o.ctx.dev.Now()
	to, at := unsafe.Slice(out, n), unsafe.Slice(ns, n)
	for i := range n {
		setWC(&to[i], &wcs[i])
		at[i] = C.uint64_t(stampNs(wcs[i].At, now))
	}
	*wall = C.int64_t(wallOffset(now))
	return int32(n)
}
