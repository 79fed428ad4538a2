package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

const (
	// PMDataOff is where a performance management attribute starts.
	PMDataOff = 64
	// PMDataLen is how long it may be.
	PMDataLen = 192
	// PortSelectAll selects all ports of a node at once, if the node can.
	PortSelectAll = 0xFF
)

// Capabilities in the performance class's ClassPortInfo (IBA 16.1.3.1).
const (
	PMCapAllPortSelect      uint16 = 0x0100
	PMCapExtendedWidth      uint16 = 0x0200
	PMCapExtendedWidthNoMC  uint16 = 0x0400
	PMCapSamplesOnly        uint16 = 0x0800
	PMCapXmitWait           uint16 = 0x1000
	PMCapRSFECCounters      uint16 = 0x4000
	PMCapQP1Dropped         uint16 = 0x8000
	PMCap2AdditionalExtCtrs uint32 = 0x0000002
)

// ClassPortInfoLayout says how a class is served at a node (IBA 13.4.8.1).
var ClassPortInfoLayout = Layout{"ClassPortInfo", 72, []Field{
	{Name: "BaseVersion", Off: 0, Bits: 8},
	{Name: "ClassVersion", Off: 8, Bits: 8},
	{Name: "CapabilityMask", Off: 16, Bits: 16, Kind: Hex},
	{Name: "CapabilityMask2", Off: 32, Bits: 27, Kind: Hex},
	{Name: "RespTimeValue", Off: 59, Bits: 5},
	{Name: "RedirectGID", Off: 64, Bits: 128, Kind: GID},
	{Name: "RedirectTC", Off: 192, Bits: 8, Kind: Hex},
	{Name: "RedirectSL", Off: 200, Bits: 4},
	{Name: "RedirectFL", Off: 204, Bits: 20, Kind: Hex},
	{Name: "RedirectLID", Off: 224, Bits: 16},
	{Name: "RedirectP_Key", Off: 240, Bits: 16, Kind: Hex},
	{Name: "RedirectQP", Off: 264, Bits: 24, Kind: Hex},
	{Name: "RedirectQ_Key", Off: 288, Bits: 32, Kind: Hex},
	{Name: "TrapGID", Off: 320, Bits: 128, Kind: GID},
	{Name: "TrapTC", Off: 448, Bits: 8, Kind: Hex},
	{Name: "TrapSL", Off: 456, Bits: 4},
	{Name: "TrapFL", Off: 460, Bits: 20, Kind: Hex},
	{Name: "TrapLID", Off: 480, Bits: 16},
	{Name: "TrapP_Key", Off: 496, Bits: 16, Kind: Hex},
	{Name: "TrapHL", Off: 512, Bits: 8},
	{Name: "TrapQP", Off: 520, Bits: 24, Kind: Hex},
	{Name: "TrapQ_Key", Off: 544, Bits: 32, Kind: Hex},
}}

// ClassPortInfo says how a class is served at a node.
type ClassPortInfo struct {
	BaseVersion     uint8
	ClassVersion    uint8
	CapabilityMask  uint16
	CapabilityMask2 uint32 // 27 bits
	RespTimeValue   uint8  // 5 bits
	RedirectGID     ib.GID
	RedirectTC      uint8
	RedirectSL      ib.SL
	RedirectFL      uint32 // 20 bits
	RedirectLID     ib.LID
	RedirectPKey    ib.PKey
	RedirectQP      ib.QPN
	RedirectQKey    ib.QKey
	TrapGID         ib.GID
	TrapTC          uint8
	TrapSL          ib.SL
	TrapFL          uint32 // 20 bits
	TrapLID         ib.LID
	TrapPKey        ib.PKey
	TrapHL          uint8
	TrapQP          ib.QPN
	TrapQKey        ib.QKey
}

// Parse reads the attribute and returns its length.
func (c *ClassPortInfo) Parse(b []byte) (int, error) {
	if err := ClassPortInfoLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*c = ClassPortInfo{
		BaseVersion: b[0], ClassVersion: b[1], CapabilityMask: be.Uint16(b[2:]),
		CapabilityMask2: be.Uint32(b[4:]) >> 5, RespTimeValue: b[7] & 0x1F,
		RedirectGID:  ib.GID(b[8:24]),
		RedirectTC:   b[24],
		RedirectSL:   ib.SL(b[25] >> 4),
		RedirectFL:   be.Uint32(b[24:]) & 0xFFFFF,
		RedirectLID:  ib.LID(be.Uint16(b[28:])),
		RedirectPKey: ib.PKey(be.Uint16(b[30:])),
		RedirectQP:   ib.QPN(be.Uint32(b[32:])) & ib.QPNMask,
		RedirectQKey: ib.QKey(be.Uint32(b[36:])),
		TrapGID:      ib.GID(b[40:56]),
		TrapTC:       b[56],
		TrapSL:       ib.SL(b[57] >> 4),
		TrapFL:       be.Uint32(b[56:]) & 0xFFFFF,
		TrapLID:      ib.LID(be.Uint16(b[60:])),
		TrapPKey:     ib.PKey(be.Uint16(b[62:])),
		TrapHL:       b[64],
		TrapQP:       ib.QPN(be.Uint32(b[64:])) & ib.QPNMask,
		TrapQKey:     ib.QKey(be.Uint32(b[68:])),
	}
	return ClassPortInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (c *ClassPortInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, c.BaseVersion, c.ClassVersion)
	b = be.AppendUint16(b, c.CapabilityMask)
	b = be.AppendUint32(b, c.CapabilityMask2<<5|uint32(c.RespTimeValue&0x1F))
	b = append(b, c.RedirectGID[:]...)
	b = be.AppendUint32(b, uint32(c.RedirectTC)<<24|uint32(c.RedirectSL&0xF)<<20|c.RedirectFL&0xFFFFF)
	b = be.AppendUint16(b, uint16(c.RedirectLID))
	b = be.AppendUint16(b, uint16(c.RedirectPKey))
	b = be.AppendUint32(b, uint32(c.RedirectQP&ib.QPNMask))
	b = be.AppendUint32(b, uint32(c.RedirectQKey))
	b = append(b, c.TrapGID[:]...)
	b = be.AppendUint32(b, uint32(c.TrapTC)<<24|uint32(c.TrapSL&0xF)<<20|c.TrapFL&0xFFFFF)
	b = be.AppendUint16(b, uint16(c.TrapLID))
	b = be.AppendUint16(b, uint16(c.TrapPKey))
	b = be.AppendUint32(b, uint32(c.TrapHL)<<24|uint32(c.TrapQP&ib.QPNMask))
	return be.AppendUint32(b, uint32(c.TrapQKey))
}

// PortCountersLayout is a port's counters in their old, narrow widths
// (IBA 16.1.3.5).
var PortCountersLayout = Layout{"PortCounters", 44, []Field{
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "CounterSelect", Off: 16, Bits: 16, Kind: Hex},
	counter(ib.SymbolErrorCounter, 32, 16),
	counter(ib.LinkErrorRecoveryCounter, 48, 8),
	counter(ib.LinkDownedCounter, 56, 8),
	counter(ib.PortRcvErrors, 64, 16),
	counter(ib.PortRcvRemotePhysicalErrors, 80, 16),
	counter(ib.PortRcvSwitchRelayErrors, 96, 16),
	counter(ib.PortXmitDiscards, 112, 16),
	counter(ib.PortXmitConstraintErrors, 128, 8),
	counter(ib.PortRcvConstraintErrors, 136, 8),
	{Name: "CounterSelect2", Off: 144, Bits: 8, Kind: Hex},
	counter(ib.LocalLinkIntegrityErrors, 152, 4),
	counter(ib.ExcessiveBufferOverrunErrors, 156, 4),
	counter(ib.QP1Dropped, 160, 16),
	counter(ib.VL15Dropped, 176, 16),
	counter(ib.PortXmitData, 192, 32),
	counter(ib.PortRcvData, 224, 32),
	counter(ib.PortXmitPkts, 256, 32),
	counter(ib.PortRcvPkts, 288, 32),
	counter(ib.PortXmitWait, 320, 32),
}}

// PortRcvErrorDetailsLayout is what PortRcvErrors is made of.
var PortRcvErrorDetailsLayout = Layout{"PortRcvErrorDetails", 16, []Field{
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "CounterSelect", Off: 16, Bits: 16, Kind: Hex},
	counter(ib.PortLocalPhysicalErrors, 32, 16),
	counter(ib.PortMalformedPacketErrors, 48, 16),
	counter(ib.PortBufferOverrunErrors, 64, 16),
	counter(ib.PortDLIDMappingErrors, 80, 16),
	counter(ib.PortVLMappingErrors, 96, 16),
	counter(ib.PortLoopingErrors, 112, 16),
}}

// PortXmitDiscardDetailsLayout is what PortXmitDiscards is made of.
var PortXmitDiscardDetailsLayout = Layout{"PortXmitDiscardDetails", 12, []Field{
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "CounterSelect", Off: 16, Bits: 16, Kind: Hex},
	counter(ib.PortInactiveDiscards, 32, 16),
	counter(ib.PortNeighborMTUDiscards, 48, 16),
	counter(ib.PortSwLifetimeLimitDiscards, 64, 16),
	counter(ib.PortSwHOQLifetimeLimitDiscards, 80, 16),
}}

// PortCountersExtendedLayout is a port's counters in 64 bits.
var PortCountersExtendedLayout = Layout{"PortCountersExtended", 184, []Field{
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "CounterSelect", Off: 16, Bits: 16, Kind: Hex},
	{Name: "CounterSelect2", Off: 32, Bits: 32, Kind: Hex},
	counter(ib.PortXmitData, 64, 64),
	counter(ib.PortRcvData, 128, 64),
	counter(ib.PortXmitPkts, 192, 64),
	counter(ib.PortRcvPkts, 256, 64),
	counter(ib.PortUnicastXmitPkts, 320, 64),
	counter(ib.PortUnicastRcvPkts, 384, 64),
	counter(ib.PortMulticastXmitPkts, 448, 64),
	counter(ib.PortMulticastRcvPkts, 512, 64),
	counter(ib.SymbolErrorCounter, 576, 64),
	counter(ib.LinkErrorRecoveryCounter, 640, 64),
	counter(ib.LinkDownedCounter, 704, 64),
	counter(ib.PortRcvErrors, 768, 64),
	counter(ib.PortRcvRemotePhysicalErrors, 832, 64),
	counter(ib.PortRcvSwitchRelayErrors, 896, 64),
	counter(ib.PortXmitDiscards, 960, 64),
	counter(ib.PortXmitConstraintErrors, 1024, 64),
	counter(ib.PortRcvConstraintErrors, 1088, 64),
	counter(ib.LocalLinkIntegrityErrors, 1152, 64),
	counter(ib.ExcessiveBufferOverrunErrors, 1216, 64),
	counter(ib.VL15Dropped, 1280, 64),
	counter(ib.PortXmitWait, 1344, 64),
	counter(ib.QP1Dropped, 1408, 64),
}}

func counter(id ib.Counter, off, bits int) Field {
	return Field{Name: id.String(), Off: off, Bits: bits}
}
