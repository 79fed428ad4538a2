package perf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"softib/verbs"
)

// The two sides of a test talk over a connection of their own, JSON, one object a line:
//
//	active:   {"config":{…}}  {"end":{…}}
//	passive:                  {"end":{…}}
//
// and then for each size
//
//	passive:  {"step":"ready"}
//	active:   {"step":"done"}       its requests are complete
//	passive:  {"step":"intact"}     what has come to it is what was sent
//
// until the active side says {"step":"bye"}. A side that fails says {"error":"…"} and hangs up. Nothing is
// said while something is measured.

// wordMax bounds what a side says at once: the queue pairs of the largest test fit in.
const wordMax = 256 << 10

// wordsMax is how far a side may be ahead of the other.
const wordsMax = 4

// ErrTalk is matched when the other side does not say what it should.
var ErrTalk = errors.New("the sides do not understand each other")

// PeerError is a failure of the other side.
type PeerError struct{ Text string }

func (e *PeerError) Error() string { return "perf: the other side: " + e.Text }

// step is a point that one side waits for the other to reach.
type step string

const (
	stepReady  step = "ready"
	stepDone   step = "done"
	stepIntact step = "intact"
	stepBye    step = "bye"
)

// word is what is said at once; one of its fields is set.
type word struct {
	Config *Config  `json:"config,omitempty"`
	End    *address `json:"end,omitempty"`
	Step   step     `json:"step,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// address is what one side has to know of the other.
type address struct {
	Device string       `json:"device"`
	QPs    []verbs.Info `json:"qps"`
	// Addr and RKey are where requests of the other side may read and write.
	Addr uint64 `json:"addr"`
	RKey uint32 `json:"rkey"`
}

// talk is a conversation with the other side.
type talk struct {
	conn  io.ReadWriteCloser
	words chan word // what has been heard; closed at the end, once err is set
	err   error

	// Polling loops look at these: there is no use in going on; the active side has finished.
	stop, done atomic.Bool
}

// newTalk begins a conversation, which ends when the connection is closed.
func newTalk(conn io.ReadWriteCloser) *talk {
	t := &talk{conn: conn, words: make(chan word, wordsMax)}
	go t.listen()
	return t
}

// listen hears the other side until it has nothing more to say.
func (t *talk) listen() {
	lines := bufio.NewScanner(t.conn)
	lines.Buffer(nil, wordMax)
	for t.err == nil && lines.Scan() {
		var w word
		if w, t.err = parseWord(lines.Bytes()); t.err != nil {
			break
		}
		if w.Step == stepDone {
			t.done.Store(true)
		}
		select {
		case t.words <- w:
		default:
			t.err = fmt.Errorf("perf: more than %d words ahead: %w", wordsMax, ErrTalk)
		}
	}
	if t.err == nil {
		t.err = &PeerError{"it hung up"}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			t.err = fmt.Errorf("perf: more than %d bytes in a word: %w", wordMax, ErrTalk)
		}
	}
	t.stop.Store(true)
	close(t.words)
}

// parseWord reads one line. What the other side reports as its failure is an error.
func parseWord(line []byte) (word, error) {
	var w word
	if err := json.Unmarshal(line, &w); err != nil {
		return word{}, fmt.Errorf("perf: %.80q: %w: %w", line, ErrTalk, err)
	}
	if w.Error != "" {
		return word{}, &PeerError{w.Error}
	}
	said := 0
	for _, is := range []bool{w.Config != nil, w.End != nil, w.Step != ""} {
		if is {
			said++
		}
	}
	if said != 1 {
		return word{}, fmt.Errorf("perf: %.80q says %d things: want one: %w", line, said, ErrTalk)
	}
	return w, nil
}

// say says something to a side that still listens.
func (t *talk) say(w word) error {
	line, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("perf: %w", err)
	}
	if _, err := t.conn.Write(append(line, '\n')); err != nil {
		return t.cause() // it has hung up
	}
	return nil
}

// hear waits for the next word.
func (t *talk) hear(ctx context.Context) (word, error) {
	select {
	case w, ok := <-t.words:
		if !ok {
			return word{}, t.err
		}
		return w, nil
	case <-ctx.Done():
		return word{}, ctx.Err()
	}
}

// reach says that a step is reached.
func (t *talk) reach(s step) error { return t.say(word{Step: s}) }

// await waits until the other side has reached a step.
func (t *talk) await(ctx context.Context, s step) error {
	w, err := t.hear(ctx)
	if err == nil && w.Step != s {
		err = fmt.Errorf("perf: the other side is at %q: want %q: %w", w.Step, s, ErrTalk)
	}
	return err
}

// meet tells the other side about this one, and hears about it.
func (t *talk) meet(ctx context.Context, own address) (address, error) {
	if err := t.say(word{End: &own}); err != nil {
		return address{}, err
	}
	w, err := t.hear(ctx)
	switch {
	case err != nil:
		return address{}, err
	case w.End == nil || len(w.End.QPs) != len(own.QPs):
		return address{}, fmt.Errorf("perf: the other side is not one with %d queue pairs: %w", len(own.QPs), ErrTalk)
	}
	return *w.End, nil
}

// cause is why there is no use in going on, or in saying anything: what the other side has said last, or not said.
func (t *talk) cause() error {
	for range t.words { // too late to matter
	}
	return t.err
}
