package smrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"
)

// Transport is the port that a manager runs at.
type Transport = madrpc.Transport

// Options are what surrounds a manager.
type Options struct {
	// Log gets every event, on the runner's goroutine.
	Log func(sm.Event)
	// Save gets what should be found again after a restart, whenever it has changed and the subnet is up.
	Save func(sm.Memory)
}

// Runner runs a manager.
type Runner struct {
	m    *sm.Manager
	t    Transport
	opts Options

	agents madrpc.Agents
	out    *crossing // from the manager to the mover
	in     *crossing // back
	work   chan func(*sm.Manager)
	jobs   chan *sm.Job
	up     chan struct{}
	upOnce sync.Once
	done   chan struct{}
	dead   chan error // the transport has failed
	now    ib.Time    // when the present step began
	// Those who wait for something, on the runner's goroutine.
	waiters []*waiter
}

// waiter waits for something to be so.
type waiter struct {
	ctx  context.Context
	is   func(*sm.Manager) bool
	done chan struct{}
}

// ErrStopped is returned by calls to a runner that has ended.
var ErrStopped = errors.New("smrun: the manager has stopped")

// New joins a manager to a transport. The port says from now on that a manager runs there.
func New(cfg sm.Config, t Transport, o Options) (*Runner, error) {
	r := &Runner{
		m: sm.New(cfg), t: t, opts: o, out: newCrossing(), in: newCrossing(),
		work: make(chan func(*sm.Manager)), jobs: make(chan *sm.Job, 1), up: make(chan struct{}),
		done: make(chan struct{}), dead: make(chan error, 1),
	}
	var err error
	if r.agents, err = sm.Register(t.Register); err != nil {
		return nil, fmt.Errorf("smrun: %w", err)
	}
	t.SetIsSM(true)
	if w, ok := t.(interface{ Warning() error }); ok && o.Log != nil {
		if err := w.Warning(); err != nil {
			o.Log(sm.Event{At: t.Now(), Kind: sm.EventProblem, Text: err.Error()})
		}
	}
	return r, nil
}

// Up is closed when the subnet is up for the first time.
func (r *Runner) Up() <-chan struct{} { return r.up }

// Done is closed when Run has ended.
func (r *Runner) Done() <-chan struct{} { return r.done }

// Do calls f with the manager, between two of its steps, and waits for it.
func (r *Runner) Do(f func(*sm.Manager)) error {
	finished := make(chan struct{})
	select {
	case r.work <- func(m *sm.Manager) { f(m); close(finished) }:
		<-finished
		return nil
	case <-r.done:
		return ErrStopped
	}
}

// Await calls is with the manager now and after each of its steps, until that is true or the context ends.
func (r *Runner) Await(ctx context.Context, is func(*sm.Manager) bool) error {
	w := &waiter{ctx, is, make(chan struct{})}
	if err := r.Do(func(m *sm.Manager) {
		if is(m) {
			close(w.done)
			return
		}
		r.waiters = append(r.waiters, w)
	}); err != nil {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return ErrStopped
	}
}

// wake tells those whose wait is over.
func (r *Runner) wake() {
	r.waiters = slices.DeleteFunc(r.waiters, func(w *waiter) bool {
		if w.ctx.Err() != nil {
			return true
		}
		if w.is(r.m) {
			close(w.done)
			return true
		}
		return false
	})
}

// Run is the manager's life. It ends with the context.
func (r *Runner) Run(ctx context.Context) error {
	defer close(r.done)
	defer r.t.Close()
	defer r.t.SetIsSM(false)
	moving, stop := context.WithCancel(context.Background()) // a manager that resigns speaks after ctx has ended
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		r.move(moving)
	}()
	defer func() {
		stop()
		<-moved
	}()
	r.m.Start(r.t.Now())
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if r.step() {
			// Something moved: more may be waiting. Others get a look in now and then.
			select {
			case <-ctx.Done():
				return r.resign(ctx.Err())
			case err := <-r.dead:
				return fmt.Errorf("smrun: %w", err)
			case f := <-r.work:
				f(r.m)
			case j := <-r.jobs:
				r.m.HandleJob(r.t.Now(), j)
			default:
			}
			continue
		}
		timer.Reset(r.pause())
		select {
		case <-ctx.Done():
			return r.resign(ctx.Err())
		case err := <-r.dead:
			return fmt.Errorf("smrun: %w", err)
		case f := <-r.work:
			f(r.m)
		case j := <-r.jobs:
			r.m.HandleJob(r.t.Now(), j)
		case <-r.in.bell:
		case <-timer.C:
		}
	}
}

// resignTime is how long another manager has to take over from one that ends.
const resignTime = 2 * time.Second

// resign hands over before the end, if there is anybody to hand over to, and returns why it ends.
func (r *Runner) resign(why error) error {
	if !r.m.Resign(r.t.Now()) {
		return why
	}
	late := time.NewTimer(resignTime)
	defer late.Stop()
	for r.m.State() == mad.SMMaster {
		if r.step() {
			continue
		}
		wait := time.NewTimer(r.pause())
		select {
		case <-late.C:
			wait.Stop()
			return why
		case <-r.dead:
			wait.Stop()
			return why
		case j := <-r.jobs:
			r.m.HandleJob(r.t.Now(), j)
		case <-r.in.bell:
		case <-wait.C:
		}
		wait.Stop()
	}
	r.report()
	return why
}

// pause is how long nothing needs to be done.
func (r *Runner) pause() time.Duration {
	d := r.m.NextDeadline()
	if d == ib.Never {
		return time.Hour
	}
	return max(time.Duration((d-r.t.Now())/ib.Nanosecond), 0) + 10*time.Microsecond
}

// step does what can be done now and reports whether there was anything.
func (r *Runner) step() bool {
	now := r.t.Now()
	r.now = now
	moved := false
	if now >= r.m.NextDeadline() {
		r.m.HandleTimer(now)
	}
	if r.send(now) {
		moved = true
	}
	// One batch, and then the window may have room again: the mover should never have to wait.
	if r.in.take(r.take) {
		moved = true
	}
	if j, ok := r.m.PollJob(); ok {
		moved = true
		go func() {
			j.Run()
			r.jobs <- j
		}()
	}
	r.report()
	if len(r.waiters) > 0 {
		r.wake()
	}
	return moved
}

// send gives the mover what the manager wants to send, and reports whether there was anything.
func (r *Runner) send(now ib.Time) bool {
	moved := false
	b := r.out.blank()
	var send sm.Send
	for r.m.PollSend(now, &send) {
		moved = true
		p := b.next()
		p.Message = send
		p.pack()
		if b.n == batchMax {
			r.out.put(b)
			b = r.out.blank()
		}
	}
	r.out.put(b)
	return moved
}

// take hands what has come to the manager.
func (r *Runner) take(p *parcel) {
	r.m.HandleDelivery(r.now, madrpc.Delivery{Kind: p.kind, Cookie: p.Cookie, Env: p.Env, Data: p.Data})
}

// report passes on what the manager has to say.
func (r *Runner) report() {
	for {
		e, ok := r.m.PollEvent()
		if !ok {
			break
		}
		if r.opts.Log != nil {
			r.opts.Log(e)
		}
	}
	if r.m.Subnet() == nil {
		return
	}
	r.upOnce.Do(func() { close(r.up) })
	if r.opts.Save != nil {
		if mem, ok := r.m.TakeMemory(); ok {
			r.opts.Save(mem)
		}
	}
}
