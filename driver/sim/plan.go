package sim

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
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

// PlanReboot makes a switch start anew at t: its links go down and train again, and it has
// forgotten all that managers wrote.
func (s *Sim) PlanReboot(t ib.Time, node int) {
	s.plan(t, plan{do: planReboot, ref: topo.PortRef{Node: node}})
}

// PlanMute makes the agent of a node do nothing for a while from t on: it answers nothing, passes
// no directed route on, and sends no trap. Forwarding goes on.
func (s *Sim) PlanMute(t ib.Time, node int, d ib.Time) {
	s.plan(t, plan{do: planMute, ref: topo.PortRef{Node: node}, d: d})
}

// planned does what was planned.
func (s *Sim) planned(i uint32) {
	p := &s.faults.plans[i]
	at := s.firstEnd[p.ref.Node] + uint32(p.ref.Port)
	switch p.do {
	case planDown:
		if s.ports[at].Site.Peer != noEnd {
			s.logFault(FaultLinkDown, at, nil)
			s.pull(at, true)
		}
	case planUp:
		if s.ports[at].Site.Peer != noEnd {
			s.logFault(FaultLinkUp, at, nil)
			s.pull(at, false)
			s.startTraining(at)
		}
	case planStop:
		s.logFault(FaultNodeStop, at, nil)
		s.stopNode(p.ref.Node)
	case planFaults:
		s.SetFaults(p.ref, p.f)
	case planReboot:
		s.reboot(p.ref.Node)
	case planMute:
		if s.mgmt.on {
			s.logFault(FaultMute, at, nil)
			s.mgmt.mute[p.ref.Node] = s.now + p.d
		}
	}
}

// pull takes a cable out, or plugs it in again.
func (s *Sim) pull(at uint32, out bool) {
	if s.faults.down == nil {
		s.faults.down = make(map[uint32]bool)
	}
	peer := s.ports[at].Site.Peer
	s.faults.down[at], s.faults.down[peer] = out, out
	if out {
		s.linkDown(at)
	}
}

// linkDown takes both ends of a cable down; what flies on it is lost.
func (s *Sim) linkDown(at uint32) {
	for _, i := range [2]uint32{at, s.ports[at].Site.Peer} {
		p := s.ports[i]
		if isUp(p) {
			p.Down(s.now)
		}
		s.flush(i, p)
		s.portChanged(i)
	}
	s.loseInFlight(at, s.ports[at].Site.Peer)
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
			from := s.ports[uint32(ev.d>>32)&0xFFFFFF].Site.Peer
			s.logFault(FaultLostInFlight, from, f)
			if s.cfg.Sink != nil {
				s.traceDrop(from, f, trace.LinkDown)
			}
			s.pool.Put(f)
		}
	}
}

// startTraining has both ends train if both can.
func (s *Sim) startTraining(at uint32) {
	a := s.ports[at]
	b := s.ports[a.Site.Peer]
	if (a.Site.Flags|b.Site.Flags)&endStopped != 0 || s.faults.down[at] ||
		a.Phys() != ib.PhysPolling || b.Phys() != ib.PhysPolling {
		return
	}
	a.Train()
	b.Train()
	s.q.push(s.now+s.cfg.TrainTime, code(evTrain, at, 0))
}

// trained ends training at both ends.
func (s *Sim) trained(at uint32) {
	ends := [2]uint32{at, s.ports[at].Site.Peer}
	for _, i := range ends {
		if s.ports[i].Phys() != ib.PhysTraining {
			return // it went down meanwhile
		}
	}
	s.settleRate(at)
	for _, i := range ends {
		s.ports[i].LinkUp(s.now)
		s.portChanged(i)
	}
	for _, i := range ends {
		s.ports[i].SetRefresh(s.now, s.cfg.AlwaysRefresh)
		s.armRefresh(i)
		s.kick(i)
		if s.autoActive {
			s.activate(i)
		}
	}
}

// settleRate makes a cable as fast as it can be and as both ends' managers let it.
func (s *Sim) settleRate(at uint32) {
	p := s.ports[at]
	rate := s.cableRate(at)
	for _, i := range [2]uint32{at, p.Site.Peer} {
		site := &s.ports[i].Site
		if m := s.managers[site.Node]; m != nil {
			if r := m.rates.TrainRate(site.Num); r.Mbps() > 0 && r.Mbps() < rate.Mbps() {
				rate = r
			}
		}
	}
	if rate == p.Rate() {
		return
	}
	for _, i := range [2]uint32{at, p.Site.Peer} {
		s.ports[i].SetRate(rate)
	}
	s.timing(int(p.Site.Node))
	s.timing(int(s.ports[p.Site.Peer].Site.Node))
}

// activate does what a subnet manager does last.
func (s *Sim) activate(at uint32) {
	p := s.ports[at]
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
		p := s.ports[at]
		if p.Site.Peer != noEnd && p.State() > ib.PortDown {
			s.linkDown(at)
		}
		p.Site.Flags |= endStopped
	}
}

// reboot starts a switch anew.
func (s *Sim) reboot(node int) {
	sw := s.switches[node]
	if sw == nil {
		return
	}
	first := s.firstEnd[node]
	s.logFault(FaultReboot, first, nil)
	for num := 1; num < len(s.graph.Nodes[node].Ports); num++ {
		if at := first + uint32(num); s.ports[at].Site.Peer != noEnd && isUp(s.ports[at]) {
			s.linkDown(at)
		}
	}
	for f := sw.PollMgmt(); f != nil; f = sw.PollMgmt() {
		sw.Left(f)
		s.drop(first, f, link.NotReady)
	}
	sw.Reset()
	s.managers[node] = nil
	for num := 1; num < len(s.graph.Nodes[node].Ports); num++ {
		if at := first + uint32(num); s.ports[at].Site.Peer != noEnd {
			s.startTraining(at)
		}
	}
}

// portChanged tells the host's engine of its port's state.
func (s *Sim) portChanged(at uint32) {
	p := s.ports[at]
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
			for q, ok := lot.pop(); ok; q, ok = lot.pop() {
				h.eng.Unpark(q)
			}
		}
	}
	s.pump(host)
}
