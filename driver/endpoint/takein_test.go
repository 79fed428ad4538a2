package endpoint

import (
	"os"
	"testing"
	"time"

	"softib/node/hca"
)

// TestTakeIn: what a peer has acknowledged has succeeded, also where the acknowledgement is still in the ring when the
// program flushes its queue; what nobody acknowledged is flushed.
func TestTakeIn(t *testing.T) {
	for _, acknowledged := range []bool{true, false} {
		x, y := twins(t, func() *Ledger { return nil })
		y.recv(t)
		x.send(t, 100)
		if acknowledged {
			y.TakeIn(false) // takes the message in and answers it
		}
		x.TakeIn(false)
		h := x.Enter()
		if err := h.ModifyQP(x.qp, hca.QPAttr{State: hca.StateErr}, hca.MaskState); err != nil {
			t.Fatal(err)
		}
		x.Leave()
		want := hca.WCWRFlushErr
		if acknowledged {
			want = hca.WCSuccess
		}
		var wc [2]hca.WC
		if n := x.Poll(x.cq, wc[:]); n != 1 || wc[0].Status != want {
			t.Errorf("acknowledged: %v: %d completions, the first %v; want one, %v", acknowledged, n, wc[0].Status,
				want)
		}
	}
}

// TestLastIsSeen: before a queue pair ends its peer has taken in what it sent, if it looks at all; for one that stands
// still nobody waits twice.
func TestLastIsSeen(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	x.out.pid = os.Getpid() // a program's
	for range 7 {
		y.recv(t)
	}
	for range 5 {
		x.send(t, 100)
		go func() {
			time.Sleep(time.Millisecond)
			y.AttendOnce()
		}()
		for x.TakeIn(true); x.out.idle; x.TakeIn(true) { // the machine was so busy that the other had no turn
			x.out.idle = false
		}
		if x.out.Unseen() {
			t.Fatal("the peer has not seen it")
		}
	}
	x.send(t, 100)
	began := time.Now()
	x.TakeIn(true)
	if took := time.Since(began); took < seenMax {
		t.Errorf("a peer that stands still is waited for %v, want %v", took, seenMax)
	}
	least := seenMax
	for range 20 {
		began = time.Now()
		x.TakeIn(true)
		least = min(least, time.Since(began))
	}
	if least == seenMax {
		t.Errorf("20 queue pairs to a peer that stands still wait for it, each")
	}
	y.AttendOnce()
	x.send(t, 100)
	began = time.Now()
	x.TakeIn(true)
	if took := time.Since(began); took < seenMax {
		t.Errorf("a peer that went on and stands still again is waited for %v, want %v", took, seenMax)
	}
}
