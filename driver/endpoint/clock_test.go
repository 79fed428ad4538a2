package endpoint

import (
	"testing"
	"time"

	"softib/node/hca"
	"softib/proto/ib"
)

// TestStandstill: a timer that was started by a clock from before a standstill does not run out early because of that,
// and does run out.
func TestStandstill(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	y.recv(t)
	x.page.Attend()
	x.mu.Lock()
	x.refresh()
	x.calls = 1 // the clock is not read at the next call
	x.mu.Unlock()
	x.start = x.start.Add(-5 * time.Second)
	x.send(t, 8) // its timer is one of seconds by now
	var wc [4]hca.WC
	if y.Poll(y.cq, wc[:]) != 1 { // which does not acknowledge yet
		t.Fatal("not there")
	}
	look := func(after time.Duration) uint64 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.start = x.start.Add(-after)
		x.refresh()
		x.timers()
		return x.eng.Stats.Timeouts
	}
	if n := look(0); n != 0 {
		t.Errorf("%d timeouts right after it was sent", n)
	}
	if n := look(4 * time.Second); n != 0 { // of 4.3
		t.Errorf("%d timeouts before its time", n)
	}
	if n := look(time.Second); n != 1 {
		t.Errorf("%d timeouts when its time had come", n)
	}
}

// TestPortHoldsForWhatComes: a packet that came before management has changed the receiver's port is judged by the port
// as it was, also where nobody has looked at it since.
func TestPortHoldsForWhatComes(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	y.recv(t)
	y.recv(t)
	was := *y.eng.Port(1)
	other := was
	other.PKeys = []ib.PKey{0x8001}
	x.send(t, 8)
	y.SetPort(1, other)
	var wc [4]hca.WC
	if n := y.Poll(y.cq, wc[:]); n != 1 || wc[0].Status != hca.WCSuccess {
		t.Fatalf("%d completions, %v: want that of the packet which came with the old key", n, wc[0].Status)
	}
	x.send(t, 8)
	y.SetPort(1, was)
	if n := y.Poll(y.cq, wc[:]); n != 0 {
		t.Error("a packet is taken in with a key that the port did not have when it came")
	}
}
