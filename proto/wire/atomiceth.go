package wire

import "encoding/binary"

// Layout of AtomicETH (IBA 9.3.4) and AtomicAckETH (IBA 9.5.3).
const (
	AtomicETHSize    = 28
	atomicETHVA      = 0
	atomicETHRKey    = 8
	atomicETHSwap    = 12
	atomicETHCompare = 20

	AtomicAckETHSize = 8
)

// ParseAtomicETH reads AtomicETH and says how many bytes it took.
func ParseAtomicETH(b []byte) (AtomicETH, int, error) {
	var h AtomicETH
	n, err := h.parse(b)
	return h, n, err
}

func (h *AtomicETH) parse(b []byte) (int, error) {
	if len(b) < AtomicETHSize {
		return 0, truncated("AtomicETH", len(b), AtomicETHSize)
	}
	h.VA = binary.BigEndian.Uint64(b[atomicETHVA:])
	h.RKey = binary.BigEndian.Uint32(b[atomicETHRKey:])
	h.Swap = binary.BigEndian.Uint64(b[atomicETHSwap:])
	h.Compare = binary.BigEndian.Uint64(b[atomicETHCompare:])
	return AtomicETHSize, nil
}

// Append writes AtomicETH.
func (h *AtomicETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.Swap)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}

// ParseAtomicAckETH reads AtomicAckETH, the value that memory held before
// the operation, and says how many bytes it took.
func ParseAtomicAckETH(b []byte) (uint64, int, error) {
	if len(b) < AtomicAckETHSize {
		return 0, 0, truncated("AtomicAckETH", len(b), AtomicAckETHSize)
	}
	return binary.BigEndian.Uint64(b), AtomicAckETHSize, nil
}

// AppendAtomicAckETH writes AtomicAckETH.
func AppendAtomicAckETH(b []byte, original uint64) []byte {
	return binary.BigEndian.AppendUint64(b, original)
}
