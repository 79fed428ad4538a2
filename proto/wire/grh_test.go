package wire

import (
	"testing"

	"softib/proto/ib"
)

var headerGRH = header[GRH]{
	size:   GRHSize,
	golden: "65aabcde00401b3ffe800000000000000002c90300000001ff12401bffff000000000000ffffffff",
	value: GRH{
		IPVer: 6, TClass: 0x5A, Flow: 0xABCDE, PayLen: 64, NxtHdr: GRHNextIBA, HopLimit: 63,
		SGID: ib.MakeGID(ib.DefaultGIDPrefix, 0x0002c90300000001),
		DGID: ib.MakeGID(0xff12401bffff0000, 0xffffffff),
	},
	parse:  ParseGRH,
	append: func(h GRH, b []byte) []byte { return h.Append(b) },
}

func TestGRH(t *testing.T) { headerGRH.check(t) }
func FuzzGRH(f *testing.F) { headerGRH.fuzz(f) }
