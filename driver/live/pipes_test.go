package live

import (
	"testing"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/proto/ib"
)

// TestPipes: a ring gets pipes once, for programs of one user, for so many rings; and descriptors of pipes that nobody
// takes end with the ring.
func TestPipes(t *testing.T) {
	f := bringUp(t, "star:2")
	attach := func(host string, uid uint32) *Process {
		p, err := f.Attach(host, Caller{PID: daemon, UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	ring := func(p, to *Process) *Channel {
		t.Helper()
		port, _, _ := to.Port(1)
		r, err := p.Resolve(endpoint.Key{Port: 1, DLID: port.LID, PKey: ib.PKeyDefault, Block: to.Block()})
		if err != nil || len(r.New) != 1 || r.New[0].to != to {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.New[0]
	}
	pipes := func(p *Process, c *Channel) int {
		fds := p.Pipes(c.ID)
		for _, fd := range fds {
			unix.Close(fd)
		}
		return len(fds)
	}
	a, b, other := attach("h1", 1000), attach("h2", 1000), attach("h2", 1001)
	c := ring(a, b)
	if n := pipes(b, c); n != 0 {
		t.Errorf("%d descriptors for who does not send", n)
	}
	if n := pipes(a, c); n != endpoint.PipeFDs {
		t.Errorf("%d descriptors, want %d", n, endpoint.PipeFDs)
	}
	if n := pipes(a, c); n != 0 {
		t.Errorf("%d descriptors for a ring that has pipes", n)
	}
	told := false
	for n, ok := b.PollNote(); ok; n, ok = b.PollNote() {
		if n.Piped == c {
			told = true
			fds := c.TakePipes()
			if len(fds) != endpoint.PipeFDs/2 || len(c.TakePipes()) != 0 {
				t.Errorf("the receiver gets %d descriptors, want %d once", len(fds), endpoint.PipeFDs/2)
			}
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}
	if !told {
		t.Error("the receiver is not told")
	}
	if n := pipes(a, ring(a, other)); n != 0 {
		t.Errorf("%d descriptors for a ring to another user", n)
	}
	for i := 1; i < pipedMax+3; i++ {
		want := endpoint.PipeFDs
		if i >= pipedMax {
			want = 0
		}
		to := attach("h2", 1000)
		if n := pipes(a, ring(a, to)); n != want {
			t.Fatalf("%d descriptors for ring %d, want %d", n, i, want)
		}
	}
	// The rings to those that were never told end with them.
	f.mu.Lock()
	var kept []*Channel
	for _, c := range a.out {
		if c.pipes != nil {
			kept = append(kept, c)
		}
	}
	f.mu.Unlock()
	if len(kept) != pipedMax-1 {
		t.Fatalf("%d rings keep pipes, want %d", len(kept), pipedMax-1)
	}
	a.Close()
	for _, c := range kept {
		if c.TakePipes() != nil {
			t.Fatal("pipes stay after their ring")
		}
	}
}
