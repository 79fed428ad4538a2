package sim

import (
	"softib/hca"
	"softib/ib"
	"softib/topo"
)

func (s *Sim) plan(t ib.Time, p plan) {
	s.faults.plans = append(s.faults.plans, p)
	s.q.push(max(t, s.now), code(evFault, 0, uint32(len(s.faults.plans)-1)))
}

// PlanDown takes the cable at a port down at t, both ends.
func (s *Sim) PlanDown(t ib.Time, ref topo.PortRef) { s.plan(t, plan{do: planDown, ref: ref}) }

// PlanUp lets the cable at a port train again from t on.
func (s *Sim) PlanUp(t ib.Time, ref topo.PortRef) { s.plan(t, plan{do: planUp, ref: ref}) }

// PlanFlap takes a cable down at t and up again after d.
func (s *Sim) PlanFlap(t ib.Time, ref topo.PortRef, d ib.Time) {
	s.PlanDown(t, ref)
	s.PlanUp(t+d, ref)
}

// PlanStop stops a node at t for good: its links go down and it answers
// nothing.
func (s *Sim) PlanStop(t ib.Time, node int) {
	s.plan(t, plan{do: planStop, ref: topo.PortRef{Node: node}})
}

// PlanFaults changes what a cable does to packets that leave a port, at t.
func (s *Sim) PlanFaults(t ib.Time, ref topo.PortRef, f Faults) {
	s.plan(t, plan{do: planFaults, ref: ref, f: f})
}

// planned does what was planned.
func (s *Sim) planned(i uint32) {
	p := &s.faults.plans[i]
	at := s.firstEnd[p.ref.Node] + uint32(p.ref.Port)
	switch p.do {
	case planDown:
		if s.ends[at].peer != noEnd {
			s.logFault(FaultLinkDown, at, nil)
			s.pull(at, true)
		}
	case planUp:
		if s.ends[at].peer != noEnd {
			s.logFault(FaultLinkUp, at, nil)
			s.pull(at, false)
			s.startTraining(at)
		}
	case planStop:
		s.logFault(FaultNodeStop, at, nil)
		s.stopNode(p.ref.Node)
	case planFaults:
		s.SetFaults(p.ref, p.f)
	}
}

// pull takes a cable out, or plugs it in again.
func (s *Sim) pull(at uint32, out bool) {
	if s.faults.down == nil {
		s.faults.down = make(map[uint32]bool)
	}
	peer := s.ends[at].peer
	s.faults.down[at], s.faults.down[peer] = out, out
	if out {
		s.linkDown(at)
	}
}

// linkDown takes both ends of a cable down; what flies on it is lost.
func (s *Sim) linkDown(at uint32) {
	for _, i := range [2]uint32{at, s.ends[at].peer} {
		e := &s.ends[i]
		e.port.Down(s.now)
		s.flush(i, e)
		s.portChanged(i)
	}
	s.loseInFlight(at, s.ends[at].peer)
}

// loseInFlight takes what flies towards either end of a cable out of the queue.
func (s *Sim) loseInFlight(a, b uint32) {
	for _, ev := range s.q.cancel(func(d uint64) bool {
		place := uint32(d>>32) & 0xFFFFFF
		k := kind(d >> 56)
		return (place == a || place == b) && (k == evArrive || k == evFC)
	}) {
		if kind(ev.d>>56) == evArrive {
			f := s.pool.At(uint32(ev.d))
			s.logFault(FaultLostInFlight, s.ends[uint32(ev.d>>32)&0xFFFFFF].peer, f)
			s.pool.Put(f)
		}
	}
}

// LinkBounce lets a link that management took down or that lost its peer train
// again, as hardware does by itself.
func (s *Sim) LinkBounce(ref topo.PortRef) {
	at := s.firstEnd[ref.Node] + uint32(ref.Port)
	if s.ends[at].peer != noEnd {
		s.linkDown(at)
		s.startTraining(at)
	}
}

// startTraining has both ends train if both can.
func (s *Sim) startTraining(at uint32) {
	a, b := &s.ends[at], &s.ends[s.ends[at].peer]
	if (a.flags|b.flags)&endStopped != 0 || s.faults.down[at] ||
		a.port.Phys() != ib.PhysPolling || b.port.Phys() != ib.PhysPolling {
		return
	}
	a.port.Train()
	b.port.Train()
	s.q.push(s.now+s.cfg.TrainTime, code(evTrain, at, 0))
}

// trained ends training at both ends.
func (s *Sim) trained(at uint32) {
	ends := [2]uint32{at, s.ends[at].peer}
	for _, i := range ends {
		if s.ends[i].port.Phys() != ib.PhysTraining {
			return // it went down meanwhile
		}
	}
	for _, i := range ends {
		s.ends[i].port.LinkUp(s.now)
		s.portChanged(i)
	}
	for _, i := range ends {
		s.ends[i].port.SetRefresh(s.now, s.cfg.AlwaysRefresh)
		s.armRefresh(i)
		s.kick(i)
		if s.autoActive {
			s.activate(i)
		}
	}
}

// activate does what a subnet manager does last.
func (s *Sim) activate(at uint32) {
	p := s.ends[at].port
	if p.State() == ib.PortInit {
		p.Command(s.now, ib.PortArmed)
	}
	if p.State() == ib.PortArmed {
		p.Command(s.now, ib.PortActive)
	}
	s.portChanged(at)
}

// stopNode ends a node: nothing goes in or out any more.
func (s *Sim) stopNode(node int) {
	n := s.graph.Nodes[node]
	if h := s.hostOf[node]; h >= 0 {
		s.hosts[h].stopped = true
	}
	for num := range n.Ports {
		at := s.firstEnd[node] + uint32(num)
		e := &s.ends[at]
		if e.peer != noEnd && e.port.State() > ib.PortDown {
			s.linkDown(at)
		}
		e.flags |= endStopped
	}
}

// portChanged tells the host's engine of its port's state.
func (s *Sim) portChanged(at uint32) {
	e := &s.ends[at]
	if e.sw != nil {
		return
	}
	host := uint32(s.hostOf[e.node])
	h := &s.hosts[host]
	if a, ok := h.eng.(*hca.HCA); ok && a.Port(e.num) != nil {
		p := *a.Port(e.num)
		if p.State != e.port.State() {
			p.State = e.port.State()
			p.MTU = e.port.NeighborMTU()
			a.SetPort(e.num, p)
		}
	}
	if e.port.State() != ib.PortActive {
		// Nothing leaves, so nobody may wait for room.
		for vl := range ib.NumVL {
			lot := &h.parked[int(e.num)*lanes+vl]
			for q, ok := lot.pop(); ok; q, ok = lot.pop() {
				h.eng.Unpark(q)
			}
		}
	}
	s.pump(host)
}
