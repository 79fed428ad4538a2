package main

// #include "../clib/exports.h"
import "C"

import "softib/node/hca"

//export softib_alloc_mw
func softib_alloc_mw(pd, kind uint32, mw, rkey *C.uint32_t) int32 {
	p := table.pds.get(pd)
	if p == nil || kind > uint32(hca.MWType2) {
		return einval
	}
	h := p.ctx.dev.Enter()
	w, err := h.AllocMW(p.pd, hca.MWType(kind))
	p.ctx.dev.LeaveQuiet()
	if err != nil {
		return errnoOf(err)
	}
	handle := table.mws.put(&mwObj{p.ctx, w})
	if handle == 0 {
		p.ctx.dev.Enter().DeallocMW(w)
		p.ctx.dev.LeaveQuiet()
		return enomem
	}
	*mw, *rkey = C.uint32_t(handle), C.uint32_t(w.RKey())
	return 0
}

//export softib_dealloc_mw
func softib_dealloc_mw(mw uint32) int32 {
	o := table.mws.get(mw)
	if o == nil {
		return einval
	}
	h := o.ctx.dev.Enter()
	err := h.DeallocMW(o.mw)
	o.ctx.dev.LeaveQuiet()
	if err == nil {
		table.mws.drop(mw)
	}
	return errnoOf(err)
}
