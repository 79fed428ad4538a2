package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// RouterGroupLayout is a multicast group of a subnet, as managers and routers tell each other of it: one of softib's
// own attributes, since the standard leaves to makers how routers learn of groups (IBA 19.2).
var RouterGroupLayout = Layout{"RouterGroup", SMPDataLen, []Field{
	{Name: "MGID", Off: 0, Bits: 128, Kind: GID},
	{Name: "Origin", Off: 128, Bits: 64, Kind: Hex},
	{Name: "Q_Key", Off: 192, Bits: 32, Kind: Hex},
	{Name: "MLID", Off: 224, Bits: 16},
	{Name: "P_Key", Off: 240, Bits: 16, Kind: Hex},
	{Name: "MTU", Off: 256, Bits: 8},
	{Name: "Rate", Off: 264, Bits: 8},
	{Name: "SL", Off: 272, Bits: 8},
	{Name: "TClass", Off: 280, Bits: 8},
	{Name: "FlowLabel", Off: 288, Bits: 32},
	{Name: "HopLimit", Off: 320, Bits: 8},
	{Name: "PacketLifeTime", Off: 328, Bits: 8},
	{Name: "Top", Off: 352, Bits: 32},
}}

// RouterGroup says that a subnet has members of a multicast group who receive. In RouterGroups, which a manager writes,
// it is a group of the port's subnet; in GroupsWanted, which it reads, one of which members are beyond the router.
type RouterGroup struct {
	// MGID is the group's; the zero GID says that the entry is empty.
	MGID ib.GID
	// Origin is the prefix of the subnet that has the members.
	Origin uint64
	QKey   ib.QKey
	// MLID is the group's in the port's subnet; 0 in GroupsWanted.
	MLID           ib.LID
	PKey           ib.PKey
	MTU            ib.MTU
	Rate           Rate
	SL             ib.SL
	TClass         uint8
	FlowLabel      uint32
	HopLimit       uint8
	PacketLifeTime uint8
	// Top is how many entries the table has, in GroupsWanted; 0 in RouterGroups.
	Top uint32
}

// Parse reads the attribute and returns its length.
func (g *RouterGroup) Parse(b []byte) (int, error) {
	if err := RouterGroupLayout.Check(b); err != nil {
		return 0, err
	}
	*g = RouterGroup{MGID: ib.GID(b[:16]), Origin: binary.BigEndian.Uint64(b[16:]),
		QKey: ib.QKey(binary.BigEndian.Uint32(b[24:])), MLID: ib.LID(binary.BigEndian.Uint16(b[28:])),
		PKey: ib.PKey(binary.BigEndian.Uint16(b[30:])), MTU: ib.MTU(b[32]), Rate: Rate(b[33]), SL: ib.SL(b[34]),
		TClass: b[35], FlowLabel: binary.BigEndian.Uint32(b[36:]), HopLimit: b[40], PacketLifeTime: b[41],
		Top: binary.BigEndian.Uint32(b[44:])}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (g *RouterGroup) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, g.MGID[:]...), g.Origin)
	b = binary.BigEndian.AppendUint32(b, uint32(g.QKey))
	b = binary.BigEndian.AppendUint16(b, uint16(g.MLID))
	b = binary.BigEndian.AppendUint16(b, uint16(g.PKey))
	b = append(b, byte(g.MTU), byte(g.Rate), byte(g.SL), g.TClass)
	b = binary.BigEndian.AppendUint32(b, g.FlowLabel)
	b = append(b, g.HopLimit, g.PacketLifeTime, 0, 0)
	b = binary.BigEndian.AppendUint32(b, g.Top)
	return append(b, make([]byte, SMPDataLen-48)...)
}

// IsRouted reports whether a multicast GID's scope is wider than a subnet (IBA 4.1.1).
func IsRouted(mgid ib.GID) bool { return mgid.IsMulticast() && mgid[1]&0xF > ScopeLinkLocal }
