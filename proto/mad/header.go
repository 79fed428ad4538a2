package mad

import (
	"encoding/binary"
	"fmt"
)

const (
	// Size is the length of every management datagram in bytes (IBA 13.4.1).
	Size = 256
	// HeaderSize is the length of the common header.
	HeaderSize = 24
	// BaseVersion is the version of the common header.
	BaseVersion = 1
)

// Byte offsets in the common header (IBA 13.4.3).
const (
	offBaseVersion   = 0
	offClass         = 1
	offClassVersion  = 2
	offMethod        = 3
	offStatus        = 4
	offClassSpecific = 6
	offTID           = 8
	offAttrID        = 16
	offAttrMod       = 20
)

// HeaderLayout is the common header.
var HeaderLayout = Layout{"MAD", HeaderSize, []Field{
	{Name: "BaseVersion", Off: 0, Bits: 8},
	{Name: "MgmtClass", Off: 8, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return Class(v).String() }},
	{Name: "ClassVersion", Off: 16, Bits: 8},
	{Name: "Method", Off: 24, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return Method(v).String() }},
	{Name: "Status", Off: 32, Bits: 16, Kind: Enum, Enum: func(v uint64) string { return Status(v).String() }},
	{Name: "ClassSpecific", Off: 48, Bits: 16, Kind: Hex},
	{Name: "TransactionID", Off: 64, Bits: 64, Kind: Hex},
	{Name: "AttributeID", Off: 128, Bits: 16, Kind: Hex},
	{Name: "AttributeModifier", Off: 160, Bits: 32, Kind: Hex},
}}

// Header is the common header.
type Header struct {
	BaseVersion       uint8
	MgmtClass         Class
	ClassVersion      uint8
	Method            Method
	Status            Status
	ClassSpecific     uint16
	TransactionID     uint64
	AttributeID       AttrID
	AttributeModifier uint32
}

// Parse reads the header and returns its length.
func (h *Header) Parse(b []byte) (int, error) {
	if err := HeaderLayout.Check(b); err != nil {
		return 0, err
	}
	*h = Header{
		BaseVersion:       b[offBaseVersion],
		MgmtClass:         Class(b[offClass]),
		ClassVersion:      b[offClassVersion],
		Method:            Method(b[offMethod]),
		Status:            Status(binary.BigEndian.Uint16(b[offStatus:])),
		ClassSpecific:     binary.BigEndian.Uint16(b[offClassSpecific:]),
		TransactionID:     binary.BigEndian.Uint64(b[offTID:]),
		AttributeID:       AttrID(binary.BigEndian.Uint16(b[offAttrID:])),
		AttributeModifier: binary.BigEndian.Uint32(b[offAttrMod:]),
	}
	return HeaderSize, nil
}

// Append writes the header after b.
func (h *Header) Append(b []byte) []byte {
	b = append(b, h.BaseVersion, byte(h.MgmtClass), h.ClassVersion, byte(h.Method))
	b = binary.BigEndian.AppendUint16(b, uint16(h.Status))
	b = binary.BigEndian.AppendUint16(b, h.ClassSpecific)
	b = binary.BigEndian.AppendUint64(b, h.TransactionID)
	b = binary.BigEndian.AppendUint16(b, uint16(h.AttributeID))
	b = append(b, 0, 0)
	return binary.BigEndian.AppendUint32(b, h.AttributeModifier)
}

func (h Header) String() string {
	return fmt.Sprintf("%s%s(%s) mod 0x%08x tid 0x%016x status %s", h.MgmtClass, h.Method,
		AttrName(h.MgmtClass, h.AttributeID), h.AttributeModifier, h.TransactionID, h.Status)
}

// View is a datagram of 256 bytes, read and written in place. Make one with
// AsView, which checks the length; the methods do not check it again.
type View []byte

// AsView checks that b holds a datagram.
func AsView(b []byte) (View, error) {
	if len(b) < Size {
		return nil, &LayoutError{Attr: "MAD", Got: uint64(len(b)), Want: fmt.Sprintf("%d bytes", Size),
			Reason: ErrShort}
	}
	return View(b[:Size:Size]), nil
}

// BaseVersion is the version of the common header.
func (v View) BaseVersion() uint8 { return v[offBaseVersion] }

// Class is the management class.
func (v View) Class() Class { return Class(v[offClass]) }

// ClassVersion is the version of the class.
func (v View) ClassVersion() uint8 { return v[offClassVersion] }

// Method is what the datagram asks for or answers.
func (v View) Method() Method { return Method(v[offMethod]) }

// SetMethod replaces the method.
func (v View) SetMethod(m Method) { v[offMethod] = byte(m) }

// Status is the status without the direction bit of directed routes.
func (v View) Status() Status {
	s := Status(binary.BigEndian.Uint16(v[offStatus:]))
	if v.Class() == ClassSMDirect {
		s &^= StatusDirection
	}
	return s
}

// SetStatus replaces the status and leaves the direction bit of directed
// routes alone.
func (v View) SetStatus(s Status) {
	if v.Class() == ClassSMDirect {
		s = s&^StatusDirection | Status(binary.BigEndian.Uint16(v[offStatus:]))&StatusDirection
	}
	binary.BigEndian.PutUint16(v[offStatus:], uint16(s))
}

// TID is the transaction that the datagram belongs to.
func (v View) TID() uint64 { return binary.BigEndian.Uint64(v[offTID:]) }

// SetTID replaces the transaction.
func (v View) SetTID(t uint64) { binary.BigEndian.PutUint64(v[offTID:], t) }

// AttrID is the attribute.
func (v View) AttrID() AttrID { return AttrID(binary.BigEndian.Uint16(v[offAttrID:])) }

// AttrMod is the attribute modifier.
func (v View) AttrMod() uint32 { return binary.BigEndian.Uint32(v[offAttrMod:]) }

// Data is the attribute's bytes, at the place that the class gives it; what
// follows the header if the class is unknown.
func (v View) Data() []byte {
	if i := v.Class().Info(); i != nil {
		return v[i.DataOff : i.DataOff+i.DataLen : i.DataOff+i.DataLen]
	}
	return v[HeaderSize:]
}
