package live

import (
	"sync"
	"sync/atomic"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

// Host is one adapter of the fabric: its ports, its agent and its counters. The queue pairs are in the engines of its
// programs (Process), wherever those run.
//
// A Host is a verbs.Device as well, that of a program in this process which is attached with the first call. Open gives
// others.
type Host struct {
	f     *Fabric
	node  *topo.Node
	index int
	ports []*portState // 0 is nil
	links []link.Port

	// Guarded by the fabric's lock.
	eng       *hca.HCA  // what management writes on the ports; it has no queue pairs
	mgmt      *hca.Node // the same, as management sees it
	procs     []*Process
	ways      map[*procRoute]*Process // that end here
	lastBlock uint16
	totals    hostTotals

	dev     atomic.Pointer[Device]
	opening sync.Mutex // taken before all others
}

func newHost(f *Fabric, n *topo.Node, index int) *Host {
	h := &Host{f: f, node: n, index: index, links: link.NewPorts(n.NumPorts()+1, portConfig())}
	h.ports = newPorts(n.NumPorts()+1, portState{host: h})
	h.ports[0] = nil
	for p := 1; p <= n.NumPorts(); p++ {
		h.ports[p].link = &h.links[p]
	}
	h.eng = hca.New(h.config())
	return h
}

// config is that of an engine of the adapter.
func (h *Host) config() hca.Config {
	guids := make([]ib.GUID, h.node.NumPorts())
	for p := range guids {
		guids[p] = h.node.PortGUID(ib.PortNum(p + 1))
	}
	return hca.Config{NodeGUID: h.node.GUID, Ports: len(guids), PortGUID: guids, Limits: h.f.cfg.Limits}
}

// Name is the host's name, such as h1.
func (h *Host) Name() string { return h.node.Name }

// Fabric is what the host is part of.
func (h *Host) Fabric() *Fabric { return h.f }

// Node is the host in the fabric's graph.
func (h *Host) Node() *topo.Node { return h.node }

// Port is one of the adapter's ports as management has it now; all is zero for one that does not exist.
func (h *Host) Port(n ib.PortNum) hca.Port {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.port(n)
}

// syncPorts tells the engine the state of its ports' links. The fabric's lock is held.
func (h *Host) syncPorts() {
	for n := 1; n < len(h.ports); n++ {
		p := *h.eng.Port(ib.PortNum(n))
		p.State = h.ports[n].link.State()
		p.MTU = h.ports[n].link.NeighborMTU()
		h.eng.SetPort(ib.PortNum(n), p)
	}
	h.passOn()
}

// passOn tells the programs what has become of their ports. The fabric's lock is held.
func (h *Host) passOn() {
	for e, ok := h.eng.PollEvent(); ok; e, ok = h.eng.PollEvent() {
		for _, p := range h.procs {
			switch {
			case e.Port == 0:
			case e.Type == hca.EventClientReregister:
				p.tell(Note{Rejoin: e.Port})
			default:
				p.tell(Note{Port: e.Port})
			}
		}
	}
}

var _ verbs.Device = (*Host)(nil)
var _ endpoint.Router = (*Device)(nil)
