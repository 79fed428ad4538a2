package endpoint

import (
	"sync/atomic"

	"softib/internal/cacheline"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// catchUp is how much of what static rates made queue pairs wait for may be made up for: threads run late, by a slice
// of others where cores are short, and the clock is read every few calls.
const catchUp = 4 * ib.Millisecond

// send puts packets on their way as long as there is room for them. Completions go first to where the program finds
// them: a peer that has an acknowledgement may tell the program by another way, and this thread may lose its core
// before the next instruction.
func (e *Endpoint) send() {
	s, ok := e.eng.NextSend()
	if e.wire != nil {
		e.sendWire(s, ok)
		return
	}
	if !ok {
		return
	}
	e.hand()
	now := e.about()
	for ; ok; s, ok = e.eng.NextSend() {
		block := uint16(s.DQPN >> BlockBits)
		if s.DQPN == ib.QPNMulticast {
			block = 0
		}
		if s.Loopback && block == e.block {
			if e.eng.Emit(now, s, &e.scratch, e.space()) {
				e.takeStaged()
				e.eng.HandlePacket(now, s.Port, &e.scratch)
			}
			continue
		}
		rt := e.routeFor(s, block)
		if rt == nil {
			return // the fabric is gone
		}
		switch len(rt.rings) {
		case 1:
			e.sendOne(now, s, rt, rt.rings[0])
		case 0:
			if e.eng.Emit(now, s, &e.scratch, e.space()) {
				e.count(rt, packets(&e.scratch), e.scratch.WireWords())
			}
		default:
			e.sendMany(now, s, rt)
		}
	}
	if e.net != nil && e.pump() {
		e.send() // there was no room before
	}
}

// sendWire puts packets on a network; what they may be is the queue pairs' matter.
func (e *Endpoint) sendWire(s *hca.Send, ok bool) {
	if ok {
		e.hand()
	}
	now := e.about()
	for ; ok; s, ok = e.eng.NextSend() {
		s.Copy = true
		if e.eng.Emit(now, s, &e.scratch, e.wire.Space()) {
			e.wire.Put(&e.scratch)
		}
	}
	e.wire.Flush()
}

// sendOne sends the next packet into a ring.
func (e *Endpoint) sendOne(now ib.Time, s *hca.Send, rt *Route, r *Out) {
	s.Copy = !r.canRefer(s.Refers)
	n := min(s.Copied, r.most)
	if s.Refers && !s.Copy {
		n = 0
		r.from = s.QP
	}
	if !r.room(n) {
		if !r.Gone() {
			e.park(r, s)
			return
		}
		// The receiver died. What is sent to it vanishes until the way is found to be no more.
		if e.eng.Emit(now, s, &e.scratch, e.space()) {
			e.count(rt, packets(&e.scratch), e.scratch.WireWords())
		}
		return
	}
	again := e.eng.Stats.Retransmits
	if !e.eng.Emit(now, s, &e.scratch, r.space(n)) {
		return
	}
	if e.scratch.Count <= 1 {
		e.count(rt, 1, uint64(e.scratch.LRH.Length)) // Emit has sealed it
	} else {
		e.count(rt, uint64(e.scratch.Count), e.scratch.WireWords())
	}
	psn := e.scratch.BTH.PSN
	if e.sampleIn--; e.sampleIn < 0 && e.scratch.BTH.AckReq {
		e.sample(s.QP, again)
	}
	// Writing ahead is a system call: worth it for a program that waits for each of its writes, not for a stream of
	// them.
	looked := e.looked()
	if e.aheadAt != looked && s.QP.IsOnly(psn) && again == e.eng.Stats.Retransmits && r.writeAhead(&e.scratch) {
		e.aheadAt = looked
		e.scratch.BTH.AckReq = false
		r.publish(&e.scratch, true)
		e.eng.Delivered(now, s.QP, psn)
		if e.awaited.qp != nil {
			e.hear()
		}
	} else {
		r.publish(&e.scratch, false)
	}
	if fabric := r.pid == 0; fabric != (e.hint.switched != 0) {
		atomic.StoreUint32(&e.hint.switched, e.hint.switched^1)
	}
	r.rouse()
}

// countAck counts the acknowledgement of the payload that was just taken in and had been written ahead. Its sender does
// not wait for one, so none goes through a ring; ports count it all the same, as they do where the way is switched.
func (e *Endpoint) countAck() {
	s, ok := e.eng.WayBack(e.rx.BTH.DestQP)
	if !ok {
		return
	}
	if rt := e.routeFor(&s, uint16(s.DQPN>>BlockBits)); rt != nil {
		words := uint64(ackBytes / 4)
		if e.rx.LRH.LNH == wire.LNHGlobal {
			words += wire.GRHSize / 4
		}
		e.count(rt, 1, words)
	}
}

// ackBytes is how long an acknowledgement is in the eyes of ports' counters.
const ackBytes = wire.LRHSize + wire.BTHSize + wire.AETHSize + wire.ICRCSize

// sendMany copies a multicast packet to every ring of its route.
func (e *Endpoint) sendMany(now ib.Time, s *hca.Send, rt *Route) {
	for _, r := range rt.rings {
		if !r.room(min(s.Copied, copyMax)) && !r.Gone() {
			e.park(r, s)
			return
		}
	}
	s.Copy = true
	if !e.eng.Emit(now, s, &e.scratch, e.space()) {
		return
	}
	e.count(rt, packets(&e.scratch), e.scratch.WireWords())
	for _, r := range rt.rings {
		if r.room(len(e.scratch.Payload)) {
			r.publish(&e.scratch, false)
			r.rouse()
		}
	}
}

// packets is how many packets of the wire p stands for.
func packets(p *wire.Packet) uint64 { return uint64(max(p.Count, 1)) }

// space is a buffer for a payload that no ring takes.
func (e *Endpoint) space() []byte {
	if e.buf == nil {
		e.buf = make([]byte, copyMax)
	}
	return e.buf
}

// routeFor is the way of the next packet of a queue pair; nil if there is no fabric any more.
func (e *Endpoint) routeFor(s *hca.Send, block uint16) *Route {
	rt, ok := s.QP.Owner.(*Route)
	if ok && rt.current() && rt.key.DLID == s.DLID && rt.key.SL == s.SL && rt.key.PKey == s.PKey &&
		rt.key.Port == s.Port && rt.key.Block == block {
		return rt
	}
	key := Key{s.Port, s.DLID, s.SL, s.PKey, block}
	if key.DLID.IsMulticast() {
		key.Block = 0
	}
	rt = e.routes[key]
	if rt == nil || !rt.current() {
		if e.failed {
			return nil
		}
		e.endWindow() // a slot that was another way's counts for this one from now on
		var err error
		if rt, err = e.router.Route(key); err != nil {
			e.fail()
			return nil
		}
		e.routes[key] = rt
	}
	s.QP.Owner = rt
	return rt
}

// park keeps a queue pair until a ring has room again.
func (e *Endpoint) park(r *Out, s *hca.Send) {
	e.eng.Park(s)
	if len(r.parked) == 0 {
		e.waiting++
		atomic.StoreUint32(&e.hint.parked, 1)
		if !e.page.Attended() {
			e.call() // room may come and its news be missed; an attendant that knows of it looks again
		}
	}
	r.parked = append(r.parked, s.QP)
	cacheline.StoreFence(&r.head.wants, 1)
	r.peer.wake()
	if r.room(r.most) { // it came while we were asking
		e.unparkRing(r)
	}
}

func (e *Endpoint) unpark() {
	for _, r := range e.out {
		if len(r.parked) > 0 && (r.room(r.most) || r.Gone()) {
			e.unparkRing(r)
		}
	}
}

func (e *Endpoint) unparkRing(r *Out) {
	cacheline.StoreFence(&r.head.wants, 0)
	for _, q := range r.parked {
		e.eng.Unpark(q)
	}
	clear(r.parked)
	r.parked = r.parked[:0]
	if e.waiting--; e.waiting == 0 {
		atomic.StoreUint32(&e.hint.parked, 0)
	}
}
