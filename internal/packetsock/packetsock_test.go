package packetsock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"softib/internal/descriptors"
)

func TestCheck(t *testing.T) {
	me := uint32(os.Geteuid())
	for _, uid := range []uint32{0, me} {
		if err := Check(&syscall.Ucred{Uid: uid}); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
	if err := Check(&syscall.Ucred{Uid: me + 4711}); !errors.Is(err, ErrPeer) ||
		!strings.Contains(err.Error(), "next:") {
		t.Errorf("somebody else: %v", err)
	}
}

func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "next:") {
		t.Errorf("a second listener: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v: want 0600", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan *net.UnixConn, 1)
	seen := make(chan struct{}, 3)
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, 1, func(c Guest) {
			if c.Refused != nil || int(c.Cred.Pid) != os.Getpid() {
				t.Errorf("the peer is %+v, %v: want ourselves", c.Cred, c.Refused)
			}
			seen <- struct{}{}
			var b [16]byte
			n, _ := c.Read(b[:])
			if string(b[:n]) == "keep" {
				c.Keep()
				kept <- c.UnixConn
				return
			}
			_, _ = c.Read(b[:]) // until the server ends
		})
	}()
	dial := func(word string) *net.UnixConn {
		c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := dial("keep"), dial("stay")
	defer a.Close()
	defer b.Close()
	k := <-kept
	for range 3 { // the second listener has looked too whether somebody is there
		<-seen
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var buf [4]byte
	if n, _ := b.Read(buf[:]); n != 0 {
		t.Error("a connection outlived the server")
	}
	if _, err := k.Write([]byte("hi")); err != nil {
		t.Errorf("a connection that somebody else has did not: %v", err)
	}
	k.Close()
	// A socket that nobody listens to is replaced.
	old, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	l, err = Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestDoor: who holds too many is told so, a few at a time, and let in again when it has given some back.
func TestDoor(t *testing.T) {
	d := Door{Book: descriptors.New(64), Holds: 4}
	l, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	enter := func() (leave func(), ok bool, refused error) {
		t.Helper()
		c, err := net.DialUnix(network, nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); s.Close() })
		_, leave, ok, refused = d.Enter(s)
		return leave, ok, refused
	}
	var in []func()
	for range 4 {
		leave, ok, refused := enter()
		if refused != nil || !ok {
			t.Fatalf("connection %d: %v", len(in), refused)
		}
		in = append(in, leave)
	}
	var told []func()
	for range refusedMax {
		leave, ok, refused := enter()
		if !errors.Is(refused, descriptors.ErrMany) || !ok {
			t.Fatalf("one too many: %v, %t", refused, ok)
		}
		told = append(told, leave)
	}
	if _, ok, _ := enter(); ok {
		t.Error("more wait to be told than may")
	}
	told[0]()
	if _, ok, refused := enter(); refused == nil || !ok {
		t.Errorf("one too many, and a place to be told at: %v, %t", refused, ok)
	}
	in[0]()
	if _, ok, refused := enter(); refused != nil || !ok {
		t.Errorf("a place that was given back: %v", refused)
	}
}
