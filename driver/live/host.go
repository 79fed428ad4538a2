package live

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"softib/node/hca"
	"softib/node/ibrouter"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	routing "softib/subnet/route"
	"softib/verbs"
)

// Host is one adapter of the fabric: its ports, its agent and its counters. The queue pairs are in the engines of its
// programs (Process), wherever those run. Device and Open are for programs in this one. A router's ports are as those
// of a host that has no programs, and is not among the fabric's Hosts.
type Host struct {
	node
	f     *Fabric
	index int
	links []*link.Port

	// Guarded by the fabric's lock.
	eng       *hca.HCA  // what management writes on the ports; it has no queue pairs
	adapter   *hca.Node // the same, as management sees it
	procs     []*Process
	ways      map[*procRoute]bool // that end here
	lastBlock uint16
	totals    inspect.HostStats // what is kept of programs, and of those that have ended
	attached  bool              // there was a program, ever

	dev     *Device
	opening sync.Once // makes dev
}

func newHost(f *Fabric, t *topo.Node, index int) *Host {
	h := &Host{f: f, index: index, node: node{topo: t}, ways: map[*procRoute]bool{}}
	h.host = h
	links := link.NewPorts(len(t.Ports), link.Config{})
	for p := range links {
		h.links = append(h.links, &links[p])
	}
	h.eng = hca.New(h.config())
	id, rates := identity(f.graph, t)
	h.adapter = hca.NewNode(h.eng, h.links, hca.NodeConfig{Identity: id, Supported: rates})
	var mgmt manageable = h.adapter
	if t.Type == ib.NodeRouter {
		h.rt = ibrouter.New(h.links, t.PortGUIDs(), &f.pool)
		mgmt = ibrouter.NewNode(h.adapter, h.rt)
	}
	h.init(func(p ib.PortNum) *link.Port { return h.links[p] }, mgmt)
	return h
}

// config is that of an engine of the adapter.
func (h *Host) config() hca.Config {
	t := h.topo
	return hca.Config{NodeGUID: t.GUID, Ports: t.NumPorts(), PortGUID: t.PortGUIDs(), Limits: h.f.cfg.Limits,
		Reorder: h.Reorder()}
}

// reorder is how many packets of a queue pair adapters keep until it is their turn, where switches choose: more than
// the buffers of the longest way hold.
const reorder = 512

// Reorder is hca.Config.Reorder of the host's adapter.
func (h *Host) Reorder() int {
	if h.f.cfg.Adaptive == routing.NoChoice {
		return 0
	}
	return reorder
}

// Name is the host's name, such as h1.
func (h *Host) Name() string { return h.topo.Name }

// Node is the host in the fabric's graph.
func (h *Host) Node() *topo.Node { return h.topo }

// Port is one of the adapter's ports as management has it now; all is zero for one that does not exist.
func (h *Host) Port(n ib.PortNum) hca.Port {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.written(n)
}

// written is what management has written on a port. The fabric's lock is held.
func (h *Host) written(n ib.PortNum) hca.Port {
	p := h.eng.Port(n)
	if p == nil {
		return hca.Port{}
	}
	cp := *p
	cp.GIDs, cp.PKeys = slices.Clone(p.GIDs), slices.Clone(p.PKeys)
	if f := h.ports[n].fault; f != nil {
		cp.CableRate = f.Rate
	}
	return cp
}

// written is the same of a host's port of the graph; all is zero for any other.
func (f *Fabric) written(r topo.PortRef) hca.Port {
	if n := f.node(r.Node); n != nil && n.host != nil {
		return n.host.Port(r.Port)
	}
	return hca.Port{}
}

// syncPorts tells the engine the state of its ports' links. The fabric's lock is held.
func (h *Host) syncPorts() {
	for n := 1; n < len(h.ports); n++ {
		h.adapter.Sync(ib.PortNum(n))
	}
	h.passOn()
}

// passOn tells the programs of a node that is a host what has become of their ports. The fabric's lock is held.
func (n *node) passOn() {
	h := n.host
	if h == nil {
		return
	}
	for e, ok := h.eng.PollEvent(); ok; e, ok = h.eng.PollEvent() {
		switch {
		case e.Port == 0:
		case e.Type == hca.EventClientReregister:
			for _, p := range h.procs {
				p.tell(Note{Rejoin: e.Port})
			}
		default:
			h.tellPort(e.Port)
		}
	}
}

// tellPort tells the host's programs that a port is not what it was. The fabric's lock is held.
func (h *Host) tellPort(n ib.PortNum) {
	for _, p := range h.procs {
		p.news[n].told++
		p.tellOrigin()
		p.tell(Note{Port: n})
	}
}

var _ verbs.Device = (*Device)(nil)

// Hosts have addresses that rdma_cm programs use; no interface of the machine needs to have them. IPv4 ones are from
// the block that is set aside for benchmarks (RFC 2544), IPv6 ones from a unique local prefix (RFC 4193) that spells
// softib.
var (
	hostNet  = netip.MustParsePrefix("198.18.0.0/15")
	hostNet6 = netip.MustParsePrefix("fd53:6f66:7469:6200::/64")
)

// HostIP is the IPv4 address of host number i of any fabric, counted from 1 in the graph's order.
func HostIP(i int) netip.Addr {
	b := hostNet.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
	return netip.AddrFrom4(b)
}

// HostIP6 is its IPv6 address.
func HostIP6(i int) netip.Addr {
	b := hostNet6.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	return netip.AddrFrom16(b)
}

// HostByIP finds the host that has an address of either family.
func (f *Fabric) HostByIP(a netip.Addr) (*Host, bool) {
	var number uint64 // from 1 on
	switch a = a.WithZone("").Unmap(); {
	case hostNet.Contains(a):
		b, first := a.As4(), hostNet.Addr().As4()
		number = uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(first[:]))
	case hostNet6.Contains(a):
		b := a.As16()
		number = binary.BigEndian.Uint64(b[8:])
	}
	if number == 0 || number > uint64(len(f.hosts)) {
		return nil, false
	}
	return f.hosts[number-1], true
}

// IP is the host's IPv4 address.
func (h *Host) IP() netip.Addr { return HostIP(h.index + 1) }

// IP6 is its IPv6 address.
func (h *Host) IP6() netip.Addr { return HostIP6(h.index + 1) }
