package roce

import (
	"testing"

	"golang.org/x/sys/unix"

	"softib/verbs"
)

// What programs count is the server's to tell while they run, and when they have ended.
func TestCounted(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	path := s.among().serve(t)
	far := newSide(t, open(t, "127.0.0.2"), verbs.RC)
	d, err := Dial(path, "test", nobody)
	if err != nil {
		t.Fatal(err)
	}
	near := newSide(t, d, verbs.RC)
	connect(near, far)
	near.write(far, 1<<20)
	link := d.Stats()
	until(t, "the server knows", func() bool {
		near.see()
		near.cq.Poll(nil)
		c := s.Counted()
		return c.Engine.TxPackets >= 1024 && c.Engine.TxBytes == 1<<20 && c.Link.Sent == link.Sent.Load()
	})
	c := s.Counted()
	if c.Link.SentBytes < 1<<20+c.Link.Sent*16 || c.Link.SentBytes > 1<<20+c.Link.Sent*64 || c.Link.Received == 0 ||
		c.Link.ReceivedBytes < 16*c.Link.Received || c.Link.Unsent+c.Link.Malformed+c.Link.GroupSent+c.Downs > 0 {
		t.Errorf("%+v", c)
	}
	if again := s.Counted(); again != c {
		t.Errorf("nothing has happened, and %+v became %+v", c, again)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	until(t, "the program is gone", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.guests) == 0 })
	if after := s.Counted(); after.Engine.TxPackets < c.Engine.TxPackets || after.Link.Sent < c.Link.Sent {
		t.Errorf("when it has ended %+v are left of %+v", after, c)
	}
	down := s.Config()
	down.Down = true
	s.becomes(t, down)
	if n := s.Counted().Downs; n != 1 {
		t.Errorf("the interface went down %d times", n)
	}
}

// A program that writes nonsense into its account does no harm to what others have counted, nor does one whose memory
// is none.
func TestLiar(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	path := s.among().serve(t)
	a, fd, err := newAccount()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	c, _, fds, err := ask(path, hello{Want: wantUse, Interfaces: []string{"test"}}, fd)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	closeFDs(fds)
	for i, v := range []uint64{5, 3, 1 << 60, ^uint64(0), 7} {
		a.stats.Sent.Store(v)
		for j := range a.mem[:64] {
			a.mem[j] = byte(v)
		}
		if got, want := s.Counted().Link.Sent, [...]uint64{5, 5, 5, 5, 7}[i]; got != want {
			t.Errorf("after %#x: %d sent, want %d", v, got, want)
		}
	}
	bad, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bad)
	if _, _, fds, err := ask(path, hello{Want: wantUse, Interfaces: []string{"test"}}, bad); err == nil {
		closeFDs(fds)
		t.Error("a program is let in with memory that it can take away")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.guests); n != 1 {
		t.Errorf("%d programs", n)
	}
}
