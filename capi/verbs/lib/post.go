package main

// #include "../clib/exports.h"
import "C"

import (
	"math/bits"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

// The alternatives of ibv_send_wr's unions.
type (
	wrRDMA struct {
		addr uint64
		rkey uint32
	}
	wrAtomic struct {
		addr, compareAdd, swap uint64
		rkey                   uint32
	}
	wrUD struct {
		ah        *C.struct_ibv_ah
		qpn, qkey uint32
	}
	// What C keeps of a FLUSH, which has no room of its own there.
	wrFlush struct{ length, typ, level uint32 }
	wrBind  struct {
		mw   *C.struct_ibv_mw
		rkey uint32
		info C.struct_ibv_mw_bind_info
	}
)

// setBad tells a caller who asks which request was refused. What C had there before is no business of the garbage
// collector's.
func setBad(bad, wr unsafe.Pointer) {
	if bad != nil {
		*(*uintptr)(bad) = uintptr(wr)
	}
}

//export softib_post_send
func softib_post_send(handle uint32, wr *C.struct_ibv_send_wr, bad **C.struct_ibv_send_wr) (errno int32) {
	o := table.qps.get(handle)
	if o == nil {
		setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
		return einval
	}
	h := o.enterToSend()
	for n := 0; wr != nil; wr = wr.next {
		if errno = o.post(h, wr); errno != 0 {
			if bad == nil {
				h.Retract(o.it, n)
			}
			setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
			break
		}
		n++
	}
	o.ctx.dev.Leave()
	return errno
}

// enterToSend locks the device for posts to the send queue.
func (o *qpObj) enterToSend() *hca.HCA {
	if o.it.Type() == hca.UD {
		return o.ctx.dev.Enter() // a datagram to a group of its own comes back at once, to a receive that may be staged
	}
	return o.ctx.dev.EnterToSend()
}

// listOK reports whether a scatter/gather list can be looked at.
func listOK(n C.int, most int, list *C.struct_ibv_sge) bool {
	return n == 0 || n > 0 && int(n) <= most && list != nil
}

// post posts one request. The device is locked.
func (o *qpObj) post(h *hca.HCA, wr *C.struct_ibv_send_wr) int32 {
	w := &o.send
	if wr.opcode >= uint32(hca.NumWROpcode) || wr.send_flags > 0xFF ||
		!listOK(wr.num_sge, o.it.Caps().MaxSendSGE, wr.sg_list) {
		return einval
	}
	w.WRID = uint64(wr.wr_id)
	w.Opcode = hca.WROpcode(wr.opcode)
	w.Flags = hca.SendFlags(wr.send_flags)
	w.SGList = unsafe.Slice((*hca.SGE)(unsafe.Pointer(wr.sg_list)), wr.num_sge)
	if w.Flags&hca.SendInline != 0 {
		if !o.takeInline() {
			return einval
		}
	}
	switch w.Opcode {
	case hca.WRSend:
	case hca.WRSendImm:
		w.Imm = bits.ReverseBytes32(*(*uint32)(unsafe.Pointer(&wr.anon0)))
	case hca.WRSendInv, hca.WRLocalInv:
		w.Imm = *(*uint32)(unsafe.Pointer(&wr.anon0))
	case hca.WRRDMAWriteImm:
		w.Imm = bits.ReverseBytes32(*(*uint32)(unsafe.Pointer(&wr.anon0)))
		fallthrough
	case hca.WRRDMAWrite, hca.WRRDMARead, hca.WRAtomicWrite:
		u := (*wrRDMA)(unsafe.Pointer(&wr.wr))
		w.RemoteAddr, w.RKey = u.addr, u.rkey
	case hca.WRAtomicCmpSwap, hca.WRAtomicFetchAdd:
		u := (*wrAtomic)(unsafe.Pointer(&wr.wr))
		w.RemoteAddr, w.RKey, w.CompareAdd, w.Swap = u.addr, u.rkey, u.compareAdd, u.swap
	case hca.WRFlush:
		u, f := (*wrRDMA)(unsafe.Pointer(&wr.wr)), (*wrFlush)(unsafe.Pointer(&wr.anon1))
		w.RemoteAddr, w.RKey = u.addr, u.rkey
		w.Flush = hca.Flush{Length: f.length, Type: uint8(min(f.typ, 0xFF)), Level: uint8(min(f.level, 0xFF))}
	case hca.WRBindMW:
		if !o.takeBind((*wrBind)(unsafe.Pointer(&wr.anon1))) {
			return einval
		}
	}
	switch o.it.Type() {
	case hca.UD:
		if w.Opcode != hca.WRSend && w.Opcode != hca.WRSendImm {
			return einval // and the union has something else in it
		}
		u := (*wrUD)(unsafe.Pointer(&wr.wr))
		w.AH, w.RemoteQPN, w.RemoteQKey = nil, ib.QPN(u.qpn), ib.QKey(u.qkey)
		if u.ah != nil {
			w.AH = of(&table.ahs, u.ah.handle)
		}
	case hca.XRCSend:
		w.RemoteSRQN = *(*uint32)(unsafe.Pointer(&wr.qp_type))
	}
	return errnoOf(h.PostSend(o.it, w))
}

// takeInline replaces the list by the data at the caller's addresses; keys do not matter (ibv_post_send(3)).
func (o *qpObj) takeInline() bool {
	w, room := &o.send, uint64(o.it.Caps().MaxInline)
	var n uint64
	for i := range w.SGList {
		n += uint64(w.SGList[i].Length)
		if w.SGList[i].Addr == 0 && w.SGList[i].Length > 0 {
			return false
		}
	}
	if n > room {
		return false
	}
	if len(w.SGList) == 1 {
		w.InlineData = memory(&w.SGList[0])
	} else {
		o.inline = o.inline[:0]
		for i := range w.SGList {
			o.inline = append(o.inline, memory(&w.SGList[i])...)
		}
		w.InlineData = o.inline
	}
	w.SGList = nil
	return true
}

// memory is what an element names in the caller's own address space.
func memory(s *hca.SGE) []byte {
	if s.Length == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&s.Addr)), s.Length)
}

// takeBind finds what a window is to be bound to.
func (o *qpObj) takeBind(b *wrBind) bool {
	if b.mw == nil {
		return false
	}
	mw := of(&table.mws, b.mw.handle)
	if mw == nil {
		return false
	}
	// A window has rights for peers only; programs name the local one all the same, and adapters let them.
	o.bind = hca.BindInfo{
		MW: mw, Addr: uint64(b.info.addr), Length: uint64(b.info.length),
		Access: hca.Access(b.info.mw_access_flags) &^ hca.AccessLocalWrite, RKey: b.rkey,
	}
	if b.info.mr != nil {
		if o.bind.MR = of(&table.mrs, b.info.mr.handle); o.bind.MR == nil {
			return false
		}
	}
	o.send.Bind = &o.bind
	return true
}

//export softib_post_recv
func softib_post_recv(handle uint32, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) int32 {
	o := table.qps.get(handle)
	if o == nil {
		setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
		return einval
	}
	return postRecvs(o.ctx.dev, o.it, nil, o.it.Caps().MaxRecvSGE, &o.recv, wr, bad)
}

//export softib_post_srq_recv
func softib_post_srq_recv(handle uint32, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) int32 {
	o := table.srqs.get(handle)
	if o == nil {
		setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
		return einval
	}
	return postRecvs(o.ctx.dev, nil, o.it, maxSGE, &o.recv, wr, bad)
}

// postRecvs posts receives to a queue pair or, where that is nil, to a shared queue; w is room for one.
func postRecvs(dev device, q *hca.QP, s *hca.SRQ, most int, w *hca.RecvWR, wr *C.struct_ibv_recv_wr,
	bad **C.struct_ibv_recv_wr) int32 {
	h := dev.Enter()
	defer dev.LeaveQuiet()
	for ; wr != nil; wr = wr.next {
		errno := einval
		if listOK(wr.num_sge, most, wr.sg_list) {
			w.WRID = uint64(wr.wr_id)
			w.SGList = unsafe.Slice((*hca.SGE)(unsafe.Pointer(wr.sg_list)), wr.num_sge)
			if q != nil {
				errno = errnoOf(h.PostRecv(q, w))
			} else {
				errno = errnoOf(h.PostSRQRecv(s, w))
			}
		}
		if errno != 0 {
			setBad(unsafe.Pointer(bad), unsafe.Pointer(wr))
			return errno
		}
	}
	return 0
}

// maxSGE bounds a list before the engine, which knows the queue's own limit, looks at it.
const maxSGE = 1 << 10
