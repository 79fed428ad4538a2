package ibrouter

import (
	"fmt"

	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Ends shows the ports of a router to its agent as an adapter's are shown.
type Ends interface { // tidy: calls out, as agent.Node, which stands for the node's tables
	agent.Node
	TrainRate(ib.PortNum) ib.LinkRate
}

// Node shows a router to its agent, and applies there what managers write.
type Node struct {
	Ends
	r *Router
}

var _ agent.Router = (*Node)(nil)

// NewNode makes the view that agent.New takes: that of a router whose ports are shown by ends.
func NewNode(ends Ends, r *Router) *Node { return &Node{ends, r} }

// SetPortInfo applies what a manager wrote.
func (n *Node) SetPortInfo(now ib.Time, port ib.PortNum, pi mad.PortInfo) error {
	if err := n.Ends.SetPortInfo(now, port, pi); err != nil {
		return err
	}
	n.r.SetAddress(port, pi.LID, pi.GidPrefix)
	n.r.Refresh()
	return nil
}

// NextHops are the subnets that packets reach which come in by a port. Those that they reach by leaving through the
// same port are none: other routers of that subnet have told of them.
func (n *Node) NextHops(in ib.PortNum) (list []mad.NextHop) {
	for _, h := range n.r.hops {
		if h.out == in || h.prefix == n.r.ports[in].prefix || len(list) > 0 && list[len(list)-1].Prefix == h.prefix {
			continue
		}
		list = append(list, mad.NextHop{Prefix: h.prefix, PKey: ib.PKeyDefault, Weight: h.weight})
	}
	return list[:min(len(list), agent.NextHopCap)]
}

// RouterGUIDs say who has 8 LIDs of a port's subnet.
func (n *Node) RouterGUIDs(port ib.PortNum, block int) (t mad.RouterGUIDs) {
	if guids := n.r.ports[port].guids; block*len(t) < len(guids) {
		copy(t[:], guids[block*len(t):])
	}
	return t
}

// SetRouterGUIDs writes it. A GUID that has several LIDs is reached by the lowest.
func (n *Node) SetRouterGUIDs(_ ib.Time, port ib.PortNum, block int, t mad.RouterGUIDs) error {
	p := &n.r.ports[port]
	from := block * len(t)
	if end := from + len(t); end > len(p.guids) {
		p.guids = append(p.guids, make([]ib.GUID, max(end, 2*len(p.guids))-len(p.guids))...)
	}
	lost := map[ib.GUID]bool{}
	for i := range t {
		if old := p.guids[from+i]; old != t[i] && p.lids[old] == ib.LID(from+i) {
			delete(p.lids, old)
			lost[old] = true
		}
	}
	copy(p.guids[from:], t[:])
	for i, g := range t {
		if lid, known := p.lids[g]; g != 0 && from+i > 0 && (!known || ib.LID(from+i) < lid) {
			p.lids[g] = ib.LID(from + i)
		}
	}
	delete(lost, 0)
	if len(lost) > 0 { // it may have another LID, in another block
		for i, g := range p.guids {
			if _, known := p.lids[g]; lost[g] && !known && i > 0 {
				p.lids[g] = ib.LID(i)
			}
		}
	}
	return nil
}

// RouterPeers are what other routers of a port's subnet reach.
func (n *Node) RouterPeers(port ib.PortNum, block int) (t mad.NextHopTable) {
	if peers := n.r.ports[port].peers; block*len(t) < len(peers) {
		copy(t[:], peers[block*len(t):])
	}
	return t
}

// SetRouterPeers writes it.
func (n *Node) SetRouterPeers(_ ib.Time, port ib.PortNum, block int, t mad.NextHopTable) error {
	for _, e := range t {
		if e.Prefix != 0 && (e.Weight == 0 || e.Prefix == ib.DefaultGIDPrefix) {
			return fmt.Errorf("ibrouter: a peer that reaches %#x over %d routers", e.Prefix, e.Weight)
		}
	}
	p := &n.r.ports[port]
	for (block+1)*len(t) > len(p.peers) {
		p.peers = append(p.peers, mad.NextHop{})
	}
	copy(p.peers[block*len(t):], t[:])
	n.r.resolve()
	return nil
}

// RouterGroup is a multicast group of a port's subnet.
func (n *Node) RouterGroup(port ib.PortNum, index int) (g mad.RouterGroup) {
	if groups := n.r.ports[port].groups; index < len(groups) {
		g = groups[index]
	}
	return g
}

// SetRouterGroup writes it.
func (n *Node) SetRouterGroup(_ ib.Time, port ib.PortNum, index int, g mad.RouterGroup) error {
	n.r.tell(port, index, g)
	return nil
}

// GroupsWanted are those whose packets are to come to a port.
func (n *Node) GroupsWanted(port ib.PortNum) []mad.RouterGroup { return n.r.ports[port].wanted }

// PollNotice is what happened at the router: at its ports, or that other subnets are reached or other groups wanted
// than before, which managers hear of as a change of what the port can do (IBA 14.2.5.1, trap 144).
func (n *Node) PollNotice() (agent.Notice, bool) {
	if port, ok := n.r.changed.Pop(); ok {
		return agent.Notice{Trap: mad.TrapCapabilityChange, Port: port}, true
	}
	return n.Ends.PollNotice()
}
