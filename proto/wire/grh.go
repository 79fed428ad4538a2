package wire

import (
	"encoding/binary"
)

// Offsets and masks of GRH (IBA 8.3), an IPv6 header in form.
const (
	grhVerClassFlow = 0 // IPVer in bits 31-28, TClass in 27-20, flow label in 19-0
	grhPayLen       = 4
	grhNxtHdr       = 6
	grhHopLimit     = 7
	grhSGID         = 8
	grhDGID         = 24

	grhFlowMask = 0x000F_FFFF
)

// GRHVersion is GRH's IP version (IBA 8.3.1).
const GRHVersion = 6

// ParseGRH reads GRH and says how many bytes it took.
func ParseGRH(b []byte) (GRH, int, error) {
	var h GRH
	n, err := h.parse(b)
	return h, n, err
}

func (h *GRH) parse(b []byte) (int, error) {
	if len(b) < GRHSize {
		return 0, truncated("GRH", len(b), GRHSize)
	}
	_ = b[GRHSize-1]
	w := binary.BigEndian.Uint32(b[grhVerClassFlow:])
	h.IPVer = uint8(w >> 28)
	h.TClass = uint8(w >> 20)
	h.Flow = w & grhFlowMask
	h.PayLen = binary.BigEndian.Uint16(b[grhPayLen:])
	h.NxtHdr = b[grhNxtHdr]
	h.HopLimit = b[grhHopLimit]
	h.SGID = [16]byte(b[grhSGID:grhDGID])
	h.DGID = [16]byte(b[grhDGID:GRHSize])
	return GRHSize, nil
}

// Append writes GRH.
func (h *GRH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.IPVer)<<28|uint32(h.TClass)<<20|h.Flow&grhFlowMask)
	b = append(b, uint8(h.PayLen>>8), uint8(h.PayLen), h.NxtHdr, h.HopLimit)
	b = append(b, h.SGID[:]...)
	return append(b, h.DGID[:]...)
}
