package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// ackEvery bounds how many packets go without asking for an acknowledgement,
// so that a long message does not wait for its end to make progress.
const ackEvery = 32

// canRequest reports whether the send queue may put a packet on the wire now.
func (q *QP) canRequest() bool {
	if q.sqCursor == q.sqNext || q.rnrUntil != 0 {
		return false
	}
	if s := q.selects(); s != nil && !q.mayGo(s) {
		return false
	}
	w := &q.sq[q.sqCursor&q.sqMask]
	switch q.state {
	case StateRTS:
	case StateSQD:
		if !w.started {
			return false
		}
	default:
		return false
	}
	if w.fault != WCSuccess {
		return false
	}
	if n := q.h.cfg.RoCE.Window; n > 0 && q.isRC() && q.cursorPSN(w).Sub(q.ackPSN) >= n {
		return false
	}
	if w.started {
		return true
	}
	if w.flags&SendFence != 0 && q.rdOut > 0 {
		return false
	}
	switch w.kind {
	case kindRead, kindAtomic, kindFlush, kindAtomicWrite:
		if q.rdOut >= int(q.attr.MaxRDAtomic) {
			// With none allowed at all the request can never go.
			return q.attr.MaxRDAtomic == 0
		}
	case kindLocal:
		// Keys that earlier requests use must last until those are done.
		return q.sqOldest == q.sqCursor
	}
	if q.isRC() && q.nextPSN != q.ackPSN {
		// Never let half the PSN space be outstanding (IBA 9.7.1).
		if q.nextPSN.Sub(q.ackPSN)+int(q.packets(w)) >= ib.PSNWindow {
			return false
		}
	}
	return true
}

// cursorPSN is that of the next packet, which is one of request w.
func (q *QP) cursorPSN(w *sendWQE) ib.PSN {
	if w.started {
		return w.first.Add(int(q.sqPkt))
	}
	return q.nextPSN
}

// packets is how many PSNs a request takes.
func (q *QP) packets(w *sendWQE) uint32 {
	if w.length == 0 || w.kind.isAnswered() && w.kind != kindRead {
		return 1
	}
	return (w.length + uint32(q.mtu) - 1) >> q.mtuShift
}

// start gives a request its PSNs and opens its memory.
func (q *QP) start(w *sendWQE) WCStatus {
	if w.kind.isAnswered() {
		if q.attr.MaxRDAtomic == 0 {
			return WCLocQPOpErr
		}
	}
	if len(w.inline) == 0 {
		if s := q.open(w); s != WCSuccess {
			return s
		}
	}
	if w.npkts = q.packets(w); w.npkts >= ib.PSNWindow {
		return WCLocLenErr // 2 GiB in packets of 256: no window holds it
	}
	w.first = q.nextPSN
	w.started = true
	q.nextPSN = q.nextPSN.Add(int(w.npkts))
	if w.kind.isAnswered() {
		q.rdOut++
	}
	return WCSuccess
}

// open resolves the scatter/gather list.
func (q *QP) open(w *sendWQE) WCStatus {
	need := Access(0)
	if w.kind.fetches() {
		need = AccessLocalWrite
	}
	for i := range w.segs {
		g := &w.segs[i]
		if g.sge.Length == 0 {
			g.reg, g.mem = nil, nil
			continue
		}
		if g.reg, g.mem = q.h.local(q.pd, &g.sge, need); g.reg == nil || !g.reg.fetch(g.mem, need != 0) {
			return WCLocProtErr
		}
	}
	return WCSuccess
}

// stillOpen reports whether the memory of a started request is still registered.
func (w *sendWQE) stillOpen() bool {
	for i := range w.segs {
		g := &w.segs[i]
		if g.reg != nil && (!g.reg.valid || g.reg.key != g.sge.LKey) {
			return false
		}
	}
	return true
}

// emitRequest builds the request packet at the cursor; noRef says that it must
// not refer to memory.
func (q *QP) emitRequest(now ib.Time, p *wire.Packet, buf []byte, noRef bool) bool {
	if !q.canRequest() {
		return false
	}
	w := &q.sq[q.sqCursor&q.sqMask]
	// What ends without a packet lets NextSend say what comes then.
	if !w.started {
		if w.kind == kindLocal {
			q.runLocal(now, w)
			return false
		}
		if s := q.start(w); s != WCSuccess {
			q.localFault(now, w, s)
			return false
		}
	}
	if q.sqPkt == 0 {
		q.seg, q.segOff = 0, 0
	}
	if q.isUD() {
		return q.emitDatagram(now, w, p, buf)
	}
	if len(w.inline) == 0 && !w.stillOpen() {
		q.localFault(now, w, WCLocProtErr)
		return false
	}
	switch w.kind {
	case kindSend, kindWrite:
		q.emitData(w, p, buf, noRef)
	case kindRead:
		q.emitRead(w, p)
	case kindAtomic:
		q.emitAtomic(w, p)
	case kindFlush, kindAtomicWrite:
		q.emitPlacement(w, p, buf)
	}
	q.afterSend(now, w, p)
	if s := q.selects(); s != nil {
		end := pastPSN(p)
		if w.kind == kindRead {
			end = w.first.Add(int(w.npkts))
		}
		q.repeated(s, end)
	}
	return true
}

// emitData builds a packet, or a bundle of them, of a SEND or an RDMA WRITE.
func (q *QP) emitData(w *sendWQE, p *wire.Packet, buf []byte, noRef bool) {
	n, ref, k := int(w.length)-int(q.sqPkt)*q.mtu, false, uint32(1)
	if n > q.mtu || q.h.cfg.ByRefMin > 0 && n >= q.h.cfg.ByRefMin {
		if n, ref = q.cut(w, n, len(buf), noRef); n > q.mtu {
			k = uint32(n+q.mtu-1) >> q.mtuShift
			p.Count = uint16(k)
		}
	}
	first, last := q.sqPkt == 0, q.sqPkt+k == w.npkts
	q.header(p, dataOpcode(w.op, first, last), w.first.Add(int(q.sqPkt)))
	p.Payload = q.gather(w, n, ref, buf)
	if first && w.kind == kindWrite {
		p.RETH = wire.RETH{VA: w.va, RKey: w.rkey, DMALen: w.length}
	}
	p.Imm = w.imm
	p.XRCSRQ = w.srqn
	if last {
		p.BTH.Solicited = w.flags&SendSolicited != 0
		behind := q.sqCursor + 1
		if w.flags&SendSignaled != 0 || q.sigAll || behind == q.sqNext || q.sq[behind&q.sqMask].kind == kindLocal ||
			q.state == StateSQD {
			p.BTH.AckReq = true
		}
	}
	q.sqPkt += k
	if last {
		q.sqCursor++
		q.sqPkt = 0
	}
}

// dataOpcode picks the operation by the packet's place in its message.
func dataOpcode(op WROpcode, first, last bool) wire.Opcode {
	o := wire.OpSendFirst
	if op == WRRDMAWrite || op == WRRDMAWriteImm {
		o = wire.OpWriteFirst
	}
	switch {
	case first && !last:
		return o
	case !first && !last:
		return o + (wire.OpSendMiddle - wire.OpSendFirst)
	case op == WRSendInv && first:
		return wire.OpSendOnlyInv
	case op == WRSendInv:
		return wire.OpSendLastInv
	}
	o += wire.OpSendLast - wire.OpSendFirst
	if first {
		o += wire.OpSendOnly - wire.OpSendLast
	}
	if op == WRSendImm || op == WRRDMAWriteImm {
		o++
	}
	return o
}

// gather is the next n bytes of a request's data: a reference to where they lie
// if ref is set, else a copy in buf, because the memory is the program's again
// once the request completes.
func (q *QP) gather(w *sendWQE, n int, ref bool, buf []byte) []byte {
	if n == 0 {
		return nil
	}
	if len(w.inline) > 0 {
		off := int(q.sqPkt) * q.mtu
		return buf[:copy(buf, w.inline[off:off+n])]
	}
	for q.seg < len(w.segs) && int(q.segOff) == len(w.segs[q.seg].mem) {
		q.seg++
		q.segOff = 0
	}
	piece := w.segs[q.seg].mem[q.segOff:]
	if len(piece) >= n {
		q.segOff += uint32(n)
		if ref {
			return piece[:n:n]
		}
		return buf[:copy(buf, piece[:n])]
	}
	got := 0
	for got < n {
		c := copy(buf[got:n], w.segs[q.seg].mem[q.segOff:])
		got += c
		q.segOff += uint32(c)
		if int(q.segOff) == len(w.segs[q.seg].mem) && got < n {
			q.seg++
			q.segOff = 0
		}
	}
	return buf[:n]
}

func (q *QP) emitRead(w *sendWQE, p *wire.Packet) {
	q.header(p, wire.OpReadRequest, w.first.Add(int(w.got)))
	done := w.got * uint32(q.mtu)
	p.RETH = wire.RETH{VA: w.va + uint64(done), RKey: w.rkey, DMALen: w.length - done}
	p.XRCSRQ = w.srqn
	p.BTH.AckReq = true
	q.sqCursor++
	q.sqPkt = 0
	q.readTurn()
}

// readTurn ends the turn of a queue pair that has sent a READ or an atomic, or the answer to one, where that is wanted.
func (q *QP) readTurn() {
	if q.h.cfg.ReadTurns {
		q.burst = burstMax
	}
}

func (q *QP) emitAtomic(w *sendWQE, p *wire.Packet) {
	op := wire.OpCmpSwap
	p.AtomicETH = wire.AtomicETH{VA: w.va, RKey: w.rkey, Swap: w.swap, Compare: w.compAdd}
	if w.op == WRAtomicFetchAdd {
		op = wire.OpFetchAdd
		p.AtomicETH.Swap, p.AtomicETH.Compare = w.compAdd, 0
	}
	q.header(p, op, w.first)
	p.XRCSRQ = w.srqn
	p.BTH.AckReq = true
	q.sqCursor++
	q.sqPkt = 0
	q.readTurn()
}

// emitPlacement builds a FLUSH or an atomic write (IBA 1.5, annex A19).
func (q *QP) emitPlacement(w *sendWQE, p *wire.Packet, buf []byte) {
	if w.kind == kindAtomicWrite {
		q.header(p, wire.OpAtomicWrite, w.first)
		p.Payload = q.gather(w, int(w.length), false, buf)
	} else {
		q.header(p, wire.OpFlush, w.first)
		p.SetFETH(wire.FETH{Type: uint8(w.swap), Level: uint8(w.compAdd)})
	}
	p.RETH = wire.RETH{VA: w.va, RKey: w.rkey, DMALen: w.length}
	p.XRCSRQ = w.srqn
	p.BTH.AckReq = true
	q.sqCursor++
	q.sqPkt = 0
	q.readTurn()
}

// afterSend keeps the window, and the timer of a reliable queue pair.
func (q *QP) afterSend(now ib.Time, w *sendWQE, p *wire.Packet) {
	psn := p.BTH.PSN
	k := p.Packets()
	end := psn.Add(k)
	if w.kind == kindRead {
		end = w.first.Add(int(w.npkts))
	}
	if psn.Before(q.sentPSN) {
		q.h.Stats.Retransmits += uint64(min(k, q.sentPSN.Sub(psn)))
		p.BTH.AckReq = p.BTH.AckReq || p.BTH.Opcode.Info().Is(wire.FlagEnd)
	}
	if end.After(q.sentPSN) {
		q.sentPSN = end
	}
	if q.typ == UC {
		q.ackPSN = q.sentPSN
		if q.sqPkt == 0 { // that was the last packet of the message
			q.completeSend(w, WCSuccess)
			q.sqOldest++
			q.show()
			q.checkDrained()
		}
		p.BTH.AckReq = false
		return
	}
	q.sinceAck += k
	if q.sinceAck >= ackEvery ||
		q.roce != nil && (q.h.cfg.RoCE.Selective.On || q.sinceAck >= q.h.cfg.RoCE.ackWithin()) {
		p.BTH.AckReq = true
	}
	if p.BTH.AckReq {
		q.sinceAck = 0
	}
	if q.ackDue == ib.Never {
		q.startAckTimer(now)
	}
}

// patience is how many of its timeouts a queue pair waits, of the four that the standard allows (IBA 9.7.6.1.3): one
// until something was lost, so that this is soon found, and then more, since at the other end of a network may be
// software that stands still for a while.
func (q *QP) patience() ib.Time { return 1 << min(q.attr.RetryCnt-q.retry, 2) }

// startAckTimer begins the local ACK timeout anew. The standard allows up to
// four times the interval; this is the interval itself.
func (q *QP) startAckTimer(now ib.Time) {
	d := ib.AckTimeout(q.attr.Timeout)
	if s := q.selects(); s != nil {
		d, s.since = q.selectiveWait(), now
	}
	if d == ib.Never {
		q.ackDue = ib.Never
		return
	}
	if q.h.cfg.RoCE.ByGID {
		d *= q.patience()
	}
	q.ackDue, q.h.timed = now+d, now
	q.armTimer(q.ackDue)
}

// runLocal performs a bind or a local invalidate: it is the oldest request.
func (q *QP) runLocal(now ib.Time, w *sendWQE) {
	ok := false
	status := WCMWBindErr
	switch w.op {
	case WRBindMW:
		ok = q.bind(w.bind)
	case WRLocalInv:
		ok = q.invalidate(w.imm)
		status = WCLocQPOpErr
	}
	if !ok {
		q.localFault(now, w, status)
		return
	}
	w.started, w.done = true, true
	q.sqCursor++
	q.sqPkt = 0
	q.retire(now)
}

// localFault remembers that the request at the cursor cannot be sent. It is
// reported when those before it are done, so that completions keep their order.
func (q *QP) localFault(now ib.Time, w *sendWQE, s WCStatus) {
	w.fault = s
	q.askAck()
	q.retire(now)
}

// askAck sends the last packet again if nothing has asked for its
// acknowledgement and nothing that follows will.
func (q *QP) askAck() {
	if q.sqCursor != q.sqNext {
		// What is being sent again asks for itself, and must not be skipped.
		if w := &q.sq[q.sqCursor&q.sqMask]; w.started && w.fault == WCSuccess {
			return
		}
	}
	if q.isRC() && q.sinceAck > 0 && q.sqPkt == 0 && q.ackPSN != q.sentPSN {
		q.rewind(q.sentPSN.Add(-1))
	}
}

// rewind moves the cursor back to the request that holds psn: everything from
// there on is sent again.
func (q *QP) rewind(psn ib.PSN) {
	if s := q.selects(); s != nil {
		q.recover(s, psn)
		return
	}
	for i := q.sqOldest; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started {
			break
		}
		if w.done || w.kind == kindLocal || psn.After(w.last()) {
			continue
		}
		q.seek(i, psn)
		break
	}
	q.markReady()
}

// seek puts the cursor on packet psn of request i.
func (q *QP) seek(i uint32, psn ib.PSN) {
	w := &q.sq[i&q.sqMask]
	q.sqCursor, q.sqPkt = i, 0
	if w.kind != kindSend && w.kind != kindWrite {
		return
	}
	if d := psn.Sub(w.first); d > 0 {
		q.sqPkt = uint32(d)
	}
	// Walk the list to the byte where that packet begins.
	off := uint32(q.sqPkt) * uint32(q.mtu)
	q.seg, q.segOff = 0, 0
	for q.seg < len(w.segs) && off > uint32(len(w.segs[q.seg].mem)) {
		off -= uint32(len(w.segs[q.seg].mem))
		q.seg++
	}
	q.segOff = off
}
