package wire

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Offsets and masks of LRH (IBA 7.7).
const (
	lrhVLVer  = 0 // VL in bits 7-4, LVer in bits 3-0
	lrhSLLNH  = 1 // SL in bits 7-4, 2 reserved, LNH in bits 1-0
	lrhDLID   = 2
	lrhLength = 4 // 5 reserved bits, then 11 of length
	lrhSLID   = 6

	lrhLengthMask = 0x07FF
	lrhLNHMask    = 0x03
)

// LRHVersion is the only link version there is (IBA 7.7.2).
const LRHVersion = 0

// ParseLRH reads LRH and says how many bytes it took. Reserved bits are
// ignored, as IBA 7.7 asks of a receiver.
func ParseLRH(b []byte) (LRH, int, error) {
	var h LRH
	n, err := h.parse(b)
	return h, n, err
}

func (h *LRH) parse(b []byte) (int, error) {
	if len(b) < LRHSize {
		return 0, truncated("LRH", len(b), LRHSize)
	}
	_ = b[LRHSize-1]
	h.VL = ib.VL(b[lrhVLVer] >> 4)
	h.LVer = b[lrhVLVer] & 0x0F
	h.SL = ib.SL(b[lrhSLLNH] >> 4)
	h.LNH = LNH(b[lrhSLLNH] & lrhLNHMask)
	h.DLID = ib.LID(binary.BigEndian.Uint16(b[lrhDLID:]))
	h.Length = binary.BigEndian.Uint16(b[lrhLength:]) & lrhLengthMask
	h.SLID = ib.LID(binary.BigEndian.Uint16(b[lrhSLID:]))
	return LRHSize, nil
}

// Append writes LRH, reserved bits zero.
func (h *LRH) Append(b []byte) []byte {
	return append(b,
		uint8(h.VL)<<4|h.LVer&0x0F,
		uint8(h.SL)<<4|uint8(h.LNH)&lrhLNHMask,
		uint8(h.DLID>>8), uint8(h.DLID),
		uint8((h.Length&lrhLengthMask)>>8), uint8(h.Length),
		uint8(h.SLID>>8), uint8(h.SLID))
}
