package live

import (
	"softib/proto/ib"
	"softib/proto/topo"
)

// countMgmt counts a packet of management that a port sent or received.
func (p *portState) countMgmt(out bool, vl ib.VL, sl ib.SL) {
	p.link.AddTraffic(out, vl, sl&15, false, 1, mgmtWords)
}

// fold moves the packets of subnet management that hops have noted to the counters. Whoever looks at those folds first.
func (p *portState) fold() {
	p.link.AddTraffic(true, ib.VLMgmt, 0, false, p.smpsOut, p.smpsOut*mgmtWords)
	p.link.AddTraffic(false, ib.VLMgmt, 0, false, p.smpsIn, p.smpsIn*mgmtWords)
	p.smpsOut, p.smpsIn = 0, 0
}

// fold does so for all ports of a node.
func (n *node) fold() {
	for _, p := range n.ports {
		if p != nil && p.smpsOut|p.smpsIn != 0 {
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
