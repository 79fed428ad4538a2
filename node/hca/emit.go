package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Emit builds the next packet of the queue pair that NextSend named. buf holds a
// payload that has to be copied; it must have room for the path MTU, or for
// s.Copied if that is less, and live as long as the packet. Where there is
// room for more, the packet may be a bundle; see Config.MaxBundle. False means
// that there was nothing to send after all; NextSend tells what comes next.
func (h *HCA) Emit(now ib.Time, s *Send, p *wire.Packet, buf []byte) bool {
	h.now = now
	if p.Count != 0 || p.FarLen != 0 {
		p.Count, p.FarLen = 0, 0
	}
	q := s.QP
	rate := q.sendRate()
	sent := false
	switch {
	case q.cnpDue:
		if q.emitCNP(p, buf); q.paced {
			h.ready.remove(q) // it had no other turn
		}
		if sent = true; q.isUD() {
			rate = 0 // which is that of the next datagram
		}
	case q.respHead == q.respTail:
		sent = q.emitRequest(now, p, buf, s.Copy)
	case q.requestFirst():
		// A peer that waits for data gains more than one that waits for an
		// acknowledgement; the next packet is the acknowledgement's.
		sent = q.emitRequest(now, p, buf, s.Copy)
		q.ackWaits = sent
	default:
		q.ackWaits = false
		sent = q.emitResponse(now, p, buf)
	}
	if !sent {
		// A READ response may have turned into an error, and a local request may be
		// done; then there is more to look at.
		if h.ready.head == q && q.respHead == q.respTail && (q.sqCursor == q.sqNext || !q.canRequest()) {
			h.ready.pop()
		}
		return false
	}
	p.Seal()
	h.Stats.TxPackets++
	h.Stats.TxBytes += uint64(len(p.Payload))
	q.burst++
	if p.Count > 1 {
		h.Stats.TxPackets += uint64(p.Count) - 1
		q.burst += int(p.Count) - 1
	}
	if q.carriesIP(p) {
		h.Stats.IPoIBTxPackets += max(uint64(p.Count), 1)
		h.Stats.IPoIBTxBytes += uint64(len(p.Payload))
	}
	wait := ib.Time(0)
	if h.cc != nil && (h.cfg.CNP || !q.isUD()) && p.BTH.Opcode != wire.OpcodeCN {
		wait = q.waits(now, p)
	}
	switch {
	case rate != 0 || wait != 0:
		q.pace(now, p, rate, wait)
	case q.roce != nil:
		q.limitRate(now, p)
	}
	if q.limit != nil {
		q.shape(now, p)
	}
	if q.paced {
		return true
	}
	if q.burst >= burstMax && h.ready.head == q && q.next != nil {
		h.ready.pop()
		q.burst = 0
		h.ready.push(q)
	}
	return true
}

// requestFirst reports whether a plain acknowledgement may let one request go
// before it.
func (q *QP) requestFirst() bool {
	if q.ackWaits || q.sqCursor == q.sqNext || q.respTail-q.respHead != 1 {
		return false
	}
	it := &q.resp[q.respHead&uint32(len(q.resp)-1)]
	return it.kind == respAck && it.syn.Type() == wire.SynAck && q.canRequest()
}

// header fills what every packet of a connected queue pair has.
func (q *QP) header(p *wire.Packet, op wire.Opcode, psn ib.PSN) {
	p.LRH = q.lrh
	p.BTH = q.bth
	p.BTH.Opcode |= op
	p.BTH.PSN = psn
	if q.tellBECN {
		p.BTH.BECN, q.tellBECN = true, false
	}
	if q.path.global {
		p.GRH = q.grh
	}
	p.Payload = nil
}
