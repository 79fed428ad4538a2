package wire

import "testing"

var headerDETH = header[DETH]{
	size:     DETHSize,
	golden:   "8001000000445566",
	value:    DETH{QKey: 0x80010000, SrcQP: 0x445566},
	parse:    ParseDETH,
	append:   func(h DETH, b []byte) []byte { return h.Append(b) },
	reserved: "80010000ff445566",
}

func TestDETH(t *testing.T) { headerDETH.check(t) }
func FuzzDETH(f *testing.F) { headerDETH.fuzz(f) }
