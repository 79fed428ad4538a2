package wire

import (
	"bytes"
	"testing"
	"unsafe"
)

// TestPacketLayout holds Packet to three cache lines with little behind them,
// and what the fast operations have to one of them.
func TestPacketLayout(t *testing.T) {
	const line = 64
	var p Packet
	if n := unsafe.Sizeof(p); n != 3*line+24 {
		t.Errorf("Packet has %d bytes, want %d", n, 3*line+24)
	}
	if n := unsafe.Offsetof(p.FarLen); n >= 2*line {
		t.Errorf("FarLen is at %d: every packet without payload would fetch one more line", n)
	}
	// Behind the payload's reference, one line has what the fast operations have.
	if n := unsafe.Offsetof(p.Imm) + unsafe.Sizeof(p.Imm) - unsafe.Offsetof(p.LRH); n > line {
		t.Errorf("LRH to Imm take %d bytes, want a cache line at most", n)
	}
	if n := unsafe.Offsetof(p.LRH); n != 24 {
		t.Errorf("LRH begins at %d, want 24: right behind the payload's reference", n)
	}
}

func TestDetached(t *testing.T) {
	p := sample(LNHLocal, MakeOpcode(RC, OpSendOnly), 8)
	buf := make([]byte, 0, 64)
	q := p.Detached(buf)
	want := append([]byte(nil), p.Payload...)
	p.Payload[0] ^= 0xFF
	if !bytes.Equal(q.Payload, want) || q.LRH != p.LRH || q.BTH != p.BTH {
		t.Errorf("got %x, want %x", q.Payload, want)
	}
	if &q.Payload[0] != &buf[:1][0] {
		t.Error("the room given was not used")
	}
}

func TestSeal(t *testing.T) {
	for n, want := range map[int]struct {
		words uint16
		pad   uint8
	}{0: {6, 0}, 1: {7, 3}, 3: {7, 1}, 4: {7, 0}, 4096: {1030, 0}} {
		p := sample(LNHLocal, MakeOpcode(RC, OpSendOnly), n)
		if p.LRH.Length != want.words || p.BTH.Pad != want.pad {
			t.Errorf("%d bytes: %d words, pad %d; want %d, %d", n, p.LRH.Length, p.BTH.Pad, want.words, want.pad)
		}
	}
	// PayLen counts from behind GRH to the ICRC's end (IBA 8.3.4).
	if p := sample(LNHGlobal, MakeOpcode(RC, OpSendOnly), 5); p.GRH.PayLen != 12+8+4 {
		t.Errorf("PayLen %d, want 24", p.GRH.PayLen)
	}
}
