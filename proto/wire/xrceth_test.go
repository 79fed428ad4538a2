package wire

import "testing"

var headerXRCETH = header[uint32]{
	size:     XRCETHSize,
	golden:   "00778899",
	value:    0x778899,
	parse:    ParseXRCETH,
	append:   func(v uint32, b []byte) []byte { return AppendXRCETH(b, v) },
	reserved: "ff778899",
}

func TestXRCETH(t *testing.T) { headerXRCETH.check(t) }
func FuzzXRCETH(f *testing.F) { headerXRCETH.fuzz(f) }
