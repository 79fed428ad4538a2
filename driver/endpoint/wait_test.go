package endpoint

import (
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
)

// TestArmedIsNotPolled: a program that arms a queue, looks once more and sleeps, again and again, is not taken for one
// that polls. Its peers would not wake it then, and it would wait until the attendant next looks in.
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
	var wcs [4]hca.WC
	for i := range 3 * restPolls {
		e.Arm(cq, false)
		if i%2 == 0 {
			e.Poll(cq, wcs[:])
		} else {
			e.Advance(cq, 0)
		}
		if e.page.Attended() {
			t.Fatalf("polled in earnest, after arming %d times", i+1)
		}
		if e.duty.polledSince(e.looked()) {
			t.Fatalf("the attendant leaves the work to who armed %d times", i+1)
		}
	}
	// One that was armed once, and polled ever since, is.
	for range restPolls {
		e.Poll(cq, wcs[:])
	}
	if !e.page.Attended() || !e.duty.polledSince(e.looked()) {
		t.Error("not polled in earnest")
	}
	if e.duty.polledSince(e.looked()) {
		t.Error("polled without a poll")
	}
}

// interrupted is a machine on which something happens in the midst of the attendant's turn.
type interrupted struct {
	place int // where we are in a turn
	at    int // where it happens
	do    func()
}

func (m *interrupted) Now() ib.Time { return 0 }
func (m *interrupted) Employ()      {}
func (m *interrupted) Later(func()) {}
func (m *interrupted) Meanwhile() {
	if m.place++; m.place == m.at {
		m.do()
	}
}

// TestWokenInATurn: a peer that wakes the attendant in the midst of the turn after which it sleeps is not overruled. In
// whichever post it is, and wherever in the turn that happens, the bell is not the one that it would sleep at.
func TestWokenInATurn(t *testing.T) {
	for at := 1; at <= 2; at++ {
		for _, from := range []Post{Retiring, Dozing, Asleep} {
			page, err := NewPage(make([]byte, PageBytes))
			if err != nil {
				t.Fatal(err)
			}
			m := &interrupted{do: page.wake}
			e, err := New(Config{Name: "h1", Engine: hca.Config{Ports: 1, FirstQPN: 1 << BlockBits}, Block: 1,
				Page: page, Machine: m})
			if err != nil {
				t.Fatal(err)
			}
			post, _, _ := e.AttendOnce()
			for i := 0; post != from && i < 200; i++ {
				post, _, _ = e.AttendOnce()
			}
			if post != from {
				t.Fatalf("%v, want %v", post, from)
			}
			m.place, m.at = 0, at
			if post, _, _ = e.AttendOnce(); m.place < at {
				t.Fatalf("nothing can happen at place %d of a turn", at)
			}
			if post <= Dozing && e.page.bell() == e.bell {
				t.Errorf("woken at place %d of a turn that was %v: it sleeps", at, from)
			}
		}
	}
}

// TestArmPostsStaged: receives that C code has staged are posted before the program sleeps. Those of a queue pair that
// has failed complete then, and nobody may call for long.
func TestArmPostsStaged(t *testing.T) {
	x, _ := twins(t, func() *Ledger { return nil })
	h := x.Enter()
	if err := h.ModifyQP(x.qp, hca.QPAttr{State: hca.StateErr}, hca.MaskState); err != nil {
		t.Fatal(err)
	}
	other, err := h.CreateCQ(8)
	if err != nil {
		t.Fatal(err)
	}
	x.Leave()
	x.Stage(func(h *hca.HCA, staged *uint64) {
		*staged = 0
		if err := h.PostRecv(x.qp, &hca.RecvWR{WRID: 7}); err != nil {
			t.Error(err)
		}
	}, nil)
	told := 0
	x.NotifyCQ(x.cq, func() { told++ })
	x.hint.staged = 1
	x.Arm(x.cq, false)
	var wcs [4]hca.WC
	if n := x.cq.Poll(wcs[:]); told != 1 || n != 1 || wcs[0].WRID != 7 || wcs[0].Status != hca.WCWRFlushErr {
		t.Errorf("told %d times of %+v", told, wcs[:n])
	}
	// One that looks at another queue posts them too, and the event is raised.
	x.Arm(x.cq, false)
	x.hint.staged = 1
	x.Poll(other, wcs[:])
	if n := x.cq.Poll(wcs[:]); told != 2 || n != 1 {
		t.Errorf("told %d times, %d completions", told, n)
	}
}

// TestSendsTaken: send requests that C code has staged are taken by whatever happens to the endpoint, because the
// program may not call again.
func TestSendsTaken(t *testing.T) {
	x, _ := twins(t, func() *Ledger { return nil })
	taken := 0
	x.Stage(nil, func(_ *hca.HCA, list *uint64) {
		*list = 0
		taken++
	})
	var wcs [4]hca.WC
	port := *x.Engine().Port(1)
	for _, by := range []struct {
		name string
		do   func()
	}{
		{"a poll", func() { x.Poll(x.cq, wcs[:]) }},
		{"an advance", func() { x.Advance(x.cq, Spun) }},
		{"the attendant", func() { x.AttendOnce() }},
		{"who arms a queue", func() { x.Arm(x.cq, false) }},
		{"who waits for an event", func() { x.Await() }},
		{"a verb", func() { x.Enter(); x.Leave() }},
		{"a receive", func() { x.Enter(); x.LeaveQuiet() }},
		{"a send", func() { x.EnterToSend(); x.Leave() }},
		{"a change of the port", func() { x.SetPort(1, port) }},
		{"the end of a peer", func() { x.DropOut(x.out) }},
		{"the end of the fabric", func() { x.Fail() }},
	} {
		before := taken
		x.Staged()
		by.do()
		if taken != before+1 {
			t.Errorf("%s takes them %d times", by.name, taken-before)
		}
	}
}

// TestCompletionBeforeAck: when an acknowledgement leaves, the program can find what it is about. Its peer may tell it
// by another way that it has arrived.
func TestCompletionBeforeAck(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	before, moved, sent := y.out.tail, 0, uint32(0)
	y.UseReadyList(y.cq, func() {
		var wcs [4]hca.WC
		moved += y.cq.Poll(wcs[:])
		sent = y.out.tail
	}, func() int { return moved })
	if err := y.Enter().PostRecv(y.qp, &hca.RecvWR{WRID: 1}); err != nil {
		t.Fatal(err)
	}
	y.Leave()
	if err := x.Enter().PostSend(x.qp, &hca.SendWR{Opcode: hca.WRSend, Flags: hca.SendSignaled}); err != nil {
		t.Fatal(err)
	}
	x.Leave()
	y.AttendOnce()
	if moved != 1 || sent != before || y.out.tail != before+1 {
		t.Errorf("%d completions, moved with %d packets sent and %d in the end: want 1, 0 and 1", moved, sent-before,
			y.out.tail-before)
	}
}

// TestToldNobody: an event that nobody sleeps for in C leaves the bell alone, or nobody would look and peers think
// otherwise.
func TestToldNobody(t *testing.T) {
	x, _ := twins(t, func() *Ledger { return nil })
	x.Arm(x.cq, false)
	if x.Told(); x.page.Attended() {
		t.Error("peers take somebody to look")
	}
	sleepers, _ := x.Sleepers()
	*sleepers = 1
	if x.Told(); !x.page.Attended() {
		t.Error("who is about to sleep does not see that it was told")
	}
}

// TestSpunKeepsTimers: one who looks rarely, because C looks in between, keeps the timers whatever it has counted
// before.
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
