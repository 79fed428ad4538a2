package wire

import "testing"

var headerRDETH = header[uint32]{
	size:     RDETHSize,
	golden:   "000eec01",
	value:    0x0EEC01,
	parse:    ParseRDETH,
	append:   func(v uint32, b []byte) []byte { return AppendRDETH(b, v) },
	reserved: "ff0eec01",
}

func TestRDETH(t *testing.T) { headerRDETH.check(t) }
func FuzzRDETH(f *testing.F) { headerRDETH.fuzz(f) }
