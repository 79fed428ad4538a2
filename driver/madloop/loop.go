package madloop

import (
	"context"
	"fmt"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
)

// Loop is a port and who has it meanwhile: Send and Take are called by Run alone.
type Loop struct {
	Port madrpc.Transport
	// Send queues what is to be sent now, and reports whether it has done anything.
	Send func(now ib.Time) bool
	// Take is handed what has come.
	Take func(madrpc.Delivery)

	// What follows may be left out.

	// Wake is sent to when Send has something to do for another reason than what has come.
	Wake <-chan struct{}
	// Every is the longest time between two calls of Send.
	Every time.Duration
	// Done reports whether there is nothing left to do or to wait for.
	Done func() bool
}

// Run goes round until all is done, until ctx ends, whose error it returns, or until the port fails. A port may be able
// to say that it has failed, by a method Err, and rings its bell then.
func (l *Loop) Run(ctx context.Context) error {
	var tick <-chan time.Time
	if l.Every > 0 {
		t := time.NewTicker(l.Every)
		defer t.Stop()
		tick = t.C
	}
	done := func() bool { return l.Done != nil && l.Done() }
	failing, _ := l.Port.(interface{ Err() error })
	for !done() {
		moved := l.Send(l.Port.Now())
		moved = l.Port.Poll(l.Take) || moved
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failing != nil && failing.Err() != nil {
			return fmt.Errorf("the port is gone: %w", failing.Err())
		}
		if moved || done() {
			continue
		}
		select {
		case <-l.Port.Bell():
		case <-l.Wake:
		case <-tick:
		case <-ctx.Done():
		}
	}
	return nil
}
