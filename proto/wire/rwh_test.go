package wire

import "testing"

var headerRWH = header[uint16]{
	size:     RWHSize,
	golden:   "00008035",
	value:    0x8035,
	parse:    ParseRWH,
	append:   func(v uint16, b []byte) []byte { return AppendRWH(b, v) },
	reserved: "ffff8035",
}

func TestRWH(t *testing.T) { headerRWH.check(t) }
func FuzzRWH(f *testing.F) { headerRWH.fuzz(f) }
