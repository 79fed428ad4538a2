package ibswitch

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// ecmpWay is where a packet of a queue pair would go.
func ecmpWay(b *bench, op wire.Opcode, qp ib.QPN) ib.PortNum {
	f := b.packet(7, 0)
	f.Packet.BTH.Opcode, f.Packet.BTH.DestQP = op, qp
	return b.Decide(1, f).Out
}

// TestECMP: packets of a queue pair all go one way, whatever waits there; queue pairs spread evenly, otherwise in each
// switch; and a lost link is nobody's.
func TestECMP(t *testing.T) {
	hash := anyone
	hash.Hash, hash.Salt = true, 1
	other := hash
	other.Salt = 2
	a, b := chooser(t, Membership{Group: 0}, hash), chooser(t, Membership{Group: 0}, other)
	var count [9]int
	same := 0
	const flows = 900
	way := make([]ib.PortNum, flows)
	for q := range way {
		way[q] = ecmpWay(a, rcOnly, ib.QPN(q+2))
		count[way[q]]++
		if ecmpWay(b, rcOnly, ib.QPN(q+2)) == way[q] {
			same++
		}
	}
	for p := 2; p <= 4; p++ {
		if count[p] < flows/3-60 || count[p] > flows/3+60 {
			t.Errorf("port %d has %d of %d flows", p, count[p], flows)
		}
	}
	if same < flows/3-60 || same > flows/3+60 {
		t.Errorf("%d of %d flows go the same way in two switches, want a third", same, flows)
	}
	for q := range 50 {
		if got := ecmpWay(a, rcMiddle, ib.QPN(q+2)); got != way[q] {
			t.Errorf("queue pair %d goes by port %d, then by %d", q+2, way[q], got)
		}
	}
	a.Port(3).Down(a.now)
	for q := range 50 {
		if got := ecmpWay(a, rcOnly, ib.QPN(q+2)); got == 3 || got < 2 || got > 4 {
			t.Errorf("queue pair %d goes by port %d, which is down", q+2, got)
		}
	}
}
