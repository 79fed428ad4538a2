package live

import (
	"math/rand/v2"
	"slices"

	"softib/driver/endpoint"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"

	"golang.org/x/sys/unix"
)

// plane carries the packets of switched ways: it takes them from the rings of the processes that send, moves them over
// the cables and through the switches, hop by hop, in real time, and puts them into rings to the processes that
// receive.
//
// Ports, lanes, credits, arbitration and forwarding are those of the engines (link, ibswitch); the plane owns the time,
// what is on the cables, and what cables do to packets. It is a queue of events, as in sim, whose clock is the real
// one. An event that is handled late, because the machine had other things to do, is handled as of its own time, so
// that a rate is kept however coarsely the plane is woken.
//
// Everything here is guarded by the fabric's lock, but for run's own.
type plane struct {
	f      *Fabric
	pageFD int
	page   *endpoint.Page

	now     ib.Time
	events  eventHeap
	ends    []*portEnd
	inlets  []*inlet
	outlets map[chanKey]*outlet
	rng     *rand.Rand
	scratch []byte
	// stale: states or tables have changed, and ports may have given up packets.
	stale bool
	// flights counts the unicast packets under way, by where from and to.
	flights map[flight]int
	waiters []*flightWaiter
}

// flight is what is known of a packet's ends wherever it is.
type flight struct {
	slid, dlid ib.LID
	block      uint16
}

func flightOf(f *link.Frame) flight {
	return flight{f.LRH.SLID, f.LRH.DLID, uint16(f.Packet.BTH.DestQP >> endpoint.BlockBits)}
}

// portEnd is what the plane keeps of a port.
type portEnd struct {
	p *portState
	// Events that are pending.
	wakes, expires, refreshes bool
	last                      ib.Time // when the last packet arrives at the far end: the next comes no earlier
	// Of a host's port: the rings to take packets from, and whose turn it is.
	inlets []*inlet
	turn   int
}

const (
	// feedMax is how many packets of a lane wait in a host's port. The others wait in their ring.
	feedMax = 2
	// turnEvents bounds how long the fabric's lock is held.
	turnEvents = 256
	// refreshMin is how often credits are told anew while some may have been lost.
	refreshMin = 200 * ib.Microsecond
	// stuckAfter is how long a process may leave its ring full before packets to it are dropped instead of filling the
	// fabric's buffers: a program that is stopped is no reason to stop the others.
	stuckAfter = 500 * ib.Millisecond
	// holdMax is how long packets wait for those that went before them by another way.
	holdMax = 5 * ib.Millisecond
	// holdLook is how often the plane looks whether they still have to.
	holdLook = 100 * ib.Microsecond
)

// startPlane makes the plane run, if it does not. The fabric's lock is held.
func (f *Fabric) startPlane() error {
	if f.plane != nil {
		return nil
	}
	s := &plane{f: f, outlets: map[chanKey]*outlet{}, flights: map[flight]int{},
		rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	var err error
	if s.pageFD, s.page, err = newSharedPage(); err != nil {
		return err
	}
	f.staff.Lock()
	defer f.staff.Unlock()
	if f.closed.Load() {
		s.release()
		return ErrClosed
	}
	f.pool.BufSize = ib.MTU4096.Bytes() // nothing else has taken frames from it
	f.plane = s
	f.wg.Go(s.run)
	return nil
}

// release gives up what the plane is woken by. Programs of this process may knock there still.
func (s *plane) release() {
	s.page = nil
	unix.Close(s.pageFD)
}

// knock makes the plane look. The fabric's lock is held.
func (s *plane) knock() {
	if s != nil && s.page != nil {
		s.page.Knock()
	}
}

// pageFD is what the plane is woken by.
func (f *Fabric) pageFD() int {
	if f.plane == nil || f.plane.page == nil {
		return -1
	}
	return f.plane.pageFD
}

// planePage is the same for programs of this process, nil if there is no plane.
func (f *Fabric) planePage() *endpoint.Page {
	if f.plane == nil {
		return nil
	}
	return f.plane.page
}

// dozeTime is how long the first sleep is; see endpoint.Page.Wait.
const dozeTime = ib.Millisecond

// planeTurns is how many turns without work the plane waits before it sleeps.
const planeTurns = 16

// napMin is the shortest sleep that is worth it: the kernel does not wake a thread sooner.
const napMin = 50 * ib.Microsecond

// run carries packets until the fabric closes, and sleeps while there are none.
func (s *plane) run() {
	f := s.f
	empty, dozed := planeTurns, false
	for {
		f.mu.Lock()
		if f.closed.Load() {
			s.release()
			for _, i := range slices.Clone(s.inlets) {
				if i.from == nil {
					s.dropInlet(i)
				}
			}
			f.mu.Unlock()
			return
		}
		n, next := s.work()
		f.mu.Unlock()
		switch {
		case n > 0:
			empty, dozed = 0, false
			if !s.page.Attended() {
				s.page.Attend()
			}
			continue
		case empty < planeTurns && !dozed, next < napMin:
			empty++
			endpoint.YieldCore()
			continue
		}
		// Nothing to do. Say so, then look once more.
		s.page.Rest()
		f.mu.Lock()
		n, next = s.work()
		closed := f.closed.Load()
		f.mu.Unlock()
		if n == 0 && !closed {
			if !dozed {
				next = min(next, dozeTime)
			}
			s.page.Wait(next)
			dozed = !s.page.Attended()
		}
		if !dozed {
			s.page.Attend()
			empty = 0
		}
	}
}

// work does one turn of everything. It returns how much there was, and for how long there is nothing more.
func (s *plane) work() (n int, sleep ib.Time) {
	clock := s.f.Now()
	for n < turnEvents && len(s.events.list) > 0 && s.events.list[0].at <= clock {
		e := s.events.pop()
		s.now = max(s.now, e.at)
		s.step(&e)
		n++
	}
	if n == turnEvents {
		return n, 0
	}
	s.now = max(s.now, clock)
	if s.stale {
		s.stale = false
		s.restate()
	}
	moved, look := s.pumpOutlets()
	n += moved
	moved, hold := s.pumpInlets()
	n += moved
	s.answerWaiters()
	sleep = min(look, hold)
	if len(s.events.list) > 0 {
		sleep = min(sleep, max(s.events.list[0].at-clock, 0))
	}
	return n, sleep
}

// endOf is what the plane keeps of a port. A cable that is new to it has had no flow control so far, though its ports
// were active all the time.
func (s *plane) endOf(p *portState) *portEnd {
	if p.end == nil {
		p.end = &portEnd{p: p}
		s.ends = append(s.ends, p.end)
		if p.peer != nil && p.peer.end == nil {
			s.endOf(p.peer)
			s.kickFC(p)
			s.kickFC(p.peer)
			s.lossy(p)
		}
	}
	return p.end
}

// step lets an event happen.
func (s *plane) step(e *event) {
	switch e.kind {
	case evArrive:
		s.arrive(e.p, e.f)
	case evFC:
		if e.p.link.HandleFC(s.now, e.fc) {
			s.kick(e.p)
		}
	case evWake:
		e.p.end.wakes = false
		s.kick(e.p)
	case evExpiry:
		e.p.end.expires = false
		e.p.link.HandleTimeout(s.now)
		s.flush(e.p)
		s.kick(e.p)
		s.armExpiry(e.p)
	case evRefresh:
		s.refresh(e.p)
	case evRelease:
		if e.p.sw.engine.Release(e.claim) {
			s.kickFC(e.p.sw.ports[e.claim.In])
		}
	}
}

// kick lets a port's transmitter do what it can, now or when it is free.
func (s *plane) kick(p *portState) {
	e := s.endOf(p)
	for {
		if s.now < p.link.BusyUntil() {
			s.wakeLater(e)
			return
		}
		s.sendFC(p)
		f, start, _ := p.link.PollTx(s.now)
		if f == nil {
			if p.link.Blocked() {
				s.armExpiry(p)
			}
			return
		}
		s.send(e, f, start)
		if p.host != nil {
			s.feed(e)
		}
	}
}

// kickFC is kick for a port that has only gained a flow-control packet to send.
func (s *plane) kickFC(p *portState) {
	if s.now < p.link.BusyUntil() {
		s.wakeLater(s.endOf(p))
		return
	}
	s.sendFC(p)
}

func (s *plane) wakeLater(e *portEnd) {
	if !e.wakes && e.p.link.Pending() {
		e.wakes = true
		s.events.push(event{at: e.p.link.BusyUntil(), kind: evWake, p: e.p})
	}
}

// sendFC puts the flow-control packets that are due on the cable. They take no time there.
func (s *plane) sendFC(p *portState) {
	for p.link.WantsFC() {
		fc, _, ok := p.link.PollFC(s.now)
		if !ok {
			return
		}
		p.link.Occupy(s.now)
		if p.peer != nil {
			s.events.push(event{at: s.now + p.cable.delay(), kind: evFC, p: p.peer, fc: fc})
		}
	}
}

// send puts a packet on the cable and gives back the buffer that it leaves.
func (s *plane) send(e *portEnd, f *link.Frame, start ib.Time) {
	p := e.p
	c := p.cable
	if c != nil && !c.on {
		c = nil
	}
	dur := c.rateTime(int(f.Bytes))
	p.link.Occupy(start + dur)
	if p.sw != nil {
		// A packet that takes time to leave keeps its place until it has.
		if dur > 0 {
			if claim, ok := p.sw.engine.Detach(f); ok {
				s.events.push(event{at: start + dur, kind: evRelease, p: p, claim: claim})
			}
		} else if in := p.sw.engine.Left(f); in != 0 {
			s.kickFC(p.sw.ports[in])
		}
	}
	if len(p.taps) > 0 {
		p.tap(start, traceOut, f.Sync())
	}
	if p.peer == nil {
		s.end(f)
		return
	}
	if c != nil {
		if s.loses(c) {
			s.lossy(p)
			s.end(f)
			return
		}
		if s.flips(c, int(f.Bytes), p.peer) {
			f.Flags |= link.BadVCRC
			s.lossy(p)
		}
	}
	e.last = max(e.last, start+dur+c.delay())
	s.events.push(event{at: e.last, kind: evArrive, p: p.peer, f: f})
}

// arrive takes a packet in at the port that it has come to.
func (s *plane) arrive(p *portState, f *link.Frame) {
	if len(p.taps) > 0 {
		s.tapArrival(p, f)
	}
	if p.host != nil {
		s.arriveHost(p, f)
		return
	}
	sw := p.sw.engine
	r := sw.Handle(s.now, p.num, f)
	switch {
	case r.Out != 0:
		s.kick(p.sw.ports[r.Out])
		return
	case r.Reason.IsDrop():
		s.refused(p, f, r.Reason)
		s.end(f)
		if r.FC {
			s.kickFC(p)
		}
		return
	}
	if r.Multicast {
		for out, ok := sw.PollOut(); ok; out, ok = sw.PollOut() {
			s.kick(p.sw.ports[out])
		}
	}
	if r.Mgmt {
		for m := sw.PollMgmt(); m != nil; m = sw.PollMgmt() {
			// Data for the switch itself: it has no queue pairs but QP0 and QP1, whose packets come otherwise.
			if !m.LRH.DLID.IsMulticast() {
				p.link.Count(link.UnknownDLID)
			}
			if in := sw.Left(m); in != 0 {
				s.kickFC(p.sw.ports[in])
			}
			s.end(m)
		}
	}
}

// tapArrival shows a packet that has come to a port, with the bits that the cable flipped.
func (s *plane) tapArrival(p *portState, f *link.Frame) {
	if f.Flags&link.BadVCRC == 0 {
		p.tap(s.now, traceIn, f.Sync())
		return
	}
	s.scratch = f.Sync().Append(s.scratch[:0])
	i := s.rng.IntN(len(s.scratch) * 8)
	s.scratch[i/8] ^= 1 << (i % 8)
	p.tapBytes(s.now, traceIn, s.scratch, "corrupted on the way")
}

// end gives back a packet that goes no further.
func (s *plane) end(f *link.Frame) {
	if !f.LRH.DLID.IsMulticast() {
		k := flightOf(f)
		if s.flights[k]--; s.flights[k] <= 0 {
			delete(s.flights, k)
		}
	}
	s.f.pool.Put(f)
}

// refused notes that a packet was dropped at a port: its agent may have to tell, and where the port has not even
// counted it, credits went astray.
func (s *plane) refused(p *portState, f *link.Frame, r link.Reason) {
	if (r == link.NotReady || r == link.Malformed) && p.link.State() >= ib.PortInit {
		s.lossy(p)
	}
	s.f.stir(p.index())
}

// armExpiry makes sure that an expiring life time will be noticed.
func (s *plane) armExpiry(p *portState) {
	if t := p.link.NextExpiry(); t != ib.Never && !p.end.expires {
		p.end.expires = true
		s.events.push(event{at: max(t, s.now), kind: evExpiry, p: p})
	}
}

// flush recycles what a port has given up.
func (s *plane) flush(p *portState) {
	for d, ok := p.link.PollDropped(); ok; d, ok = p.link.PollDropped() {
		if p.sw != nil {
			if in := p.sw.engine.Left(d.Frame); in != 0 {
				s.kickFC(p.sw.ports[in])
			}
		}
		s.end(d.Frame)
	}
}

// lossy notes that credits went astray on a cable: both ends refresh until that has healed.
func (s *plane) lossy(p *portState) {
	for _, q := range [...]*portState{p, p.peer} {
		if q == nil {
			continue
		}
		if !q.link.Refreshing() {
			q.link.SetRefresh(s.now, true)
		}
		s.armRefresh(q)
	}
}

func (s *plane) armRefresh(p *portState) {
	e := s.endOf(p)
	if t := p.link.NextRefresh(); t != ib.Never && !e.refreshes {
		e.refreshes = true
		s.events.push(event{at: max(t, s.now+refreshMin), kind: evRefresh, p: p})
	}
}

// refresh tells a port's credits anew, until both ends know all that the other has to tell.
func (s *plane) refresh(p *portState) {
	p.end.refreshes = false
	if p.link.State() < ib.PortInit {
		return
	}
	if agree(p.link, p.peer.link) {
		p.link.SetRefresh(s.now, false)
		return
	}
	p.link.HandleTimeout(s.now)
	s.flush(p)
	s.kick(p)
	s.armRefresh(p)
}

// agree reports whether two ends of a cable have the same view of all credits, which implies that no data fly between
// them.
func agree(p, q *link.Port) bool {
	for vl := ib.VL(0); vl < ib.VLMgmt; vl++ {
		a, b := p.Credit(vl), q.Credit(vl)
		if a.FCTBS != b.ABR || b.FCTBS != a.ABR || a.FCCL != b.Advertised || b.FCCL != a.Advertised {
			return false
		}
	}
	return true
}

// restate looks at all ports in use after something has changed: links may have gone down, and come up with no credit.
func (s *plane) restate() {
	for _, e := range s.ends {
		s.flush(e.p)
		if e.p.link.State() >= ib.PortInit && e.p.peer != nil && !agree(e.p.link, e.p.peer.link) {
			s.lossy(e.p)
		}
		s.kick(e.p)
	}
}

// packetOf makes a packet of a process one of the fabric.
func (s *plane) packetOf(p *wire.Packet) *link.Frame {
	f := s.f.pool.Get()
	*f.Packet = *p
	f.Packet.LRH.LVer, f.Packet.LRH.SL = 0, p.LRH.SL&15
	f.Own(p.Payload)
	f.Packet.Seal()
	f.Measure()
	f.InPort, f.Arrived = 0, s.now
	if !f.LRH.DLID.IsMulticast() {
		s.flights[flightOf(f)]++
	}
	return f
}
