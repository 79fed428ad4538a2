package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Where the data of congestion control lie (IBA A10.4.1). The log, which is
// longer, starts where other attributes have a reserved field.
const (
	CCDataOff    = 64
	CCDataLen    = Size - CCDataOff
	CCLogDataOff = 32
	CCLogDataLen = Size - CCLogDataOff

	offCCKey = 24
)

// Attributes of congestion control (IBA A10.4.3).
const (
	AttrCongestionInfo         AttrID = 0x0011
	AttrCongestionKeyInfo      AttrID = 0x0012
	AttrCongestionLog          AttrID = 0x0013
	AttrSwitchCongestion       AttrID = 0x0014
	AttrSwitchPortCongestion   AttrID = 0x0015
	AttrCACongestion           AttrID = 0x0016
	AttrCongestionControlTable AttrID = 0x0017
	AttrCCTimeStamp            AttrID = 0x0018
)

// CCKey is the key of a congestion control datagram.
func (v View) CCKey() uint64 { return binary.BigEndian.Uint64(v[offCCKey:]) }

// SetCCKey replaces it.
func (v View) SetCCKey(k uint64) { binary.BigEndian.PutUint64(v[offCCKey:], k) }

// CCLogData is where a datagram has its congestion log.
func (v View) CCLogData() []byte { return v[CCLogDataOff:Size:Size] }

// CongestionInfoLayout is what a node can do about congestion.
var CongestionInfoLayout = Layout{"CongestionInfo", 4, []Field{
	{Name: "CongestionInfo", Off: 0, Bits: 16, Kind: Hex},
	{Name: "ControlTableCap", Off: 16, Bits: 8},
}}

// CongestionInfo is what a node can do about congestion. ControlTableCap counts
// blocks of the congestion control table.
type CongestionInfo struct {
	CongestionInfo  uint16
	ControlTableCap uint8
}

// CongestionCreditStarvation in CongestionInfo: the switch knows credit starvation.
const CongestionCreditStarvation uint16 = 1

// Parse reads the attribute and returns its length.
func (c *CongestionInfo) Parse(b []byte) (int, error) {
	if err := CongestionInfoLayout.Check(b); err != nil {
		return 0, err
	}
	*c = CongestionInfo{binary.BigEndian.Uint16(b), b[2]}
	return CongestionInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (c *CongestionInfo) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, c.CongestionInfo)
	return append(b, c.ControlTableCap, 0)
}

// CongestionKeyInfoLayout is the key that guards congestion control at a port.
var CongestionKeyInfoLayout = Layout{"CongestionKeyInfo", 16, []Field{
	{Name: "CC_Key", Off: 0, Bits: 64, Kind: Hex},
	{Name: "CC_KeyProtectBit", Off: 64, Bits: 1},
	{Name: "CC_KeyLeasePeriod", Off: 80, Bits: 16},
	{Name: "CC_KeyViolations", Off: 96, Bits: 16},
}}

// CongestionKeyInfo is the key that guards congestion control at a port.
type CongestionKeyInfo struct {
	CCKey            uint64
	CCKeyProtectBit  bool
	CCKeyLeasePeriod uint16 // in seconds
	CCKeyViolations  uint16
}

// Parse reads the attribute and returns its length.
func (c *CongestionKeyInfo) Parse(b []byte) (int, error) {
	if err := CongestionKeyInfoLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*c = CongestionKeyInfo{be.Uint64(b), b[8]&0x80 != 0, be.Uint16(b[10:]), be.Uint16(b[12:])}
	return CongestionKeyInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (c *CongestionKeyInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, c.CCKey)
	b = append(b, bit(c.CCKeyProtectBit, 7), 0)
	b = be.AppendUint16(b, c.CCKeyLeasePeriod)
	b = be.AppendUint16(b, c.CCKeyViolations)
	return append(b, 0, 0)
}

// Entries of the attributes that hold lists.
const (
	CCSwitchLogEvents = 15
	CCCALogEvents     = 13
	CCPortsPerBlock   = 48
	CCTPerBlock       = 64
)

// Types of congestion log.
const (
	CCLogSwitch uint8 = 1
	CCLogCA     uint8 = 2
)

// SwitchCongestionLogLayout is a switch's log of congestion.
var SwitchCongestionLogLayout = Layout{"CongestionLog", 40 + 12*CCSwitchLogEvents, []Field{
	{Name: "LogType", Off: 0, Bits: 8},
	{Name: "CongestionFlags", Off: 8, Bits: 8, Kind: Hex},
	{Name: "LogEventsCounter", Off: 16, Bits: 16},
	{Name: "CurrentTimeStamp", Off: 32, Bits: 32},
	{Name: "PortMap", Off: 64, Bits: 256, Kind: Bytes},
	{Name: "SLID", Off: 320, Bits: 16, Count: CCSwitchLogEvents, Stride: 96},
	{Name: "DLID", Off: 336, Bits: 16, Count: CCSwitchLogEvents, Stride: 96},
	{Name: "SL", Off: 352, Bits: 4, Count: CCSwitchLogEvents, Stride: 96},
	{Name: "TimeStamp", Off: 384, Bits: 32, Count: CCSwitchLogEvents, Stride: 96},
}}

// CACongestionLogLayout is a channel adapter's log of congestion.
var CACongestionLogLayout = Layout{"CongestionLog", 12 + 16*CCCALogEvents, []Field{
	{Name: "LogType", Off: 0, Bits: 8},
	{Name: "CongestionFlags", Off: 8, Bits: 8, Kind: Hex},
	{Name: "ThresholdEventCounter", Off: 16, Bits: 16},
	{Name: "ThresholdCongestionEventMap", Off: 32, Bits: 16, Kind: Hex},
	{Name: "CurrentTimeStamp", Off: 64, Bits: 32},
	{Name: "LocalQP", Off: 96, Bits: 24, Count: CCCALogEvents, Stride: 128},
	{Name: "SL", Off: 120, Bits: 4, Count: CCCALogEvents, Stride: 128},
	{Name: "ServiceType", Off: 124, Bits: 4, Count: CCCALogEvents, Stride: 128},
	{Name: "RemoteQP", Off: 128, Bits: 24, Count: CCCALogEvents, Stride: 128},
	{Name: "LocalLID", Off: 160, Bits: 16, Count: CCCALogEvents, Stride: 128},
	{Name: "RemoteLID", Off: 176, Bits: 16, Count: CCCALogEvents, Stride: 128},
	{Name: "TimeStamp", Off: 192, Bits: 32, Count: CCCALogEvents, Stride: 128},
}}

// SwitchCongestionLayout is how a switch marks packets.
var SwitchCongestionLayout = Layout{"SwitchCongestionSetting", 76, []Field{
	{Name: "ControlMap", Off: 0, Bits: 32, Kind: Hex},
	{Name: "VictimMask", Off: 32, Bits: 256, Kind: Bytes},
	{Name: "CreditMask", Off: 288, Bits: 256, Kind: Bytes},
	{Name: "Threshold", Off: 544, Bits: 4},
	{Name: "PacketSize", Off: 552, Bits: 8},
	{Name: "CSThreshold", Off: 560, Bits: 4},
	{Name: "CSReturnDelay", Off: 576, Bits: 16, Kind: Hex},
	{Name: "MarkingRate", Off: 592, Bits: 16},
}}

// SwitchCongestion is how a switch marks packets. The masks have one bit a port.
type SwitchCongestion struct {
	ControlMap    uint32
	VictimMask    [32]byte
	CreditMask    [32]byte
	Threshold     uint8 // 4 bits
	PacketSize    uint8 // in units of 64 bytes
	CSThreshold   uint8 // 4 bits
	CSReturnDelay uint16
	MarkingRate   uint16
}

// Parse reads the attribute and returns its length.
func (s *SwitchCongestion) Parse(b []byte) (int, error) {
	if err := SwitchCongestionLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*s = SwitchCongestion{
		be.Uint32(b), [32]byte(b[4:]), [32]byte(b[36:]), b[68] >> 4, b[69], b[70] >> 4, be.Uint16(b[72:]),
		be.Uint16(b[74:]),
	}
	return SwitchCongestionLayout.Size, nil
}

// Append writes the attribute after b.
func (s *SwitchCongestion) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, s.ControlMap)
	b = append(b, s.VictimMask[:]...)
	b = append(b, s.CreditMask[:]...)
	b = append(b, s.Threshold<<4, s.PacketSize, s.CSThreshold<<4, 0)
	b = be.AppendUint16(b, s.CSReturnDelay)
	return be.AppendUint16(b, s.MarkingRate)
}

// SwitchPortCongestionLayout is a block of a switch's settings by port.
var SwitchPortCongestionLayout = Layout{"SwitchPortCongestionSetting", 4 * CCPortsPerBlock, []Field{
	{Name: "Valid", Off: 0, Bits: 1, Count: CCPortsPerBlock, Stride: 32},
	{Name: "ControlType", Off: 1, Bits: 1, Count: CCPortsPerBlock, Stride: 32},
	{Name: "Threshold", Off: 4, Bits: 4, Count: CCPortsPerBlock, Stride: 32},
	{Name: "PacketSize", Off: 8, Bits: 8, Count: CCPortsPerBlock, Stride: 32},
	{Name: "MarkingRate", Off: 16, Bits: 16, Count: CCPortsPerBlock, Stride: 32},
}}

// SwitchPortEntry is how one port of a switch marks packets, where that differs from the
// switch's setting.
type SwitchPortEntry struct {
	Valid       bool
	ControlType bool // credit starvation rather than marking
	Threshold   uint8
	PacketSize  uint8
	MarkingRate uint16
}

// SwitchPortCongestion is a block of a switch's settings by port.
type SwitchPortCongestion [CCPortsPerBlock]SwitchPortEntry

// Parse reads the attribute and returns its length.
func (s *SwitchPortCongestion) Parse(b []byte) (int, error) {
	if err := SwitchPortCongestionLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range s {
		e := b[4*i:]
		s[i] = SwitchPortEntry{e[0]&0x80 != 0, e[0]&0x40 != 0, e[0] & 0xF, e[1], binary.BigEndian.Uint16(e[2:])}
	}
	return SwitchPortCongestionLayout.Size, nil
}

// Append writes the attribute after b.
func (s *SwitchPortCongestion) Append(b []byte) []byte {
	for _, e := range s {
		b = append(b, bit(e.Valid, 7)|bit(e.ControlType, 6)|e.Threshold&0xF, e.PacketSize)
		b = binary.BigEndian.AppendUint16(b, e.MarkingRate)
	}
	return b
}

// CACongestionLayout is how a channel adapter reacts to congestion.
var CACongestionLayout = Layout{"CACongestionSetting", 4 + 8*ib.NumSL, []Field{
	{Name: "PortControl", Off: 0, Bits: 16, Kind: Hex},
	{Name: "ControlMap", Off: 16, Bits: 16, Kind: Hex},
	{Name: "CCTITimer", Off: 32, Bits: 16, Count: ib.NumSL, Stride: 64},
	{Name: "CCTIIncrease", Off: 48, Bits: 8, Count: ib.NumSL, Stride: 64},
	{Name: "TriggerThreshold", Off: 56, Bits: 8, Count: ib.NumSL, Stride: 64},
	{Name: "CCTIMin", Off: 64, Bits: 8, Count: ib.NumSL, Stride: 64},
}}

// CongestionTableLayout is a block of a port's congestion control table.
var CongestionTableLayout = Layout{"CongestionControlTable", 4 + 2*CCTPerBlock, []Field{
	{Name: "CCTILimit", Off: 0, Bits: 16},
	{Name: "Shift", Off: 32, Bits: 2, Count: CCTPerBlock, Stride: 16},
	{Name: "Multiplier", Off: 34, Bits: 14, Count: CCTPerBlock, Stride: 16},
}}

// CCTimeStampLayout is a node's clock, in ticks of 1.024 us (IBA A10.4.3.9).
var CCTimeStampLayout = Layout{"TimeStamp", 4, []Field{
	{Name: "TimeStamp", Off: 0, Bits: 32},
}}
