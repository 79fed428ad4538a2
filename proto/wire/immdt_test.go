package wire

import "testing"

var headerImmDt = header[uint32]{
	size:   ImmDtSize,
	golden: "cafef00d",
	value:  0xCAFEF00D,
	parse:  ParseImmDt,
	append: func(v uint32, b []byte) []byte { return AppendImmDt(b, v) },
}

func TestImmDt(t *testing.T) { headerImmDt.check(t) }
func FuzzImmDt(f *testing.F) { headerImmDt.fuzz(f) }

var headerIETH = header[uint32]{
	size:   IETHSize,
	golden: "00012f03",
	value:  0x00012F03,
	parse:  ParseIETH,
	append: func(v uint32, b []byte) []byte { return AppendIETH(b, v) },
}

func TestIETH(t *testing.T) { headerIETH.check(t) }
func FuzzIETH(f *testing.F) { headerIETH.fuzz(f) }
