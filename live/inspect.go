package live

import (
	"slices"

	"softib/ib"
	"softib/mad"
	"softib/topo"
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
	for _, h := range f.hosts {
		h.settle()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		for _, p := range h.ports[1:] {
			c := p.link.Counters()
			pkts += c[ib.PortXmitPkts] + p.count[ib.PortXmitPkts]
			words += c[ib.PortXmitData] + p.count[ib.PortXmitData]
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
