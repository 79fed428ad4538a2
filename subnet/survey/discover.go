package survey

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
)

// behind is what answers behind a port.
type behind struct {
	asked, answered bool
	info            mad.NodeInfo
}

// discovery is what is needed until all nodes are known.
type discovery struct {
	byGUID map[ib.GUID][]int32
	namer  *topo.Namer
	// open are ports behind which a node with a known GUID answers, of which it is not known yet whether it is that
	// one.
	open []half
	made int // nodes that resolve had to make
}

// half is one end of a cable.
type half struct {
	node int32
	port ib.PortNum
	try  int8
}

func (d *discovery) begin() {
	d.byGUID = map[ib.GUID][]int32{}
	d.namer = topo.NewNamer()
}

// route is the directed route of a question.
func (e *Engine) route(t task) ([]ib.PortNum, bool) {
	if t.what == askSelf {
		return nil, true
	}
	n := e.s.Nodes[t.node]
	route := n.Route
	switch {
	case t.what == askNode:
		if len(route) >= mad.MaxHops {
			e.gap(t, mad.StatusOK, "further away than the 63 hops that a directed route has")
			e.edit(t.node).Ports[t.port].Silent = true
			return nil, false
		}
		// Clipped, so that append makes a copy: the node's own route stays.
		route = append(route[:len(route):len(route)], t.port)
	case t.what == askManager && !n.IsSwitch() && n.Ports[t.port].Cabled() && int(t.node) != e.s.From.Node:
		// A manager is asked at its own port.
		x := &n.Ports[t.port]
		far := e.s.Nodes[x.Peer].Route
		route = append(far[:len(far):len(far)], x.PeerPort)
	}
	return route, true
}

// discovered takes a good answer of discovery.
func (e *Engine) discovered(t task, data []byte) {
	switch t.what {
	case askSelf, askNode:
		var info mad.NodeInfo
		if _, err := info.Parse(data); err != nil {
			return
		}
		e.foundNode(t, &info)
	case askDesc:
		var d mad.NodeDescription
		if _, err := d.Parse(data); err == nil {
			e.edit(t.node).Desc = d.String()
		}
	case askSwitch:
		n := e.edit(t.node)
		if _, err := n.Switch.Parse(data); err == nil {
			n.HasSwitch = true
		}
	case askPort:
		e.foundPort(t, data)
	case askMlnx:
		p := &e.edit(t.node).Ports[t.port]
		_, _ = p.Info.Mlnx.Parse(data) // what is too short says nothing
	case askOwnKeys:
		var b mad.PKeyTable
		if _, err := b.Parse(data); err == nil {
			e.perf.pkeyIndex = defaultKey(b[:])
		}
	}
}

// undiscovered takes the news that a question of discovery has no good answer. What was not answered is not known; the
// gap says so.
func (e *Engine) undiscovered(t task) {
	if t.what == askNode && !e.nodes[t.node].behind[t.port].answered {
		e.edit(t.node).Ports[t.port].Silent = true
	}
}

// foundNode takes the NodeInfo of our own node, or of the one behind a port.
func (e *Engine) foundNode(t task, info *mad.NodeInfo) {
	if why := info.Nonsense(); why != "" {
		e.gap(t, mad.StatusOK, why)
		e.failed(t)
		return
	}
	if t.what == askSelf {
		i := e.addNode(nil, info)
		p := info.LocalPortNum
		n := e.s.Nodes[i]
		if n.IsSwitch() {
			p = 0
		} else {
			n.Ports[p].GUID = info.PortGUID
			e.push(task{what: askOwnKeys, node: i, port: p})
		}
		e.s.From = topo.PortRef{Node: int(i), Port: p}
		e.askAbout(i)
		return
	}
	b := &e.nodes[t.node].behind[t.port]
	again := b.answered
	b.answered, b.info = true, *info
	if again || e.s.Nodes[t.node].Ports[t.port].Cabled() {
		return // resolve asked, or the far end has been here; what was new is in behind
	}
	if len(e.found.byGUID[info.NodeGUID]) == 0 {
		e.addBehind(t.node, t.port)
		return
	}
	if h := (half{node: t.node, port: t.port}); !e.settle(h) {
		e.found.open = append(e.found.open, h)
	}
}

// addBehind makes a node of what answers behind a port, and joins the two.
func (e *Engine) addBehind(node int32, port ib.PortNum) {
	info := e.nodes[node].behind[port].info
	if len(e.s.Nodes) >= subnet.NodesMax || info.LocalPortNum == 0 {
		e.gap(task{what: askNode, node: node, port: port}, mad.StatusOK, "no node that could be cabled here")
		e.edit(node).Ports[port].Silent = true
		return
	}
	near := e.s.Nodes[node].Route
	i := e.addNode(append(near[:len(near):len(near)], port), &info)
	e.join(node, port, i, &info)
}

// addNode takes a node that was not known into the survey.
func (e *Engine) addNode(route []ib.PortNum, info *mad.NodeInfo) int32 {
	i := int32(len(e.s.Nodes))
	n := &Node{Info: *info, Route: route, Ports: make([]Port, int(info.NumPorts)+1)}
	for p := range n.Ports {
		n.Ports[p].Peer = None
	}
	m := memory{own: true}
	if n.IsSwitch() {
		n.Ports[0].GUID = info.PortGUID
		for p := range n.Ports {
			n.Ports[p].GUID = info.PortGUID
		}
	}
	if n.IsSwitch() || i == 0 {
		m.behind = make([]behind, len(n.Ports))
	}
	e.s.Nodes = append(e.s.Nodes, n)
	e.nodes = append(e.nodes, m)
	e.found.byGUID[info.NodeGUID] = append(e.found.byGUID[info.NodeGUID], i)
	return i
}

// join notes a cable, at both ends, and asks the far node who it is.
func (e *Engine) join(node int32, port ib.PortNum, far int32, info *mad.NodeInfo) {
	a, b := &e.s.Nodes[node].Ports[port], &e.s.Nodes[far].Ports[info.LocalPortNum]
	a.Peer, a.PeerPort = int(far), info.LocalPortNum
	b.Peer, b.PeerPort = int(node), port
	a.Silent, b.Silent = false, false
	if !e.s.Nodes[far].IsSwitch() {
		b.GUID = info.PortGUID
	}
	e.askAbout(far)
}

// askAbout asks a node for everything that discovery wants, once.
func (e *Engine) askAbout(i int32) {
	if e.nodes[i].asked {
		return
	}
	e.nodes[i].asked = true
	n := e.s.Nodes[i]
	e.push(task{what: askDesc, node: i})
	if n.IsSwitch() {
		e.push(task{what: askSwitch, node: i})
		e.push(task{what: askPort, node: i})
	}
	for p := 1; p < len(n.Ports); p++ {
		e.push(task{what: askPort, node: i, port: ib.PortNum(p), mod: uint32(p)})
	}
}

// foundPort takes a port's PortInfo, and asks who is behind a port that leads on.
func (e *Engine) foundPort(t task, data []byte) {
	n := e.edit(t.node)
	p := &n.Ports[t.port]
	if _, err := p.Info.Parse(data); err != nil {
		return
	}
	p.Known = true
	p.Info.MKey = 0 // nobody's business
	if t.port != 0 && p.Linked() && p.Info.HasQDR() && n.Info.MayHaveFDR10() {
		e.push(task{what: askMlnx, node: t.node, port: t.port, mod: uint32(t.port)})
	}
	if t.port == 0 || !p.Linked() || !n.IsSwitch() && int(t.node) != e.s.From.Node {
		return
	}
	if !n.IsSwitch() && t.port != e.s.From.Port {
		return // directed routes leave by the port that they were given to
	}
	if b := &e.nodes[t.node].behind[t.port]; !b.asked {
		b.asked = true
		e.push(task{what: askNode, node: t.node, port: t.port})
	}
}
