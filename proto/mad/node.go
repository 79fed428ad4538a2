package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// NodeDescriptionLayout is the text by which people know a node (IBA 14.2.5.2).
var NodeDescriptionLayout = Layout{"NodeDescription", SMPDataLen, []Field{
	{Name: "NodeString", Off: 0, Bits: 512, Kind: String},
}}

// NodeDescription is the text by which people know a node, in UTF-8, padded
// with NULs.
type NodeDescription [SMPDataLen]byte

// MakeNodeDescription cuts s to what fits.
func MakeNodeDescription(s string) (d NodeDescription) {
	copy(d[:], s)
	return d
}

func (d NodeDescription) String() string { return cString(d[:]) }

// Parse reads the attribute and returns its length.
func (d *NodeDescription) Parse(b []byte) (int, error) {
	if err := NodeDescriptionLayout.Check(b); err != nil {
		return 0, err
	}
	return copy(d[:], b), nil
}

// Append writes the attribute after b.
func (d *NodeDescription) Append(b []byte) []byte { return append(b, d[:]...) }

// NodeInfoLayout says what a node is (IBA 14.2.5.3).
var NodeInfoLayout = Layout{"NodeInfo", 40, []Field{
	{Name: "BaseVersion", Off: 0, Bits: 8},
	{Name: "ClassVersion", Off: 8, Bits: 8},
	{Name: "NodeType", Off: 16, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return ib.NodeType(v).String() }},
	{Name: "NumPorts", Off: 24, Bits: 8},
	{Name: "SystemImageGUID", Off: 32, Bits: 64, Kind: GUID},
	{Name: "NodeGUID", Off: 96, Bits: 64, Kind: GUID},
	{Name: "PortGUID", Off: 160, Bits: 64, Kind: GUID},
	{Name: "PartitionCap", Off: 224, Bits: 16},
	{Name: "DeviceID", Off: 240, Bits: 16, Kind: Hex},
	{Name: "Revision", Off: 256, Bits: 32, Kind: Hex},
	{Name: "LocalPortNum", Off: 288, Bits: 8},
	{Name: "VendorID", Off: 296, Bits: 24, Kind: Hex},
}}

// NodeInfo says what a node is, seen from the port that the request came in
// by.
type NodeInfo struct {
	BaseVersion     uint8
	ClassVersion    uint8
	NodeType        ib.NodeType
	NumPorts        uint8
	SystemImageGUID ib.GUID
	NodeGUID        ib.GUID
	PortGUID        ib.GUID
	PartitionCap    uint16
	DeviceID        uint16
	Revision        uint32
	LocalPortNum    ib.PortNum
	VendorID        uint32 // 24 bits
}

// Nonsense says what about a node cannot be (IBA 14.2.5.3); empty if all of it can.
func (n *NodeInfo) Nonsense() string {
	switch {
	case n.NodeGUID == 0 || n.PortGUID == 0:
		return "a GUID is 0"
	case n.NodeType < ib.NodeCA || n.NodeType > ib.NodeRouter:
		return "its type is none"
	case n.NumPorts == 0 || n.NumPorts == 255:
		return "its number of ports is none"
	case n.LocalPortNum > ib.PortNum(n.NumPorts) || n.LocalPortNum == 0 && n.NodeType != ib.NodeSwitch:
		return "the port that it answers by is not one of its ports"
	}
	return ""
}

// Parse reads the attribute and returns its length.
func (n *NodeInfo) Parse(b []byte) (int, error) {
	if err := NodeInfoLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*n = NodeInfo{
		BaseVersion: b[0], ClassVersion: b[1], NodeType: ib.NodeType(b[2]), NumPorts: b[3],
		SystemImageGUID: ib.GUID(be.Uint64(b[4:])),
		NodeGUID:        ib.GUID(be.Uint64(b[12:])),
		PortGUID:        ib.GUID(be.Uint64(b[20:])),
		PartitionCap:    be.Uint16(b[28:]),
		DeviceID:        be.Uint16(b[30:]),
		Revision:        be.Uint32(b[32:]),
		LocalPortNum:    ib.PortNum(b[36]),
		VendorID:        be.Uint32(b[36:]) & 0xFFFFFF,
	}
	return NodeInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (n *NodeInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, n.BaseVersion, n.ClassVersion, byte(n.NodeType), n.NumPorts)
	b = be.AppendUint64(b, uint64(n.SystemImageGUID))
	b = be.AppendUint64(b, uint64(n.NodeGUID))
	b = be.AppendUint64(b, uint64(n.PortGUID))
	b = be.AppendUint16(b, n.PartitionCap)
	b = be.AppendUint16(b, n.DeviceID)
	b = be.AppendUint32(b, n.Revision)
	return be.AppendUint32(b, uint32(n.LocalPortNum)<<24|n.VendorID&0xFFFFFF)
}

// SwitchInfoLayout says what a switch can do and how it forwards (IBA 14.2.5.4).
var SwitchInfoLayout = Layout{"SwitchInfo", 20, []Field{
	{Name: "LinearFDBCap", Off: 0, Bits: 16},
	{Name: "RandomFDBCap", Off: 16, Bits: 16},
	{Name: "MulticastFDBCap", Off: 32, Bits: 16},
	{Name: "LinearFDBTop", Off: 48, Bits: 16},
	{Name: "DefaultPort", Off: 64, Bits: 8},
	{Name: "DefaultMulticastPrimaryPort", Off: 72, Bits: 8},
	{Name: "DefaultMulticastNotPrimaryPort", Off: 80, Bits: 8},
	{Name: "LifeTimeValue", Off: 88, Bits: 5},
	{Name: "PortStateChange", Off: 93, Bits: 1},
	{Name: "OptimizedSLtoVLMappingProgramming", Off: 94, Bits: 2},
	{Name: "LIDsPerPort", Off: 96, Bits: 16},
	{Name: "PartitionEnforcementCap", Off: 112, Bits: 16},
	{Name: "InboundEnforcementCap", Off: 128, Bits: 1},
	{Name: "OutboundEnforcementCap", Off: 129, Bits: 1},
	{Name: "FilterRawInboundCap", Off: 130, Bits: 1},
	{Name: "FilterRawOutboundCap", Off: 131, Bits: 1},
	{Name: "EnhancedPortZero", Off: 132, Bits: 1},
	{Name: "MulticastFDBTop", Off: 144, Bits: 16, Kind: Hex},
}}

// SwitchInfo says what a switch can do and how it forwards.
type SwitchInfo struct {
	LinearFDBCap                      uint16
	RandomFDBCap                      uint16
	MulticastFDBCap                   uint16
	LinearFDBTop                      ib.LID
	DefaultPort                       ib.PortNum
	DefaultMulticastPrimaryPort       ib.PortNum
	DefaultMulticastNotPrimaryPort    ib.PortNum
	LifeTimeValue                     uint8 // 5 bits
	PortStateChange                   bool
	OptimizedSLtoVLMappingProgramming uint8 // 2 bits
	LIDsPerPort                       uint16
	PartitionEnforcementCap           uint16
	InboundEnforcementCap             bool
	OutboundEnforcementCap            bool
	FilterRawInboundCap               bool
	FilterRawOutboundCap              bool
	EnhancedPortZero                  bool
	MulticastFDBTop                   ib.LID
}

// Parse reads the attribute and returns its length.
func (s *SwitchInfo) Parse(b []byte) (int, error) {
	if err := SwitchInfoLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*s = SwitchInfo{
		LinearFDBCap:                      be.Uint16(b[0:]),
		RandomFDBCap:                      be.Uint16(b[2:]),
		MulticastFDBCap:                   be.Uint16(b[4:]),
		LinearFDBTop:                      ib.LID(be.Uint16(b[6:])),
		DefaultPort:                       ib.PortNum(b[8]),
		DefaultMulticastPrimaryPort:       ib.PortNum(b[9]),
		DefaultMulticastNotPrimaryPort:    ib.PortNum(b[10]),
		LifeTimeValue:                     b[11] >> 3,
		PortStateChange:                   b[11]&4 != 0,
		OptimizedSLtoVLMappingProgramming: b[11] & 3,
		LIDsPerPort:                       be.Uint16(b[12:]),
		PartitionEnforcementCap:           be.Uint16(b[14:]),
		InboundEnforcementCap:             b[16]&0x80 != 0,
		OutboundEnforcementCap:            b[16]&0x40 != 0,
		FilterRawInboundCap:               b[16]&0x20 != 0,
		FilterRawOutboundCap:              b[16]&0x10 != 0,
		EnhancedPortZero:                  b[16]&0x08 != 0,
		MulticastFDBTop:                   ib.LID(be.Uint16(b[18:])),
	}
	return SwitchInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (s *SwitchInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, s.LinearFDBCap)
	b = be.AppendUint16(b, s.RandomFDBCap)
	b = be.AppendUint16(b, s.MulticastFDBCap)
	b = be.AppendUint16(b, uint16(s.LinearFDBTop))
	b = append(b, byte(s.DefaultPort), byte(s.DefaultMulticastPrimaryPort), byte(s.DefaultMulticastNotPrimaryPort),
		s.LifeTimeValue<<3|bit(s.PortStateChange, 2)|s.OptimizedSLtoVLMappingProgramming&3)
	b = be.AppendUint16(b, s.LIDsPerPort)
	b = be.AppendUint16(b, s.PartitionEnforcementCap)
	b = append(b, bit(s.InboundEnforcementCap, 7)|bit(s.OutboundEnforcementCap, 6)|
		bit(s.FilterRawInboundCap, 5)|bit(s.FilterRawOutboundCap, 4)|bit(s.EnhancedPortZero, 3), 0)
	return be.AppendUint16(b, uint16(s.MulticastFDBTop))
}

// bit is v shifted to bit n, counted from the least significant one.
func bit(v bool, n uint) byte {
	if v {
		return 1 << n
	}
	return 0
}
