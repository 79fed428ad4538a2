package live

import (
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Epoch moves on whenever a table, a port's state or a key changes: whoever shows them can look here whether to look
// again.
func (f *Fabric) Epoch() uint64 { return f.epoch.Load() }

// PortState is how far a port's link is.
func (f *Fabric) PortState(r topo.PortRef) ib.PortState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.port(r); p != nil {
		return p.link.State()
	}
	return ib.PortDown
}

// PortInfo is what the node of a port says of it, keys of management aside.
func (f *Fabric) PortInfo(ref topo.PortRef) (pi mad.PortInfo, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.port(ref)
	if p == nil {
		return pi, false
	}
	pi = p.mgmt.PortInfo(ref.Port)
	pi.CapabilityMask, pi.CapabilityMask2 = p.agent.Capability(ref.Port), p.agent.Capability2(ref.Port)
	if ref.Port != 0 {
		pi.Mlnx = p.mgmt.MlnxExtPortInfo(ref.Port)
	}
	return pi, true
}

// PKeys is a port's partition table up to its last key.
func (f *Fabric) PKeys(ref topo.PortRef) []ib.PKey {
	keys := f.written(ref).PKeys
	for len(keys) > 0 && keys[len(keys)-1] == 0 {
		keys = keys[:len(keys)-1]
	}
	return keys
}

// GIDs is the table of addresses of a host's port.
func (f *Fabric) GIDs(ref topo.PortRef) []ib.GID { return f.written(ref).GIDs }

// Tables reads the forwarding tables of a switch as they are, whoever wrote them. It is false for a node that is none.
func (f *Fabric) Tables(node int) (t inspect.SwitchTables, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(node)
	if n == nil || n.sw == nil {
		return t, false
	}
	t.LID, t.LMC = n.sw.LID()
	info := n.sw.Info()
	t.LFT = make([]ib.PortNum, int(info.LinearFDBTop)+1)
	for l := range t.LFT {
		t.LFT[l] = n.sw.Route(ib.LID(l))
	}
	for l := ib.LIDMulticastMin; l <= min(ib.LIDMulticastMin+ib.LID(info.MulticastFDBCap), ib.LIDMulticastMax); l++ {
		var ports []ib.PortNum
		m := n.sw.MulticastPorts(l)
		for p, more := m.Pop(); more; p, more = m.Pop() {
			ports = append(ports, p)
		}
		if ports != nil {
			t.Groups = append(t.Groups, inspect.GroupPorts{MLID: l, Ports: ports})
		}
	}
	return t, true
}

// Lanes reads the lanes of service levels at a switch, by port of entry and port of exit: Lanes[in][out][SL]. In is 0
// for the switch's own packets. It is nil for a node that is no switch.
func (f *Fabric) Lanes(node int) [][][ib.NumSL]ib.VL {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(node)
	if n == nil || n.sw == nil {
		return nil
	}
	lanes := make([][][ib.NumSL]ib.VL, len(n.ports))
	for in := range lanes {
		lanes[in] = make([][ib.NumSL]ib.VL, len(n.ports))
		for out := range lanes[in] {
			lanes[in][out] = n.sw.SL2VL(ib.PortNum(in), ib.PortNum(out))
		}
	}
	return lanes
}

// countMgmt counts a packet of management that a port sent or received.
func (p *portState) countMgmt(out bool, vl ib.VL, sl ib.SL) {
	p.link.AddTraffic(out, vl, sl&15, false, 1, mgmtWords)
}

// fold moves the packets of subnet management that hops have noted to the counters. Whoever looks at those folds first.
func (p *portState) fold() {
	if p.smpsOut|p.smpsIn == 0 {
		return
	}
	p.link.AddTraffic(true, ib.VLMgmt, 0, false, p.smpsOut, p.smpsOut*mgmtWords)
	p.link.AddTraffic(false, ib.VLMgmt, 0, false, p.smpsIn, p.smpsIn*mgmtWords)
	p.smpsOut, p.smpsIn = 0, 0
}

// fold does so for all ports of a node.
func (n *node) fold() {
	for _, p := range n.ports {
		if p != nil {
			p.fold()
		}
	}
}

// HostTraffic sums up what all hosts have sent into the fabric: packets, and 4-byte words with headers. Asking every
// port in turn would settle the whole fabric's accounts for each of them.
func (f *Fabric) HostTraffic() (pkts, words uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleProcesses()
	for _, h := range f.hosts {
		h.fold()
		for _, p := range h.ports[1:] {
			pkts += p.link.Counter(ib.PortXmitPkts)
			words += p.link.Counter(ib.PortXmitData)
		}
	}
	return pkts, words
}

// Counters reads a port's counters, traffic by routes included; all are 0 for a port that does not exist.
func (f *Fabric) Counters(r topo.PortRef) ib.Counters { return f.CountersOf([]topo.PortRef{r})[0] }

// CountersOf is Counters for several ports; the fabric's accounts are settled once for all of them.
func (f *Fabric) CountersOf(refs []topo.PortRef) []ib.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleProcesses()
	all := make([]ib.Counters, len(refs))
	for i, r := range refs {
		if p := f.port(r); p != nil {
			p.fold()
			all[i] = p.link.Counters()
		}
	}
	return all
}
