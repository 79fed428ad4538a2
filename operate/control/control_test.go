package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/internal/patience/patiencetest"
	"softib/operate/control"
)

var (
	opEcho  = control.Op[string, string]{Name: "echo"}
	opFail  = control.Op[control.None, control.None]{Name: "fail"}
	opBytes = control.Op[int, int]{Name: "bytes"}
	opFile  = control.Op[string, string]{Name: "file"}
	opWait  = control.Op[control.None, string]{Name: "wait"}
)

// advised is an error with what to do next, as a command has it.
type advised struct{ error }

func (a advised) Unwrap() error { return a.error }
func (advised) Next() string    { return "do better" }

// listening serves the operations above; ended is closed after an answer to opEcho.
func listening(t *testing.T) (dial func() *net.UnixConn, ended chan struct{}) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	control.Handle(s, opEcho, func(_ context.Context, q string, r *control.Reply[string]) error {
		r.Finally(func() { close(ended) })
		return errors.Join(r.Say(q), r.Say(q+q))
	})
	control.Handle(s, opFail, func(context.Context, control.None, *control.Reply[control.None]) error {
		return advised{fmt.Errorf("that is not how: %w", control.ErrUsage)}
	})
	control.Handle(s, opBytes, func(_ context.Context, n int, r *control.Reply[int]) error {
		w := bufio.NewWriterSize(r, 1000)
		for i := range n {
			if err := w.WriteByte(byte(i)); err != nil {
				return err
			}
		}
		return errors.Join(w.Flush(), r.Say(n))
	})
	control.Handle(s, opFile, func(_ context.Context, path string, r *control.Reply[string]) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return r.SayFiles("here", f)
	})
	control.Handle(s, opWait, func(ctx context.Context, _ control.None, r *control.Reply[string]) error {
		if err := r.Say("waiting"); err != nil {
			return err
		}
		heard, cancel := r.Heard(ctx)
		defer cancel()
		<-heard.Done()
		return r.Say("heard")
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.Serve(ctx)
	t.Cleanup(func() { cancel(); s.Close() })
	return func() *net.UnixConn {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		return conn
	}, ended
}

func TestCall(t *testing.T) {
	dial, ended := listening(t)
	var got []string
	err := opEcho.Call(t.Context(), dial(), "a\nb", func(s string) error { got = append(got, s); return nil })
	if err != nil || !slices.Equal(got, []string{"a\nb", "a\nba\nb"}) {
		t.Errorf("%q, %v", got, err)
	}
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Error("what was to come after the answer did not")
	}

	err = opFail.Call(t.Context(), dial(), control.None{}, nil)
	if !errors.Is(err, control.ErrUsage) || errors.Is(err, control.ErrVersion) || control.NextOf(err) != "do better" ||
		!strings.Contains(err.Error(), "not how") {
		t.Errorf("a refusal is %v, next %q", err, control.NextOf(err))
	}

	enough := errors.New("enough")
	conn := dial()
	err = opWait.Call(t.Context(), conn, control.None{}, func(s string) error {
		if s == "waiting" {
			return conn.CloseWrite()
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("a client that says that it has had enough hears %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = opWait.Call(ctx, dial(), control.None{}, func(string) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a client that gives up ends with %v", err)
	}
}

// TestEndsBesideSilence: clients that are connected and ask nothing do not keep a server from ending, which would take
// as long as they are waited for: minutes on a busy machine.
func TestEndsBesideSilence(t *testing.T) {
	patiencetest.Pretend(t, 1000)
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Serve(ctx)
	var silent []net.Conn
	for _, text := range []string{"", `{"v":2,"op":"ec`} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	// Connections are accepted in their order: who is answered now came after those.
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := opEcho.Call(t.Context(), conn, "x", nil); !errors.Is(err, control.ErrRequest) {
		t.Fatal(err)
	}
	cancel()
	ended := make(chan struct{})
	go func() {
		s.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("the server waits for clients that say nothing")
	}
	for _, conn := range silent {
		text, err := io.ReadAll(conn)
		if !strings.Contains(string(text), "is ending") {
			t.Errorf("a client that has asked nothing hears %q, %v", text, err)
		}
	}
}

// TestBytes: bytes arrive as they were, however many, and what is said between them too.
func TestBytes(t *testing.T) {
	dial, _ := listening(t)
	for _, n := range []int{0, 1, 1000, 100_001} {
		var to bytes.Buffer
		said := -1
		err := opBytes.CallTo(t.Context(), dial(), n, &to, func(x int) error { said = x; return nil })
		if err != nil || to.Len() != n || said != n {
			t.Errorf("%d of %d bytes, said %d, %v", to.Len(), n, said, err)
		}
		for i, b := range to.Bytes() {
			if b != byte(i) {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
	}
}

// TestFirst: a descriptor comes with what is said.
func TestFirst(t *testing.T) {
	dial, _ := listening(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, files, err := opFile.First(t.Context(), dial(), path)
	if err != nil || said != "here" || len(files) != 1 {
		t.Fatalf("%q with %d files, %v", said, len(files), err)
	}
	defer files[0].Close()
	if text, err := io.ReadAll(files[0]); err != nil || string(text) != "hello" {
		t.Errorf("the file has %q, %v", text, err)
	}
	_, _, err = opFile.First(t.Context(), dial(), path+"?")
	if err == nil || !strings.Contains(err.Error(), "no such") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestWrong: what cannot be understood is refused, with what it is.
func TestWrong(t *testing.T) {
	dial, _ := listening(t)
	for text, kind := range map[string]string{
		"hello": "request", "{}": "version", `{"v":1,"op":"echo"}`: "version", `{"v":2,"op":"dance"}`: "request",
		`{"v":2,"op":"echo","ask":7}`: "request", strings.Repeat("[", 2*control.RequestMax): "request",
	} {
		conn := dial()
		// who says too much may be cut short
		if _, err := conn.Write([]byte(text + "\n")); err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		var got struct{ Error, Kind string }
		if err := json.NewDecoder(conn).Decode(&got); err != nil || got.Error == "" || got.Kind != kind {
			t.Errorf("%.40q is answered with %+v, %v: want an error of kind %s", text, got, err, kind)
		}
	}
}

// TestHungUp: a fabric may end before it was asked, after, or when it has said why.
func TestHungUp(t *testing.T) {
	for _, c := range []struct {
		name, says string
		listens    bool
		want       string
	}{
		{"at once", "", false, control.ErrHungUp.Error()},
		{"when it was asked", "", true, control.ErrHungUp.Error()},
		{"with a reason", `{"error":"not you","kind":"rights"}` + "\n", false, "not you"},
		{"in the middle of it", `{"error":"not`, true, control.ErrHungUp.Error()},
	} {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fds[0]), "")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if c.listens {
			go func() {
				_, _ = syscall.Read(fds[1], make([]byte, 1000))
				_, _ = syscall.Write(fds[1], []byte(c.says))
				_ = syscall.Close(fds[1])
			}()
		} else {
			_, _ = syscall.Write(fds[1], []byte(c.says))
			_ = syscall.Close(fds[1])
		}
		if err := opEcho.Call(t.Context(), conn, "x", nil); err == nil || err.Error() != c.want {
			t.Errorf("a fabric that hangs up %s: %v, want %s", c.name, err, c.want)
		}
		conn.Close()
	}
	a, b := net.Pipe()
	b.Close()
	if err := opEcho.Call(t.Context(), a, "x", nil); !errors.Is(err, control.ErrHungUp) {
		t.Errorf("a pipe whose other end is closed: %v", err)
	}
}
