package endpoint

import (
	"testing"
	"time"

	"softib/node/hca"
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
	look := func() uint64 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.refresh()
		x.timers()
		return x.eng.Stats.Timeouts
	}
	if n := look(); n != 0 {
		t.Errorf("%d timeouts right after it was sent", n)
	}
	x.start = x.start.Add(-60 * time.Second)
	if n := look(); n != 1 {
		t.Errorf("%d timeouts a minute later", n)
	}
}
