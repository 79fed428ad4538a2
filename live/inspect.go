package live

import (
	"softib/ib"
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
