package topo

import (
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// A listed end is one end of a cable as the formats say it that list links rather than nodes. What a format does not
// say is zero.
type listedEnd struct {
	kind     ib.NodeType
	guid     ib.GUID // the node's
	portGUID ib.GUID
	system   ib.GUID
	vendor   uint32
	device   uint16
	desc     string
	lid      ib.LID
	lmc      uint8
	// port is 0 where only the node is told of; label is its name where that is all there is.
	port  int
	label string
	ports int
	could ib.LinkRate
}

// listedLink is a line: a port, and the port at the other end of its cable if there is one.
type listedLink struct {
	line      int
	near, far listedEnd
	linked    bool
	rate      ib.LinkRate
}

// lister collects the lines of one file. The first mistake is kept.
type lister struct {
	file    string
	links   []listedLink
	remarks []Remark
	err     *ParseError
	// nodes come in the order in which the file names them; build finds them by these.
	nodes  []*listedNode
	byGUID map[ib.GUID]int // of nodes
	byPort map[ib.GUID]int // of ports
	byBase map[ib.GUID]int // GUIDs of ports less their numbers, of hosts of which no GUID is told
	byLID  map[ib.LID]int
}

// listedNode is a node as far as it has become known.
type listedNode struct {
	listedEnd
	line  int
	lids  map[int]listedEnd // by port
	label map[string]int    // its ports, by their labels
}

func (l *lister) warn(line int, format string, v ...any) {
	l.remarks = append(l.remarks, Remark{line, fmt.Sprintf(format, v...)})
}

func (l *lister) fail(line int, kind error, format string, v ...any) {
	if l.err == nil {
		l.err = &ParseError{File: l.file, Line: line, Err: kind, Detail: fmt.Sprintf(format, v...)}
	}
}

// odd passes over a line that is not of the format, or refuses it if it is not what tools write on the side.
func (l *lister) odd(at numberedLine, want string) {
	if isBlank(at.text) {
		return
	}
	if isNoise(at.text) {
		l.warn(at.num, "%s is what a tool wrote on the side, and was passed over", quoteShort(at.text))
		return
	}
	l.fail(at.num, ErrSyntax, "found %s: want %s", quoteShort(at.text), want)
}

// lidOf is an address that a file has; what no port can have is none.
func (l *lister) lidOf(line int, n uint64) ib.LID {
	lid, odd := unicastLID(n)
	if odd != "" {
		l.warn(line, "%s", odd)
	}
	return lid
}

// unicastLID takes what a dump has for an address: a port that has none yet shows 0, or the permissive LID 65535.
func unicastLID(n uint64) (lid ib.LID, odd string) {
	switch {
	case n == uint64(ib.LIDPermissive):
		return 0, fmt.Sprintf("LID %d is that of a port without an address: taken as none", n)
	case n > uint64(ib.LIDUnicastMax):
		return 0, fmt.Sprintf("LID %d is no host's or switch's, which end at %d: taken as none", n,
			int(ib.LIDUnicastMax))
	}
	return ib.LID(n), ""
}

// laneSpeed reads the speed of a lane as the tools write it: by name, or in Gbit/s, rounded or not.
func laneSpeed(s string) (ib.Speed, bool) {
	if speed, ok := ib.ParseSpeed(s); ok {
		return speed, true
	}
	gbps, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false
	}
	for _, at := range [...]struct {
		speed    ib.Speed
		min, max float64
	}{
		{ib.SDR, 2.4, 2.6}, {ib.DDR, 4.9, 5.1}, {ib.QDR, 9.9, 10.1}, {ib.FDR, 13.9, 14.1}, {ib.EDR, 24.9, 25.9},
		{ib.HDR, 49, 54}, {ib.NDR, 99, 108}, {ib.XDR, 198, 216},
	} {
		if gbps >= at.min && gbps <= at.max {
			return at.speed, true
		}
	}
	return 0, false
}

// find is the node of an end, if the file has told of it: by its GUID, that of its port, or its address.
func (l *lister) find(e *listedEnd) (int, bool) {
	if i, ok := l.byGUID[e.guid]; ok && e.guid != 0 {
		return i, true
	}
	if e.guid == 0 && e.portGUID != 0 {
		if i, ok := l.byPort[e.portGUID]; ok {
			return i, true
		}
		i, ok := l.byBase[e.base()]
		return i, ok
	}
	if e.guid == 0 && e.lid != 0 {
		i, ok := l.byLID[e.lid]
		return i, ok
	}
	return 0, false
}

// base is what the ports of one adapter have in common where the file tells of ports alone: adapters number the GUIDs
// of their ports from the node's.
func (e *listedEnd) base() ib.GUID { return e.portGUID - ib.GUID(e.port) }

// node finds the node of an end or begins one, and takes what the end says of it.
func (l *lister) node(line int, e *listedEnd) int {
	i, ok := l.find(e)
	if !ok {
		i = len(l.nodes)
		l.nodes = append(l.nodes, &listedNode{listedEnd: *e, line: line, lids: map[int]listedEnd{},
			label: map[string]int{}})
	}
	n := l.nodes[i]
	if n.kind == 0 {
		n.kind = e.kind
	}
	if n.desc == "" {
		n.desc = e.desc
	}
	if n.guid == 0 {
		n.guid = e.guid
	}
	n.ports = max(n.ports, e.ports, e.port)
	if e.guid != 0 {
		l.byGUID[e.guid] = i
	}
	if e.portGUID != 0 {
		l.byPort[e.portGUID] = i
		if e.guid == 0 && e.kind != ib.NodeSwitch {
			l.byBase[e.base()] = i
		}
	}
	if e.lid != 0 {
		l.byLID[e.lid] = i
	}
	if e.label != "" && e.port != 0 {
		n.label[e.label] = e.port
	}
	at := n.lids[e.port]
	if at.portGUID == 0 {
		at.portGUID = e.portGUID
	}
	if at.lid == 0 {
		at.lid, at.lmc = e.lid, e.lmc
	}
	n.lids[e.port] = at
	return i
}

// build makes the graph: nodes first, since an end may only be known by an address that a later line gives to a node.
func (l *lister) build() (*Graph, error) {
	if l.err != nil {
		return nil, l.err
	}
	l.byGUID, l.byPort = map[ib.GUID]int{}, map[ib.GUID]int{}
	l.byBase, l.byLID = map[ib.GUID]int{}, map[ib.LID]int{}
	for i := range l.links {
		l.node(l.links[i].line, &l.links[i].near)
	}
	l.findUnaddressed()
	for i := range l.links {
		if k := &l.links[i]; k.linked {
			if _, ok := l.find(&k.far); !ok && k.far.guid == 0 && k.far.portGUID == 0 {
				l.warn(k.line, "the node at LID %d, %q, is described nowhere: taken as a host", k.far.lid, k.far.desc)
				k.far.kind = ib.NodeCA
			}
			l.node(k.line, &k.far)
		}
	}
	g := &Graph{}
	g.grow(len(l.nodes))
	l.addNodes(g)
	for i := range l.links {
		if l.links[i].linked && l.err == nil {
			l.connect(g, &l.links[i])
		}
	}
	l.givePortGUIDs(g)
	if l.err != nil {
		return nil, l.err
	}
	if err := g.whole(); err != nil {
		return nil, &ParseError{File: l.file, Line: 1, Err: err}
	}
	return g, nil
}

// findUnaddressed finds far ends of which a line tells no GUID, and the address is that of a port that has none: there
// is one line that says the reverse.
func (l *lister) findUnaddressed() {
	type pair struct {
		desc, farDesc string
		port, farPort int
	}
	const several = -1
	var lines map[pair]int
	for i := range l.links {
		k := &l.links[i]
		if !k.linked || k.far.guid != 0 || k.far.portGUID != 0 || k.far.lid != 0 || k.far.label != "" {
			continue
		}
		if lines == nil {
			lines = map[pair]int{}
			for j := range l.links {
				o := &l.links[j]
				if !o.linked {
					continue
				}
				p := pair{o.near.desc, o.far.desc, o.near.port, o.far.port}
				if _, dup := lines[p]; dup {
					lines[p] = several
				} else {
					lines[p] = j
				}
			}
		}
		if j, ok := lines[pair{k.far.desc, k.near.desc, k.far.port, k.near.port}]; ok && j != several {
			o := &l.links[j].near
			k.far.kind, k.far.guid, k.far.portGUID = o.kind, o.guid, o.portGUID
		}
	}
}

func (l *lister) addNodes(g *Graph) {
	names := newNamer()
	for i, n := range l.nodes {
		if n.kind == 0 {
			n.kind = ib.NodeCA
		}
		guid := n.guid
		switch {
		case guid != 0:
		case n.kind == ib.NodeSwitch:
			guid = n.portGUID
		case n.portGUID != 0 && n.ports > 1:
			guid = n.base()
		default:
			// Newer adapters of one port give it the node's own.
			guid = n.portGUID
		}
		if guid == 0 {
			guid = madeUpGUID + ib.GUID(i)
		}
		desc := strings.TrimSpace(cleanDesc(n.desc))
		node, err := g.Add(Node{Type: n.kind, GUID: guid, SystemGUID: n.system, VendorID: n.vendor,
			DeviceID: n.device, Desc: desc, Name: names.derive(n.kind, desc)}, max(n.ports, 1))
		if err != nil {
			l.fail(n.line, ErrSyntax, "%v", err)
			return
		}
		names.take(n.kind, node.Name)
		for p := 0; p <= node.NumPorts(); p++ {
			at, ok := n.lids[p]
			if !ok {
				continue
			}
			to := p
			if n.kind == ib.NodeSwitch {
				to = 0
			}
			if at.lid != 0 {
				node.Ports[to].LID, node.Ports[to].LMC = at.lid, at.lmc
			}
			if at.portGUID != 0 && (to != 0 || n.kind == ib.NodeSwitch) {
				if err := g.SetPortGUID(node.Index, ib.PortNum(to), at.portGUID); err != nil {
					l.fail(n.line, ErrDuplicateGUID, "%v", err)
					return
				}
			}
		}
	}
}

// madeUpGUID is the first of those given to nodes of which a file tells only addresses; it is locally administered.
const madeUpGUID ib.GUID = 0x0250f11bff000000

// givePortGUIDs names the ports that the file does not: node GUID plus port number, as adapters have it, or the node's
// own, as newer ones have it whose functions are nodes of one port each.
func (l *lister) givePortGUIDs(g *Graph) {
	for i, n := range g.Nodes {
		for p := 1; p < len(n.Ports) && !n.IsSwitch(); p++ {
			if n.Ports[p].GUID != 0 {
				continue
			}
			guid := n.GUID + ib.GUID(p)
			if n.NumPorts() == 1 {
				guid = n.GUID
			}
			if _, dup := g.ByPortGUID(guid); !dup && guid != 0 {
				_ = g.SetPortGUID(i, ib.PortNum(p), guid) // it is free, and the port exists
			} else if n.Ports[p].Connected() {
				l.fail(l.nodes[i].line, ErrDuplicateGUID, "port %d of %q would get GUID %v, which is taken: want a "+
					"format that has the GUIDs of ports", p, n.Name, guid)
			}
		}
	}
}

// connect plugs a cable in, or holds a second line about it against the first.
func (l *lister) connect(g *Graph, k *listedLink) {
	a, okA := l.find(&k.near)
	b, okB := l.find(&k.far)
	port := k.far.port
	if port == 0 && okB {
		port = l.nodes[b].label[k.far.label]
	}
	if !okA || !okB || port == 0 {
		l.fail(k.line, ErrUnknownPort, "the far end, port %q of %q, is in no line of its own: want the whole file",
			k.far.label, k.far.desc)
		return
	}
	near, far := PortRef{a, ib.PortNum(k.near.port)}, PortRef{b, ib.PortNum(port)}
	spec := LinkSpec{Width: k.rate.Width, Speed: k.rate.Speed}
	if g.Peer(near) == far && g.Peer(far) == near {
		return // the other end's line
	}
	if err := g.ConnectAsym(near.Node, near.Port, far.Node, far.Port, spec, spec); err != nil {
		l.fail(k.line, ErrPortInUse, "%v: want both ends to name each other", err)
		return
	}
	for _, end := range [2]struct {
		at    PortRef
		could ib.LinkRate
	}{{near, k.near.could}, {far, k.far.could}} {
		if end.could.Mbps() > 0 {
			g.Port(end.at).Could = end.could
		}
	}
}
