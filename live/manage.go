package live

import (
	"softib/agent"
	"softib/hca"
	"softib/ib"
	"softib/ibswitch"
	"softib/link"
	"softib/mad"
	"softib/sm"
	"softib/topo"
)

var _ sm.Fabric = (*Fabric)(nil)

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
	v := mad.View(req[:])
	if v.Class() == mad.ClassPerf {
		for _, h := range f.hosts {
			h.settle()
		}
	}
	set := v.Method() == mad.MethodSet && v.Class().IsSubnet()
	port := inPort
	if set && v.AttrID() == mad.AttrPortInfo && v.AttrMod()&0xFF != 0 {
		port = ib.PortNum(v.AttrMod())
	}
	peer, ok := f.serve(node, inPort, port, set, req, resp)
	if peer != nil {
		peer.syncPorts()
	}
	return ok
}

// serve lets the agent answer under the locks of its node. If the request made
// a link change its physical state, so does the far end; a host there is returned, to
// be told when the locks are free.
func (f *Fabric) serve(node int, inPort, port ib.PortNum, set bool, req, resp *[mad.Size]byte) (peer *Host, ok bool) {
	h, _ := f.nodes[node].(*Host)
	if h != nil {
		h.mu.Lock()
		defer h.LeaveQuiet()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.port(topo.PortRef{Node: node, Port: port})
	phys := ib.PhysNoChange
	if p != nil {
		phys = p.link.Phys()
	}
	_, ok = f.agents[node].HandleMAD(f.Now(), inPort, req[:], resp[:])
	if !set {
		return nil, ok
	}
	f.changed()
	if p == nil || p.peer == nil || p.link.Phys() == phys {
		return nil, ok
	}
	if p.peer.link.Phys() == ib.PhysLinkUp {
		p.peer.link.Down(f.Now())
	}
	if f.train(p) && h != nil {
		h.mgmt.Sync(port)
	}
	return p.peer.host, ok
}

// BringUp programs the fabric's tables and makes its links Active, through the
// agents of all nodes. It may be called again after links went down or up.
func (f *Fabric) BringUp() (sm.Report, error) {
	if f.closed.Load() {
		return sm.Report{}, ErrClosed
	}
	f.managing.Lock()
	defer f.managing.Unlock()
	return sm.BringUp(f.graph, f)
}

// CreateMulticast makes a multicast LID reach every cabled port of the given hosts, and
// no other. Queue pairs attach to the group by themselves.
func (f *Fabric) CreateMulticast(mlid ib.LID, hosts ...*Host) error {
	if f.closed.Load() {
		return ErrClosed
	}
	var members []topo.PortRef
	for _, h := range hosts {
		for p := 1; p < len(h.ports); p++ {
			if h.ports[p].peer != nil {
				members = append(members, topo.PortRef{Node: h.node.Index, Port: ib.PortNum(p)})
			}
		}
	}
	f.managing.Lock()
	defer f.managing.Unlock()
	return sm.ProgramMulticast(f.graph, f, mlid, members)
}
