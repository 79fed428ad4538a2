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

// loaded makes the machine look as if so many programs wanted each processor.
func loaded(t *testing.T, each int) {
	t.Helper()
	was := loadFile
	t.Cleanup(func() { loadFile = was })
	loadFile = filepath.Join(t.TempDir(), "loadavg")
	set(t, each)
}

func set(t *testing.T, each int) {
	t.Helper()
	text := fmt.Sprintf("0.50 0.40 0.30 %d/900 12345\n", each*runtime.GOMAXPROCS(0))
	if err := os.WriteFile(loadFile, []byte(text), 0o600); err != nil {
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
	for _, text := range []string{"", "a b c", "1 2"} {
		if err := os.WriteFile(loadFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := For(time.Second); got != time.Second {
			t.Errorf("%q: %v", text, got)
		}
	}
	loadFile = filepath.Join(t.TempDir(), "nowhere")
	if got := For(time.Second); got != time.Second {
		t.Errorf("without a file: %v", got)
	}
}

// A wait that began on an idle machine goes on when it becomes busy.
func TestLimit(t *testing.T) {
	loaded(t, 0)
	l := New(time.Hour)
	l.began = l.began.Add(-90 * time.Minute)
	l.looked = l.looked.Add(-time.Second)
	set(t, 2)
	if l.Over() || !strings.Contains(l.String(), fmt.Sprintf("1h30m0s, at a load of %d on", 2*runtime.GOMAXPROCS(0))) {
		t.Errorf("over after 1.5 times the time at twice the load: %v", l)
	}
	set(t, 0) // what was met counts
	l.looked = l.looked.Add(-time.Second)
	if l.Over() {
		t.Error("what was met is forgotten")
	}
	l.began = l.began.Add(-time.Hour)
	if !l.Over() {
		t.Error("never over")
	}
}

func TestContext(t *testing.T) {
	loaded(t, 0)
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
	set(t, 1000)
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
