package live

import (
	"errors"
	"fmt"

	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// Outside is the part of a fabric that other machines have, and how to get there.
type Outside struct {
	// Where names the machine that has a node of the graph, if that is another. Such a node's ports stay down here, and
	// nothing is known of it but what datagrams tell.
	Where func(node int) string
	// Trunk takes what goes to the far ends of cables, which are numbered in the order of topo.Graph.Cables.
	Trunk Trunk
	// Admits judges a packet that comes in from another machine by a cable; nil admits all.
	Admits func(cable int, p *wire.Packet) bool
	// Lines makes ways between processes of different machines; nil if daemons are to carry all that they say.
	Lines Lines
}

// Trunk carries messages to other machines: as they are, in order, each once, until SetTrunk says that it does not any
// more.
type Trunk interface {
	// Send takes a copy of a message. It never blocks, and is called with the fabric's lock held.
	Send(cable int, msg []byte)
	// Flush sets under way what was sent since it was last called. The lock is not held.
	Flush()
}

// outsideEnd is the end of a cable to another machine.
type outsideEnd struct {
	fabric.Joint
	cable   int
	reached bool // the machine at the far end
}

// ErrElsewhere is matched when a host is wanted that another machine has.
var ErrElsewhere = errors.New("another machine has it")

// isElsewhere reports whether another machine has a node.
func (f *Fabric) isElsewhere(node int) bool {
	return f.cfg.Outside.Where != nil && f.cfg.Outside.Where(node) != ""
}

// join puts a cable where it belongs: between two nodes that are here, or at the one of them that is.
func (f *Fabric) join(number int, c topo.Cable) {
	a, b := f.port(c.A), f.port(c.B)
	awayA, awayB := f.isElsewhere(c.A.Node), f.isElsewhere(c.B.Node)
	switch {
	case awayA && awayB:
	case awayA:
		f.joinOutside(b, number)
	case awayB:
		f.joinOutside(a, number)
	default:
		a.peer, b.peer = b, a
		f.eng.Join(a.place(), b.place(), 0)
		f.train(a)
	}
}

func (f *Fabric) joinOutside(p *portState, cable int) {
	p.outside = &outsideEnd{cable: cable}
	p.link.SetLongCable()
	f.outside[cable] = p
	f.eng.JoinOutside(p.place(), 0)
}

// canTrain reports whether a port may come up at its cable.
func (p *portState) canTrain() bool { return !p.unplugged && p.link.Phys() == ib.PhysPolling }

// beginOutside tells the far end of a cable to another machine that things are not what they were at this one. The
// fabric's lock is held.
func (f *Fabric) beginOutside(p *portState, forget bool) {
	f.plane.drainOutside() // what is of the old link goes before what says so
	g := p.outside.Begin(p.canTrain(), f.trainRate(p), forget)
	if p.outside.reached {
		f.sendOutside(p, g.AppendMessage(f.message[:0]))
	}
}

func (f *Fabric) sendOutside(p *portState, msg []byte) {
	f.message = msg
	f.cfg.Outside.Trunk.Send(p.outside.cable, msg)
	f.unsent = true
}

// unlock gives up the fabric's lock and sets under way what goes to other machines.
func (f *Fabric) unlock() {
	unsent := f.unsent
	f.unsent = false
	f.mu.Unlock()
	if unsent {
		f.cfg.Outside.Trunk.Flush()
	}
}

// SetTrunk says that the machine at the far end of some cables is reached, or not any more. Where it was not, or is by
// a new way, the links go down.
func (f *Fabric) SetTrunk(cables []int, reached bool) {
	f.lock(f.Now())
	defer f.unlock()
	for _, c := range cables {
		p := f.outside[c]
		if p == nil {
			continue
		}
		p.outside.reached = reached
		if p.link.Phys() == ib.PhysLinkUp {
			p.link.Down(f.now)
			f.moved(p)
		}
		f.beginOutside(p, true)
	}
	f.reroute()
}

// HandleTrunk takes in what has come from the far end of a cable; Turn is to be called after the last of what has come
// together. An error says that no softib sends that.
func (f *Fabric) HandleTrunk(cable int, msg []byte) error {
	f.lock(f.Now())
	defer f.mu.Unlock()
	p := f.outside[cable]
	if p == nil || !p.outside.reached {
		return fmt.Errorf("live: cable %d does not lead to another machine: %w", cable, fabric.ErrMessage)
	}
	m, err := fabric.ParseMessage(msg, &f.pool)
	switch {
	case err != nil:
		p.link.Count(link.Malformed)
		return err
	case m.IsGreeting:
		f.greeted(p, m.Greeting)
	case m.Crossing.Frame != nil && !f.admits(cable, m.Crossing.Frame.Packet):
		p.link.Count(link.Forged)
		f.pool.Put(m.Crossing.Frame)
	case p.link.Phys() != ib.PhysLinkUp:
		if m.Crossing.Frame != nil { // of a link that is no more
			f.pool.Put(m.Crossing.Frame)
		}
	default:
		f.handleOutside(p, m.Crossing)
	}
	return nil
}

func (f *Fabric) admits(cable int, p *wire.Packet) bool {
	return f.cfg.Outside.Admits == nil || f.cfg.Outside.Admits(cable, p)
}

// fromOutside is the port at which a cable from another machine ends.
func (f *Fabric) fromOutside(in topo.PortRef) (*portState, error) {
	if p := f.port(in); p != nil && p.outside != nil {
		return p, nil
	}
	return nil, fmt.Errorf("live: no cable to another machine at %s: %w", f.graph.PortName(in), ErrFault)
}

// handleOutside has the engine take in a packet or credits.
func (f *Fabric) handleOutside(p *portState, c fabric.Crossing) {
	if fr := c.Frame; fr != nil && !fr.LRH.DLID.IsMulticast() {
		f.plane.flights[flightOf(fr.LRH.SLID, fr.LRH.DLID, blockOf(fr.Packet.BTH.DestQP))]++
	}
	c.Start = f.eng.Now()
	f.eng.HandleOutside(p.place(), c)
}

// Turn takes what has come from other machines as far as it goes, and sets under way what leaves for others. Whoever
// has received it does so itself: to wake the plane for it would take longer than all of it.
func (f *Fabric) Turn() {
	s := f.plane
	if s == nil {
		return
	}
	n, sleep, over := s.turn()
	for ; n == turnEvents && !over; n, sleep, over = s.turn() {
	}
	if over {
		return
	}
	// The plane has to be up for what is due next. For what is due soon it may be a little late.
	f.mu.Lock()
	defer f.mu.Unlock()
	wakes := ib.Time(s.wakes.Load())
	if s.page != nil && !s.page.Attended() && (wakes == 0 || sleep < wakes-f.now-dozeTime) {
		s.knock()
	}
}

// greeted is for what the far end of a cable says of itself. The fabric's lock is held.
func (f *Fabric) greeted(p *portState, g fabric.Greeting) {
	f.plane.drainOutside() // what is of the old link goes before what says so
	reply, tell, do := p.outside.Hear(g)
	if do == fabric.Fall {
		p.link.Down(f.now)
	}
	if tell {
		f.sendOutside(p, reply.AppendMessage(f.message[:0]))
	}
	if do == fabric.Raise {
		p.link.Train()
		f.eng.Advance(f.Now())
		f.eng.LinkUp(p.place(), reply.Rate.Lesser(g.Rate))
	}
	if do != fabric.Stay {
		f.moved(p)
		f.changed()
	}
}

// drainOutside hands what has left by cables to other machines to the trunk. The fabric's lock is held.
func (s *plane) drainOutside() (n int) {
	f := s.f
	for c, ok := f.eng.PollOutside(); ok; c, ok = f.eng.PollOutside() {
		p := f.port(f.eng.Ref(c.At))
		if p.outside.IsUp() {
			f.sendOutside(p, c.AppendMessage(f.message[:0]))
		}
		if c.Frame != nil {
			s.end(c.Frame)
		}
		n++
	}
	return n
}
