package wire

import "testing"

var headerRETH = header[RETH]{
	size:   RETHSize,
	golden: "01020304050607081122334400001000",
	value:  RETH{VA: 0x0102030405060708, RKey: 0x11223344, DMALen: 4096},
	parse:  ParseRETH,
	append: func(h RETH, b []byte) []byte { return h.Append(b) },
}

func TestRETH(t *testing.T) { headerRETH.check(t) }
func FuzzRETH(f *testing.F) { headerRETH.fuzz(f) }
