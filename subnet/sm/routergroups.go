package sm

import (
	"slices"

	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/sa"
)

// Multicast groups whose scope is wider than a subnet (IBA 4.1.1). A manager tells each router of its subnet which of
// them have members who receive, here or, as other routers have said, beyond those; and asks each which ones it wants
// for the subnets beyond it. Every router is where such a group's packets go, if it wants them, and may send to it. A
// group that is wanted and that nobody here has joined is made, so that somebody here may send to it, and routers to
// each other. How routers make of that where packets go is in package ibrouter.

// routedGroup is such a group as routers are told of it, and whose receivers there are.
type routedGroup struct {
	mad.RouterGroup
	origins []uint64 // of members here, and beyond routers
	via     []int32  // the router's node that wants it for an origin; -1 for members here
}

// listGroups lists them in the order of their LIDs.
func (s *sweep) listGroups() (list []routedGroup) {
	at := map[ib.GID]int{}
	s.m.admin.EachGroup(func(info *sa.GroupInfo, members []sa.Member) {
		if !mad.IsRouted(info.MGID) {
			return
		}
		g := routedGroup{RouterGroup: mad.RouterGroup{MGID: info.MGID, QKey: info.QKey, MLID: info.MLID,
			PKey: info.PKey, MTU: info.MTU, Rate: info.Rate, SL: info.SL, TClass: info.TClass,
			FlowLabel: info.FlowLabel, HopLimit: info.HopLimit, PacketLifeTime: info.PacketLifeTime}}
		if slices.ContainsFunc(members, func(m sa.Member) bool { return m.JoinState&mad.JoinReceives != 0 }) {
			g.origins, g.via = []uint64{s.m.cfg.Prefix}, []int32{-1}
		}
		at[info.MGID] = len(list)
		list = append(list, g)
	})
	// Of a subnet's members those routers speak that are nearest to it.
	near := map[uint64]uint8{}
	for _, ref := range s.routerPorts() {
		for _, h := range s.routerAt(ref).hops {
			if n := near[h.Prefix]; n == 0 || h.Weight < n {
				near[h.Prefix] = h.Weight
			}
		}
	}
	for _, ref := range s.routerPorts() {
		rt := s.routerAt(ref)
		for _, w := range rt.wanted {
			k, ok := at[w.MGID]
			if !ok || w.Origin == s.m.cfg.Prefix || w.PKey.Base() != list[k].PKey.Base() ||
				!slices.ContainsFunc(rt.hops, func(h mad.NextHop) bool {
					return h.Prefix == w.Origin && h.Weight == near[w.Origin]
				}) {
				continue
			}
			list[k].origins, list[k].via = append(list[k].origins, w.Origin), append(list[k].via, ref.Node)
		}
	}
	return list
}

// groupsFor is what a router's port is told: groups of its partitions, with each subnet that has members which come not
// by way of this router.
func (s *sweep) groupsFor(ref subnet.Ref) (list []mad.RouterGroup) {
	keys := s.keyed.keysOf(s.nodes[ref.Node].Ports[ref.Port].GUID)
	for i := range s.routedGroups {
		g := &s.routedGroups[i]
		if !slices.Contains(keys, g.PKey|ib.PKeyFull) {
			continue
		}
		var told []uint64
		for k, origin := range g.origins {
			if g.via[k] != ref.Node && !slices.Contains(told, origin) && len(list) < agent.RouterGroupCap {
				told = append(told, origin)
				entry := g.RouterGroup
				entry.Origin = origin
				list = append(list, entry)
			}
		}
	}
	return list
}

// keysOf are the partitions of a port.
func (x *membership) keysOf(guid ib.GUID) []ib.PKey {
	for i := range x.ports {
		if x.ports[i].GUID == guid {
			return x.keys[i]
		}
	}
	return nil
}

// eachRouted visits the routers' ports as members of groups that are wider than a subnet.
func (s *sweep) eachRouted(f func(mlid ib.LID, guid ib.GUID, receives bool)) {
	ports := s.routerPorts()
	if len(ports) == 0 {
		return
	}
	keys := make([][]ib.PKey, len(ports))
	for i, ref := range ports {
		keys[i] = s.keyed.keysOf(s.nodes[ref.Node].Ports[ref.Port].GUID)
	}
	s.m.admin.EachGroup(func(info *sa.GroupInfo, _ []sa.Member) {
		if !mad.IsRouted(info.MGID) {
			return
		}
		for i, ref := range ports {
			rt, guid := s.routerAt(ref), s.nodes[ref.Node].Ports[ref.Port].GUID
			if !rt.foreign && slices.Contains(keys[i], info.PKey|ib.PKeyFull) {
				f(info.MLID, guid, slices.ContainsFunc(rt.wanted, func(w mad.RouterGroup) bool {
					return w.MGID == info.MGID && w.PKey.Base() == info.PKey.Base()
				}))
			}
		}
	})
}

// serve notes for which wishes of routers the multicast tables are made.
func (s *sweep) serve() {
	s.m.routed = map[ib.GUID][]mad.RouterGroup{}
	for guid, rt := range s.m.routers { // tidy: order-free
		s.m.routed[guid] = slices.Clone(rt.wanted)
	}
}

// served reports whether routers still want what the multicast tables were made for.
func (s *sweep) served() bool {
	for guid, rt := range s.m.routers { // tidy: order-free
		if !slices.Equal(s.m.routed[guid], rt.wanted) {
			return false
		}
	}
	return true
}

// wantedGroups are those that routers want and nobody here has made, each once.
func (m *Manager) wantedGroups() (list []sa.GroupInfo) {
	var guids []ib.GUID
	for guid := range m.routers { // tidy: order-free
		guids = append(guids, guid)
	}
	slices.Sort(guids)
	seen := map[ib.GID]bool{{}: true} // an entry that has not been read
	for _, g := range m.members.groups {
		seen[g.MGID] = true // as the partitions' own file has it
	}
	for _, guid := range guids {
		for _, w := range m.routers[guid].wanted {
			if seen[w.MGID] || m.admin.HasGroup(w.MGID) && !slices.Contains(m.groupsMade, w.MGID) {
				continue
			}
			seen[w.MGID] = true
			list = append(list, sa.GroupInfo{MGID: w.MGID, PKey: w.PKey, QKey: w.QKey, MTU: w.MTU, Rate: w.Rate,
				SL: w.SL, TClass: w.TClass, FlowLabel: w.FlowLabel, HopLimit: w.HopLimit,
				PacketLifeTime: w.PacketLifeTime})
		}
	}
	return list
}
