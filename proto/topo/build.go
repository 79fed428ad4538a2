package topo

import (
	"errors"
	"fmt"

	"softib/proto/ib"
)

// build turns what was read into a graph: nodes first, then both ends of each
// cable are compared, then it is plugged in.
func (r *reader) build() (*Graph, error) {
	g := &Graph{Kind: r.kind}
	g.grow(len(r.nodes))
	for _, n := range r.nodes {
		if err := r.addNode(g, n); err != nil {
			return nil, err
		}
	}
	for i, n := range r.nodes {
		for num, p := range n.ports {
			if p == nil || p.isAlias {
				continue
			}
			if err := r.connect(g, i, num); err != nil {
				return nil, err
			}
		}
	}
	if err := r.givePortGUIDs(g); err != nil {
		return nil, err
	}
	return g, r.checkWhole(g)
}

// refuse is an error about a whole node.
func (r *reader) refuse(n *fileNode, kind error, format string, v ...any) *ParseError {
	return &ParseError{File: r.file, Line: n.line, Col: n.col, Word: n.id, Err: kind, Detail: fmt.Sprintf(format, v...)}
}

// refusePort is an error about a port's far end.
func (r *reader) refusePort(p *filePort, kind error, format string, v ...any) *ParseError {
	return &ParseError{File: r.file, Line: p.line, Col: p.peerCol, Word: p.peerID, Err: kind,
		Detail: fmt.Sprintf(format, v...)}
}

func (r *reader) addNode(g *Graph, n *fileNode) error {
	node, err := g.Add(n.Node, n.numPorts)
	if errors.Is(err, ErrDuplicateGUID) {
		if other := g.ByGUID(n.GUID); other != nil {
			return r.refuse(n, ErrDuplicateGUID, "%q has GUID %v, as has %q on line %d: want a GUID for each node",
				n.id, n.GUID, r.nodes[other.Index].id, r.nodes[other.Index].line)
		}
	}
	if err == nil && n.IsSwitch() && n.portGUID != 0 {
		err = g.SetPortGUID(node.Index, 0, n.portGUID)
	}
	if err != nil {
		return r.refuse(n, errors.Unwrap(err), "%q: %v", n.id, err)
	}
	for num, p := range n.ports {
		if p != nil {
			node.Ports[num].LID, node.Ports[num].LMC, node.Ports[num].Could = p.lid, p.lmc, p.could
		}
	}
	if n.IsSwitch() {
		node.Ports[0].LID, node.Ports[0].LMC = n.lid, n.lmc
	}
	return nil
}

// connect checks the cable at port num of node i against its far end, and plugs it
// in when this is its first end.
func (r *reader) connect(g *Graph, i, num int) error {
	n := r.nodes[i]
	p := n.ports[num]
	if a, ok := r.alias[p.peerID]; ok {
		return r.connectAlias(g, i, num, a)
	}
	m, ok := r.byID[p.peerID]
	if !ok {
		return r.refusePort(p, ErrUnknownNode,
			"%q[%d] is cabled to %q, which the file never defines: want a node line for it", n.id, num, p.peerID)
	}
	far := r.nodes[m]
	if p.peerPort > far.numPorts {
		return r.refusePort(p, ErrUnknownPort, "found port %d: %q on line %d has ports 1 to %d", p.peerPort, far.id,
			far.line, far.numPorts)
	}
	if m == i && p.peerPort == num {
		return r.refusePort(p, ErrSelfLoop, "%q[%d] is cabled to itself: want two ports", n.id, num)
	}
	q := far.ports[p.peerPort]
	switch {
	case q == nil:
		return r.refusePort(p, ErrOneSided,
			"%q[%d] is cabled to %q[%d], but %q on line %d has no line for that port: want [%d] %q[%d] there",
			n.id, num, far.id, p.peerPort, far.id, far.line, p.peerPort, n.id, num)
	case q.isAlias:
		return r.refusePort(p, ErrOneSided, "%q[%d] on line %d is an alias: want its alias instead of %q", far.id,
			p.peerPort, q.line, far.id)
	case q.peerID != n.id || q.peerPort != num:
		return r.refusePort(p, ErrPortInUse,
			"%q[%d] is cabled to %q[%d], but line %d cables that port to %q[%d]: want both ends to name each other",
			n.id, num, far.id, p.peerPort, q.line, q.peerID, q.peerPort)
	case p.guid != 0 && q.peerGUID != 0 && p.guid != q.peerGUID:
		return r.refusePort(p, ErrGUIDMismatch, "%q[%d] has GUID %v here and %v on line %d: want the same", n.id, num,
			p.guid, q.peerGUID, q.line)
	}
	if m < i || m == i && p.peerPort < num {
		return nil
	}
	return r.plug(g, PortRef{i, ib.PortNum(num)}, PortRef{m, ib.PortNum(p.peerPort)}, p, q)
}

// connectAlias plugs a cable into an aliased port, whose own line can't name
// the far end.
func (r *reader) connectAlias(g *Graph, i, num int, a aliasPort) error {
	p, q := r.nodes[i].ports[num], r.nodes[a.node].ports[a.port]
	if q.peerID != "" {
		return r.refusePort(p, ErrPortInUse, "alias %q is cabled to %q[%d] already: want one cable for each port",
			p.peerID, q.peerID, q.peerPort)
	}
	q.peerID, q.peerPort = r.nodes[i].id, num
	return r.plug(g, PortRef{i, ib.PortNum(num)}, PortRef{a.node, ib.PortNum(a.port)}, p, q)
}

// plug connects; an end that doesn't say its width, speed or length has the other's.
func (r *reader) plug(g *Graph, a, b PortRef, p, q *filePort) error {
	near, far := p.link, q.link
	fill := func(x *LinkSpec, y LinkSpec) {
		if x.Width == 0 {
			x.Width = y.Width
		}
		if x.Speed == 0 {
			x.Speed = y.Speed
		}
		if x.LengthMM == 0 {
			x.LengthMM = y.LengthMM
		}
	}
	fill(&near, far)
	fill(&far, near)
	if err := g.ConnectAsym(a.Node, a.Port, b.Node, b.Port, near, far); err != nil {
		return r.refusePort(p, errors.Unwrap(err), "%v", err)
	}
	return nil
}

// givePortGUIDs names the ports of hosts and routers: as their own line says, or
// the line at the far end of the cable, or else node GUID plus port number, as
// adapters have it, where that is free.
func (r *reader) givePortGUIDs(g *Graph) error {
	for i, n := range r.nodes {
		if n.IsSwitch() {
			continue
		}
		for num, p := range n.ports {
			if p == nil {
				continue
			}
			guid := p.guid
			if peer := g.Nodes[i].Ports[num]; guid == 0 && peer.Connected() {
				guid = r.nodes[peer.Peer].ports[peer.PeerPort].peerGUID
			}
			if guid == 0 {
				continue
			}
			if ref, dup := g.ByPortGUID(guid); dup {
				return r.refusePort(p, ErrDuplicateGUID, "%q[%d] has GUID %v, as has %s: want a GUID for each port",
					n.id, num, guid, g.PortName(ref))
			}
			if err := g.SetPortGUID(i, ib.PortNum(num), guid); err != nil {
				return r.refusePort(p, errors.Unwrap(err), "%v", err)
			}
		}
	}
	for i, n := range r.nodes {
		if n.IsSwitch() {
			continue
		}
		for num := 1; num <= n.numPorts; num++ {
			if g.Nodes[i].Ports[num].GUID != 0 {
				continue
			}
			guid := n.GUID + ib.GUID(num)
			if _, dup := g.ByPortGUID(guid); !dup && guid != 0 {
				if err := g.SetPortGUID(i, ib.PortNum(num), guid); err != nil {
					return r.refuse(n, errors.Unwrap(err), "%v", err)
				}
			} else if p := n.ports[num]; p != nil {
				return r.refusePort(p, ErrDuplicateGUID,
					"%q[%d] would get GUID %v, which is taken: want its own, as in [%d](GUID)", n.id, num, guid, num)
			}
		}
	}
	return nil
}

// checkWhole refuses what can't work as a fabric.
func (r *reader) checkWhole(g *Graph) error {
	switch err := g.whole(); {
	case err == nil:
		return nil
	case len(g.Nodes) == 0:
		return &ParseError{File: r.file, Line: 1, Err: ErrNoSwitch,
			Detail: "the file has no node: want ibnetdiscover's output, which starts a node with Switch or Ca"}
	case errors.Is(err, ErrNoSwitch):
		return r.refuse(r.nodes[0], ErrNoSwitch,
			"%s and no Switch line: want a switch, or two nodes cabled to each other",
			count(len(g.Nodes), "node", "nodes"))
	default:
		return r.refuse(r.nodes[0], err, "")
	}
}

// whole says why a graph can't work as a fabric: it has neither a switch nor two nodes back to back, or too many ports.
func (g *Graph) whole() error {
	if len(g.switches) == 0 && !isBackToBack(g) {
		return fmt.Errorf("%w among %s, and no two nodes back to back", ErrNoSwitch,
			count(len(g.Nodes), "node", "nodes"))
	}
	return checkLIDs(g.lidsMost())
}

// isBackToBack is the one fabric without a switch that works: two nodes, cabled
// to each other.
func isBackToBack(g *Graph) bool {
	if len(g.Nodes) != 2 {
		return false
	}
	for p := range g.Nodes[0].Ports {
		if x := &g.Nodes[0].Ports[p]; x.Connected() && x.Peer == 1 {
			return true
		}
	}
	return false
}
