package wire

import (
	"bytes"
	"errors"
	"testing"
)

var linkGolden = []struct {
	hex string
	pkt LinkPacket
}{
	{"00000000b362", LinkPacket{}},
	{"1000008050d5", LinkPacket{Op: LinkInit, FCCL: 128}},
	{"0fff3abcebf4", LinkPacket{FCTBS: 0xFFF, VL: 3, FCCL: 0xABC}},
	{"1001e8003ba2", LinkPacket{Op: LinkInit, FCTBS: 1, VL: 14, FCCL: 0x800}},
}

func TestLinkPacketGolden(t *testing.T) {
	for _, g := range linkGolden {
		b := unhex(t, g.hex)
		if want := uint16(slowCRC(16, 0x100B, b[:4])); want != uint16(b[4])<<8|uint16(b[5]) {
			t.Errorf("%s: the shift register gives %04x", g.hex, want)
		}
		if got := g.pkt.Append([]byte{0x99}); !bytes.Equal(got[1:], b) {
			t.Errorf("%+v: got %x, want %s", g.pkt, got[1:], g.hex)
		}
		p, n, err := ParseLinkPacket(append(b, 1, 2, 3))
		if err != nil || n != LinkPacketSize || p != g.pkt {
			t.Errorf("%s: got %+v, %d, %v", g.hex, p, n, err)
		}
		for i := range b {
			if _, _, err := ParseLinkPacket(b[:i]); !errors.Is(err, ErrTruncated) {
				t.Errorf("first %d bytes: %v", i, err)
			}
		}
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			if _, _, err := ParseLinkPacket(b); !errors.Is(err, ErrLPCRC) {
				t.Errorf("%s bit %d flipped: %v", g.hex, i, err)
			}
			b[i/8] ^= 1 << (i % 8)
		}
	}
}

func TestLinkPacketReservedOp(t *testing.T) {
	for op := LinkInit + 1; op < 16; op++ {
		p := LinkPacket{Op: op, VL: 1}
		if _, _, err := ParseLinkPacket(p.Append(nil)); !errors.Is(err, ErrOpcode) {
			t.Errorf("op %d: %v, want %v", op, err, ErrOpcode)
		}
	}
}

func FuzzLinkPacket(f *testing.F) {
	for _, g := range linkGolden {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = ParseLinkPacket(b)
		if len(b) < LinkPacketSize {
			return
		}
		b = append([]byte(nil), b[:LinkPacketSize]...)
		crc := LPCRC(b[:4])
		b[4], b[5] = uint8(crc>>8), uint8(crc)
		p, _, err := ParseLinkPacket(b)
		if err != nil {
			if b[0]>>4 <= uint8(LinkInit) {
				t.Fatal(err)
			}
			return
		}
		if got := p.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("got %x, want %x", got, b)
		}
	})
}
