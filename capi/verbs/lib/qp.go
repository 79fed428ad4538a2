package main

// #include "../clib/exports.h"
import "C"

import (
	"slices"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

//export softib_create_srq
func softib_create_srq(a *C.struct_softib_srq_args) int32 {
	p := table.pds.get(uint32(a.pd))
	if p == nil {
		return einval
	}
	xrcd, ok := among(p.ctx, &table.xrcds, a.xrcd)
	cq, also := among(p.ctx, &table.cqs, a.cq)
	if !ok || !also {
		return einval
	}
	init := hca.SRQInit{PD: p.it, MaxWR: int(a.attr.max_wr), MaxSGE: int(a.attr.max_sge), XRCD: xrcd, CQ: cq,
		Tags: int(a.tags)}
	var o srqObj
	errno := create(p.ctx, &table.srqs, &o, &a.made, func(h *hca.HCA) (*hca.SRQ, error) {
		return h.CreateSRQ(init)
	}, (*hca.HCA).DestroySRQ)
	if errno == 0 {
		a.srq_num = C.uint32_t(o.it.Num())
	}
	return errno
}

//export softib_modify_srq
func softib_modify_srq(handle uint32, a *C.struct_ibv_srq_attr, mask int32) int32 {
	return use(&table.srqs, handle, func(h *hca.HCA, o *srqObj) error {
		switch mask {
		case 0:
			return nil
		case C.IBV_SRQ_LIMIT:
			return h.ModifySRQ(o.it, int(a.srq_limit))
		case C.IBV_SRQ_MAX_WR:
			return h.ResizeSRQ(o.it, int(a.max_wr))
		}
		return hca.ErrInvalid
	})
}

//export softib_query_srq
func softib_query_srq(handle uint32, a *C.struct_ibv_srq_attr) int32 {
	return use(&table.srqs, handle, func(h *hca.HCA, o *srqObj) error {
		wr, sge, limit, err := h.QuerySRQ(o.it)
		a.max_wr, a.max_sge, a.srq_limit = C.uint32_t(wr), C.uint32_t(sge), C.uint32_t(limit)
		return err
	})
}

//export softib_destroy_srq
func softib_destroy_srq(handle uint32) int32 {
	return destroy(&table.srqs, handle, (*hca.HCA).DestroySRQ)
}

// qpTypes are the engine's queue pairs by libibverbs' numbers.
var qpTypes = map[C.uint32_t]hca.QPType{
	C.IBV_QPT_RC: hca.RC, C.IBV_QPT_UC: hca.UC, C.IBV_QPT_UD: hca.UD, C.IBV_QPT_XRC_SEND: hca.XRCSend,
	C.IBV_QPT_XRC_RECV: hca.XRCRecv,
}

// inlineLeast is the room for inline data that every queue pair has. Adapters give what fits into the smallest work
// request, and programs such as rdma_xclient send inline without having asked for any.
const inlineLeast = 32

//export softib_create_qp
func softib_create_qp(a *C.struct_softib_qp_args) int32 {
	c := table.contexts.get(uint32(a.context))
	if c == nil {
		return einval
	}
	typ, ok := qpTypes[a._type]
	if !ok {
		if a._type == C.IBV_QPT_RAW_PACKET || a._type == C.IBV_QPT_DRIVER {
			return eopnotsupp
		}
		return einval
	}
	var found [5]bool
	init := hca.QPInit{
		Type: typ, SigAll: a.sig_all != 0, BlockSelfMC: a.create_flags&C.IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0,
		Caps: hca.Caps{
			MaxSendWR: int(a.cap.max_send_wr), MaxRecvWR: int(a.cap.max_recv_wr), MaxSendSGE: int(a.cap.max_send_sge),
			MaxRecvSGE: int(a.cap.max_recv_sge), MaxInline: max(int(a.cap.max_inline_data), inlineLeast),
		},
	}
	init.PD, found[0] = among(c, &table.pds, a.pd)
	init.SendCQ, found[1] = among(c, &table.cqs, a.send_cq)
	init.RecvCQ, found[2] = among(c, &table.cqs, a.recv_cq)
	init.SRQ, found[3] = among(c, &table.srqs, a.srq)
	init.XRCD, found[4] = among(c, &table.xrcds, a.xrcd)
	if slices.Contains(found[:], false) {
		return einval
	}
	if init.SRQ == nil {
		init.Caps.MaxRecvWR = withStaged(c.dev, init.Caps.MaxRecvWR)
	}
	var o qpObj
	if errno := create(c, &table.qps, &o, &a.made, func(h *hca.HCA) (*hca.QP, error) {
		q, err := h.CreateQP(init)
		if err == nil && typ == hca.RC && a.sends != nil {
			q.Show((*uint32)(&a.sends.under))
		}
		return q, err
	}, (*hca.HCA).DestroyQP); errno != 0 {
		return errno
	}
	caps := o.it.Caps()
	a.cap.max_send_wr, a.cap.max_recv_wr = C.uint32_t(caps.MaxSendWR), C.uint32_t(caps.MaxRecvWR)
	a.cap.max_send_sge, a.cap.max_recv_sge = C.uint32_t(caps.MaxSendSGE), C.uint32_t(caps.MaxRecvSGE)
	a.cap.max_inline_data = C.uint32_t(caps.MaxInline)
	a.qp_num = C.uint32_t(o.it.Num())
	return 0
}

// withStaged is how many receives a queue has that is to have n, so that some may be staged besides.
func withStaged(d device, n int) int {
	if most := d.Adapter().Limits.MaxQPWR; n > 0 && n < most {
		return min(n+stagedMax, most)
	}
	return n
}

//export softib_resize_qp
func softib_resize_qp(handle uint32, a *C.struct_ibv_qp_cap) int32 {
	return use(&table.qps, handle, func(h *hca.HCA, o *qpObj) error {
		c := o.it.Caps()
		if int(a.max_send_sge) > c.MaxSendSGE || int(a.max_recv_sge) > c.MaxRecvSGE ||
			int(a.max_inline_data) > c.MaxInline {
			return hca.ErrInvalid // only how many requests there are changes
		}
		recv := int(a.max_recv_wr)
		if recv > c.MaxRecvWR {
			recv = withStaged(o.ctx.dev, recv)
		}
		err := h.ResizeQP(o.it, int(a.max_send_wr), recv)
		c = o.it.Caps()
		a.max_send_wr, a.max_recv_wr = C.uint32_t(c.MaxSendWR), C.uint32_t(c.MaxRecvWR)
		return err
	})
}

//export softib_destroy_qp
func softib_destroy_qp(handle uint32) int32 {
	o := table.qps.get(handle)
	if o == nil {
		return einval
	}
	o.ctx.dev.TakeIn(true)
	return destroy(&table.qps, handle, func(h *hca.HCA, q *hca.QP) error {
		if o.shared() {
			return nil
		}
		return h.DestroyQP(q)
	})
}

// shared reports whether the queue pair has another handle.
func (o *qpObj) shared() bool {
	table.mu.Lock()
	defer table.mu.Unlock()
	return len(table.tracked[o.it]) > 1
}

// attrBits are the attributes that libibverbs and the engine number alike: all up to the path migration state.
const attrBits = 1<<19 - 1

//export softib_modify_qp
func softib_modify_qp(handle uint32, a *C.struct_ibv_qp_attr, mask int32) int32 {
	o := table.qps.get(handle)
	if o == nil || mask < 0 {
		return einval
	}
	m := hca.AttrMask(mask & attrBits)
	if mask&C.IBV_QP_DEST_QPN != 0 {
		m |= hca.MaskDestQPN
	}
	limits := mask&C.IBV_QP_RATE_LIMIT != 0
	if mask&^(attrBits|C.IBV_QP_DEST_QPN|C.IBV_QP_RATE_LIMIT) != 0 {
		return einval
	}
	if limits && (a.rate_limit != 0 && a.rate_limit < hca.MinRateLimit ||
		m&hca.MaskState != 0 && a.qp_state != C.IBV_QPS_RTS && a.qp_state != C.IBV_QPS_SQD) {
		return einval // before anything changes
	}
	// Programs set up both halves of XRC as if they were RC, and Linux lets them.
	switch o.it.Type() {
	case hca.XRCSend:
		m &^= hca.MaskMaxDestRD | hca.MaskMinRNRTimer
	case hca.XRCRecv:
		m &^= hca.MaskMaxRDAtomic | hca.MaskRetryCnt | hca.MaskRNRRetry
	}
	if m&hca.MaskAV != 0 && a.ah_attr.port_num == 0 {
		return einval
	}
	// Attributes that the mask does not name may be anything.
	for _, f := range [...]struct {
		bit        hca.AttrMask
		value, max uint32
	}{
		{hca.MaskState, uint32(a.qp_state), 0xFF}, {hca.MaskCurState, uint32(a.cur_qp_state), 0xFF},
		{hca.MaskPathMTU, uint32(a.path_mtu), 0xFF},
		{hca.MaskPathMigState, uint32(a.path_mig_state), 0xFF}, {hca.MaskAccess, uint32(a.qp_access_flags), 0xFFFF},
	} {
		if m&f.bit != 0 && f.value > f.max {
			return einval
		}
	}
	v := hca.QPAttr{
		State: hca.State(a.qp_state), CurState: hca.State(a.cur_qp_state), PathMTU: ib.MTU(a.path_mtu),
		PathMigState: hca.MigState(a.path_mig_state),
		QKey:         ib.QKey(a.qkey), RQPSN: ib.PSN(a.rq_psn), SQPSN: ib.PSN(a.sq_psn), DestQPN: ib.QPN(a.dest_qp_num),
		Access:    hca.Access(a.qp_access_flags &^ C.IBV_ACCESS_ON_DEMAND), // which is the regions' own business
		PKeyIndex: uint16(a.pkey_index), AltPKeyIndex: uint16(a.alt_pkey_index),
		EnSQDNotify: a.en_sqd_async_notify != 0,
		MaxRDAtomic: uint8(a.max_rd_atomic), MaxDestRD: uint8(a.max_dest_rd_atomic),
		MinRNRTimer: uint8(a.min_rnr_timer), Port: ib.PortNum(a.port_num),
		Timeout: uint8(a.timeout), RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry),
		AltPort: ib.PortNum(a.alt_port_num), AltTimeout: uint8(a.alt_timeout),
		AH: ahAttr(&a.ah_attr), AltAH: ahAttr(&a.alt_ah_attr),
	}
	if m&hca.MaskState != 0 {
		o.ctx.dev.TakeIn(v.State == hca.StateErr || v.State == hca.StateReset)
	}
	var err error
	h := o.ctx.dev.Enter()
	if m != 0 || !limits {
		err = h.ModifyQP(o.it, v, m)
	}
	if err == nil && limits {
		err = h.LimitRate(o.it, uint32(a.rate_limit), 0)
	}
	o.ctx.dev.Leave()
	return errnoOf(err)
}

//export softib_limit_qp
func softib_limit_qp(handle, kbps, burst uint32) int32 {
	return use(&table.qps, handle, func(h *hca.HCA, o *qpObj) error { return h.LimitRate(o.it, kbps, burst) })
}

//export softib_query_qp
func softib_query_qp(handle uint32, a *C.struct_ibv_qp_attr) int32 {
	o := table.qps.get(handle)
	if o == nil {
		return einval
	}
	v, err := o.ctx.dev.Enter().QueryQP(o.it)
	a.rate_limit = C.uint32_t(o.it.RateLimit())
	draining := v.State == hca.StateSQD && o.it.Outstanding() > 0
	o.ctx.dev.LeaveQuiet()
	if err != nil {
		return errnoOf(err)
	}
	a.qp_state, a.cur_qp_state = C.enum_ibv_qp_state(v.State), C.enum_ibv_qp_state(v.CurState)
	a.path_mtu, a.path_mig_state = C.enum_ibv_mtu(v.PathMTU), C.enum_ibv_mig_state(v.PathMigState)
	a.qkey, a.rq_psn, a.sq_psn, a.dest_qp_num = C.uint32_t(v.QKey), C.uint32_t(v.RQPSN), C.uint32_t(v.SQPSN),
		C.uint32_t(v.DestQPN)
	a.qp_access_flags = C.uint(v.Access)
	setAHAttr(&a.ah_attr, &v.AH)
	setAHAttr(&a.alt_ah_attr, &v.AltAH)
	a.pkey_index, a.alt_pkey_index = C.uint16_t(v.PKeyIndex), C.uint16_t(v.AltPKeyIndex)
	a.en_sqd_async_notify, a.sq_draining = flag(v.EnSQDNotify), flag(draining)
	a.max_rd_atomic, a.max_dest_rd_atomic, a.min_rnr_timer = C.uint8_t(v.MaxRDAtomic), C.uint8_t(v.MaxDestRD),
		C.uint8_t(v.MinRNRTimer)
	a.port_num, a.timeout, a.retry_cnt, a.rnr_retry = C.uint8_t(v.Port), C.uint8_t(v.Timeout), C.uint8_t(v.RetryCnt),
		C.uint8_t(v.RNRRetry)
	a.alt_port_num, a.alt_timeout = C.uint8_t(v.AltPort), C.uint8_t(v.AltTimeout)
	return 0
}

func flag(b bool) C.uint8_t {
	if b {
		return 1
	}
	return 0
}

//export softib_attach_mcast
func softib_attach_mcast(handle uint32, gid *C.uint8_t, lid uint32) int32 {
	return changeGroups(handle, gid, lid, true)
}

//export softib_detach_mcast
func softib_detach_mcast(handle uint32, gid *C.uint8_t, lid uint32) int32 {
	return changeGroups(handle, gid, lid, false)
}

// changeGroups has a queue pair join or leave a group.
func changeGroups(handle uint32, gid *C.uint8_t, lid uint32, join bool) int32 {
	m := membership{*(*ib.GID)(unsafe.Pointer(gid)), ib.LID(lid)}
	change := (*hca.HCA).DetachMcast
	if join {
		change = (*hca.HCA).AttachMcast
	}
	return use(&table.qps, handle, func(h *hca.HCA, o *qpObj) error {
		err := change(h, o.it, m.gid, m.lid)
		if err == nil {
			o.groups = slices.DeleteFunc(o.groups, func(x membership) bool { return x == m })
			if join {
				o.groups = append(o.groups, m)
			}
		}
		return err
	})
}

// leaveGroups detaches what is about to be destroyed.
func (o *qpObj) leaveGroups() {
	h := o.ctx.dev.Enter()
	defer o.ctx.dev.LeaveQuiet()
	for _, m := range o.groups {
		h.DetachMcast(o.it, m.gid, m.lid)
	}
	o.groups = nil
}
