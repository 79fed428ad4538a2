package main

// #include "../clib/exports.h"
import "C"

import (
	"unsafe"

	"softib/node/hca"
)

// What C tells programs of tag matching is what the engine has.
var (
	_ [hca.MaxTags - C.SOFTIB_TAGS_MAX]struct{}
	_ [C.SOFTIB_TAGS_MAX - hca.MaxTags]struct{}
	_ [hca.RendezvousMax - C.SOFTIB_RNDV_MAX]struct{}
	_ [C.SOFTIB_RNDV_MAX - hca.RendezvousMax]struct{}
)

// tagOps are the engine's operations by libibverbs' numbers.
var tagOps = [...]hca.WCOpcode{C.IBV_WR_TAG_ADD: hca.WCTagAdd, C.IBV_WR_TAG_DEL: hca.WCTagDel,
	C.IBV_WR_TAG_SYNC: hca.WCTagSync}

//export softib_post_srq_ops
func softib_post_srq_ops(handle uint32, wr *C.struct_ibv_ops_wr, bad **C.struct_ibv_ops_wr) (errno int32) {
	o := table.srqs.get(handle)
	if o == nil {
		setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
		return einval
	}
	h := o.ctx.dev.Enter()
	for ; wr != nil; wr = wr.next {
		if errno = o.tagOp(h, wr); errno != 0 {
			setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
			break
		}
	}
	o.ctx.dev.Leave()
	return errno
}

// tagOp does one operation. The device is locked.
func (o *srqObj) tagOp(h *hca.HCA, wr *C.struct_ibv_ops_wr) int32 {
	if int(wr.opcode) >= len(tagOps) || wr.flags&^(C.IBV_OPS_SIGNALED|C.IBV_OPS_TM_SYNC) != 0 {
		return einval
	}
	op := hca.TagOp{
		WRID: uint64(wr.wr_id), Kind: tagOps[wr.opcode], Signaled: wr.flags&C.IBV_OPS_SIGNALED != 0,
		Sync: wr.flags&C.IBV_OPS_TM_SYNC != 0, Missed: uint32(wr.tm.unexpected_cnt), Handle: uint32(wr.tm.handle),
	}
	if op.Kind == hca.WCTagAdd {
		add := &wr.tm.add
		if !listOK(add.num_sge, maxSGE, add.sg_list) {
			return einval
		}
		op.RecvWRID, op.Tag, op.Mask = uint64(add.recv_wr_id), uint64(add.tag), uint64(add.mask)
		op.SGList = unsafe.Slice((*hca.SGE)(unsafe.Pointer(add.sg_list)), add.num_sge)
	}
	err := h.PostSRQOp(o.it, &op)
	if err == nil && op.Kind == hca.WCTagAdd {
		wr.tm.handle = C.uint32_t(op.Handle)
	}
	return errnoOf(err)
}
