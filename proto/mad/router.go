package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// The standard leaves the tables of routers to their makers (IBA 19.2). RouterInfo and the table of next hops are
// those of Mellanox' routers, as far as they say what a manager has to know. Those compute LIDs from GIDs of a kind
// that has one in it; softib's routers know every GID, and are told by the managers of their subnets in tables of
// softib's own. Each of these is of the port by which a request came.

// Sizes of the tables of routers.
const (
	NextHopsPerBlock    = 4
	RouterGUIDsPerBlock = 8
)

// RouterInfoLayout is RouterInfo, the sizes of a router's tables.
var RouterInfoLayout = Layout{"RouterInfo", SMPDataLen, []Field{
	{Name: "CapabilityMask", Off: 0, Bits: 32, Kind: Hex},
	{Name: "NextHopTableCap", Off: 32, Bits: 32},
	{Name: "NextHopTableTop", Off: 64, Bits: 32},
	{Name: "MaxMulticastTTL", Off: 152, Bits: 8},
}}

// RouterInfo says how many entries a router's tables have.
type RouterInfo struct {
	CapabilityMask uint32
	// NextHopTableCap is how many next hops there can be, NextHopTableTop how many there are.
	NextHopTableCap, NextHopTableTop uint32
	// MaxMulticastTTL is the most hops that a multicast packet may have left; 0 if none is forwarded.
	MaxMulticastTTL uint8
}

// Parse reads the attribute and returns its length.
func (r *RouterInfo) Parse(b []byte) (int, error) {
	if err := RouterInfoLayout.Check(b); err != nil {
		return 0, err
	}
	*r = RouterInfo{CapabilityMask: binary.BigEndian.Uint32(b), NextHopTableCap: binary.BigEndian.Uint32(b[4:]),
		NextHopTableTop: binary.BigEndian.Uint32(b[8:]), MaxMulticastTTL: b[19]}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (r *RouterInfo) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.CapabilityMask)
	b = binary.BigEndian.AppendUint32(b, r.NextHopTableCap)
	b = binary.BigEndian.AppendUint32(b, r.NextHopTableTop)
	at := len(b)
	b = append(b, make([]byte, SMPDataLen-12)...)
	b[at+7] = r.MaxMulticastTTL
	return b
}

// NextHop is a subnet that packets reach by a router.
type NextHop struct {
	// Prefix is the subnet's; 0 says that the entry is empty.
	Prefix uint64
	PKey   ib.PKey
	// Weight is how many routers are on the way, this one included.
	Weight uint8
	// LID is the router that is next, in RouterPeers; 0 elsewhere.
	LID ib.LID
}

// NextHopTableLayout is a block of the table of next hops, and RouterPeersLayout one of the table in which a manager
// tells a router what others of the same subnet reach.
var (
	NextHopTableLayout = Layout{"NextHopTable", SMPDataLen, nextHopFields}
	RouterPeersLayout  = Layout{"RouterPeers", SMPDataLen, append(nextHopFields[:3:3],
		Field{Name: "LID", Off: 96, Bits: 16, Count: NextHopsPerBlock, Stride: 128})}
	nextHopFields = []Field{
		{Name: "SubnetPrefix", Off: 0, Bits: 64, Kind: Hex, Count: NextHopsPerBlock, Stride: 128},
		{Name: "P_Key", Off: 64, Bits: 16, Kind: Hex, Count: NextHopsPerBlock, Stride: 128},
		{Name: "Weight", Off: 80, Bits: 8, Count: NextHopsPerBlock, Stride: 128},
	}
)

// NextHopTable is a block of next hops.
type NextHopTable [NextHopsPerBlock]NextHop

// Parse reads the attribute and returns its length.
func (t *NextHopTable) Parse(b []byte) (int, error) {
	if err := RouterPeersLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		e := b[16*i:]
		t[i] = NextHop{Prefix: binary.BigEndian.Uint64(e), PKey: ib.PKey(binary.BigEndian.Uint16(e[8:])), Weight: e[10],
			LID: ib.LID(binary.BigEndian.Uint16(e[12:]))}
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *NextHopTable) Append(b []byte) []byte {
	for i := range t {
		e := &t[i]
		b = binary.BigEndian.AppendUint64(b, e.Prefix)
		b = binary.BigEndian.AppendUint16(b, uint16(e.PKey))
		b = append(b, e.Weight, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(e.LID))
		b = append(b, 0, 0)
	}
	return b
}

// RouterGUIDsLayout is a block of the table in which a manager tells a router which port has which LID.
var RouterGUIDsLayout = Layout{"RouterGUIDs", SMPDataLen, []Field{
	{Name: "GUID", Off: 0, Bits: 64, Kind: Hex, Count: RouterGUIDsPerBlock, Stride: 64},
}}

// RouterGUIDs are the GUIDs of the ports that have 8 LIDs, from 8 times the block's number on; 0 where nobody has one.
type RouterGUIDs [RouterGUIDsPerBlock]ib.GUID

// Parse reads the attribute and returns its length.
func (t *RouterGUIDs) Parse(b []byte) (int, error) {
	if err := RouterGUIDsLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		t[i] = ib.GUID(binary.BigEndian.Uint64(b[8*i:]))
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *RouterGUIDs) Append(b []byte) []byte {
	for _, g := range t {
		b = binary.BigEndian.AppendUint64(b, uint64(g))
	}
	return b
}
