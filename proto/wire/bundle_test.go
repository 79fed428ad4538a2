package wire

import (
	"bytes"
	"testing"

	"softib/proto/ib"
)

// TestBundle takes bundles of every kind apart: the singles are packets of the
// standard, have the payload between them, and are as long in all as the bundle
// says.
func TestBundle(t *testing.T) {
	type row struct{ op, first, middle, last Opcode }
	rows := []row{
		{OpSendFirst, OpSendFirst, OpSendMiddle, OpSendMiddle},
		{OpSendMiddle, OpSendMiddle, OpSendMiddle, OpSendMiddle},
		{OpSendLast, OpSendMiddle, OpSendMiddle, OpSendLast},
		{OpSendLastImm, OpSendMiddle, OpSendMiddle, OpSendLastImm},
		{OpSendLastInv, OpSendMiddle, OpSendMiddle, OpSendLastInv},
		{OpSendOnly, OpSendFirst, OpSendMiddle, OpSendLast},
		{OpSendOnlyImm, OpSendFirst, OpSendMiddle, OpSendLastImm},
		{OpSendOnlyInv, OpSendFirst, OpSendMiddle, OpSendLastInv},
		{OpWriteFirst, OpWriteFirst, OpWriteMiddle, OpWriteMiddle},
		{OpWriteMiddle, OpWriteMiddle, OpWriteMiddle, OpWriteMiddle},
		{OpWriteLast, OpWriteMiddle, OpWriteMiddle, OpWriteLast},
		{OpWriteLastImm, OpWriteMiddle, OpWriteMiddle, OpWriteLastImm},
		{OpWriteOnly, OpWriteFirst, OpWriteMiddle, OpWriteLast},
		{OpWriteOnlyImm, OpWriteFirst, OpWriteMiddle, OpWriteLastImm},
		{OpReadResponseFirst, OpReadResponseFirst, OpReadResponseMiddle, OpReadResponseMiddle},
		{OpReadResponseMiddle, OpReadResponseMiddle, OpReadResponseMiddle, OpReadResponseMiddle},
		{OpReadResponseLast, OpReadResponseMiddle, OpReadResponseMiddle, OpReadResponseLast},
		{OpReadResponseOnly, OpReadResponseFirst, OpReadResponseMiddle, OpReadResponseLast},
	}
	for _, r := range rows {
		for _, s := range []Service{RC, UC, XRC} {
			op := MakeOpcode(s, r.op)
			if !op.Info().Valid() {
				continue
			}
			for _, lnh := range []LNH{LNHLocal, LNHGlobal} {
				for mtu := ib.MTU256; mtu <= ib.MTU4096; mtu++ {
					for k := 1; k <= 5; k++ {
						for _, tail := range []int{1, 7, mtu.Bytes() - 1, mtu.Bytes()} {
							if !op.Info().Is(FlagEnd) {
								tail = mtu.Bytes()
							}
							checkBundle(t, lnh, op, k, mtu.Bytes(), tail, [3]Opcode{r.first, r.middle, r.last})
						}
					}
				}
			}
		}
	}
}

func checkBundle(t *testing.T, lnh LNH, op Opcode, k, mtu, tail int, want [3]Opcode) {
	t.Helper()
	p := sample(lnh, op, (k-1)*mtu+tail)
	p.Count = uint16(k)
	p.BTH.PSN = ib.PSNMask - 1 // and around
	p.Seal()
	if p.LRH.Length > lrhLengthMask {
		t.Fatalf("LRH's length %d does not fit", p.LRH.Length)
	}
	var words uint64
	var data []byte
	for i := range k {
		q := p.Single(i)
		b := q.Append(nil)
		var r Packet
		if err := r.Parse(b); err != nil {
			t.Fatalf("%v, packet %d of %d: %v", op, i, k, err)
		}
		w := want[1]
		switch {
		case k == 1:
			w = op.Op()
		case i == 0:
			w = want[0]
		case i == k-1:
			w = want[2]
		}
		last := i == k-1
		if r.BTH.Opcode != MakeOpcode(op.Service(), w) || r.BTH.PSN != p.BTH.PSN.Add(i) || r.BTH.AckReq != last ||
			r.BTH.Solicited != last || q.Packets() != 1 {
			t.Fatalf("%v, packet %d of %d: %+v", op, i, k, r.BTH)
		}
		words += uint64(r.LRH.Length)
		data = append(data, r.Payload...)
	}
	if words != p.WireWords() || !bytes.Equal(data, p.Payload) {
		t.Fatalf("%v of %d packets: %d words and %d bytes, want %d and %d", op, k, words, len(data), p.WireWords(),
			len(p.Payload))
	}
	// A payload elsewhere counts the same.
	p.Far, p.FarLen, p.Payload = &memory{}, len(p.Payload), nil
	if got := p.WireWords(); got != words {
		t.Fatalf("%v with its payload elsewhere: %d words, want %d", op, got, words)
	}
}

// TestBundleLength: the longest bundle does not overflow what counts words.
func TestBundleLength(t *testing.T) {
	for _, lnh := range []LNH{LNHLocal, LNHGlobal} {
		p := sample(lnh, MakeOpcode(RC, OpSendMiddle), 0)
		p.Count, p.Far, p.FarLen = 0xFFFF, &memory{}, 0xFFFF*4096
		p.Seal()
		hdr := uint64(LRHSize + BTHSize + ICRCSize)
		if lnh == LNHGlobal {
			hdr += GRHSize
		}
		if want := 0xFFFF * (4096 + hdr) / 4; p.WireWords() != want {
			t.Errorf("%d words, want %d", p.WireWords(), want)
		}
		if p.LRH.Length != lrhLengthMask || p.Words() != lrhLengthMask {
			t.Errorf("LRH's length %d, want %d", p.LRH.Length, lrhLengthMask)
		}
	}
	if p := sample(LNHLocal, MakeOpcode(RC, OpAck), 0); p.WireWords() != uint64(p.LRH.Length) {
		t.Errorf("an ACK of %d words, want %d", p.WireWords(), p.LRH.Length)
	}
}
