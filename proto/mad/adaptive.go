package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Adaptive routing is no part of the standard. Its attributes of the subnet management class are those of Mellanox'
// switches, which have a number for each group of ports and, for each LID, the group beside the port.

// Sizes of the tables of adaptive routing.
const (
	ARGroupsPerBlock = 2  // of ARGroupTable
	ARLFTPerBlock    = 16 // LIDs of ARLFT
)

// ARInfoLayout is AdaptiveRoutingInfo, what a switch can choose by and does.
var ARInfoLayout = Layout{"AdaptiveRoutingInfo", SMPDataLen, []Field{
	{Name: "ByTransportCap", Off: 2, Bits: 1},
	{Name: "BySLEnabled", Off: 3, Bits: 1},
	{Name: "BySLCap", Off: 4, Bits: 1},
	{Name: "SubGroupsActive", Off: 20, Bits: 4},
	{Name: "Enabled", Off: 31, Bits: 1},
	{Name: "GroupTableCap", Off: 36, Bits: 4},
	{Name: "GroupTop", Off: 40, Bits: 12},
	{Name: "GroupCap", Off: 52, Bits: 12},
	{Name: "EnableBySLMask", Off: 64, Bits: 16, Kind: Hex},
	{Name: "SubGroupsSupported", Off: 80, Bits: 8},
	{Name: "VersionCap", Off: 92, Bits: 4},
	{Name: "ByTransportDisable", Off: 120, Bits: 8, Kind: Hex},
	{Name: "AgeingTime", Off: 128, Bits: 32},
	{Name: "DetourLanes", Off: 160, Bits: 16, Kind: Hex},
}}

// ARInfo says how a switch chooses among ports.
type ARInfo struct {
	Enabled bool
	// BySL: only packets of the levels in SLMask may choose. BySLCap: the switch can do that.
	BySL, BySLCap bool
	SLMask        uint16
	// NoTransports are those whose packets do not choose: bit 0 UD, 1 RC, 2 UC. TransportCap: the switch can do that.
	NoTransports uint8
	TransportCap bool
	// GroupCap is how many groups there are in each of GroupTableCap tables, GroupTop the last in use.
	GroupCap, GroupTop uint16
	GroupTableCap      uint8
	// SubGroups is how many sets of ports a group may have, and SubGroupsActive how many it has beyond the first: set k
	// of group n is entry n*(SubGroupsActive+1)+k of the table.
	SubGroups, SubGroupsActive, VersionCap uint8
	// DetourLanes are the lanes on which packets come that may take the second set: bit n stands for lane n. It is
	// softib's own: Mellanox' switches have forwarding tables for that, chosen by port and lane.
	DetourLanes uint16
	// AgeingTime, in microseconds, is how long a bounded flow that is silent stays with its port; ARNeverAges: as long
	// as a message lasts.
	AgeingTime uint32
}

// ARNeverAges is the longest AgeingTime.
const ARNeverAges = 0xFFFFFFFF

// Parse reads the attribute and returns its length.
func (a *ARInfo) Parse(b []byte) (int, error) {
	if err := ARInfoLayout.Check(b); err != nil {
		return 0, err
	}
	w0, w1, w2 := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	*a = ARInfo{
		Enabled: w0&1 != 0, BySLCap: w0>>27&1 != 0, BySL: w0>>28&1 != 0, TransportCap: w0>>29&1 != 0,
		GroupCap: uint16(w1 & 0xFFF), GroupTop: uint16(w1 >> 12 & 0xFFF), GroupTableCap: uint8(w1 >> 24 & 15),
		VersionCap: uint8(w2 & 15), SubGroups: uint8(w2 >> 8), SLMask: uint16(w2 >> 16),
		NoTransports: b[15], SubGroupsActive: uint8(w0 >> 8 & 15),
		AgeingTime:  binary.BigEndian.Uint32(b[16:]),
		DetourLanes: binary.BigEndian.Uint16(b[20:]),
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (a *ARInfo) Append(b []byte) []byte {
	bit := func(v bool, at int) uint32 {
		if v {
			return 1 << at
		}
		return 0
	}
	b = binary.BigEndian.AppendUint32(b, bit(a.Enabled, 0)|bit(a.BySLCap, 27)|bit(a.BySL, 28)|
		bit(a.TransportCap, 29)|uint32(a.SubGroupsActive&15)<<8)
	b = binary.BigEndian.AppendUint32(b, uint32(a.GroupCap&0xFFF)|uint32(a.GroupTop&0xFFF)<<12|
		uint32(a.GroupTableCap&15)<<24)
	b = binary.BigEndian.AppendUint32(b, uint32(a.VersionCap&15)|uint32(a.SubGroups)<<8|uint32(a.SLMask)<<16)
	b = binary.BigEndian.AppendUint32(b, uint32(a.NoTransports))
	b = binary.BigEndian.AppendUint32(b, a.AgeingTime)
	b = binary.BigEndian.AppendUint16(b, a.DetourLanes)
	return append(b, make([]byte, SMPDataLen-22)...)
}

// ExtSwitchInfoLayout is ExtendedSwitchInfo, which says what lanes go by.
var ExtSwitchInfoLayout = Layout{"ExtendedSwitchInfo", SMPDataLen, []Field{
	{Name: "SL2VLAct", Off: 22, Bits: 2},
	{Name: "SL2VLCap", Off: 30, Bits: 2},
}}

// ExtSwitchInfo says whether SLtoVL is looked up by the lane that a packet came on instead of its service level.
type ExtSwitchInfo struct {
	ByLaneCap, ByLane bool
}

// Parse reads the attribute and returns its length.
func (x *ExtSwitchInfo) Parse(b []byte) (int, error) {
	if err := ExtSwitchInfoLayout.Check(b); err != nil {
		return 0, err
	}
	*x = ExtSwitchInfo{ByLaneCap: b[3]&3 != 0, ByLane: b[2]&3 != 0}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (x *ExtSwitchInfo) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, SMPDataLen)...)
	if x.ByLane {
		b[at+2] = 1
	}
	if x.ByLaneCap {
		b[at+3] = 1
	}
	return b
}

// ARGroupTableLayout is a block of AdaptiveRoutingGroupTable.
var ARGroupTableLayout = Layout{"AdaptiveRoutingGroupTable", SMPDataLen, []Field{
	{Name: "Ports", Off: 0, Bits: 64, Kind: Hex, Count: 4 * ARGroupsPerBlock, Stride: 64},
}}

// ARGroupTable is a block of groups: the ports of each, port 0 in the last bit.
type ARGroupTable [ARGroupsPerBlock]ib.PortMask

// Parse reads the attribute and returns its length.
func (t *ARGroupTable) Parse(b []byte) (int, error) {
	if err := ARGroupTableLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		for k := range t[i] {
			t[i][len(t[i])-1-k] = binary.BigEndian.Uint64(b[8*(i*len(t[i])+k):])
		}
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *ARGroupTable) Append(b []byte) []byte {
	for i := range t {
		for k := range t[i] {
			b = binary.BigEndian.AppendUint64(b, t[i][len(t[i])-1-k])
		}
	}
	return b
}

// ARState says how packets to a LID choose.
type ARState uint8

// States of a LID.
const (
	ARBounded ARState = iota // a flow stays with its port until it is silent for a while
	ARFree                   // each packet
	ARStatic                 // they do not: the entry names a port
)

// ARLFTLayout is a block of AdaptiveRoutingLinearForwardingTable.
var ARLFTLayout = Layout{"AdaptiveRoutingLinearForwardingTable", SMPDataLen, []Field{
	{Name: "LidState", Off: 0, Bits: 2, Count: ARLFTPerBlock, Stride: 32},
	{Name: "Table", Off: 4, Bits: 4, Count: ARLFTPerBlock, Stride: 32},
	{Name: "DefaultPort", Off: 8, Bits: 8, Count: ARLFTPerBlock, Stride: 32},
	{Name: "Group", Off: 20, Bits: 12, Count: ARLFTPerBlock, Stride: 32},
}}

// AREntry is where packets to a LID go.
type AREntry struct {
	State ARState
	Table uint8
	// Port is that of packets that do not choose.
	Port  ib.PortNum
	Group uint16
}

// ARLFT is a block of a forwarding table with groups: 16 LIDs.
type ARLFT [ARLFTPerBlock]AREntry

// Parse reads the attribute and returns its length.
func (t *ARLFT) Parse(b []byte) (int, error) {
	if err := ARLFTLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		w := binary.BigEndian.Uint32(b[4*i:])
		t[i] = AREntry{State: ARState(w >> 30), Table: uint8(w >> 24 & 15), Port: ib.PortNum(w >> 16),
			Group: uint16(w & 0xFFF)}
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *ARLFT) Append(b []byte) []byte {
	for _, e := range t {
		b = binary.BigEndian.AppendUint32(b, uint32(e.State&3)<<30|uint32(e.Table&15)<<24|uint32(e.Port)<<16|
			uint32(e.Group&0xFFF))
	}
	return b
}
