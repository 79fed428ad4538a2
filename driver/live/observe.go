package live

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Epoch moves on whenever a table, a port's state or a key changes: whoever shows them can look here whether to look
// again.
func (f *Fabric) Epoch() uint64 { return f.epoch.Load() }

// Counters reads a port's counters, traffic by routes included; all are 0 for a port
// that does not exist.
func (f *Fabric) Counters(r topo.PortRef) ib.Counters { return f.CountersOf([]topo.PortRef{r})[0] }

// CountersOf is Counters for several ports; the fabric's accounts are settled once for all of them.
func (f *Fabric) CountersOf(refs []topo.PortRef) []ib.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleProcesses()
	all := make([]ib.Counters, len(refs))
	for i, r := range refs {
		p := f.port(r)
		if p == nil {
			continue
		}
		c := p.link.Counters()
		p.fold()
		if p.count != nil {
			for i := range c {
				c[i] += p.count[i]
			}
		}
		all[i] = c
	}
	return all
}

// GIDs is the table of addresses of a host's port.
func (f *Fabric) GIDs(ref topo.PortRef) []ib.GID {
	f.lock(f.Now())
	defer f.unlock()
	h, ok := f.nodes[ref.Node].(*Host)
	if !ok || f.port(ref) == nil {
		return nil
	}
	return slices.Clone(h.eng.Port(ref.Port).GIDs)
}
