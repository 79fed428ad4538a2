package mad

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
)

// Selector says how a query's value and the true one have to compare (IBA 15.2.5.16).
type Selector uint8

// Selectors. SelectLargest asks for the most there is (for life times: the least) and needs no value.
const (
	SelectGreater Selector = iota
	SelectLess
	SelectExactly
	SelectLargest
	NumSelector
)

func (s Selector) String() string {
	if s < NumSelector {
		return [...]string{"greater", "less", "exactly", "largest"}[s]
	}
	return fmt.Sprintf("Selector(%d)", uint8(s))
}

func selectorName(v uint64) string { return Selector(v).String() }

// PathRecordTable is a way from one port to another (IBA 15.2.5.16). The two bits of ServiceID are its upper 8 and
// lower 56 bits, which nobody gives apart.
var PathRecordTable = newSARecord("PathRecord", AttrPathRecord,
	hexed("ServiceID", 64).wide(2), gid("DGID"), gid("SGID"), num("DLID", 16), num("SLID", 16),
	num("RawTraffic", 1), reserved(3), hexed("FlowLabel", 20), num("HopLimit", 8), hexed("TClass", 8),
	num("Reversible", 1), num("NumbPath", 7), hexed("P_Key", 16), hexed("QoSClass", 12), num("SL", 4),
	enum("MTUSelector", 2, selectorName), enum("MTU", 6, func(v uint64) string { return ib.MTU(v).String() }),
	enum("RateSelector", 2, selectorName), enum("Rate", 6, func(v uint64) string { return Rate(v).String() }),
	enum("PacketLifeTimeSelector", 2, selectorName), num("PacketLifeTime", 6), num("Preference", 8), reserved(48))

// PathRecord is a way from one port to another.
type PathRecord struct {
	ServiceID              uint64
	DGID                   ib.GID
	SGID                   ib.GID
	DLID                   ib.LID
	SLID                   ib.LID
	RawTraffic             bool
	FlowLabel              uint32 // 20 bits
	HopLimit               uint8
	TClass                 uint8
	Reversible             bool
	NumbPath               uint8 // 7 bits
	PKey                   ib.PKey
	QoSClass               uint16 // 12 bits
	SL                     ib.SL
	MTUSelector            Selector
	MTU                    ib.MTU // 6 bits
	RateSelector           Selector
	Rate                   Rate // 6 bits
	PacketLifeTimeSelector Selector
	PacketLifeTime         uint8 // 6 bits: 4.096 us * 2^n
	Preference             uint8
}

// Parse reads the record and returns its length.
func (r *PathRecord) Parse(b []byte) (int, error) {
	if err := PathRecordTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = PathRecord{
		ServiceID: be.Uint64(b), DGID: ib.GID(b[8:24]), SGID: ib.GID(b[24:40]),
		DLID: ib.LID(be.Uint16(b[40:])), SLID: ib.LID(be.Uint16(b[42:])),
		RawTraffic: b[44]&0x80 != 0, FlowLabel: be.Uint32(b[44:]) >> 8 & 0xFFFFF, HopLimit: b[47], TClass: b[48],
		Reversible: b[49]&0x80 != 0, NumbPath: b[49] & 0x7F, PKey: ib.PKey(be.Uint16(b[50:])),
		QoSClass: be.Uint16(b[52:]) >> 4, SL: ib.SL(b[53] & 0xF),
		MTUSelector: Selector(b[54] >> 6), MTU: ib.MTU(b[54] & 0x3F),
		RateSelector: Selector(b[55] >> 6), Rate: Rate(b[55] & 0x3F),
		PacketLifeTimeSelector: Selector(b[56] >> 6), PacketLifeTime: b[56] & 0x3F, Preference: b[57],
	}
	return PathRecordTable.Size, nil
}

// Append writes the record after b.
func (r *PathRecord) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.DGID[:]...)
	b = append(b, r.SGID[:]...)
	b = be.AppendUint16(b, uint16(r.DLID))
	b = be.AppendUint16(b, uint16(r.SLID))
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xFFFFF<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7F)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL)&0xF)
	return append(b, selected(r.MTUSelector, byte(r.MTU)), selected(r.RateSelector, byte(r.Rate)),
		selected(r.PacketLifeTimeSelector, r.PacketLifeTime), r.Preference, 0, 0, 0, 0, 0, 0)
}

func selected(s Selector, v byte) byte { return byte(s)<<6 | v&0x3F }

// MultiPathGIDs is the most GIDs that a MultiPathRecord holds in one datagram.
const MultiPathGIDs = 11

// MultiPathRecordTable asks for ways from any of some ports to any of others (IBA 15.2.5.20).
var MultiPathRecordTable = newSARecord("MultiPathRecord", AttrMultiPathRecord,
	num("RawTraffic", 1), reserved(3), hexed("FlowLabel", 20), num("HopLimit", 8), hexed("TClass", 8),
	num("Reversible", 1), num("NumbPath", 7), hexed("P_Key", 16), hexed("QoSClass", 12), num("SL", 4),
	enum("MTUSelector", 2, selectorName), enum("MTU", 6, func(v uint64) string { return ib.MTU(v).String() }),
	enum("RateSelector", 2, selectorName), enum("Rate", 6, func(v uint64) string { return Rate(v).String() }),
	enum("PacketLifeTimeSelector", 2, selectorName), num("PacketLifeTime", 6), hexed("ServiceIDUpper", 8),
	num("IndependenceSelector", 2), reserved(6), num("SGIDCount", 8), num("DGIDCount", 8), hexed("ServiceIDLower", 56),
	gid("SDGID").array(MultiPathGIDs))

// MultiPathRecord asks for ways from any of some ports to any of others: the GIDs of the sources and
// then those of the destinations.
type MultiPathRecord struct {
	RawTraffic             bool
	FlowLabel              uint32 // 20 bits
	HopLimit               uint8
	TClass                 uint8
	Reversible             bool
	NumbPath               uint8 // 7 bits
	PKey                   ib.PKey
	QoSClass               uint16 // 12 bits
	SL                     ib.SL
	MTUSelector            Selector
	MTU                    ib.MTU
	RateSelector           Selector
	Rate                   Rate
	PacketLifeTimeSelector Selector
	PacketLifeTime         uint8
	ServiceID              uint64
	IndependenceSelector   uint8 // 2 bits: 1 asks for ways that share as little as possible
	SGIDCount              uint8
	DGIDCount              uint8
	SDGID                  [MultiPathGIDs]ib.GID
}

// Parse reads the record and returns its length.
func (r *MultiPathRecord) Parse(b []byte) (int, error) {
	if err := MultiPathRecordTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = MultiPathRecord{
		RawTraffic: b[0]&0x80 != 0, FlowLabel: be.Uint32(b) >> 8 & 0xFFFFF, HopLimit: b[3], TClass: b[4],
		Reversible: b[5]&0x80 != 0, NumbPath: b[5] & 0x7F, PKey: ib.PKey(be.Uint16(b[6:])),
		QoSClass: be.Uint16(b[8:]) >> 4, SL: ib.SL(b[9] & 0xF),
		MTUSelector: Selector(b[10] >> 6), MTU: ib.MTU(b[10] & 0x3F),
		RateSelector: Selector(b[11] >> 6), Rate: Rate(b[11] & 0x3F),
		PacketLifeTimeSelector: Selector(b[12] >> 6), PacketLifeTime: b[12] & 0x3F,
		ServiceID:            uint64(b[13])<<56 | be.Uint64(b[16:])&(1<<56-1),
		IndependenceSelector: b[14] >> 6, SGIDCount: b[15], DGIDCount: b[16],
	}
	for i := range r.SDGID {
		r.SDGID[i] = ib.GID(b[24+16*i:])
	}
	return MultiPathRecordTable.Size, nil
}

// Append writes the record after b.
func (r *MultiPathRecord) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xFFFFF<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7F)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL)&0xF)
	b = append(b, selected(r.MTUSelector, byte(r.MTU)), selected(r.RateSelector, byte(r.Rate)),
		selected(r.PacketLifeTimeSelector, r.PacketLifeTime), byte(r.ServiceID>>56), r.IndependenceSelector<<6,
		r.SGIDCount)
	b = be.AppendUint64(b, uint64(r.DGIDCount)<<56|r.ServiceID&(1<<56-1))
	for i := range r.SDGID {
		b = append(b, r.SDGID[i][:]...)
	}
	return b
}

// TraceRecordTable is one node on a way (IBA 15.2.5.19).
var TraceRecordTable = newSARecord("TraceRecord", AttrTraceRecord,
	hexed("GidPrefix", 64), num("IDGeneration", 16), reserved(8),
	enum("NodeType", 8, func(v uint64) string { return ib.NodeType(v).String() }),
	guid("NodeID"), guid("ChassisID"), guid("EntryPortID"), guid("ExitPortID"), num("EntryPort", 8), num("ExitPort", 8))

// TraceRecord is one node on a way. The IDs are GUIDs that a subnet may disguise.
type TraceRecord struct {
	GidPrefix    uint64
	IDGeneration uint16
	NodeType     ib.NodeType
	NodeID       ib.GUID
	ChassisID    ib.GUID
	EntryPortID  ib.GUID
	ExitPortID   ib.GUID
	EntryPort    ib.PortNum
	ExitPort     ib.PortNum
}

// Parse reads the record and returns its length.
func (r *TraceRecord) Parse(b []byte) (int, error) {
	if err := TraceRecordTable.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*r = TraceRecord{
		GidPrefix: be.Uint64(b), IDGeneration: be.Uint16(b[8:]), NodeType: ib.NodeType(b[11]),
		NodeID: ib.GUID(be.Uint64(b[12:])), ChassisID: ib.GUID(be.Uint64(b[20:])),
		EntryPortID: ib.GUID(be.Uint64(b[28:])), ExitPortID: ib.GUID(be.Uint64(b[36:])),
		EntryPort: ib.PortNum(b[44]), ExitPort: ib.PortNum(b[45]),
	}
	return TraceRecordTable.Size, nil
}

// Append writes the record after b.
func (r *TraceRecord) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, r.GidPrefix)
	b = append(be.AppendUint16(b, r.IDGeneration), 0, byte(r.NodeType))
	b = be.AppendUint64(b, uint64(r.NodeID))
	b = be.AppendUint64(b, uint64(r.ChassisID))
	b = be.AppendUint64(b, uint64(r.EntryPortID))
	b = be.AppendUint64(b, uint64(r.ExitPortID))
	return append(b, byte(r.EntryPort), byte(r.ExitPort))
}
