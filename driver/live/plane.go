package live

import (
	"sync/atomic"

	"softib/driver/endpoint"
	"softib/fabric"
	"softib/internal/cacheline"
	"softib/node/link"
	"softib/proto/ib"

	"golang.org/x/sys/unix"
)

// plane carries the packets of switched ways: it takes them from the rings of the processes that send, lets the
// fabric's engine move them over the cables and through the switches, and puts them into rings to the processes that
// receive. Packets of management that come to rest it hands to carry. It gives the engine the real clock; it owns the
// rings, the order between packets that went direct and those that did not, and what captures see.
//
// Everything here is guarded by the fabric's lock, but for run's own.
type plane struct {
	f      *Fabric
	pageFD int
	page   *endpoint.Page

	inlets  []*inlet
	outlets map[chanKey]*outlet
	// wakes is when run wakes by itself; 0 if that is not known.
	wakes atomic.Int64
	// stale: states or tables have changed, and ports may have given up packets.
	stale bool
	// turning: it handles events, whose time may be past.
	turning bool
	// flights counts the unicast packets under way, by where from and to.
	flights map[flight]int
	waiters []*waiter
}

// flight is what is known of a packet's ends wherever it is: LIDs, and the block that its queue pair is of. It is a
// number because each packet is looked up by it twice.
type flight uint64

func flightOf(slid, dlid ib.LID, block uint16) flight {
	return flight(slid)<<32 | flight(dlid)<<16 | flight(block)
}

func blockOf(qp ib.QPN) uint16 { return uint16(qp >> endpoint.BlockBits) }

const (
	// feedMax is how many packets of a lane wait in a host's port. The others wait in their ring.
	feedMax = 2
	// turnEvents bounds how long the fabric's lock is held.
	turnEvents = 256
	// holdMax is how long packets wait for those that went before them by another way.
	holdMax = 5 * ib.Millisecond
	// holdLook is how often the plane looks whether they still have to.
	holdLook = 100 * ib.Microsecond
	// dozeTime is how long the first sleep is; see endpoint.Page.Wait.
	dozeTime = ib.Millisecond
	// planeTurns is how many turns without work the plane waits before it sleeps.
	planeTurns = 16
	// napMin is the shortest sleep that is worth it: the kernel does not wake a thread sooner.
	napMin = 50 * ib.Microsecond
)

// startPlane makes the plane run, if it does not. The fabric's lock is held.
func (f *Fabric) startPlane() error {
	if f.plane != nil {
		return nil
	}
	s := &plane{f: f, outlets: map[chanKey]*outlet{}, flights: map[flight]int{}}
	var err error
	if s.pageFD, s.page, err = newSharedPage(); err != nil {
		return err
	}
	if !f.employ(s.run) { // which waits for the lock
		s.release()
		return ErrClosed
	}
	f.pool.BufSize = ib.MTU4096.Bytes() // nothing else has taken frames from it
	f.plane = s
	return nil
}

// release gives up what the plane is woken by. Programs of this process may knock there still.
func (s *plane) release() {
	unix.Close(s.pageFD)
	s.page, s.pageFD = nil, -1
}

// knock makes the plane look. The fabric's lock is held.
func (s *plane) knock() {
	if s != nil && s.page != nil {
		s.page.Knock()
	}
}

// leave gives up what the plane has when its fabric has closed. Only run does: it looks at the page all the time.
func (s *plane) leave() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.release()
	for _, i := range s.inlets {
		if i.c.from == nil {
			i.close()
		}
	}
}

// run carries packets until the fabric closes, and sleeps while there are none.
func (s *plane) run() {
	defer s.leave()
	empty, yields, dozed := planeTurns, 0, false
	for {
		n, next, over := s.turn()
		switch {
		case over:
			return
		case n > 0:
			empty, dozed = 0, false
			if !s.page.Attended() {
				s.page.Attend()
			}
			continue
		case yields < cacheline.YieldsMax && (empty < planeTurns && !dozed || next < napMin):
			empty++
			if cacheline.Yield() {
				yields++
			}
			continue
		}
		yields = 0
		// Nothing to do. Say so, then look once more.
		s.page.Rest()
		if n, next, over = s.turn(); over {
			return
		}
		if n == 0 {
			if !dozed {
				next = min(next, dozeTime)
			}
			if next < ib.Never-s.f.Now() {
				s.wakes.Store(int64(s.f.Now() + next))
			} else {
				s.wakes.Store(int64(ib.Never))
			}
			s.page.Wait(next)
			s.wakes.Store(0)
			dozed = !s.page.Attended()
		}
		if !dozed {
			s.page.Attend()
			empty = 0
		}
	}
}

// turn does one turn of everything. It returns how much there was, for how long there is nothing more, and whether it
// was the last.
func (s *plane) turn() (n int, sleep ib.Time, over bool) {
	s.f.lock(s.f.Now())
	defer s.f.unlock()
	if s.f.closed.Load() {
		return 0, 0, true
	}
	s.turning = true
	defer func() { s.turning = false }()
	eng, clock := s.f.eng, s.f.Now()
	for s.drain(); n < turnEvents && eng.Due(clock); s.drain() {
		eng.Step()
		n++
	}
	if n == turnEvents {
		s.drainOutside()
		s.answerWaiters()
		return n, 0, false
	}
	eng.Advance(clock)
	if s.stale {
		s.stale = false
		eng.Restate()
	}
	moved, look := s.pumpOutlets()
	n += moved
	moved, hold := s.pumpInlets()
	n += moved
	s.drain()
	n += s.drainOutside()
	s.answerWaiters()
	return n, min(look, hold, max(eng.Next()-clock, 0)), false
}

// The plane's own events.
const (
	evDepart = fabric.Own + iota // a packet of management, which was carried so far, is at a port
	evGiveUp                     // somebody has waited for long enough: the turn looks who
)

// drain does what the engine leaves to its driver.
func (s *plane) drain() {
	eng := s.f.eng
	for n, ok := eng.Poll(); ok; n, ok = eng.Poll() {
		if n.Kind == fabric.Ended {
			s.landed(flightOf(ib.LID(n.Place>>16), ib.LID(n.Place), blockOf(ib.QPN(n.Arg))))
			continue
		}
		p := s.f.port(eng.Ref(n.Place))
		switch n.Kind {
		case evDepart:
			fr := eng.Frame(n)
			fr.Arrived = eng.Now()
			eng.Send(n.Place, fr, fr.LRH.VL)
		case fabric.Arrived:
			s.arrived(p, eng.Frame(n))
		case fabric.Room:
			s.feed(p)
		case fabric.Served:
			s.served(p.node)
		case fabric.Refused:
			s.f.stir(p.node) // its agent may have to tell
		}
	}
}

// served takes in a packet that came for a switch itself. It has no queue pairs but QP0 and QP1.
func (s *plane) served(n *node) {
	m := s.f.eng.TakeMgmt(n.topo.Index)
	if m == nil {
		return
	}
	at := place{node: n, port: m.InPort}
	p, ok := unpack(m.Sync())
	if !ok && !m.LRH.DLID.IsMulticast() {
		n.ports[at.port].link.Count(link.UnknownDLID)
	}
	s.end(m)
	if ok {
		s.f.carry(at, &p, nil)
	}
}

// end gives back a packet that goes no further.
func (s *plane) end(f *link.Frame) {
	if f.IsFlight() {
		s.landed(flightOf(f.LRH.SLID, f.LRH.DLID, blockOf(f.Packet.BTH.DestQP)))
	}
	s.f.pool.Put(f)
}

// landed notes that a packet is not under way any more.
func (s *plane) landed(k flight) {
	if n := s.flights[k]; n > 1 {
		s.flights[k] = n - 1
	} else {
		delete(s.flights, k)
	}
}
