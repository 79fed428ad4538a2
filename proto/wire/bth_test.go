package wire

import "testing"

var headerBTH = header[BTH]{
	size:   BTHSize,
	golden: "0ae0ffffc0112233800000fe",
	value: BTH{
		Opcode: MakeOpcode(RC, OpWriteOnly), Solicited: true, Migrate: true, Pad: 2, TVer: 0,
		FECN: true, BECN: true, AckReq: true, PKey: 0xFFFF, DestQP: 0x112233, PSN: 0x0000FE,
	},
	parse:    ParseBTH,
	append:   func(h BTH, b []byte) []byte { return h.Append(b) },
	reserved: "0ae0ffffff112233ff0000fe",
}

func TestBTH(t *testing.T) { headerBTH.check(t) }
func FuzzBTH(f *testing.F) { headerBTH.fuzz(f) }

// TestBTHBits sets each flag alone, so that no two can be confused.
func TestBTHBits(t *testing.T) {
	cases := []struct {
		at   int
		bit  uint8
		want BTH
	}{
		{1, 0x80, BTH{Solicited: true}},
		{1, 0x40, BTH{Migrate: true}},
		{1, 0x30, BTH{Pad: 3}},
		{1, 0x0F, BTH{TVer: 15}},
		{4, 0x80, BTH{FECN: true}},
		{4, 0x40, BTH{BECN: true}},
		{8, 0x80, BTH{AckReq: true}},
	}
	for _, c := range cases {
		b := make([]byte, BTHSize)
		b[c.at] = c.bit
		if got, _, err := ParseBTH(b); err != nil || got != c.want {
			t.Errorf("byte %d bit %#x: got %+v, want %+v", c.at, c.bit, got, c.want)
		}
	}
}
