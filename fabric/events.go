package fabric

import (
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
	"softib/proto/wire"
)

// Kinds of events beside those of notes, which become one when their time has come.
const (
	evNone       Kind = iota + 32 // was cancelled
	evWake                        // the transmitter of a port is free
	evPort                        // a life time has expired at a port
	evRefresh                     // a port's credits are to be told anew
	evRelease                     // a receive buffer is free; the argument is the claim
	evTrain                       // both ends of a cable have trained
	evPauseTimer                  // a pause ends, is told again, or lasts too long
)

// Kinds of events that come from the other end of a cable, in the order in which they left it.
const (
	evArrive Kind = iota + fromFar // a packet is at a port; the argument is its frame
	evFC                           // a flow-control packet is there; the argument is it
	evPause                        // a pause frame is at a port; the argument is it
	evNotice                       // a neighbour has no way to a LID: the argument, with the age of the news

	fromFar Kind = 1 << 7
)

// code packs an event: kind in 8 bits, place in 24, argument in 32.
func code(k Kind, place, arg uint32) uint64 {
	return uint64(k)<<56 | uint64(place)<<32 | uint64(arg)
}

// split is the reverse.
func split(d uint64) (k Kind, place, arg uint32) {
	return Kind(d >> 56), uint32(d>>32) & 0xFFFFFF, uint32(d)
}

func packFC(fc wire.LinkPacket) uint32 {
	return uint32(fc.Op)<<28 | uint32(fc.VL)<<24 | uint32(fc.FCTBS)<<12 | uint32(fc.FCCL)
}

func unpackFC(a uint32) wire.LinkPacket {
	return wire.LinkPacket{
		Op: wire.LinkOp(a >> 28), VL: ib.VL(a >> 24 & 15), FCTBS: uint16(a >> 12 & wire.CreditMask),
		FCCL: uint16(a & wire.CreditMask),
	}
}

func packClaim(c ibswitch.Claim) uint32 { return uint32(c.In)<<16 | uint32(c.VL)<<8 | uint32(c.Blocks) }

func unpackClaim(a uint32) ibswitch.Claim {
	return ibswitch.Claim{In: ib.PortNum(a >> 16), VL: ib.VL(a >> 8), Blocks: uint8(a)}
}

// Next is when the next event comes, Never if there is none.
func (e *Engine) Next() ib.Time { return e.q.next() }

// Due reports whether an event is due by now.
func (e *Engine) Due(now ib.Time) bool { return e.q.due(now) }

// Step lets the next event happen. It reports false when there is none.
func (e *Engine) Step() bool {
	ok := e.q.due(ib.Never)
	if ok {
		e.step()
	}
	return ok
}

// Run lets events happen that come by limit, until one has left something to the driver. It reports false when there
// is none.
func (e *Engine) Run(limit ib.Time) bool {
	for e.q.due(limit) {
		e.step()
		if e.notes.Len() > 0 {
			return true
		}
	}
	return false
}

// step lets the next event of the open bucket happen.
func (e *Engine) step() {
	if e.q.at == 0 {
		e.touch(e.q.cur)
	}
	ev := e.q.pop()
	e.now = max(e.now, ev.t)
	switch k, place, arg := split(ev.d); k {
	case evNone:
	case evArrive:
		e.arrive(place, arg)
	case evFC:
		e.arriveFC(place, arg)
	case evWake:
		e.ports[place].Site.Flags &^= endWake
		e.kick(place)
	case evPort:
		e.portTimeout(place)
	case evRefresh:
		e.refresh(place)
	case evRelease:
		p := e.ports[place]
		if c := unpackClaim(arg); e.ports[p.Site.First+uint32(c.In)].Release(c.VL, c.Blocks) {
			e.kickFC(p.Site.First + uint32(c.In))
		}
	case evTrain:
		e.trained(place)
	case evPause:
		e.arrivePause(place, arg)
	case evPauseTimer:
		e.pauseTimeout(place)
	case evNotice:
		e.arriveNotice(place, arg)
	default:
		e.note(k, place, arg)
	}
}

// Mix adds something that has happened now, at a place, to the digest of the history. The digest is a sum, so that it
// says what happened where and when, and not in which order things of one time were done that have nothing to do with
// each other.
func (e *Engine) Mix(at uint32, what uint64) {
	h := (uint64(e.now) ^ uint64(at)<<40 ^ 0x5851F42D4C957F2D) * 0x9E3779B97F4A7C15
	h = (h ^ h>>29 ^ what) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>32) * 0x94D049BB133111EB
	e.hash += h ^ h>>29
}

// MixFrame adds a packet that has arrived at a port to it.
func (e *Engine) MixFrame(at uint32, f *link.Frame) {
	l := &f.LRH
	e.Mix(at, uint64(l.DLID)<<48|uint64(l.SLID)<<32|uint64(l.Length)<<16|uint64(l.SL)<<8|uint64(l.VL))
}

// arrive handles the packet that has reached a port.
func (e *Engine) arrive(at, frame uint32) {
	p := e.ports[at]
	f := e.pool.At(frame)
	if p.Site.Flags&endStopped != 0 {
		e.Drop(at, f, link.NotReady)
		return
	}
	if e.cfg.WireExact && f.Flags&(link.BadVCRC|link.BadICRC) == 0 {
		e.rewrite(f)
	}
	e.hops++
	e.MixFrame(at, f)
	if p.Site.Flags&endTapped != 0 && f.Flags&link.BadVCRC == 0 {
		e.tracePacket(e.now, trace.In, p, f)
	}
	if p.Site.Host >= 0 {
		e.arriveHost(at, p, f)
		return
	}
	sw := e.switches[p.Site.Node]
	r := sw.Handle(e.now, p.Site.Num, f)
	e.pause(at, p)
	if r.Out != 0 {
		e.kick(p.Site.First + uint32(r.Out))
		return
	}
	if r.Reason.IsDrop() {
		e.sendNotices(p.Site.First, sw)
		e.refuse(at, p, f, r.Reason)
		if r.FC {
			e.kickFC(at)
		}
		return
	}
	if r.Multicast {
		e.kickOuts(p.Site.First, sw)
	}
	switch {
	case r.Mgmt && e.cfg.AgentTime > 0:
		e.q.push(e.now+e.cfg.AgentTime, code(Served, at, 0))
	case r.Mgmt:
		e.note(Served, at, 0)
	}
}

// arriveHost takes a packet in at the port of a host.
func (e *Engine) arriveHost(at uint32, p *link.Port, f *link.Frame) {
	if r := p.Receive(e.now, f); r != link.OK {
		e.refuse(at, p, f, r)
		return
	}
	e.pause(at, p)
	if p.Site.Flags&endRouter != 0 && e.passRouter(at, p, f) {
		return
	}
	if f.Flags&link.BadICRC != 0 {
		e.Take(at, f)
		e.Drop(at, f, p.Count(link.Physical))
		return
	}
	if e.cfg.AgentTime > 0 && f.Packet.BTH.DestQP <= ib.QPNGSI {
		e.hold(at, f, e.cfg.AgentTime)
		return
	}
	if c := e.cables[p.Site.Peer]; len(e.cables) > 0 && c != nil && e.holdBack(at, c, f) {
		return
	}
	e.note(Arrived, at, f.Index())
}

// passRouter lets a router take a packet on that its port has received. It reports false if it is for the router
// itself.
func (e *Engine) passRouter(at uint32, p *link.Port, f *link.Frame) bool {
	r := e.routers[p.Site.Node].Handle(e.now, p.Site.Num, f)
	switch {
	case r.Here:
		return false
	case r.Reason.IsDrop():
		e.Take(at, f)
		e.Drop(at, f, r.Reason)
	}
	for out, ok := r.Outs.Pop(); ok; out, ok = r.Outs.Pop() {
		e.kick(p.Site.First + uint32(out))
	}
	return true
}

// leave gives back the receive buffer of a packet that a switch or a router has taken on, at once or, where its way out
// is slower than some way in, when it has left: the neighbour could fill the buffer sooner.
func (e *Engine) leave(p *link.Port, f *link.Frame, slow bool, left ib.Time) {
	first := p.Site.First
	if p.Site.Host >= 0 {
		if r := e.Router(int(p.Site.Node)); f.InPort == 0 || r != nil && !r.Left(f) {
			return // a packet of its own, or one of several copies
		}
		if slow {
			c := ibswitch.Claim{In: f.InPort, VL: f.InVL, Blocks: f.Blocks}
			e.q.push(left, code(evRelease, first, packClaim(c)))
		} else {
			e.Take(first+uint32(f.InPort), f)
		}
		return
	}
	sw := e.switches[p.Site.Node]
	if slow {
		if c, ok := sw.Detach(f); ok {
			e.q.push(left, code(evRelease, first, packClaim(c)))
		}
	} else if in := sw.Left(f); in != 0 {
		e.kickFC(first + uint32(in))
	}
}

// kickOuts kicks the ports to which a multicast packet was queued.
func (e *Engine) kickOuts(first uint32, sw *ibswitch.Switch) {
	for out, ok := sw.PollOut(); ok; out, ok = sw.PollOut() {
		e.kick(first + uint32(out))
	}
}

// arriveFC handles a flow-control packet that has reached a port.
func (e *Engine) arriveFC(at uint32, arg uint32) {
	p := e.ports[at]
	if p.Site.Flags&endStopped != 0 {
		return
	}
	e.Mix(at, uint64(evFC)<<56|uint64(arg))
	if p.HandleFC(e.now, unpackFC(arg)) {
		e.kick(at)
	}
}

// kick lets a port's transmitter do what it can, now or when it is free.
func (e *Engine) kick(at uint32) {
	p := e.ports[at]
	if p.Site.Flags&endFresh != 0 {
		e.freshen(at)
	}
	if e.now < p.BusyUntil() {
		if p.Site.Flags&endWake == 0 && p.Pending() {
			e.wakeLater(at, p)
		}
		return
	}
	e.sendFC(at, p)
	f, start, dur := p.PollTx(e.now)
	if f == nil {
		if p.Blocked() {
			e.armPort(at, p)
		}
		return
	}
	e.send(at, p, f, start, dur)
	if p.Site.Flags&endWake == 0 && p.Pending() {
		e.wakeLater(at, p)
	}
}

// kickFC is kick for a port that has only gained a flow-control packet to send.
func (e *Engine) kickFC(at uint32) {
	p := e.ports[at]
	if e.now < p.BusyUntil() {
		if p.Site.Flags&endWake == 0 {
			e.wakeLater(at, p)
		}
		return
	}
	e.sendFC(at, p)
}

// wakeLater has a port which is busy kicked when it no longer is.
func (e *Engine) wakeLater(at uint32, p *link.Port) {
	p.Site.Flags |= endWake
	e.q.push(p.BusyUntil(), code(evWake, at, 0))
}

// sendFC puts the flow-control packets that are due on the cable.
func (e *Engine) sendFC(at uint32, p *link.Port) {
	if p.Flow() != link.Credits {
		e.sendPauses(at, p)
		return
	}
	for p.WantsFC() {
		fc, t, ok := p.PollFC(e.now)
		if !ok {
			return
		}
		if p.Site.Flags&endInstant != 0 {
			t = e.now
			p.Occupy(t)
		}
		if e.sink != nil {
			e.emit(p, trace.Event{Time: e.now, Kind: trace.Link, Dir: trace.Out, Link: fc})
		}
		if e.cfg.WireExact {
			fc = e.rewriteFC(fc)
		}
		if p.Site.Flags&endFaulty != 0 && e.harmFC(at, p, &t) {
			continue
		}
		if p.Site.Peer == NoEnd {
			e.cross(at, t, 0, nil, fc)
			continue
		}
		e.pushFar(p, t+p.Site.Delay, code(evFC, p.Site.Peer, packFC(fc)))
	}
}

// send puts a packet on the cable and gives back the buffer that it leaves.
func (e *Engine) send(at uint32, p *link.Port, f *link.Frame, start, dur ib.Time) {
	slow := p.Site.Flags&endSlow != 0
	if p.Site.Flags&(endInstant|endFaulty) != 0 {
		if d := e.rateTime(at, f.Bytes); d > dur || p.Site.Flags&endInstant != 0 {
			dur, slow = d, d > 0
			p.Occupy(start + dur)
		}
	}
	if p.Site.Host < 0 || p.Site.Flags&endRouter != 0 {
		e.leave(p, f, slow, start+dur)
	}
	if e.sink != nil {
		e.tracePacket(start, trace.Out, p, f)
	}
	t := start + p.Site.Delay
	if p.Site.Flags&endTail != 0 {
		t += dur
	}
	vl := f.LRH.VL
	tell := p.Site.Host >= 0 && p.Site.Flags&endRouter == 0 || p.Site.Flags&(endPort0|endRouter) != 0 && f.InPort == 0
	switch {
	case p.Site.Flags&endFaulty != 0 && e.harm(at, p, f, &t):
	case p.Site.Flags&(endOutside|endAway) == 0:
		e.q.push(t, code(evArrive, p.Site.Peer, f.Index()))
	case p.Site.Flags&endAway != 0:
		e.sendAway(p, Away{t, code(evArrive, p.Site.Peer, 0), f})
	default:
		e.cross(at, t, dur, f, wire.LinkPacket{})
	}
	if tell {
		e.note(Room, at, uint32(vl))
	}
}

// armPort makes sure that an expiring life time will be noticed. Expiries only
// move away while an event is pending, so that one event is enough.
func (e *Engine) armPort(at uint32, p *link.Port) {
	if p.Site.Flags&endTimer != 0 {
		return
	}
	if t := p.NextExpiry(); t != ib.Never {
		p.Site.Flags |= endTimer
		e.q.push(max(t, e.now), code(evPort, at, 0))
	}
}

// portTimeout lets a port drop what has expired.
func (e *Engine) portTimeout(at uint32) {
	p := e.ports[at]
	p.Site.Flags &^= endTimer
	if p.Site.Flags&endStopped != 0 {
		return
	}
	p.HandleTimeout(e.now)
	e.flush(at, p)
	e.kick(at)
	e.armPort(at, p)
}

// flush recycles what a port has given up.
func (e *Engine) flush(at uint32, p *link.Port) {
	for d, ok := p.PollDropped(); ok; d, ok = p.PollDropped() {
		if p.Site.Host < 0 && p.Site.Flags&endPort0 != 0 && d.Frame.InPort == 0 {
			e.note(Room, at, uint32(d.Frame.LRH.VL))
		}
		if p.Site.Host < 0 || p.Site.Flags&endRouter != 0 {
			e.leave(p, d.Frame, false, 0)
		}
		e.Drop(at, d.Frame, d.Reason)
	}
}

// touch reads, for all events of the open bucket, the memory that handling them will need. A fabric of a thousand hosts
// does not fit the inner caches; fetched one after the other, misses would be most of the time that a hop takes.
func (e *Engine) touch(events []event) {
	v := uint64(0)
	for i := range events {
		switch k, place, arg := split(events[i].d); k {
		case evArrive:
			v += uint64(e.ports[place].Site.Flags) + uint64(e.pool.At(arg).Blocks)
		case evFC, evWake:
			v += uint64(e.ports[place].Site.Flags)
		}
	}
	for i := range events {
		switch k, place, arg := split(events[i].d); k {
		case evArrive:
			p, f := e.ports[place], e.pool.At(arg)
			if p.Site.Host < 0 {
				v += e.switches[p.Site.Node].Touch(p.Site.Num, f)
			} else {
				v += p.TouchRx(f.LRH.VL) + uint64(f.Packet.BTH.Opcode)
			}
		case evFC:
			v += e.ports[place].TouchTx(unpackFC(arg).VL)
		case evWake:
			v += e.ports[place].TouchHead()
		}
	}
	e.warm = v
}
