package fabric

import (
	"testing"

	"softib/node/link"
	"softib/proto/ib"
)

// TestStopWhileTraining: the links of a node that stops do not come up, be they about to. (Seed 3002394 of torture: the
// host at the other end waited for credit of one that was no more.)
func TestStopWhileTraining(t *testing.T) {
	var pool link.Pool
	e := newEngine(&pool)
	for range 2 {
		ports := link.NewPorts(2, link.Config{})
		e.AddHost([]*link.Port{&ports[0], &ports[1]})
	}
	a, b := e.Place(0, 1), e.Place(1, 1)
	e.Join(a, b, 5*ib.Nanosecond)
	for _, at := range []uint32{a, b} {
		e.PortAt(at).SetRate(rate)
	}
	e.StartTraining(a)
	if !IsUp(e.PortAt(a)) || !IsUp(e.PortAt(b)) {
		t.Fatal("the ends do not train")
	}
	e.Stop(1)
	for e.Due(10 * ib.Microsecond) {
		e.Step()
		for n, ok := e.Poll(); ok; n, ok = e.Poll() {
			if n.Kind == Trained {
				t.Error("its link is said to be trained")
			}
		}
	}
	if IsUp(e.PortAt(a)) || IsUp(e.PortAt(b)) {
		t.Errorf("its ends are %v and %v: want them down", e.PortAt(a).Phys(), e.PortAt(b).Phys())
	}
	e.StartTraining(a)
	if IsUp(e.PortAt(a)) {
		t.Error("the other end trains again, with nobody")
	}
}
