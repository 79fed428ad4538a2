package survey

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// None is the index of no node.
const None = -1

// Parts says what to read beyond nodes, ports and cables.
type Parts uint8

// Parts of a survey.
const (
	// Tables are the linear forwarding tables.
	Tables Parts = 1 << iota
	// Partitions are the P_Key tables of end ports, and of switch ports that enforce them.
	Partitions
	// Managers are the SMInfo of ports that say that a manager runs there.
	Managers
	// Counters are those of performance management.
	Counters
	// Lanes are SL to VL maps and arbitration tables, of ports with more than one data lane.
	Lanes
	// Levels are the service levels that the administrator gives for ways.
	Levels

	All = Tables | Partitions | Managers | Counters | Lanes | Levels
)

// Survey is what was found. It is not changed once it is handed out.
type Survey struct {
	// From is the port that the questions were asked from.
	From topo.PortRef
	// Nodes are in the order in which they were found, the asker's own first.
	Nodes []*Node
	// Parts is what was asked for.
	Parts Parts
	// Readings are counters by node and port; nil if they were not asked for.
	Readings [][]Reading
	// Levels are the service levels of ways, by the switch that packets start from; nil if they are not known.
	Levels []Ways
	// Gaps are questions without a good answer, at most GapsMax of them, and GapCount how many there were.
	Gaps     []Gap
	GapCount int
	// Asked counts the questions.
	Asked int
	// Began and Ended are when.
	Began, Ended ib.Time

	// perf is what nodes' performance management can do, for Again.
	perf []perfCaps
}

// GapsMax is how many unanswered questions a survey names.
const GapsMax = 1000

// Node is a node.
type Node struct {
	// Name is what people call it: from its description, as package topo does it.
	Name string
	Info mad.NodeInfo
	Desc string
	// Route is the directed route by which it was found.
	Route []ib.PortNum
	// Ports is indexed by number. Port 0 is a switch's own and unused at other nodes.
	Ports []Port

	// Of switches:

	Switch    mad.SwitchInfo
	HasSwitch bool // SwitchInfo was answered
	// LFT is the linear forwarding table up to LinearFDBTop; nil if it is not known, and mad.LFTNone where a block is
	// missing.
	LFT []ib.PortNum
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

// Port is a port.
type Port struct {
	// Known says that PortInfo was answered.
	Known bool
	Info  mad.PortInfo
	// GUID is the port's; 0 for an adapter's port that nothing was asked through. All ports of a switch share that of
	// port 0.
	GUID ib.GUID
	// Peer and PeerPort are the far end of the cable; Peer is None where nothing was found.
	Peer     int
	PeerPort ib.PortNum
	// Silent says that the port has a link, but nothing behind it gives a good answer.
	Silent bool

	// PKeys are the partition table up to its last key; HasPKeys says that it was read.
	PKeys    []ib.PKey
	HasPKeys bool
	// SLtoVL is by port of entry at a switch (0 is the switch itself), one entry at other nodes; nil if it was not
	// read.
	SLtoVL []mad.SLtoVL
	// VLArb has the low-priority table and the high-priority one; nil if they were not read.
	VLArb [2][]mad.VLArbEntry
	// Manager is what the manager at the port answers; nil if there is none, or it does not answer.
	Manager *mad.SMInfo
}

// Linked reports whether the port says that its link is up, in whatever state.
func (p *Port) Linked() bool {
	return p.Known && p.Info.PortState.HasLink()
}

// Cabled reports whether the far end was found.
func (p *Port) Cabled() bool { return p.Peer != None }

// Reading is what a port had counted.
type Reading struct {
	// Valid says that the counters were answered.
	Valid bool
	// Wide says that all of them have 64 bits; otherwise those of errors stop at the most that their old fields hold
	// (IBA 16.1.3.5), and those of traffic too unless WideData.
	Wide, WideData bool
	// Narrow says that those of the old fields were answered. Where neither they were nor Wide is set, errors are not
	// known.
	Narrow   bool
	At       ib.Time
	Counters ib.Counters
}

// Ways are the service levels from one switch's end ports.
type Ways struct {
	Switch int
	// SL is by destination LID; NoLevel where the administrator knows no way.
	SL []uint8
}

// NoLevel is the level of a way that the administrator does not know.
const NoLevel = 0xFF

// Gap is a question without a good answer.
type Gap struct {
	At    topo.PortRef
	Class mad.Class
	Attr  mad.AttrID
	// Status is what was answered; StatusOK if nothing was.
	Status mad.Status
	// Nonsense says what about the answer cannot be.
	Nonsense string
}

// Port is a port of the survey.
func (s *Survey) Port(r topo.PortRef) *Port { return &s.Nodes[r.Node].Ports[r.Port] }

// PortName writes a port as people do: leaf1[9].
func (s *Survey) PortName(r topo.PortRef) string { return portName(s.Nodes[r.Node], r.Port) }

// EndPorts visits all end ports in use, in the order of the nodes: ports of adapters that have a link, and port 0 of
// switches.
func (s *Survey) EndPorts(f func(topo.PortRef, *Port)) {
	for i, n := range s.Nodes {
		if n.IsSwitch() {
			f(topo.PortRef{Node: i}, &n.Ports[0])
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if ref := (topo.PortRef{Node: i, Port: ib.PortNum(p)}); n.Ports[p].Cabled() || ref == s.From {
				f(ref, &n.Ports[p])
			}
		}
	}
}

// Cables lists every cable once, from its end at the lower (node, port).
func (s *Survey) Cables() []topo.Cable {
	var list []topo.Cable
	for i, n := range s.Nodes {
		for p := range n.Ports {
			x := &n.Ports[p]
			if x.Cabled() && (x.Peer > i || x.Peer == i && int(x.PeerPort) > p) {
				list = append(list, topo.Cable{A: topo.PortRef{Node: i, Port: ib.PortNum(p)},
					B: topo.PortRef{Node: x.Peer, Port: x.PeerPort}})
			}
		}
	}
	return list
}

// Reading is what a port had counted; not valid where nothing was read.
func (s *Survey) Reading(r topo.PortRef) Reading {
	if r.Node >= len(s.Readings) || int(r.Port) >= len(s.Readings[r.Node]) {
		return Reading{}
	}
	return s.Readings[r.Node][r.Port]
}

// Renamed is the survey with other names: name says the name of a node GUID, or "" for none. Nodes that share a GUID
// keep their own, since nobody knows whose it is; so does one whose new name another has.
func (s *Survey) Renamed(name func(ib.GUID) string) *Survey {
	c := *s
	c.Nodes = make([]*Node, len(s.Nodes))
	nodes, taken := map[ib.GUID]int{}, map[string]bool{}
	for _, n := range s.Nodes {
		nodes[n.Info.NodeGUID]++
	}
	for _, n := range s.Nodes {
		if nodes[n.Info.NodeGUID] > 1 || name(n.Info.NodeGUID) == "" {
			taken[n.Name] = true
		}
	}
	for i, n := range s.Nodes {
		m := *n
		if t := name(n.Info.NodeGUID); t != "" && nodes[n.Info.NodeGUID] == 1 && !taken[t] {
			m.Name = t
			taken[t] = true
		}
		c.Nodes[i] = &m
	}
	return &c
}
