package wire

import "encoding/binary"

// Layout of FETH (IBA 1.5, annex A19): placement type in bits 3-0, selectivity level in bits 5-4.
const (
	FETHSize  = 4
	fethLevel = 4
)

// Placement types, which may be joined, and the level of a FLUSH that is for a whole region.
const (
	FlushGlobal     = 1 << 0 // what was written is seen by everybody
	FlushPersistent = 1 << 1 // and outlives the power
	FlushRegion     = 1
)

// FETH is the flush extended header.
type FETH struct{ Type, Level uint8 }

// ParseFETH reads FETH and says how many bytes it took.
func ParseFETH(b []byte) (FETH, int, error) {
	var h FETH
	n, err := h.parse(b)
	return h, n, err
}

func (h *FETH) parse(b []byte) (int, error) {
	if len(b) < FETHSize {
		return 0, truncated("FETH", len(b), FETHSize)
	}
	h.set(binary.BigEndian.Uint32(b))
	return FETHSize, nil
}

// Append writes FETH.
func (h *FETH) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, h.word()) }

// FETH is the header of a FLUSH, which has no immediate and so keeps it there: packets are as short as they can be.
func (p *Packet) FETH() (h FETH) {
	h.set(p.Imm)
	return h
}

// SetFETH sets it.
func (p *Packet) SetFETH(h FETH) { p.Imm = h.word() }

func (h *FETH) word() uint32 { return uint32(h.Level&3)<<fethLevel | uint32(h.Type&0xF) }

func (h *FETH) set(v uint32) { *h = FETH{Type: uint8(v & 0xF), Level: uint8(v >> fethLevel & 3)} }
