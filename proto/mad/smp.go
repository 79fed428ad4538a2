package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

const (
	// SMPDataOff is where a subnet management packet's attribute starts.
	SMPDataOff = 64
	// SMPDataLen is how long it is.
	SMPDataLen = 64
	// MaxHops is the most hops of a directed route (IBA 14.2.1.2).
	MaxHops = 63
)

// Byte offsets in subnet management packets (IBA 14.2.1.1 and 14.2.1.2).
const (
	offHopPointer  = 6
	offHopCount    = 7
	offMKey        = 24
	offDrSLID      = 32
	offDrDLID      = 34
	offInitialPath = 128
	offReturnPath  = 192
)

// SMPLayout is what a LID-routed SMP has after the common header, counted from the datagram's start.
var SMPLayout = Layout{"SMP", Size, []Field{
	{Name: "M_Key", Off: offMKey * 8, Bits: 64, Kind: Hex},
	{Name: "SMPData", Off: SMPDataOff * 8, Bits: SMPDataLen * 8, Kind: Bytes},
}}

// DRSMPLayout is what a directed-route SMP has beside the common header, counted from
// the datagram's start; it takes D out of Status and the hop fields out of
// ClassSpecific.
var DRSMPLayout = Layout{"SMP", Size, []Field{
	{Name: "D", Off: 32, Bits: 1},
	{Name: "Status", Off: 33, Bits: 15, Kind: Enum, Enum: func(v uint64) string { return Status(v).String() }},
	{Name: "HopPointer", Off: offHopPointer * 8, Bits: 8},
	{Name: "HopCount", Off: offHopCount * 8, Bits: 8},
	{Name: "M_Key", Off: offMKey * 8, Bits: 64, Kind: Hex},
	{Name: "DrSLID", Off: offDrSLID * 8, Bits: 16},
	{Name: "DrDLID", Off: offDrDLID * 8, Bits: 16},
	{Name: "SMPData", Off: SMPDataOff * 8, Bits: SMPDataLen * 8, Kind: Bytes},
	{Name: "InitialPath", Off: offInitialPath * 8, Bits: 8, Count: 64, Stride: 8},
	{Name: "ReturnPath", Off: offReturnPath * 8, Bits: 8, Count: 64, Stride: 8},
}}

// MKey is the management key of an SMP.
func (v View) MKey() uint64 { return binary.BigEndian.Uint64(v[offMKey:]) }

// SetMKey replaces the management key.
func (v View) SetMKey(k uint64) { binary.BigEndian.PutUint64(v[offMKey:], k) }

// Returning is the D bit: the SMP is on its way back.
func (v View) Returning() bool { return v[offStatus]&0x80 != 0 }

// SetReturning sets or clears the D bit.
func (v View) SetReturning(on bool) {
	v[offStatus] &^= 0x80
	if on {
		v[offStatus] |= 0x80
	}
}

// HopPointer is the hop that the SMP is at.
func (v View) HopPointer() uint8 { return v[offHopPointer] }

// SetHopPointer replaces the hop.
func (v View) SetHopPointer(h uint8) { v[offHopPointer] = h }

// HopCount is how many hops the directed part of the route has.
func (v View) HopCount() uint8 { return v[offHopCount] }

// DrSLID is where the LID-routed part before the directed one starts;
// permissive if there is none.
func (v View) DrSLID() ib.LID { return ib.LID(binary.BigEndian.Uint16(v[offDrSLID:])) }

// DrDLID is where the LID-routed part after the directed one ends;
// permissive if there is none.
func (v View) DrDLID() ib.LID { return ib.LID(binary.BigEndian.Uint16(v[offDrDLID:])) }

// InitialPath is the port by which hop i leaves; element 0 is unused.
func (v View) InitialPath(i uint8) ib.PortNum { return ib.PortNum(v[offInitialPath+int(i&63)]) }

// ReturnPath is the port by which hop i came in.
func (v View) ReturnPath(i uint8) ib.PortNum { return ib.PortNum(v[offReturnPath+int(i&63)]) }

// SetReturnPath notes the port by which hop i came in.
func (v View) SetReturnPath(i uint8, p ib.PortNum) { v[offReturnPath+int(i&63)] = byte(p) }

// SMP is a subnet management request as its sender thinks of it.
type SMP struct {
	Method   Method
	Attr     AttrID
	Modifier uint32
	TID      uint64
	MKey     uint64

	// Directed asks for a directed route along Path: the port to leave each node by,
	// first that of the sender. An empty path reaches the sender's own agent.
	Directed bool
	Path     []ib.PortNum
	// DrSLID and DrDLID bound the directed part; 0 stands for
	// permissive, which is a route that is directed all the way.
	DrSLID, DrDLID ib.LID

	// Data is the attribute, at most SMPDataLen bytes.
	Data []byte
}

// Append writes the whole datagram after b. A path longer than MaxHops or data longer
// than SMPDataLen is refused.
func (s *SMP) Append(b []byte) ([]byte, error) {
	if len(s.Path) > MaxHops {
		return b, &LayoutError{Attr: "SMP", Field: "HopCount", Got: uint64(len(s.Path)), Want: "at most 63 hops",
			Reason: ErrRange}
	}
	if len(s.Data) > SMPDataLen {
		return b, &LayoutError{Attr: "SMP", Field: "SMPData", Got: uint64(len(s.Data)), Want: "at most 64 bytes",
			Reason: ErrRange}
	}
	h := Header{
		BaseVersion: BaseVersion, MgmtClass: ClassSMLID, ClassVersion: 1, Method: s.Method,
		TransactionID: s.TID, AttributeID: s.Attr, AttributeModifier: s.Modifier,
	}
	if s.Directed {
		h.MgmtClass = ClassSMDirect
		h.ClassSpecific = uint16(len(s.Path))
	}
	start := len(b)
	b = h.Append(b)
	b = append(b, make([]byte, Size-HeaderSize)...)
	v := View(b[start:])
	v.SetMKey(s.MKey)
	copy(v[SMPDataOff:], s.Data)
	if s.Directed {
		binary.BigEndian.PutUint16(v[offDrSLID:], uint16(orPermissive(s.DrSLID)))
		binary.BigEndian.PutUint16(v[offDrDLID:], uint16(orPermissive(s.DrDLID)))
		for i, p := range s.Path {
			v[offInitialPath+1+i] = byte(p)
		}
	}
	return b, nil
}

func orPermissive(l ib.LID) ib.LID {
	if l == ib.LIDReserved {
		return ib.LIDPermissive
	}
	return l
}
