package sim

import (
	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/topo"
)

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

// PlanBreak makes a port tell its peer to stop for ever, from t on: an adapter that has gone wrong on Ethernet.
func (s *Sim) PlanBreak(t ib.Time, ref topo.PortRef, vl ib.VL) {
	s.plan(t, func() { s.Break(s.place(ref), vl) })
}

// PlanReboot makes a switch start anew at t: its links go down and train again, and it has forgotten all that managers
// wrote.
func (s *Sim) PlanReboot(t ib.Time, node int) {
	s.plan(t, func() {
		if s.Switch(node) != nil {
			s.LogFault(fabric.FaultReboot, s.Place(node, 0), nil)
			s.Reset(node)
			s.nodes[node].manager = nil
			s.resetPort0(node)
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
	if s.reductions != nil && p.State() != ib.PortActive {
		s.reductions.portDown(at)
	}
	if p.Site.Host < 0 {
		return
	}
	if rt := s.Router(int(p.Site.Node)); rt != nil {
		rt.Refresh()
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
