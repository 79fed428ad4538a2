package endpoint

import (
	"testing"

	"softib/hca"
	"softib/verbs"
)

// TestArmedIsNotPolled: a program that arms a queue, looks once more and sleeps, again and again, is not taken for one that polls. Its
// peers would not wake it then, and it would wait until the attendant next looks in.
func TestArmedIsNotPolled(t *testing.T) {
	page, err := NewPage(make([]byte, PageBytes))
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Name: "h1", Engine: hca.Config{Ports: 1, FirstQPN: 1 << BlockBits}, Block: 1, Page: page})
	if err != nil {
		t.Fatal(err)
	}
	e.employed.Store(true) // nobody else touches the bell
	cq, err := e.eng.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	var wcs [4]verbs.WC
	var seen uint32
	for i := range 3 * restPolls {
		e.Arm(cq, false)
		if i%2 == 0 {
			e.Poll(cq, wcs[:])
		} else {
			e.Advance(cq, 0)
		}
		if e.attended() {
			t.Fatalf("polled in earnest, after arming %d times", i+1)
		}
		if e.polledSince(&seen) {
			t.Fatalf("the attendant leaves the work to who armed %d times", i+1)
		}
	}
	// One that was armed once, and polled ever since, is.
	for range restPolls {
		e.Poll(cq, wcs[:])
	}
	if !e.attended() || !e.polledSince(&seen) {
		t.Error("not polled in earnest")
	}
	if e.polledSince(&seen) {
		t.Error("polled without a poll")
	}
}

// TestSpunKeepsTimers: one who looks rarely, because C looks in between, keeps the timers whatever it has counted before.
func TestSpunKeepsTimers(t *testing.T) {
	x, _ := twins(t, func() *Ledger { return nil })
	for range 9 {
		x.Advance(x.cq, 0)
		x.clock = 0
		x.Advance(x.cq, Spun)
		if x.clock == 0 {
			t.Fatalf("the clock was not read in %d empty looks", Spun)
		}
	}
}
