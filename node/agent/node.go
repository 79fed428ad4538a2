package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// Node is what an HCA or a switch lets its agent see and change. Everything
// passes by value: the agent keeps no reference into the node.
//
// The agent checks ports, blocks and values before it calls, so that a Node may index its
// tables with what it is given: ports are 1 to NumPorts, and 0 at
// a switch; blocks lie within the capacities that the node itself reports.
// An error from a Set method is answered with status InvalidField and must leave
// the node as it was.
type Node interface { // tidy: calls out, it stands for the node's tables and never calls its agent
	// NodeInfo is the node's identity seen from a port: PortGUID is that of
	// the port (of port 0 at a switch). LocalPortNum is filled in by the
	// agent. Its NodeType and NumPorts never change.
	NodeInfo(port ib.PortNum) mad.NodeInfo
	// NodeDescription is the name that people know the node by.
	NodeDescription() string

	// PortInfo is a port's state, capabilities and configuration. The M_Key
	// fields (M_Key, M_KeyProtectBits, M_KeyLeasePeriod, M_KeyViolations) and
	// ClientReregister are the agent's; what the node puts there is
	// overwritten.
	PortInfo(port ib.PortNum) mad.PortInfo
	// SetPortInfo takes the port's PortInfo with the writable fields
	// replaced and checked. Three fields are not values but commands:
	//
	//   - PortState: NoChange, or Down, Armed, Active, legal from the
	//     present state. Down makes the link go down and train again.
	//   - PortPhysicalState: NoChange, or Sleep, Polling, Disabled.
	//   - ClientReregister: programs that had subscribed or joined must do so again.
	//
	// Violation counters that come as 0 are to be reset.
	SetPortInfo(now ib.Time, port ib.PortNum, pi mad.PortInfo) error

	// GUIDs is a block of the port's GUID table; entry 0 of block 0 is the
	// port's own and never written.
	GUIDs(port ib.PortNum, block int) mad.GUIDInfo
	SetGUIDs(now ib.Time, port ib.PortNum, block int, g mad.GUIDInfo) error

	// PKeys is a block of the port's partition table.
	PKeys(port ib.PortNum, block int) mad.PKeyTable
	SetPKeys(now ib.Time, port ib.PortNum, block int, t mad.PKeyTable) error

	// SLtoVL is the lane of each service level for packets that come in by
	// one port and leave by another. Other nodes than switches get the same port
	// twice.
	SLtoVL(in, out ib.PortNum) mad.SLtoVL
	SetSLtoVL(now ib.Time, in, out ib.PortNum, t mad.SLtoVL) error

	// VLArb is a part of the port's arbitration tables.
	VLArb(port ib.PortNum, block mad.VLArbBlock) mad.VLArb
	SetVLArb(now ib.Time, port ib.PortNum, block mad.VLArbBlock, t mad.VLArb) error

	// MlnxExtPortInfo is what Mellanox' devices have beside PortInfo; SetMlnxExtPortInfo takes the
	// fields of it that are written, checked.
	MlnxExtPortInfo(port ib.PortNum) mad.MlnxExtPortInfo
	SetMlnxExtPortInfo(now ib.Time, port ib.PortNum, pi mad.MlnxExtPortInfo) error

	// ReadCounter is a counter's present value; a node that does not keep one
	// says 0.
	ReadCounter(port ib.PortNum, c ib.Counter) uint64
	// ClearCounter sets a counter to 0.
	ClearCounter(port ib.PortNum, c ib.Counter)
	// ReadLaneCounter is a counter of lane or service level i, 0 to 15, since the node was made. The
	// agent subtracts what was when it was reset.
	ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64

	// PollNotice hands out what happened at the node that its manager wants to hear of, one by
	// one. The node keeps few of them; what it forgets it has counted.
	PollNotice() (Notice, bool)
}

// Notice is something that happened at a node.
type Notice struct {
	// Trap is the number by which managers know it: mad.TrapLinkStateChange (of switches alone),
	// mad.TrapLinkIntegrity, mad.TrapBufferOverrun, mad.TrapFlowControlWatchdog, mad.TrapBadPKey,
	// mad.TrapBadQKey or mad.TrapBadPKeySwitch.
	Trap uint16
	// Port is where.
	Port ib.PortNum
	// Packet is the one whose key did not fit, for the last three.
	Packet mad.KeyDetails
}

// AllPorts stands for every port of a switch in SpreadSLtoVL.
const AllPorts ib.PortNum = 0xFF

// Switch is a Node that forwards. New finds out by itself whether its node is
// one.
type Switch interface { // tidy: calls out, as Node
	Node

	// SpreadSLtoVL is SetSLtoVL for all input ports, all output ports or both: those are AllPorts.
	SpreadSLtoVL(now ib.Time, in, out ib.PortNum, t mad.SLtoVL) error

	// SwitchInfo is what the switch can do and how it forwards. Its capacities
	// never change.
	SwitchInfo() mad.SwitchInfo
	// SetSwitchInfo takes the SwitchInfo with the writable fields replaced
	// and checked. PortStateChange is a command: true resets it.
	SetSwitchInfo(now ib.Time, si mad.SwitchInfo) error

	// LFT is a block of the linear forwarding table: 64 LIDs from
	// 64*block on.
	LFT(block int) mad.LFT
	SetLFT(now ib.Time, block int, t mad.LFT) error

	// MFT is a block of the multicast forwarding table: 32 LIDs from 0xC000 +
	// 32*block on, 16 ports from 16*position on.
	MFT(block, position int) mad.MFT
	SetMFT(now ib.Time, block, position int, t mad.MFT) error
}

// MarkingSwitch is a Switch that marks packets in congestion.
type MarkingSwitch interface { // tidy: calls out, as Node
	Switch
	// SetCongestion takes the setting of all ports, and those of single ports.
	SetCongestion(all mad.SwitchCongestion, byPort []mad.SwitchPortEntry)
	// TakeMarked is how many packets a port has marked since it was last asked, and the last flows that they were of.
	TakeMarked(port ib.PortNum) (n uint64, flows []MarkedFlow)
}

// MarkedFlow is a flow of which a packet was marked, and when last.
type MarkedFlow struct {
	SLID, DLID ib.LID
	SL         ib.SL
	At         ib.Time
}

// SlowingAdapter is a Node that sends less when it is told of congestion.
type SlowingAdapter interface { // tidy: calls out, as Node
	Node
	// SetCongestion takes how a port does so.
	SetCongestion(port ib.PortNum, c CongestionSetting)
}

// CongestionSetting is CACongestionSetting and the congestion control table of a port.
type CongestionSetting struct {
	PortControl, ControlMap uint16
	Entries                 [ib.NumSL]CongestionEntry
	// Table has a shift in the high two bits of an entry and a multiplier in the others, up to Limit.
	Table []uint16
	Limit uint16
}

// CongestionEntry is what a port does at a service level.
type CongestionEntry struct {
	Timer         uint16
	Increase, Min uint8
}

// AdaptiveSwitch is a Switch whose LIDs may have groups of ports to choose from.
type AdaptiveSwitch interface { // tidy: calls out, as Node
	Switch

	// ARInfo is how it chooses. SetARInfo takes it with the writable fields replaced.
	ARInfo() mad.ARInfo
	SetARInfo(now ib.Time, i mad.ARInfo) error

	// ExtSwitchInfo is what lanes go by. SetExtSwitchInfo takes it with the writable field replaced.
	ExtSwitchInfo() mad.ExtSwitchInfo
	SetExtSwitchInfo(now ib.Time, x mad.ExtSwitchInfo) error

	// ARGroups are the ports of two sets of the groups from 2*block on.
	ARGroups(block int) mad.ARGroupTable
	SetARGroups(now ib.Time, block int, t mad.ARGroupTable) error

	// ARLFT is where packets to 16 LIDs from 16*block on go, the entries of the linear forwarding table included.
	ARLFT(block int) mad.ARLFT
	SetARLFT(now ib.Time, block int, t mad.ARLFT) error
}

// Router is a Node that forwards between subnets. Its tables are those of the port by which a request came: each has
// a subnet, and a manager, of its own.
type Router interface { // tidy: calls out, as Node
	Node

	// NextHops are the subnets that packets reach which come in by a port.
	NextHops(port ib.PortNum) []mad.NextHop

	// RouterGUIDs say who has 8 LIDs of the port's subnet, from 8*block on.
	RouterGUIDs(port ib.PortNum, block int) mad.RouterGUIDs
	SetRouterGUIDs(now ib.Time, port ib.PortNum, block int, t mad.RouterGUIDs) error

	// RouterPeers are what other routers of the port's subnet reach.
	RouterPeers(port ib.PortNum, block int) mad.NextHopTable
	SetRouterPeers(now ib.Time, port ib.PortNum, block int, t mad.NextHopTable) error

	// RouterGroup is a multicast group of the port's subnet that has members who receive.
	RouterGroup(port ib.PortNum, index int) mad.RouterGroup
	SetRouterGroup(now ib.Time, port ib.PortNum, index int, g mad.RouterGroup) error

	// GroupsWanted are those whose packets are to come to the port, for members in other subnets.
	GroupsWanted(port ib.PortNum) []mad.RouterGroup
}

// NextHopCap is how many next hops a router's tables have, and RouterGroupCap how many groups.
const (
	NextHopCap     = 256
	RouterGroupCap = 1024
)
