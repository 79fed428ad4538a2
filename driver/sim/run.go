package sim

import (
	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/topo"
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
		s.hostRoom(s.PortAt(n.Place), ib.VL(n.Arg))
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
	case evLater:
		s.doLater(n.Arg)
	case evManager:
		s.managerTimeout(n.Place, n.Arg)
	case evAgent:
		s.agentTimeout(int(n.Place))
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

// plan has something done at a time.
func (s *Sim) plan(t ib.Time, do func()) { s.later(t, later{do: do}) }

// PlanDown takes the cable at a port down at t, both ends.
func (s *Sim) PlanDown(t ib.Time, ref topo.PortRef) {
	s.plan(t, func() { s.Pull(s.place(ref), true) })
}

// PlanUp lets the cable at a port train again from t on.
func (s *Sim) PlanUp(t ib.Time, ref topo.PortRef) {
	s.plan(t, func() { s.Pull(s.place(ref), false) })
}

// PlanFlap takes a cable down at t and up again after d.
func (s *Sim) PlanFlap(t ib.Time, ref topo.PortRef, d ib.Time) {
	s.PlanDown(t, ref)
	s.PlanUp(t+d, ref)
}

// PlanStop stops a node at t for good: its links go down and it answers nothing.
func (s *Sim) PlanStop(t ib.Time, node int) {
	s.plan(t, func() {
		s.LogFault(fabric.FaultNodeStop, s.Place(node, 0), nil)
		if h := s.nodes[node].host; h >= 0 {
			s.hosts[h].stopped = true
		}
		s.Stop(node)
	})
}

// PlanFaults changes what a cable does to packets that leave a port, at t.
func (s *Sim) PlanFaults(t ib.Time, ref topo.PortRef, f fabric.Faults) {
	s.plan(t, func() { s.SetFaults(ref, f) })
}

// PlanReboot makes a switch start anew at t: its links go down and train again, and it has forgotten all that managers
// wrote.
func (s *Sim) PlanReboot(t ib.Time, node int) {
	s.plan(t, func() {
		if s.Switch(node) != nil {
			s.LogFault(fabric.FaultReboot, s.Place(node, 0), nil)
			s.Reset(node)
			s.nodes[node].manager = nil
		}
	})
}

// PlanMute makes the agent of a node do nothing for a while from t on: it answers nothing, passes no directed route on,
// and sends no trap. Forwarding goes on.
func (s *Sim) PlanMute(t ib.Time, node int, d ib.Time) {
	s.plan(t, func() {
		if s.managed {
			s.LogFault(fabric.FaultMute, s.Place(node, 0), nil)
			s.nodes[node].mute = s.Now() + d
		}
	})
}

// trained brings up the link of a cable that has trained, as fast as it can be and as both ends' managers let it.
func (s *Sim) trained(at uint32) {
	ends := [2]uint32{at, s.PortAt(at).Site.Peer}
	rate := s.cableRate(at)
	for _, i := range ends {
		site := &s.PortAt(i).Site
		if m := s.nodes[site.Node].manager; m != nil {
			if r := m.rates.TrainRate(site.Num); r.Mbps() > 0 && r.Mbps() < rate.Mbps() {
				rate = r
			}
		}
	}
	s.LinkUp(at, rate)
	for _, i := range ends {
		s.portChanged(i)
		if s.autoActive {
			s.activate(i)
		}
	}
}

// activate does what a subnet manager does last.
func (s *Sim) activate(at uint32) {
	p := s.PortAt(at)
	if p.State() == ib.PortInit {
		p.Command(s.Now(), ib.PortArmed)
	}
	if p.State() == ib.PortArmed {
		p.Command(s.Now(), ib.PortActive)
	}
	s.portChanged(at)
}

// portChanged tells the host's engine of its port's state.
func (s *Sim) portChanged(at uint32) {
	p := s.PortAt(at)
	s.stir(int(p.Site.Node))
	if p.Site.Host < 0 {
		return
	}
	host := uint32(p.Site.Host)
	h := &s.hosts[host]
	if a := adapterOf(h.eng); a != nil && a.Port(p.Site.Num) != nil {
		if v := *a.Port(p.Site.Num); v.State != p.State() {
			v.State, v.MTU = p.State(), p.NeighborMTU()
			a.SetPort(p.Site.Num, v)
		}
	}
	if p.State() != ib.PortActive {
		// Nothing leaves, so nobody may wait for room.
		for vl := range ib.NumVL {
			lot := s.lot(at, vl)
			for q, ok := lot.Pop(); ok; q, ok = lot.Pop() {
				h.eng.Unpark(q)
			}
		}
	}
	s.pump(host)
}
