package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"softib/verbs"
)

// runner is one test under way.
type runner struct {
	cfg             Config
	active, passive *end
	stop, done      atomic.Bool
}

// Run measures between two devices and gives each row to each as soon as it is
// there. It ends early when ctx does, or when each answers with an error.
func Run(ctx context.Context, active, passive verbs.Device, cfg Config, each func(Row) error) (err error) {
	cfg, err = cfg.complete()
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg}
	if r.active, err = newEnd(active, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.active.close()) }()
	if r.passive, err = newEnd(passive, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.passive.close()) }()
	for _, e := range []*end{r.active, r.passive} {
		e.stop, e.done = &r.stop, &r.done
	}
	if err := connect(r.active, r.passive, cfg.MTU); err != nil {
		return err
	}
	if cfg.Test == SendLat || cfg.Test == SendBW {
		for _, e := range []*end{r.active, r.passive} {
			if err := e.postRecvs(); err != nil {
				return err
			}
		}
	}
	defer context.AfterFunc(ctx, func() { r.stop.Store(true) })()
	for _, size := range cfg.Sizes {
		r.prepare()
		measure := r.bandwidth
		if cfg.Test.IsLatency() {
			measure = r.latency
		}
		row, err := measure(size)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", cfg.Test, size, err)
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return nil
}

// prepare gives both sides data to recognise, and nothing to collect while
// it is measured.
func (r *runner) prepare() {
	fill(r.active.tx.Bytes(), 1)
	fill(r.passive.tx.Bytes(), 101)
	fill(r.active.rx.Bytes(), 51)
	fill(r.passive.rx.Bytes(), 201)
	runtime.GC()
}

// both runs the two sides at once, each on its own thread, and returns the
// error of the one that failed first.
func (r *runner) both(active, passive func() error) error {
	r.done.Store(false)
	var wg sync.WaitGroup
	var errs [2]error
	for i, f := range []func() error{active, passive} {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if errs[i] = f(); errs[i] != nil {
				r.stop.Store(true)
			}
			if i == 0 {
				r.done.Store(true)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, errStopped) {
			return err
		}
	}
	return errors.Join(errs[:]...)
}

// verify compares what arrived with what was sent. ops is how many operations there
// were in all, for a test whose result tells.
func (r *runner) verify(size, ops int) error {
	a, b := r.active, r.passive
	for qp := range a.qps {
		at := qp * a.slot
		got, want, who := b.rx, a.tx, b
		switch r.cfg.Test {
		case ReadLat, ReadBW:
			got, want, who = a.tx, b.rx, a
		case AtomicLat:
			return r.verifyCounter(ops)
		}
		if err := compare(who.dev.Name(), got.Bytes()[at:at+size], want.Bytes()[at:at+size]); err != nil {
			return err
		}
	}
	return nil
}

// verifyCounter checks that each of ops atomic operations added one, and that
// the last one fetched what was there before it.
func (r *runner) verifyCounter(ops int) error {
	var want [atomicSize]byte
	binary.LittleEndian.PutUint64(want[:], uint64(ops))
	if err := compare(r.passive.dev.Name(), r.passive.rx.Bytes(), want[:]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(want[:], uint64(ops-1))
	return compare(r.active.dev.Name(), r.active.tx.Bytes(), want[:])
}
