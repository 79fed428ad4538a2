package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// noticeTypes is how grave each trap of subnet management is (IBA 14.2.5.1).
var noticeTypes = map[uint16]NoticeType{
	TrapInService: NoticeManagement, TrapOutOfService: NoticeManagement,
	TrapMulticastCreated: NoticeManagement, TrapMulticastDeleted: NoticeManagement,
	TrapLinkStateChange: NoticeUrgent, TrapLinkIntegrity: NoticeUrgent,
	TrapBufferOverrun: NoticeUrgent, TrapFlowControlWatchdog: NoticeUrgent,
	TrapCapabilityChange: NoticeInformational, TrapSystemImageGUID: NoticeInformational,
	TrapBadMKey: NoticeSecurity, TrapBadPKey: NoticeSecurity, TrapBadQKey: NoticeSecurity,
	TrapBadPKeySwitch: NoticeSecurity,
}

// TrapType is how grave a trap is; Informational for one that the table does not have.
func TrapType(n uint16) NoticeType {
	if t, ok := noticeTypes[n]; ok {
		return t
	}
	return NoticeInformational
}

// NoticeEmpty is the type of the notice that stands for an empty queue (IBA 13.4.8.2).
const NoticeEmpty NoticeType = 0x7F

// Changes that trap 144 tells of beside the capability mask (IBA 14.2.5.1).
const (
	ChangeNodeDescription uint16 = 1 << iota
	ChangeLinkWidthEnabled
	ChangeLinkSpeedEnabled
	ChangeSMPriority
	ChangeHierarchyInfo
	ChangeCapabilityMask2
)

// room appends the 54 bytes of a notice's details, all 0, and returns both.
func room(b []byte) (all, details []byte) {
	all = append(b, make([]byte, NoticeDataLen)...)
	return all, all[len(b):]
}

// LinkStateDetailsLayout is trap 128's: a port of this switch changed its state.
var LinkStateDetailsLayout = Layout{"LinkStateDetails", NoticeDataLen, []Field{
	{Name: "LID", Off: 0, Bits: 16},
}}

// LinkStateDetails is trap 128's.
type LinkStateDetails struct{ LID ib.LID }

// Parse reads the details and returns their length.
func (d *LinkStateDetails) Parse(b []byte) (int, error) {
	if err := LinkStateDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	d.LID = ib.LID(binary.BigEndian.Uint16(b))
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *LinkStateDetails) Append(b []byte) []byte {
	b, to := room(b)
	binary.BigEndian.PutUint16(to, uint16(d.LID))
	return b
}

// PortErrorDetailsLayout is that of traps 129 to 131: which port had errors.
var PortErrorDetailsLayout = Layout{"PortErrorDetails", NoticeDataLen, []Field{
	{Name: "LID", Off: 16, Bits: 16},
	{Name: "Port", Off: 32, Bits: 8},
}}

// PortErrorDetails is that of traps 129 to 131.
type PortErrorDetails struct {
	LID  ib.LID
	Port ib.PortNum
}

// Parse reads the details and returns their length.
func (d *PortErrorDetails) Parse(b []byte) (int, error) {
	if err := PortErrorDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	*d = PortErrorDetails{ib.LID(binary.BigEndian.Uint16(b[2:])), ib.PortNum(b[4])}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *PortErrorDetails) Append(b []byte) []byte {
	b, to := room(b)
	binary.BigEndian.PutUint16(to[2:], uint16(d.LID))
	to[4] = byte(d.Port)
	return b
}

// CapabilityDetailsLayout is trap 144's: the capability mask now, and what else changed.
var CapabilityDetailsLayout = Layout{"CapabilityDetails", NoticeDataLen, []Field{
	{Name: "LID", Off: 16, Bits: 16},
	{Name: "OtherLocalChanges", Off: 47, Bits: 1},
	{Name: "CapabilityMask", Off: 48, Bits: 32, Kind: Enum, Enum: func(v uint64) string { return PortCap(v).String() }},
	{Name: "ChangeFlags", Off: 80, Bits: 16, Kind: Hex},
	{Name: "CapabilityMask2", Off: 96, Bits: 16, Kind: Hex},
}}

// CapabilityDetails is trap 144's. ChangeFlags mean something where OtherLocalChanges
// is set.
type CapabilityDetails struct {
	LID               ib.LID
	OtherLocalChanges bool
	CapabilityMask    PortCap
	ChangeFlags       uint16
	CapabilityMask2   uint16
}

// Parse reads the details and returns their length.
func (d *CapabilityDetails) Parse(b []byte) (int, error) {
	if err := CapabilityDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*d = CapabilityDetails{ib.LID(be.Uint16(b[2:])), b[5]&1 != 0, PortCap(be.Uint32(b[6:])), be.Uint16(b[10:]),
		be.Uint16(b[12:])}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *CapabilityDetails) Append(b []byte) []byte {
	b, to := room(b)
	be := binary.BigEndian
	be.PutUint16(to[2:], uint16(d.LID))
	to[5] = bit(d.OtherLocalChanges, 0)
	be.PutUint32(to[6:], uint32(d.CapabilityMask))
	be.PutUint16(to[10:], d.ChangeFlags)
	be.PutUint16(to[12:], d.CapabilityMask2)
	return b
}

// SystemGUIDDetailsLayout is trap 145's.
var SystemGUIDDetailsLayout = Layout{"SystemGUIDDetails", NoticeDataLen, []Field{
	{Name: "LID", Off: 16, Bits: 16},
	{Name: "SystemImageGUID", Off: 48, Bits: 64, Kind: GUID},
}}

// SystemGUIDDetails is trap 145's.
type SystemGUIDDetails struct {
	LID             ib.LID
	SystemImageGUID ib.GUID
}

// Parse reads the details and returns their length.
func (d *SystemGUIDDetails) Parse(b []byte) (int, error) {
	if err := SystemGUIDDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	*d = SystemGUIDDetails{ib.LID(binary.BigEndian.Uint16(b[2:])), ib.GUID(binary.BigEndian.Uint64(b[6:]))}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *SystemGUIDDetails) Append(b []byte) []byte {
	b, to := room(b)
	binary.BigEndian.PutUint16(to[2:], uint16(d.LID))
	binary.BigEndian.PutUint64(to[6:], uint64(d.SystemImageGUID))
	return b
}

// MKeyPathLen is how much of a directed route's return path trap 256 has room for.
const MKeyPathLen = 30

// MKeyDetailsLayout is trap 256's: who tried what with which M_Key.
var MKeyDetailsLayout = Layout{"MKeyDetails", NoticeDataLen, []Field{
	{Name: "LID", Off: 16, Bits: 16},
	{Name: "DrSLID", Off: 32, Bits: 16},
	{Name: "Method", Off: 48, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return Method(v).String() }},
	{Name: "AttributeID", Off: 64, Bits: 16, Kind: Hex},
	{Name: "AttributeModifier", Off: 80, Bits: 32, Kind: Hex},
	{Name: "M_Key", Off: 112, Bits: 64, Kind: Hex},
	{Name: "Directed", Off: 184, Bits: 1},
	{Name: "Truncated", Off: 185, Bits: 1},
	{Name: "HopCount", Off: 186, Bits: 6},
	{Name: "ReturnPath", Off: 192, Bits: 8 * MKeyPathLen, Kind: Bytes},
}}

// MKeyDetails is trap 256's. The fields from Directed on are those of directed routes.
type MKeyDetails struct {
	LID               ib.LID
	DrSLID            ib.LID
	Method            Method
	AttributeID       AttrID
	AttributeModifier uint32
	MKey              uint64
	Directed          bool
	Truncated         bool
	HopCount          uint8 // 6 bits
	ReturnPath        [MKeyPathLen]byte
}

// Parse reads the details and returns their length.
func (d *MKeyDetails) Parse(b []byte) (int, error) {
	if err := MKeyDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*d = MKeyDetails{
		LID: ib.LID(be.Uint16(b[2:])), DrSLID: ib.LID(be.Uint16(b[4:])), Method: Method(b[6]),
		AttributeID: AttrID(be.Uint16(b[8:])), AttributeModifier: be.Uint32(b[10:]), MKey: be.Uint64(b[14:]),
		Directed: b[23]&0x80 != 0, Truncated: b[23]&0x40 != 0, HopCount: b[23] & 0x3F,
		ReturnPath: [MKeyPathLen]byte(b[24:]),
	}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *MKeyDetails) Append(b []byte) []byte {
	b, to := room(b)
	be := binary.BigEndian
	be.PutUint16(to[2:], uint16(d.LID))
	be.PutUint16(to[4:], uint16(d.DrSLID))
	to[6] = byte(d.Method)
	be.PutUint16(to[8:], uint16(d.AttributeID))
	be.PutUint32(to[10:], d.AttributeModifier)
	be.PutUint64(to[14:], d.MKey)
	to[23] = bit(d.Directed, 7) | bit(d.Truncated, 6) | d.HopCount&0x3F
	copy(to[24:], d.ReturnPath[:])
	return b
}

// KeyDetailsLayout is that of traps 257 and 258: between whom a key did not fit. The first of each
// pair is the source.
var KeyDetailsLayout = Layout{"KeyDetails", NoticeDataLen, []Field{
	{Name: "LID1", Off: 16, Bits: 16},
	{Name: "LID2", Off: 32, Bits: 16},
	{Name: "Key", Off: 48, Bits: 32, Kind: Hex},
	{Name: "SL", Off: 80, Bits: 4},
	{Name: "QP1", Off: 88, Bits: 24, Kind: Hex},
	{Name: "QP2", Off: 120, Bits: 24, Kind: Hex},
	{Name: "GID1", Off: 144, Bits: 128, Kind: GID},
	{Name: "GID2", Off: 272, Bits: 128, Kind: GID},
}}

// KeyDetails is that of traps 257 and 258. A P_Key takes the lower half of Key; the GIDs are 0 where the
// packet had none.
type KeyDetails struct {
	LID1, LID2 ib.LID
	Key        uint32
	SL         ib.SL
	QP1, QP2   ib.QPN
	GID1, GID2 ib.GID
}

// Parse reads the details and returns their length.
func (d *KeyDetails) Parse(b []byte) (int, error) {
	if err := KeyDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*d = KeyDetails{
		LID1: ib.LID(be.Uint16(b[2:])), LID2: ib.LID(be.Uint16(b[4:])), Key: be.Uint32(b[6:]), SL: ib.SL(b[10] >> 4),
		QP1: ib.QPN(be.Uint32(b[10:])) & ib.QPNMask, QP2: ib.QPN(be.Uint32(b[14:])) & ib.QPNMask,
		GID1: ib.GID(b[18:34]), GID2: ib.GID(b[34:50]),
	}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *KeyDetails) Append(b []byte) []byte {
	b, to := room(b)
	be := binary.BigEndian
	be.PutUint16(to[2:], uint16(d.LID1))
	be.PutUint16(to[4:], uint16(d.LID2))
	be.PutUint32(to[6:], d.Key)
	be.PutUint32(to[10:], uint32(d.SL&0xF)<<28|uint32(d.QP1&ib.QPNMask))
	be.PutUint32(to[14:], uint32(d.QP2&ib.QPNMask))
	copy(to[18:], d.GID1[:])
	copy(to[34:], d.GID2[:])
	return b
}

// Bits of SwitchKeyDetails' DataValid.
const (
	SwitchKeyValidLID1 uint16 = 1 << iota
	SwitchKeyValidLID2
	SwitchKeyValidPKey
	SwitchKeyValidSL
	SwitchKeyValidQP1
	SwitchKeyValidQP2
	SwitchKeyValidGID1
	SwitchKeyValidGID2
)

// SwitchKeyDetailsLayout is trap 259's: which packet a switch's port refused for its P_Key.
var SwitchKeyDetailsLayout = Layout{"SwitchKeyDetails", NoticeDataLen, []Field{
	{Name: "DataValid", Off: 0, Bits: 16, Kind: Hex},
	{Name: "LID1", Off: 16, Bits: 16},
	{Name: "LID2", Off: 32, Bits: 16},
	{Name: "P_Key", Off: 48, Bits: 16, Kind: Hex},
	{Name: "SL", Off: 64, Bits: 4},
	{Name: "QP1", Off: 72, Bits: 24, Kind: Hex},
	{Name: "QP2", Off: 104, Bits: 24, Kind: Hex},
	{Name: "GID1", Off: 128, Bits: 128, Kind: GID},
	{Name: "GID2", Off: 256, Bits: 128, Kind: GID},
	{Name: "SwitchLID", Off: 384, Bits: 16},
	{Name: "Port", Off: 400, Bits: 8},
}}

// SwitchKeyDetails is trap 259's. DataValid says which of the fields before SwitchLID are known.
type SwitchKeyDetails struct {
	DataValid  uint16
	LID1, LID2 ib.LID
	PKey       ib.PKey
	SL         ib.SL
	QP1, QP2   ib.QPN
	GID1, GID2 ib.GID
	SwitchLID  ib.LID
	Port       ib.PortNum
}

// Parse reads the details and returns their length.
func (d *SwitchKeyDetails) Parse(b []byte) (int, error) {
	if err := SwitchKeyDetailsLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*d = SwitchKeyDetails{
		DataValid: be.Uint16(b), LID1: ib.LID(be.Uint16(b[2:])), LID2: ib.LID(be.Uint16(b[4:])),
		PKey: ib.PKey(be.Uint16(b[6:])),
		SL:   ib.SL(b[8] >> 4), QP1: ib.QPN(be.Uint32(b[8:])) & ib.QPNMask, QP2: ib.QPN(be.Uint32(b[12:])) & ib.QPNMask,
		GID1: ib.GID(b[16:32]), GID2: ib.GID(b[32:48]), SwitchLID: ib.LID(be.Uint16(b[48:])), Port: ib.PortNum(b[50]),
	}
	return NoticeDataLen, nil
}

// Append writes the details after b.
func (d *SwitchKeyDetails) Append(b []byte) []byte {
	b, to := room(b)
	be := binary.BigEndian
	be.PutUint16(to, d.DataValid)
	be.PutUint16(to[2:], uint16(d.LID1))
	be.PutUint16(to[4:], uint16(d.LID2))
	be.PutUint16(to[6:], uint16(d.PKey))
	be.PutUint32(to[8:], uint32(d.SL&0xF)<<28|uint32(d.QP1&ib.QPNMask))
	be.PutUint32(to[12:], uint32(d.QP2&ib.QPNMask))
	copy(to[16:], d.GID1[:])
	copy(to[32:], d.GID2[:])
	be.PutUint16(to[48:], uint16(d.SwitchLID))
	to[50] = byte(d.Port)
	return b
}
