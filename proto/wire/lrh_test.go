package wire

import "testing"

var headerLRH = header[LRH]{
	size:     LRHSize,
	golden:   "f3a2c001000abfff",
	value:    LRH{VL: 15, LVer: 3, SL: 10, LNH: LNHLocal, DLID: 0xC001, Length: 10, SLID: 0xBFFF},
	parse:    ParseLRH,
	append:   func(h LRH, b []byte) []byte { return h.Append(b) },
	reserved: "f3aec001f80abfff",
}

func TestLRH(t *testing.T) { headerLRH.check(t) }
func FuzzLRH(f *testing.F) { headerLRH.fuzz(f) }
