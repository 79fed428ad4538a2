package wire

import "encoding/binary"

// Layout of RETH (IBA 9.3.3).
const (
	RETHSize   = 16
	rethVA     = 0
	rethRKey   = 8
	rethDMALen = 12
)

// ParseRETH reads RETH and says how many bytes it took.
func ParseRETH(b []byte) (RETH, int, error) {
	var h RETH
	n, err := h.parse(b)
	return h, n, err
}

func (h *RETH) parse(b []byte) (int, error) {
	if len(b) < RETHSize {
		return 0, truncated("RETH", len(b), RETHSize)
	}
	h.VA = binary.BigEndian.Uint64(b[rethVA:])
	h.RKey = binary.BigEndian.Uint32(b[rethRKey:])
	h.DMALen = binary.BigEndian.Uint32(b[rethDMALen:])
	return RETHSize, nil
}

// Append writes RETH.
func (h *RETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.DMALen)
}
