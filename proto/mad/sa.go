package mad

import "encoding/binary"

// Places in a datagram of subnet administration (IBA 15.2.1.1): after the common header
// the RMPP header, then the class's own.
const (
	SAHeaderOff  = RMPPClassOff
	SAHeaderSize = 20
	// SADataOff is where records start; a message longer than one datagram is this many bytes of headers and then all
	// records.
	SADataOff = SAHeaderOff + SAHeaderSize
	// SADataLen is what one datagram holds of records.
	SADataLen = Size - SADataOff
	// SAVersion is the class version.
	SAVersion = 2
)

// SAHeaderLayout is the class's own header, counted from SAHeaderOff.
var SAHeaderLayout = Layout{"SA", SAHeaderSize, []Field{
	{Name: "SM_Key", Off: 0, Bits: 64, Kind: Hex},
	{Name: "AttributeOffset", Off: 64, Bits: 16},
	{Name: "ComponentMask", Off: 96, Bits: 64, Kind: Hex},
}}

// SAHeader is the class's own header.
type SAHeader struct {
	SMKey uint64
	// AttributeOffset is how far apart records lie, in units of 8 bytes.
	AttributeOffset uint16
	// ComponentMask says which fields of the record were given.
	ComponentMask uint64
}

// Parse reads the header, which starts at SAHeaderOff in a datagram, and returns its length.
func (h *SAHeader) Parse(b []byte) (int, error) {
	if err := SAHeaderLayout.Check(b); err != nil {
		return 0, err
	}
	*h = SAHeader{
		SMKey:           binary.BigEndian.Uint64(b),
		AttributeOffset: binary.BigEndian.Uint16(b[8:]),
		ComponentMask:   binary.BigEndian.Uint64(b[12:]),
	}
	return SAHeaderSize, nil
}

// Append writes the header after b.
func (h *SAHeader) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.SMKey)
	b = binary.BigEndian.AppendUint16(b, h.AttributeOffset)
	b = append(b, 0, 0)
	return binary.BigEndian.AppendUint64(b, h.ComponentMask)
}
