package live

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/descriptors"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestSenderEndsFirst: a ring that its receiver has not heard of outlives its sender, once, and nothing of it is left
// then.
func TestSenderEndsFirst(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	for _, receiverToo := range []bool{false, true} {
		a, err := f.Attach("h1", Caller{PID: os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Attach("h2", Caller{PID: os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		port, _, _ := b.Port(1)
		r, err := a.Resolve(endpoint.Key{Port: 1, DLID: port.LID, PKey: ib.PKeyDefault, Block: b.Block()})
		if err != nil || len(r.New) != 1 {
			t.Fatalf("%d new channels, %v: want one", len(r.New), err)
		}
		a.Close()
		if !receiverToo {
			n, ok := b.PollNote()
			if !ok || n.Incoming == nil {
				t.Fatalf("the first note is %+v: want a ring to receive from", n)
			}
			e, ok := n.Incoming.Receiver()
			if !ok {
				t.Fatal("what the sender left is gone")
			}
			if _, err := endpoint.MapMemory(e.Ring, endpoint.RingBytes); err != nil {
				t.Error(err)
			}
			e.Close()
			if _, ok := n.Incoming.Receiver(); ok {
				t.Error("it is handed out twice")
			}
			if n, ok := b.PollNote(); !ok || n.Gone == nil {
				t.Errorf("the second note is %+v: want that the sender is gone", n)
			}
		}
		b.Close()
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}
}

// TestStoppedReceiver: of senders that come and go, a program that does not look keeps the rings of the last few.
func TestStoppedReceiver(t *testing.T) {
	f := bringUp(t, "star:3")
	before := openDescriptors(t)
	stopped, err := f.Attach("h2", Caller{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	port, _, _ := stopped.Port(1)
	const senders = 5 * keptMax
	for range senders {
		a, err := f.Attach("h1", Caller{PID: 1<<30 + 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.Resolve(endpoint.Key{Port: 1, DLID: port.LID, PKey: ib.PKeyDefault, Block: stopped.Block()})
		if err != nil || len(r.New) != 1 {
			t.Fatalf("%d new channels, %v: want one", len(r.New), err)
		}
		a.Close()
	}
	if n := openDescriptors(t) - before - endpoint.Pieces; n != keptMax {
		t.Errorf("%d senders have left, and %d descriptors with them: want %d", senders, n, keptMax)
	}
	var heard, gone int
	for n, ok := stopped.PollNote(); ok; n, ok = stopped.PollNote() {
		if n.Incoming != nil {
			heard++
			e, ok := n.Incoming.Receiver()
			if !ok {
				t.Fatal("it is told of a ring that is not kept")
			}
			e.Close()
		} else if n.Gone != nil {
			gone++
		}
	}
	if heard != keptMax || gone != keptMax || len(stopped.kept) != 0 {
		t.Errorf("it hears of %d rings and that %d of them have ended: want %d", heard, gone, keptMax)
	}
	stopped.Close()
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}
	// All is given back: one program gets its whole share, and not one more.
	who := (&Process{program: program{Caller: Caller{PID: 1<<30 + 1}}}).holder()
	var n int
	for descriptors.Programs.Take(who, 1) == nil {
		n++
	}
	descriptors.Programs.Give(who, n)
	other := (&Process{program: program{Caller: Caller{PID: 1<<30 + 2}}}).holder()
	var m int
	for descriptors.Programs.Take(other, 1) == nil {
		m++
	}
	descriptors.Programs.Give(other, m)
	if n != m || n == 0 {
		t.Errorf("a program whose rings are gone may have %d, another %d", n, m)
	}
}

// TestWayFailsForAMoment: a process that could not be given a way for want of descriptors asks again.
func TestWayFailsForAMoment(t *testing.T) {
	f := bringUp(t, "star:2")
	procs := attachAll(t, f)
	to, _, _ := procs[1].Port(1)
	key := endpoint.Key{Port: 1, DLID: to.LID, PKey: ib.PKeyDefault, Block: procs[1].Block()}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	r, err := procs[0].Resolve(key)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	slots := procs[0].share.Slots
	if err == nil || len(r.Rings) != 0 {
		t.Fatalf("it is given %+v, %v: want an error", r, err)
	}
	for end := time.Now().Add(10 * time.Second); slots.Gen(r.Slot) == r.Gen; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not told to ask again")
		}
	}
	if r, err := procs[0].Resolve(key); err != nil || len(r.Rings) != 1 {
		t.Errorf("then it is given %+v, %v: want a ring", r, err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
