package survey

import "softib/proto/ib"

// Whether what answers behind a port is a node that is known already is decided here.
//
// A switch that answers behind port p of node A with a known GUID and says that it answers by its port q is the known
// switch B if B's port q leads to A's port p. If it leads elsewhere, or has no link, it is another switch with B's
// GUID. No directed route leads through an adapter, but each of its ports has one cable: an adapter that answers by a
// port whose cable is known is another one.
//
// Links go up and down while we look. So before a node counts as a duplicate both ends are asked once more.

// duplicatesMax bounds the nodes that are made of contradictions: a node that answers differently each time must not
// make a survey endless.
const duplicatesMax = 256

// settle joins a port to a known node, if it is clear which one it is.
func (e *Engine) settle(h half) bool {
	near := &e.s.Nodes[h.node].Ports[h.port]
	if near.Cabled() {
		return true
	}
	b := &e.nodes[h.node].behind[h.port]
	for _, i := range e.found.byGUID[b.info.NodeGUID] {
		n := e.s.Nodes[i]
		q := b.info.LocalPortNum
		if n.Info.NodeType != b.info.NodeType || n.Info.NumPorts != b.info.NumPorts || q == 0 || n.Ports[q].Cabled() {
			continue
		}
		if n.IsSwitch() {
			if !e.leadsTo(i, q, h) {
				continue
			}
		} else if g := n.Ports[q].GUID; g != 0 && g != b.info.PortGUID {
			continue
		}
		e.join(h.node, h.port, i, &b.info)
		return true
	}
	return false
}

// leadsTo reports whether what answers behind port q of node i says that it is the other end, h.
func (e *Engine) leadsTo(i int32, q ib.PortNum, h half) bool {
	back := &e.nodes[i].behind[q]
	return back.answered && back.info.NodeGUID == e.s.Nodes[h.node].Info.NodeGUID && back.info.LocalPortNum == h.port
}

// resolve is called when there is nothing left to ask. It reports whether there is now.
func (e *Engine) resolve() bool {
	open := e.found.open
	e.found.open = nil
	var doubtful []half
	for _, h := range open {
		if !e.settle(h) {
			doubtful = append(doubtful, h)
		}
	}
	more := false
	for _, h := range doubtful {
		if e.s.Nodes[h.node].Ports[h.port].Cabled() {
			continue // by another one of them
		}
		if h.try == 0 {
			h.try++
			e.found.open = append(e.found.open, h)
			e.doubt(h)
			more = true
			continue
		}
		if e.settle(h) {
			continue
		}
		if i := e.silentEnd(h); i >= 0 {
			e.join(h.node, h.port, i, &e.nodes[h.node].behind[h.port].info)
			more = true
			continue
		}
		if e.found.made >= duplicatesMax {
			e.gap(task{what: askNode, node: h.node, port: h.port}, 0, "more contradictions than a survey follows")
			e.edit(h.node).Ports[h.port].Silent = true
			continue
		}
		e.found.made++
		e.addBehind(h.node, h.port)
		more = true
	}
	if !more && e.at == len(e.tasks) {
		e.name()
	}
	return more || e.at < len(e.tasks)
}

// doubt asks both ends once more.
func (e *Engine) doubt(h half) {
	b := &e.nodes[h.node].behind[h.port]
	e.push(task{what: askNode, node: h.node, port: h.port})
	for _, i := range e.found.byGUID[b.info.NodeGUID] {
		n := e.s.Nodes[i]
		q := b.info.LocalPortNum
		if int(q) >= len(n.Ports) || !n.IsSwitch() {
			continue
		}
		e.push(task{what: askPort, node: i, port: q, mod: uint32(q)})
		if n.Ports[q].Linked() {
			e.push(task{what: askNode, node: i, port: q})
		}
	}
}

// silentEnd is a known switch that fits and whose own port does not say what is behind it: nothing contradicts
// that it is the other end.
func (e *Engine) silentEnd(h half) int32 {
	b := &e.nodes[h.node].behind[h.port]
	for _, i := range e.found.byGUID[b.info.NodeGUID] {
		n := e.s.Nodes[i]
		q := b.info.LocalPortNum
		if n.IsSwitch() && n.Info.NodeType == b.info.NodeType && n.Info.NumPorts == b.info.NumPorts && q != 0 &&
			!n.Ports[q].Cabled() &&
			!e.nodes[i].behind[q].answered && (!n.Ports[q].Known || n.Ports[q].Linked()) {
			return i
		}
	}
	return None
}

// name gives every node its name, in the order in which they were found.
func (e *Engine) name() {
	for _, n := range e.s.Nodes {
		n.Name = e.found.namer.Name(n.Info.NodeType, n.Desc)
	}
}
