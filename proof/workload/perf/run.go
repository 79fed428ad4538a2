package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"softib/proto/ib"
	"softib/verbs"
)

// side is one side of a test under way.
type side struct {
	*end
	cfg    Config
	active bool
	peer   address
}

func newSide(dev verbs.Device, conn io.ReadWriteCloser) *side {
	return &side{end: &end{talk: newTalk(conn), dev: dev, wc: make([]verbs.WC, 32)}}
}

// Active is the side that measures: it says over conn what to do, tells what the test is, and gives each row to row
// as soon as it is there. It ends early when ctx does, or when one of the two answers with an error. It
// closes conn.
func Active(ctx context.Context, dev verbs.Device, conn io.ReadWriteCloser, cfg Config, setting func(Setting) error,
	row func(Row) error) error {
	defer conn.Close()
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	s := newSide(dev, conn)
	s.cfg, s.active = cfg, true
	return s.run(ctx, func() error {
		return s.say(word{Config: &cfg})
	}, func(ctx context.Context) error {
		if err := setting(s.setting()); err != nil {
			return err
		}
		for _, size := range cfg.Sizes {
			r, err := s.measure(ctx, size)
			if err != nil {
				return fmt.Errorf("%s of %d bytes: %w", cfg.Test, size, err)
			}
			if err := row(r); err != nil {
				return err
			}
		}
		return s.reach(stepBye)
	})
}

// Passive is the other side: it does what the active one says over conn, which it closes.
func Passive(ctx context.Context, dev verbs.Device, conn io.ReadWriteCloser) error {
	defer conn.Close()
	s := newSide(dev, conn)
	return s.run(ctx, func() error {
		w, err := s.hear(ctx)
		switch {
		case err != nil:
			return err
		case w.Config == nil:
			return fmt.Errorf("perf: the other side does not say what to do: %w", ErrTalk)
		}
		s.cfg, err = w.Config.complete()
		return err
	}, func(ctx context.Context) error {
		for _, size := range s.cfg.Sizes {
			if err := s.answer(ctx, size); err != nil {
				return fmt.Errorf("%s of %d bytes: %w", s.cfg.Test, size, err)
			}
		}
		return s.await(ctx, stepBye)
	})
}

// run makes a side of a test, joins it with the other, and works. If it fails it tells the other side why.
func (s *side) run(ctx context.Context, agree func() error, work func(context.Context) error) (err error) {
	defer context.AfterFunc(ctx, func() { s.stop.Store(true) })()
	defer func() {
		var peer *PeerError
		if err != nil && !errors.As(err, &peer) {
			_ = s.say(word{Error: err.Error()}) // it may be gone
		}
	}()
	if err := agree(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.create(s.cfg); err != nil {
		return err
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	err = work(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errStopped):
		return s.cause()
	}
	return err
}

// join connects the queue pairs to the other side's, one to one.
func (s *side) join(ctx context.Context) (err error) {
	own := address{Device: s.dev.Name(), QPs: s.infos, Addr: s.rx.Addr(), RKey: s.rx.RKey()}
	if s.peer, err = s.meet(ctx, own); err != nil {
		return err
	}
	if err := s.connect(s.peer.QPs, &s.cfg); err != nil {
		return err
	}
	if s.cfg.Test == SendLat || s.cfg.Test == SendBW {
		return s.postRecvs()
	}
	return nil
}

// setting is what the two sides know about the test.
func (s *side) setting() Setting {
	a, b := s.infos[0], s.peer.QPs[0]
	set := Setting{
		Test: s.cfg.Test, Active: s.dev.Name(), Passive: s.peer.Device, LIDs: [2]ib.LID{a.LID, b.LID},
		MTU: min(a.MTU, b.MTU).Bytes(), QPs: s.cfg.QPs, TxDepth: s.cfg.TxDepth,
	}
	if s.cfg.MTU != 0 {
		set.MTU = s.cfg.MTU.Bytes()
	}
	if s.cfg.Test.IsLatency() {
		set.TxDepth = 1
	}
	return set
}

// measure is the active side of one size.
func (s *side) measure(ctx context.Context, size int) (Row, error) {
	s.prepare(size)
	iters := s.cfg.iters(size)
	warm := warmup(size, iters)
	var work func(base time.Time) error
	var row func() Row
	if s.cfg.Test.IsLatency() {
		work, row = s.latency(size, warm, iters)
	} else {
		work, row = s.bandwidth(size, warm, iters)
	}
	runtime.GC() // nothing to collect while it is measured
	if err := s.await(ctx, stepReady); err != nil {
		return Row{}, err
	}
	if err := onThread(func() error { return work(time.Now()) }); err != nil {
		return Row{}, err
	}
	if err := s.reach(stepDone); err != nil {
		return Row{}, err
	}
	if err := s.await(ctx, stepIntact); err != nil {
		return Row{}, err
	}
	if err := s.verify(size, warm+iters); err != nil {
		return Row{}, err
	}
	return row(), nil
}

// answer is the passive side of one size.
func (s *side) answer(ctx context.Context, size int) error {
	s.prepare(size)
	s.done.Store(false)
	iters := s.cfg.iters(size)
	n := iters + warmup(size, iters)
	runtime.GC()
	if err := s.reach(stepReady); err != nil {
		return err
	}
	err := onThread(func() error {
		var err error
		switch s.cfg.Test {
		case SendLat:
			err = s.pingpong(size, n, nil, time.Time{})
		case WriteLat:
			err = s.watch(size, n, nil, time.Time{})
		case SendBW:
			err = s.absorb(n)
		}
		if err != nil {
			return err
		}
		return s.serve()
	})
	if err != nil {
		return err
	}
	if err := s.await(ctx, stepDone); err != nil {
		return err
	}
	if err := s.verify(size, n); err != nil {
		return err
	}
	return s.reach(stepIntact)
}

// onThread runs f on a thread that does nothing else meanwhile.
func onThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

// Run is both sides in one process.
func Run(ctx context.Context, active, passive verbs.Device, cfg Config, each func(Row) error) error {
	return run(ctx, active, passive, cfg, func(Setting) error { return nil }, each)
}

func run(ctx context.Context, active, passive verbs.Device, cfg Config, setting func(Setting) error,
	each func(Row) error) error {
	a, b := net.Pipe()
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[1] = Passive(ctx, passive, b) })
	errs[0] = Active(ctx, active, a, cfg, setting, each)
	wg.Wait()
	return First(errs[0], errs[1])
}

// First is the failure of a test whose sides ended with these errors: that of the side whose failure the other reports.
func First(active, passive error) error {
	var peer *PeerError
	if passive != nil && (active == nil || errors.As(active, &peer) && !errors.As(passive, &peer)) {
		return passive
	}
	return active
}
