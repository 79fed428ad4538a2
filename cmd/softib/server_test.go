package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/sm"
	"softib/topo"
	"softib/workload/perf"
)

// serving is a fabric in this process with its socket.
func serving(t *testing.T) (place, *fabric, context.Context) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := place{dir, "t"}
	lock, err := p.claim()
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(t.Context(), "t", "star:3", g, &sm.Config{}, io.Discard, toTerminal(newTerminal(io.Discard)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := serve(ctx, p, f, cancel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.close()
		f.Close()
		lock.Close()
	})
	return p, f, ctx
}

// exchange sends raw bytes and returns the lines of the answer.
func exchange(t *testing.T, p place, text string) []answer {
	t.Helper()
	conn, err := net.Dial("unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	var answers []answer
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		answers = append(answers, a)
	}
	return answers
}

func TestProtocol(t *testing.T) {
	p, _, _ := serving(t)
	a := exchange(t, p, `{"v":1,"op":"status"}`+"\n")
	if len(a) != 2 || a[0].Status == nil || a[0].Status.Hosts != 3 || !a[1].OK {
		t.Errorf("status is answered with %+v", a)
	}
	a = exchange(t, p, `{"v":1,"op":"perf","perf":{"hosts":["h1","h3"],"config":{"test":"send_lat","sizes":[8,16],"iters":20}}}`+"\n")
	if len(a) != 4 || a[0].Setting == nil || a[0].Setting.Passive != "h3" || a[1].Row == nil || a[2].Row == nil || a[2].Row.Bytes != 16 || !a[3].OK {
		t.Errorf("perf is answered with %+v", a)
	}
	for _, bad := range []string{
		"hello\n", "{}\n", `{"v":2,"op":"status"}` + "\n", `{"v":1,"op":"dance"}` + "\n", `{"v":1,"op":"perf"}` + "\n",
		`{"v":1,"op":"perf","perf":{"config":{"test":"waltz"}}}` + "\n", strings.Repeat("[", 2*requestMax),
	} {
		a := exchange(t, p, bad)
		if len(a) != 1 || a[0].Error == "" || a[0].OK {
			t.Errorf("%.40q is answered with %+v", bad, a)
		}
	}
}

func TestOnePerfAtATime(t *testing.T) {
	p, _, _ := serving(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		r := request{Op: opPerf, Perf: &perfRequest{Config: perf.Config{Test: perf.SendLat, Iters: perf.MaxIters / 10}}}
		ended <- p.call(ctx, r, func(a answer) error {
			if a.Setting != nil {
				close(begun)
			}
			return nil
		})
	}()
	<-begun
	err := p.call(t.Context(), request{Op: opPerf, Perf: &perfRequest{Config: perf.Config{Test: perf.SendLat}}}, func(answer) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "another perf test") || nextOf(err) == "" {
		t.Errorf("a second test is answered with %v", err)
	}
	// Hanging up ends the test, and frees the place for the next.
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a test that was given up ends with %v", err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := p.call(t.Context(), request{Op: opPerf, Perf: &perfRequest{Config: perf.Config{Test: perf.SendLat, Iters: 5}}}, func(answer) error { return nil })
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still refused: %v", err)
		}
	}
}

func TestDown(t *testing.T) {
	p, _, ctx := serving(t)
	if err := p.call(t.Context(), request{Op: opDown}, func(answer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("the fabric was not told")
	}
}

// A fabric that ends during a test says so to whoever waits for the figures.
func TestDownDuringPerf(t *testing.T) {
	p, _, _ := serving(t)
	err := p.call(t.Context(), request{Op: opPerf, Perf: &perfRequest{Config: perf.Config{Test: perf.SendLat, Iters: perf.MaxIters / 10}}}, func(a answer) error {
		if a.Setting == nil {
			return nil
		}
		return p.call(t.Context(), request{Op: opDown}, func(answer) error { return nil })
	})
	if err == nil || !strings.Contains(err.Error(), "was ended during the test") || nextOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	var out strings.Builder
	err := fmt.Errorf("perf: %w", context.Canceled)
	if printError(&out, err); out.String() != "softib: interrupted\n" || exitCode(err) != exitInterrupted {
		t.Errorf("%q, exit code %d", out.String(), exitCode(err))
	}
}

func TestClaim(t *testing.T) {
	p := place{t.TempDir(), "n"}
	if p.isRunning() || p.running() != nil {
		t.Error("running before it was claimed")
	}
	stale := p.socket()
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := p.claim()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the stale socket is still there")
	}
	if _, err := p.claim(); !errors.Is(err, errHeld) {
		t.Errorf("a second claim: %v", err)
	}
	if !p.isRunning() || len(p.running()) != 1 {
		t.Error("not running though claimed")
	}
	lock.Close()
	if p.isRunning() {
		t.Error("running though given up")
	}
	if err := os.WriteFile(filepath.Join(p.dir, "not a name!.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p.running() != nil {
		t.Error("a file that is no fabric's was taken for one")
	}
}
