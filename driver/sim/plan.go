package sim

import (
	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/topo"
)

// plan is something that will be done at a time.
type plan struct {
	do  planKind
	ref topo.PortRef
	f   fabric.Faults
	d   ib.Time
}

type planKind uint8

const (
	planDown planKind = iota
	planUp
	planStop
	planFaults
	planReboot
	planMute
)

func (s *Sim) plan(t ib.Time, p plan) {
	s.plans = append(s.plans, p)
	s.Schedule(t, evFault, 0, uint32(len(s.plans)-1))
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

// PlanStop stops a node at t for good: its links go down and it answers nothing.
func (s *Sim) PlanStop(t ib.Time, node int) {
	s.plan(t, plan{do: planStop, ref: topo.PortRef{Node: node}})
}

// PlanFaults changes what a cable does to packets that leave a port, at t.
func (s *Sim) PlanFaults(t ib.Time, ref topo.PortRef, f fabric.Faults) {
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
	p := &s.plans[i]
	at := s.place(p.ref)
	switch p.do {
	case planDown, planUp:
		if s.PortAt(at).Site.Peer != fabric.NoEnd {
			down := p.do == planDown
			k := fabric.FaultLinkUp
			if down {
				k = fabric.FaultLinkDown
			}
			s.LogFault(k, at, nil)
			s.Pull(at, down)
		}
	case planStop:
		s.LogFault(fabric.FaultNodeStop, at, nil)
		if h := s.hostOf[p.ref.Node]; h >= 0 {
			s.hosts[h].stopped = true
		}
		s.Stop(p.ref.Node)
	case planFaults:
		s.SetFaults(p.ref, p.f)
	case planReboot:
		if s.Switch(p.ref.Node) != nil {
			s.LogFault(fabric.FaultReboot, at, nil)
			s.Reset(p.ref.Node)
			s.managers[p.ref.Node] = nil
		}
	case planMute:
		if s.mgmt.on {
			s.LogFault(fabric.FaultMute, at, nil)
			s.mgmt.mute[p.ref.Node] = s.Now() + p.d
		}
	}
}

// trained brings up the link of a cable that has trained, as fast as it can be and as both ends' managers let it.
func (s *Sim) trained(at uint32) {
	ends := [2]uint32{at, s.PortAt(at).Site.Peer}
	rate := s.cableRate(at)
	for _, i := range ends {
		site := &s.PortAt(i).Site
		if m := s.managers[site.Node]; m != nil {
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
			for q, ok := lot.pop(); ok; q, ok = lot.pop() {
				h.eng.Unpark(q)
			}
		}
	}
	s.pump(host)
}
