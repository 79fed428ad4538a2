package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Switches that choose the way of each packet bring packets of a connection out of order. An adapter with
// Config.Reorder keeps those that come before their turn, and takes them in when it is theirs. All checks are made
// then, by who sees packets in order: nothing else of the transport knows of it. A gap that does not close within
// Config.ReorderTime is what it is without: a lost packet.

// early are packets of a queue pair that came before their turn, in the order of their PSNs.
type early struct {
	requests, responses []*earlyPacket
}

// earlyPacket is one of them, with a payload of its own.
type earlyPacket struct {
	wire.Packet
	came ib.Time
	buf  []byte
}

// hold keeps a packet that came before its turn, which is expected's. It is false if it cannot be kept, or if the gap
// before it has been open for so long that it counts as lost.
func (q *QP) hold(now ib.Time, list *[]*earlyPacket, expected ib.PSN, p *wire.Packet) bool {
	h := q.h
	if h.cfg.Reorder == 0 || p.Count > 1 || farOf(p) != nil || p.BTH.PSN.Sub(expected) > h.cfg.Reorder {
		return false
	}
	at := len(*list)
	for at > 0 && !(*list)[at-1].BTH.PSN.Before(p.BTH.PSN) {
		at--
	}
	if at < len(*list) && (*list)[at].BTH.PSN == p.BTH.PSN && (*list)[at].BTH.Opcode == p.BTH.Opcode {
		h.drop(DropDuplicate)
		return true
	}
	if len(*list) >= h.cfg.Reorder {
		return false
	}
	var e *earlyPacket
	if n := len(h.earlyFree); n > 0 {
		e, h.earlyFree = h.earlyFree[n-1], h.earlyFree[:n-1]
	} else {
		e = new(earlyPacket)
	}
	e.Packet, e.came = *p, now
	e.buf = append(e.buf[:0], p.Payload...)
	e.Payload = e.buf
	if plantAlias {
		e.Payload = p.Payload
	}
	*list = append(*list, nil)
	copy((*list)[at+1:], (*list)[at:])
	(*list)[at] = e
	h.Stats.Reordered++
	// The oldest arrival, not the lowest PSN: that may just have come.
	for _, e := range *list {
		if now-e.came > h.cfg.ReorderTime {
			return false
		}
	}
	return true
}

// earlyMade is where the packets of a queue pair are kept.
func (q *QP) earlyMade() *early {
	if q.early == nil {
		q.early = new(early)
	}
	return q.early
}

// takeEarly takes in what has come before its turn and has it now. Packets whose turn is over are duplicates, which is
// for the transport to say. If one of them ends the queue pair the others are given up.
func (q *QP) takeEarly(now ib.Time) {
	e := q.early
	for q.early == e && len(e.requests) > 0 && !e.requests[0].BTH.PSN.After(q.ePSN) {
		p := q.pop(&e.requests)
		q.respond(now, &p.Packet, p.BTH.Opcode.Info())
		q.h.earlyFree = append(q.h.earlyFree, p)
	}
	for q.early == e && len(e.responses) > 0 && !q.isEarly(&e.responses[0].Packet) {
		p := q.pop(&e.responses)
		q.complete(now, &p.Packet, p.BTH.Opcode.Info())
		q.h.earlyFree = append(q.h.earlyFree, p)
	}
}

// pop takes the first packet of a list.
func (q *QP) pop(list *[]*earlyPacket) *earlyPacket {
	p := (*list)[0]
	n := copy(*list, (*list)[1:])
	*list = (*list)[:n]
	return p
}

// forgetEarly gives up what has come before its turn.
func (q *QP) forgetEarly() {
	if e := q.early; e != nil {
		q.early = nil
		q.h.earlyFree = append(append(q.h.earlyFree, e.requests...), e.responses...)
	}
}

// isEarly reports whether a response tells of requests behind a READ or an atomic whose own answer has not come.
func (q *QP) isEarly(p *wire.Packet) bool {
	psn := p.BTH.PSN
	missing, ok := q.missing()
	if !ok {
		return false
	}
	if p.BTH.Opcode.Info().Kind == wire.KindAck {
		if p.AETH.Syndrome.Type() != wire.SynAck {
			psn = psn.Add(-1) // a refusal acknowledges what is before it
		}
		return !psn.Before(missing)
	}
	return psn.After(missing)
}

// missing is the PSN of the next answer with data that is to come; false if none is.
func (q *QP) missing() (ib.PSN, bool) {
	if q.rdOut == 0 {
		return 0, false
	}
	for i := q.sqOldest; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started {
			break
		}
		if w.kind.isAnswered() && !w.done {
			return w.first.Add(int(w.got)), true
		}
	}
	return 0, false
}
