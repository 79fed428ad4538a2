package madrpc

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
)

// A sender of segments (IBA 13.6.6.1): the window starts at one segment and is moved by
// acknowledgements. When one does not come it goes back to the last segment acknowledged.

// payloadUnit is what PayloadLength counts of a full segment: all behind the RMPP header.
const payloadUnit = mad.Size - mad.RMPPClassOff

// beginSegments prepares o, whose long is set, to be sent.
func (p *Port) beginSegments(o *op, hdr int) {
	o.count = segments(len(o.long), hdr)
	o.next, o.window = 1, 1
	if !o.resp {
		return
	}
	// The request came in segments as well, and its sender said how many of the response it takes at first.
	for r := p.table.first(o.tid, o.class); r != none; {
		q := p.slab.at(r)
		if q.kind == opRecv && q.tid == o.tid && q.class == o.class && q.version == o.version && !q.resp && q.done &&
			q.env.LID == o.env.LID {
			o.window = max(1, q.next)
			return
		}
		r = q.hashNext
	}
}

// ackTimeout is how long o waits for an acknowledgement.
func (p *Port) ackTimeout(o *op) ib.Time {
	if o.timeout > 0 && o.timeout < p.cfg.AckTimeout {
		return o.timeout
	}
	return p.cfg.AckTimeout
}

// nextSegment puts the next segment into p.out, if the window has room for it.
func (p *Port) nextSegment(r ref, o *op) bool {
	if o.next > min(o.window, o.count) {
		return false
	}
	hdr := headerLen(o.class)
	per := mad.Size - hdr
	seg := o.next
	from := hdr + int(seg-1)*per
	n := copy(p.out[:hdr], o.long)
	n += copy(p.out[n:], o.long[from:])
	clear(p.out[n:])
	h := mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: mad.RMPPData, RMPPFlags: mad.RMPPActive, Data1: seg}
	pad := uint32(hdr + int(o.count)*per - len(o.long))
	if seg == 1 {
		h.RMPPFlags |= mad.RMPPFirst
		h.Data2 = o.count*payloadUnit - pad
	}
	if seg == o.count {
		h.RMPPFlags |= mad.RMPPLast
		h.Data2 = payloadUnit - pad
	}
	h.Put(p.out[:])
	o.next++
	o.highest = max(o.highest, seg)
	if o.next <= min(o.window, o.count) {
		p.enqueue(r)
	} else {
		p.timers.start(&p.slab, r, p.now, p.ackTimeout(o))
	}
	return true
}

// goBack sends again from the last acknowledged segment on, if there are tries left.
func (p *Port) goBack(r ref, o *op) bool {
	if o.retriesLeft <= 0 {
		return false
	}
	o.retriesLeft--
	p.counters.Retries++
	o.next = o.acked + 1
	p.enqueue(r)
	return true
}

func (p *Port) expireCast(r ref) {
	o := p.slab.at(r)
	if p.goBack(r, o) {
		return
	}
	p.counters.Timeouts++
	p.control(o.env, o.long, false, mad.RMPPAbort, mad.RMPPTooManyRetries)
	p.failCast(r, TimedOut, 0)
}

// failCast gives a cast back to its agent.
func (p *Port) failCast(r ref, why Kind, status mad.RMPPStatus) {
	p.timers.stop(&p.slab, r)
	p.table.remove(&p.slab, r)
	p.casts--
	p.slab.at(r).status = status
	p.deliver(r, why)
}

// endCast forgets a cast: it has arrived, or its agent has gone.
func (p *Port) endCast(r ref) {
	p.timers.stop(&p.slab, r)
	p.table.remove(&p.slab, r)
	p.casts--
	p.recycle(p.slab.at(r).long)
	p.slab.put(r)
}

// arrived reports that no segments are on their way.
func (o *op) arrived() bool { return o.acked == o.count }

// abortSend ends what is being sent because the other side will not have it. What it has wholly acknowledged it cannot
// refuse any more.
func (p *Port) abortSend(r ref, status mad.RMPPStatus) {
	o := p.slab.at(r)
	if o.arrived() {
		return
	}
	p.counters.Aborts++
	if o.kind == opCast {
		p.failCast(r, Aborted, status)
		return
	}
	o.status = status
	p.finishCall(r, Aborted)
}

// handleAck moves the window of what is being sent.
func (p *Port) handleAck(r ref, h *mad.RMPP, env mad.Envelope, dgram *[mad.Size]byte) {
	o := p.slab.at(r)
	seg, window := h.Data1, h.Data2
	switch {
	case o.count == 0:
		p.counters.Strays++ // a request in one datagram has nothing to acknowledge
		return
	case o.acked == o.count:
		p.turnAround(o, env, dgram) // the other side has not seen that it is its turn
		return
	case seg > o.highest:
		p.refuse(r, env, dgram, mad.RMPPSegmentNumberBig)
		return
	case window < o.window || seg < o.acked:
		p.counters.Strays++ // overtaken by a later one
		return
	}
	if seg > o.acked {
		o.acked = seg
		o.retriesLeft = o.retries
		o.next = max(o.next, seg+1)
	} else if window == o.window {
		return
	}
	o.window = window
	switch {
	case o.acked == o.count && o.kind == opCast:
		p.endCast(r)
	case o.acked == o.count:
		p.turnAround(o, env, dgram)
		p.timers.start(&p.slab, r, p.now, o.timeout)
	case o.next <= min(o.window, o.count):
		p.timers.stop(&p.slab, r)
		p.enqueue(r)
	case !o.queued:
		p.timers.start(&p.slab, r, p.now, p.ackTimeout(o))
	}
}

// turnAround acknowledges the last acknowledgement of a request in segments, and thereby says that
// its response may begin, with one segment (IBA 13.6.6.3, double-sided transfers).
func (p *Port) turnAround(o *op, env mad.Envelope, dgram *[mad.Size]byte) {
	if o.partner != none {
		return
	}
	_, c := p.newControl(env.Reply(), dgram[:], true)
	h := mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: mad.RMPPAck, RMPPFlags: mad.RMPPActive, Data2: 1}
	h.Put(c.buf[:])
}

// refuse ends a transfer over a datagram that breaks the rules: what we send, if it is about that, and
// what the other side does.
func (p *Port) refuse(r ref, env mad.Envelope, dgram *[mad.Size]byte, status mad.RMPPStatus) {
	p.counters.BadRMPP++
	if r != none {
		p.abortSend(r, status)
	}
	p.control(env.Reply(), dgram[:], true, mad.RMPPAbort, status)
}

// control sends an Abort or a Stop about the transfer that dgram is of; back says that it goes against the direction of
// dgram.
func (p *Port) control(env mad.Envelope, dgram []byte, back bool, t mad.RMPPType, status mad.RMPPStatus) {
	_, c := p.newControl(env, dgram, back)
	p.counters.AbortsSent++
	h := mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: t, RMPPFlags: mad.RMPPActive, RMPPStatus: status}
	h.Put(c.buf[:])
}

func (p *Port) newControl(env mad.Envelope, dgram []byte, back bool) (ref, *op) {
	r, c := p.slab.alloc(opOnce)
	c.env = env
	n := copy(c.buf[:], dgram[:headerLen(mad.Class(dgram[1]))])
	clear(c.buf[n:])
	if back {
		c.buf[3] ^= methodResponse
	}
	binary.BigEndian.PutUint16(c.buf[4:], 0)
	p.enqueue(r)
	return r, c
}

const methodResponse = 0x80
