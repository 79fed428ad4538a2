package main

// #include "../clib/exports.h"
import "C"

import (
	"math/bits"
	"runtime"
	"time"
	"unsafe"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/proto/ib"
)

//export softib_create_cq
func softib_create_cq(a *C.struct_softib_cq_args) int32 {
	c := table.contexts.get(uint32(a.context))
	if c == nil || a.cqe > 1<<31-1 {
		return einval
	}
	o := &cqObj{ready: (*readyList)(unsafe.Pointer(a.ready))}
	if errno := create(c, &table.cqs, o, &a.made, func(h *hca.HCA) (*hca.CQ, error) {
		cq, err := h.CreateCQ(int(a.cqe))
		if err == nil && a.wraps != 0 {
			cq.IgnoreOverrun()
		}
		return cq, err
	}, (*hca.HCA).DestroyCQ); errno != 0 {
		return errno
	}
	if a.event_fd >= 0 {
		o.events = &pipe{fd: int(a.event_fd), told: (*uint32)(a.told)}
		c.dev.NotifyCQ(o.it, func() {
			o.events.put(event{C.SOFTIB_COMPLETION, C.SOFTIB_CQ, o.handle, o.serial})
			c.dev.Told()
		})
	}
	if o.ready != nil {
		c.dev.UseReadyList(o.it, o.move, o.ready.len)
	}
	a.cqe = C.uint32_t(o.it.Cap())
	return 0
}

//export softib_resize_cq
func softib_resize_cq(handle uint32, cqe *C.uint32_t) int32 {
	return use(&table.cqs, handle, func(h *hca.HCA, o *cqObj) error {
		err := h.ResizeCQ(o.it, int(*cqe))
		*cqe = C.uint32_t(o.it.Cap())
		return err
	})
}

//export softib_destroy_cq
func softib_destroy_cq(handle uint32) int32 {
	o := table.cqs.get(handle)
	if errno := destroy(&table.cqs, handle, (*hca.HCA).DestroyCQ); errno != 0 {
		return errno
	}
	if o.events != nil {
		o.ctx.dev.NotifyCQ(o.it, nil)
		o.events.end()
	}
	if o.ready != nil {
		o.ctx.dev.UseReadyList(o.it, nil, nil) // before C frees the list
	}
	return 0
}

//export softib_req_notify
func softib_req_notify(handle uint32, solicitedOnly int32) int32 {
	o := table.cqs.get(handle)
	if o == nil {
		return einval
	}
	o.ctx.dev.Arm(o.it, solicitedOnly != 0)
	return 0
}

//export softib_await
func softib_await(context uint32, polls int32, bell *C.uint32_t) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	await := c.dev.Await
	if polls != 0 {
		await = c.dev.Nap
	}
	*bell = C.uint32_t(await())
	return 0
}

//export softib_advance_cq
func softib_advance_cq(handle uint32, how int32) int32 {
	o := table.cqs.get(handle)
	if o == nil {
		return einval
	}
	switch how {
	case C.SOFTIB_LINGER:
		o.linger()
	case C.SOFTIB_SPUN:
		o.ctx.dev.Advance(o.it, endpoint.Spun)
	default:
		o.ctx.dev.Advance(o.it, int(how))
	}
	return 0
}

//export softib_poll_cq
func softib_poll_cq(handle uint32, room int32, out *C.struct_ibv_wc, ns *C.uint64_t, wall *C.int64_t) (done int32) {
	o := table.cqs.get(handle)
	if o == nil {
		return -einval
	}
	for !o.polling.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
	defer o.polling.Store(false)
	to := unsafe.Slice(out, max(room, 0))
	for n := pollBatch; n == pollBatch && done < room; {
		n = o.ctx.dev.Poll(o.it, o.polled[:min(room-done, pollBatch)])
		now := o.ctx.dev.Now()
		for i := range o.polled[:n] {
			setWC(&to[done], &o.polled[i])
			if ns != nil {
				unsafe.Slice(ns, room)[done] = C.uint64_t(stampNs(o.polled[i].At, now))
				*wall = C.int64_t(wallOffset(now))
			}
			done++
		}
	}
	return done
}

// setWC writes a completion as libibverbs has it.
func setWC(to *C.struct_ibv_wc, w *hca.WC) {
	to.wr_id = C.uint64_t(w.WRID)
	to.status = C.enum_ibv_wc_status(w.Status)
	to.opcode = C.enum_ibv_wc_opcode(w.Opcode)
	to.vendor_err = C.uint32_t(w.VendorErr)
	to.byte_len = C.uint32_t(w.ByteLen)
	to.qp_num = C.uint32_t(w.QPN)
	to.src_qp = C.uint32_t(w.SrcQP)
	imm := w.ImmData
	const same = hca.WCGRH | hca.WCWithImm | hca.WCTagSyncReq | hca.WCTagMatch | hca.WCTagDataValid
	flags := C.uint(w.Flags & same)
	if w.Flags&hca.WCWithImm != 0 {
		imm = bits.ReverseBytes32(imm) // in network order; a key is a number
	}
	if w.Flags&hca.WCWithInv != 0 {
		flags |= C.IBV_WC_WITH_INV
	}
	*(*uint32)(unsafe.Pointer(&to.anon0)) = imm
	to.wc_flags = flags
	to.pkey_index = C.uint16_t(w.PKeyIndex)
	to.slid = C.uint16_t(w.SLID)
	to.sl = C.uint8_t(w.SL)
	to.dlid_path_bits = C.uint8_t(w.PathBits)
}

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
	return use(&table.cqs, cq, func(h *hca.HCA, o *cqObj) error {
		return h.ModifyCQ(o.it, int(count), ib.Time(periodUs)*ib.Microsecond)
	})
}
