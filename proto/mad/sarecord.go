package mad

import "slices"

// SARecord is an attribute of subnet administration: its table, and which bit of the component mask
// each of its fields has (IBA 15.2.5). Bits follow from the table: fields take the next one in
// order, and so does each gap of reserved bits between two fields. The
// elements of a short array take one each; a long array, a table of a port or a
// switch, takes one in all. Where the standard does it otherwise the table says so.
type SARecord struct {
	Layout
	ID AttrID
	// comps are the components that mean something, in the order of their bits.
	comps []saComponent
}

// saComponent is what a bit of the component mask stands for: a run of bits of the record.
type saComponent struct {
	mask     uint64 // all of these have to be set
	off, len int
	name     string
}

// shortArray is the most elements of an array that each have a bit in the component mask.
const shortArray = 16

// part is a piece of a record's table: a field, reserved bits, or the table of another attribute.
type part struct {
	Field
	embed *Layout
	// lump names fields of embed that came later into what was one reserved component, and still count as it.
	lump []string
	// bit is the component's bit where it does not follow from the order; bitNone where there is none, bitNext
	// where it does follow.
	bit int
	// bits is how many bits of the mask the component has, 1 unless it is said.
	bits int
}

const (
	bitNext = -1
	bitNone = -2
)

func num(name string, bits int) part { return part{Field: Field{Name: name, Bits: bits}, bit: bitNext} }
func hexed(name string, bits int) part {
	return part{Field: Field{Name: name, Bits: bits, Kind: Hex}, bit: bitNext}
}
func guid(name string) part {
	return part{Field: Field{Name: name, Bits: 64, Kind: GUID}, bit: bitNext}
}
func gid(name string) part { return part{Field: Field{Name: name, Bits: 128, Kind: GID}, bit: bitNext} }
func text(name string, n int) part {
	return part{Field: Field{Name: name, Bits: 8 * n, Kind: String}, bit: bitNext}
}
func enum(name string, bits int, f func(uint64) string) part {
	return part{Field: Field{Name: name, Bits: bits, Kind: Enum, Enum: f}, bit: bitNext}
}
func reserved(bits int) part { return part{Field: Field{Bits: bits}, bit: bitNext} }
func embed(l *Layout, lump ...string) part {
	return part{embed: l, lump: lump, bit: bitNext}
}

// array makes n elements of a part, one after another.
func (p part) array(n int) part {
	p.Count, p.Stride = n, p.Bits
	return p
}

// at gives a component its bit.
func (p part) at(bit int) part {
	p.bit = bit
	return p
}

// wide gives a component that many bits of the mask.
func (p part) wide(bits int) part {
	p.bits = bits
	return p
}

// newSARecord lays the parts out one after another.
func newSARecord(name string, id AttrID, parts ...part) *SARecord {
	r := &SARecord{Layout: Layout{Name: name}, ID: id}
	off, bit := 0, 0
	add := func(f Field, at, width int) {
		f.Off = off
		off = f.end()
		r.Fields = append(r.Fields, f)
		if at == bitNone {
			return
		}
		if at == bitNext {
			at = bit
		}
		width = max(width, 1)
		bit = at + width
		mask := (uint64(1)<<width - 1) << at
		if f.Count > shortArray {
			if at < 64 && f.Stride == f.Bits {
				r.comps = append(r.comps, saComponent{mask, f.Off, off - f.Off, f.Name})
			}
			return
		}
		for e := range f.Len() {
			if at+e < 64 {
				r.comps = append(r.comps, saComponent{mask << e, f.Off + e*f.Stride, f.Bits, f.Name})
			}
		}
		bit += f.Len() - 1
	}
	for _, p := range parts {
		switch {
		case p.embed != nil:
			start, lumped := off, false
			for _, f := range p.embed.Fields {
				gap := start+f.Off > off
				off = start + f.Off
				if slices.Contains(p.lump, f.Name) {
					if !lumped {
						bit++
					}
					lumped = true
					add(f, bitNone, 0)
					continue
				}
				if gap && !lumped {
					bit++
				}
				lumped = false
				add(f, bitNext, 0)
			}
			off = start + 8*p.embed.Size
		case p.Name == "":
			off += p.Bits
			bit++
		default:
			add(p.Field, p.bit, p.bits)
		}
	}
	r.Size = (off + 7) / 8
	return r
}

// Stride is how far apart records lie in a response: whole units of 8 bytes.
func (r *SARecord) Stride() int { return (r.Size + 7) &^ 7 }

// Component is the bit, or bits, of a field in the component mask; elements of an array are counted from its first. 0
// if there is none.
func (r *SARecord) Component(field string) uint64 {
	for i := range r.comps {
		if r.comps[i].name == field {
			return r.comps[i].mask
		}
	}
	return 0
}

// AppendMask writes the record's size in bytes after b: 1 in all bits whose component the mask gives. A record
// matches a query if it has the query's value wherever there is a 1.
func (r *SARecord) AppendMask(b []byte, components uint64) []byte {
	at := len(b)
	b = append(b, make([]byte, r.Size)...)
	r.fillMask(b[at:], components)
	return b
}

func (r *SARecord) fillMask(m []byte, components uint64) {
	for i := range r.comps {
		c := &r.comps[i]
		if components&c.mask != c.mask {
			continue
		}
		for off, n := c.off, c.len; n > 0; {
			take := min(n, 8-off&7)
			putBits(m, off, take, 0xFF)
			off += take
			n -= take
		}
	}
}

// SARecordByID finds an attribute's table; nil if there is none.
func SARecordByID(id AttrID) *SARecord {
	for _, r := range saRecords {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// saRecords are all records.
var saRecords = []*SARecord{
	NodeRecordTable, PortInfoRecordTable, SLtoVLRecordTable, SwitchInfoRecordTable, LFTRecordTable, MFTRecordTable,
	VLArbRecordTable, SMInfoRecordTable, PKeyTableRecordTable, GUIDInfoRecordTable, LinkRecordTable, ServiceRecordTable,
	PathRecordTable, MultiPathRecordTable, MCMemberRecordTable, TraceRecordTable, InformInfoTable,
	InformInfoRecordTable,
}
