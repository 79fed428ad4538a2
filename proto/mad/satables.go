package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// SLtoVLRecordTable is how a port maps service levels to lanes (IBA 15.2.5.4).
var SLtoVLRecordTable = newSARecord("SLtoVLMappingTableRecord", AttrSLtoVLRecord,
	num("LID", 16), num("InputPortNum", 8), num("OutputPortNum", 8), reserved(32), embed(&SLtoVLLayout))

// SLtoVLRecord is how a port maps service levels to lanes.
type SLtoVLRecord struct {
	LID           ib.LID
	InputPortNum  ib.PortNum
	OutputPortNum ib.PortNum
	SLtoVL        SLtoVL
}

// Parse reads the record and returns its length.
func (r *SLtoVLRecord) Parse(b []byte) (int, error) {
	if err := SLtoVLRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.InputPortNum, r.OutputPortNum = ib.LID(binary.BigEndian.Uint16(b)), ib.PortNum(b[2]), ib.PortNum(b[3])
	if _, err := r.SLtoVL.Parse(b[8:]); err != nil {
		return 0, err
	}
	return SLtoVLRecordTable.Size, nil
}

// Append writes the record after b.
func (r *SLtoVLRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), byte(r.InputPortNum), byte(r.OutputPortNum), 0, 0, 0, 0)
	return r.SLtoVL.Append(b)
}

// VLArbRecordTable is a part of a port's arbitration tables (IBA 15.2.5.9).
var VLArbRecordTable = newSARecord("VLArbitrationTableRecord", AttrVLArbRecord,
	num("LID", 16), num("OutputPortNum", 8), enum("BlockNum", 8,
		func(v uint64) string { return VLArbBlock(v).String() }), reserved(32), embed(&VLArbLayout))

// VLArbRecord is a part of a port's arbitration tables.
type VLArbRecord struct {
	LID           ib.LID
	OutputPortNum ib.PortNum
	BlockNum      VLArbBlock
	VLArb         VLArb
}

// Parse reads the record and returns its length.
func (r *VLArbRecord) Parse(b []byte) (int, error) {
	if err := VLArbRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.OutputPortNum, r.BlockNum = ib.LID(binary.BigEndian.Uint16(b)), ib.PortNum(b[2]), VLArbBlock(b[3])
	if _, err := r.VLArb.Parse(b[8:]); err != nil {
		return 0, err
	}
	return VLArbRecordTable.Size, nil
}

// Append writes the record after b.
func (r *VLArbRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), byte(r.OutputPortNum), byte(r.BlockNum), 0, 0, 0, 0)
	return r.VLArb.Append(b)
}

// PKeyTableRecordTable is 32 of a port's partition keys (IBA 15.2.5.11).
var PKeyTableRecordTable = newSARecord("P_KeyTableRecord", AttrPKeyTableRecord,
	num("LID", 16), num("BlockNum", 16), num("PortNum", 8), reserved(24), embed(&PKeyTableLayout))

// PKeyTableRecord is 32 of a port's partition keys.
type PKeyTableRecord struct {
	LID      ib.LID
	BlockNum uint16
	PortNum  ib.PortNum
	PKeys    PKeyTable
}

// Parse reads the record and returns its length.
func (r *PKeyTableRecord) Parse(b []byte) (int, error) {
	if err := PKeyTableRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.BlockNum, r.PortNum = ib.LID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint16(b[2:]), ib.PortNum(b[4])
	if _, err := r.PKeys.Parse(b[8:]); err != nil {
		return 0, err
	}
	return PKeyTableRecordTable.Size, nil
}

// Append writes the record after b.
func (r *PKeyTableRecord) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.LID))
	b = append(binary.BigEndian.AppendUint16(b, r.BlockNum), byte(r.PortNum), 0, 0, 0)
	return r.PKeys.Append(b)
}

// LFTRecordTable is 64 entries of a switch's linear forwarding table (IBA 15.2.5.6).
var LFTRecordTable = newSARecord("LinearForwardingTableRecord", AttrLFTRecord,
	num("LID", 16), num("BlockNum", 16), reserved(32), embed(&LFTLayout))

// LFTRecord is 64 entries of a switch's linear forwarding table.
type LFTRecord struct {
	LID      ib.LID
	BlockNum uint16
	LFT      LFT
}

// Parse reads the record and returns its length.
func (r *LFTRecord) Parse(b []byte) (int, error) {
	if err := LFTRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.BlockNum = ib.LID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint16(b[2:])
	if _, err := r.LFT.Parse(b[8:]); err != nil {
		return 0, err
	}
	return LFTRecordTable.Size, nil
}

// Append writes the record after b.
func (r *LFTRecord) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.LID))
	b = append(binary.BigEndian.AppendUint16(b, r.BlockNum), 0, 0, 0, 0)
	return r.LFT.Append(b)
}

// MFTRecordTable is 32 entries of a switch's multicast forwarding table, of 16 ports (IBA 15.2.5.8).
var MFTRecordTable = newSARecord("MulticastForwardingTableRecord", AttrMFTRecord,
	num("LID", 16), num("Position", 4), reserved(3), num("BlockNum", 9), reserved(32), embed(&MFTLayout))

// MFTRecord is 32 entries of a switch's multicast forwarding table, of 16 ports.
type MFTRecord struct {
	LID      ib.LID
	Position uint8  // 4 bits
	BlockNum uint16 // 9 bits
	MFT      MFT
}

// Parse reads the record and returns its length.
func (r *MFTRecord) Parse(b []byte) (int, error) {
	if err := MFTRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.Position, r.BlockNum = ib.LID(binary.BigEndian.Uint16(b)), b[2]>>4, binary.BigEndian.Uint16(b[2:])&0x1FF
	if _, err := r.MFT.Parse(b[8:]); err != nil {
		return 0, err
	}
	return MFTRecordTable.Size, nil
}

// Append writes the record after b.
func (r *MFTRecord) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.LID))
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.Position&0xF)<<12|r.BlockNum&0x1FF), 0, 0, 0, 0)
	return r.MFT.Append(b)
}
