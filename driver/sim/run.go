package sim

import (
	"softib/fabric"
	"softib/proto/ib"
)

// WakeKind says why Next returned.
type WakeKind uint8

// Kinds of wake-up.
const (
	WakeLimit WakeKind = iota // the time that was asked for has come
	WakeIdle                  // nothing will ever happen again by itself
	WakeHost                  // a host has completions or asynchronous events
	WakeTimer                 // a timer set with At
)

// Wake is something that the workload asked to be told of.
type Wake struct {
	Kind WakeKind
	Host int
	ID   uint64
}

// later is what is to be done at a time: a call, or a report of id to the workload.
type later struct {
	do func()
	id uint64
}

// At sets a timer: Next reports id when t has come.
func (s *Sim) At(t ib.Time, id uint64) { s.later(t, later{id: id}) }

func (s *Sim) later(t ib.Time, l later) {
	slot := uint32(len(s.timers))
	if n := len(s.free); n > 0 {
		slot = s.free[n-1]
		s.free = s.free[:n-1]
		s.timers[slot] = l
	} else {
		s.timers = append(s.timers, l)
	}
	s.Schedule(t, evLater, 0, slot)
}

func (s *Sim) doLater(slot uint32) {
	l := s.timers[slot]
	s.timers[slot] = later{}
	s.free = append(s.free, slot)
	if l.do != nil {
		l.do()
	} else {
		s.wakes.Push(Wake{Kind: WakeTimer, ID: l.id})
	}
}

// arm has an event come at t, but not before least, unless the pending one, which comes at *at, is early enough.
func (s *Sim) arm(at *ib.Time, t, least ib.Time, k fabric.Kind, place, arg uint32) {
	if t < *at {
		*at = max(t, least)
		s.Schedule(*at, k, place, arg)
	}
}

// rings reports whether the event that has come is the pending one: an earlier may have taken its place and gone.
func (s *Sim) rings(at *ib.Time) bool {
	if *at > s.Now() {
		return false
	}
	*at = ib.Never
	return true
}

// Step lets the next event happen. It reports false when there is none.
func (s *Sim) Step() bool {
	s.drain()
	ok := s.Engine.Step()
	s.drain()
	return ok
}

// drain does what the engine leaves to its driver.
func (s *Sim) drain() {
	for n, ok := s.Poll(); ok; n, ok = s.Poll() {
		s.handle(n)
	}
}

func (s *Sim) handle(n fabric.Note) {
	switch n.Kind {
	case fabric.Arrived:
		s.accept(n.Place, s.Frame(n))
	case fabric.Room:
		if p := s.PortAt(n.Place); p.Site.Host >= 0 {
			s.hostRoom(p, ib.VL(n.Arg))
		} else {
			s.port0Room(p)
		}
	case fabric.Served:
		s.switchMgmt(int(s.PortAt(n.Place).Site.Node))
	case fabric.Trained:
		s.trained(n.Place)
	case fabric.Changed:
		s.portChanged(n.Place)
	case fabric.Refused:
		s.stir(int(s.PortAt(n.Place).Site.Node)) // an error may be worth a trap
	case evHost:
		s.hostTimeout(n.Place)
	case evLoop:
		s.arriveLoop(n.Place, ib.PortNum(n.Arg))
	case evSending:
		s.nicSending(n.Place)
	case evLeave:
		s.nicLeave(n.Place, s.Frame(n))
	case evReceiving:
		s.nicReceiving(n.Place)
	case evReady:
		s.nicReady(n.Place, s.Frame(n))
	case evLater:
		s.doLater(n.Arg)
	case evManager:
		s.managerTimeout(n.Place, n.Arg)
	case evAgent:
		s.agentTimeout(int(n.Place))
	case evPort0:
		s.arrivePort0(n.Place, s.Frame(n))
	case evPort0Timer:
		s.port0Timeout(int(n.Place))
	case evAggregate:
		s.reductions.timeout(int(n.Place))
	}
}

// Next runs until there is something for the workload, until has come, or
// nothing is left to happen. After WakeLimit, Now is until.
func (s *Sim) Next(until ib.Time) Wake {
	for {
		s.drain()
		if w, ok := s.wakes.Pop(); ok {
			if w.Kind == WakeHost {
				s.hosts[w.Host].waking = false
			}
			return w
		}
		if !s.Engine.Run(until) {
			break
		}
	}
	if s.Engine.Next() == ib.Never {
		return Wake{Kind: WakeIdle}
	}
	s.Advance(until)
	return Wake{Kind: WakeLimit}
}

// NothingLeft reports whether nothing will happen by itself, and Next has nothing to report.
func (s *Sim) NothingLeft() bool {
	s.drain()
	return s.wakes.Len() == 0 && s.Engine.Next() == ib.Never
}

// Run runs until the given time, whatever there is to report; reports are kept for Next.
func (s *Sim) Run(until ib.Time) {
	s.runTo(until)
	s.Advance(until)
}

func (s *Sim) runTo(t ib.Time) {
	for s.drain(); s.Engine.Run(t); s.drain() {
	}
}

// RunUntilIdle runs until nothing is left to happen, or limit has come. It reports whether the fabric is at rest.
func (s *Sim) RunUntilIdle(limit ib.Time) bool {
	s.runTo(limit)
	idle := s.Engine.Next() == ib.Never
	if !idle {
		s.Advance(limit)
	}
	return idle
}
