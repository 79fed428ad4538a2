package endpoint

import (
	"context"

	"softib/node/hca"
)

// WaitCQ sleeps until cq's completion event comes.
func (e *Endpoint) WaitCQ(ctx context.Context, cq *hca.CQ) error {
	e.mu.Lock()
	w := waiterOf(cq)
	e.leaveAlone()
	e.mu.Unlock()
	select {
	case <-w.c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closing:
		return ErrClosed
	}
}

// Arm asks for an event of a queue, as a program does that is about to sleep. The program may not know of completions
// yet that came when it, or the attendant, looked at other queues.
func (e *Endpoint) Arm(cq *hca.CQ, solicitedOnly bool) {
	e.mu.Lock()
	e.takeStaged() // to a queue pair that has failed they complete at once, and there may be no next call
	cq.ReqNotifyMissed(solicitedOnly)
	e.leaveAlone()
	e.mu.Unlock()
}

// leaveAlone is called by whoever polled until now and sleeps from now on: peers must wake the attendant again, and
// what came before they know that is taken in here.
func (e *Endpoint) leaveAlone() {
	e.duty.rest(e.looked())
	e.page.Rest()
	if !e.employed.Load() {
		e.call()
	}
	e.carry()
}

// waiter is where a completion queue's event goes, and its completions if it is tapped.
type waiter struct {
	c    chan struct{}
	f    func()
	move func()
}

func waiterOf(cq *hca.CQ) *waiter {
	w, ok := cq.Owner.(*waiter)
	if !ok {
		w = &waiter{c: make(chan struct{}, 1)}
		cq.Owner = w
	}
	return w
}

// NotifyCQ calls f whenever the queue raises its event, with the endpoint locked: f must not wait, nor call back. Nil
// ends it.
func (e *Endpoint) NotifyCQ(cq *hca.CQ, f func()) {
	e.mu.Lock()
	waiterOf(cq).f = f
	e.mu.Unlock()
}

// NotifyEvents calls f with every asynchronous event from now on, under the same rules. WaitEvent gets none then.
func (e *Endpoint) NotifyEvents(f func(hca.Event)) {
	e.mu.Lock()
	e.onEvent = f
	for _, ev := range e.events {
		f(ev)
	}
	e.events = nil
	e.mu.Unlock()
}

// ForgetEvents drops the asynchronous events so far.
func (e *Endpoint) ForgetEvents() {
	e.mu.Lock()
	e.events = nil
	e.mu.Unlock()
}

// maxEvents bounds the asynchronous events that nobody asks for.
const maxEvents = 1024

// deliverEvents hands the engine's events to those who wait for them.
func (e *Endpoint) deliverEvents() {
	woken := false
	for ev, ok := e.eng.PollEvent(); ok; ev, ok = e.eng.PollEvent() {
		switch {
		case ev.Type == hca.EventCompletion:
			w := waiterOf(ev.CQ)
			if w.f != nil {
				w.f()
				continue
			}
			select {
			case w.c <- struct{}{}:
			default:
			}
		case e.onEvent != nil:
			e.onEvent(ev)
		case len(e.events) < maxEvents:
			e.events = append(e.events, ev)
			woken = true
		}
	}
	if woken {
		close(e.eventful)
		e.eventful = make(chan struct{})
	}
}

// WaitEvent sleeps until the next asynchronous event.
func (e *Endpoint) WaitEvent(ctx context.Context) (hca.Event, error) {
	for {
		e.mu.Lock()
		if len(e.events) > 0 {
			ev := e.events[0]
			e.events = e.events[1:]
			e.mu.Unlock()
			return ev, nil
		}
		c := e.eventful
		e.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return hca.Event{}, ctx.Err()
		case <-e.closing:
			return hca.Event{}, ErrClosed
		}
	}
}
