package topo

import (
	"fmt"
	"maps"
	"slices"

	"softib/proto/ib"
)

// MaxPorts is the largest port count of a node: PortInfo and the linear
// forwarding tables number ports with 8 bits, and 255 means "drop" there.
const MaxPorts = 254

// DefaultLengthMM is the length of a cable that nobody measured: 2 m.
const DefaultLengthMM = 2000

// DefaultLink is the link of a cable about which nothing was said.
var DefaultLink = LinkSpec{Width: ib.Width4x, Speed: ib.NDR, LengthMM: DefaultLengthMM}

// LinkSpec is what a cable is. Fields left zero take DefaultLink's values.
type LinkSpec struct {
	Width    ib.Width
	Speed    ib.Speed
	LengthMM int32
}

func (s LinkSpec) orDefault() LinkSpec {
	if s.Width == 0 {
		s.Width = DefaultLink.Width
	}
	if s.Speed == 0 {
		s.Speed = DefaultLink.Speed
	}
	if s.LengthMM == 0 {
		s.LengthMM = DefaultLink.LengthMM
	}
	return s
}

// Port is one port of a node and the near end of its cable.
type Port struct {
	// GUID of the port. A switch has one, on its port 0.
	GUID ib.GUID
	// Peer and PeerPort are the far end; they mean something only when the
	// port is connected.
	Peer     int
	LengthMM int32
	PeerPort ib.PortNum
	Width    ib.Width
	Speed    ib.Speed
	// LMC and LID are hints from a dump, 0 where there are none. A
	// switch carries them on port 0.
	LMC uint8
	LID ib.LID
	// Could is what the port can do, where a dump says so; Width and Speed are what its link does.
	Could ib.LinkRate
}

// Connected reports whether a cable is plugged in. No cable ends at a port 0, so
// the far port number tells.
func (p *Port) Connected() bool { return p.PeerPort != 0 }

// Rate is the link's width and speed.
func (p *Port) Rate() ib.LinkRate { return ib.LinkRate{Width: p.Width, Speed: p.Speed} }

// Node is a channel adapter, a switch or a router.
type Node struct {
	// Index is the node's place in Graph.Nodes.
	Index int
	// Name is what people type: h1, leaf1. It is unique in the graph.
	Name string
	Type ib.NodeType
	GUID ib.GUID
	// SystemGUID is shared by the nodes of one chassis.
	SystemGUID ib.GUID
	VendorID   uint32
	DeviceID   uint16
	// Desc is the node description that management datagrams carry.
	Desc string
	// Ports is indexed by port number. Port 0 of a switch is the switch
	// itself; port 0 of any other node is unused.
	Ports []Port
}

// NumPorts counts the external ports, 1 to NumPorts.
func (n *Node) NumPorts() int { return len(n.Ports) - 1 }

// PortGUIDs are those of all ports that take a cable.
func (n *Node) PortGUIDs() []ib.GUID {
	list := make([]ib.GUID, n.NumPorts())
	for i := range list {
		list[i] = n.PortGUID(ib.PortNum(i + 1))
	}
	return list
}

// IsSwitch reports whether n forwards by LID.
func (n *Node) IsSwitch() bool { return n.Type == ib.NodeSwitch }

// PortGUID is the GUID that names port p: every port of a switch shares that of
// its port 0 (IBA 14.2.5.3). It is 0 for a port that does not exist.
func (n *Node) PortGUID(p ib.PortNum) ib.GUID {
	if int(p) >= len(n.Ports) {
		return 0
	}
	if n.IsSwitch() {
		p = 0
	}
	return n.Ports[p].GUID
}

// Graph is a fabric. The zero value is an empty one. Nodes enter with Add
// and cables with Connect, which keep the indices true; the fields of nodes
// and ports may be read by anyone, and those that no index is made of (Desc,
// LID, LMC, ids) may be changed.
type Graph struct {
	// Kind is the family in words, such as "fat tree"; empty when unknown.
	Kind string
	// Planes is how many planes it was made of, each with one of a host's ports; 0 stands for one.
	Planes int
	// Nodes are in the order in which they were added.
	Nodes []*Node

	hosts    []*Node
	switches []*Node
	routers  []*Node
	cables   int
	byName   map[string]int
	byGUID   map[ib.GUID]int
	byPort   map[ib.GUID]PortRef
}

// PortRef names a port of the graph.
type PortRef struct {
	Node int
	Port ib.PortNum
}

// grow makes room for n more nodes, so that the indices don't rehash.
func (g *Graph) grow(n int) {
	if g.byName != nil {
		return
	}
	g.Nodes = make([]*Node, 0, n)
	g.byName = make(map[string]int, n)
	g.byGUID = make(map[ib.GUID]int, n)
	g.byPort = make(map[ib.GUID]PortRef, n)
}

// Add adds a node with ports 1 to numPorts, none of them cabled. It takes the
// descriptive fields of n and sets Index and Ports itself. A GUID of 0 is
// refused; a SystemGUID of 0 becomes the GUID. A switch's port 0 gets the
// node's GUID; port GUIDs of other nodes are set with SetPortGUID.
func (g *Graph) Add(n Node, numPorts int) (*Node, error) {
	switch {
	case n.Type < ib.NodeCA || n.Type > ib.NodeRouter:
		return nil, &NodeError{n.Name, n.GUID, ErrNodeType,
			fmt.Sprintf("type is %v: want CA, Switch or Router", n.Type)}
	case n.Name == "":
		return nil, &NodeError{n.Name, n.GUID, ErrNoName, "name is empty: want one such as h1"}
	case n.GUID == 0:
		return nil, &NodeError{n.Name, n.GUID, ErrNoGUID, "GUID is 0: want a nonzero one"}
	case numPorts < 1 || numPorts > MaxPorts:
		return nil, &NodeError{n.Name, n.GUID, ErrPortCount, fmt.Sprintf("%d ports: want 1 to %d", numPorts, MaxPorts)}
	}
	if i, dup := g.byName[n.Name]; dup {
		return nil, &NodeError{n.Name, n.GUID, ErrDuplicateName,
			fmt.Sprintf("name is taken by node %v: want a new one", g.Nodes[i].GUID)}
	}
	if i, dup := g.byGUID[n.GUID]; dup {
		return nil, &NodeError{n.Name, n.GUID, ErrDuplicateGUID,
			fmt.Sprintf("GUID is taken by %s: want a new one", g.Nodes[i].Name)}
	}
	if n.SystemGUID == 0 {
		n.SystemGUID = n.GUID
	}
	g.grow(16)
	n.Index = len(g.Nodes)
	n.Ports = make([]Port, numPorts+1)
	node := &n
	if n.IsSwitch() {
		if err := g.setPortGUID(node, 0, n.GUID); err != nil {
			return nil, err
		}
	}
	g.Nodes = append(g.Nodes, node)
	g.byName[n.Name] = n.Index
	g.byGUID[n.GUID] = n.Index
	switch n.Type {
	case ib.NodeSwitch:
		g.switches = append(g.switches, node)
	case ib.NodeRouter:
		g.routers = append(g.routers, node)
	default:
		g.hosts = append(g.hosts, node)
	}
	return node, nil
}

// SetPortGUID names a port. Port 0 is a switch's own; the ports of other nodes
// start at 1.
func (g *Graph) SetPortGUID(node int, p ib.PortNum, guid ib.GUID) error {
	n, err := g.portOf(node, p)
	if err != nil {
		return err
	}
	if guid == 0 {
		return &NodeError{n.Name, n.GUID, ErrNoGUID, fmt.Sprintf("GUID of port %d is 0: want a nonzero one", p)}
	}
	return g.setPortGUID(n, p, guid)
}

func (g *Graph) setPortGUID(n *Node, p ib.PortNum, guid ib.GUID) error {
	ref := PortRef{n.Index, p}
	if old, dup := g.byPort[guid]; dup && old != ref {
		return &NodeError{n.Name, n.GUID, ErrDuplicateGUID,
			fmt.Sprintf("GUID %v of port %d is taken by %s: want a new one", guid, p, g.PortName(old))}
	}
	if old := n.Ports[p].GUID; old != 0 {
		delete(g.byPort, old)
	}
	n.Ports[p].GUID = guid
	g.byPort[guid] = ref
	return nil
}

// portOf finds the node and checks that it has the port; port 0 passes for a switch.
func (g *Graph) portOf(node int, p ib.PortNum) (*Node, error) {
	if node < 0 || node >= len(g.Nodes) {
		return nil, &PortError{Node: fmt.Sprintf("node %d", node), Port: p, Err: ErrUnknownNode,
			Detail: fmt.Sprintf("the graph has %d nodes", len(g.Nodes))}
	}
	n := g.Nodes[node]
	if int(p) > n.NumPorts() || p == 0 && !n.IsSwitch() {
		return nil, &PortError{Node: n.Name, Port: p, Err: ErrUnknownPort,
			Detail: fmt.Sprintf("%s has ports 1 to %d", n.Name, n.NumPorts())}
	}
	return n, nil
}

// Connect plugs a cable between port pa of node a and port pb of node b. Two
// ports of one switch may be cabled to each other; a port to itself may not.
func (g *Graph) Connect(a int, pa ib.PortNum, b int, pb ib.PortNum, link LinkSpec) error {
	link = link.orDefault()
	return g.ConnectAsym(a, pa, b, pb, link, link)
}

// ConnectAsym is Connect for a dump whose two ends disagree about width or speed,
// which Check then reports. The cable has the length that the near end says.
func (g *Graph) ConnectAsym(a int, pa ib.PortNum, b int, pb ib.PortNum, near, far LinkSpec) error {
	na, err := g.cablePort(a, pa)
	if err != nil {
		return err
	}
	nb, err := g.cablePort(b, pb)
	if err != nil {
		return err
	}
	if a == b && pa == pb {
		return &PortError{Node: na.Name, Port: pa, Err: ErrSelfLoop, Detail: "a cable needs two ports"}
	}
	for _, end := range [2]PortRef{{a, pa}, {b, pb}} {
		if p := g.Port(end); p.Connected() {
			return &PortError{Node: g.Nodes[end.Node].Name, Port: end.Port, Err: ErrPortInUse,
				Detail: fmt.Sprintf("a cable to %s is plugged in already", g.PortName(PortRef{p.Peer, p.PeerPort}))}
		}
	}
	near, far = near.orDefault(), far.orDefault()
	x, y := &na.Ports[pa], &nb.Ports[pb]
	x.Peer, x.PeerPort, x.Width, x.Speed, x.LengthMM = b, pb, near.Width, near.Speed, near.LengthMM
	y.Peer, y.PeerPort, y.Width, y.Speed, y.LengthMM = a, pa, far.Width, far.Speed, near.LengthMM
	g.cables++
	return nil
}

// cablePort is portOf for a port that takes a cable, which port 0 never does.
func (g *Graph) cablePort(node int, p ib.PortNum) (*Node, error) {
	n, err := g.portOf(node, p)
	if err == nil && p == 0 {
		return nil, &PortError{Node: n.Name, Port: 0, Err: ErrUnknownPort,
			Detail: fmt.Sprintf("port 0 takes no cable; %s has ports 1 to %d", n.Name, n.NumPorts())}
	}
	return n, err
}

// Disconnect pulls the cable out of port p of node a, at both ends.
func (g *Graph) Disconnect(a int, p ib.PortNum) error {
	n, err := g.cablePort(a, p)
	if err != nil {
		return err
	}
	x := &n.Ports[p]
	if !x.Connected() {
		return &PortError{Node: n.Name, Port: p, Err: ErrNotConnected, Detail: "there is no cable to pull"}
	}
	y := &g.Nodes[x.Peer].Ports[x.PeerPort]
	for _, e := range [2]*Port{x, y} {
		e.Peer, e.PeerPort, e.Width, e.Speed, e.LengthMM = 0, 0, 0, 0, 0
	}
	g.cables--
	return nil
}

// Clone is a copy that shares nothing with g.
func (g *Graph) Clone() *Graph {
	c := &Graph{Kind: g.Kind, Planes: g.Planes, cables: g.cables, byName: maps.Clone(g.byName),
		byGUID: maps.Clone(g.byGUID), byPort: maps.Clone(g.byPort)}
	c.Nodes = make([]*Node, len(g.Nodes))
	for i, n := range g.Nodes {
		m := *n
		m.Ports = slices.Clone(n.Ports)
		c.Nodes[i] = &m
	}
	copyOf := func(set []*Node) []*Node {
		var out []*Node
		for _, n := range set {
			out = append(out, c.Nodes[n.Index])
		}
		return out
	}
	c.hosts, c.switches, c.routers = copyOf(g.hosts), copyOf(g.switches), copyOf(g.routers)
	return c
}

// Port is the port that ref names, or nil when there is none.
func (g *Graph) Port(ref PortRef) *Port {
	if ref.Node < 0 || ref.Node >= len(g.Nodes) || int(ref.Port) >= len(g.Nodes[ref.Node].Ports) {
		return nil
	}
	return &g.Nodes[ref.Node].Ports[ref.Port]
}

// Peer is the port at the other end of a cable, zero if there is none.
func (g *Graph) Peer(ref PortRef) (far PortRef) {
	if p := g.Port(ref); p != nil && p.Connected() {
		far = PortRef{Node: p.Peer, Port: p.PeerPort}
	}
	return far
}

// LinkRate is what the cable at ref runs at: where the two ends name different
// widths or speeds, the lesser of each, as training settles it. It is zero for a
// port without a cable.
func (g *Graph) LinkRate(ref PortRef) ib.LinkRate {
	x := g.Port(ref)
	if x == nil || !x.Connected() {
		return ib.LinkRate{}
	}
	return x.Rate().Lesser(g.Port(PortRef{x.Peer, x.PeerPort}).Rate())
}

// Capable is what a port can do, whatever its link does. Where nothing says so it is what the node's other ports show:
// they are of one chip, so that one link of a switch at DDR among many at EDR is a bad link and no slow port. Lanes are
// added only up to the four that ports have everywhere.
func (g *Graph) Capable(ref PortRef) ib.LinkRate {
	x := g.Port(ref)
	if x == nil {
		return ib.LinkRate{}
	}
	if x.Could.Mbps() > 0 {
		return x.Could
	}
	best := x.Rate()
	if !x.Connected() {
		return best
	}
	ports := g.Nodes[ref.Node].Ports
	for p := 1; p < len(ports); p++ {
		if !ports[p].Connected() {
			continue
		}
		best.Speed = max(best.Speed, ports[p].Speed)
		if best.Width.Lanes() < 4 && ports[p].Width.Lanes() >= 4 {
			best.Width = ib.Width4x
		}
	}
	return best
}

// CapableLink is what both ends of a cable can do. A link that runs below it is degraded.
func (g *Graph) CapableLink(ref PortRef) ib.LinkRate {
	return g.Capable(ref).Lesser(g.Capable(g.Peer(ref)))
}

// PortName writes a port as people do: leaf1[9].
func (g *Graph) PortName(ref PortRef) string {
	if ref.Node < 0 || ref.Node >= len(g.Nodes) {
		return fmt.Sprintf("node %d[%d]", ref.Node, ref.Port)
	}
	return fmt.Sprintf("%s[%d]", g.Nodes[ref.Node].Name, ref.Port)
}

// Hosts are the channel adapters, in order. The slice is the graph's own: read it only.
func (g *Graph) Hosts() []*Node { return g.hosts }

// Switches are the switches, in order. The slice is the graph's own: read it only.
func (g *Graph) Switches() []*Node { return g.switches }

// Routers are the routers, in order. The slice is the graph's own: read it only.
func (g *Graph) Routers() []*Node { return g.routers }

// EndPorts are the ports that have addresses: those of hosts and routers that have a cable, and the switches' own.
func (g *Graph) EndPorts() (list []PortRef) {
	for _, n := range g.Nodes {
		if n.IsSwitch() {
			list = append(list, PortRef{Node: n.Index})
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() {
				list = append(list, PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
		}
	}
	return list
}

// NumCables counts the cables.
func (g *Graph) NumCables() int { return g.cables }

// ByName finds a node by its name, or nil.
func (g *Graph) ByName(name string) *Node {
	if i, ok := g.byName[name]; ok {
		return g.Nodes[i]
	}
	return nil
}

// ByGUID finds a node by its node GUID, or nil.
func (g *Graph) ByGUID(guid ib.GUID) *Node {
	if i, ok := g.byGUID[guid]; ok {
		return g.Nodes[i]
	}
	return nil
}

// ByPortGUID finds a port by its port GUID; a switch's is its port 0.
func (g *Graph) ByPortGUID(guid ib.GUID) (PortRef, bool) {
	ref, ok := g.byPort[guid]
	return ref, ok
}

// Behind is the end port at the other end of a port's cable, by its GUID; a switch's is its port 0.
func (g *Graph) Behind(node ib.GUID, port ib.PortNum) (ib.GUID, bool) {
	n := g.ByGUID(node)
	if n == nil || int(port) >= len(n.Ports) || !n.Ports[port].Connected() {
		return 0, false
	}
	far, num := g.Nodes[n.Ports[port].Peer], n.Ports[port].PeerPort
	if far.IsSwitch() {
		num = 0
	}
	return far.PortGUID(num), true
}

// Cable is one cable, seen from its end at the lower (node, port).
type Cable struct {
	A, B     PortRef
	LengthMM int32
}

// Cables lists every cable once, ordered by its A end.
func (g *Graph) Cables() []Cable {
	out := make([]Cable, 0, g.cables)
	for i, n := range g.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Connected() || x.Peer < i || x.Peer == i && int(x.PeerPort) < p {
				continue
			}
			out = append(out, Cable{PortRef{i, ib.PortNum(p)}, PortRef{x.Peer, x.PeerPort}, x.LengthMM})
		}
	}
	return out
}

// NumLIDs counts the LIDs that the fabric needs with LMC 0: one for each switch
// and one for each cabled port of the other nodes.
func (g *Graph) NumLIDs() int {
	count := len(g.switches)
	for _, set := range [2][]*Node{g.hosts, g.routers} {
		for _, n := range set {
			for p := 1; p < len(n.Ports); p++ {
				if n.Ports[p].Connected() {
					count++
				}
			}
		}
	}
	return count
}
