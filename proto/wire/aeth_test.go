package wire

import "testing"

var headerAETH = header[AETH]{
	size:   AETHSize,
	golden: "6000beef",
	value:  AETH{Syndrome: NAKSeq, MSN: 0x00BEEF},
	parse:  ParseAETH,
	append: func(h AETH, b []byte) []byte { return h.Append(b) },
}

func TestAETH(t *testing.T) { headerAETH.check(t) }
func FuzzAETH(f *testing.F) { headerAETH.fuzz(f) }

func TestSyndrome(t *testing.T) {
	cases := []struct {
		s     Syndrome
		typ   Syndrome
		value uint8
	}{
		{0x00, SynAck, 0}, {0x1F, SynAck, 31}, {0x2E, SynRNR, 14}, {0x60, SynNAK, 0},
		{NAKInvRDReq, SynNAK, 4}, {NAKAccess, SynNAK, 2}, {0x43, 0x40, 3},
	}
	for _, c := range cases {
		if c.s.Type() != c.typ || c.s.Value() != c.value {
			t.Errorf("%#x: type %#x value %d, want %#x %d", uint8(c.s), uint8(c.s.Type()), c.s.Value(), uint8(c.typ),
				c.value)
		}
	}
}
