package wire

import "testing"

var headerFETH = header[FETH]{
	size:   FETHSize,
	golden: "00000012",
	value:  FETH{Type: FlushPersistent, Level: FlushRegion},
	parse:  ParseFETH,
	append: func(h FETH, b []byte) []byte { return h.Append(b) },
}

func TestFETH(t *testing.T) { headerFETH.check(t) }
func FuzzFETH(f *testing.F) { headerFETH.fuzz(f) }
