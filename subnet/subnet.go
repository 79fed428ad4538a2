package subnet

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// None is the index of no node.
const None int32 = -1

// NodesMax is how many nodes a subnet can have: each needs an address. A node that makes up others cannot keep
// discovery busy for ever.
const NodesMax = int(ib.LIDUnicastMax)

// Ref names a port of the subnet.
type Ref struct {
	Node int32
	Port ib.PortNum
}

// Port is one port of a node.
type Port struct {
	// Info is the port's PortInfo as last read or written. A switch's LID, LMC and management
	// fields are those of its port 0.
	Info mad.PortInfo
	// GUID is the port's; all ports of a switch share that of port 0.
	GUID ib.GUID
	// Peer and PeerPort are the far end of the cable; Peer is None where no link is up.
	Peer     int32
	PeerPort ib.PortNum
	// Tables is what else the port holds; nil until it is known. Ports that hold the same share one.
	Tables *PortTables
}

// Up reports whether a link joins the port to another that the manager knows.
func (p *Port) Up() bool { return p.Peer != None }

// Rate is the active width and speed.
func (p *Port) Rate() ib.LinkRate { return p.Info.Rate() }

// PortTables are the tables of a port.
type PortTables struct {
	PKeys []ib.PKey
	GUIDs []ib.GUID
	// SLtoVL is by port of entry at a switch (0 is the switch itself), one entry at other nodes.
	SLtoVL []mad.SLtoVL
	// VLArb has the low-priority table and the high-priority one.
	VLArb [2][]mad.VLArbEntry
}

// Node is a node of the subnet.
type Node struct {
	Info mad.NodeInfo
	Desc string
	// Ports is indexed by number. Port 0 is a switch's own and unused at other nodes.
	Ports []Port

	// Of switches:

	Switch mad.SwitchInfo
	// LFT is the linear forwarding table up to LinearFDBTop.
	LFT []ib.PortNum
	// MFT has, for each multicast LID from 0xC000 on, the set of ports as words of 16, position after position:
	// MFT[lid-0xC000][position].
	MFT [][]uint16
	// RouteIndex is the switch's number in routing, None for other nodes.
	RouteIndex int32
}

// IsSwitch reports whether the node forwards by LID.
func (n *Node) IsSwitch() bool { return n.Info.NodeType == ib.NodeSwitch }

// EndPort is the number of the port whose LID, LMC and keys are meant for port p: 0 at a switch.
func (n *Node) EndPort(p ib.PortNum) ib.PortNum {
	if n.IsSwitch() {
		return 0
	}
	return p
}

// BaseLID is the address of port p; a switch's is its port 0's.
func (n *Node) BaseLID(p ib.PortNum) ib.LID { return n.Ports[n.EndPort(p)].Info.LID }

// Subnet is a subnet as a sweep found and left it.
type Subnet struct {
	// Prefix is the upper half of all GIDs.
	Prefix uint64
	// Nodes are in the order of discovery.
	Nodes []*Node
	// Switches are the indices of switches, in the order of routing: Switches[RouteIndex].
	Switches []int32
	// Self is the port that the manager runs on.
	Self Ref
	// Managers are the managers that were seen, our own first.
	Managers []Manager
	// Routing names the engine whose tables are in force.
	Routing string
	// Levels gives the service level that routing wants for a way.
	Levels Levels
	// Partitions are in force.
	Partitions []Partition
	// Routers are the ports of routers in the subnet, in the order of nodes.
	Routers []Router
	// Twins are nodes that are left out, because another node has their GUID.
	Twins []Twin

	byLID  []Ref // up to the highest LID; Node None where there is none
	byGUID map[ib.GUID]int32
	byPort map[ib.GUID]Ref
}

// Levels tells the service level of a way; it is what routing planned against deadlocks.
type Levels interface {
	// Level is the service level from an end port to a LID.
	Level(src Ref, dst ib.LID) ib.SL
}

// Manager is a subnet manager seen in the subnet.
type Manager struct {
	Port ib.GUID
	LID  ib.LID
	Info mad.SMInfo
}

// Router is a port of a router, and the other subnets that it says it reaches.
type Router struct {
	Port Ref
	Hops []mad.NextHop
}

// Twin is a node that answers with the GUID of another.
type Twin struct {
	GUID ib.GUID
	// Switch and Port say which port it is behind, by the GUID of that port's node.
	Switch ib.GUID
	Port   ib.PortNum
}

// Partition is a partition as it is in force.
type Partition struct {
	Name string
	// Key is the partition's number with the full bit set.
	Key     ib.PKey
	Members []PartitionMember
	IPoIB   bool
	SL      ib.SL
	// HasSL says that the partition has a service level of its own.
	HasSL bool
	MTU   ib.MTU
	Rate  uint8
	// PathMTU and PathRate bound what paths in it carry; 0 is no bound.
	PathMTU  ib.MTU
	PathRate uint8
}

// PartitionMember is a port and whether it is a full member.
type PartitionMember struct {
	GUID ib.GUID
	Full bool
}

// Index makes the look-ups below fast. It is called once, before a subnet is published.
func (s *Subnet) Index() {
	s.byGUID = make(map[ib.GUID]int32, len(s.Nodes))
	s.byPort = make(map[ib.GUID]Ref, len(s.Nodes))
	top := ib.LID(0)
	s.eachEnd(func(r Ref, p *Port) {
		if p.Info.LID.IsUnicast() {
			top = max(top, p.Info.LID+ib.LID(1)<<p.Info.LMC-1)
		}
	})
	s.byLID = make([]Ref, int(top)+1)
	for i := range s.byLID {
		s.byLID[i].Node = None
	}
	for i, n := range s.Nodes {
		s.byGUID[n.Info.NodeGUID] = int32(i)
	}
	s.eachEnd(func(r Ref, p *Port) {
		s.byPort[p.GUID] = r
		if !p.Info.LID.IsUnicast() {
			return
		}
		for k := range 1 << p.Info.LMC {
			if at := int(p.Info.LID) + k; at < len(s.byLID) && s.byLID[at].Node == None {
				s.byLID[at] = r
			}
		}
	})
}

// eachEnd visits all end ports that are in use: ports of adapters with a link, and port 0 of switches.
func (s *Subnet) eachEnd(f func(Ref, *Port)) {
	for i, n := range s.Nodes {
		if n.IsSwitch() {
			f(Ref{int32(i), 0}, &n.Ports[0])
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() || s.Self == (Ref{int32(i), ib.PortNum(p)}) {
				f(Ref{int32(i), ib.PortNum(p)}, &n.Ports[p])
			}
		}
	}
}

// EachEnd visits all end ports in use, in the order of the nodes: ports of adapters that have a link, and port 0 of
// switches.
func (s *Subnet) EachEnd(f func(Ref, *Port)) { s.eachEnd(f) }

// Port is a port of the subnet.
func (s *Subnet) Port(r Ref) *Port { return &s.Nodes[r.Node].Ports[r.Port] }

// ByLID finds the end port of an address.
func (s *Subnet) ByLID(l ib.LID) (Ref, bool) {
	if int(l) >= len(s.byLID) || s.byLID[l].Node == None {
		return Ref{Node: None}, false
	}
	return s.byLID[l], true
}

// TopLID is the highest unicast LID in use.
func (s *Subnet) TopLID() ib.LID { return ib.LID(max(len(s.byLID), 1) - 1) }

// ByGUID finds a node.
func (s *Subnet) ByGUID(g ib.GUID) (int32, bool) {
	i, ok := s.byGUID[g]
	return i, ok
}

// Behind is the end port at the other end of a port's cable; for a switch's that is its port 0.
func (s *Subnet) Behind(node ib.GUID, port ib.PortNum) (ib.GUID, bool) {
	n := s.at(node, port)
	if n == nil || !n.Ports[port].Up() {
		return 0, false
	}
	far := s.Nodes[n.Ports[port].Peer]
	return far.Ports[far.EndPort(n.Ports[port].PeerPort)].GUID, true
}

// at is the node of a GUID, if it has such a port.
func (s *Subnet) at(node ib.GUID, port ib.PortNum) *Node {
	if i, ok := s.ByGUID(node); ok && int(port) < len(s.Nodes[i].Ports) {
		return s.Nodes[i]
	}
	return nil
}

// ByPortGUID finds an end port.
func (s *Subnet) ByPortGUID(g ib.GUID) (Ref, bool) {
	r, ok := s.byPort[g]
	return r, ok
}
