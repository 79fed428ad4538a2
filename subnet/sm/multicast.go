package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/route"
)

// portSet is a set of ports as multicast tables hold it, 16 to a position.
type portSet [16]uint16

func (p *portSet) add(n ib.PortNum) { p[n/mad.MFTPortMask] |= 1 << (n % mad.MFTPortMask) }

// BroadcastMLID is the address of the group that broadcasts use.
const BroadcastMLID = ib.LIDMulticastMin

// Group is a multicast group whose members are not asked for by joins but told by whoever runs the manager.
type Group struct {
	MLID    ib.LID
	Members []ib.GUID // ports
}

// SetGroup makes a multicast LID reach exactly the given ports; none takes the group away. It takes force with the
// sweep that it asks for.
func (m *Manager) SetGroup(now ib.Time, g Group) {
	m.now = max(m.now, now)
	m.groups = slices.DeleteFunc(m.groups, func(o Group) bool { return o.MLID == g.MLID })
	if len(g.Members) > 0 {
		m.groups = append(m.groups, g)
	}
	m.regroup("group told")
}

// regroup asks for a sweep that writes what hosts have asked for: multicast tables, GUIDs.
func (m *Manager) regroup(why string) {
	if m.state == mad.SMMaster && m.sub != nil {
		m.wantLook(m.now, 0, why)
	}
}

// mftWrite is a block of a multicast table that has to be written.
type mftWrite struct {
	node            int32
	block, position int
	ports           mad.MFT
}

// member is a port that receives what is sent to a group, or only sends to it.
type member struct {
	subnet.Ref
	receives bool
}

// members lists the groups with their members' ports.
func (s *sweep) members() map[ib.LID][]member {
	groups := map[ib.LID][]member{}
	where := make(map[ib.GUID]subnet.Ref, len(s.nodes))
	s.eachEnd(func(r subnet.Ref) { where[s.nodes[r.Node].Ports[r.Port].GUID] = r })
	put := func(mlid ib.LID, guid ib.GUID, receives bool) {
		if r, ok := where[guid]; ok {
			groups[mlid] = append(groups[mlid], member{r, receives})
		}
	}
	for _, g := range s.m.groups {
		for _, guid := range g.Members {
			put(g.MLID, guid, true)
		}
	}
	s.m.eachJoined(put)
	s.eachRouted(put)
	s.m.grouped = s.m.admin.Revision()
	return groups
}

// beginMulticast computes the trees of all groups and finds the blocks that differ.
func (s *sweep) beginMulticast() {
	s.cursor = cursor{}
	s.mftWrites = s.mftWrites[:0]
	s.serve()
	s.m.precreate()
	groups := s.members()
	top := 0 // entries in use
	mlids := make([]ib.LID, 0, len(groups))
	for l := range groups { // tidy: order-free
		mlids = append(mlids, l)
		top = max(top, int(l-ib.LIDMulticastMin)+1)
	}
	slices.Sort(mlids)
	var forest *route.Forest
	if len(mlids) > 0 {
		forest = route.NewForest(s.net)
	}
	want := make([][]portSet, len(s.switches)) // by switch and group
	for at := range want {
		want[at] = make([]portSet, top)
	}
	joined := make([]bool, len(s.switches))
	for _, mlid := range mlids {
		index := int(mlid - ib.LIDMulticastMin)
		clear(joined)
		for _, ref := range groups[mlid] {
			n := s.nodes[ref.Node]
			switch p := &n.Ports[ref.Port]; {
			case n.IsSwitch(): // port 0 of a switch
				joined[n.RouteIndex] = true
				if ref.receives {
					want[n.RouteIndex][index].add(0)
				}
			case p.Up() && s.nodes[p.Peer].IsSwitch():
				// The switch of one that only sends has to know the way too.
				sw := s.nodes[p.Peer].RouteIndex
				joined[sw] = true
				if ref.receives {
					want[sw][index].add(p.PeerPort)
				}
			}
		}
		for _, b := range forest.Tree(joined, index) {
			want[b.Switch][index].add(b.Port)
		}
	}
	for at, i := range s.switches {
		s.planMFT(i, want[at], s.cold[i] || s.unread[i])
	}
}

// planMFT finds the blocks of a switch's table that differ from what it holds.
func (s *sweep) planMFT(i int32, want []portSet, unknown bool) {
	n := s.nodes[i]
	if limit := int(n.Switch.MulticastFDBCap); len(want) > limit {
		s.problem("%s: groups up to LID %#x, but its multicast table ends at %#x", nodeName(n), int(ib.LIDMulticastMin)+
			len(want)-1, int(ib.LIDMulticastMin)+limit-1)
		want = want[:limit]
	}
	positions := n.Info.NumPorts/mad.MFTPortMask + 1
	same := !unknown && len(n.MFT) == len(want)
	for index := 0; same && index < len(want); index++ {
		same = slices.Equal(n.MFT[index], want[index][:positions])
	}
	if same || len(want) == 0 && len(n.MFT) == 0 {
		return
	}
	rows := make([][]uint16, len(want))
	for index := range want {
		rows[index] = slices.Clone(want[index][:positions])
	}
	for block := 0; block*mad.MFTPerBlock < max(len(rows), len(n.MFT)); block++ {
		for pos := range int(positions) {
			var was, is mad.MFT
			for k := range is {
				at := block*mad.MFTPerBlock + k
				if at < len(n.MFT) {
					was[k] = n.MFT[at][pos]
				}
				if at < len(rows) {
					is[k] = rows[at][pos]
				}
			}
			if unknown || was != is {
				s.mftWrites = append(s.mftWrites, mftWrite{i, block, pos, is})
			}
		}
	}
	s.edit(i).MFT = rows
}

// nextMulticast writes the next block.
func (s *sweep) nextMulticast(r *request) bool {
	if s.cursor.at >= len(s.mftWrites) {
		return false
	}
	w := &s.mftWrites[s.cursor.at]
	s.cursor.at++
	*r = request{what: tell, set: true, node: w.node, attr: mad.AttrMFT, mod: mad.MFTModifier(w.block, w.position)}
	w.ports.Append(s.smp(r))
	return true
}

func (s *sweep) multicastReply(r *request, v mad.View) {
	if !s.answered(r, v) {
		s.missed(r.node)
	}
}
