package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"softib/proto/ib"
)

// specSample is the packet whose ICRC the standard works out (IBA 7.8.1, table 29): an
// RDMA WRITE Only of 14 bytes. The standard prints its invariant form;
// VL 7 and the cleared reserved byte are ours.
const specSample = "7012375c000e17d2" + "0a20248700" + "87b1b3000dec2a" +
	"01710a1c015d400238f27a050000000e" + "bb884d85fd5cfba4728bc0690ed40000" + "9625b75a"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill returns n bytes that differ from each other.
func fill(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = uint8(i*7 + 3)
	}
	return b
}

// sample is a sealed packet of the given shape with every field set to
// something that shows.
func sample(lnh LNH, op Opcode, payload int) *Packet {
	p := &Packet{
		Payload: fill(payload),
		LRH:     LRH{VL: 3, SL: 5, LNH: lnh, DLID: 0x1234, SLID: 0x4321},
		RawType: 0x0800,
	}
	if lnh < LNHLocal {
		p.LRH.Length = p.Words()
		return p
	}
	p.BTH = BTH{Opcode: op, Solicited: true, Migrate: true, FECN: true, AckReq: true,
		PKey: 0x8abc, DestQP: 0x112233, PSN: 0xfedcba}
	if lnh == LNHGlobal {
		p.GRH = GRH{IPVer: GRHVersion, TClass: 0x5a, Flow: 0xabcde, NxtHdr: GRHNextIBA, HopLimit: 63,
			SGID: ib.MakeGID(ib.DefaultGIDPrefix, 0x0002c90300000001),
			DGID: ib.MakeGID(ib.DefaultGIDPrefix, 0x0002c90300000002)}
	}
	if !op.Info().Is(FlagPayload) {
		p.Payload = []byte{}
	}
	i := op.Info()
	if i.Has(ExtRDETH) {
		p.EEContext = 0x0eec01
	}
	if i.Has(ExtDETH) {
		p.DETH = DETH{QKey: 0x80010000, SrcQP: 0x445566}
	}
	if i.Has(ExtXRCETH) {
		p.XRCSRQ = 0x778899
	}
	if i.Has(ExtRETH) {
		p.RETH = RETH{VA: 0x0102030405060708, RKey: 0x11223344, DMALen: uint32(payload)}
	}
	if i.Has(ExtAtomicETH) {
		p.AtomicETH = AtomicETH{VA: 0x1112131415161718, RKey: 0x55667788, Swap: 0x2122232425262728,
			Compare: 0x3132333435363738}
	}
	if i.Has(ExtAETH) {
		p.AETH = AETH{Syndrome: SynAckNoCred, MSN: 0x00beef}
	}
	if i.Has(ExtAtomicAckETH) {
		p.AtomicAck = 0x4142434445464748
	}
	if i.Ext&(ExtImmDt|ExtIETH) != 0 {
		p.Imm = 0xcafef00d
	}
	p.Seal()
	return p
}

// everyPacket calls f with each opcode, local and global, at several payload
// lengths, and with raw packets.
func everyPacket(f func(name string, p *Packet)) {
	for o := 0; o < 256; o++ {
		op := Opcode(o)
		if !op.Info().Valid() {
			continue
		}
		for _, lnh := range []LNH{LNHLocal, LNHGlobal} {
			sizes := []int{0}
			if op.Info().Is(FlagPayload) {
				sizes = []int{0, 1, 2, 3, 4, 5, 63, 256, 4096}
			}
			for _, n := range sizes {
				f(fmt.Sprintf("%v/lnh=%d/%d", op, lnh, n), sample(lnh, op, n))
			}
		}
	}
	for _, lnh := range []LNH{LNHRaw, LNHIPv6} {
		for _, n := range []int{12, 40, 256} {
			f(fmt.Sprintf("raw/lnh=%d/%d", lnh, n), sample(lnh, 0, n))
		}
	}
}

func TestPacketRoundTrip(t *testing.T) {
	opcodes := map[Opcode]bool{}
	everyPacket(func(name string, p *Packet) {
		b := p.Append(nil)
		if len(b) != p.WireSize() {
			t.Errorf("%s: %d bytes, WireSize says %d", name, len(b), p.WireSize())
		}
		if h := p.AppendHeaders(nil); len(h) != p.HeaderSize() || !bytes.Equal(h, b[:len(h)]) {
			t.Errorf("%s: headers are %d bytes, HeaderSize says %d", name, len(h), p.HeaderSize())
		}
		var q Packet
		if err := q.Parse(b); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if p.LRH.LNH != LNHRaw {
			q.RawType = p.RawType
		}
		if !reflect.DeepEqual(*p, q) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, q, *p)
		}
		if again := q.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%s: second Append differs", name)
		}
		if p.LRH.LNH >= LNHLocal {
			opcodes[p.BTH.Opcode] = true
		}
	})
	// RC 23, XRC 23, RD 22, UC 12, UD 2, CNP 2 (IBA table 38, annexes A10, A14, A17).
	if len(opcodes) != 88 {
		t.Errorf("%d opcodes, want 88", len(opcodes))
	}
}

// Without its CRCs a packet is the same, and every shorter piece of it none.
func TestPacketBare(t *testing.T) {
	everyPacket(func(name string, p *Packet) {
		p.Seal()
		b := p.AppendBare(nil)
		var whole, bare Packet
		if err := whole.Parse(p.Append(nil)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := bare.ParseBare(b); err != nil || !reflect.DeepEqual(bare, whole) {
			t.Fatalf("%s: %+v\nwant %+v: %v", name, bare, whole, err)
		}
		for n := range b {
			if new(Packet).ParseBare(b[:n]) == nil {
				t.Fatalf("%s: %d bytes of %d are a packet", name, n, len(b))
			}
		}
	})
}

func TestPacketGolden(t *testing.T) {
	b := unhex(t, specSample+"45fa")
	var p Packet
	if err := p.Parse(b); err != nil {
		t.Fatal(err)
	}
	want := Packet{
		Payload: b[36:50:50],
		LRH:     LRH{VL: 7, SL: 1, LNH: LNHLocal, DLID: 0x375c, Length: 14, SLID: 0x17d2},
		BTH:     BTH{Opcode: MakeOpcode(RC, OpWriteOnly), Pad: 2, PKey: 0x2487, DestQP: 0x87b1b3, PSN: 0x0dec2a},
		RETH:    RETH{VA: 0x01710a1c015d4002, RKey: 0x38f27a05, DMALen: 14},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if got := p.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("got  %x\nwant %x", got, b)
	}
}

func TestPacketTruncations(t *testing.T) {
	everyPacket(func(name string, p *Packet) {
		b := p.Append(nil)
		if len(b) > 400 {
			return
		}
		for i := range b {
			var q Packet
			if err := q.Parse(b[:i]); err == nil {
				t.Fatalf("%s: first %d of %d bytes parse", name, i, len(b))
			}
		}
		// With a VCRC that fits the shortened bytes, length must catch it.
		for i := VCRCSize + LRHSize; i < len(b); i++ {
			c := append([]byte(nil), b[:i]...)
			SetVCRC(c)
			var q Packet
			if err := q.Parse(c); !errors.Is(err, ErrLength) {
				t.Fatalf("%s: first %d of %d bytes: %v", name, i, len(b), err)
			}
		}
	})
}

// TestPacketBitFlips: a VCRC finds every single flipped bit.
func TestPacketBitFlips(t *testing.T) {
	for _, lnh := range []LNH{LNHRaw, LNHLocal, LNHGlobal} {
		b := sample(lnh, MakeOpcode(RC, OpWriteOnlyImm), 64).Append(nil)
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			var q Packet
			if err := q.Parse(b); !errors.Is(err, ErrVCRC) {
				t.Fatalf("lnh %d bit %d: %v", lnh, i, err)
			}
			b[i/8] ^= 1 << (i % 8)
		}
	}
}

func TestParseErrors(t *testing.T) {
	send, ack := MakeOpcode(RC, OpSendOnly), MakeOpcode(RC, OpAck)
	cases := []struct {
		name  string
		lnh   LNH
		op    Opcode
		n     int
		edit  func(b []byte) []byte // before both CRCs are written anew
		kind  error
		layer string
		field string
	}{
		{"link version", LNHLocal, send, 8, poke(0, 0x31), ErrVersion, "LRH", "LVer"},
		{"length too long", LNHLocal, send, 8, poke(5, 0xff), ErrLength, "LRH", "PktLen"},
		{"length too short", LNHLocal, send, 8, poke(5, 0x01), ErrLength, "LRH", "PktLen"},
		{"local packet below minimum", LNHRaw, 0, 8, poke(1, 0x52), ErrLength, "LRH", "PktLen"},
		{"global packet below minimum", LNHLocal, send, 0, poke(1, 0x53), ErrLength, "LRH", "PktLen"},
		{"raw packet below minimum", LNHRaw, 0, 4, nil, ErrLength, "LRH", "PktLen"},
		{"GRH version", LNHGlobal, send, 8, poke(8, 0x45), ErrVersion, "GRH", "IPVer"},
		{"GRH next header", LNHGlobal, send, 8, poke(14, 0x3b), ErrNext, "GRH", "NxtHdr"},
		{"GRH length", LNHGlobal, send, 8, poke(13, 0x08), ErrLength, "GRH", "PayLen"},
		{"transport version", LNHLocal, send, 8, poke(9, 0x01), ErrVersion, "BTH", "TVer"},
		{"opcode", LNHLocal, send, 8, poke(8, 0xe0), ErrOpcode, "BTH", "OpCode"},
		{"extended header missing", LNHLocal, send, 0, poke(8, uint8(ack)), ErrTruncated, "RC Acknowledge", "bytes"},
		{"payload on an ACK", LNHLocal, send, 8, poke(8, uint8(ack)), ErrLength, "RC Acknowledge", "payload"},
		{"padding without payload", LNHLocal, send, 0, poke(9, 0x10), ErrPad, "BTH", "PadCnt"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := sample(c.lnh, c.op, c.n).Append(nil)
			if c.edit != nil {
				b = c.edit(b)
			}
			reseal(b)
			var p Packet
			err := p.Parse(b)
			var pe *ParseError
			if !errors.As(err, &pe) || !errors.Is(err, c.kind) || pe.Layer != c.layer || pe.Field != c.field {
				t.Fatalf("got %v, want %v in %s.%s", err, c.kind, c.layer, c.field)
			}
		})
	}
}

func TestParseICRCError(t *testing.T) {
	b := sample(LNHLocal, MakeOpcode(RC, OpSendOnly), 64).Append(nil)
	b[30] ^= 1
	SetVCRC(b)
	var p Packet
	if err := p.Parse(b); !errors.Is(err, ErrICRC) || errors.Is(err, ErrVCRC) {
		t.Fatalf("got %v, want %v", err, ErrICRC)
	}
}

func poke(at int, v uint8) func([]byte) []byte {
	return func(b []byte) []byte { b[at] = v; return b }
}

// reseal writes both CRCs of an edited packet anew, the ICRC only where the
// packet is long enough to have one.
func reseal(b []byte) {
	need := LRHSize + BTHSize + ICRCSize + VCRCSize
	if LNH(b[1]&3) == LNHGlobal {
		need += GRHSize
	}
	if LNH(b[1]&3) >= LNHLocal && len(b) >= need {
		end := len(b) - ICRCSize - VCRCSize
		binary.BigEndian.PutUint32(b[end:], ICRC(b[:end]))
	}
	SetVCRC(b)
}

func TestPacketNoAllocation(t *testing.T) {
	p := sample(LNHGlobal, MakeOpcode(RC, OpWriteOnlyImm), 1024)
	buf := make([]byte, 0, 2048)
	var q Packet
	n := testing.AllocsPerRun(100, func() {
		b := p.Append(buf)
		if err := q.Parse(b); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func FuzzPacketParse(f *testing.F) {
	everyPacket(func(_ string, p *Packet) {
		if len(p.Payload) <= 4 {
			f.Add(p.Append(nil))
		}
	})
	f.Add(unhex(f, specSample+"45fa"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		_ = p.Parse(b) // as it came
		p = Packet{}
		if p.ParseBare(b) == nil {
			var q Packet
			if err := q.ParseBare(p.AppendBare(nil)); err != nil || !reflect.DeepEqual(p, q) {
				t.Fatalf("without CRCs %+v\nwant %+v: %v", q, p, err)
			}
		}
		p = Packet{}
		// The CRCs would stop nearly everything: write them anew.
		if len(b) < LRHSize+VCRCSize {
			return
		}
		b = append([]byte(nil), b...)
		reseal(b)
		p = Packet{}
		if p.Parse(b) != nil {
			return
		}
		out := p.Append(nil)
		var q Packet
		if err := q.Parse(out); err != nil {
			t.Fatalf("own bytes do not parse: %v\n%x\n%x", err, b, out)
		}
		if !reflect.DeepEqual(p, q) {
			t.Fatalf("got %+v\nwant %+v", q, p)
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	for _, n := range []int{8, 256, 4096} {
		p := sample(LNHLocal, MakeOpcode(RC, OpSendOnly), n)
		buf := make([]byte, 0, 5000)
		b.Run(fmt.Sprintf("append/%d", n), func(b *testing.B) {
			b.SetBytes(int64(p.WireSize()))
			b.ReportAllocs()
			for b.Loop() {
				p.Append(buf)
			}
		})
		w := p.Append(nil)
		var q Packet
		b.Run(fmt.Sprintf("parse/%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(w)))
			b.ReportAllocs()
			for b.Loop() {
				if err := q.Parse(w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
