package live

import (
	"slices"

	"softib/driver/endpoint"
	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// inlet is a ring from a process to the plane, at a port of the process's host.
type inlet struct {
	endpoint.Inlet
	c     *Channel // from nobody once its process is gone
	port  *portState
	block uint16 // the process's
	// seen is when it was found that the next packet has come: it departs then or later, whatever the engine's time is.
	seen ib.Time
	// hold are rings whose packets went before, until when they are waited for at most.
	hold  []*Channel
	until ib.Time
}

// outlet is a ring from the plane to a process, from a port of the process's host, and what waits for room in it.
type outlet struct {
	endpoint.Outlet
	port *portState
	q    link.Queue
}

// addInlet makes the plane take packets from a new channel.
func (s *plane) addInlet(c *Channel, port *portState) error {
	in, err := endpoint.NewIn(c.head, c.from.share.Page, 0, 0)
	if err != nil {
		return err
	}
	c.inlet = &inlet{Inlet: endpoint.Inlet{In: in}, c: c, port: port, block: c.from.block}
	s.inlets = append(s.inlets, c.inlet)
	port.inlets = append(port.inlets, c.inlet)
	return nil
}

// orphan is for the channel of a process that is gone. What it has sent before it ended is on its way, as it would be
// had it left the adapter: the inlet stays until that was taken.
func (s *plane) orphan(c *Channel) {
	c.from = nil
	c.inlet.Orphan()
	if s.page == nil {
		c.inlet.close() // nobody takes it any more
	}
	s.knock()
}

// close ends an inlet.
func (i *inlet) close() {
	i.port.inlets = without(i.port.inlets, i)
	i.In = nil
	i.c.close()
}

// outlet is the ring to a process, made when first needed; nil if there is no memory for it.
func (s *plane) outlet(k chanKey) *outlet {
	if o := s.outlets[k]; o != nil {
		return o
	}
	c, err := s.f.newChannel(nil, k)
	if err != nil {
		return nil
	}
	out, err := endpoint.NewOut(c.head, k.to.share.Page, 0)
	if err != nil {
		c.close()
		return nil
	}
	o := &outlet{Outlet: endpoint.NewOutlet(out), port: k.to.host.ports[k.port]}
	s.outlets[k] = o
	c.announce()
	return o
}

// dropOutlet ends a channel whose process is gone.
func (s *plane) dropOutlet(c *Channel) {
	o := s.outlets[c.chanKey]
	delete(s.outlets, c.chanKey)
	for f := o.q.Pop(); f != nil; f = o.q.Pop() {
		s.received(o.port, f)
	}
}

// follow makes the inlet's packets wait until those in other rings were taken.
func (i *inlet) follow(s *plane, rings []*Channel) {
	for _, c := range rings {
		if c.to != nil && c.head != nil && !endpoint.Drained(c.head) {
			i.hold = append(i.hold, c)
			i.until = s.f.Now() + holdMax
		}
	}
}

// held reports whether packets of an inlet wait for others that went before them by another way.
func (s *plane) held(i *inlet) bool {
	if i.hold == nil {
		return false
	}
	i.hold = slices.DeleteFunc(i.hold, func(c *Channel) bool { return c.head == nil || endpoint.Drained(c.head) })
	if len(i.hold) == 0 || s.f.eng.Now() >= i.until {
		i.hold = nil
		return false
	}
	return true
}

// pumpInlets takes what processes have sent. It returns how many ports got something, and when to look again.
func (s *plane) pumpInlets() (n int, look ib.Time) {
	look = ib.Never
	s.inlets = slices.DeleteFunc(s.inlets, func(i *inlet) bool {
		switch {
		case !s.next(i) && i.c.from == nil:
			i.close()
			return true
		case !s.next(i):
		case s.held(i):
			look = holdLook
		default:
			s.f.eng.Advance(i.seen)
			if s.feed(i.port) {
				n++
			}
		}
		return false
	})
	return n, look
}

// feed queues packets of processes at a host's port, in turn, as long as few wait there, and reports whether there were
// any.
func (s *plane) feed(p *portState) (fed bool) {
	if len(p.inlets) == 0 || slices.ContainsFunc(s.f.captures, (*capture).isFull) {
		return false
	}
	for idle := 0; idle < len(p.inlets); {
		p.turn = (p.turn + 1) % len(p.inlets)
		i := p.inlets[p.turn]
		if !s.next(i) || i.seen > s.f.eng.Now() || s.held(i) ||
			p.link.Queued(p.link.SL2VL(i.Cur.LRH.SL&15)) >= feedMax {
			idle++
			continue
		}
		if f := i.take(s); p.sends(i.block, f.Packet) {
			s.depart(p, f)
		} else {
			s.end(f)
		}
		idle, fed = 0, true
	}
	return fed
}

// sends reports whether a packet can be one of this port's adapter for the process that has a block of queue pair
// numbers. The process has written it, and may have written anything.
func (p *portState) sends(block uint16, w *wire.Packet) bool {
	o := p.origin()
	return o.Sends(block, w)
}

// origin is what processes can send from a host's port.
func (p *portState) origin() endpoint.OriginPort {
	a := p.host.eng.Port(p.num)
	return endpoint.OriginPort{LID: a.LID, LMC: a.LMC, Keys: a.PKeys, GIDs: a.GIDs}
}

// next makes sure that cur is the inlet's next packet, if there is one.
func (s *plane) next(i *inlet) bool {
	is, fresh := i.Next()
	if fresh {
		i.seen = s.f.Now()
	}
	return is
}

// take makes the next packet one of the fabric.
func (i *inlet) take(s *plane) *link.Frame {
	p := i.Packet()
	f := s.f.pool.Get()
	*f.Packet = p
	f.Packet.LRH.LVer, f.Packet.LRH.SL = 0, p.LRH.SL&15
	f.Own(p.Payload)
	f.Seal()
	f.InPort, f.Arrived = 0, s.f.eng.Now()
	if f.LRH.LNH == wire.LNHGlobal && f.Packet.GRH.DGID.Prefix() != f.Packet.GRH.SGID.Prefix() {
		f.Flags |= link.Routed
	}
	if f.IsFlight() {
		s.flights[flightOf(f.LRH.SLID, f.LRH.DLID, blockOf(f.Packet.BTH.DestQP))]++
	}
	i.Took()
	return f
}

// depart queues a packet at the port where it begins its way.
func (s *plane) depart(p *portState, f *link.Frame) {
	vl, why := p.link.Depart(f.LRH.SL)
	if why != link.OK {
		s.f.eng.Drop(p.place(), f, p.link.Count(why))
		return
	}
	s.f.eng.Send(p.place(), f, vl)
}

// arrived takes a packet in at the port of a host, for the process that it is for, or for all that may have members of
// a group; what is for QP0 and QP1 goes to the agent, or to whoever has opened the port for management.
func (s *plane) arrived(p *portState, f *link.Frame) {
	f.Group = 0
	f.Sync()
	if agent.IsMAD(f.Packet) {
		s.manage(p, f)
		return
	}
	block, multi := blockOf(f.Packet.BTH.DestQP), f.LRH.DLID.IsMulticast()
	var last *outlet
	for _, to := range p.host.procs {
		if !multi && block != to.block || to.refuses(p.num, f.Packet.BTH.PKey) {
			continue
		}
		o := s.outlet(chanKey{to, p.num, f.LRH.VL})
		if o == nil {
			continue
		}
		if last != nil {
			c := s.f.pool.Get()
			c.CopyFrom(f)
			c.Group = borrowed
			s.deliver(last, c)
		}
		last = o
	}
	if last == nil {
		s.received(p, f) // there is no such queue pair
		return
	}
	s.deliver(last, f)
}

// manage takes a packet of management in, for the agent of a port's node.
func (s *plane) manage(p *portState, f *link.Frame) {
	m, _ := unpack(f.Packet)
	s.received(p, f)
	s.f.carry(place{node: p.node, port: p.num}, &m, nil)
}

// borrowed as a frame's group at a host says that the place in the port's buffer belongs to another copy.
const borrowed = 1

// received ends a packet at a host, whose buffer has its place back.
func (s *plane) received(p *portState, f *link.Frame) {
	if f.Group != borrowed {
		s.f.eng.Take(p.place(), f)
	}
	s.end(f)
}

// deliver puts a packet into the ring of a process, behind those that wait for room.
func (s *plane) deliver(o *outlet, f *link.Frame) {
	if o.q.Empty() && s.put(o, f) {
		s.received(o.port, f)
		return
	}
	o.q.Push(f)
}

// put puts a packet into the ring. False means that it has to wait; otherwise it is there, or there is nobody to
// receive it.
func (s *plane) put(o *outlet, f *link.Frame) bool {
	return o.Put(s.f.eng.Now(), f.Packet) != endpoint.Waits
}

// pumpOutlets moves what waits for room in rings, and wakes receivers that have not looked. It returns how much moved,
// and when to look again.
func (s *plane) pumpOutlets() (n int, look ib.Time) {
	look = ib.Never
	for _, o := range s.outlets {
		for f := o.q.Head(); f != nil && s.put(o, f); f = o.q.Head() {
			s.received(o.port, o.q.Pop())
			n++
		}
		look = min(look, o.Look(s.f.eng.Now(), !o.q.Empty()))
	}
	if look != ib.Never {
		look -= s.f.eng.Now()
	}
	return n, look
}

// waiter is somebody who waits until something is over that the plane does.
type waiter struct {
	until  ib.Time
	isOver func() bool
	done   chan struct{}
}

// await waits until something is over, but not longer than a while. That ends as an event of the engine, so that what
// comes before it has happened however late this process is. The fabric's lock is given up for it.
func (s *plane) await(most ib.Time, isOver func() bool) {
	w := &waiter{s.f.Now() + most, isOver, make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.f.eng.Schedule(w.until, evGiveUp, 0, 0)
	s.knock()
	s.f.mu.Unlock()
	defer func() { s.f.lock(s.f.Now()) }()
	select {
	case <-w.done:
	case <-s.f.closing:
	}
}

func (s *plane) answerWaiters() {
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool {
		if !w.isOver() && s.f.eng.Now() < w.until {
			return false
		}
		close(w.done)
		return true
	})
}

// settleMax is how long a process waits for its last packets to leave the plane before it sends by a direct way.
const settleMax = 100 * ib.Millisecond

// awaitFlight waits until the plane has no packets of a way of p left, or they have had enough time. The fabric's lock
// is given up for it.
func (s *plane) awaitFlight(p *Process, i *inlet, k endpoint.Key) {
	if k.DLID.IsMulticast() {
		return
	}
	port := p.host.eng.Port(k.Port)
	var flights []flight
	for bits := range ib.LID(1) << port.LMC {
		flights = append(flights, flightOf(port.LID>>port.LMC<<port.LMC|bits, k.DLID, k.Block))
	}
	isOver := func() bool {
		return (i.In == nil || i.Drained()) &&
			!slices.ContainsFunc(flights, func(k flight) bool { return s.flights[k] > 0 })
	}
	if !isOver() {
		s.await(settleMax, isOver)
	}
}
