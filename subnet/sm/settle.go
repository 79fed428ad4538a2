package sm

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// settle makes one consistent subnet of what the probes have found: links that both ends agree on,
// nodes that can be reached. Then it is clear whether this manager is the one to program it.
func (s *sweep) settle() {
	if s.self.Node == subnet.None {
		s.abandon = true
		return
	}
	s.agree()
	s.distinct()
	s.keepTwins()
	if reached := s.repath(); !allTrue(reached) {
		if s.losesMaster(reached) && s.setback("a master has answered, and a link on the way to it is in doubt") {
			return
		}
		s.compact(reached)
		s.repath()
	}
	s.number()
	s.count()
	s.ownState = s.nodes[s.self.Node].Ports[s.self.Port].Info.PortState
	s.elect()
	if s.abandon {
		return
	}
	s.changes()
	s.classify()
}

// losesMaster reports whether one of those that are left out has answered as a master, and this manager has yet to find
// out who rules. It would not see the other, and begin to rule beside it: if it is its own link that is left out,
// because an answer across it was lost, over nobody but itself.
func (s *sweep) losesMaster(reached []bool) bool {
	if s.m.state != mad.SMDiscovering || s.m.forced {
		return false
	}
	for k := range s.managers {
		if o := &s.managers[k]; o.Info.SMState == mad.SMMaster {
			if ref, ok := s.refOf(o.Port); ok && !reached[ref.Node] {
				return true
			}
		}
	}
	return false
}

func allTrue(b []bool) bool {
	for _, v := range b {
		if !v {
			return false
		}
	}
	return true
}

// agree drops links between switches whose two ends say different things: the cable was moved while we looked,
// or two nodes have one GUID.
func (s *sweep) agree() {
	for i := range s.nodes {
		n := s.nodes[i]
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Up() {
				continue
			}
			far := &s.nodes[x.Peer].Ports[x.PeerPort]
			if far.Peer == int32(i) && far.PeerPort == ib.PortNum(p) && x.Info.PortState.HasLink() &&
				far.Info.PortState.HasLink() {
				if x.Info.PortState == ib.PortActive && far.Info.PortState == ib.PortInit {
					s.silent++
					s.problem("port %d of %s says that it is Active, and port %d of %s, at the other end, that it is "+
						"not: the link has been down between the two questions, or one of them does not tell the truth",
						p, s.name(int32(i)), x.PeerPort, s.name(x.Peer))
				}
				continue
			}
			if x.Info.PortState.HasLink() {
				says := "which says otherwise"
				if far.Info.PortState.HasLink() {
					s.twin(s.nodes[x.Peer].Info.NodeGUID, int32(i), ib.PortNum(p))
				} else {
					says = "which says that it has no link"
				}
				s.problem("port %d of %s leads to port %d of %s, %s: duplicate GUID, or a cable that was moved; "+
					"the link is left out",
					p, s.name(int32(i)), x.PeerPort, s.name(x.Peer), says)
			}
			s.silent++
			s.edit(int32(i)).Ports[p].Peer = subnet.None
			n = s.nodes[i]
		}
	}
}

// distinct leaves out nodes that have the port GUID of another: addresses go by those. The manager's own port goes
// before all others.
func (s *sweep) distinct() {
	if !s.newcomers {
		return
	}
	owner := make(map[ib.GUID]int32, len(s.nodes))
	claim := func(i int32, port ib.PortNum) {
		g := s.nodes[i].Ports[port].GUID
		o, taken := owner[g]
		if !taken || o == i && s.nodes[i].IsSwitch() {
			owner[g] = i
			return
		}
		s.silent++
		s.problem("duplicate GUID %v: port %d of %s and a port of %s have it; the first is left out", g, port,
			s.name(i), s.name(o))
		for p := 1; p < len(s.nodes[i].Ports); p++ {
			if s.nodes[i].IsSwitch() || ib.PortNum(p) == port {
				if x := &s.nodes[i].Ports[p]; x.Up() {
					s.twin(g, x.Peer, x.PeerPort)
				}
				s.cutOff(i, ib.PortNum(p))
			}
		}
	}
	claim(s.self.Node, s.self.Port)
	for i, n := range s.nodes {
		if n.IsSwitch() {
			claim(int32(i), 0)
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() && s.self != (subnet.Ref{Node: int32(i), Port: ib.PortNum(p)}) {
				claim(int32(i), ib.PortNum(p))
			}
		}
	}
}

// twin notes that who is behind a port has the GUID of another node. A port of either of the two says nothing: which
// of them it is at is not known.
func (s *sweep) twin(g ib.GUID, node int32, port ib.PortNum) {
	if near := s.nodes[node].Info.NodeGUID; near != g {
		s.twins = append(s.twins, subnet.Twin{GUID: g, Switch: near, Port: port})
	}
}

// keepTwins adds those that a look at a few nodes does not see, which are as they were.
func (s *sweep) keepTwins() {
	if s.full || s.prev == nil {
		return
	}
	for _, t := range s.prev.Twins {
		if i, there := s.byGUID[t.Switch]; there && !s.looked[i] && !slices.Contains(s.twins, t) {
			s.twins = append(s.twins, t)
		}
	}
}

// cutOff forgets the cable at a port, from both sides.
func (s *sweep) cutOff(node int32, port ib.PortNum) {
	if p := s.nodes[node].Ports[port]; p.Up() {
		s.unlink(node, port)
		s.unlink(p.Peer, p.PeerPort)
	}
}

// compact drops nodes that cannot be reached; all that are left get new numbers.
func (s *sweep) compact(keep []bool) {
	to := make([]int32, len(s.nodes))
	var nodes []*subnet.Node
	for i, n := range s.nodes {
		to[i] = subnet.None
		if keep[i] {
			to[i] = int32(len(nodes))
			nodes = append(nodes, n)
		}
	}
	own := make([]bool, len(nodes))
	for i, n := range nodes {
		own[i] = true
		c := *n
		c.Ports = append([]subnet.Port(nil), n.Ports...)
		for p := range c.Ports {
			if x := &c.Ports[p]; x.Up() {
				x.Peer = to[x.Peer]
			}
		}
		nodes[i] = &c
	}
	s.nodes, s.own = nodes, own
	s.self.Node = to[s.self.Node]
	s.byGUID = make(map[ib.GUID]int32, len(nodes))
	for i, n := range nodes {
		s.byGUID[n.Info.NodeGUID] = int32(i)
	}
	var kept []subnet.Manager
	for _, m := range s.managers {
		if _, ok := s.refOf(m.Port); ok {
			kept = append(kept, m)
		}
	}
	s.managers = kept
}

// refOf finds the port of a GUID in the sweep's nodes.
func (s *sweep) refOf(g ib.GUID) (subnet.Ref, bool) {
	for i, n := range s.nodes {
		for p := range n.Ports {
			if n.Ports[p].GUID == g {
				return subnet.Ref{Node: int32(i), Port: n.EndPort(ib.PortNum(p))}, true
			}
		}
	}
	return subnet.Ref{}, false
}

// number gives the switches their numbers for routing.
func (s *sweep) number() {
	s.switches = s.switches[:0]
	for i, n := range s.nodes {
		if !n.IsSwitch() {
			continue
		}
		at := int32(len(s.switches))
		s.switches = append(s.switches, int32(i))
		if n.RouteIndex != at {
			s.edit(int32(i)).RouteIndex = at
		}
	}
}

// count fills in the report.
func (s *sweep) count() {
	r := &s.report
	r.Nodes, r.Switches = len(s.nodes), len(s.switches)
	r.Hosts = 0
	ends := 0
	for _, n := range s.nodes {
		if n.Info.NodeType == ib.NodeCA {
			r.Hosts++
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() {
				ends++
				if degraded(&n.Ports[p].Info) {
					r.Degraded++
				}
			}
		}
	}
	r.Links = ends / 2
	r.Degraded = (r.Degraded + 1) / 2
}

// degraded reports whether a link runs below what its port supports and is allowed to do.
func degraded(p *mad.PortInfo) bool {
	best := p.LinkWidthSupported & p.LinkWidthEnabled
	return best != 0 && p.LinkWidthActive.Lanes() < best.Widest().Lanes() ||
		p.EnabledSpeed() != 0 && p.ActiveSpeed() != 0 && p.ActiveSpeed() < p.EnabledSpeed()
}

// changes logs what is different from the last subnet. A node that came or went is one line, whatever its links; of
// other links each is one.
func (s *sweep) changes() {
	if s.prev == nil {
		return
	}
	logged := 0
	say := func(format string, args ...any) {
		if logged++; logged <= 2*grumbles {
			s.m.event(EventTopology, format, args...)
		}
	}
	for _, n := range s.nodes {
		o, ok := s.prev.ByGUID(n.Info.NodeGUID)
		if !ok {
			say("new: %v %s %s", n.Info.NodeType, nodeName(n), moored(s.nodes, n))
			continue
		}
		if old := s.prev.Nodes[o]; old != n && len(old.Ports) == len(n.Ports) {
			s.linkChanges(old, n, say)
		}
	}
	for _, n := range s.prev.Nodes {
		if _, ok := s.byGUID[n.Info.NodeGUID]; !ok {
			say("gone: %v %s %s", n.Info.NodeType, nodeName(n), moored(s.prev.Nodes, n))
		}
	}
	if logged > 2*grumbles {
		s.m.event(EventTopology, "and %d changes more", logged-2*grumbles)
	}
}

// linkChanges logs what became of a node's links to nodes that were there before and still are, from the end with the
// smaller GUID.
func (s *sweep) linkChanges(old, n *subnet.Node, say func(string, ...any)) {
	ours := func(far *subnet.Node, p int, q ib.PortNum) bool {
		return n.Info.NodeGUID < far.Info.NodeGUID || n.Info.NodeGUID == far.Info.NodeGUID && p < int(q)
	}
	for p := 1; p < len(n.Ports); p++ {
		was, is := &old.Ports[p], &n.Ports[p]
		var before, after *subnet.Node // the far ends
		if was.Up() {
			before = s.prev.Nodes[was.Peer]
		}
		if is.Up() {
			after = s.nodes[is.Peer]
		}
		if before != nil && after != nil && before.Info.NodeGUID == after.Info.NodeGUID && was.PeerPort == is.PeerPort {
			if r := is.Rate(); r.Mbps() != was.Rate().Mbps() && ours(after, p, is.PeerPort) {
				say("link changed: %s port %d to %s port %d: %v, was %v", nodeName(n), p, nodeName(after), is.PeerPort,
					r, was.Rate())
			}
			continue
		}
		if before != nil {
			if _, there := s.byGUID[before.Info.NodeGUID]; there && ours(before, p, was.PeerPort) {
				say("link lost: %s port %d to %s port %d", nodeName(n), p, nodeName(before), was.PeerPort)
			}
		}
		if after != nil {
			if _, knew := s.prev.ByGUID(after.Info.NodeGUID); knew && ours(after, p, is.PeerPort) {
				say("link found: %s port %d to %s port %d, %v", nodeName(n), p, nodeName(after), is.PeerPort, is.Rate())
			}
		}
	}
}

// moored says where a node hangs: behind a port of another, or by how many links.
func moored(nodes []*subnet.Node, n *subnet.Node) string {
	links, where := 0, ""
	for p := 1; p < len(n.Ports); p++ {
		if x := &n.Ports[p]; x.Up() {
			links++
			where = fmt.Sprintf("behind %s port %d", nodeName(nodes[x.Peer]), x.PeerPort)
		}
	}
	if links != 1 {
		return fmt.Sprintf("with %d links", links)
	}
	return where
}

// classify decides of every switch whether its tables are known, have to be read, or are to be written whole.
func (s *sweep) classify() {
	s.cold, s.unread = make([]bool, len(s.nodes)), make([]bool, len(s.nodes))
	for _, i := range s.switches {
		n := s.nodes[i]
		// Nothing can pass through it yet. A link that is Armed is none of these: another manager is about to make it
		// Active, or the first packet does.
		fresh := true
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() && n.Ports[p].Info.PortState >= ib.PortArmed {
				fresh = false
				break
			}
		}
		known := n.LFT != nil && !s.m.doubt[n.Info.NodeGUID]
		if known && (fresh || n.Ports[0].Info.LID == 0 || n.Switch.LinearFDBTop != lastLID(n.LFT)) && !plantForget {
			if !fresh {
				s.m.event(EventProblem, "%s: its forwarding table ends at LID %v instead of %v: it has forgotten "+
					"its tables", nodeName(n), n.Switch.LinearFDBTop, lastLID(n.LFT))
			}
			known = false
		}
		switch {
		case known:
		case fresh:
			s.cold[i] = true
		default:
			s.unread[i] = true
		}
		if !known {
			delete(s.m.actual, n.Info.NodeGUID)
		}
		if !known && (n.LFT != nil || n.MFT != nil) {
			e := s.edit(i)
			e.LFT, e.MFT = nil, nil
			for p := range e.Ports {
				e.Ports[p].Tables = nil
			}
		}
	}
}

func lastLID(lft []ib.PortNum) ib.LID { return ib.LID(max(len(lft), 1) - 1) }
