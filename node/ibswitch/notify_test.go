package ibswitch

import (
	"testing"

	"softib/node/link"
	"softib/proto/ib"
)

// drops lets a packet in by port 1 and says why it went nowhere.
func (b *bench) drops() link.Reason {
	b.t.Helper()
	f := b.packet(7, 0)
	f.Packet.BTH.Opcode = rcOnly
	return b.Handle(b.now, 1, f).Reason
}

// TestNotice: ports behind which there is no way are no choice, nor the forwarding table's own, until the news is old
// or a manager writes; with none left the switch passes the news on.
func TestNotice(t *testing.T) {
	notify := anyone
	notify.Notify = true
	b := chooser(t, Membership{Group: 5}, notify)
	tell := func(ports ...ib.PortNum) {
		for _, p := range ports {
			b.HandleNotice(b.now, Notice{Port: p, LID: 7})
		}
	}
	tell(3)
	for i, want := range []ib.PortNum{4, 2, 4} {
		if got := b.send(rcOnly, 9); got != want {
			t.Fatalf("packet %d leaves by %d, want %d", i, got, want)
		}
	}
	if n, ok := b.PollNotice(); ok {
		t.Fatalf("it tells %v though it has ways", n)
	}
	tell(2, 4)
	if r := b.drops(); r != link.UnknownDLID {
		t.Fatalf("with no way left a packet is dropped for %v", r)
	}
	if n, _ := b.PollNotice(); n != (Notice{Port: 1, LID: 7}) {
		t.Fatalf("it tells %v, want port 1 of LID 7", n)
	}
	if _, ok := b.PollNotice(); ok {
		t.Fatal("it tells more than once")
	}
	if err := b.SetGroupOf(7, Membership{Group: 5}); err != nil {
		t.Fatal(err)
	}
	if got := b.send(rcOnly, 9); got != 3 {
		t.Errorf("a manager has written, and it leaves by %d", got)
	}
	tell(2, 3, 4)
	b.now += NoticeLife
	if r := b.drops(); r != link.UnknownDLID {
		t.Errorf("dropped for %v while the news is fresh", r)
	}
	// What it passes on is as old as what it was told.
	if n, _ := b.PollNotice(); n != (Notice{1, 7, NoticeLife}) {
		t.Errorf("it tells %v, want port 1 of LID 7, and how old that is", n)
	}
	b.now += ib.Nanosecond
	b.send(rcOnly, 9)
	// What is heard of later does not make old news young.
	tell(4)
	if got := b.send(rcOnly, 9); got == 4 {
		t.Error("it leaves where there is no way")
	}
	// Links that are down are no way either.
	for p := ib.PortNum(2); p <= 4; p++ {
		b.Port(p).Down(b.now)
	}
	for _, ok := b.PollNotice(); ok; _, ok = b.PollNotice() {
	}
	if r := b.drops(); !r.IsDrop() {
		t.Error("a packet leaves by a link that is down")
	}
	if n, _ := b.PollNotice(); n != (Notice{Port: 1, LID: 7}) {
		t.Errorf("it tells %v, want port 1 of LID 7", n)
	}
	mute := anyone
	b.SetAdaptive(mute)
	b.drops()
	if n, ok := b.PollNotice(); ok {
		t.Errorf("one that is not to tells %v", n)
	}
}
