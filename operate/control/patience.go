package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"softib/internal/packetsock"
	"softib/internal/patience"
)

// A fabric that takes long over an answer says a line each beat, an empty one or what it is at. So a client knows one
// that is busy, which it waits for as long as it takes, from one that is stopped, which it does not.
const (
	beat = time.Second
	// stoppedBeats is how many beats may be missing from a process that is stopped, and silentBeats from one that is
	// not, on a machine that has little to do: on another it may get no turn for a while.
	stoppedBeats = 10
	silentBeats  = 30
)

// SilentError is a fabric that has said nothing for a while.
type SilentError struct {
	// For is how long, and After that in words, with the load that was met if it was high.
	For   time.Duration
	After string
	// Op is what it was asked for, and Doing the last that it said it was doing, if anything.
	Op, Doing string
	// PID is its process, if the kernel knows; Stopped says that somebody has stopped that (SIGSTOP).
	PID     int
	Stopped bool
}

func (e *SilentError) Error() string {
	who := "it"
	if e.Stopped {
		who = fmt.Sprintf("its process %d is stopped, and", e.PID)
	}
	text := fmt.Sprintf("%s has not answered for %s (asked for %q", who, e.After, e.Op)
	if e.Doing != "" {
		text += ", it said last: " + e.Doing
	}
	return text + ")"
}

type waitingKey struct{}

// WithWaiting has f told how long a fabric has been silent while a call with this context waits for it, about once a
// second, and 0 when that is over. Calls of several goroutines tell it at the same time.
func WithWaiting(ctx context.Context, f func(silent time.Duration)) context.Context {
	return context.WithValue(ctx, waitingKey{}, f)
}

type doingKey struct{}

// WithDoing has f told what a fabric does that takes so long, about once a second while a call with this context waits
// for its answer, and "" when that is there.
func WithDoing(ctx context.Context, f func(what string)) context.Context {
	return context.WithValue(ctx, doingKey{}, f)
}

// ear is a client's side of a connection, on which it hears a fabric.
type ear struct {
	conn   net.Conn
	tell   func(time.Duration)
	silent int             // beats that were missed in a row
	limit  *patience.Limit // since the first of them
	op     string
	doing  string // the last that was said of that
	// forever waits for what has no beats.
	forever bool
}

func newEar(ctx context.Context, conn net.Conn, op string) *ear {
	tell, ok := ctx.Value(waitingKey{}).(func(time.Duration))
	if !ok {
		tell = func(time.Duration) {}
	}
	return &ear{conn: conn, tell: tell, op: op}
}

// listen reads, beat by beat. Time in which this process had no turn, or was stopped, counts for one beat at most.
func (e *ear) listen(read func() error) error {
	defer func() { _ = e.conn.SetReadDeadline(time.Time{}) }()
	for {
		if err := e.conn.SetReadDeadline(time.Now().Add(beat)); err != nil {
			return err
		}
		err := read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if e.silent > 0 {
				e.silent = 0
				e.tell(0)
			}
			return err
		}
		if e.silent++; e.silent == 1 {
			e.limit = patience.New(silentBeats * beat)
		}
		waited := time.Duration(e.silent) * beat
		e.tell(waited)
		over := e.limit.OverAfter(waited) // asked each time: the highest load that is met counts
		if e.silent < stoppedBeats {
			continue
		}
		pid, stopped := processAt(e.conn)
		if stopped || over {
			e.tell(0)
			return &SilentError{For: waited, After: e.limit.After(waited), Op: e.op, Doing: e.doing, PID: pid,
				Stopped: stopped}
		}
	}
}

// Read is for bufio.
func (e *ear) Read(b []byte) (n int, err error) {
	if e.forever {
		return e.conn.Read(b)
	}
	err = e.listen(func() (err error) {
		n, err = e.conn.Read(b)
		return err
	})
	return n, err
}

// processAt is the process at the other end of a connection, and whether it is stopped.
func processAt(conn net.Conn) (pid int, stopped bool) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, false
	}
	cred, err := packetsock.Peer(c)
	if err != nil || cred.Pid <= 0 {
		return 0, false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cred.Pid))
	if err != nil {
		return int(cred.Pid), false
	}
	// its state comes after its name, which may have anything in it: T, or t under a debugger
	_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	return int(cred.Pid), len(state) > 0 && (state[0] == 'T' || state[0] == 't')
}

// voice is a fabric's side of a connection. What several goroutines say does not get mixed up.
type voice struct {
	conn *net.UnixConn
	cred *syscall.Ucred

	mu    sync.Mutex
	doing func() string // what takes so long; nil if nobody says
	hush  bool          // nothing is said but by who answers
}

// say writes some pieces one after the other.
func (v *voice) say(pieces ...[]byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range pieces {
		if _, err := v.conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// beats says a line each beat, an empty one where the handler does not say what it does, until done is closed or the
// client has hung up. One that does not read misses some: nobody waits for it here.
func (v *voice) beats(done <-chan struct{}) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if err := v.beat(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

func (v *voice) beat() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hush {
		return nil
	}
	var l line
	if v.doing != nil {
		l.Doing = v.doing()
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_ = v.conn.SetWriteDeadline(time.Now().Add(beat / 10))
	defer func() { _ = v.conn.SetWriteDeadline(time.Time{}) }()
	_, err = v.conn.Write(append(text, '\n'))
	return err
}
