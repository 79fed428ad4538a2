package madrpc

import (
	"encoding/binary"
	"slices"

	"softib/proto/mad"
)

// A receiver of segments (IBA 13.6.6.2). Each segment is put where it belongs in the message at once; the
// window bounds how far ahead of a gap that can be.

// handleRMPP takes a datagram that is part of a transfer in segments. call is the request
// that it could answer.
func (p *Port) handleRMPP(env mad.Envelope, dgram *[mad.Size]byte, call ref) bool {
	var h mad.RMPP
	if _, err := h.Parse(dgram[mad.RMPPOff:]); err != nil {
		return false // a datagram is long enough
	}
	tid, class := binary.BigEndian.Uint64(dgram[offTID:]), mad.Class(dgram[1])
	resp := dgram[3]&methodResponse != 0
	// What a transfer's receiver says has the method of the other direction.
	send, recv := none, p.receiving(env, dgram)
	if h.RMPPType != mad.RMPPData {
		send = p.sending(tid, class, !resp, env.LID)
	}
	if send != none && !p.slab.at(send).rmpp {
		send = none
	}
	if call == none && send == none && recv == none {
		a := p.agents[AgentID(tid>>32)]
		if !resp {
			a = p.owner(dgram[:])
		}
		switch {
		case a != nil && !a.RMPP:
			why := Unsolicited
			if resp {
				why = Response // segments of a response, after the first, as they come
			}
			p.deliverCopy(a.id, env, dgram, why)
			return true
		case a == nil && h.RMPPType == mad.RMPPData && resp:
			p.counters.LateResponses++
			return false
		case a == nil && h.RMPPType == mad.RMPPData:
			p.counters.Unclaimed++
			return false
		case a == nil:
			p.counters.Strays++
			return true
		case resp && h.RMPPType == mad.RMPPData:
			p.counters.LateResponses++
			p.control(env.Reply(), dgram[:], true, mad.RMPPAbort, mad.RMPPUnspecified)
			return true
		case h.RMPPType == mad.RMPPData && h.RMPPVersion == mad.RMPPVersion:
			p.handleData(env, dgram, &h, a.id, none, none)
			return true
		}
	}
	if h.RMPPVersion != mad.RMPPVersion {
		p.refuse(send, env, dgram, mad.RMPPUnsupportedVersion)
		return true
	}
	switch h.RMPPType {
	case mad.RMPPData:
		id := AgentID(0)
		if recv != none {
			id = p.slab.at(recv).agent
		} else if call != none {
			id = p.slab.at(call).agent
		}
		p.handleData(env, dgram, &h, id, call, recv)
	case mad.RMPPAck:
		switch {
		case h.RMPPStatus != mad.RMPPNormal:
			p.refuse(send, env, dgram, mad.RMPPIllegalStatus)
		case h.Data2 < h.Data1:
			p.refuse(send, env, dgram, mad.RMPPNewWindowLastSmall)
		case send != none:
			p.handleAck(send, &h, env, dgram)
		case recv != none && h.Data1 == 0 && p.slab.at(recv).done && !resp:
			p.slab.at(recv).next = h.Data2 // for the first segments of the response
		default:
			p.counters.Strays++
		}
	case mad.RMPPStop, mad.RMPPAbort:
		p.handleEnd(&h, send, recv, env, dgram)
	default:
		p.refuse(send, env, dgram, mad.RMPPBadType)
	}
	return true
}

// handleEnd takes a Stop or an Abort, from the receiver of what is sent here or from the sender of what is received
// here.
func (p *Port) handleEnd(h *mad.RMPP, send, recv ref, env mad.Envelope, dgram *[mad.Size]byte) {
	legal := h.RMPPStatus == mad.RMPPResources
	if h.RMPPType == mad.RMPPAbort {
		legal = h.RMPPStatus >= mad.RMPPTooLong && h.RMPPStatus <= mad.RMPPUnspecified
	}
	switch {
	case !legal:
		p.refuse(send, env, dgram, mad.RMPPIllegalStatus)
	case send != none && !p.slab.at(send).arrived():
		p.abortSend(send, h.RMPPStatus)
	case recv != none && !p.slab.at(recv).done:
		// A request that awaits this is left to its timeout: it may be answered when it is repeated.
		p.counters.Aborts++
		p.dropRecv(recv)
	default:
		p.counters.Strays++
	}
}

// receiving finds the reception that a datagram belongs to.
func (p *Port) receiving(env mad.Envelope, dgram *[mad.Size]byte) ref {
	tid, class := binary.BigEndian.Uint64(dgram[offTID:]), mad.Class(dgram[1])
	for r := p.table.first(tid, class); r != none; {
		o := p.slab.at(r)
		if o.kind == opRecv && o.tid == tid && o.class == class && o.version == dgram[2] &&
			o.method == mad.Method(dgram[3]) &&
			o.env.LID == env.LID && o.env.QPN == env.QPN {
			return r
		}
		r = o.hashNext
	}
	return none
}

func (p *Port) handleData(env mad.Envelope, dgram *[mad.Size]byte, h *mad.RMPP, id AgentID, call, recv ref) {
	switch {
	case h.RMPPStatus != mad.RMPPNormal:
		p.refuse(none, env, dgram, mad.RMPPIllegalStatus)
		return
	case h.Data1 == 0 || (h.Data1 == 1) != h.First():
		p.refuse(none, env, dgram, mad.RMPPInconsistentFirst)
		return
	}
	if recv == none {
		if h.Data1 != 1 {
			p.counters.Strays++
			return
		}
		if call != none && p.slab.at(call).partner != none {
			p.counters.Duplicates++ // somebody else answers already
			return
		}
		recv = p.newRecv(env, dgram, id, call)
	}
	o := p.slab.at(recv)
	seg := h.Data1
	switch {
	case o.done, seg <= o.got:
		p.counters.Duplicates++
		p.enqueue(recv) // the acknowledgement was lost
		if o.done {
			// As long as the sender repeats itself it must not be taken for a new message.
			p.timers.start(&p.slab, recv, p.now, p.cfg.TimeWait)
		}
		return
	case seg > o.window:
		p.counters.BadRMPP++
		return
	case o.have.has(seg):
		p.counters.Duplicates++
		return
	}
	if !p.place(recv, o, dgram, seg) {
		return
	}
	p.counters.Segments++
	if h.Last() && (o.last == 0 || seg < o.last) {
		o.last, o.lastPayload = seg, h.Data2
	}
	for o.have.has(o.got + 1) {
		o.have.remove(o.got + 1)
		o.got++
	}
	if o.last != 0 && o.got >= o.last {
		p.completeRecv(recv, o)
		return
	}
	if half := uint32(p.cfg.Window / 2); o.got+half >= o.window {
		o.window = o.got + uint32(p.cfg.Window)
		p.enqueue(recv)
	}
	// Progress: what waits for the rest waits anew.
	if o.partner != none {
		p.timers.start(&p.slab, o.partner, p.now, p.slab.at(o.partner).timeout)
	} else {
		p.timers.start(&p.slab, recv, p.now, p.cfg.ReassemblyTimeout)
	}
}

func (p *Port) newRecv(env mad.Envelope, dgram *[mad.Size]byte, id AgentID, call ref) ref {
	r, o := p.slab.alloc(opRecv)
	o.agent, o.env, o.buf = id, env, *dgram
	o.tid, o.class = binary.BigEndian.Uint64(dgram[offTID:]), mad.Class(dgram[1])
	o.version, o.method = dgram[2], mad.Method(dgram[3])
	o.resp, o.rmpp = o.method.IsResponse(), true
	o.window, o.got, o.last, o.lastPayload, o.have = 1, 0, 0, 0, windowSet{}
	o.long = p.buffer()
	if call != none {
		// The request has arrived then, acknowledged or not, and need not be sent again.
		c := p.slab.at(call)
		o.partner, c.partner = call, r
		c.acked, c.queued = c.count, false
	}
	p.table.insert(&p.slab, r)
	return r
}

// place copies a segment to its place in the message; if there is no room for it the sender is told to stop.
func (p *Port) place(r ref, o *op, dgram *[mad.Size]byte, seg uint32) bool {
	hdr := headerLen(o.class)
	per := mad.Size - hdr
	end := hdr + int(seg)*per
	if more := end - len(o.long); more > 0 {
		if p.incoming+more > p.cfg.ReassemblyMax {
			p.control(o.env.Reply(), o.buf[:], true, mad.RMPPStop, mad.RMPPResources)
			p.dropRecv(r)
			return false
		}
		p.incoming += more
		o.long = slices.Grow(o.long, max(more, len(o.long)))[:end]
	}
	if seg == 1 {
		copy(o.long, dgram[:])
	} else {
		copy(o.long[end-per:], dgram[hdr:])
	}
	o.have.add(seg)
	return true
}

// messageLen is the length of a message that has come: PayloadLength of the last segment says how much
// of it is padding. A length that cannot be means none, as in Linux.
func (o *op) messageLen() int {
	hdr := headerLen(o.class)
	per := mad.Size - hdr
	pad := 0
	if o.lastPayload <= payloadUnit {
		pad = min(int(payloadUnit-o.lastPayload), per)
	}
	return hdr + int(o.last)*per - pad
}

func (p *Port) completeRecv(r ref, o *op) {
	d, q := p.slab.alloc(opDelivery)
	why := Unsolicited
	p.incoming -= len(o.long)
	q.agent, q.env, q.long = o.agent, o.env, o.long[:o.messageLen()]
	o.long = nil
	if o.partner != none {
		why = Response
		c := p.slab.at(o.partner)
		q.cookie = c.cookie
		c.partner = none
		p.settle(o.partner)
		p.recycle(c.long)
		p.slab.put(o.partner)
		o.partner = none
	}
	p.deliver(d, why)

	o.done, o.got, o.next = true, o.last, 1
	p.enqueue(r) // the last acknowledgement
	p.timers.start(&p.slab, r, p.now, p.cfg.TimeWait)
	p.linger.Push(entry{r, o.gen})
	p.lingers++
	for p.lingers > p.cfg.TimeWaitMax {
		if e, _ := p.linger.Pop(); p.slab.at(e.r).gen == e.gen {
			p.forget(e.r)
		}
	}
	if p.linger.Len() > 2*p.lingers+16 { // mostly entries whose time is over
		for range p.linger.Len() {
			if e, _ := p.linger.Pop(); p.slab.at(e.r).gen == e.gen {
				p.linger.Push(e)
			}
		}
	}
}

// formatAck writes the acknowledgement of what o has into p.out.
func (p *Port) formatAck(o *op) {
	n := copy(p.out[:], o.buf[:headerLen(o.class)])
	clear(p.out[n:])
	p.out[3] ^= methodResponse
	binary.BigEndian.PutUint16(p.out[4:], 0)
	h := mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: mad.RMPPAck, RMPPFlags: mad.RMPPActive, Data1: o.got,
		Data2: max(o.window, o.got)}
	h.Put(p.out[:])
	p.counters.Acks++
}

// forget drops a reception that is done.
func (p *Port) forget(r ref) {
	p.lingers--
	p.timers.stop(&p.slab, r)
	p.table.remove(&p.slab, r)
	p.slab.put(r)
}

// dropRecv gives up a reception.
func (p *Port) dropRecv(r ref) {
	o := p.slab.at(r)
	if o.partner != none {
		p.slab.at(o.partner).partner = none
		o.partner = none
	}
	p.incoming -= len(o.long)
	p.recycle(o.long)
	p.timers.stop(&p.slab, r)
	p.table.remove(&p.slab, r)
	p.slab.put(r)
}

// endRecv gives up a reception and tells the sender why; one that is done is only forgotten.
func (p *Port) endRecv(r ref, status mad.RMPPStatus) {
	o := p.slab.at(r)
	if o.done {
		p.forget(r)
		return
	}
	p.control(o.env.Reply(), o.buf[:], true, mad.RMPPAbort, status)
	p.dropRecv(r)
}

// forgetResponses forgets finished responses to a transaction ID that is about to be used again.
func (p *Port) forgetResponses(tid uint64, c mad.Class) {
	for r := p.table.first(tid, c); r != none; {
		o := p.slab.at(r)
		next := o.hashNext
		if o.kind == opRecv && o.tid == tid && o.class == c && o.resp && o.done {
			p.forget(r)
		}
		r = next
	}
}
