package mad

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
)

// Entries of one block of the tables that travel in blocks.
const (
	GUIDsPerBlock = 8
	PKeysPerBlock = 32
	VLArbPerBlock = 32
	LFTPerBlock   = 64
	MFTPerBlock   = 32
	MFTPortMask   = 16 // ports in one position of a multicast table
)

// GUIDInfoLayout is a block of a port's GUID table (IBA 14.2.5.5).
var GUIDInfoLayout = Layout{"GUIDInfo", SMPDataLen, []Field{
	{Name: "GUID", Off: 0, Bits: 64, Kind: GUID, Count: GUIDsPerBlock, Stride: 64},
}}

// GUIDInfo is a block of a port's GUID table.
type GUIDInfo [GUIDsPerBlock]ib.GUID

// Parse reads the attribute and returns its length.
func (g *GUIDInfo) Parse(b []byte) (int, error) {
	if err := GUIDInfoLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range g {
		g[i] = ib.GUID(binary.BigEndian.Uint64(b[8*i:]))
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (g *GUIDInfo) Append(b []byte) []byte {
	for _, v := range g {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// PKeyTableLayout is a block of a port's partition table (IBA 14.2.5.7).
var PKeyTableLayout = Layout{"P_KeyTable", SMPDataLen, []Field{
	{Name: "P_Key", Off: 0, Bits: 16, Kind: Hex, Count: PKeysPerBlock, Stride: 16},
}}

// PKeyTable is a block of a port's partition table.
type PKeyTable [PKeysPerBlock]ib.PKey

// Parse reads the attribute and returns its length.
func (t *PKeyTable) Parse(b []byte) (int, error) {
	if err := PKeyTableLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		t[i] = ib.PKey(binary.BigEndian.Uint16(b[2*i:]))
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *PKeyTable) Append(b []byte) []byte {
	for _, v := range t {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return b
}

// PKeyModifier asks for a block of a switch port's partition table; other nodes
// leave the port 0.
func PKeyModifier(port ib.PortNum, block int) uint32 { return uint32(port)<<16 | uint32(block)&0xFFFF }

// SLtoVLLayout is the lane of each service level (IBA 14.2.5.8).
var SLtoVLLayout = Layout{"SLtoVLMappingTable", 8, []Field{
	{Name: "VL", Off: 0, Bits: 4, Count: ib.NumSL, Stride: 4},
}}

// SLtoVL is the lane of each service level; VL15 means that packets of this
// level are dropped.
type SLtoVL [ib.NumSL]ib.VL

// Parse reads the attribute and returns its length.
func (t *SLtoVL) Parse(b []byte) (int, error) {
	if err := SLtoVLLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range ib.NumSL / 2 {
		t[2*i], t[2*i+1] = ib.VL(b[i]>>4), ib.VL(b[i]&0xF)
	}
	return SLtoVLLayout.Size, nil
}

// Append writes the attribute after b.
func (t *SLtoVL) Append(b []byte) []byte {
	for i := range ib.NumSL / 2 {
		b = append(b, byte(t[2*i])<<4|byte(t[2*i+1])&0xF)
	}
	return b
}

// SLtoVLModifier asks for the table of a pair of a switch's ports; other nodes
// leave both 0.
func SLtoVLModifier(in, out ib.PortNum) uint32 { return uint32(in)<<8 | uint32(out) }

// Bits of SLtoVLModifier with which a Set is for all input ports or all output ports of a switch, in
// place of the one that is named.
const (
	SLtoVLAllOutputs uint32 = 1 << 16
	SLtoVLAllInputs  uint32 = 1 << 17
)

// VLArbLayout is a block of an arbitration table (IBA 14.2.5.9).
var VLArbLayout = Layout{"VLArbitrationTable", SMPDataLen, []Field{
	{Name: "VL", Off: 4, Bits: 4, Count: VLArbPerBlock, Stride: 16},
	{Name: "Weight", Off: 8, Bits: 8, Count: VLArbPerBlock, Stride: 16},
}}

// VLArbEntry is one entry of an arbitration table: how many units of 64 bytes
// a lane may send in its turn.
type VLArbEntry struct {
	VL     ib.VL
	Weight uint8
}

// VLArb is a block of an arbitration table.
type VLArb [VLArbPerBlock]VLArbEntry

// Parse reads the attribute and returns its length.
func (t *VLArb) Parse(b []byte) (int, error) {
	if err := VLArbLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		t[i] = VLArbEntry{ib.VL(b[2*i] & 0xF), b[2*i+1]}
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *VLArb) Append(b []byte) []byte {
	for _, e := range t {
		b = append(b, byte(e.VL)&0xF, e.Weight)
	}
	return b
}

// VLArbBlock names a part of a port's two arbitration tables.
type VLArbBlock uint8

// The parts of the arbitration tables.
const (
	VLArbLow0  VLArbBlock = iota + 1 // low priority, entries 0 to 31
	VLArbLow1                        // low priority, entries 32 to 63
	VLArbHigh0                       // high priority, entries 0 to 31
	VLArbHigh1                       // high priority, entries 32 to 63
	NumVLArbBlock
)

func (k VLArbBlock) String() string {
	if k >= VLArbLow0 && k < NumVLArbBlock {
		return [...]string{"low[0:32]", "low[32:64]", "high[0:32]", "high[32:64]"}[k-1]
	}
	return fmt.Sprintf("VLArbBlock(%d)", uint8(k))
}

// VLArbModifier asks for a part of a port's arbitration tables.
func VLArbModifier(port ib.PortNum, block VLArbBlock) uint32 {
	return uint32(block)<<16 | uint32(port)
}

// LFTLayout is a block of a linear forwarding table (IBA 14.2.5.10).
var LFTLayout = Layout{"LinearForwardingTable", SMPDataLen, []Field{
	{Name: "Port", Off: 0, Bits: 8, Count: LFTPerBlock, Stride: 8},
}}

// LFTNone in a linear forwarding table drops the packet: it is no port.
const LFTNone ib.PortNum = 0xFF

// LFT is a block of a linear forwarding table: the port of each of 64 LIDs.
type LFT [LFTPerBlock]ib.PortNum

// Parse reads the attribute and returns its length.
func (t *LFT) Parse(b []byte) (int, error) {
	if err := LFTLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		t[i] = ib.PortNum(b[i])
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *LFT) Append(b []byte) []byte {
	for _, p := range t {
		b = append(b, byte(p))
	}
	return b
}

// MFTLayout is a block of a multicast forwarding table (IBA 14.2.5.12).
var MFTLayout = Layout{"MulticastForwardingTable", SMPDataLen, []Field{
	{Name: "PortMask", Off: 0, Bits: 16, Kind: Hex, Count: MFTPerBlock, Stride: 16},
}}

// MFT is a block of a multicast forwarding table: for each of 32 multicast LIDs
// the set of ports among the 16 of a position. Bit 0 is the position's
// first port.
type MFT [MFTPerBlock]uint16

// Parse reads the attribute and returns its length.
func (t *MFT) Parse(b []byte) (int, error) {
	if err := MFTLayout.Check(b); err != nil {
		return 0, err
	}
	for i := range t {
		t[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (t *MFT) Append(b []byte) []byte {
	for _, v := range t {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}

// MFTModifier asks for a block (32 LIDs from 0xC000 on) of a position (16
// ports).
func MFTModifier(block, position int) uint32 {
	return uint32(position)&0xF<<28 | uint32(block)&0x1FF
}
