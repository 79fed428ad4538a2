package wire

import "encoding/binary"

// VCRC and LPCRC share the generator x^16+x^12+x^3+x+1, 0x100B, register preset
// to ones, remainder complemented, each byte entering with its least
// significant bit first (IBA 7.8.2, 7.9.4).
const (
	crc16Poly = 0xD008 // 0x100B with its bits reversed, for a right-shifting register
	crc16Init = 0xFFFF
)

// crc16Tables holds, for every byte value, the remainder of that byte followed by 0 to
// 15 zero bytes: sixteen bytes are folded with sixteen independent look-ups.
var crc16Tables = buildCRC16()

func buildCRC16() (t [16][256]uint16) {
	for i := range t[0] {
		c := uint16(i)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ crc16Poly
			} else {
				c >>= 1
			}
		}
		t[0][i] = c
	}
	for n := 1; n < len(t); n++ {
		for i := range t[n] {
			c := t[n-1][i]
			t[n][i] = c>>8 ^ t[0][uint8(c)]
		}
	}
	return t
}

// crc16Update takes p into the register c.
func crc16Update(c uint16, p []byte) uint16 {
	t := &crc16Tables
	for len(p) >= 16 {
		lo := binary.LittleEndian.Uint64(p)
		hi := binary.LittleEndian.Uint64(p[8:16])
		// The two look-ups that wait for c come last: all others can run ahead.
		fixed := t[13][uint8(lo>>16)] ^ t[12][uint8(lo>>24)] ^
			t[11][uint8(lo>>32)] ^ t[10][uint8(lo>>40)] ^ t[9][uint8(lo>>48)] ^ t[8][uint8(lo>>56)] ^
			t[7][uint8(hi)] ^ t[6][uint8(hi>>8)] ^ t[5][uint8(hi>>16)] ^ t[4][uint8(hi>>24)] ^
			t[3][uint8(hi>>32)] ^ t[2][uint8(hi>>40)] ^ t[1][uint8(hi>>48)] ^ t[0][uint8(hi>>56)]
		first := uint16(lo) ^ c
		c = fixed ^ (t[15][uint8(first)] ^ t[14][uint8(first>>8)])
		p = p[16:]
	}
	for _, x := range p {
		c = c>>8 ^ t[0][uint8(c)^x]
	}
	return c
}

// crc16 is the finished check of p, in the number whose big-endian form
// stands on the wire: the remainder's highest term is sent first.
func crc16(p []byte) uint16 {
	c := ^crc16Update(crc16Init, p)
	return c>>8 | c<<8
}

// VCRC is the variant CRC of a packet whose bytes before the VCRC are b: all
// of them, from LRH's first on (IBA 7.8.2).
func VCRC(b []byte) uint16 { return crc16(b) }

// CheckVCRC checks the VCRC at the end of a whole packet.
func CheckVCRC(b []byte) error {
	if len(b) < LRHSize+VCRCSize {
		return truncated("VCRC", len(b), LRHSize+VCRCSize)
	}
	end := len(b) - VCRCSize
	got, want := binary.BigEndian.Uint16(b[end:]), VCRC(b[:end])
	if got != want {
		return &ParseError{Kind: ErrVCRC, Layer: "link", Field: "VCRC", Got: uint64(got), Want: uint64(want)}
	}
	return nil
}

// SetVCRC writes the VCRC of a whole packet anew, as a port must that changed
// the VL on the way through.
func SetVCRC(b []byte) {
	end := len(b) - VCRCSize
	binary.BigEndian.PutUint16(b[end:], VCRC(b[:end]))
}
