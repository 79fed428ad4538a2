package endpoint

import (
	"slices"
	"testing"

	"softib/node/hca"
)

// TestWayComesLate: while a way is not known nobody waits for it, and what was posted goes when it is. It is asked for
// once, before anything is sent, and again when it is no more.
func TestWayComesLate(t *testing.T) {
	x, y := twins(t, newLedger)
	key := Key{Port: 1, DLID: 2, PKey: 0xFFFF, Block: 2}
	answer := func(k Key) {
		t.Helper()
		x.Answer(k, func() (*Route, error) { return NewRoute(k, x.slots, 1, x.slots.Gen(1), []*Out{x.out}) })
	}
	var wc [8]hca.WC
	arrives := func(n int) {
		t.Helper()
		got, acked := 0, 0
		for range 1000 {
			got += y.Poll(y.cq, wc[:])
			acked += x.Poll(x.cq, wc[:])
		}
		if got != n || acked != n {
			t.Fatalf("%d messages came and %d completed: want %d", got, acked, n)
		}
	}
	x.slow = true
	for round := range 3 {
		x.slots.Renew(1) // by the fabric
		for range 4 {
			y.recv(t)
			x.send(t, 100) // returns
		}
		if want := slices.Repeat([]Key{key}, round+1); !slices.Equal(x.asked, want) {
			t.Fatalf("asked for %v: want %v", x.asked, want)
		}
		arrives(0)
		sent, _ := x.slots.Sent(1)
		answer(key)
		arrives(4)
		if now, _ := x.slots.Sent(1); now-sent != 4 {
			t.Errorf("%d packets are counted: want 4", now-sent)
		}
		answer(key) // which nobody asked for
	}
	if x.Failed() {
		t.Error("it has failed")
	}
}

// TestAskedAhead: the way of a queue pair is asked for when it is connected.
func TestAskedAhead(t *testing.T) {
	x, y := twins(t, newLedger)
	x.slow = true
	attr := hca.AHAttr{Port: 1, DLID: y.lid, SL: 3}
	h := x.Enter()
	q, err := h.CreateQP(hca.QPInit{Type: hca.RC, PD: x.pd, SendCQ: x.cq, RecvCQ: x.cq, Caps: hca.Caps{MaxSendWR: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		attr hca.QPAttr
		mask hca.AttrMask
	}{
		{hca.QPAttr{State: hca.StateInit, Port: 1}, hca.MaskState | hca.MaskPKeyIndex | hca.MaskPort | hca.MaskAccess},
		{hca.QPAttr{State: hca.StateRTR, PathMTU: 5, DestQPN: y.qp.Num(), AH: attr, MaxDestRD: 1},
			hca.MaskState | hca.MaskAV | hca.MaskPathMTU | hca.MaskDestQPN | hca.MaskRQPSN | hca.MaskMaxDestRD |
				hca.MaskMinRNRTimer},
	} {
		if err := h.ModifyQP(q, step.attr, step.mask); err != nil {
			t.Fatal(err)
		}
	}
	x.Leave()
	if want := (Key{Port: 1, DLID: y.lid, SL: 3, PKey: 0xFFFF, Block: 2}); !slices.Equal(x.asked, []Key{want}) {
		t.Errorf("asked for %v: want %v", x.asked, want)
	}
}
