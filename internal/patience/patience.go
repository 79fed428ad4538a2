package patience

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mostTimes bounds how much longer anybody waits.
const mostTimes = 60

// every is how often the load is looked at while somebody waits.
const every = 250 * time.Millisecond

// loadFile is where Linux says how many programs want a processor.
const loadFile = "/proc/loadavg"

// pretended is the file that tests have instead.
var pretended atomic.Pointer[string]

// Pretend has the load read from another file than the kernel's until back is called: package patiencetest's.
func Pretend(file string) (back func()) {
	was := pretended.Swap(&file)
	return func() { pretended.Store(was) }
}

// Load is how many programs want a processor, now or over the last minute, whichever is more; 0 if nobody knows.
func Load() float64 {
	file := loadFile
	if other := pretended.Load(); other != nil {
		file = *other
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	var minute, five, fifteen float64
	var running, all int
	if _, err := fmt.Fscanf(strings.NewReader(string(text)), "%f %f %f %d/%d", &minute, &five, &fifteen, &running,
		&all); err != nil {
		return 0
	}
	return max(minute, float64(running))
}

// times is how much longer than on an idle machine to wait.
func times(load float64) float64 { return min(max(load/float64(runtime.GOMAXPROCS(0)), 1), mostTimes) }

// For is how long to wait, by the load of now, for what takes at most so long on an idle machine.
func For(idle time.Duration) time.Duration { return time.Duration(float64(idle) * times(Load())) }

// Limit is a wait that goes on as long as the load that is met meanwhile explains it.
type Limit struct {
	idle   time.Duration
	mu     sync.Mutex
	began  time.Time
	looked time.Time
	load   float64 // the highest that was met
}

// New begins to wait for what takes at most so long on an idle machine.
func New(idle time.Duration) *Limit {
	now := time.Now()
	return &Limit{idle: idle, began: now, looked: now, load: Load()}
}

// Over reports whether that was long enough.
func (l *Limit) Over() bool { return l.left() <= 0 }

// OverAfter is Over for who counts otherwise than by the clock how long that was.
func (l *Limit) OverAfter(waited time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return waited >= l.most(time.Now())
}

func (l *Limit) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return l.most(now) - now.Sub(l.began)
}

// most is how long to wait in all, by what was met until now. The lock is held.
func (l *Limit) most(now time.Time) time.Duration {
	if now.Sub(l.looked) >= every {
		l.looked, l.load = now, max(l.load, Load())
	}
	return time.Duration(float64(l.idle) * times(l.load))
}

// Err is what to say when the wait is over: how long it was, and why that long. It is a context.DeadlineExceeded.
func (l *Limit) Err() error { return &lateError{l.String()} }

type lateError struct{ after string }

func (e *lateError) Error() string { return "no end after " + e.after }
func (e *lateError) Timeout() bool { return true }
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

// String says how long was waited, and why that long.
func (l *Limit) String() string {
	return l.After(time.Since(l.began).Round(100 * time.Millisecond))
}

// After is String for who counts otherwise than by the clock how long that was.
func (l *Limit) After(waited time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most(time.Now()) // looks at the load
	s := waited.String()
	if cores := runtime.GOMAXPROCS(0); l.load > float64(cores) {
		s += fmt.Sprintf(", at a load of %.0f on %d processors", l.load, cores)
	}
	return s
}

// limitKey is where a context has its limit.
type limitKey struct{}

// Has reports whether a context, or one that it was made of, is of Context: it has no deadline, and will end.
func Has(ctx context.Context) bool { return ctx.Value(limitKey{}) != nil }

// Context ends with its parent, or with context.DeadlineExceeded when the limit is over; context.Cause says then how
// long that was, and at which load.
func Context(parent context.Context, idle time.Duration) (context.Context, context.CancelFunc) {
	l := New(idle)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, limitKey{}, l))
	var timer *time.Timer
	var mu sync.Mutex // the timer's function may run before there is a timer to set
	mu.Lock()
	timer = time.AfterFunc(idle, func() {
		mu.Lock()
		defer mu.Unlock()
		if left := l.left(); left > 0 {
			timer.Reset(min(left, idle))
			return
		}
		cancel(l.Err())
	})
	mu.Unlock()
	// Contexts that are made of this one have to ask it how it ended, and not the one within: it has another channel.
	done := make(chan struct{})
	context.AfterFunc(ctx, func() { close(done) })
	return limited{ctx, done}, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}

// limited is a context whose end is told as that of a deadline is.
type limited struct {
	context.Context
	done chan struct{}
}

func (c limited) Done() <-chan struct{} { return c.done }

func (c limited) Err() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	if _, late := errors.AsType[*lateError](context.Cause(c.Context)); late {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
