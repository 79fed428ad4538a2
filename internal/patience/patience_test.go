package patience

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// loaded makes the machine look as if so many programs wanted each processor, as patiencetest does, which needs this
// package.
func loaded(t *testing.T, each int) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "loadavg")
	t.Cleanup(Pretend(file))
	set(t, file, each)
	return file
}

func set(t *testing.T, file string, each int) {
	t.Helper()
	text := fmt.Sprintf("0.50 0.40 0.30 %d/900 12345\n", each*runtime.GOMAXPROCS(0))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFor(t *testing.T) {
	for each, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 20: 20 * time.Second,
		1000: mostTimes * time.Second} {
		loaded(t, each)
		if got := For(time.Second); got != want {
			t.Errorf("with %d for each processor: %v, want %v", each, got, want)
		}
	}
	file := loaded(t, 0)
	for _, text := range []string{"", "a b c", "1 2"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := For(time.Second); got != time.Second {
			t.Errorf("%q: %v", text, got)
		}
	}
	defer Pretend(filepath.Join(t.TempDir(), "nowhere"))()
	if got := For(time.Second); got != time.Second {
		t.Errorf("without a file: %v", got)
	}
}

// A wait that began on an idle machine goes on when it becomes busy.
func TestLimit(t *testing.T) {
	file := loaded(t, 0)
	l := New(time.Hour)
	l.began = l.began.Add(-90 * time.Minute)
	l.looked = l.looked.Add(-time.Second)
	set(t, file, 2)
	if l.Over() || !strings.Contains(l.String(), fmt.Sprintf("1h30m0s, at a load of %d on", 2*runtime.GOMAXPROCS(0))) {
		t.Errorf("over after 1.5 times the time at twice the load: %v", l)
	}
	set(t, file, 0) // what was met counts
	l.looked = l.looked.Add(-time.Second)
	if l.Over() {
		t.Error("what was met is forgotten")
	}
	l.began = l.began.Add(-time.Hour)
	if !l.Over() {
		t.Error("never over")
	}
}

// Who counts the time otherwise than by the clock waits as long.
func TestOverAfter(t *testing.T) {
	file := loaded(t, 3)
	l := New(time.Hour)
	if l.OverAfter(3*time.Hour-1) || !l.OverAfter(3*time.Hour) || l.Over() {
		t.Error("3 hours are not enough, or less are")
	}
	set(t, file, 5)
	l.looked = l.looked.Add(-time.Second)
	if l.OverAfter(5*time.Hour-1) || !l.OverAfter(5*time.Hour) {
		t.Error("5 hours are not enough, or less are")
	}
	want := fmt.Sprintf("4h0m0s, at a load of %d on %d processors", 5*runtime.GOMAXPROCS(0), runtime.GOMAXPROCS(0))
	if got := l.After(4 * time.Hour); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestContext(t *testing.T) {
	file := loaded(t, 0)
	ctx, cancel := Context(t.Context(), time.Millisecond)
	defer cancel()
	child, end := context.WithCancel(ctx)
	defer end()
	<-child.Done()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(child.Err(), context.DeadlineExceeded) {
		t.Errorf("%v, %v", ctx.Err(), child.Err())
	}
	if cause := context.Cause(child); !errors.Is(cause, context.DeadlineExceeded) ||
		!strings.HasPrefix(cause.Error(), "no end after ") || !Has(child) || Has(t.Context()) {
		t.Errorf("the cause is %v", cause)
	}
	set(t, file, 1000)
	busy, cancel := Context(t.Context(), 10*time.Millisecond)
	select {
	case <-busy.Done():
		t.Error("a busy machine is not waited for")
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if <-busy.Done(); !errors.Is(busy.Err(), context.Canceled) {
		t.Error(busy.Err())
	}
}
