package madrpc

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
)

const offTID = 8

// Send takes a message from an agent.
func (p *Port) Send(now ib.Time, id AgentID, m Message) error {
	p.advance(now)
	a := p.agents[id]
	if a == nil {
		return fmt.Errorf("madrpc: send by agent %d: %w; register first", id, ErrAgent)
	}
	if len(m.Data) < mad.HeaderSize {
		return fmt.Errorf("madrpc: message of %d bytes: %w: want a header of %d at least", len(m.Data), ErrLength,
			mad.HeaderSize)
	}
	class := mad.Class(m.Data[1])
	hdr := headerLen(class)
	if a.RMPP && hdr == 0 {
		return fmt.Errorf("madrpc: class 0x%02x (%s) by agent %d: %w: it has no RMPP; use an agent registered without",
			uint8(class), class, id, ErrClass)
	}
	active := len(m.Data) >= mad.RMPPClassOff && rmppActive(m.Data)
	long := a.RMPP && (active || len(m.Data) > mad.Size)
	switch {
	case !long && len(m.Data) > mad.Size:
		return fmt.Errorf("madrpc: message of %d bytes by agent %d: %w: want %d at most; register with RMPP for more",
			len(m.Data), id, ErrLength, mad.Size)
	case long && len(m.Data) < hdr:
		return fmt.Errorf("madrpc: message of %d bytes: %w: want the %d of the header of class 0x%02x (%s)",
			len(m.Data), ErrLength, hdr, uint8(class), class)
	}
	tid := binary.BigEndian.Uint64(m.Data[offTID:])
	resp := IsResponse(m.Data)
	if !resp {
		tid = uint64(id)<<32 | tid&0xFFFF_FFFF
	}
	awaits := m.Timeout > 0 && !resp
	if awaits || long {
		// Segments that an agent makes itself share a transaction.
		if r := p.sending(tid, class, resp, m.Env.LID); r != none && !(active && !a.RMPP) {
			return fmt.Errorf("madrpc: transaction 0x%016x of class 0x%02x (%s): %w; wait for its end or use another",
				tid, uint8(class), class, ErrDuplicate)
		}
	}
	kind := opOnce
	switch {
	case awaits:
		kind = opCall
	case long:
		kind = opCast
	}
	r, o := p.slab.alloc(kind)
	o.agent, o.env, o.cookie = id, m.Env, m.Cookie
	o.tid, o.class, o.version, o.method = tid, class, m.Data[2], mad.Method(m.Data[3])
	o.timeout, o.retries = m.Timeout, int32(min(m.Retries, 1<<30))
	o.retriesLeft = o.retries
	o.rmpp, o.resp = a.RMPP, resp
	if long {
		o.long = append(p.buffer(), m.Data...)
		binary.BigEndian.PutUint64(o.long[offTID:], tid)
		p.beginSegments(o, hdr)
	} else {
		n := copy(o.buf[:], m.Data)
		clear(o.buf[n:])
		binary.BigEndian.PutUint64(o.buf[offTID:], tid)
	}
	switch kind {
	case opCall:
		p.calls++
		if a.RMPP {
			p.forgetResponses(tid, class)
		}
		p.table.insert(&p.slab, r)
	case opCast:
		p.casts++
		p.table.insert(&p.slab, r)
	}
	p.enqueue(r)
	return nil
}

// sending finds what a transaction still sends or awaits in this direction. Requests carry our own IDs;
// responses another's, who may have chosen the same as a third.
func (p *Port) sending(tid uint64, c mad.Class, resp bool, lid ib.LID) ref {
	for r := p.table.first(tid, c); r != none; {
		o := p.slab.at(r)
		if o.tid == tid && o.class == c && o.resp == resp && (o.kind == opCall || o.kind == opCast) &&
			(!resp || o.env.LID == lid) {
			return r
		}
		r = o.hashNext
	}
	return none
}

// call finds the request that a response answers.
func (p *Port) call(tid uint64, c mad.Class) ref {
	for r := p.table.first(tid, c); r != none; {
		o := p.slab.at(r)
		if o.tid == tid && o.kind == opCall && o.class == c {
			return r
		}
		r = o.hashNext
	}
	return none
}

// Handle takes a datagram from the wire and reports whether it is dealt with: by an agent, or
// because it is part of a transfer in segments, also of one that nobody here knows. A request that is
// not may be answered by the node itself, or with a status that says so (IBA 13.4.7); a response that
// is not is nobody's.
func (p *Port) Handle(now ib.Time, env mad.Envelope, dgram *[mad.Size]byte) bool {
	p.advance(now)
	p.counters.Received++
	if dgram[0] != mad.BaseVersion {
		p.counters.BadVersion++
		return false
	}
	rmpp := rmppActive(dgram[:])
	if !IsResponse(dgram[:]) {
		if rmpp {
			return p.handleRMPP(env, dgram, none)
		}
		return p.handleRequest(env, dgram)
	}
	tid := binary.BigEndian.Uint64(dgram[offTID:])
	r := p.call(tid, mad.Class(dgram[1]))
	if rmpp && (r == none || p.slab.at(r).rmpp) {
		return p.handleRMPP(env, dgram, r)
	}
	if r == none {
		p.counters.LateResponses++
		return false
	}
	o := p.slab.at(r)
	if o.partner != none {
		// Begun in segments, then answered in one datagram.
		p.endRecv(o.partner, mad.RMPPUnspecified)
	}
	p.settle(r)
	p.recycle(o.long)
	o.long, o.buf, o.env = nil, *dgram, env
	p.deliver(r, Response)
	return true
}

func (p *Port) handleRequest(env mad.Envelope, dgram *[mad.Size]byte) bool {
	a := p.owner(dgram[:])
	if a == nil {
		p.counters.Unclaimed++
		return false
	}
	if p.casts > 0 && p.sending(binary.BigEndian.Uint64(dgram[offTID:]), mad.Class(dgram[1]), true, env.LID) != none {
		p.counters.Duplicates++
		return true
	}
	p.deliverCopy(a.id, env, dgram, Unsolicited)
	return true
}

// deliverCopy delivers a datagram that belongs to no op.
func (p *Port) deliverCopy(id AgentID, env mad.Envelope, dgram *[mad.Size]byte, why Kind) {
	r, o := p.slab.alloc(opDelivery)
	o.agent, o.env, o.buf = id, env, *dgram
	p.deliver(r, why)
}

// settle takes a call out of everything that could still find it.
func (p *Port) settle(r ref) {
	p.timers.stop(&p.slab, r)
	p.table.remove(&p.slab, r)
	p.calls--
}

// finishCall gives a call back to its agent, unanswered.
func (p *Port) finishCall(r ref, why Kind) {
	o := p.slab.at(r)
	if o.partner != none {
		p.endRecv(o.partner, mad.RMPPUnspecified)
	}
	p.settle(r)
	p.deliver(r, why)
}

func (p *Port) expireCall(r ref) {
	o := p.slab.at(r)
	if o.partner != none {
		// Its response began and stopped coming. The next try starts from nothing.
		p.endRecv(o.partner, mad.RMPPTooLong)
	}
	switch {
	case o.count > 0 && o.acked < o.count:
		if p.goBack(r, o) {
			return
		}
		p.control(o.env, o.long, false, mad.RMPPAbort, mad.RMPPTooManyRetries)
	case o.count > 0:
		// All has arrived over there. Segments sent again would only be acknowledged again.
	case o.retriesLeft > 0:
		o.retriesLeft--
		p.counters.Retries++
		p.enqueue(r)
		return
	}
	p.counters.Timeouts++
	p.finishCall(r, TimedOut)
}
