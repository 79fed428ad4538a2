package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"softib/internal/patience/patiencetest"
	"softib/operate/control"
)

// script is a connection at which beats pass as fast as they are waited for: each Read brings the next piece, and an
// empty one is a beat in which nothing came.
type script struct {
	net.Conn
	pieces []string
}

func (s *script) Write(b []byte) (int, error)     { return len(b), nil }
func (s *script) Close() error                    { return nil }
func (s *script) SetReadDeadline(time.Time) error { return nil }
func (s *script) Read(b []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	p := s.pieces[0]
	if s.pieces = s.pieces[1:]; p == "" {
		return 0, os.ErrDeadlineExceeded
	}
	return copy(b, p), nil
}

// TestPatience: a fabric that says as much as an empty line now and then is waited for; one that says nothing is not.
func TestPatience(t *testing.T) {
	patiencetest.Pretend(t, 0)
	var told []time.Duration
	ctx := control.WithWaiting(t.Context(), func(d time.Duration) { told = append(told, d) })
	quiet := make([]string, 29)
	var doing []string
	ctx = control.WithDoing(ctx, func(what string) { doing = append(doing, what) })
	pieces := slices.Concat(quiet, []string{"{\"doing\":\"counting\"}\n"},
		quiet, []string{`{"say":"he`}, quiet, []string{"llo\"}\n"},
		quiet, []string{"{\"ok\":true}\n"})
	var heard []string
	err := opEcho.Call(ctx, &script{pieces: pieces}, "x", func(s string) error { heard = append(heard, s); return nil })
	if err != nil || !slices.Equal(heard, []string{"hello"}) {
		t.Errorf("heard %q, %v", heard, err)
	}
	if !slices.Equal(doing, []string{"counting", ""}) {
		t.Errorf("it does %q", doing)
	}
	want := []time.Duration{}
	for range 4 {
		for i := range quiet {
			want = append(want, time.Duration(i+1)*time.Second)
		}
		want = append(want, 0)
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %v", told)
	}
	err = opEcho.Call(ctx, &script{pieces: []string{"{}\n"}}, "x", nil)
	s, ok := errors.AsType[*control.SilentError](err)
	if !ok || s.For != 30*time.Second || s.Stopped || told[len(told)-1] != 0 ||
		err.Error() != `it has not answered for 30s (asked for "echo")` {
		t.Errorf("a silent one: %v", err)
	}
}

// TestPatienceWhileBusy: a fabric whose machine has much to do may be silent for longer, and the error says how long
// that was, at which load, and what was waited for.
func TestPatienceWhileBusy(t *testing.T) {
	load := patiencetest.Pretend(t, 20)
	quiet := make([]string, 599) // one less than 20 times 30
	pieces := slices.Concat([]string{`{"doing":"counting"}`, "\n"}, quiet, []string{"{}\n"}, quiet)
	answered := slices.Concat(pieces, []string{"{\"ok\":true}\n"})
	if err := opEcho.Call(t.Context(), &script{pieces: answered}, "x", nil); err != nil {
		t.Error(err)
	}
	want := "it has not answered for 10m0s" + patiencetest.Words(20) + ` (asked for "echo", it said last: counting)`
	err := opEcho.Call(t.Context(), &script{pieces: pieces}, "x", nil)
	if s, ok := errors.AsType[*control.SilentError](err); !ok || s.For != 10*time.Minute || err.Error() != want {
		t.Errorf("%v: want %s", err, want)
	}
	load.Set(0) // what was met in an earlier silence is no reason any more
	err = opEcho.Call(t.Context(), &script{}, "x", nil)
	if s, ok := errors.AsType[*control.SilentError](err); !ok || s.For != 30*time.Second {
		t.Error(err)
	}
}

// TestBeats: an answer that takes its time comes with beats for who has asked for them, and without for others.
func TestBeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	var counted atomic.Int64
	control.Handle(s, opWait, func(_ context.Context, _ control.None, r *control.Reply[string]) error {
		<-release
		r.Doing(func() string { return fmt.Sprintf("%d of 2", counted.Add(1)) })
		<-release
		return r.Say("done")
	})
	ctx, cancel := context.WithCancel(t.Context())
	s.Serve(ctx)
	defer s.Close()
	defer cancel()
	ask := func(request string) (net.Conn, *bufio.Scanner) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewScanner(conn)
	}
	a, with := ask(`{"v":2,"op":"wait","beat":true}`)
	defer a.Close()
	b, without := ask(`{"v":2,"op":"wait"}`)
	defer b.Close()
	for range 2 {
		if !with.Scan() || with.Text() != "{}" {
			t.Fatalf("%q, %v: want a beat", with.Text(), with.Err())
		}
	}
	for range 2 { // handlers
		release <- struct{}{}
	}
	for with.Scan() && with.Text() == "{}" {
	}
	if with.Text() != `{"doing":"1 of 2"}` {
		t.Errorf("%q, %v: want what it does", with.Text(), with.Err())
	}
	close(release)
	for with.Scan() && strings.Contains(with.Text(), "doing") {
	}
	if !strings.Contains(with.Text(), "done") {
		t.Errorf("%q, %v", with.Text(), with.Err())
	}
	if !without.Scan() || !strings.Contains(without.Text(), "done") {
		t.Errorf("%q, %v: want no beat", without.Text(), without.Err())
	}
}

// TestFirstAfterBeats: descriptors may come after beats, and lines in pieces.
func TestFirstAfterBeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := []string{"{}\n{}\n{\"say\":\"here\"}\n{\"ok\":true}\n", "{}\n{\"ok\":true}\n", "{}\n"}
	go func() {
		for _, a := range answers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte(a[:min(4, len(a))]))
			_, _ = c.Write([]byte(a[min(4, len(a)):]))
			c.Close()
		}
	}()
	for i, want := range []string{"<nil>", "says nothing", control.ErrHungUp.Error()} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		said, _, err := opFile.First(t.Context(), conn, "x")
		conn.Close()
		if !strings.Contains(fmt.Sprint(err), want) || err == nil && said != "here" {
			t.Errorf("%q: %q, %v: want %s", answers[i], said, err, want)
		}
	}
}
