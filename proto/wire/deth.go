package wire

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Layout of DETH (IBA 9.3.2).
const (
	DETHSize  = 8
	dethQKey  = 0
	dethSrcQP = 4 // 8 reserved bits, then 24
)

// ParseDETH reads DETH and says how many bytes it took.
func ParseDETH(b []byte) (DETH, int, error) {
	var h DETH
	n, err := h.parse(b)
	return h, n, err
}

func (h *DETH) parse(b []byte) (int, error) {
	if len(b) < DETHSize {
		return 0, truncated("DETH", len(b), DETHSize)
	}
	h.QKey = ib.QKey(binary.BigEndian.Uint32(b[dethQKey:]))
	h.SrcQP = ib.QPN(binary.BigEndian.Uint32(b[dethSrcQP:]) & mask24)
	return DETHSize, nil
}

// Append writes DETH, reserved bits zero.
func (h *DETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.QKey))
	return binary.BigEndian.AppendUint32(b, uint32(h.SrcQP)&mask24)
}
