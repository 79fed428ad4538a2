package live

import (
	"slices"

	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// PortState is how far a port's link is.
func (f *Fabric) PortState(r topo.PortRef) ib.PortState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.port(r); p != nil {
		return p.link.State()
	}
	return ib.PortDown
}

// HostTraffic sums up what all hosts have sent into the fabric: packets, and
// 4-byte words with headers. Asking every port in turn would settle the whole
// fabric's accounts for each of them.
func (f *Fabric) HostTraffic() (pkts, words uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleProcesses()
	for _, h := range f.hosts {
		for _, p := range h.ports[1:] {
			c := p.link.Counters()
			pkts += c[ib.PortXmitPkts] + p.counter(ib.PortXmitPkts)
			words += c[ib.PortXmitData] + p.counter(ib.PortXmitData)
		}
	}
	return pkts, words
}

// PortInfo is what the node of a port says of it, keys of management aside.
func (f *Fabric) PortInfo(ref topo.PortRef) (pi mad.PortInfo, ok bool) {
	f.lock(f.Now())
	defer f.unlock()
	p := f.port(ref)
	if p == nil {
		return pi, false
	}
	f.with(place{ref.Node, ref.Port, true}, func() {
		switch n := f.nodes[ref.Node].(type) {
		case *Host:
			pi = n.mgmt.PortInfo(ref.Port)
		case *switchNode:
			pi = n.mgmt.PortInfo(ref.Port)
		}
		pi.CapabilityMask = f.agents[ref.Node].Capability(ref.Port)
		pi.CapabilityMask2 = f.agents[ref.Node].Capability2(ref.Port)
	})
	return pi, true
}

// PKeys is a port's partition table up to its last key.
func (f *Fabric) PKeys(ref topo.PortRef) []ib.PKey {
	f.lock(f.Now())
	defer f.unlock()
	h, ok := f.nodes[ref.Node].(*Host)
	if !ok || f.port(ref) == nil {
		return nil
	}
	keys := slices.Clone(h.eng.Port(ref.Port).PKeys)
	for len(keys) > 0 && keys[len(keys)-1] == 0 {
		keys = keys[:len(keys)-1]
	}
	return keys
}

// What a switch holds, in the terms of those who ask.
type (
	SwitchTables = inspect.SwitchTables
	GroupPorts   = inspect.GroupPorts
)

// Tables reads the forwarding tables of a switch as they are, whoever wrote them. It is false for a node that is none.
func (f *Fabric) Tables(node int) (t SwitchTables, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.switchAt(node)
	if s == nil {
		return t, false
	}
	t.LID, t.LMC = s.engine.LID()
	t.LFT = make([]ib.PortNum, int(s.engine.Info().LinearFDBTop)+1)
	for l := range t.LFT {
		t.LFT[l] = s.engine.Route(ib.LID(l))
	}
	for l := ib.LIDMulticastMin; l <= ib.LIDMulticastMin+ib.LID(s.engine.Info().MulticastFDBCap) &&
		l <= ib.LIDMulticastMax; l++ {
		m := s.engine.MulticastPorts(l)
		if m.Empty() {
			continue
		}
		g := GroupPorts{MLID: l}
		for p, more := m.Pop(); more; p, more = m.Pop() {
			g.Ports = append(g.Ports, p)
		}
		t.Groups = append(t.Groups, g)
	}
	return t, true
}

// Lanes reads the lanes of service levels at a switch, by port of entry and port of exit: Lanes[in][out][SL]. In is 0
// for the switch's own packets. It is nil for a node that is no switch.
func (f *Fabric) Lanes(node int) [][][ib.NumSL]ib.VL {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.switchAt(node)
	if s == nil {
		return nil
	}
	lanes := make([][][ib.NumSL]ib.VL, len(s.ports))
	for in := range lanes {
		lanes[in] = make([][ib.NumSL]ib.VL, len(s.ports))
		for out := range lanes[in] {
			lanes[in][out] = s.engine.SL2VL(ib.PortNum(in), ib.PortNum(out))
		}
	}
	return lanes
}

// switchAt is a node that is a switch, or nil.
func (f *Fabric) switchAt(node int) *switchNode {
	if node < 0 || node >= len(f.nodes) {
		return nil
	}
	s, _ := f.nodes[node].(*switchNode)
	return s
}
