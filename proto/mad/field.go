package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"softib/proto/ib"
)

// Kind says how a field is printed and how wide it may be.
type Kind uint8

// Kinds of field.
const (
	Uint   Kind = iota // decimal
	Hex                // 0x, as many digits as the field has
	GUID               // 64 bits, an EUI-64
	GID                // 128 bits, an IPv6 address in form
	String             // bytes up to the first NUL
	Enum               // a number with a name
	Bytes              // anything longer, in hex
)

// Field is one row of an attribute's table. Bits are counted as the standard
// draws them: bit 0 is the most significant bit of byte 0.
type Field struct {
	Name string
	Off  int // of the first bit
	Bits int
	Kind Kind

	// Enum gives the word for a value of kind Enum.
	Enum func(uint64) string // tidy: calls out, a word for a number

	// Count makes the field an array: so many elements, Stride bits
	// apart. Zero means a single element.
	Count  int
	Stride int
}

// Len is how many elements the field has, 1 unless it is an array.
func (f *Field) Len() int {
	if f.Count == 0 {
		return 1
	}
	return f.Count
}

// end is the bit after the field's last element.
func (f *Field) end() int { return f.Off + (f.Len()-1)*f.Stride + f.Bits }

// max is the largest value that fits.
func (f *Field) max() uint64 {
	if f.Bits >= 64 {
		return ^uint64(0)
	}
	return 1<<f.Bits - 1
}

// Get reads element i, which must have at most 64 bits. The buffer must hold the attribute.
func (f *Field) Get(b []byte, i int) uint64 {
	off := f.Off + i*f.Stride
	switch {
	case off&7 != 0 || f.Bits&7 != 0:
		return getBits(b, off, f.Bits)
	case f.Bits == 64:
		return binary.BigEndian.Uint64(b[off>>3:])
	case f.Bits == 32:
		return uint64(binary.BigEndian.Uint32(b[off>>3:]))
	case f.Bits == 16:
		return uint64(binary.BigEndian.Uint16(b[off>>3:]))
	case f.Bits == 8:
		return uint64(b[off>>3])
	}
	return getBits(b, off, f.Bits)
}

// Put writes element i; bits of v that do not fit are dropped.
func (f *Field) Put(b []byte, i int, v uint64) {
	putBits(b, f.Off+i*f.Stride, f.Bits, v)
}

// Slice is the field's bytes, for kinds that are wider than 64 bits.
func (f *Field) Slice(b []byte, i int) []byte {
	off := (f.Off + i*f.Stride) >> 3
	n := f.Bits >> 3
	return b[off : off+n : off+n]
}

// Format prints element i.
func (f *Field) Format(b []byte, i int) string {
	switch f.Kind {
	case GID:
		return ib.GID(f.Slice(b, i)).String()
	case String:
		return fmt.Sprintf("%q", cString(f.Slice(b, i)))
	case Bytes:
		return fmt.Sprintf("%x", f.Slice(b, i))
	case GUID:
		return ib.GUID(f.Get(b, i)).String()
	case Hex:
		return fmt.Sprintf("0x%0*x", (f.Bits+3)/4, f.Get(b, i))
	case Enum:
		v := f.Get(b, i)
		return fmt.Sprintf("%s (%d)", f.Enum(v), v)
	}
	return fmt.Sprint(f.Get(b, i))
}

// getBits reads up to 64 bits from any bit offset.
func getBits(b []byte, off, n int) uint64 {
	var v uint64
	for n > 0 {
		inByte := 8 - off&7
		take := min(inByte, n)
		part := b[off>>3] >> (inByte - take) & (1<<take - 1)
		v = v<<take | uint64(part)
		off += take
		n -= take
	}
	return v
}

// putBits writes up to 64 bits to any bit offset, leaving neighbours alone.
func putBits(b []byte, off, n int, v uint64) {
	for n > 0 {
		inByte := 8 - off&7
		take := min(inByte, n)
		mask := byte(1<<take-1) << (inByte - take)
		part := byte(v>>(n-take)) << (inByte - take)
		b[off>>3] = b[off>>3]&^mask | part&mask
		off += take
		n -= take
	}
}

// cString is the text before the first NUL.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Layout is an attribute's table.
type Layout struct {
	Name   string
	Size   int // in bytes
	Fields []Field
}

// Field finds a row by name; nil if there is none.
func (l *Layout) Field(name string) *Field {
	for i := range l.Fields {
		if l.Fields[i].Name == name {
			return &l.Fields[i]
		}
	}
	return nil
}

// Reasons why a field or an attribute cannot be read or written.
var (
	ErrShort = errors.New("too short")
	ErrField = errors.New("no such field")
	ErrRange = errors.New("value does not fit")
)

// LayoutError names the attribute, the field and the value at fault. Its
// reason is one of ErrShort, ErrField, ErrRange.
type LayoutError struct {
	Attr   string
	Field  string
	Got    uint64
	Want   string
	Reason error
}

func (e *LayoutError) Error() string {
	at := e.Attr
	if e.Field != "" {
		at += "." + e.Field
	}
	return fmt.Sprintf("mad: %s: %v: got %d, want %s", at, e.Reason, e.Got, e.Want)
}

// Unwrap gives the reason.
func (e *LayoutError) Unwrap() error { return e.Reason }

// Check reports whether b is long enough to hold the attribute.
func (l *Layout) Check(b []byte) error {
	if len(b) < l.Size {
		return &LayoutError{Attr: l.Name, Got: uint64(len(b)), Want: fmt.Sprintf("%d bytes", l.Size), Reason: ErrShort}
	}
	return nil
}

// find looks a scalar element up: "LID", or "Port[7]" in an array.
func (l *Layout) find(b []byte, name string) (*Field, int, error) {
	if err := l.Check(b); err != nil {
		return nil, 0, err
	}
	base, i := name, 0
	if open := strings.IndexByte(name, '['); open >= 0 {
		base = name[:open]
		if _, err := fmt.Sscanf(name[open:], "[%d]", &i); err != nil {
			return nil, 0, &LayoutError{Attr: l.Name, Field: name, Want: "an index such as [3]", Reason: ErrField}
		}
	}
	f := l.Field(base)
	if f == nil {
		return nil, 0, &LayoutError{Attr: l.Name, Field: name, Want: "a name of the table", Reason: ErrField}
	}
	if i < 0 || i >= f.Len() {
		return nil, 0, &LayoutError{Attr: l.Name, Field: name, Got: uint64(i),
			Want: fmt.Sprintf("an index below %d", f.Len()), Reason: ErrField}
	}
	return f, i, nil
}

// Get reads a field by name. Elements of an array are named Port[7].
func (l *Layout) Get(b []byte, name string) (uint64, error) {
	f, i, err := l.find(b, name)
	if err != nil {
		return 0, err
	}
	if f.Bits > 64 {
		return 0, &LayoutError{Attr: l.Name, Field: name, Got: uint64(f.Bits), Want: "a field of at most 64 bits",
			Reason: ErrRange}
	}
	return f.Get(b, i), nil
}

// Set writes a field by name.
func (l *Layout) Set(b []byte, name string, v uint64) error {
	f, i, err := l.find(b, name)
	if err != nil {
		return err
	}
	if f.Bits > 64 || v > f.max() {
		return &LayoutError{Attr: l.Name, Field: name, Got: v, Want: fmt.Sprintf("a value of %d bits", min(f.Bits, 64)),
			Reason: ErrRange}
	}
	f.Put(b, i, v)
	return nil
}

// SetBytes writes a wide field by name, padding with zeros.
func (l *Layout) SetBytes(b []byte, name string, v []byte) error {
	f, i, err := l.find(b, name)
	if err != nil {
		return err
	}
	if f.Off&7 != 0 || f.Bits&7 != 0 || len(v) > f.Bits/8 {
		return &LayoutError{Attr: l.Name, Field: name, Got: uint64(len(v)),
			Want: fmt.Sprintf("at most %d bytes", f.Bits/8), Reason: ErrRange}
	}
	s := f.Slice(b, i)
	clear(s[copy(s, v):])
	return nil
}

// GetBytes reads a wide field by name, without copying.
func (l *Layout) GetBytes(b []byte, name string) ([]byte, error) {
	f, i, err := l.find(b, name)
	if err != nil {
		return nil, err
	}
	if f.Off&7 != 0 || f.Bits&7 != 0 {
		return nil, &LayoutError{Attr: l.Name, Field: name, Got: uint64(f.Bits), Want: "a field of whole bytes",
			Reason: ErrRange}
	}
	return f.Slice(b, i), nil
}

// dumpWidth is the column at which Dump's values start.
const dumpWidth = 40

// Dump prints every field, one on a line, as "Name:.......value". Arrays are printed
// eight elements on a line.
func (l *Layout) Dump(b []byte) string {
	var s strings.Builder
	l.dump(&s, b)
	return s.String()
}

func (l *Layout) dump(s *strings.Builder, b []byte) {
	if err := l.Check(b); err != nil {
		fmt.Fprintf(s, "%s: %d of %d bytes: %x\n", l.Name, len(b), l.Size, b)
		return
	}
	const perLine = 8
	for i := range l.Fields {
		f := &l.Fields[i]
		for e := 0; e < f.Len(); e++ {
			switch {
			case f.Len() == 1:
				label(s, f.Name)
			case e%perLine == 0:
				label(s, fmt.Sprintf("%s[%d]", f.Name, e))
			default:
				s.WriteByte(' ')
			}
			s.WriteString(f.Format(b, e))
			if f.Len() == 1 || e%perLine == perLine-1 || e == f.Len()-1 {
				s.WriteByte('\n')
			}
		}
	}
}

func label(s *strings.Builder, name string) {
	s.WriteString(name)
	s.WriteByte(':')
	for n := len(name) + 1; n < dumpWidth; n++ {
		s.WriteByte('.')
	}
}
