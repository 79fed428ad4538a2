package mad

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
)

// SMState is the state of a subnet manager (IBA 14.4.1).
type SMState uint8

// States of a subnet manager.
const (
	SMNotActive SMState = iota
	SMDiscovering
	SMStandby
	SMMaster
	NumSMState
)

var smStateNames = [NumSMState]string{"NotActive", "Discovering", "Standby", "Master"}

func (s SMState) String() string {
	if s < NumSMState {
		return smStateNames[s]
	}
	return fmt.Sprintf("SMState(%d)", uint8(s))
}

// SMInfoLayout is how subnet managers know each other (IBA 14.2.5.13).
var SMInfoLayout = Layout{"SMInfo", 21, []Field{
	{Name: "GUID", Off: 0, Bits: 64, Kind: GUID},
	{Name: "SM_Key", Off: 64, Bits: 64, Kind: Hex},
	{Name: "ActCount", Off: 128, Bits: 32},
	{Name: "Priority", Off: 160, Bits: 4},
	{Name: "SMState", Off: 164, Bits: 4, Kind: Enum, Enum: func(v uint64) string { return SMState(v).String() }},
}}

// SMInfo is how subnet managers know each other.
type SMInfo struct {
	GUID     ib.GUID
	SMKey    uint64
	ActCount uint32
	Priority uint8 // 4 bits
	SMState  SMState
}

// Parse reads the attribute and returns its length.
func (s *SMInfo) Parse(b []byte) (int, error) {
	if err := SMInfoLayout.Check(b); err != nil {
		return 0, err
	}
	*s = SMInfo{
		GUID:     ib.GUID(binary.BigEndian.Uint64(b)),
		SMKey:    binary.BigEndian.Uint64(b[8:]),
		ActCount: binary.BigEndian.Uint32(b[16:]),
		Priority: b[20] >> 4,
		SMState:  SMState(b[20] & 0xF),
	}
	return SMInfoLayout.Size, nil
}

// Append writes the attribute after b.
func (s *SMInfo) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(s.GUID))
	b = binary.BigEndian.AppendUint64(b, s.SMKey)
	b = binary.BigEndian.AppendUint32(b, s.ActCount)
	return append(b, s.Priority<<4|byte(s.SMState)&0xF)
}

// NoticeType says how grave a notice is (IBA 13.4.8.2).
type NoticeType uint8

// Types of notice.
const (
	NoticeFatal NoticeType = iota
	NoticeUrgent
	NoticeSecurity
	NoticeManagement
	NoticeInformational
)

func (t NoticeType) String() string {
	names := [...]string{"Fatal", "Urgent", "Security", "SubnetManagement", "Informational"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("NoticeType(%d)", uint8(t))
}

// Trap numbers of subnet management (IBA 14.2.5.1).
const (
	TrapInService           = 64
	TrapOutOfService        = 65
	TrapMulticastCreated    = 66
	TrapMulticastDeleted    = 67
	TrapLinkStateChange     = 128
	TrapLinkIntegrity       = 129
	TrapBufferOverrun       = 130
	TrapFlowControlWatchdog = 131
	TrapCapabilityChange    = 144
	TrapSystemImageGUID     = 145
	TrapBadMKey             = 256
	TrapBadPKey             = 257
	TrapBadQKey             = 258
	TrapBadPKeySwitch       = 259
)

var trapNames = map[uint16]string{
	TrapInService: "InService", TrapOutOfService: "OutOfService",
	TrapMulticastCreated: "MulticastGroupCreated", TrapMulticastDeleted: "MulticastGroupDeleted",
	TrapLinkStateChange: "LinkStateChange", TrapLinkIntegrity: "LocalLinkIntegrity",
	TrapBufferOverrun: "ExcessiveBufferOverrun", TrapFlowControlWatchdog: "FlowControlWatchdog",
	TrapCapabilityChange: "CapabilityChange", TrapSystemImageGUID: "SystemImageGUIDChange",
	TrapBadMKey: "BadM_Key", TrapBadPKey: "BadP_Key", TrapBadQKey: "BadQ_Key",
	TrapBadPKeySwitch: "BadP_KeySwitchPort",
}

// TrapName is the word for a trap number.
func TrapName(n uint16) string {
	if s, ok := trapNames[n]; ok {
		return s
	}
	return fmt.Sprintf("Trap(%d)", n)
}

// NoticeLayout is an event that a node reports (IBA 13.4.8.2). The number is a trap's if
// the notice is generic.
var NoticeLayout = Layout{"Notice", SMPDataLen, []Field{
	{Name: "IsGeneric", Off: 0, Bits: 1},
	{Name: "Type", Off: 1, Bits: 7, Kind: Enum, Enum: func(v uint64) string { return NoticeType(v).String() }},
	{Name: "ProducerTypeVendorID", Off: 8, Bits: 24, Kind: Hex},
	{Name: "TrapNumberDeviceID", Off: 32, Bits: 16, Kind: Enum,
		Enum: func(v uint64) string { return TrapName(uint16(v)) }},
	{Name: "IssuerLID", Off: 48, Bits: 16},
	{Name: "NoticeToggle", Off: 64, Bits: 1},
	{Name: "NoticeCount", Off: 65, Bits: 15},
	{Name: "DataDetails", Off: 80, Bits: 432, Kind: Bytes},
}}

// NoticeDataLen is the length of a notice's details in bytes.
const NoticeDataLen = 54

// Notice is an event that a node reports. It travels in traps; the details
// depend on the trap number.
type Notice struct {
	IsGeneric            bool
	Type                 NoticeType
	ProducerTypeVendorID uint32 // 24 bits
	TrapNumberDeviceID   uint16
	IssuerLID            ib.LID
	NoticeToggle         bool
	NoticeCount          uint16 // 15 bits
	DataDetails          [NoticeDataLen]byte
}

// Parse reads the attribute and returns its length.
func (n *Notice) Parse(b []byte) (int, error) {
	if err := NoticeLayout.Check(b); err != nil {
		return 0, err
	}
	*n = Notice{
		IsGeneric:            b[0]&0x80 != 0,
		Type:                 NoticeType(b[0] & 0x7F),
		ProducerTypeVendorID: binary.BigEndian.Uint32(b) & 0xFFFFFF,
		TrapNumberDeviceID:   binary.BigEndian.Uint16(b[4:]),
		IssuerLID:            ib.LID(binary.BigEndian.Uint16(b[6:])),
		NoticeToggle:         b[8]&0x80 != 0,
		NoticeCount:          binary.BigEndian.Uint16(b[8:]) & 0x7FFF,
		DataDetails:          [NoticeDataLen]byte(b[10:]),
	}
	return NoticeLayout.Size, nil
}

// Append writes the attribute after b.
func (n *Notice) Append(b []byte) []byte {
	kind := bit(n.IsGeneric, 7) | byte(n.Type)&0x7F
	b = binary.BigEndian.AppendUint32(b, uint32(kind)<<24|n.ProducerTypeVendorID&0xFFFFFF)
	b = binary.BigEndian.AppendUint16(b, n.TrapNumberDeviceID)
	b = binary.BigEndian.AppendUint16(b, uint16(n.IssuerLID))
	b = binary.BigEndian.AppendUint16(b, uint16(bit(n.NoticeToggle, 7))<<8|n.NoticeCount&0x7FFF)
	return append(b, n.DataDetails[:]...)
}
