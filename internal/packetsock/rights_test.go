package packetsock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const stranger = 60001

// dialAs connects as another user, who has no file of ours to go through.
func dialAs(t *testing.T, uid int, path string) *net.UnixConn {
	t.Helper()
	type result struct {
		c   *net.UnixConn
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and it ends with the goroutine, being another user's
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			done <- result{nil, e}
			return
		}
		c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
		done <- result{c, err}
	}()
	r := <-done
	if errors.Is(r.err, syscall.EINVAL) || errors.Is(r.err, syscall.EPERM) {
		t.Skipf("this root can be nobody else, as in a user namespace of one user: %v", r.err)
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.c.Close() })
	return r.c
}

// TestRights: a stranger uses what he may for as long as he may, and the owner everything.
func TestRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users; next: run the tests as root")
	}
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool // his right
	no := errors.New("no")
	r := &Rights{Group: os.Getegid(), May: func(uid uint32, host string) error {
		if uid == stranger && !ended.Load() && (host == "" || host == "h1") {
			return nil
		}
		return no
	}}
	path := filepath.Join(dir, "s")
	l, err := ListenFor(path, r)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Fatalf("the socket is %v, %v", info, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // the stranger of this test is in no group
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, l, 1, func(g Guest) {
			b := make([]byte, 10)
			n, err := g.Read(b)
			if err == nil && g.Refused == nil {
				err = g.Use(string(b[:n]))
			}
			if err != nil || g.Refused != nil {
				_, _ = g.Write([]byte("no"))
				return
			}
			_, _ = g.Write([]byte("yes"))
			_, _ = g.Read(b) // until it ends
		})
	}()
	ask := func(uid int, host string) (*net.UnixConn, string) {
		t.Helper()
		c := dialAs(t, uid, path)
		if _, err := c.Write([]byte(host)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return c, string(b[:n])
	}
	for _, x := range []struct {
		uid        int
		host, want string
	}{{0, "h2", "yes"}, {stranger, "h2", "no"}, {stranger + 1, "h1", "no"}} {
		if _, got := ask(x.uid, x.host); got != x.want {
			t.Errorf("user %d for %s: %s, want %s", x.uid, x.host, got, x.want)
		}
	}
	root, _ := ask(0, "h1")
	c, got := ask(stranger, "h1")
	if got != "yes" {
		t.Fatalf("he may, and hears %s", got)
	}
	r.Review()
	isOpen := func(c *net.UnixConn) bool {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	if !isOpen(c) {
		t.Error("his connection ended though nothing has changed")
	}
	ended.Store(true)
	r.Review()
	if isOpen(c) {
		t.Error("his right has ended, and his connection has not")
	}
	if !isOpen(root) {
		t.Error("the owner's connection ended")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
