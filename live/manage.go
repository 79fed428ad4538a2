package live

import (
	"softib/agent"
	"softib/hca"
	"softib/ib"
	"softib/ibswitch"
	"softib/link"
	"softib/mad"
)

// hostView is a host as its agent sees it: the engines, with traffic by routes
// in the counters.
type hostView struct {
	*hca.Node
	h *Host
}

func (v hostView) ReadCounter(port ib.PortNum, c ib.Counter) uint64 {
	return v.Node.ReadCounter(port, c) + v.h.ports[port].count[c]
}

func (v hostView) ClearCounter(port ib.PortNum, c ib.Counter) {
	v.Node.ClearCounter(port, c)
	v.h.ports[port].count[c] = 0
}

// switchView is the same of a switch.
type switchView struct {
	*ibswitch.Node
	s *switchNode
}

func (v switchView) ReadCounter(port ib.PortNum, c ib.Counter) uint64 {
	return v.Node.ReadCounter(port, c) + v.s.ports[port].count[c]
}

func (v switchView) ClearCounter(port ib.PortNum, c ib.Counter) {
	v.Node.ClearCounter(port, c)
	v.s.ports[port].count[c] = 0
}

// manage makes the agents of all nodes.
func (f *Fabric) manage() {
	f.agents = make([]*agent.Agent, len(f.nodes))
	for i, n := range f.graph.Nodes {
		id := agent.Identity{
			Type: n.Type, GUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID, DeviceID: n.DeviceID, Desc: n.Desc,
		}
		rates := make([]ib.LinkRate, len(n.Ports))
		for p := range rates {
			rates[p] = n.Ports[p].Rate()
		}
		switch x := f.nodes[i].(type) {
		case *switchNode:
			x.mgmt = ibswitch.NewNode(x.engine, ibswitch.NodeConfig{Identity: id, PortGUID: n.PortGUID(0), Supported: rates})
			f.agents[i] = agent.New(switchView{x.mgmt, x})
		case *Host:
			links := make([]*link.Port, len(x.links))
			for p := 1; p < len(links); p++ {
				links[p] = &x.links[p]
			}
			x.mgmt = hca.NewNode(x.eng, links, hca.NodeConfig{Identity: id, Supported: rates})
			f.agents[i] = agent.New(hostView{x.mgmt, x})
		}
	}
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
	now := f.Now()
	for _, q := range [...]*portState{p, p.peer} {
		q.link.SetRate(rate)
		q.link.Train()
		q.link.LinkUp(now)
	}
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
	p := packet{data: *req, slid: ib.LIDPermissive, dlid: ib.LIDPermissive}
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

// settleAll attributes all traffic by routes to its ports. The fabric's lock is given up for it.
func (f *Fabric) settleAll() {
	f.mu.Unlock()
	for _, h := range f.hosts {
		h.settle()
	}
	f.mu.Lock()
}
