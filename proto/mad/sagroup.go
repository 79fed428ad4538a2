package mad

import (
	"encoding/binary"
	"fmt"
	"strings"

	"softib/proto/ib"
)

// JoinState is how a port takes part in a multicast group, a set of bits (IBA 15.2.5.17).
type JoinState uint8

// Ways to take part.
const (
	JoinFull         JoinState = 1 << iota // sends and receives, and keeps the group alive
	JoinNon                                // sends and receives
	JoinSendOnlyNon                        // only sends
	JoinSendOnlyFull                       // only sends, and keeps the group alive
	JoinAll          = JoinFull | JoinNon | JoinSendOnlyNon | JoinSendOnlyFull
	JoinReceives     = JoinFull | JoinNon
	JoinKeepsGroup   = JoinFull | JoinSendOnlyFull
	joinNames        = "FullMember NonMember SendOnlyNonMember SendOnlyFullMember"
)

func (s JoinState) String() string {
	var names []string
	for i, n := range strings.Fields(joinNames) {
		if s>>i&1 != 0 {
			names = append(names, n)
		}
	}
	return orNone(names)
}

// Scopes of a multicast GID (IBA 4.1.1).
const (
	ScopeLinkLocal uint8 = 2
	ScopeSiteLocal uint8 = 5
	ScopeOrgLocal  uint8 = 8
	ScopeGlobal    uint8 = 14
)

// MCMemberRecordTable is a port in a multicast group (IBA 15.2.5.17).
var MCMemberRecordTable = newSARecord("MCMemberRecord", AttrMCMemberRecord,
	gid("MGID"), gid("PortGID"), hexed("Q_Key", 32), hexed("MLID", 16),
	enum("MTUSelector", 2, selectorName), enum("MTU", 6, func(v uint64) string { return ib.MTU(v).String() }),
	hexed("TClass", 8),
	hexed("P_Key", 16), enum("RateSelector", 2, selectorName),
	enum("Rate", 6, func(v uint64) string { return Rate(v).String() }),
	enum("PacketLifeTimeSelector", 2, selectorName), num("PacketLifeTime", 6), num("SL", 4), hexed("FlowLabel", 20),
	num("HopLimit", 8),
	num("Scope", 4), enum("JoinState", 4, func(v uint64) string { return JoinState(v).String() }), num("ProxyJoin", 1),
	reserved(23))

// MCMemberRecord is a port in a multicast group.
type MCMemberRecord struct {
	MGID                   ib.GID
	PortGID                ib.GID
	QKey                   ib.QKey
	MLID                   ib.LID
	MTUSelector            Selector
	MTU                    ib.MTU // 6 bits
	TClass                 uint8
	PKey                   ib.PKey
	RateSelector           Selector
	Rate                   Rate // 6 bits
	PacketLifeTimeSelector Selector
	PacketLifeTime         uint8 // 6 bits
	SL                     ib.SL
	FlowLabel              uint32 // 20 bits
	HopLimit               uint8
	Scope                  uint8 // 4 bits
	JoinState              JoinState
	ProxyJoin              bool
}

// Parse reads the record and returns its length.
func (r *MCMemberRecord) Parse(b []byte) (int, error) {
	if err := MCMemberRecordTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = MCMemberRecord{
		MGID: ib.GID(b[0:16]), PortGID: ib.GID(b[16:32]), QKey: ib.QKey(be.Uint32(b[32:])),
		MLID:        ib.LID(be.Uint16(b[36:])),
		MTUSelector: Selector(b[38] >> 6), MTU: ib.MTU(b[38] & 0x3F), TClass: b[39], PKey: ib.PKey(be.Uint16(b[40:])),
		RateSelector: Selector(b[42] >> 6), Rate: Rate(b[42] & 0x3F),
		PacketLifeTimeSelector: Selector(b[43] >> 6), PacketLifeTime: b[43] & 0x3F,
		SL: ib.SL(b[44] >> 4), FlowLabel: be.Uint32(b[44:]) >> 8 & 0xFFFFF, HopLimit: b[47],
		Scope: b[48] >> 4, JoinState: JoinState(b[48] & 0xF), ProxyJoin: b[49]&0x80 != 0,
	}
	return MCMemberRecordTable.Size, nil
}

// Append writes the record after b.
func (r *MCMemberRecord) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, r.MGID[:]...)
	b = append(b, r.PortGID[:]...)
	b = be.AppendUint32(b, uint32(r.QKey))
	b = be.AppendUint16(b, uint16(r.MLID))
	b = append(b, selected(r.MTUSelector, byte(r.MTU)), r.TClass)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = append(b, selected(r.RateSelector, byte(r.Rate)), selected(r.PacketLifeTimeSelector, r.PacketLifeTime))
	b = be.AppendUint32(b, uint32(r.SL&0xF)<<28|r.FlowLabel&0xFFFFF<<8|uint32(r.HopLimit))
	return append(b, r.Scope<<4|byte(r.JoinState)&0xF, bit(r.ProxyJoin, 7), 0, 0)
}

// ServiceLeaseForever in a ServiceRecord's lease says that it does not expire (IBA 15.2.5.14).
const ServiceLeaseForever uint32 = 0xFFFFFFFF

// ServiceNameLen is the length of a service's name in bytes.
const ServiceNameLen = 64

// ServiceRecordTable is a service that a port offers (IBA 15.2.5.14).
var ServiceRecordTable = newSARecord("ServiceRecord", AttrServiceRecord,
	hexed("ServiceID", 64), gid("ServiceGID"), hexed("ServiceP_Key", 16), reserved(16), num("ServiceLease", 32),
	part{Field: Field{Name: "ServiceKey", Bits: 128, Kind: Bytes}, bit: bitNext}, text("ServiceName", ServiceNameLen),
	hexed("ServiceData8", 8).array(16), hexed("ServiceData16", 16).array(8), hexed("ServiceData32", 32).array(4),
	hexed("ServiceData64", 64).array(2))

// ServiceRecord is a service that a port offers.
type ServiceRecord struct {
	ServiceID    uint64
	ServiceGID   ib.GID
	ServicePKey  ib.PKey
	ServiceLease uint32 // seconds
	ServiceKey   [16]byte
	ServiceName  [ServiceNameLen]byte
	// ServiceData is 16 numbers of 8 bits, 8 of 16, 4 of 32 and 2 of 64, as bytes.
	ServiceData [64]byte
}

// Name is the service's name.
func (r *ServiceRecord) Name() string { return cString(r.ServiceName[:]) }

// Parse reads the record and returns its length.
func (r *ServiceRecord) Parse(b []byte) (int, error) {
	if err := ServiceRecordTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = ServiceRecord{
		ServiceID: be.Uint64(b), ServiceGID: ib.GID(b[8:24]), ServicePKey: ib.PKey(be.Uint16(b[24:])),
		ServiceLease: be.Uint32(b[28:]), ServiceKey: [16]byte(b[32:]), ServiceName: [ServiceNameLen]byte(b[48:]),
		ServiceData: [64]byte(b[112:]),
	}
	return ServiceRecordTable.Size, nil
}

// Append writes the record after b.
func (r *ServiceRecord) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.ServiceGID[:]...)
	b = append(be.AppendUint16(b, uint16(r.ServicePKey)), 0, 0)
	b = be.AppendUint32(b, r.ServiceLease)
	b = append(b, r.ServiceKey[:]...)
	b = append(b, r.ServiceName[:]...)
	return append(b, r.ServiceData[:]...)
}

// Values of InformInfo that stand for all (IBA 13.4.8.3).
const (
	InformAllLIDs      ib.LID = 0xFFFF   // in LIDRangeBegin
	InformAllTypes     uint16 = 0xFFFF   // in Type
	InformAllTraps     uint16 = 0xFFFF   // in TrapNumberDeviceID
	InformAllProducers uint32 = 0xFFFFFF // in ProducerTypeVendorID
)

// Producers of generic notices (IBA 13.4.8.2).
const (
	ProducerCA           uint32 = 1
	ProducerSwitch       uint32 = 2
	ProducerRouter       uint32 = 3
	ProducerClassManager uint32 = 4
)

var informInfoParts = []part{
	gid("GID"), num("LIDRangeBegin", 16), num("LIDRangeEnd", 16), reserved(16), num("IsGeneric", 8),
	num("Subscribe", 8),
	enum("Type", 16, func(v uint64) string {
		if uint16(v) == InformAllTypes {
			return "all"
		}
		return NoticeType(v).String()
	}),
	num("TrapNumberDeviceID", 16), hexed("QPN", 24), reserved(3), num("RespTimeValue", 5), reserved(8),
	hexed("ProducerTypeVendorID", 24),
}

// InformInfoTable subscribes to notices, or ends that (IBA 13.4.8.3).
var InformInfoTable = newSARecord("InformInfo", AttrInformInfo, informInfoParts...)

// InformInfo subscribes to notices, or ends that.
type InformInfo struct {
	GID                  ib.GID
	LIDRangeBegin        ib.LID
	LIDRangeEnd          ib.LID
	IsGeneric            uint8
	Subscribe            uint8
	Type                 uint16
	TrapNumberDeviceID   uint16
	QPN                  ib.QPN
	RespTimeValue        uint8  // 5 bits
	ProducerTypeVendorID uint32 // 24 bits
}

// Parse reads the attribute and returns its length.
func (r *InformInfo) Parse(b []byte) (int, error) {
	if err := InformInfoTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = InformInfo{
		GID: ib.GID(b[0:16]), LIDRangeBegin: ib.LID(be.Uint16(b[16:])), LIDRangeEnd: ib.LID(be.Uint16(b[18:])),
		IsGeneric: b[22], Subscribe: b[23], Type: be.Uint16(b[24:]), TrapNumberDeviceID: be.Uint16(b[26:]),
		QPN: ib.QPN(be.Uint32(b[28:]) >> 8), RespTimeValue: b[31] & 0x1F,
		ProducerTypeVendorID: be.Uint32(b[32:]) & 0xFFFFFF,
	}
	return InformInfoTable.Size, nil
}

// Append writes the attribute after b.
func (r *InformInfo) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, r.GID[:]...)
	b = be.AppendUint16(b, uint16(r.LIDRangeBegin))
	b = be.AppendUint16(b, uint16(r.LIDRangeEnd))
	b = append(b, 0, 0, r.IsGeneric, r.Subscribe)
	b = be.AppendUint16(b, r.Type)
	b = be.AppendUint16(b, r.TrapNumberDeviceID)
	b = be.AppendUint32(b, uint32(r.QPN&ib.QPNMask)<<8|uint32(r.RespTimeValue&0x1F))
	return be.AppendUint32(b, r.ProducerTypeVendorID&0xFFFFFF)
}

func (r InformInfo) String() string {
	return fmt.Sprintf("InformInfo trap %d type %d producer %d QP %v subscribe %d", r.TrapNumberDeviceID, r.Type,
		r.ProducerTypeVendorID, r.QPN, r.Subscribe)
}

// InformInfoRecordTable is a subscription (IBA 15.2.5.12).
var InformInfoRecordTable = newSARecord("InformInfoRecord", AttrInformInfoRecord,
	append([]part{gid("SubscriberGID"), num("Enum", 16), reserved(48)}, informInfoParts...)...)

// InformInfoRecord is a subscription.
type InformInfoRecord struct {
	SubscriberGID ib.GID
	Enum          uint16
	InformInfo    InformInfo
}

// Parse reads the record and returns its length.
func (r *InformInfoRecord) Parse(b []byte) (int, error) {
	if err := InformInfoRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.SubscriberGID, r.Enum = ib.GID(b[:16]), binary.BigEndian.Uint16(b[16:])
	if _, err := r.InformInfo.Parse(b[24:]); err != nil {
		return 0, err
	}
	return InformInfoRecordTable.Size, nil
}

// Append writes the record after b.
func (r *InformInfoRecord) Append(b []byte) []byte {
	b = append(b, r.SubscriberGID[:]...)
	b = append(binary.BigEndian.AppendUint16(b, r.Enum), 0, 0, 0, 0, 0, 0)
	return r.InformInfo.Append(b)
}
