package madloop

import (
	"context"
	"errors"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
)

// echo is a port that answers what is queued.
type echo struct {
	madrpc.Transport
	bell   chan struct{}
	queued []uint64
	err    error
}

func (e *echo) Now() ib.Time          { return 0 }
func (e *echo) Bell() <-chan struct{} { return e.bell }
func (e *echo) Err() error            { return e.err }

func (e *echo) Poll(take func(madrpc.Delivery)) bool {
	for _, c := range e.queued {
		take(madrpc.Delivery{Kind: madrpc.Response, Cookie: c})
	}
	moved := len(e.queued) > 0
	e.queued = nil
	return moved
}

var errCut = errors.New("cut")

// It ends when all is done, also where that is found without anything moving; with the context; and with the port.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := &echo{bell: make(chan struct{}, 1)}
	sent, got, looked := 0, 0, 0
	l := Loop{Port: e, Take: func(madrpc.Delivery) { got++ }, Send: func(ib.Time) bool {
		if sent == 3 {
			looked++
			return false
		}
		sent++
		e.queued = append(e.queued, uint64(sent))
		return true
	}}
	l.Done = func() bool { return looked > 0 }
	if err := l.Run(ctx); err != nil || got != 3 {
		t.Errorf("%v, %d answers", err, got)
	}
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	looked, l.Wake = 0, wake
	l.Done = func() bool { return looked == 2 }
	if err := l.Run(ctx); err != nil {
		t.Errorf("woken: %v", err)
	}
	looked, l.Wake, l.Every = 0, nil, time.Millisecond
	if err := l.Run(ctx); err != nil {
		t.Errorf("by the clock: %v", err)
	}
	l.Done, l.Every = nil, 0
	l.Send = func(ib.Time) bool { cancel(); return false }
	if err := l.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with the context: %v", err)
	}
	l.Send = func(ib.Time) bool { e.err = errCut; e.bell <- struct{}{}; return false }
	if err := l.Run(t.Context()); !errors.Is(err, errCut) {
		t.Errorf("with the port: %v", err)
	}
}
