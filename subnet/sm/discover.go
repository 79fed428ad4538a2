package sm

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// probe is something that discovery wants to know.
type probe struct {
	what what
	node int32
	port ib.PortNum
	try  int32 // keys that did not open it
}

func (s *sweep) push(p probe) { s.work = append(s.work, p) }

// beginDiscovery starts at the manager's own port, unless some switches are to be looked at.
func (s *sweep) beginDiscovery() {
	if !s.full {
		return
	}
	s.byGUID = map[ib.GUID]int32{}
	s.self = subnet.Ref{Node: subnet.None}
	s.push(probe{askSelf, subnet.None, 0, 0})
}

// nextProbe sends what is next in the queue.
func (s *sweep) nextProbe(r *request) bool {
	for s.at < len(s.work) {
		p := s.work[s.at]
		s.at++
		if s.at == len(s.work) {
			s.work, s.at = s.work[:0], 0
		}
		*r = request{what: p.what, node: p.node, port: p.port, extra: p.try}
		switch p.what {
		case askSelf:
			r.attr = mad.AttrNodeInfo
			key, _ := s.knownKey(s.m.guid, int(p.try))
			s.m.directed(r, nil, key)
			return true
		case askNeighbor:
			path := s.pathTo(p.node, p.port)
			if len(path) >= mad.MaxHops {
				s.problem("%s: port %d leads further than the %d hops that a directed route has", s.name(p.node),
					p.port, mad.MaxHops)
				continue
			}
			r.attr = mad.AttrNodeInfo
			s.scratch = append(append(s.scratch[:0], path...), p.port)
			s.m.directed(r, s.scratch, s.neighborKey(p.node, p.port, int(p.try)))
			return true
		case askDesc:
			r.attr = mad.AttrNodeDescription
			r.port = s.anyPort(p.node)
		case askSwitch:
			r.attr = mad.AttrSwitchInfo
		case askPort:
			r.attr, r.mod = mad.AttrPortInfo, uint32(p.port)
		case askMlnx:
			r.attr, r.mod = mad.AttrMlnxExtPortInfo, uint32(p.port)
		case askManager:
			r.attr = mad.AttrSMInfo
		}
		s.smp(r)
		return true
	}
	return false
}

// anyPort is a port by which a node can be reached.
func (s *sweep) anyPort(i int32) ib.PortNum {
	n := s.nodes[i]
	if n.IsSwitch() || i == s.self.Node {
		return s.self.Port
	}
	for p := 1; p < len(n.Ports); p++ {
		if n.Ports[p].Up() {
			return ib.PortNum(p)
		}
	}
	return 1
}

// probed takes what a probe has found.
func (s *sweep) probed(r *request, v mad.View) {
	if v == nil && s.withoutKey(r) {
		return
	}
	if v == nil || v.Status() != mad.StatusOK {
		s.unanswered(r, v)
		return
	}
	if r.what == askDesc || r.what == askSwitch {
		s.opened(r, s.guidOf(r.node, r.port))
	}
	data := v[mad.SMPDataOff:][:mad.SMPDataLen]
	switch r.what {
	case askSelf, askNeighbor:
		s.foundNode(r, data)
	case askDesc:
		var d mad.NodeDescription
		if _, err := d.Parse(data); err == nil {
			if text := d.String(); s.nodes[r.node].Desc != text {
				s.edit(r.node).Desc = text
			}
		}
	case askSwitch:
		var si mad.SwitchInfo
		if _, err := si.Parse(data); err == nil {
			s.edit(r.node).Switch = si
		}
	case askPort:
		s.foundPort(r, data)
	case askMlnx:
		_, _ = s.edit(r.node).Ports[r.port].Info.Mlnx.Parse(data) // what is too short says nothing
	case askManager:
		s.foundManager(r.node, r.port, data)
	}
}

// unanswered says what is missing. What was not answered is treated as not there.
func (s *sweep) unanswered(r *request, v mad.View) {
	switch {
	case r.what == askSelf:
		s.m.event(EventProblem,
			"the manager's own port does not answer: is the device there, and does it have another M_Key?")
		s.m.want(s.m.retryAt(0), "own port did not answer")
		s.abandon = true
	case r.what == askNeighbor:
		s.silent++
		s.unlink(r.node, r.port)
		s.problem("%s: port %d has a link, but what is behind it does not answer: it is dead, or guarded by "+
			"an M_Key that this manager does not know", s.name(r.node), r.port)
	case r.what == askManager:
		// A manager that does not answer is no rival.
	case r.what == askMlnx:
		// Nobody has to answer what the standard does not have.
	case !s.full && v == nil:
		// The way to it may be broken where nobody has looked yet: only a full sweep can tell.
		s.m.want(s.m.now, s.name(r.node)+" did not answer")
		s.abandon = true
	default:
		s.answered(r, v)
		if r.what == askPort {
			if p := &s.edit(r.node).Ports[r.port]; p.Info.PortState > ib.PortDown {
				p.Info.PortState = ib.PortDown
			}
			s.unlink(r.node, r.port)
		}
	}
}

// unlink forgets the cable at a port, from this side.
func (s *sweep) unlink(node int32, port ib.PortNum) {
	if s.nodes[node].Ports[port].Peer != subnet.None {
		s.edit(node).Ports[port].Peer = subnet.None
	}
}

// foundNode takes the NodeInfo at the manager's own node or behind a port.
func (s *sweep) foundNode(r *request, data []byte) {
	var info mad.NodeInfo
	if _, err := info.Parse(data); err != nil {
		return
	}
	if why := info.Nonsense(); why != "" {
		s.silent++
		if r.what == askNeighbor {
			s.unlink(r.node, r.port)
			s.problem("%s: behind port %d a node answers nonsense: %s", s.name(r.node), r.port, why)
		} else {
			s.problem("the manager's own node answers nonsense: %s", why)
			s.m.want(s.m.retryAt(0), "the manager's own node answered nonsense")
			s.abandon = true
		}
		return
	}
	s.opened(r, info.PortGUID)
	i, old := s.byGUID[info.NodeGUID]
	if old && (s.nodes[i].Info.NodeType != info.NodeType || s.nodes[i].Info.NumPorts != info.NumPorts) {
		s.silent++
		s.problem("duplicate GUID %v: a %v with %d ports and a %v with %d ports; the second, behind port %d "+
			"of %s, is left out",
			info.NodeGUID, s.nodes[i].Info.NodeType, s.nodes[i].Info.NumPorts, info.NodeType, info.NumPorts, r.port,
			s.name(r.node))
		s.twin(info.NodeGUID, r.node, r.port)
		s.unlink(r.node, r.port)
		return
	}
	if !old && len(s.nodes) >= subnet.NodesMax {
		s.problem("behind port %d of %s: more than the %d nodes that a subnet has addresses for; the rest is left out",
			r.port, s.name(r.node), subnet.NodesMax)
		s.unlink(r.node, r.port)
		return
	}
	if !old {
		i = s.addNode(r, &info)
	}
	if r.what == askSelf {
		s.foundSelf(i, &info)
		return
	}
	s.link(r, i, &info, old)
}

// addNode takes a node that was not known into the sweep.
func (s *sweep) addNode(r *request, info *mad.NodeInfo) int32 {
	i := int32(len(s.nodes))
	n := &subnet.Node{Info: *info, Ports: make([]subnet.Port, int(info.NumPorts)+1), RouteIndex: subnet.None}
	for p := range n.Ports {
		n.Ports[p].Peer = subnet.None
	}
	s.nodes, s.own, s.paths = append(s.nodes, n), append(s.own, true), append(s.paths, nil)
	s.byGUID[info.NodeGUID] = i
	s.newcomers = true
	if r.what == askNeighbor {
		s.paths[i] = append(append([]ib.PortNum(nil), s.pathTo(r.node, r.port)...), r.port)
	}
	if n.IsSwitch() {
		n.Ports[0].GUID = info.PortGUID
		s.push(probe{askSwitch, i, 0, 0})
		for p := range n.Ports {
			s.push(probe{askPort, i, ib.PortNum(p), 0})
		}
	}
	s.inherit(n)
	return i
}

// inherit takes over what an earlier sweep knows of a node and this one does not read again.
func (s *sweep) inherit(n *subnet.Node) {
	if s.prev == nil {
		return
	}
	i, ok := s.prev.ByGUID(n.Info.NodeGUID)
	if !ok {
		return
	}
	old := s.prev.Nodes[i]
	if len(old.Ports) != len(n.Ports) {
		return
	}
	n.LFT, n.MFT = old.LFT, old.MFT
	if s.m.unsure[n.Info.NodeGUID] {
		return
	}
	for p := range n.Ports {
		n.Ports[p].Tables = old.Ports[p].Tables
	}
}

// foundSelf notes the manager's own port.
func (s *sweep) foundSelf(i int32, info *mad.NodeInfo) {
	s.self = subnet.Ref{Node: i, Port: info.LocalPortNum}
	s.m.guid = info.PortGUID // others may ask who we are while we look around
	n := s.nodes[i]
	s.paths[i] = nil
	if n.IsSwitch() {
		s.self.Port = 0
	} else {
		n.Ports[info.LocalPortNum].GUID = info.PortGUID
		s.push(probe{askPort, i, info.LocalPortNum, 0})
	}
	s.push(probe{askDesc, i, 0, 0})
}

// link joins port r.port of node r.node to the port by which node i has answered.
func (s *sweep) link(r *request, i int32, info *mad.NodeInfo, old bool) {
	near, far := subnet.Ref{Node: r.node, Port: r.port}, subnet.Ref{Node: i, Port: info.LocalPortNum}
	if far.Port == 0 {
		s.problem("%s: behind port %d a switch answers by its port 0", s.name(r.node), r.port)
		s.unlink(r.node, r.port)
		return
	}
	n := s.nodes[i]
	if !n.IsSwitch() {
		x := &n.Ports[far.Port]
		switch {
		case i == s.self.Node && x.GUID != 0 && x.GUID != info.PortGUID, x.Up() &&
			(x.Peer != near.Node || x.PeerPort != near.Port):
			s.unlink(r.node, r.port)
			if !s.full && x.Up() && !s.looked[x.Peer] && x.GUID == info.PortGUID {
				// Its cable may have been moved, which the switch that it was at can tell.
				s.lookAt(x.Peer)
				s.push(probe{askNeighbor, r.node, r.port, 0})
				return
			}
			s.silent++ // whichever it was, it will be found when the other is gone
			s.problem("duplicate GUID %v: it answers behind port %d of %s and behind port %d of %s; the second "+
				"is left out",
				info.NodeGUID, x.PeerPort, s.name(x.Peer), r.port, s.name(r.node))
			s.twin(info.NodeGUID, r.node, r.port)
			return
		}
		e := s.edit(i)
		first := !e.Ports[far.Port].Up()
		s.newcomers = s.newcomers || e.Ports[far.Port].GUID != info.PortGUID
		e.Ports[far.Port].GUID = info.PortGUID
		e.Ports[far.Port].Peer, e.Ports[far.Port].PeerPort = near.Node, near.Port
		s.setPeer(near, far)
		switch {
		case first:
			s.push(probe{askPort, i, far.Port, 0})
			if !old {
				s.push(probe{askDesc, i, 0, 0})
			}
		case !s.full:
			s.lookAt(i) // its link has been down, at its end too
		}
		return
	}
	s.setPeer(near, far)
	if !old {
		// Its own probe of that port has yet to agree; see settle.
		s.setPeer(far, near)
		s.push(probe{askDesc, i, 0, 0})
	} else if !s.full {
		// A look at one end has found that the link is new or has been down. The node at the other end
		// may have started anew.
		if !n.Ports[far.Port].Up() {
			s.setPeer(far, near)
		}
		s.lookAt(i)
	}
}

func (s *sweep) setPeer(a, b subnet.Ref) {
	if x := &s.nodes[a.Node].Ports[a.Port]; x.Peer != b.Node || x.PeerPort != b.Port {
		x = &s.edit(a.Node).Ports[a.Port]
		x.Peer, x.PeerPort = b.Node, b.Port
	}
}

// foundPort takes a port's PortInfo.
func (s *sweep) foundPort(r *request, data []byte) {
	i, port := r.node, r.port
	n := s.edit(i)
	p := &n.Ports[port]
	was := p.Info
	if _, err := p.Info.Parse(data); err != nil {
		return
	}
	p.Info.ClientReregister = false
	if !s.full && n.EndPort(port) == port && s.m.regiven(p, &was) {
		s.m.usurped(n)
		return
	}
	if n.EndPort(port) == port && s.sawKey(r, p.GUID, &p.Info) {
		return
	}
	self := i == s.self.Node && port == s.self.Port
	if n.EndPort(port) == port && !self && p.Info.CapabilityMask&mad.CapIsSM != 0 &&
		(port == 0 || p.Info.PortState.HasLink()) {
		s.push(probe{askManager, i, port, 0}) // in a switch too
	}
	if port == 0 {
		return
	}
	if n.IsSwitch() {
		p.GUID = n.Ports[0].GUID
	}
	if !p.Info.PortState.HasLink() {
		s.lostLink(subnet.Ref{Node: i, Port: port})
		return
	}
	if p.Info.HasQDR() && n.Info.MayHaveFDR10() {
		s.push(probe{askMlnx, i, port, 0})
	}
	if !n.IsSwitch() && !self {
		return
	}
	// A link that was there and has not been down needs no second look.
	if s.full || !p.Up() || was.PortState != p.Info.PortState || p.Info.PortState != ib.PortActive {
		s.push(probe{askNeighbor, i, port, 0})
	}
}

// lostLink forgets a cable whose port is down, at both ends.
func (s *sweep) lostLink(r subnet.Ref) {
	p := &s.nodes[r.Node].Ports[r.Port]
	if p.Peer == subnet.None {
		return
	}
	far := subnet.Ref{Node: p.Peer, Port: p.PeerPort}
	if s.full {
		// This sweep has spoken across it.
		s.silent++
		s.problem("port %d of %s says that it has no link, but port %d of %s is reached by it: it has just "+
			"gone down, or a node does not tell the truth", r.Port, s.name(r.Node), far.Port, s.name(far.Node))
	}
	s.unlink(r.Node, r.Port)
	if x := &s.nodes[far.Node].Ports[far.Port]; x.Peer == r.Node && x.PeerPort == r.Port {
		e := &s.edit(far.Node).Ports[far.Port]
		e.Peer = subnet.None
		e.Info.PortState = ib.PortDown
	}
}
