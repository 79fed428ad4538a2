package live

import (
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// hostView is a host as its agent sees it: the engines, with traffic by routes
// in the counters.
type hostView struct {
	*hca.Node
	h *Host
}

func (v hostView) ReadCounter(port ib.PortNum, c ib.Counter) uint64 {
	return v.Node.ReadCounter(port, c) + v.h.ports[port].counter(c)
}

func (v hostView) ClearCounter(port ib.PortNum, c ib.Counter) {
	v.Node.ClearCounter(port, c)
	v.h.ports[port].clear(c)
}

// switchView is the same of a switch.
type switchView struct {
	*ibswitch.Node
	s *switchNode
}

func (v switchView) ReadCounter(port ib.PortNum, c ib.Counter) uint64 {
	return v.Node.ReadCounter(port, c) + v.s.ports[port].counter(c)
}

func (v switchView) ClearCounter(port ib.PortNum, c ib.Counter) {
	v.Node.ClearCounter(port, c)
	v.s.ports[port].clear(c)
}

// manageSwitch makes a switch's agent.
func (f *Fabric) manageSwitch(s *switchNode) {
	id, rates := identity(s.node)
	s.mgmt = ibswitch.NewNode(s.engine, ibswitch.NodeConfig{Identity: id, PortGUID: s.node.PortGUID(0),
		Supported: rates})
	f.agents[s.node.Index] = agent.New(switchView{s.mgmt, s})
}

// manageHost makes a host's agent.
func (f *Fabric) manageHost(h *Host) {
	id, rates := identity(h.node)
	links := make([]*link.Port, len(h.links))
	for p := 1; p < len(links); p++ {
		links[p] = &h.links[p]
	}
	h.mgmt = hca.NewNode(h.eng, links, hca.NodeConfig{Identity: id, Supported: rates})
	f.agents[h.node.Index] = agent.New(hostView{h.mgmt, h})
}

// identity is what a node says of itself, and what its ports can do.
func identity(n *topo.Node) (agent.Identity, []ib.LinkRate) {
	rates := make([]ib.LinkRate, len(n.Ports))
	for p := range rates {
		rates[p] = n.Ports[p].Rate()
	}
	return agent.Identity{
		Type: n.Type, GUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID, DeviceID: n.DeviceID, Desc: n.Desc,
	}, rates
}

// train brings up the link at p where both ends poll and a cable joins them, at
// the best rate that both are allowed. The fabric's lock is held.
func (f *Fabric) train(p *portState) bool {
	if p.peer == nil || p.unplugged || p.link.Phys() != ib.PhysPolling || p.peer.link.Phys() != ib.PhysPolling {
		return false
	}
	rate, far := p.trainRate(), p.peer.trainRate()
	if far.Width.Lanes() < rate.Width.Lanes() {
		rate.Width = far.Width
	}
	rate.Speed = min(rate.Speed, far.Speed)
	p.link.Train()
	p.peer.link.Train()
	f.eng.Advance(f.Now())
	f.eng.LinkUp(p.place(), rate)
	return true
}

func (p *portState) trainRate() ib.LinkRate {
	if p.host != nil {
		return p.host.mgmt.TrainRate(p.num)
	}
	return p.sw.mgmt.TrainRate(p.num)
}

// SMP hands a management datagram to the agent of a node, as if it had come in by
// inPort (0: from the node itself). False means that there is no answer.
// Performance management goes the same way.
func (f *Fabric) SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) bool {
	if node < 0 || node >= len(f.nodes) || f.closed.Load() {
		return false
	}
	var p packet
	p.direct(req[:])
	at := place{node, inPort, inPort == 0}
	f.lock(f.Now())
	var ok bool
	if mad.View(req[:]).Class().IsSubnet() {
		ok = f.deliver(at, &p).Do != agent.Discard && mad.View(p.data[:]).Method().IsResponse()
	} else {
		ok = f.handle(at, &p)
	}
	f.unlock()
	*resp = p.data
	return ok
}
