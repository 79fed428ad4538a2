package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"softib/operate/control"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// serving is a fabric in this process with its socket.
func serving(t *testing.T) (place, *fabric, context.Context) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := place{dir: dir, name: "t"}
	lock, err := p.claim()
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(t.Context(), "t", "star:3", g, &sm.Config{}, nil, io.Discard,
		toTerminal(newTerminal(io.Discard)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := f.manage(p, upOptions{state: stateNone})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve(ctx, p, f, mgr, cancel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.close()
		mgr.Close()
		f.Close()
		lock.Close()
	})
	return p, f, ctx
}

// TestProtocol: what a client gets wrong is told from what a fabric does.
func TestProtocol(t *testing.T) {
	p, _, _ := serving(t)
	st, err := p.status(t.Context())
	if err != nil || st.Hosts != 3 {
		t.Errorf("status is %+v, %v", st, err)
	}
	for _, hosts := range [][]string{{"h1"}, {"h1", "h9"}} {
		err := askFabric(t.Context(), p, opPair, pairRequest{Hosts: hosts}, nil)
		if exitCode(err) != exitUsage || nextOf(err) == "" {
			t.Errorf("a test between %v is answered with %v", hosts, err)
		}
	}
}

func TestOnePerfAtATime(t *testing.T) {
	p, _, _ := serving(t)
	enough := errors.New("enough")
	err := p.borrow(t.Context(), []string{"h1", "h3"}, func(_ context.Context, got *pair) error {
		if !reflect.DeepEqual(*got, pair{Hosts: [2]string{"h1", "h3"}, Hops: 1, Where: "t (star:3)"}) {
			t.Errorf("lent is %+v", *got)
		}
		err := p.borrow(t.Context(), nil, func(context.Context, *pair) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "another perf test") || nextOf(err) == "" {
			t.Errorf("a second test is answered with %v", err)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("a test that fails ends with %v", err)
	}
	// Hanging up ends the loan, and frees the place for the next.
	for range 20 {
		err := p.borrow(t.Context(), nil, func(_ context.Context, got *pair) error {
			if got.Hosts != [2]string{"h1", "h2"} {
				t.Errorf("the first two are %v", got.Hosts)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = p.borrow(ctx, nil, func(ctx context.Context, _ *pair) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a test that was given up ends with %v", err)
	}
}

func TestDown(t *testing.T) {
	p, _, ctx := serving(t)
	if err := askFabric(t.Context(), p, opDown, control.None{}, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(60 * time.Second):
		t.Error("the fabric was not told")
	}
}

// A fabric that ends during a test ends the test, and says so to whoever waits for the figures.
func TestDownDuringPerf(t *testing.T) {
	for _, result := range []func(context.Context) error{
		func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		func(context.Context) error { return &fabricGoneError{"an adapter is gone"} }, // which may be noticed first
	} {
		p, _, _ := serving(t)
		err := p.borrow(t.Context(), nil, func(ctx context.Context, _ *pair) error {
			if err := askFabric(t.Context(), p, opDown, control.None{}, nil); err != nil {
				t.Error(err)
			}
			return result(ctx)
		})
		if err == nil || !strings.Contains(err.Error(), "was ended during the test") || nextOf(err) == "" {
			t.Errorf("got %v", err)
		}
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
	p := place{dir: t.TempDir(), name: "n"}
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
