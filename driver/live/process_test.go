package live

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
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
	before := descriptors(t)
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
			unix.Close(e.Ring)
			unix.Close(e.Page)
			if _, ok := n.Incoming.Receiver(); ok {
				t.Error("it is handed out twice")
			}
			if n, ok := b.PollNote(); !ok || n.Gone == nil {
				t.Errorf("the second note is %+v: want that the sender is gone", n)
			}
		}
		b.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
