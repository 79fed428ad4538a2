package wire

import "encoding/binary"

// XRCETHSize is XRCETH's length: 8 reserved bits and the number of the SRQ that
// the request is for (IBA annex A14).
const XRCETHSize = 4

// ParseXRCETH reads the SRQ number and says how many bytes it took.
func ParseXRCETH(b []byte) (uint32, int, error) {
	v, n, err := parseWord("XRCETH", b)
	return v & mask24, n, err
}

// AppendXRCETH writes XRCETH, reserved bits zero.
func AppendXRCETH(b []byte, srq uint32) []byte {
	return binary.BigEndian.AppendUint32(b, srq&mask24)
}
