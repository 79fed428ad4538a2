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
