package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// respEnd says what a check made of a request.
type respEnd uint8

const (
	respGoOn    respEnd = iota // the next check
	respDropped                // silently dropped
	respNAKed                  // refused for good: NAK, and the queue pair fails
	respDone                   // answered already
)

// verdict is a check's answer.
type verdict struct {
	end  respEnd
	drop Drop
	syn  wire.Syndrome
}

var (
	goOn = verdict{}
	done = verdict{end: respDone}
)

func dropped(d Drop) verdict          { return verdict{end: respDropped, drop: d} }
func refused(s wire.Syndrome) verdict { return verdict{end: respNAKed, syn: s} }

// checkRequest runs the responder's checks in the order of IBA 9.7.4: sequence,
// operation sequence, operation, length, R_Key, resources. The first one that
// does not let the packet go on decides.
func (q *QP) checkRequest(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	if v := q.checkPSN(now, p, info); v.end != respGoOn {
		return v
	}
	if v := q.checkOpSequence(now, p, info); v.end != respGoOn {
		return v
	}
	if v := q.checkOperation(now, p, info); v.end != respGoOn {
		return v
	}
	if v := q.checkLength(now, p, info); v.end != respGoOn {
		return v
	}
	if v := q.checkRKey(now, p, info); v.end != respGoOn {
		return v
	}
	return q.checkResources(now, p, info)
}

// checkPSN sorts a request into expected, duplicate and out of sequence
// (IBA 9.7.4.1.1). UC has no duplicates: a gap ends the message (9.8.2.2).
func (q *QP) checkPSN(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	d := p.BTH.PSN.Sub(q.ePSN)
	if q.typ == UC {
		if d != 0 {
			// Resynchronise at whatever starts a message.
			q.ucBreak()
			q.ePSN = p.BTH.PSN
			if !info.Is(wire.FlagStart) {
				q.ePSN = pastPSN(p)
				return dropped(DropOutOfOrder)
			}
		}
		return goOn
	}
	switch {
	case d == 0:
		return goOn
	case d > 0 && plantEager && q.h.cfg.Reorder > 0:
		q.ePSN = p.BTH.PSN
		return goOn
	case d > 0 && q.selects() != nil:
		kept := q.hold(now, &q.earlyMade().requests, q.ePSN, p)
		q.h.Stats.OutOfSequence++
		q.nakSelective(p, kept)
		if kept {
			return done
		}
		return dropped(DropOutOfOrder)
	case d > 0:
		if q.h.cfg.Reorder > 0 && q.hold(now, &q.earlyMade().requests, q.ePSN, p) {
			return done
		}
		q.h.Stats.OutOfSequence++
		if !q.nakSent {
			q.h.Stats.SeqNAKsSent++
			q.nak(wire.NAKSeq)
		}
		return dropped(DropOutOfOrder)
	}
	if p.Count > 1 && pastPSN(p).After(q.ePSN) && (info.Kind == wire.KindSend || info.Kind == wire.KindWrite) {
		// A bundle that begins with what has been executed and goes on with what
		// has not is not taken apart. Nothing else may tell the requester where
		// to go on, so it is told each time.
		q.h.Stats.SeqNAKsSent++
		q.nak(wire.NAKSeq)
		return dropped(DropDuplicate)
	}
	return q.duplicate(p, info)
}

// ucBreak gives up the message in progress; its receive is used again.
func (q *QP) ucBreak() {
	if q.msgOp != msgNone {
		if q.cur == &q.held {
			q.completeRecv(q.curCQ, q.held.wrID, WCWRFlushErr)
		}
		q.cur, q.msgOp = nil, msgNone
	}
}

// duplicate answers a request that was executed before (IBA 9.7.5.1).
func (q *QP) duplicate(p *wire.Packet, info *wire.OpcodeInfo) verdict {
	psn := p.BTH.PSN
	switch info.Kind {
	case wire.KindReadRequest:
		for i := range q.res {
			r := q.newestRes(i)
			if !r.used || r.atomic || psn.Before(r.first) || !psn.Before(r.first.Add(int(r.npkts))) {
				continue
			}
			// It may ask for the rest only, never for other memory.
			off := uint64(psn.Sub(r.first)) * uint64(q.mtu)
			if p.RETH.RKey != r.rkey || p.RETH.VA != r.va+off || uint64(p.RETH.DMALen)+off != uint64(r.length) {
				return dropped(DropDuplicate)
			}
			if q.replaying(psn) || !q.queueRead(psn, r.pd, p.RETH, true) {
				return dropped(DropDuplicate)
			}
			q.h.Stats.Duplicates++
			return done
		}
		return dropped(DropDuplicate)
	case wire.KindFlush, wire.KindAtomicWrite:
		for i := range q.res {
			if r := q.newestRes(i); r.used && !r.atomic && r.first == psn && r.length == 0 {
				if q.replaying(psn) || !q.queueRead(psn, r.pd, wire.RETH{}, true) {
					return dropped(DropDuplicate)
				}
				q.h.Stats.Duplicates++
				return done
			}
		}
		return dropped(DropDuplicate)
	case wire.KindAtomic:
		for i := range q.res {
			r := q.newestRes(i)
			if r.used && r.atomic && r.first == psn {
				if q.replaying(psn) {
					return dropped(DropDuplicate)
				}
				if plantReplay {
					r.orig = q.applyAtomic(&p.AtomicETH, p.BTH.Opcode.Op())
				}
				q.queueAtomic(psn, r.orig, true)
				q.h.Stats.Duplicates++
				return done
			}
		}
		return dropped(DropDuplicate)
	}
	// A SEND or a WRITE is not executed again: the latest acknowledgement
	// tells the requester how far everything has come. It must not reach past a
	// READ behind the duplicate, whose answer would then look lost.
	q.h.Stats.Duplicates++
	if p.BTH.AckReq {
		upTo := q.ePSN.Add(-1)
		if len(q.res) > 0 && q.newestRes(0).used && q.newestRes(0).first.After(psn) {
			upTo = lastPSN(p)
		}
		q.ack(upTo)
	}
	return done
}

// replaying reports whether a response for psn is queued already, so that a
// flood of duplicates does not grow the queue.
func (q *QP) replaying(psn ib.PSN) bool {
	for i := q.respHead; i != q.respTail; i++ {
		it := &q.resp[i&uint32(len(q.resp)-1)]
		if it.kind == respAtomic && it.psn == psn {
			return true
		}
		if it.kind == respRead && !psn.Before(it.psn) &&
			psn.Before(it.psn.Add(int(max(1, (it.left+uint32(q.mtu)-1)/uint32(q.mtu))))) {
			return true
		}
	}
	return false
}

// firstAnswers counts the queued answers to READs and atomics that are not
// repetitions.
func (q *QP) firstAnswers() int {
	n := 0
	for i := q.respHead; i != q.respTail; i++ {
		if it := &q.resp[i&uint32(len(q.resp)-1)]; it.kind != respAck && !it.again {
			n++
		}
	}
	return n
}

// checkOpSequence makes sure that first, middle and last packets follow each
// other within one message (IBA 9.7.4.1.2).
func (q *QP) checkOpSequence(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	ok := false
	switch {
	case info.Is(wire.FlagStart):
		ok = q.msgOp == msgNone
	case info.Kind == wire.KindSend:
		ok = q.msgOp == msgSend
	case info.Kind == wire.KindWrite:
		ok = q.msgOp == msgWrite
	}
	if ok {
		return goOn
	}
	if q.typ != UC {
		return q.fail(p, DropOpcode, wire.NAKInvReq)
	}
	starts := info.Is(wire.FlagStart)
	q.ucBreak()
	if starts {
		return goOn
	}
	q.ePSN = pastPSN(p)
	return dropped(DropUCBroken)
}

// fail drops a UC message (IBA 9.8.2) and refuses an RC request.
func (q *QP) fail(p *wire.Packet, d Drop, syn wire.Syndrome) verdict {
	if q.typ != UC {
		if syn == wire.NAKAccess {
			q.h.events.push(Event{Type: EventQPAccessErr, QP: q})
		} else {
			q.h.events.push(Event{Type: EventQPReqErr, QP: q})
		}
		return refused(syn)
	}
	q.ucBreak()
	q.ePSN = pastPSN(p)
	return dropped(d)
}

// checkOperation makes sure that the queue pair lets its peer do this
// (IBA 9.7.4.1.3).
func (q *QP) checkOperation(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	need := Access(0)
	switch info.Kind {
	case wire.KindSend:
	case wire.KindWrite:
		need = AccessRemoteWrite
	case wire.KindReadRequest:
		need = AccessRemoteRead
	case wire.KindFlush:
		if need = flushRights(p); need == 0 || p.FETH().Level > wire.FlushRegion {
			return q.fail(p, DropAccess, wire.NAKInvReq)
		}
	case wire.KindAtomicWrite:
		need = AccessRemoteWrite
		if p.RETH.VA&7 != 0 {
			return q.fail(p, DropAccess, wire.NAKInvReq)
		}
	case wire.KindAtomic:
		need = AccessRemoteAtomic
		if p.AtomicETH.VA&7 != 0 {
			return q.fail(p, DropAccess, wire.NAKInvReq)
		}
	default:
		return q.fail(p, DropOpcode, wire.NAKInvReq)
	}
	if q.attr.Access&need != need {
		return q.fail(p, DropAccess, wire.NAKInvReq)
	}
	return goOn
}

// checkLength checks the payload against the packet's place in its message
// (IBA 9.7.4.1.6) and against what the message said of its length.
func (q *QP) checkLength(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	n := p.PayloadLen()
	bad := false
	switch {
	case !info.Is(wire.FlagPayload):
		bad = n != 0 || p.Count > 1
	case p.Count > 1:
		bad = !q.goodBundle(p, info)
	case info.Is(wire.FlagStart | wire.FlagEnd):
		bad = n > q.mtu
	case info.Is(wire.FlagEnd):
		bad = n == 0 || n > q.mtu
	default:
		bad = n != q.mtu
	}
	if info.Kind == wire.KindAtomicWrite {
		bad = bad || n != 8 || p.RETH.DMALen != 8
	}
	if !bad && info.Kind == wire.KindWrite {
		rem := q.writeRem
		if info.Is(wire.FlagStart) {
			rem = p.RETH.DMALen
		}
		bad = uint32(n) > rem || info.Is(wire.FlagEnd) != (uint32(n) == rem)
	}
	if !bad && (info.Kind == wire.KindWrite || info.Kind == wire.KindReadRequest) && info.Has(wire.ExtRETH) {
		bad = p.RETH.DMALen > q.h.cfg.Limits.MaxMsgSize || int(p.RETH.DMALen) > (ib.PSNWindow-1)*q.mtu
	}
	if bad {
		return q.fail(p, DropLength, wire.NAKInvReq)
	}
	return goOn
}

// checkRKey makes sure that the peer may touch the memory it names
// (IBA 9.7.4.1.5). Nothing is touched by a length of zero, so nothing is
// checked either (C9-88).
func (q *QP) checkRKey(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	q.curPD = q.pd
	if q.typ == XRCRecv {
		srq := q.xrcSRQ(p)
		if srq == nil {
			return q.fail(p, DropAccess, wire.NAKInvReq)
		}
		q.curPD = srq.pd
	} else if q.srq != nil && info.Kind == wire.KindSend {
		q.curPD = q.srq.pd
	}
	ok := true
	switch info.Kind {
	case wire.KindWrite:
		if info.Is(wire.FlagStart) {
			if p.RETH.DMALen > 0 {
				r, mem := q.remote(q.curPD, p.RETH.RKey, p.RETH.VA, int(p.RETH.DMALen), AccessRemoteWrite)
				ok = r != nil && r.fetch(mem[:p.PayloadLen()], true)
			}
			if ok {
				q.writeVA, q.writeKey = p.RETH.VA, p.RETH.RKey
				q.writeLen, q.writeRem = p.RETH.DMALen, p.RETH.DMALen
			}
		} else {
			r, mem := q.remote(q.curPD, q.writeKey, q.writeVA, p.PayloadLen(), AccessRemoteWrite)
			ok = r != nil && r.fetch(mem, true)
		}
	case wire.KindReadRequest:
		if p.RETH.DMALen > 0 {
			r, _ := q.remote(q.curPD, p.RETH.RKey, p.RETH.VA, int(p.RETH.DMALen), AccessRemoteRead)
			ok = r != nil
		}
	case wire.KindFlush:
		va, n := p.RETH.VA, int(p.RETH.DMALen)
		if r := q.h.keys.lookup(p.RETH.RKey); p.FETH().Level == wire.FlushRegion && r != nil {
			va, n = r.va, 0 // whatever it names there
		}
		r, _ := q.remote(q.curPD, p.RETH.RKey, va, n, flushRights(p))
		ok = r != nil
	case wire.KindAtomicWrite:
		r, mem := q.remote(q.curPD, p.RETH.RKey, p.RETH.VA, 8, AccessRemoteWrite)
		ok = r != nil && r.fetch(mem, true)
	case wire.KindAtomic:
		r, mem := q.remote(q.curPD, p.AtomicETH.RKey, p.AtomicETH.VA, 8, AccessRemoteAtomic)
		ok = r != nil && r.fetch(mem, true)
	}
	if !ok {
		return q.fail(p, DropAccess, wire.NAKAccess)
	}
	return goOn
}

// flushRights are the rights that a FLUSH takes; none if it is of no known kind.
func flushRights(p *wire.Packet) (need Access) {
	t := p.FETH().Type
	if t&wire.FlushGlobal != 0 {
		need |= AccessFlushGlobal
	}
	if t&wire.FlushPersistent != 0 {
		need |= AccessFlushPersistent
	}
	return need
}

// xrcSRQ is the shared queue that an XRC request names, if it is in the
// target's domain.
func (q *QP) xrcSRQ(p *wire.Packet) *SRQ {
	n := p.XRCSRQ
	if int(n) >= len(q.h.srqs) || q.h.srqs[n] == nil || q.h.srqs[n].xrcd != q.xrcd {
		return nil
	}
	return q.h.srqs[n]
}

// checkResources makes sure that there is a receive request, or room to
// remember a READ (IBA 9.7.4.1.4). It is the last check, so that a receive is
// taken only for a packet that will be executed.
func (q *QP) checkResources(now ib.Time, p *wire.Packet, info *wire.OpcodeInfo) verdict {
	switch {
	case info.Kind == wire.KindReadRequest, info.Kind == wire.KindAtomic, info.Kind == wire.KindFlush,
		info.Kind == wire.KindAtomicWrite:
		if most := int(q.attr.MaxDestRD); q.rdQueued >= most {
			if q.firstAnswers() >= most {
				return q.fail(p, DropAccess, wire.NAKInvReq)
			}
			// Answers to duplicates fill the queue: the peer kept to its
			// limit and will ask again.
			return dropped(DropDuplicate)
		}
		return goOn
	case info.Kind == wire.KindSend && info.Is(wire.FlagStart),
		info.Kind == wire.KindWrite && info.Is(wire.FlagRecv):
		srq := q.srq
		if q.typ == XRCRecv {
			srq = q.xrcSRQ(p)
		}
		took := false
		if q.tagged != nil && info.Kind == wire.KindSend {
			took = q.takeTagged(p, info)
		} else {
			took = q.takeRecv(srq)
		}
		if !took {
			if q.typ == UC {
				q.ucBreak()
				q.ePSN = pastPSN(p)
				return dropped(DropNoRecv)
			}
			q.h.Stats.RNRsSent++
			q.nak(wire.SynRNR | wire.Syndrome(q.attr.MinRNRTimer))
			return dropped(DropNoRecv)
		}
	}
	if info.Is(wire.FlagStart) && !info.Is(wire.FlagEnd) {
		q.msgOp = msgSend
		if info.Kind == wire.KindWrite {
			q.msgOp = msgWrite
		}
	}
	if info.Kind == wire.KindSend && uint64(q.curDone)+uint64(p.PayloadLen()) > uint64(q.cur.size) {
		// The receive is too small (class A): both ends fail.
		q.recvFault(now, WCLocLenErr)
		return done
	}
	return goOn
}
