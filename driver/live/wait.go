package live

import (
	"context"

	"softib/node/hca"
)

// WaitCQ sleeps until cq's completion event comes.
func (h *Host) WaitCQ(ctx context.Context, cq *hca.CQ) error {
	h.mu.Lock()
	w := waiterOf(cq)
	// Whoever polled until now sleeps: peers must wake the attendant again, and what
	// came before they know that is taken in here.
	h.attended.Store(false)
	h.carry()
	h.mu.Unlock()
	select {
	case <-w.c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.f.closing:
		return ErrClosed
	}
}

// waiter is where a completion queue's event goes.
type waiter struct{ c chan struct{} }

func waiterOf(cq *hca.CQ) *waiter {
	w, ok := cq.Owner.(*waiter)
	if !ok {
		w = &waiter{make(chan struct{}, 1)}
		cq.Owner = w
	}
	return w
}

// maxEvents bounds the asynchronous events that nobody asks for.
const maxEvents = 1024

// deliverEvents hands the engine's events to those who wait for them.
func (h *Host) deliverEvents() {
	woken := false
	for e, ok := h.eng.PollEvent(); ok; e, ok = h.eng.PollEvent() {
		if e.Type == hca.EventCompletion {
			select {
			case waiterOf(e.CQ).c <- struct{}{}:
			default:
			}
			continue
		}
		if e.Port != 0 {
			h.tellProcesses(e)
		}
		if len(h.events) < maxEvents {
			h.events = append(h.events, e)
			woken = true
		}
	}
	if woken {
		close(h.eventful)
		h.eventful = make(chan struct{})
	}
}

// WaitEvent sleeps until the next asynchronous event.
func (h *Host) WaitEvent(ctx context.Context) (hca.Event, error) {
	for {
		h.mu.Lock()
		if len(h.events) > 0 {
			e := h.events[0]
			h.events = h.events[1:]
			h.mu.Unlock()
			return e, nil
		}
		c := h.eventful
		h.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return hca.Event{}, ctx.Err()
		case <-h.f.closing:
			return hca.Event{}, ErrClosed
		}
	}
}
