package link

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

var rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}

// up makes a port that is Active and has told and been told its first credits.
func up(t testing.TB, cfg Config) *Port {
	t.Helper()
	if cfg.Rate == (ib.LinkRate{}) {
		cfg.Rate = rate
	}
	p := NewPort(cfg)
	if !p.Train() {
		t.Fatal("does not train")
	}
	p.LinkUp(0)
	for _, s := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		if err := p.Command(0, s); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// joined is two active ports that know each other's first limits.
func joined(t testing.TB, cfg Config) (a, b *Port) {
	t.Helper()
	a, b = up(t, cfg), up(t, cfg)
	exchange(0, a, b)
	exchange(0, b, a)
	return a, b
}

// exchange carries from's flow-control packets to to. It reports how many.
func exchange(now ib.Time, from, to *Port) (n int) {
	for {
		fc, _, ok := from.PollFC(now)
		if !ok {
			return n
		}
		to.HandleFC(now, fc)
		n++
	}
}

var pool = Pool{BufSize: 4096}

// packet is a frame with a UD packet of so many payload bytes.
func packet(size int) *Frame {
	f := pool.Get()
	*f.Packet = wire.Packet{
		LRH:     wire.LRH{LNH: wire.LNHLocal, DLID: 5, SLID: 6},
		BTH:     wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 9},
		Payload: f.Buf()[:size],
	}
	f.Packet.Seal()
	f.Measure()
	return f
}

// smp is a frame with a subnet management packet.
func smp() *Frame {
	f := packet(256)
	f.Packet.BTH.DestQP = 0
	f.LRH.VL = ib.VLMgmt
	return f
}

func wantReason(t *testing.T, what string, got, want Reason) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
