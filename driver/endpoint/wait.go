package endpoint

import (
	"context"
	"sync/atomic"

	"softib/node/hca"
)

// WaitCQ sleeps until cq's completion event comes. One goroutine at a time sleeps at the bell, where the sender wakes
// it; what others wait for it tells them, or the attendant does.
func (e *Endpoint) WaitCQ(ctx context.Context, cq *hca.CQ) error {
	e.mu.Lock()
	w := waiterOf(cq)
	e.aboutToSleep()
	e.mu.Unlock()
	if e.machine == nil && !e.page.isLocal() && e.sleeps.CompareAndSwap(false, true) {
		e.sleepFor(ctx, w)
		e.sleeps.Store(false)
	}
	e.waiters.Add(1)
	defer e.waiters.Add(-1)
	select {
	case <-w.c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closing:
		return ErrClosed
	}
}

// sleepFor is what C code does in ibv_get_cq_event: it returns when WaitCQ has something to say.
func (e *Endpoint) sleepFor(ctx context.Context, w *waiter) {
	defer context.AfterFunc(ctx, e.rousePrograms)()
	until := e.Now() + Doze
	awaited := func() bool { return len(w.c) > 0 || ctx.Err() != nil || e.isClosing() }
	for !awaited() {
		bell := e.Await()
		if !MaySleep(bell) {
			continue
		}
		ns := int64(-1)
		if left := until - e.Now(); left > 0 {
			ns = nanoseconds(left)
		}
		atomic.AddUint32(&e.hint.sleepers, 1)
		if !awaited() {
			futexWait(&e.page.h.bell, bell, ns, forProgram)
		}
		atomic.AddUint32(&e.hint.sleepers, ^uint32(0))
	}
}

func (e *Endpoint) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// Arm asks for an event of a queue, as a program does that is about to sleep. The program may not know of completions
// yet that came when it, or the attendant, looked at other queues.
func (e *Endpoint) Arm(cq *hca.CQ, solicitedOnly bool) {
	e.mu.Lock()
	e.takeStaged() // to a queue pair that has failed they complete at once, and there may be no next call
	cq.ReqNotifyMissed(solicitedOnly)
	e.aboutToSleep()
	e.mu.Unlock()
}

// aboutToSleep is for a program that will sleep from now on. If it slept in Await the last time it will do so again.
func (e *Endpoint) aboutToSleep() {
	if e.slept && e.alone() {
		e.carry()
	} else {
		e.leaveAlone()
	}
	e.slept = false
}

// alone reports whether somebody who comes back soon may be on duty although it does not poll: the attendant watches,
// and nobody else sleeps who has to be woken.
func (e *Endpoint) alone() bool {
	return e.duty.post == Watching && atomic.LoadUint32(&e.hint.sleepers) == 0 && e.waiters.Load() == 0
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

// Await is a turn of a thread of the program that sleeps in C code until an event comes: what the attendant would do,
// once. It says at which bell the thread may sleep then, if that is odd. While the attendant watches, the thread that
// is given an event is on duty like a poller, because it soon comes back: who sends meanwhile wakes nobody.
func (e *Endpoint) Await() (bell uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.polls++
	e.slept, e.duty.waits = true, true
	told := e.told
	e.work()
	if e.told != told && e.alone() {
		e.page.Attend()
		return e.page.bell()
	}
	e.page.Rest()
	e.work() // what came before peers knew
	return e.page.bell()
}

// Nap is Await for a thread that polls and has found nothing for long, while others want its core. It may sleep until
// something comes.
func (e *Endpoint) Nap() (bell uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.polls++
	e.duty.waits = true
	if e.takeStaged() {
		e.finish() // to a queue pair that has failed they complete at once, and the program waits for that
	}
	if e.work() > 0 {
		return 0
	}
	e.page.Rest()
	if e.work() > 0 { // it came before peers knew
		e.page.Attend()
		return 0
	}
	return e.page.bell()
}

// Told is called when there is an event for threads that may sleep like that, with the endpoint locked.
func (e *Endpoint) Told() {
	e.told++
	if !plantSleeper {
		e.rousePrograms()
	}
}

// Sleepers is how many threads sleep after Await or Nap, which they count themselves; naps those after Nap.
func (e *Endpoint) Sleepers() (all, naps *uint32) { return &e.hint.sleepers, &e.hint.naps }

// rousePrograms wakes threads that sleep in C, or are about to: those find another bell. Where there are none the bell
// stays as it is, because nobody would look.
func (e *Endpoint) rousePrograms() {
	if atomic.LoadUint32(&e.hint.sleepers) != 0 {
		e.page.Attend()
		e.page.rouse(all, forProgram)
	}
}

// waiter is where a completion queue's event goes, and its completions if it has a ready list.
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
				e.Told()
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
