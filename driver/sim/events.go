package sim

import (
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// kind sorts events.
type kind uint8

const (
	evNone    kind = iota // was cancelled
	evArrive              // a packet is at an end; the argument is its frame
	evFC                  // a flow-control packet is there; the argument is it
	evWake                // the transmitter of an end is free
	evPort                // a life time has expired at a port
	evRefresh             // a port's credits are to be told anew
	evRelease             // a receive buffer is free; the argument is the claim
	evHost                // a host's deadline; the place is the host
	evLoop                // a host's packet to itself is there; the place is the host
	evUser                // a timer of the workload; the argument is its slot
	evTrain               // both ends of a cable have trained
	evFault               // a planned fault; the argument is its number
	evLate                // a packet that was held back; the argument is its slot
	evManager             // a manager's deadline; the place is its host, the argument its number
	evJob                 // a manager has computed routes; likewise
	evAgent               // an agent may have traps to send; the place is the node
	evServe               // the agent of a switch has had its time for a packet; the place is a port
)

// code packs an event: kind in 8 bits, place in 24, argument in 32.
func code(k kind, place, arg uint32) uint64 {
	return uint64(k)<<56 | uint64(place)<<32 | uint64(arg)
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

// step takes the next event, which peek has shown, and lets it happen.
func (s *Sim) step() {
	if s.q.at == 0 {
		s.touch(s.q.cur)
	}
	ev := s.q.pop()
	s.now = ev.t
	place, arg := uint32(ev.d>>32)&0xFFFFFF, uint32(ev.d)
	switch kind(ev.d >> 56) {
	case evArrive:
		s.arrive(place, arg)
	case evFC:
		s.arriveFC(place, arg)
	case evWake:
		s.ports[place].Site.Flags &^= endWake
		s.kick(place)
	case evPort:
		s.portTimeout(place)
	case evRefresh:
		s.refresh(place)
	case evRelease:
		p := s.ports[place]
		if c := unpackClaim(arg); s.switches[p.Site.Node].Release(c) {
			s.kickFC(p.Site.First + uint32(c.In))
		}
	case evHost:
		s.hostTimeout(place)
	case evLoop:
		s.arriveLoop(place, ib.PortNum(arg))
	case evUser:
		s.wakes = append(s.wakes, Wake{Kind: WakeTimer, ID: s.timers[arg]})
		s.free = append(s.free, arg)
	case evTrain:
		s.trained(place)
	case evFault:
		s.planned(arg)
	case evLate:
		s.late(arg)
	case evManager:
		s.managerTimeout(int(place), arg)
	case evJob:
		s.managerJob(int(place), arg)
	case evAgent:
		s.agentTimeout(int(place))
	case evServe:
		p := s.ports[place]
		s.switchMgmt(p, s.switches[p.Site.Node])
	}
}

// mix folds a word into the trace hash.
func (s *Sim) mix(v uint64) {
	h := (s.hash ^ v) * 0x9E3779B97F4A7C15
	s.hash = h ^ h>>29
}

// mixFrame folds a packet that has arrived at an end into the trace hash.
func (s *Sim) mixFrame(at uint32, f *link.Frame) {
	l := &f.LRH
	s.mix(uint64(s.now) ^ uint64(at)<<40)
	s.mix(uint64(l.DLID)<<48 | uint64(l.SLID)<<32 | uint64(l.Length)<<16 | uint64(l.SL)<<8 | uint64(l.VL))
}

// arrive handles the packet that has reached an end.
func (s *Sim) arrive(at, frame uint32) {
	p := s.ports[at]
	f := s.pool.At(frame)
	if p.Site.Flags&endStopped != 0 {
		s.drop(at, f, link.NotReady)
		return
	}
	if s.cfg.WireExact && f.Flags&(link.BadVCRC|link.BadICRC) == 0 {
		s.rewrite(f)
	}
	s.hops++
	s.mixFrame(at, f)
	if p.Site.Host >= 0 {
		s.arriveHost(at, p, f)
		return
	}
	sw := s.switches[p.Site.Node]
	r := sw.Handle(s.now, p.Site.Num, f)
	if r.Out != 0 {
		s.kick(p.Site.First + uint32(r.Out))
		return
	}
	if r.Reason.IsDrop() {
		s.refused(at, p, f, r.Reason)
		s.drop(at, f, r.Reason)
		s.stir(int(p.Site.Node)) // an error may be worth a trap
		if r.FC {
			s.kickFC(at)
		}
		return
	}
	if r.Multicast {
		s.kickOuts(p.Site.First, sw)
	}
	switch {
	case r.Mgmt && s.cfg.AgentTime > 0:
		s.q.push(s.now+s.cfg.AgentTime, code(evServe, at, 0))
	case r.Mgmt:
		s.switchMgmt(p, sw)
	}
}

// arriveFC handles a flow-control packet that has reached an end.
func (s *Sim) arriveFC(at uint32, arg uint32) {
	p := s.ports[at]
	if p.Site.Flags&endStopped != 0 {
		return
	}
	s.mix(uint64(s.now) ^ uint64(at)<<40 ^ uint64(arg)<<8)
	if p.HandleFC(s.now, unpackFC(arg)) {
		s.kick(at)
	}
}

// kick lets an end's transmitter do what it can, now or when it is free.
func (s *Sim) kick(at uint32) {
	p := s.ports[at]
	if s.now < p.BusyUntil() {
		if p.Site.Flags&endWake == 0 && p.Pending() {
			p.Site.Flags |= endWake
			s.q.push(p.BusyUntil(), code(evWake, at, 0))
		}
		return
	}
	s.sendFC(at, p)
	f, start, dur := p.PollTx(s.now)
	if f == nil {
		if p.Blocked() {
			s.armPort(at, p)
		}
		return
	}
	s.send(at, p, f, start, dur)
	if p.Pending() && p.Site.Flags&endWake == 0 {
		p.Site.Flags |= endWake
		s.q.push(p.BusyUntil(), code(evWake, at, 0))
	}
}

// kickFC is kick for an end that has only gained a flow-control packet to send.
func (s *Sim) kickFC(at uint32) {
	p := s.ports[at]
	if s.now < p.BusyUntil() {
		if p.Site.Flags&endWake == 0 {
			p.Site.Flags |= endWake
			s.q.push(p.BusyUntil(), code(evWake, at, 0))
		}
		return
	}
	s.sendFC(at, p)
}

// sendFC puts the flow-control packets that are due on the cable.
func (s *Sim) sendFC(at uint32, p *link.Port) {
	for p.WantsFC() {
		fc, t, ok := p.PollFC(s.now)
		if !ok {
			return
		}
		if s.cfg.Sink != nil {
			s.traceLink(p, fc)
		}
		if s.cfg.WireExact {
			fc = s.rewriteFC(fc)
		}
		if p.Site.Flags&endFaulty != 0 && s.harmFC(at, p, &t) {
			continue
		}
		s.q.push(t+p.Site.Delay, code(evFC, p.Site.Peer, packFC(fc)))
	}
}

// send puts a packet on the cable and gives back the buffer that it leaves.
func (s *Sim) send(at uint32, p *link.Port, f *link.Frame, start, dur ib.Time) {
	if p.Site.Host < 0 {
		// A way out that is slower than some way in empties the buffer
		// later than the neighbour could fill it again.
		sw := s.switches[p.Site.Node]
		if p.Site.Flags&endSlow != 0 {
			if c, ok := sw.Detach(f); ok {
				s.q.push(start+dur, code(evRelease, p.Site.First, packClaim(c)))
			}
		} else if in := sw.Left(f); in != 0 {
			s.kickFC(p.Site.First + uint32(in))
		}
	}
	if s.cfg.Sink != nil {
		s.tracePacket(start, p, f)
	}
	t := start + p.Site.Delay
	if p.Site.Flags&endTail != 0 {
		t += dur
	}
	vl := f.LRH.VL
	if p.Site.Flags&endFaulty == 0 || !s.harm(at, p, f, &t) {
		s.q.push(t, code(evArrive, p.Site.Peer, f.Index()))
	}
	if p.Site.Host >= 0 {
		s.hostRoom(p, vl)
	}
}

// armPort makes sure that an expiring life time will be noticed. Expiries only
// move away while an event is pending, so that one event is enough.
func (s *Sim) armPort(at uint32, p *link.Port) {
	if p.Site.Flags&endTimer != 0 {
		return
	}
	if t := p.NextExpiry(); t != ib.Never {
		p.Site.Flags |= endTimer
		s.q.push(max(t, s.now), code(evPort, at, 0))
	}
}

// portTimeout lets a port drop what has expired.
func (s *Sim) portTimeout(at uint32) {
	p := s.ports[at]
	p.Site.Flags &^= endTimer
	if p.Site.Flags&endStopped != 0 {
		return
	}
	p.HandleTimeout(s.now)
	s.flush(at, p)
	s.kick(at)
	s.armPort(at, p)
}

// flush recycles what a port has given up.
func (s *Sim) flush(at uint32, p *link.Port) {
	for d, ok := p.PollDropped(); ok; d, ok = p.PollDropped() {
		if p.Site.Host < 0 {
			if in := s.switches[p.Site.Node].Left(d.Frame); in != 0 {
				s.kickFC(p.Site.First + uint32(in))
			}
		}
		s.drop(at, d.Frame, d.Reason)
	}
}
