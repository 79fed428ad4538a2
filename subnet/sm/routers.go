package sm

import (
	"slices"

	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// A manager tells each router of its subnet who has which LID, and what the other routers reach; and it asks each what
// it reaches, for the administrator's paths to other subnets. What is told in one subnet changes what routers reach
// from others, of which they tell the managers there by traps: so all routers learn of all subnets.

// routerPort is what is known of a router's port.
type routerPort struct {
	// foreign: it does not have softib's tables, and knows by itself where its packets go.
	foreign bool
	guids   []ib.GUID     // what it was told of who has which LID; nil if nothing
	peers   []mad.NextHop // what it was told of other routers; nil if nothing
	hops    []mad.NextHop // what it reaches
	// wanted are the multicast groups whose packets are to come to it, and groups what it was told of those here.
	wanted, groups []mad.RouterGroup
}

// LookAtRouters asks for a look at the routers now: for one who knows that other subnets have come up. Routers tell by
// traps, no sooner than the subnet's timeout lets them.
func (m *Manager) LookAtRouters() {
	for i := 0; m.sub != nil && i < len(m.sub.Routers); i++ {
		n := m.sub.Nodes[m.sub.Routers[i].Port.Node]
		m.wantLook(m.now, n.Info.NodeGUID, "other subnets have come up")
	}
}

// routerStep is a request to a router.
type routerStep struct {
	ref   subnet.Ref
	attr  mad.AttrID
	block int
}

// steps of the phase, one after the other.
const (
	routersAsk   = iota // how much they reach, and want
	routersRead         // what that is
	routersWrite        // who is where
	routersDone
)

// forgetRouters drops what is known of routers whose link was down: they may have started anew. It is called before
// links are armed.
func (s *sweep) forgetRouters() {
	for _, ref := range s.routerPorts() {
		if p := &s.nodes[ref.Node].Ports[ref.Port]; p.Info.PortState == ib.PortInit {
			delete(s.m.routers, p.GUID)
		}
	}
}

// routerPorts are the ports of routers in the subnet, in the order of nodes.
func (s *sweep) routerPorts() (list []subnet.Ref) {
	for i, n := range s.nodes {
		if n.Info.NodeType != ib.NodeRouter {
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() && n.Ports[p].Info.LID != 0 {
				list = append(list, subnet.Ref{Node: int32(i), Port: ib.PortNum(p)})
			}
		}
	}
	return list
}

// routerAt is what is known of a port.
func (s *sweep) routerAt(ref subnet.Ref) *routerPort {
	guid := s.nodes[ref.Node].Ports[ref.Port].GUID
	r := s.m.routers[guid]
	if r == nil {
		r = &routerPort{}
		s.m.routers[guid] = r
	}
	return r
}

// beginRouters asks all routers how much they reach.
func (s *sweep) beginRouters() {
	s.cursor, s.routerSteps, s.routerStage = cursor{}, nil, routersAsk
	there := map[ib.GUID]bool{}
	for _, ref := range s.routerPorts() {
		there[s.nodes[ref.Node].Ports[ref.Port].GUID] = true
		s.routerSteps = append(s.routerSteps, routerStep{ref, mad.AttrRouterInfo, 0})
		if !s.routerAt(ref).foreign {
			s.routerSteps = append(s.routerSteps, routerStep{ref, mad.AttrGroupsWanted, 0})
		}
	}
	for guid := range s.m.routers { // tidy: order-free
		if !there[guid] {
			delete(s.m.routers, guid)
		}
	}
}

// nextRouters sends the next request to a router.
func (s *sweep) nextRouters(r *request) bool {
	c := &s.cursor
	if c.at >= len(s.routerSteps) {
		return false
	}
	x := &s.routerSteps[c.at]
	*r = request{what: askTable, node: x.ref.Node, port: x.ref.Port, attr: x.attr, mod: uint32(x.block),
		extra: int32(c.at)}
	c.at++
	if s.routerStage != routersWrite {
		s.smp(r)
		return true
	}
	r.what, r.set = tell, true
	data := s.smp(r)
	switch x.attr {
	case mad.AttrRouterPeers:
		t := mad.NextHopTable(blockOf(s.peersOf(x.ref), x.block, mad.NextHopsPerBlock))
		t.Append(data)
	case mad.AttrRouterGroups:
		blockOf(s.groupsTold[x.ref], x.block, 1)[0].Append(data)
	default:
		t := mad.RouterGUIDs(blockOf(s.guidsByLID, x.block, mad.RouterGUIDsPerBlock))
		t.Append(data)
	}
	return true
}

// blockOf is a block of a table, with zeros behind its end.
func blockOf[T any](table []T, block, size int) []T {
	b := make([]T, size)
	if from := block * size; from < len(table) {
		copy(b, table[from:])
	}
	return b
}

// routersReply takes what a router has answered.
func (s *sweep) routersReply(r *request, v mad.View) {
	x := &s.routerSteps[r.extra]
	rt := s.routerAt(x.ref)
	if v != nil && v.Status() == mad.StatusUnsupMethodAttr {
		rt.foreign = true
		if x.attr == mad.AttrRouterInfo {
			rt.hops = nil
		}
		return
	}
	if !s.answered(r, v) {
		return
	}
	data := v[mad.SMPDataOff:][:mad.SMPDataLen]
	switch x.attr {
	case mad.AttrRouterInfo:
		var i mad.RouterInfo
		if _, err := i.Parse(data); err == nil {
			rt.hops = make([]mad.NextHop, min(i.NextHopTableTop, nextHopsMax))
		}
	case mad.AttrNextHopTable:
		var t mad.NextHopTable
		if _, err := t.Parse(data); err == nil {
			copy(rt.hops[min(x.block*len(t), len(rt.hops)):], t[:])
		}
	case mad.AttrGroupsWanted:
		var g mad.RouterGroup
		if _, err := g.Parse(data); err != nil {
			return
		}
		if x.block == 0 {
			rt.wanted = make([]mad.RouterGroup, min(g.Top, agent.RouterGroupCap))
		}
		if g.Top = 0; x.block < len(rt.wanted) {
			rt.wanted[x.block] = g
		}
	case mad.AttrRouterGroups:
		rt.groups = holds(rt.groups, s.groupsTold[x.ref], x.block, 1)
	case mad.AttrRouterGUIDs:
		rt.guids = holds(rt.guids, s.guidsByLID, x.block, mad.RouterGUIDsPerBlock)
	case mad.AttrRouterPeers:
		rt.peers = holds(rt.peers, s.peersOf(x.ref), x.block, mad.NextHopsPerBlock)
	}
}

// nextHopsMax bounds what is asked of a router that claims to reach more.
const nextHopsMax = 256

// holds notes that a block of a table was written.
func holds[T any](table, want []T, block, size int) []T {
	for len(table) < (block+1)*size {
		table = append(table, make([]T, size)...)
	}
	copy(table[block*size:(block+1)*size], blockOf(want, block, size))
	return table
}

// moreRouters goes on with what follows from the answers.
func (s *sweep) moreRouters() bool {
	if s.routerStage >= routersDone || len(s.m.routers) == 0 {
		return false
	}
	if s.routerStage++; s.routerStage == routersDone && !s.served() {
		s.m.regroup("routers want other groups")
	}
	s.cursor, s.routerSteps = cursor{}, nil
	if s.routerStage == routersWrite {
		s.guidsByLID, s.routedGroups = s.listGUIDs(), s.listGroups()
		s.groupsTold = map[subnet.Ref][]mad.RouterGroup{}
	}
	for _, ref := range s.routerPorts() {
		rt := s.routerAt(ref)
		switch s.routerStage {
		case routersRead:
			for b := 0; b*mad.NextHopsPerBlock < len(rt.hops); b++ {
				s.routerSteps = append(s.routerSteps, routerStep{ref, mad.AttrNextHopTable, b})
			}
			for b := 1; b < len(rt.wanted); b++ {
				s.routerSteps = append(s.routerSteps, routerStep{ref, mad.AttrGroupsWanted, b})
			}
		case routersWrite:
			if !rt.foreign {
				s.stepsTo(ref, mad.AttrRouterGUIDs, differing(rt.guids, s.guidsByLID, mad.RouterGUIDsPerBlock))
				s.stepsTo(ref, mad.AttrRouterPeers, differing(rt.peers, s.peersOf(ref), mad.NextHopsPerBlock))
				s.groupsTold[ref] = s.groupsFor(ref)
				s.stepsTo(ref, mad.AttrRouterGroups, differing(rt.groups, s.groupsTold[ref], 1))
			}
		}
	}
	return true
}

func (s *sweep) stepsTo(ref subnet.Ref, attr mad.AttrID, blocks []int) {
	for _, b := range blocks {
		s.routerSteps = append(s.routerSteps, routerStep{ref, attr, b})
	}
}

// differing are the blocks in which a table is not what it should be.
func differing[T comparable](have, want []T, size int) (blocks []int) {
	at := func(table []T, i int) (v T) {
		if i < len(table) {
			v = table[i]
		}
		return v
	}
	for i := range max(len(have), len(want)) {
		if n := len(blocks); at(have, i) != at(want, i) && (n == 0 || blocks[n-1] != i/size) {
			blocks = append(blocks, i/size)
		}
	}
	return blocks
}

// listGUIDs says who has which LID.
func (s *sweep) listGUIDs() (list []ib.GUID) {
	s.eachEnd(func(r subnet.Ref) {
		p := &s.nodes[r.Node].Ports[r.Port]
		if !p.Info.LID.IsUnicast() {
			return
		}
		for int(p.Info.LID) >= len(list) {
			list = append(list, make([]ib.GUID, max(64, len(list)))...)
		}
		list[p.Info.LID] = p.GUID
	})
	return list
}

// peersOf is what the other routers reach.
func (s *sweep) peersOf(ref subnet.Ref) (list []mad.NextHop) {
	for _, o := range s.routerPorts() {
		if o.Node == ref.Node {
			continue
		}
		for _, h := range s.routerAt(o).hops {
			if h.Prefix != 0 && h.Prefix != s.m.cfg.Prefix && h.Weight > 0 && len(list) < nextHopsMax {
				h.LID = s.nodes[o.Node].Ports[o.Port].Info.LID
				list = append(list, h)
			}
		}
	}
	return list
}

// routed is what the subnet says of its routers.
func (s *sweep) routed() (list []subnet.Router) {
	for _, ref := range s.routerPorts() {
		list = append(list, subnet.Router{Port: ref, Hops: slices.Clone(s.routerAt(ref).hops)})
	}
	return list
}
