package hca

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/wire"
)

// complete handles what a responder sent back (IBA 9.7.5, 9.7.6).
func (q *QP) complete(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) {
	h := q.h
	if q.typ != RC && q.typ != XRCSend || q.state != StateRTS && q.state != StateSQD {
		h.drop(DropState)
		return
	}
	psn := p.BTH.PSN
	if p.Count > 1 && info.Kind != wire.KindReadResponse {
		h.drop(DropLength)
		return
	}
	if lastPSN(p).Before(q.ackPSN) || !psn.Before(q.sentPSN) {
		h.drop(DropStaleAck)
		return
	}
	s := q.selects()
	switch info.Kind {
	case wire.KindAck:
		if s != nil && p.AETH.Syndrome == wire.NAKSeq {
			q.handleSelective(now, s, psn, ib.PSN(p.AETH.MSN))
			return
		}
		q.handleAck(now, psn, p.AETH.Syndrome)
	case wire.KindReadResponse, wire.KindAtomicAck:
		q.handleResponse(now, p, info)
	default:
		h.drop(DropOpcode)
	}
	if s != nil {
		q.aim(s)
	}
}

// handleAck handles an acknowledgement without data.
func (q *QP) handleAck(now ib.Time, psn ib.PSN, syn wire.Syndrome) {
	switch syn.Type() {
	case wire.SynAck:
		if q.ackTo(now, psn) {
			q.progress(now)
		}
	case wire.SynRNR:
		if !q.ackTo(now, psn.Add(-1)) {
			return
		}
		q.h.Stats.RNRNAKs++
		if q.rnrUntil != 0 {
			return // the same refusal once more: the wait has begun
		}
		if q.rnrRetry == 0 {
			q.failAt(now, psn, WCRNRRetryExcErr)
			return
		}
		if q.rnrRetry != 7 { // seven means for ever (IBA 9.7.5.2.8)
			q.rnrRetry--
		}
		q.retry = q.attr.RetryCnt
		q.ackDue = ib.Never
		q.rnrUntil, q.h.timed = now+ib.RNRDelay(syn.Value()), now
		q.rewind(psn)
		q.armTimer(q.rnrUntil)
	case wire.SynNAK:
		if !q.ackTo(now, psn.Add(-1)) {
			return
		}
		switch syn {
		case wire.NAKSeq:
			q.h.Stats.SeqNAKsRcvd++
			q.tryAgain(now, psn)
		case wire.NAKInvReq:
			q.failAt(now, psn, WCRemInvReqErr)
		case wire.NAKAccess:
			q.failAt(now, psn, WCRemAccessErr)
		case wire.NAKOp:
			q.failAt(now, psn, WCRemOpErr)
		default:
			q.failAt(now, psn, WCBadRespErr)
		}
	default:
		q.h.drop(DropStaleAck)
	}
}

// ackTo takes everything up to psn as acknowledged. It is false when a READ or
// an atomic before psn has had no answer: the answer was lost, and the
// request is sent again (IBA 9.7.5.1.1).
func (q *QP) ackTo(now ib.Time, psn ib.PSN) bool {
	if psn.Before(q.ackPSN) {
		return true // nothing new, as when the very oldest packet is refused
	}
	for i := q.sqOldest; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started || w.first.After(psn) {
			break
		}
		if w.kind.isAnswered() && !w.done {
			missing := w.first.Add(int(w.got))
			if missing.After(psn) {
				break
			}
			if missing.After(q.ackPSN) {
				q.advance(missing)
			}
			q.retire(now)
			q.lostResponse(now, missing)
			return false
		}
	}
	q.advance(psn.Add(1))
	q.rewound = false
	q.catchUp()
	q.retire(now)
	return true
}

// advance moves the window's lower edge. Whatever brought the news, an ACK or
// a NAK of what follows, the peer is alive: the tries begin anew (IBA 9.7.5.2.8).
func (q *QP) advance(psn ib.PSN) {
	q.ackPSN = psn
	q.retry, q.rnrRetry = q.attr.RetryCnt, q.attr.RNRRetry
	if q.h.cfg.RoCE.Window > 0 && q.sqCursor != q.sqNext {
		q.markReady() // the window may have held it back
	}
}

// lostResponse asks again for a response that was skipped, once per gap.
func (q *QP) lostResponse(now ib.Time, psn ib.PSN) {
	if q.rewound {
		return
	}
	q.rewound = true
	q.h.Stats.ImpliedNAKs++
	q.tryAgain(now, psn)
}

// catchUp moves a cursor that was rewound past what has been acknowledged since.
func (q *QP) catchUp() {
	for q.sqCursor != q.sqNext {
		w := &q.sq[q.sqCursor&q.sqMask]
		if !w.started {
			return
		}
		if w.done || w.kind == kindLocal || (w.kind == kindSend || w.kind == kindWrite) && w.last().Before(q.ackPSN) {
			q.sqCursor++
			q.sqPkt = 0
			continue
		}
		if (w.kind == kindSend || w.kind == kindWrite) && w.first.Add(int(q.sqPkt)).Before(q.ackPSN) {
			q.seek(q.sqCursor, q.ackPSN)
		}
		if q.sqPkt == 0 {
			q.seg, q.segOff = 0, 0
		}
		return
	}
}

// handleResponse takes the data of a READ or the old value of an atomic, or that a FLUSH or an atomic write was done.
func (q *QP) handleResponse(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) {
	psn := p.BTH.PSN
	// The oldest request that waits for data is the only one whose turn it is.
	i := q.sqOldest
	for ; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started {
			q.h.drop(DropStaleAck)
			return
		}
		if !w.done && w.kind.isAnswered() {
			break
		}
	}
	if i == q.sqNext {
		q.h.drop(DropStaleAck)
		return
	}
	w := &q.sq[i&q.sqMask]
	want := w.first.Add(int(w.got))
	if lastPSN(p).Before(want) {
		q.h.drop(DropStaleAck)
		return
	}
	if psn != want { // or a bundle that is neither old nor new as a whole
		q.h.drop(DropOutOfOrder)
		if q.ackTo(now, want.Add(-1)) {
			q.lostResponse(now, want)
		}
		return
	}
	status := q.judgeResponse(w, p, info)
	if status == WCSuccess && !q.takeResponse(w, p) {
		q.h.drop(DropFar)
		return
	}
	// Everything before it was executed, or this would not have been sent.
	if want == w.first && !q.ackTo(now, psn.Add(-1)) {
		return
	}
	if status != WCSuccess {
		q.failAt(now, psn, status)
		return
	}
	w.got += uint32(p.Packets())
	q.ackPSN = pastPSN(p)
	q.rewound = false
	if w.got == w.npkts {
		w.done = true
		q.rdOut--
		q.catchUp()
		q.retire(now)
		q.markReady() // a fence or the READ limit may have held others back
	}
	q.progress(now)
}

// judgeResponse says how a request ends to which p is the response that is due,
// or WCSuccess if p is right.
func (q *QP) judgeResponse(w *sendWQE, p *wire.Packet, info *wire.OpcodeInfo) WCStatus {
	switch {
	case info.Has(wire.ExtAETH) && p.AETH.Syndrome.Type() != wire.SynAck:
		return WCBadRespErr
	case !w.stillOpen():
		return WCLocProtErr
	case w.kind == kindAtomic && info.Kind != wire.KindAtomicAck:
		return WCBadRespErr
	case w.kind != kindAtomic && !q.goodReadResponse(w, p, info):
		return WCBadRespErr
	}
	return WCSuccess
}

// takeResponse puts what a response brings into the request's memory; false if
// it is gone.
func (q *QP) takeResponse(w *sendWQE, p *wire.Packet) bool {
	if !w.kind.fetches() {
		return true
	}
	if w.kind == kindRead {
		return scatter(w.segs, uint64(w.got)*uint64(q.mtu), p.PayloadLen(), p.Payload, farOf(p))
	}
	var v [8]byte
	// The value is an integer to both ends: native order in memory, as the adapters of little-endian hosts have it.
	binary.LittleEndian.PutUint64(v[:], p.AtomicAck)
	return scatter(w.segs, 0, len(v), v[:], nil)
}

// goodReadResponse checks that a response packet is the one that its place
// in the message calls for (IBA 9.7.5.2).
func (q *QP) goodReadResponse(w *sendWQE, p *wire.Packet, info *wire.OpcodeInfo) bool {
	if info.Kind != wire.KindReadResponse {
		return false
	}
	left := 0
	if w.kind == kindRead { // others are answered by an empty one
		left = int(w.length) - int(w.got)*q.mtu
	}
	k := p.Packets()
	isLast := w.got+uint32(k) == w.npkts
	if isLast != info.Is(wire.FlagEnd) {
		return false
	}
	if isLast {
		return p.PayloadLen() == left
	}
	n := k << q.mtuShift
	return p.PayloadLen() == n && n < left
}

// scatter puts n bytes into the segments' memory, from offset off on; false if
// they are gone.
func scatter(segs []segment, off uint64, n int, data []byte, far wire.Source) bool {
	done := 0
	for i := 0; i < len(segs) && done < n; i++ {
		m := segs[i].mem
		if off >= uint64(len(m)) {
			off -= uint64(len(m))
			continue
		}
		c := min(len(m)-int(off), n-done)
		dst := m[off : int(off)+c]
		if segs[i].reg.null {
			// Nothing is kept.
		} else if far == nil {
			deposit(dst, data[done:done+c])
		} else if !far.CopyTo(dst, done) {
			return false
		}
		done += c
		off = 0
	}
	return true
}

// progress resets what counts failures, and the timer.
func (q *QP) progress(now ib.Time) {
	if q.state != StateRTS && q.state != StateSQD {
		return
	}
	q.retry, q.rnrRetry = q.attr.RetryCnt, q.attr.RNRRetry
	if q.ackPSN == q.sentPSN {
		q.ackDue = ib.Never
	} else {
		q.startAckTimer(now)
	}
	if q.sqCursor != q.sqNext {
		q.markReady()
	}
}

// retire completes requests from the oldest on, as far as they are done.
func (q *QP) retire(now ib.Time) {
	q.retireDone(now)
	q.show()
}

func (q *QP) retireDone(now ib.Time) {
	for q.sqOldest != q.sqNext {
		w := &q.sq[q.sqOldest&q.sqMask]
		if w.fault != WCSuccess {
			q.failOldest(now, w.fault)
			return
		}
		if !w.started {
			break
		}
		switch w.kind {
		case kindSend, kindWrite:
			if !w.last().Before(q.ackPSN) {
				q.checkDrained()
				return
			}
		default:
			if !w.done {
				return
			}
		}
		q.completeSend(w, WCSuccess)
		if q.state == StateErr { // the completion queue broke
			return
		}
		if q.sqCursor == q.sqOldest {
			q.sqCursor++
			q.sqPkt = 0
		}
		q.sqOldest++
	}
	q.checkDrained()
}

// failAt ends the request that holds psn with an error.
func (q *QP) failAt(now ib.Time, psn ib.PSN, s WCStatus) {
	for q.sqOldest != q.sqNext {
		w := &q.sq[q.sqOldest&q.sqMask]
		if !w.started || w.kind == kindLocal || !psn.After(w.last()) {
			break
		}
		q.completeSend(w, WCWRFlushErr)
		q.sqOldest++
	}
	if q.sqOldest == q.sqNext {
		q.toError()
		return
	}
	q.failOldest(now, s)
}

// failOldest completes the oldest request with s; the rest is flushed. A
// datagram or UC queue pair loses only its send queue (IBA 10.3.1.6).
func (q *QP) failOldest(now ib.Time, s WCStatus) {
	w := &q.sq[q.sqOldest&q.sqMask]
	q.giveUp()
	q.completeSend(w, s)
	q.sqOldest++
	q.show()
	if q.state == StateErr {
		return
	}
	if q.isRC() {
		q.toError()
		return
	}
	if q.state == StateRTS || q.state == StateSQD {
		q.transition(StateSQE)
	}
	q.flushSend()
}

// tryAgain sends from psn on again, if tries are left.
func (q *QP) tryAgain(now ib.Time, psn ib.PSN) {
	if q.retry == 0 && !q.h.cfg.RoCE.Endless {
		if q.attr.PathMigState == Armed {
			q.migrate()
			q.rewind(psn)
			q.startAckTimer(now)
			return
		}
		q.failAt(now, psn, WCRetryExcErr)
		return
	}
	if q.retry > 0 {
		q.retry--
	}
	if plantRewind {
		psn = psn.Add(1)
	}
	q.rewind(psn)
	q.startAckTimer(now)
}

// ackTimeout is the local ACK timeout.
func (q *QP) ackTimeout(now ib.Time) {
	q.ackDue = ib.Never
	if q.ackPSN == q.sentPSN || q.sqOldest == q.sqNext {
		return
	}
	if q.parked || q.paced || q.onReady && q.sqCursor == q.sqOldest && q.sqPkt == 0 {
		// What timed out has not even left: there is no room on the link.
		q.startAckTimer(now)
		return
	}
	if q.isEarlyTimeout(now) {
		return
	}
	q.h.Stats.Timeouts++
	q.expired++
	q.rewound = false
	q.tryAgain(now, q.ackPSN)
}

// checkDrained raises SQ_DRAINED once everything that was started is done.
func (q *QP) checkDrained() {
	if q.state != StateSQD || q.drained {
		return
	}
	if q.sqOldest != q.sqNext && q.sq[q.sqOldest&q.sqMask].started {
		return
	}
	q.drained = true
	if q.draining {
		q.h.events.push(Event{Type: EventSQDrained, QP: q})
	}
}
