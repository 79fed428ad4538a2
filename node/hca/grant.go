package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Grant is memory that the peer of an RC queue pair has written to by RDMA, with every check passed. Until something is
// withdrawn it may write there again with the same key; a driver that can write to this memory from where the peer is
// may thus do so ahead of the packet, which comes with wire.Placed.
type Grant struct {
	QP   ib.QPN
	RKey uint32
	VA   uint64
	Mem  []byte
}

// TakeGrant tells, once, what the last write was granted.
func (h *HCA) TakeGrant() (Grant, bool) {
	r := h.wroteTo
	if r == nil {
		return Grant{}, false
	}
	h.wroteTo = nil
	return Grant{QP: h.wroteBy, RKey: r.key, VA: r.va, Mem: r.mem}, true
}

// TakeWithdrawn reports, once, that something has changed on which grants rest: a key, a window, a queue pair's state
// or rights, a port. None that was given before holds any more, and the driver must see to it that nobody uses one
// before the program learns of the change.
func (h *HCA) TakeWithdrawn() bool {
	w := h.withdrawn
	h.withdrawn = false
	if w {
		h.wroteTo = nil
	}
	return w
}

// HasWithdrawn reports whether TakeWithdrawn would be true.
func (h *HCA) HasWithdrawn() bool { return h.withdrawn }

// IsOnly reports whether the packet with this PSN is the only one of the queue pair without an acknowledgement: the
// peer has seen all that was sent before.
func (q *QP) IsOnly(psn ib.PSN) bool { return q.ackPSN == psn && q.sentPSN == psn.Add(1) }

// Delivered tells the requester that the packet with this PSN, which IsOnly, is where it belongs and will be heard of
// by the peer, in its turn, whatever happens: it is acknowledged, and the acknowledgement counted, which the peer
// counts too (WayBack).
func (h *HCA) Delivered(now ib.Time, q *QP, psn ib.PSN) {
	h.now = now
	if q.state == StateRTS || q.state == StateSQD {
		h.Stats.RxPackets++
		q.handleAck(now, psn, wire.SynAckNoCred)
	}
}

// placed takes note of a WRITE whose payload its sender has put where it belongs, under a grant. For the peer it is
// complete, so nothing that has changed here since may refuse it; and nothing is touched because of it but the count of
// packets, which are the peer's own business. Such a packet may come ahead of others of its kind, if they took
// different ways; of no other, since Delivered is only for a packet before which everything was acknowledged.
func (q *QP) placed(p *wire.Packet) {
	switch q.state {
	case StateRTR, StateRTS, StateSQD, StateSQE:
	default:
		q.h.drop(DropState)
		return
	}
	ahead := p.BTH.PSN.Sub(q.ePSN)
	switch {
	case q.typ != RC || p.BTH.Opcode != wire.MakeOpcode(wire.RC, wire.OpWriteOnly):
		q.h.drop(DropService)
	case ahead < 0:
		q.h.drop(DropDuplicate)
	case q.msgOp != msgNone:
		q.h.drop(DropState)
	default:
		q.h.Stats.WritesRcvd++
		q.ePSN = p.BTH.PSN.Add(1)
		q.msn = (q.msn + uint32(ahead) + 1) & 0xFFFFFF
		q.nakSent = false
		if p.BTH.AckReq {
			q.ack(p.BTH.PSN)
		}
	}
}

// Life tells the lives of a queue pair apart, which a reset ends.
func (q *QP) Life() uint32 { return q.lives }

// Acked reports whether the packet with this PSN was acknowledged, or answered. It is for a queue pair that has sent it
// in this life.
func (q *QP) Acked(psn ib.PSN) bool { return psn.Before(q.ackPSN) }
