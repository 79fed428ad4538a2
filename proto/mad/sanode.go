package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// NodeRecordTable is what a node is, for each of its end ports (IBA 15.2.5.2).
var NodeRecordTable = newSARecord("NodeRecord", AttrNodeRecord,
	num("LID", 16), reserved(16), embed(&NodeInfoLayout), text("NodeString", SMPDataLen))

// NodeRecord is what a node is, seen from one of its end ports.
type NodeRecord struct {
	LID ib.LID
	NodeInfo
	NodeString NodeDescription
}

// Parse reads the record and returns its length.
func (r *NodeRecord) Parse(b []byte) (int, error) {
	if err := NodeRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID = ib.LID(binary.BigEndian.Uint16(b))
	n, err := r.NodeInfo.Parse(b[4:])
	if err != nil {
		return 0, err
	}
	copy(r.NodeString[:], b[4+n:])
	return NodeRecordTable.Size, nil
}

// Append writes the record after b.
func (r *NodeRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), 0, 0)
	b = r.NodeInfo.Append(b)
	return append(b, r.NodeString[:]...)
}

// PortInfoRecordTable is the state of a port (IBA 15.2.5.3).
var PortInfoRecordTable = newSARecord("PortInfoRecord", AttrPortInfoRecord,
	num("EndportLID", 16), num("PortNum", 8), hexed("Options", 8),
	embed(&PortInfoLayout, "LinkSpeedExtActive2", "LinkSpeedExtSupported2", "LinkSpeedExtEnabled2"))

// SACapMaskMatch in the attribute modifier of a query for PortInfoRecords asks for all ports whose CapabilityMask has
// at least the bits of the query (IBA 15.4.10).
const SACapMaskMatch uint32 = 1 << 31

// PortInfoRecord is the state of a port. EndportLID is that of port 0 for all ports of a switch.
type PortInfoRecord struct {
	EndportLID ib.LID
	PortNum    ib.PortNum
	Options    uint8
	PortInfo
}

// Parse reads the record and returns its length.
func (r *PortInfoRecord) Parse(b []byte) (int, error) {
	if err := PortInfoRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.EndportLID, r.PortNum, r.Options = ib.LID(binary.BigEndian.Uint16(b)), ib.PortNum(b[2]), b[3]
	if _, err := r.PortInfo.Parse(b[4:]); err != nil {
		return 0, err
	}
	return PortInfoRecordTable.Size, nil
}

// Append writes the record after b.
func (r *PortInfoRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.EndportLID)), byte(r.PortNum), r.Options)
	return r.PortInfo.Append(b)
}

// SwitchInfoRecordTable is what a switch can do (IBA 15.2.5.5).
var SwitchInfoRecordTable = newSARecord("SwitchInfoRecord", AttrSwitchInfoRecord, num("LID", 16), reserved(16),
	embed(&SwitchInfoLayout))

// SwitchInfoRecord is what a switch can do.
type SwitchInfoRecord struct {
	LID ib.LID
	SwitchInfo
}

// Parse reads the record and returns its length.
func (r *SwitchInfoRecord) Parse(b []byte) (int, error) {
	if err := SwitchInfoRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID = ib.LID(binary.BigEndian.Uint16(b))
	if _, err := r.SwitchInfo.Parse(b[4:]); err != nil {
		return 0, err
	}
	return SwitchInfoRecordTable.Size, nil
}

// Append writes the record after b.
func (r *SwitchInfoRecord) Append(b []byte) []byte {
	return r.SwitchInfo.Append(append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), 0, 0))
}

// SMInfoRecordTable is a subnet manager (IBA 15.2.5.10).
var SMInfoRecordTable = newSARecord("SMInfoRecord", AttrSMInfoRecord, num("LID", 16), reserved(16),
	embed(&SMInfoLayout))

// SMInfoRecord is a subnet manager.
type SMInfoRecord struct {
	LID ib.LID
	SMInfo
}

// Parse reads the record and returns its length.
func (r *SMInfoRecord) Parse(b []byte) (int, error) {
	if err := SMInfoRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID = ib.LID(binary.BigEndian.Uint16(b))
	if _, err := r.SMInfo.Parse(b[4:]); err != nil {
		return 0, err
	}
	return SMInfoRecordTable.Size, nil
}

// Append writes the record after b.
func (r *SMInfoRecord) Append(b []byte) []byte {
	return r.SMInfo.Append(append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), 0, 0))
}

// GUIDInfoRecordTable is eight of a port's GUIDs (IBA 15.2.5.18). The reserved bits count as two components.
var GUIDInfoRecordTable = newSARecord("GUIDInfoRecord", AttrGUIDInfoRecord,
	num("LID", 16), num("BlockNum", 8), reserved(8), reserved(32), guid("GUID").array(8).at(4))

// GUIDInfoRecord is eight of a port's GUIDs.
type GUIDInfoRecord struct {
	LID      ib.LID
	BlockNum uint8
	GUID     GUIDInfo
}

// Parse reads the record and returns its length.
func (r *GUIDInfoRecord) Parse(b []byte) (int, error) {
	if err := GUIDInfoRecordTable.Check(b); err != nil {
		return 0, err
	}
	r.LID, r.BlockNum = ib.LID(binary.BigEndian.Uint16(b)), b[2]
	if _, err := r.GUID.Parse(b[8:]); err != nil {
		return 0, err
	}
	return GUIDInfoRecordTable.Size, nil
}

// Append writes the record after b.
func (r *GUIDInfoRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.LID)), r.BlockNum, 0, 0, 0, 0, 0)
	return r.GUID.Append(b)
}

// LinkRecordTable is one direction of a cable (IBA 15.2.5.13).
var LinkRecordTable = newSARecord("LinkRecord", AttrLinkRecord,
	num("FromLID", 16), num("FromPort", 8), num("ToPort", 8), num("ToLID", 16))

// LinkRecord is one direction of a cable.
type LinkRecord struct {
	FromLID  ib.LID
	FromPort ib.PortNum
	ToPort   ib.PortNum
	ToLID    ib.LID
}

// Parse reads the record and returns its length.
func (r *LinkRecord) Parse(b []byte) (int, error) {
	if err := LinkRecordTable.Check(b); err != nil {
		return 0, err
	}
	*r = LinkRecord{
		FromLID: ib.LID(binary.BigEndian.Uint16(b)), FromPort: ib.PortNum(b[2]),
		ToPort: ib.PortNum(b[3]), ToLID: ib.LID(binary.BigEndian.Uint16(b[4:])),
	}
	return LinkRecordTable.Size, nil
}

// Append writes the record after b.
func (r *LinkRecord) Append(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(r.FromLID)), byte(r.FromPort), byte(r.ToPort))
	return binary.BigEndian.AppendUint16(b, uint16(r.ToLID))
}
