package perf

import "time"

// A side of a latency test with stamps is the active one: it sends first and
// stamps each of its requests, and the end.

// pingpong is one side of send_lat: n messages each way.
func (e *end) pingpong(size, n int, peer *end, depth int, stamps []time.Duration, base time.Time) error {
	qp, active := e.qps[0], stamps != nil
	recv := e.receive(0)
	send := e.request(SendLat, 0, size, peer)
	w := newWindow(0, depth)
	for i := range n {
		if active {
			stamps[i] = time.Since(base)
		} else if _, err := e.spin(e.recvCQ); err != nil {
			return err
		}
		w.next(&send, i == n-1)
		if err := qp.PostSend(&send); err != nil {
			return err
		}
		// What follows happens while the message is on its way: a receive for
		// a message to come (the next one finds an older receive), and
		// completions.
		if err := qp.PostRecv(&recv); err != nil {
			return err
		}
		if !w.isOpen() {
			if err := e.reap(&w); err != nil {
				return err
			}
		}
		if active {
			if _, err := e.spin(e.recvCQ); err != nil {
				return err
			}
		}
	}
	if active {
		stamps[n] = time.Since(base)
	}
	return e.drainWindow(&w)
}

// reap waits for completions of a window.
func (e *end) reap(w *window) error {
	n, err := e.spin(e.sendCQ)
	w.retire(e.wc[:n])
	return err
}

// drainWindow waits until everything posted is complete.
func (e *end) drainWindow(w *window) error {
	for w.out > 0 {
		if err := e.reap(w); err != nil {
			return err
		}
	}
	return nil
}

// watch is one side of write_lat: n writes each way, the arrival of each seen in the
// last byte of the memory it goes to. Polling the completion queue meanwhile
// is what makes the host take packets in.
func (e *end) watch(size, n int, peer *end, depth int, stamps []time.Duration, base time.Time) error {
	qp, active := e.qps[0], stamps != nil
	write := e.request(WriteLat, 0, size, peer)
	mine, theirs := &e.tx.Bytes()[size-1], &e.rx.Bytes()[size-1]
	w := newWindow(0, depth)
	for i := range n {
		mark := byte(i + 1)
		if active {
			stamps[i] = time.Since(base)
		} else if err := e.until(theirs, mark, &w); err != nil {
			return err
		}
		*mine = mark
		w.next(&write, i == n-1)
		if err := qp.PostSend(&write); err != nil {
			return err
		}
		if !w.isOpen() {
			if err := e.reap(&w); err != nil {
				return err
			}
		}
		if active {
			if err := e.until(theirs, mark, &w); err != nil {
				return err
			}
		}
	}
	if active {
		stamps[n] = time.Since(base)
	}
	return e.drainWindow(&w)
}

// until waits for a value in memory.
func (e *end) until(at *byte, value byte, w *window) error {
	for *at != value {
		if n := e.sendCQ.Poll(e.wc); n > 0 {
			if err := e.check(n); err != nil {
				return err
			}
			w.retire(e.wc[:n])
		}
		if e.stop.Load() {
			return errStopped
		}
	}
	return nil
}

// fetch is the active side of read_lat and atomic_lat: n operations, each
// after the one before.
func (e *end) fetch(t Test, size, n int, peer *end, stamps []time.Duration, base time.Time) error {
	qp := e.qps[0]
	wr := e.request(t, 0, size, peer)
	w := newWindow(0, 1)
	for i := range n {
		stamps[i] = time.Since(base)
		w.next(&wr, true)
		if err := qp.PostSend(&wr); err != nil {
			return err
		}
		if err := e.reap(&w); err != nil {
			return err
		}
	}
	stamps[n] = time.Since(base)
	return nil
}

// latency measures one size.
func (r *runner) latency(size int) (Row, error) {
	iters := r.cfg.iters(size)
	warm := warmup(size, iters)
	n := warm + iters
	stamps := make([]time.Duration, n+1)
	t, a, b, depth := r.cfg.Test, r.active, r.passive, r.cfg.TxDepth
	base := time.Now()
	var err error
	switch t {
	case SendLat:
		err = r.both(func() error { return a.pingpong(size, n, b, depth, stamps, base) },
			func() error { return b.pingpong(size, n, a, depth, nil, base) })
	case WriteLat:
		a.rx.Bytes()[size-1], b.rx.Bytes()[size-1] = 0, 0
		err = r.both(func() error { return a.watch(size, n, b, depth, stamps, base) },
			func() error { return b.watch(size, n, a, depth, nil, base) })
	default:
		if t == AtomicLat {
			clear(b.rx.Bytes())
		}
		err = r.both(func() error { return a.fetch(t, size, n, b, stamps, base) }, b.serve)
	}
	if err != nil {
		return Row{}, err
	}
	if err := r.verify(size, n); err != nil {
		return Row{}, err
	}
	part := 1
	if tests[t].halved {
		part = 2
	}
	l := summarize(stamps[warm:], part)
	return Row{Bytes: size, Iters: iters, Latency: &l}, nil
}
