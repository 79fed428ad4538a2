package wire

import "encoding/binary"

// RDETHSize is RDETH's length: 8 reserved bits and the EE context that
// a reliable datagram belongs to (IBA 9.3.1).
const RDETHSize = 4

// ParseRDETH reads the EE context and says how many bytes it took.
func ParseRDETH(b []byte) (uint32, int, error) {
	v, n, err := parseWord("RDETH", b)
	return v & mask24, n, err
}

// AppendRDETH writes RDETH, reserved bits zero.
func AppendRDETH(b []byte, eec uint32) []byte {
	return binary.BigEndian.AppendUint32(b, eec&mask24)
}
