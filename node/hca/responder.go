package hca

import (
	"encoding/binary"
	"unsafe"

	"softib/proto/ib"
	"softib/proto/wire"
)

// respMsg is the message that a responder is in the middle of.
type respMsg uint8

const (
	msgNone respMsg = iota
	msgSend
	msgWrite
)

// respKind tells queued responses apart.
type respKind uint8

const (
	respAck respKind = iota
	respRead
	respAtomic
)

// respItem is a response that waits to be sent. They leave in the order of
// their PSNs, which is the order in which they were made.
type respItem struct {
	kind  respKind
	syn   wire.Syndrome
	psn   ib.PSN
	msn   uint32
	pd    *PD
	rkey  uint32
	va    uint64
	left  uint32
	first bool
	orig  uint64
	again bool // answers a duplicate
	// snap holds the rest of a READ whose memory was about to be written.
	snap []byte
}

// rdRes remembers a READ or an atomic so that a duplicate can be answered
// (IBA 9.7.5.1.2, 9.7.5.1.4).
type rdRes struct {
	used   bool
	atomic bool
	first  ib.PSN
	npkts  uint32
	pd     *PD
	rkey   uint32
	va     uint64
	length uint32
	orig   uint64
}

// sizeResponder makes room to remember as many READs and atomics as the peer may have under way, keeping the newest
// that there are.
func (q *QP) sizeResponder() {
	n := int(q.attr.MaxDestRD)
	res := make([]rdRes, n)
	for i := 0; i < min(n, len(q.res)); i++ {
		res[n-1-i] = *q.newestRes(i)
	}
	q.res, q.resNext = res, 0
}

// newestRes is the i-th newest READ or atomic remembered. Searching from the
// newest on, a PSN that came around again finds its own entry.
func (q *QP) newestRes(i int) *rdRes {
	return &q.res[(q.resNext-1-i+2*len(q.res))%len(q.res)]
}

// pushResp queues a response and is nil when there is no room, which only a
// peer that breaks its own READ limit can bring about.
func (q *QP) pushResp(kind respKind, psn ib.PSN) *respItem {
	if q.respTail-q.respHead == uint32(len(q.resp)) && !q.growResp() {
		return nil
	}
	it := &q.resp[q.respTail&uint32(len(q.resp)-1)]
	*it = respItem{kind: kind, psn: psn, msn: q.msn}
	q.respTail++
	q.markReady()
	return it
}

// ack queues an acknowledgement; one that has not left yet is brought up to
// date instead, which is how acknowledgements coalesce.
func (q *QP) ack(psn ib.PSN) {
	if q.respTail != q.respHead {
		last := &q.resp[(q.respTail-1)&uint32(len(q.resp)-1)]
		if last.kind == respAck && last.syn.Type() == wire.SynAck {
			if !psn.Before(last.psn) {
				last.psn, last.msn = psn, q.msn
			}
			return
		}
	}
	if it := q.pushResp(respAck, psn); it != nil {
		it.syn = wire.SynAckNoCred
	}
}

// nak queues a refusal of the expected PSN.
func (q *QP) nak(syn wire.Syndrome) {
	if it := q.pushResp(respAck, q.ePSN); it != nil {
		it.syn = syn
	}
	q.nakSent = true
}

// emitResponse builds the oldest response packet.
func (q *QP) emitResponse(now ib.Time, p *wire.Packet, buf []byte) bool {
	it := &q.resp[q.respHead&uint32(len(q.resp)-1)]
	switch it.kind {
	case respAck:
		q.header(p, wire.OpAck, it.psn)
		q.h.Stats.AcksSent++
		p.AETH = wire.AETH{Syndrome: it.syn, MSN: it.msn}
		q.respHead++
	case respAtomic:
		q.header(p, wire.OpAtomicAck, it.psn)
		p.AETH = wire.AETH{Syndrome: wire.SynAckNoCred, MSN: it.msn}
		p.AtomicAck = it.orig
		q.respHead++
		q.rdQueued--
		q.readTurn()
	case respRead:
		n := q.cutRead(it, len(buf))
		var src []byte
		if it.snap != nil {
			src = it.snap[:n]
			it.snap = it.snap[n:]
		} else if n > 0 {
			// The key is checked for each packet: it may have been taken back.
			var r *region
			if r, src = q.remote(it.pd, it.rkey, it.va, n, AccessRemoteRead); r != nil && !r.fetch(src, false) {
				src = nil
			}
			if src == nil && it.again {
				// The key has gone since the READ was answered first. A copy that was late on its way is no reason to
				// end the connection; who asks again because it must is not answered.
				q.h.drop(DropDuplicate)
				q.respHead++
				q.rdQueued--
				return false
			}
			if src == nil {
				q.readRefused(now, it.psn)
				return false
			}
		}
		last := int(it.left) == n
		op := wire.OpReadResponseMiddle
		switch {
		case it.first && last:
			op = wire.OpReadResponseOnly
		case it.first:
			op = wire.OpReadResponseFirst
		case last:
			op = wire.OpReadResponseLast
		}
		q.header(p, op, it.psn)
		p.AETH = wire.AETH{Syndrome: wire.SynAckNoCred, MSN: it.msn}
		p.Payload = buf[:copy(buf, src)]
		if n > q.mtu {
			p.Count = uint16((n + q.mtu - 1) >> q.mtuShift)
		}
		it.psn = pastPSN(p)
		it.va += uint64(n)
		it.left -= uint32(n)
		it.first = false
		if last {
			it.snap = nil
			q.respHead++
			q.rdQueued--
			q.readTurn()
		}
	}
	return true
}

// readRefused ends the queue pair because the memory of a READ went away
// while it was being read.
func (q *QP) readRefused(now ib.Time, psn ib.PSN) {
	q.h.events.push(Event{Type: EventQPAccessErr, QP: q})
	q.respHead, q.respTail, q.rdQueued = 0, 0, 0
	q.ePSN = psn
	q.refuse(now, wire.NAKAccess)
}

// refuse answers with a NAK that ends the connection, and moves to ERR.
func (q *QP) refuse(now ib.Time, syn wire.Syndrome) {
	// The NAK must still leave, and before it the answers to what came before:
	// without them the peer would take it for a lost response. ERR clears the
	// queue, so that it is put back.
	head, tail, queued := q.respHead, q.respTail, q.rdQueued
	q.toError()
	if q.isRC() {
		q.h.countNAK(syn)
		if tail-head >= q.mostResp() {
			tail--
		}
		q.respHead, q.respTail, q.rdQueued = head, tail, queued
		q.pushResp(respAck, q.ePSN).syn = syn
	}
}

func (h *HCA) countNAK(syn wire.Syndrome) {
	switch syn {
	case wire.NAKInvReq:
		h.Stats.InvReqNAKsSent++
	case wire.NAKAccess:
		h.Stats.AccessNAKsSent++
	case wire.NAKOp:
		h.Stats.OpNAKsSent++
	}
}

// respond handles a request (IBA 9.7.4). The checks stand in the order of the
// standard; each either lets the packet go on or says how it ends.
func (q *QP) respond(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) {
	if q.typ == XRCSend {
		q.h.drop(DropService)
		return
	}
	v := q.checkRequest(now, p, info)
	switch v.end {
	case respGoOn:
		q.execute(now, p, info)
	case respDropped:
		q.h.drop(v.drop)
	case respNAKed:
		q.refuse(now, v.syn)
	}
}

// execute does what a request that passed every check asks for.
func (q *QP) execute(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) {
	switch info.Kind {
	case wire.KindSend:
		to := filled
		if q.tagged != nil && info.Is(wire.FlagStart) {
			to = q.fillTagged(p, info)
		} else {
			to = q.fillRecv(p.PayloadLen(), p.Payload, farOf(p))
		}
		switch to {
		case fillDenied:
			q.recvFault(now, WCLocProtErr)
			return
		case fillGone:
			q.lost(info)
			return
		}
		q.consume()
		if info.Has(wire.ExtIETH) && !q.invalidate(p.Imm) {
			q.h.events.push(Event{Type: EventQPAccessErr, QP: q})
			q.refuse(now, wire.NAKAccess)
			return
		}
	case wire.KindWrite:
		if n := p.PayloadLen(); n > 0 {
			r, mem := q.remote(q.curPD, q.writeKey, q.writeVA, n, AccessRemoteWrite)
			q.guardReads(mem)
			if far := farOf(p); far == nil {
				deposit(mem, p.Payload)
			} else if !far.CopyTo(mem, 0) {
				q.lost(info)
				return
			}
			if q.typ == RC && r.pager == nil {
				q.h.wroteBy, q.h.wroteTo = q.num, r
			}
			q.writeVA += uint64(n)
			q.writeRem -= uint32(n)
		}
		q.consume()
		if info.Is(wire.FlagEnd) {
			q.h.Stats.WritesRcvd++
		}
	case wire.KindReadRequest:
		q.startRead(p)
		return
	case wire.KindAtomic:
		q.doAtomic(p)
		return
	case wire.KindFlush, wire.KindAtomicWrite:
		q.doPlacement(p, info)
		return
	}
	q.ePSN = p.BTH.PSN.Add(1)
	if p.Count > 1 {
		q.ePSN = pastPSN(p)
	}
	q.nakSent = false
	if info.Is(wire.FlagEnd) {
		q.msn = (q.msn + 1) & 0xFFFFFF
		q.msgOp = msgNone
		if info.Is(wire.FlagRecv) {
			ok := false
			if q.tagged != nil && info.Kind == wire.KindSend {
				ok = q.finishTagged(p, info)
			} else {
				ok = q.finishRecv(now, p, info)
			}
			if !ok {
				return
			}
		}
	}
	// One that met congestion is acknowledged at once: its sender has to hear of it.
	if (p.BTH.AckReq || p.BTH.FECN && q.roce == nil) && q.typ != UC {
		upTo := q.ePSN.Add(-1)
		if plantFarAck && p.BTH.FECN {
			upTo = q.ePSN
		}
		q.ack(upTo)
	}
}

// lost undoes what the checks of a request did whose payload is gone: for the
// requester it is a packet that never came.
func (q *QP) lost(info *wire.OpcodeInfo) {
	q.h.drop(DropFar)
	if info.Is(wire.FlagStart) {
		q.msgOp = msgNone
	}
	if info.Is(wire.FlagStart) || info.Kind == wire.KindWrite {
		q.cur, q.fresh = nil, nil // a receive that was looked at for this packet
	}
}

// guardReads saves what a queued READ has yet to send before dst is written:
// a READ returns what was there when its turn came (IBA 9.5, table 79).
func (q *QP) guardReads(dst []byte) {
	if q.rdQueued == 0 || len(dst) == 0 {
		return
	}
	lo := uintptr(unsafe.Pointer(&dst[0]))
	hi := lo + uintptr(len(dst))
	for i := q.respHead; i != q.respTail; i++ {
		it := &q.resp[i&uint32(len(q.resp)-1)]
		if it.kind != respRead || it.snap != nil || it.left == 0 {
			continue
		}
		r, src := q.remote(it.pd, it.rkey, it.va, int(it.left), AccessRemoteRead)
		if src == nil {
			continue
		}
		a := uintptr(unsafe.Pointer(&src[0]))
		if a < hi && lo < a+uintptr(len(src)) && r.fetch(src, false) {
			it.snap = append([]byte(nil), src...)
		}
	}
}

// startRead queues the response to a new READ request.
func (q *QP) startRead(p *wire.Packet) {
	q.h.Stats.ReadsRcvd++
	n := p.RETH.DMALen
	npkts := max(1, (n+uint32(q.mtu)-1)/uint32(q.mtu))
	q.msn = (q.msn + 1) & 0xFFFFFF
	q.remember(rdRes{used: true, first: p.BTH.PSN, npkts: npkts, pd: q.curPD, rkey: p.RETH.RKey, va: p.RETH.VA,
		length: n})
	q.queueRead(p.BTH.PSN, q.curPD, p.RETH, false)
	q.ePSN = p.BTH.PSN.Add(int(npkts))
	q.nakSent = false
	q.msgOp = msgNone
}

func (q *QP) queueRead(psn ib.PSN, pd *PD, r wire.RETH, again bool) bool {
	it := q.pushResp(respRead, psn)
	if it == nil {
		return false
	}
	it.pd, it.rkey, it.va, it.left, it.first, it.again = pd, r.RKey, r.VA, r.DMALen, true, again
	q.rdQueued++
	return true
}

func (q *QP) remember(r rdRes) {
	if q.res == nil {
		q.sizeResponder()
	}
	q.res[q.resNext] = r
	q.resNext = (q.resNext + 1) % len(q.res)
}

// doAtomic performs a compare-and-swap or a fetch-and-add.
func (q *QP) doAtomic(p *wire.Packet) {
	q.h.Stats.AtomicsRcvd++
	orig := q.applyAtomic(&p.AtomicETH, p.BTH.Opcode.Op())
	q.msn = (q.msn + 1) & 0xFFFFFF
	q.remember(rdRes{used: true, atomic: true, first: p.BTH.PSN, npkts: 1, orig: orig})
	q.queueAtomic(p.BTH.PSN, orig, false)
	q.ePSN = p.BTH.PSN.Add(1)
	q.nakSent = false
}

// doPlacement does a FLUSH or an atomic write, and answers as if nothing had been READ (IBA 1.5, annex A19). What was
// written before is in memory that all processors see, so a FLUSH has nothing to do.
func (q *QP) doPlacement(p *wire.Packet, info *wire.OpcodeInfo) {
	if info.Kind == wire.KindAtomicWrite {
		_, mem := q.remote(q.curPD, p.RETH.RKey, p.RETH.VA, 8, AccessRemoteWrite)
		q.guardReads(mem)
		if far := farOf(p); far == nil {
			deposit(mem, p.Payload) // eight bytes are one store
		} else if !far.CopyTo(mem, 0) {
			q.lost(info)
			return
		}
	}
	q.msn = (q.msn + 1) & 0xFFFFFF
	q.remember(rdRes{used: true, first: p.BTH.PSN, npkts: 1, pd: q.curPD})
	q.queueRead(p.BTH.PSN, q.curPD, wire.RETH{}, false)
	q.ePSN = p.BTH.PSN.Add(1)
	q.nakSent = false
}

// applyAtomic changes memory as an atomic asks, and returns what was there.
func (q *QP) applyAtomic(a *wire.AtomicETH, op wire.Opcode) uint64 {
	_, mem := q.remote(q.curPD, a.RKey, a.VA, 8, AccessRemoteAtomic)
	q.guardReads(mem)
	orig := binary.LittleEndian.Uint64(mem)
	switch {
	case op == wire.OpFetchAdd:
		binary.LittleEndian.PutUint64(mem, orig+a.Swap)
	case orig == a.Compare:
		binary.LittleEndian.PutUint64(mem, a.Swap)
	}
	return orig
}

func (q *QP) queueAtomic(psn ib.PSN, orig uint64, again bool) {
	if it := q.pushResp(respAtomic, psn); it != nil {
		it.orig, it.again = orig, again
		q.rdQueued++
	}
}

// takeRecv makes the next receive request the current one; false if there is
// none. One of a shared queue has to be consumed before another packet is looked
// at, since others draw from it.
func (q *QP) takeRecv(srq *SRQ) bool {
	q.curDone = 0
	if srq == nil {
		q.cur, q.curCQ = q.rq.peek(), q.recvCQ
		return q.cur != nil
	}
	w := srq.rq.peek()
	if w == nil {
		return false
	}
	q.heldSGE = append(q.heldSGE[:0], srq.rq.list(w)...)
	q.held, q.cur, q.curCQ = *w, &q.held, q.recvCQ
	if srq.cq != nil {
		q.curCQ = srq.cq
	}
	if srq.xrcd != nil {
		q.heldOf = srq.num
	}
	q.fresh = srq
	return true
}

// consume takes the current receive out of the shared queue that it came from,
// once it is sure to be used.
func (q *QP) consume() {
	if q.fresh != nil {
		q.fresh.take()
		q.fresh = nil
	}
}

// filling is what came of writing to a receive's memory.
type filling uint8

const (
	filled     filling = iota
	fillDenied         // the memory cannot be written
	fillGone           // the data's owner is gone
)

// fillRecv appends n bytes to the current receive. That they fit was checked.
func (q *QP) fillRecv(n int, data []byte, far wire.Source) filling {
	off := q.curDone
	var pd *PD
	var list []SGE
	if q.cur == &q.held {
		pd, list = q.curPD, q.heldSGE
	} else {
		pd, list = q.pd, q.rq.list(q.cur)
	}
	done := 0
	for i := 0; i < len(list) && done < n; i++ {
		s := &list[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		r, mem := q.h.local(pd, s, AccessLocalWrite)
		if mem == nil {
			return fillDenied
		}
		c := min(len(mem)-int(off), n-done)
		dst := mem[off : int(off)+c]
		if !r.fetch(dst, true) {
			return fillDenied
		}
		q.guardReads(dst)
		if r.null {
			// Nothing is kept.
		} else if far == nil {
			deposit(dst, data[done:done+c])
		} else if !far.CopyTo(dst, done) {
			return fillGone
		}
		done += c
		off = 0
	}
	q.curDone += uint32(n)
	return filled
}

// finishRecv completes the current receive. False means that the completion
// queue has overflowed and the queue pair is no more.
func (q *QP) finishRecv(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) bool {
	c := q.curCQ.slot()
	if c == nil {
		q.cqBroken()
		q.flushSend()
		return false
	}
	c.WRID, c.QPN, c.Opcode, c.VendorErr = q.cur.wrID, q.num, WCRecv, q.heldOf
	c.ByteLen = q.curDone
	c.SrcQP, c.SLID, c.SL, c.Port = q.attr.DestQPN, p.LRH.SLID, p.LRH.SL, q.attr.Port
	if info.Kind == wire.KindWrite {
		c.Opcode, c.ByteLen = WCRecvRDMAWithImm, q.writeLen
	}
	if info.Has(wire.ExtImmDt) {
		c.Flags, c.ImmData = WCWithImm, p.Imm
	}
	if info.Has(wire.ExtIETH) {
		c.Flags, c.ImmData = WCWithInv, p.Imm
	}
	if q.cur != &q.held {
		q.rq.head++
	}
	q.cur = nil
	q.curCQ.commit(now, p.BTH.Solicited)
	return true
}

// recvFault ends the current receive with a local error; the peer gets a
// remote operational error (IBA 9.7.5.2.4, class A).
func (q *QP) recvFault(now ib.Time, s WCStatus) {
	q.consume()
	syn := wire.NAKOp
	if s == WCLocLenErr {
		syn = wire.NAKInvReq
	}
	if q.cur != nil {
		q.completeRecv(q.curCQ, q.cur.wrID, s)
		if q.cur != &q.held {
			q.rq.head++
		}
		q.cur = nil
	}
	q.refuse(now, syn)
}
