package wire

import "encoding/binary"

// The raw header of a raw EtherType packet (IBA 5.3): 16 reserved bits, then
// the EtherType.
const (
	rwhEtherType = 2
)

// ParseRWH reads the EtherType and says how many bytes the header took.
func ParseRWH(b []byte) (uint16, int, error) {
	if len(b) < RWHSize {
		return 0, 0, truncated("RWH", len(b), RWHSize)
	}
	return binary.BigEndian.Uint16(b[rwhEtherType:]), RWHSize, nil
}

// AppendRWH writes the raw header, reserved bits zero.
func AppendRWH(b []byte, etherType uint16) []byte {
	return append(b, 0, 0, uint8(etherType>>8), uint8(etherType))
}
