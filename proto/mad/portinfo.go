package mad

import (
	"encoding/binary"
	"fmt"
	"strings"

	"softib/proto/ib"
)

// PortInfoLayout is a port's state and configuration (IBA 14.2.5.6).
var PortInfoLayout = Layout{"PortInfo", SMPDataLen, []Field{
	{Name: "M_Key", Off: 0, Bits: 64, Kind: Hex},
	{Name: "GidPrefix", Off: 64, Bits: 64, Kind: Hex},
	{Name: "LID", Off: 128, Bits: 16},
	{Name: "MasterSMLID", Off: 144, Bits: 16},
	{Name: "CapabilityMask", Off: 160, Bits: 32, Kind: Enum,
		Enum: func(v uint64) string { return PortCap(v).String() }},
	{Name: "DiagCode", Off: 192, Bits: 16, Kind: Hex},
	{Name: "M_KeyLeasePeriod", Off: 208, Bits: 16},
	{Name: "LocalPortNum", Off: 224, Bits: 8},
	{Name: "LinkWidthEnabled", Off: 232, Bits: 8, Kind: Enum, Enum: widthMask},
	{Name: "LinkWidthSupported", Off: 240, Bits: 8, Kind: Enum, Enum: widthMask},
	{Name: "LinkWidthActive", Off: 248, Bits: 8, Kind: Enum, Enum: widthMask},
	{Name: "LinkSpeedSupported", Off: 256, Bits: 4, Kind: Enum, Enum: speedMask},
	{Name: "PortState", Off: 260, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return ib.PortState(v).String() }},
	{Name: "PortPhysicalState", Off: 264, Bits: 4, Kind: Enum,
		Enum: func(v uint64) string { return ib.PhysState(v).String() }},
	{Name: "LinkDownDefaultState", Off: 268, Bits: 4, Kind: Enum,
		Enum: func(v uint64) string { return ib.PhysState(v).String() }},
	{Name: "M_KeyProtectBits", Off: 272, Bits: 2},
	{Name: "LMC", Off: 277, Bits: 3},
	{Name: "LinkSpeedActive", Off: 280, Bits: 4, Kind: Enum, Enum: speedMask},
	{Name: "LinkSpeedEnabled", Off: 284, Bits: 4, Kind: Enum, Enum: speedMask},
	{Name: "NeighborMTU", Off: 288, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return ib.MTU(v).String() }},
	{Name: "MasterSMSL", Off: 292, Bits: 4},
	{Name: "VLCap", Off: 296, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return VLCount(v).String() }},
	{Name: "InitType", Off: 300, Bits: 4, Kind: Hex},
	{Name: "VLHighLimit", Off: 304, Bits: 8},
	{Name: "VLArbitrationHighCap", Off: 312, Bits: 8},
	{Name: "VLArbitrationLowCap", Off: 320, Bits: 8},
	{Name: "InitTypeReply", Off: 328, Bits: 4, Kind: Hex},
	{Name: "MTUCap", Off: 332, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return ib.MTU(v).String() }},
	{Name: "VLStallCount", Off: 336, Bits: 3},
	{Name: "HOQLife", Off: 339, Bits: 5},
	{Name: "OperationalVLs", Off: 344, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return VLCount(v).String() }},
	{Name: "PartitionEnforcementInbound", Off: 348, Bits: 1},
	{Name: "PartitionEnforcementOutbound", Off: 349, Bits: 1},
	{Name: "FilterRawInbound", Off: 350, Bits: 1},
	{Name: "FilterRawOutbound", Off: 351, Bits: 1},
	{Name: "M_KeyViolations", Off: 352, Bits: 16},
	{Name: "P_KeyViolations", Off: 368, Bits: 16},
	{Name: "Q_KeyViolations", Off: 384, Bits: 16},
	{Name: "GUIDCap", Off: 400, Bits: 8},
	{Name: "ClientReregister", Off: 408, Bits: 1},
	{Name: "MulticastPKeyTrapSuppression", Off: 409, Bits: 2},
	{Name: "SubnetTimeOut", Off: 411, Bits: 5},
	{Name: "RespTimeValue", Off: 419, Bits: 5},
	{Name: "LocalPhyErrors", Off: 424, Bits: 4},
	{Name: "OverrunErrors", Off: 428, Bits: 4},
	{Name: "MaxCreditHint", Off: 432, Bits: 16},
	{Name: "LinkSpeedExtActive2", Off: 449, Bits: 2},
	{Name: "LinkSpeedExtSupported2", Off: 451, Bits: 2},
	{Name: "LinkSpeedExtEnabled2", Off: 453, Bits: 3},
	{Name: "LinkRoundTripLatency", Off: 456, Bits: 24},
	{Name: "CapabilityMask2", Off: 480, Bits: 16, Kind: Hex},
	{Name: "LinkSpeedExtActive", Off: 496, Bits: 4, Kind: Enum, Enum: speedExtMask},
	{Name: "LinkSpeedExtSupported", Off: 500, Bits: 4, Kind: Enum, Enum: speedExtMask},
	{Name: "LinkSpeedExtEnabled", Off: 507, Bits: 5, Kind: Enum, Enum: speedExtMask},
}}

// PortInfo is a port's state and configuration.
type PortInfo struct {
	MKey                         uint64
	GidPrefix                    uint64
	LID                          ib.LID
	MasterSMLID                  ib.LID
	CapabilityMask               PortCap
	DiagCode                     uint16
	MKeyLeasePeriod              uint16 // in seconds
	LocalPortNum                 ib.PortNum
	LinkWidthEnabled             ib.Width // a set
	LinkWidthSupported           ib.Width // a set
	LinkWidthActive              ib.Width
	LinkSpeedSupported           uint8 // 4 bits; see SetSpeeds
	PortState                    ib.PortState
	PortPhysicalState            ib.PhysState
	LinkDownDefaultState         ib.PhysState
	MKeyProtectBits              uint8 // 2 bits
	LMC                          uint8 // 3 bits
	LinkSpeedActive              uint8 // 4 bits
	LinkSpeedEnabled             uint8 // 4 bits
	NeighborMTU                  ib.MTU
	MasterSMSL                   ib.SL
	VLCap                        VLCount
	InitType                     uint8 // 4 bits
	VLHighLimit                  uint8
	VLArbitrationHighCap         uint8
	VLArbitrationLowCap          uint8
	InitTypeReply                uint8 // 4 bits
	MTUCap                       ib.MTU
	VLStallCount                 uint8 // 3 bits
	HOQLife                      uint8 // 5 bits
	OperationalVLs               VLCount
	PartitionEnforcementInbound  bool
	PartitionEnforcementOutbound bool
	FilterRawInbound             bool
	FilterRawOutbound            bool
	MKeyViolations               uint16
	PKeyViolations               uint16
	QKeyViolations               uint16
	GUIDCap                      uint8
	ClientReregister             bool
	MulticastPKeyTrapSuppression uint8  // 2 bits
	SubnetTimeOut                uint8  // 5 bits
	RespTimeValue                uint8  // 5 bits
	LocalPhyErrors               uint8  // 4 bits
	OverrunErrors                uint8  // 4 bits
	MaxCreditHint                uint16 // in credits of 64 bytes
	LinkSpeedExtActive2          uint8  // 2 bits
	LinkSpeedExtSupported2       uint8  // 2 bits
	LinkSpeedExtEnabled2         uint8  // 3 bits
	LinkRoundTripLatency         uint32 // 24 bits
	CapabilityMask2              uint16
	LinkSpeedExtActive           uint8 // 4 bits
	LinkSpeedExtSupported        uint8 // 4 bits
	LinkSpeedExtEnabled          uint8 // 5 bits

	// Mlnx is no part of the attribute: who has asked for the port's MlnxExtPortInfo, too, puts it here, and FDR10 is
	// told from QDR.
	Mlnx MlnxExtPortInfo
}

// Parse reads the attribute and returns its length.
func (p *PortInfo) Parse(b []byte) (int, error) {
	if err := PortInfoLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*p = PortInfo{
		MKey:                         be.Uint64(b[0:]),
		GidPrefix:                    be.Uint64(b[8:]),
		LID:                          ib.LID(be.Uint16(b[16:])),
		MasterSMLID:                  ib.LID(be.Uint16(b[18:])),
		CapabilityMask:               PortCap(be.Uint32(b[20:])),
		DiagCode:                     be.Uint16(b[24:]),
		MKeyLeasePeriod:              be.Uint16(b[26:]),
		LocalPortNum:                 ib.PortNum(b[28]),
		LinkWidthEnabled:             ib.Width(b[29]),
		LinkWidthSupported:           ib.Width(b[30]),
		LinkWidthActive:              ib.Width(b[31]),
		LinkSpeedSupported:           b[32] >> 4,
		PortState:                    ib.PortState(b[32] & 0xF),
		PortPhysicalState:            ib.PhysState(b[33] >> 4),
		LinkDownDefaultState:         ib.PhysState(b[33] & 0xF),
		MKeyProtectBits:              b[34] >> 6,
		LMC:                          b[34] & 7,
		LinkSpeedActive:              b[35] >> 4,
		LinkSpeedEnabled:             b[35] & 0xF,
		NeighborMTU:                  ib.MTU(b[36] >> 4),
		MasterSMSL:                   ib.SL(b[36] & 0xF),
		VLCap:                        VLCount(b[37] >> 4),
		InitType:                     b[37] & 0xF,
		VLHighLimit:                  b[38],
		VLArbitrationHighCap:         b[39],
		VLArbitrationLowCap:          b[40],
		InitTypeReply:                b[41] >> 4,
		MTUCap:                       ib.MTU(b[41] & 0xF),
		VLStallCount:                 b[42] >> 5,
		HOQLife:                      b[42] & 0x1F,
		OperationalVLs:               VLCount(b[43] >> 4),
		PartitionEnforcementInbound:  b[43]&8 != 0,
		PartitionEnforcementOutbound: b[43]&4 != 0,
		FilterRawInbound:             b[43]&2 != 0,
		FilterRawOutbound:            b[43]&1 != 0,
		MKeyViolations:               be.Uint16(b[44:]),
		PKeyViolations:               be.Uint16(b[46:]),
		QKeyViolations:               be.Uint16(b[48:]),
		GUIDCap:                      b[50],
		ClientReregister:             b[51]&0x80 != 0,
		MulticastPKeyTrapSuppression: b[51] >> 5 & 3,
		SubnetTimeOut:                b[51] & 0x1F,
		RespTimeValue:                b[52] & 0x1F,
		LocalPhyErrors:               b[53] >> 4,
		OverrunErrors:                b[53] & 0xF,
		MaxCreditHint:                be.Uint16(b[54:]),
		LinkSpeedExtActive2:          b[56] >> 5 & 3,
		LinkSpeedExtSupported2:       b[56] >> 3 & 3,
		LinkSpeedExtEnabled2:         b[56] & 7,
		LinkRoundTripLatency:         be.Uint32(b[56:]) & 0xFFFFFF,
		CapabilityMask2:              be.Uint16(b[60:]),
		LinkSpeedExtActive:           b[62] >> 4,
		LinkSpeedExtSupported:        b[62] & 0xF,
		LinkSpeedExtEnabled:          b[63] & 0x1F,
	}
	return PortInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (p *PortInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, p.MKey)
	b = be.AppendUint64(b, p.GidPrefix)
	b = be.AppendUint16(b, uint16(p.LID))
	b = be.AppendUint16(b, uint16(p.MasterSMLID))
	b = be.AppendUint32(b, uint32(p.CapabilityMask))
	b = be.AppendUint16(b, p.DiagCode)
	b = be.AppendUint16(b, p.MKeyLeasePeriod)
	b = append(b, byte(p.LocalPortNum), byte(p.LinkWidthEnabled), byte(p.LinkWidthSupported), byte(p.LinkWidthActive),
		p.LinkSpeedSupported<<4|byte(p.PortState)&0xF,
		byte(p.PortPhysicalState)<<4|byte(p.LinkDownDefaultState)&0xF,
		p.MKeyProtectBits<<6|p.LMC&7,
		p.LinkSpeedActive<<4|p.LinkSpeedEnabled&0xF,
		byte(p.NeighborMTU)<<4|byte(p.MasterSMSL)&0xF,
		byte(p.VLCap)<<4|p.InitType&0xF,
		p.VLHighLimit, p.VLArbitrationHighCap, p.VLArbitrationLowCap,
		p.InitTypeReply<<4|byte(p.MTUCap)&0xF,
		p.VLStallCount<<5|p.HOQLife&0x1F,
		byte(p.OperationalVLs)<<4|bit(p.PartitionEnforcementInbound, 3)|bit(p.PartitionEnforcementOutbound, 2)|
			bit(p.FilterRawInbound, 1)|bit(p.FilterRawOutbound, 0))
	b = be.AppendUint16(b, p.MKeyViolations)
	b = be.AppendUint16(b, p.PKeyViolations)
	b = be.AppendUint16(b, p.QKeyViolations)
	b = append(b, p.GUIDCap,
		bit(p.ClientReregister, 7)|p.MulticastPKeyTrapSuppression&3<<5|p.SubnetTimeOut&0x1F,
		p.RespTimeValue&0x1F,
		p.LocalPhyErrors<<4|p.OverrunErrors&0xF)
	b = be.AppendUint16(b, p.MaxCreditHint)
	ext2 := p.LinkSpeedExtActive2&3<<5 | p.LinkSpeedExtSupported2&3<<3 | p.LinkSpeedExtEnabled2&7
	b = be.AppendUint32(b, uint32(ext2)<<24|p.LinkRoundTripLatency&0xFFFFFF)
	b = be.AppendUint16(b, p.CapabilityMask2)
	return append(b, p.LinkSpeedExtActive<<4|p.LinkSpeedExtSupported&0xF, p.LinkSpeedExtEnabled&0x1F)
}

// VLCount encodes how many data lanes a port has or uses: 1 is VL0
// alone, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14.
type VLCount uint8

// VLs counts the data lanes; 0 for an encoding that does not exist.
func (c VLCount) VLs() int {
	switch {
	case c >= 1 && c <= 4:
		return 1 << (c - 1)
	case c == 5:
		return 15
	}
	return 0
}

// IsValid reports whether the encoding exists.
func (c VLCount) IsValid() bool { return c >= 1 && c <= 5 }

// VLCountFor is the smallest encoding that covers n data lanes.
func VLCountFor(n int) (VLCount, bool) {
	for c := VLCount(1); c <= 5; c++ {
		if n >= 1 && c.VLs() >= n {
			return c, true
		}
	}
	return 0, false
}

func (c VLCount) String() string {
	switch n := c.VLs(); n {
	case 0:
		return fmt.Sprintf("VLCount(%d)", uint8(c))
	case 1:
		return "VL0"
	default:
		return fmt.Sprintf("VL0-%d", n-1)
	}
}

// PortCap is PortInfo's CapabilityMask.
type PortCap uint32

// Capabilities of a port.
const (
	CapIsSM                     PortCap = 1 << 1
	CapNotice                   PortCap = 1 << 2
	CapTrap                     PortCap = 1 << 3
	CapOptionalIPD              PortCap = 1 << 4
	CapAutomaticMigration       PortCap = 1 << 5
	CapSLMapping                PortCap = 1 << 6
	CapMKeyNVRAM                PortCap = 1 << 7
	CapPKeyNVRAM                PortCap = 1 << 8
	CapLEDInfo                  PortCap = 1 << 9
	CapSMDisabled               PortCap = 1 << 10
	CapSystemImageGUID          PortCap = 1 << 11
	CapPKeySwitchExtPortTrap    PortCap = 1 << 12
	CapExtendedSpeeds           PortCap = 1 << 14
	CapCapabilityMask2          PortCap = 1 << 15
	CapCommunicationManagement  PortCap = 1 << 16
	CapSNMPTunneling            PortCap = 1 << 17
	CapReinit                   PortCap = 1 << 18
	CapDeviceManagement         PortCap = 1 << 19
	CapVendorClass              PortCap = 1 << 20
	CapDRNotice                 PortCap = 1 << 21
	CapCapabilityMaskNotice     PortCap = 1 << 22
	CapBootManagement           PortCap = 1 << 23
	CapLinkRoundTripLatency     PortCap = 1 << 24
	CapClientReregistration     PortCap = 1 << 25
	CapOtherLocalChangesNotice  PortCap = 1 << 26
	CapLinkSpeedWidthPairsTable PortCap = 1 << 27
	CapVendorSpecificMadsTable  PortCap = 1 << 28
	CapMcastPKeyTrapSuppression PortCap = 1 << 29
	CapMulticastFDBTop          PortCap = 1 << 30
	CapHierarchyInfo            PortCap = 1 << 31
)

var portCapNames = [32]string{
	1: "IsSM", 2: "Notice", 3: "Trap", 4: "OptionalIPD", 5: "AutomaticMigration", 6: "SLMapping",
	7: "M_KeyNVRAM", 8: "P_KeyNVRAM", 9: "LEDInfo", 10: "SMdisabled", 11: "SystemImageGUID",
	12: "P_KeySwitchExternalPortTrap", 14: "ExtendedSpeeds", 15: "CapabilityMask2",
	16: "CommunicationManagement", 17: "SNMPTunneling", 18: "Reinit", 19: "DeviceManagement",
	20: "VendorClass", 21: "DRNotice", 22: "CapabilityMaskNotice", 23: "BootManagement",
	24: "LinkRoundTripLatency", 25: "ClientReregistration", 26: "OtherLocalChangesNotice",
	27: "LinkSpeedWidthPairsTable", 28: "VendorSpecificMadsTable",
	29: "MulticastPKeyTrapSuppression", 30: "MulticastFDBTop", 31: "HierarchyInfo",
}

func (c PortCap) String() string {
	var names []string
	for i, n := range portCapNames {
		if c&(1<<i) == 0 {
			continue
		}
		if n == "" {
			n = fmt.Sprintf("bit%d", i)
		}
		names = append(names, n)
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}
