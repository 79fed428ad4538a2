package link

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

func TestCountersFoldAndReset(t *testing.T) {
	p := up(t, Config{})
	tx, rx := p.tx(0), p.rx(0)
	tx.words, tx.pkts = foldAt-10, 7
	rx.words, rx.pkts = foldAt-10, 9
	wantReason(t, "receive", p.Receive(0, packet(4096)), OK)
	p.HandleFC(0, wire.LinkPacket{FCCL: 100})
	p.Enqueue(0, packet(4096), 0)
	if f, _, _ := p.PollTx(0); f == nil {
		t.Fatal("not sent")
	}
	words := uint64(packet(4096).LRH.Length)
	c := p.Counters()
	for i, want := range map[ib.Counter]uint64{
		ib.PortXmitData: foldAt - 10 + words, ib.PortRcvData: foldAt - 10 + words,
		ib.PortXmitPkts: 8, ib.PortRcvPkts: 10, ib.PortUnicastXmitPkts: 8, ib.PortMulticastRcvPkts: 0,
	} {
		if c[i] != want {
			t.Errorf("%v is %d, want %d", i, c[i], want)
		}
	}
	if tx.words >= foldAt || rx.words >= foldAt {
		t.Error("the short counters were not folded")
	}
	p.SetCounter(ib.PortXmitData, 0)
	p.SetCounter(ib.PortXmitPkts, 5)
	if c := p.Counters(); c[ib.PortXmitData] != 0 || c[ib.PortXmitPkts] != 5 {
		t.Errorf("after writing: %d and %d, want 0 and 5", c[ib.PortXmitData], c[ib.PortXmitPkts])
	}
}

func TestReasons(t *testing.T) {
	for r := range NumReason {
		if r.String() == "" {
			t.Errorf("reason %d has no words", r)
		}
	}
	if s := Reason(200).String(); s != "Reason(200)" {
		t.Errorf("unknown reason prints as %q", s)
	}
}
