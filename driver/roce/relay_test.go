package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/wire"
	"softib/verbs"
)

// What holds where the kernel steers, and has IPv6, holds where it does not.
func TestWithout(t *testing.T) {
	for name, env := range map[string][]string{"steering": {envRelay, "1"}, "IPv6": {envIPv6, "off"}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(env[0], env[1])
			t.Run("operations", testWithout)
			t.Run("programs", TestShare)
			t.Run("addresses", TestAddresses)
			t.Run("reuse", TestReuse)
			t.Run("lend", TestLend)
			t.Run("session", TestSession)
			t.Run("groups", TestGroup)
			t.Run("datagrams", TestUD)
			t.Run("noise", TestNoise)
			t.Run("counted", TestCounted)
			t.Run("ends", TestServerEnds)
		})
	}
}

func testWithout(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	d, err := Dial(s.among().serve(t), "test", nobody)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if in := d.link.places[0].in; in.relayed == in.isIPv4 || in.relayed != s.relayed || in.isIPv4 != withoutIPv6() {
		t.Errorf("the socket is relayed: %v, of IPv4: %v", in.relayed, in.isIPv4)
	}
	a, b := newSide(t, d, verbs.RC), newSide(t, open(t, "127.0.0.2"), verbs.RC)
	connect(a, b)
	for _, n := range []int{1, 1024, 1025, 65536, memory} {
		a.write(b, n)
		b.write(a, n)
	}
	if n := a.dev.Stats().Malformed.Load() + b.dev.Stats().Malformed.Load() + s.Malformed.Load(); n > 0 {
		t.Errorf("%d datagrams were malformed", n)
	}
}

// A kernel that refuses to steer is found out, and the server hands datagrams on by itself.
func TestUnsteered(t *testing.T) {
	refuse := func(int) error { return fmt.Errorf("%w: %w", errSteer, unix.ENOPROTOOPT) }
	c := at("127.0.0.1")
	c.Addrs = append(c.Addrs, netip.MustParseAddr("127.0.0.3"))
	s, err := hold(c, refuse)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	a, b := newSide(t, s.open(t), verbs.RC), newSide(t, s.open(t), verbs.RC)
	if !s.relayed || !a.dev.link.places[1].in.relayed {
		t.Error("it is not relayed")
	}
	connect(a, b)
	a.write(b, memory)
	// One that has steered does not begin to do otherwise: programs have its sockets.
	steered := holdAt(t, "127.0.0.2")
	steered.steer = refuse
	if changed, err := steered.refresh(steered.has("127.0.0.2", "127.0.0.4")); changed || !errors.Is(err, errSteer) {
		t.Errorf("%v, %v", changed, err)
	}
}

// A record has all that the kernel has said of a datagram.
func TestRelay(t *testing.T) {
	var r relays
	fd, err := r.add()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer r.close()
	from := wire.RoCESource{From: ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 14: 2, 15: 9}, Port: 0x1234, TClass: 0xA5, ID: 77}
	for block, want := range map[uint16]bool{1: true, 2: false} {
		if got := r.hand(block, []byte("datagram"), &from); got != want {
			t.Errorf("block %d: %v", block, got)
		}
	}
	rx, s := new(incoming), &socket{fd: fd, to: &address{gid: ib.GID{1}}, relayed: true}
	n, err := s.receive(rx)
	if err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	d, at, next := rx.datagram(0, 0, s)
	got := rx.from
	got.HopLimit, got.To = 0, ib.GID{}
	if string(d[at:]) != "datagram" || next != 0 || got != from {
		t.Errorf("%q, %d, %+v: want %+v", d[at:], next, got, from)
	}
	for range 1 << 14 { // until it is full: what does not fit is lost, and nobody waits
		if !r.hand(1, make([]byte, 1000), &from) {
			return
		}
	}
	t.Error("there is no end to what fits")
}
