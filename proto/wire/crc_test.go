package wire

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// slowCRC is the shift register as the standard draws it (IBA figures 57 and
// 58): one bit at a time, the least significant of each byte first, preset to
// ones, complemented, and sent from the coefficient of the highest term on.
// It shares nothing with the tables.
func slowCRC(width int, poly uint64, data []byte) uint64 {
	top := uint64(1) << (width - 1)
	reg := top<<1 - 1
	for _, x := range data {
		for i := range 8 {
			in := uint64(x>>i) & 1
			out := reg >> (width - 1) & 1
			reg = reg << 1 & (top<<1 - 1)
			if in != out {
				reg ^= poly
			}
		}
	}
	reg ^= top<<1 - 1
	// The first bit sent is the least significant of the first byte.
	var wire uint64
	for i := range width {
		bit := reg >> (width - 1 - i) & 1
		byteAt, bitAt := i/8, i%8
		wire |= bit << (width - 8 - byteAt*8 + bitAt)
	}
	return wire
}

func TestVCRCAgainstShiftRegister(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		b := make([]byte, n)
		for i := range b {
			b[i] = uint8(r.Uint32())
		}
		if got, want := VCRC(b), uint16(slowCRC(16, 0x100B, b)); got != want {
			t.Fatalf("%d bytes: got %04x, want %04x", n, got, want)
		}
	}
}

// TestICRCSpecSample is the standard's own worked example (IBA 7.8.1): the masked
// bytes F0 12 ... give 0x9625B75A, and the same however VL and FECN stand.
func TestICRCSpecSample(t *testing.T) {
	b := unhex(t, specSample)
	b = b[:len(b)-ICRCSize]
	masked := append([]byte(nil), b...)
	masked[0], masked[12] = 0xF0, 0xFF
	if got := slowCRC(32, 0x04C11DB7, masked); got != 0x9625B75A {
		t.Errorf("shift register: got %08x", got)
	}
	if got := ICRC(b); got != 0x9625B75A {
		t.Errorf("ICRC: got %08x, want 9625b75a", got)
	}
	if got := ICRC(masked); got != 0x9625B75A {
		t.Errorf("ICRC of the masked bytes: got %08x", got)
	}
}

// icrcMask marks with ones, per LNH, the bits outside the ICRC: IBA 7.8.1 read
// once more, in a form that shares nothing with icrc.go.
func icrcMask(lnh LNH, n int) []byte {
	m := make([]byte, n)
	bth := 8
	if lnh == LNHGlobal {
		for i := range 8 {
			m[i] = 0xFF
		}
		m[8], m[9], m[10], m[11] = 0x0F, 0xFF, 0xFF, 0xFF // TClass and flow label
		m[15] = 0xFF                                      // hop limit
		bth += 40
	} else {
		m[0] = 0xF0 // VL
	}
	m[bth+4] = 0xFF // FECN, BECN, reserved
	return m
}

// slowICRC is the ICRC that a whole packet ought to have.
func slowICRC(b []byte) uint32 {
	masked := append([]byte(nil), b[:len(b)-ICRCSize-VCRCSize]...)
	for i, m := range icrcMask(LNH(b[1]&3), len(masked)) {
		masked[i] |= m
	}
	return uint32(slowCRC(32, 0x04C11DB7, masked))
}

func TestICRCAgainstShiftRegister(t *testing.T) {
	everyPacket(func(name string, p *Packet) {
		if p.LRH.LNH < LNHLocal || len(p.Payload) > 256 {
			return
		}
		b := p.Append(nil)
		end := len(b) - ICRCSize - VCRCSize
		want := slowICRC(b)
		if got := binary.BigEndian.Uint32(b[end:]); got != want {
			t.Errorf("%s: got %08x, want %08x", name, got, want)
		}
		if got, want := binary.BigEndian.Uint16(b[end+4:]), uint16(slowCRC(16, 0x100B, b[:end+4])); got != want {
			t.Errorf("%s: VCRC %04x, want %04x", name, got, want)
		}
	})
}

// TestICRCMask flips every bit before the ICRC: exactly the variant ones must
// leave it as it was.
func TestICRCMask(t *testing.T) {
	for _, lnh := range []LNH{LNHLocal, LNHGlobal} {
		b := sample(lnh, MakeOpcode(UD, OpSendOnlyImm), 20).Append(nil)
		b = b[:len(b)-ICRCSize-VCRCSize]
		was := ICRC(b)
		variant := 0
		for i, m := range icrcMask(lnh, len(b)) {
			variant += bits.OnesCount8(m)
			for bit := range 8 {
				if i == 1 && bit < 2 {
					continue // LNH itself: it chooses the mask
				}
				b[i] ^= 1 << bit
				if same := ICRC(b) == was; same != (m>>bit&1 == 1) {
					t.Errorf("lnh %d byte %d bit %d: unchanged is %v", lnh, i, bit, same)
				}
				b[i] ^= 1 << bit
			}
		}
		if want := map[LNH]int{LNHLocal: 4 + 8, LNHGlobal: 64 + 28 + 8 + 8}[lnh]; variant != want {
			t.Errorf("lnh %d: %d variant bits, want %d", lnh, variant, want)
		}
	}
}

// TestICRCMaskedLRH: the register after a masked LRH is the seed that RoCE
// implementations carry as a constant.
func TestICRCMaskedLRH(t *testing.T) {
	if ^icrcMaskedLRH != 0xDEBB20E3 {
		t.Errorf("got %08x, want debb20e3", ^icrcMaskedLRH)
	}
}

func FuzzCRC(f *testing.F) {
	f.Add([]byte("123456789"))
	f.Add(unhex(f, specSample))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := VCRC(b), uint16(slowCRC(16, 0x100B, b)); got != want {
			t.Fatalf("VCRC %04x, want %04x", got, want)
		}
		if len(b) < LRHSize+GRHSize+BTHSize {
			return
		}
		masked := append([]byte(nil), b...)
		for i, m := range icrcMask(LNH(b[1]&3), len(b)) {
			masked[i] |= m
		}
		if got, want := ICRC(b), uint32(slowCRC(32, 0x04C11DB7, masked)); got != want {
			t.Fatalf("ICRC %08x, want %08x", got, want)
		}
	})
}

func BenchmarkVCRC(b *testing.B) {
	p := fill(4096)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		VCRC(p)
	}
}

func BenchmarkICRC(b *testing.B) {
	p := sample(LNHLocal, MakeOpcode(RC, OpSendOnly), 4096).Append(nil)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		ICRC(p)
	}
}
