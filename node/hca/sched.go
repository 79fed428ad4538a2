package hca

import (
	"math"

	"softib/proto/ib"
)

// burstMax is how many packets a queue pair sends before others get a turn.
const burstMax = 16

// qpList is a FIFO of queue pairs, linked through the queue pairs themselves.
type qpList struct{ head, tail *QP }

func (l *qpList) push(q *QP) {
	q.next, q.onReady = nil, true
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.next = q
	}
	l.tail = q
}

func (l *qpList) pop() {
	q := l.head
	l.head = q.next
	if l.head == nil {
		l.tail = nil
	}
	q.next, q.onReady = nil, false
}

func (l *qpList) remove(q *QP) {
	if !q.onReady {
		return
	}
	if l.head == q {
		l.pop()
		return
	}
	for p := l.head; p != nil; p = p.next {
		if p.next == q {
			p.next = q.next
			if l.tail == q {
				l.tail = p
			}
			break
		}
	}
	q.next, q.onReady = nil, false
}

// Send names a queue pair that may have a packet to send, and where to.
type Send struct {
	QP       *QP
	Port     ib.PortNum
	SL       ib.SL
	DLID     ib.LID
	PKey     ib.PKey
	Loopback bool // the packet comes back to this adapter
	Refers   bool // Emit will refer to memory and copy nothing
	// DQPN is the queue pair that the packet is for: ib.QPNMulticast if it is
	// a group's.
	DQPN ib.QPN
	// Copy is the driver's to set before Emit: this packet must not refer to memory.
	Copy bool
	// Copied bounds how many payload bytes Emit will copy to its buffer, however
	// large that is; a smaller buffer makes a shorter bundle.
	Copied int
}

// markReady puts q into the list of those that may have something to send.
func (q *QP) markReady() {
	if !q.onReady && !q.parked && !q.paced {
		q.burst = 0
		q.h.ready.push(q)
	}
}

// NextSend is the queue pair whose turn it is; ok is false when none has
// anything to send. The caller answers with Emit or Park. What it points to is
// the engine's and holds until the next call: it is asked for once a packet,
// and a record that is built piece by piece and then copied as a whole makes a
// processor wait until all that it wrote before is written, rings included.
func (h *HCA) NextSend() (s *Send, ok bool) {
	s = &h.send
	for q := h.ready.head; q != nil; q = h.ready.head {
		if q.cnpDue {
			q.cnpWay(s)
			return s, true
		}
		if q.respHead == q.respTail {
			if q.sqCursor == q.sqNext || !q.isUD() && !q.canRequest() {
				h.ready.pop()
				continue
			}
			if q.isUD() {
				w := &q.sq[q.sqCursor&q.sqMask]
				a := &w.ah.attr
				port := &h.ports[a.Port]
				s.QP, s.Port, s.SL, s.DLID, s.PKey = q, a.Port, a.SL, a.DLID, q.path.pkey
				s.Loopback, s.DQPN = port.ownsLID(a.DLID), w.destQP()
				s.Copied, s.Refers, s.Copy = int(w.length), false, false
				return s, true
			}
		}
		q.way(s)
		s.Copied, s.Refers = q.ahead()
		return s, true
	}
	return s, false
}

// way fills in where packets of a connected queue pair go.
func (q *QP) way(s *Send) {
	pa := &q.path
	s.QP, s.Port, s.SL, s.DLID, s.PKey, s.Loopback = q, pa.port, pa.sl, pa.dlid, pa.pkey, pa.loop
	s.DQPN, s.Copy = q.bth.DestQP, false
}

// WayBack is where the acknowledgement of a packet goes that needs none, see Delivered. It is counted as sent: what
// an adapter counts does not depend on how its packets travel.
func (h *HCA) WayBack(n ib.QPN) (s Send, ok bool) {
	q := h.qp(n)
	if q == nil || !q.isRC() {
		return s, false
	}
	q.way(&s)
	h.Stats.TxPackets++
	h.Stats.AcksSent++
	return s, true
}

// ahead is what the next packet of a connected queue pair makes of a buffer: how
// many bytes it copies there at most, and whether it refers to memory instead.
func (q *QP) ahead() (copied int, refers bool) {
	if q.respHead != q.respTail && !q.requestFirst() {
		if it := &q.resp[q.respHead&uint32(len(q.resp)-1)]; it.kind == respRead {
			copied = q.cutRead(it, math.MaxInt)
		}
		return copied, false
	}
	w := &q.sq[q.sqCursor&q.sqMask]
	switch w.kind {
	case kindAtomicWrite:
		copied = int(w.length)
	case kindSend, kindWrite:
		left := int(w.length) - int(q.sqPkt)*q.mtu
		if copied = left; left > q.mtu {
			copied = min(left, q.mtu*max(1, q.h.cfg.MaxBundle))
		}
		if q.h.cfg.ByRefMin > 0 && copied >= q.h.cfg.ByRefMin {
			_, refers = q.cut(w, left, math.MaxInt, false)
		}
	}
	return copied, refers
}

// Park takes a queue pair out of the turn until Unpark: there is no room for
// its packets.
func (h *HCA) Park(s *Send) {
	h.ready.remove(s.QP)
	s.QP.parked = true
}

// Unpark gives a parked queue pair its turn back.
func (h *HCA) Unpark(q *QP) {
	if q.parked {
		q.parked = false
		if !q.dead {
			q.markReady()
		}
	}
}
