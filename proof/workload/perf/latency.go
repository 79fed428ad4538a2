package perf

import "time"

// A side of a latency test with stamps is the active one: it sends first and
// stamps each of its requests, and the end.

// pingpong is one side of send_lat: n messages each way.
func (s *side) pingpong(size, n int, stamps []time.Duration, base time.Time) error {
	qp, active := s.qps[0], stamps != nil
	recv := s.receive(0)
	send := s.request(0, size)
	w := newWindow(0, s.cfg.TxDepth)
	for i := range n {
		if active {
			stamps[i] = time.Since(base)
		} else if _, err := s.spin(s.recvCQ); err != nil {
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
			if err := s.reap(&w); err != nil {
				return err
			}
		}
		if active {
			if _, err := s.spin(s.recvCQ); err != nil {
				return err
			}
		}
	}
	if active {
		stamps[n] = time.Since(base)
	}
	return s.drainWindow(&w)
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
func (s *side) watch(size, n int, stamps []time.Duration, base time.Time) error {
	qp, active := s.qps[0], stamps != nil
	write := s.request(0, size)
	mine, theirs := &s.tx.Bytes()[size-1], &s.rx.Bytes()[size-1]
	w := newWindow(0, s.cfg.TxDepth)
	for i := range n {
		mark := byte(i + 1)
		if active {
			stamps[i] = time.Since(base)
		} else if err := s.until(theirs, mark, &w); err != nil {
			return err
		}
		*mine = mark
		w.next(&write, i == n-1)
		if err := qp.PostSend(&write); err != nil {
			return err
		}
		if !w.isOpen() {
			if err := s.reap(&w); err != nil {
				return err
			}
		}
		if active {
			if err := s.until(theirs, mark, &w); err != nil {
				return err
			}
		}
	}
	if active {
		stamps[n] = time.Since(base)
	}
	return s.drainWindow(&w)
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
func (s *side) fetch(size, n int, stamps []time.Duration, base time.Time) error {
	qp := s.qps[0]
	wr := s.request(0, size)
	w := newWindow(0, 1)
	for i := range n {
		stamps[i] = time.Since(base)
		w.next(&wr, true)
		if err := qp.PostSend(&wr); err != nil {
			return err
		}
		if err := s.reap(&w); err != nil {
			return err
		}
	}
	stamps[n] = time.Since(base)
	return nil
}

// latency is what the active side does for one size, and what comes of it.
func (s *side) latency(size, warm, iters int) (work func(base time.Time) error, row func() Row) {
	n := warm + iters
	stamps := make([]time.Duration, n+1)
	work = func(base time.Time) error {
		switch s.cfg.Test {
		case SendLat:
			return s.pingpong(size, n, stamps, base)
		case WriteLat:
			return s.watch(size, n, stamps, base)
		}
		return s.fetch(size, n, stamps, base)
	}
	part := 1
	if tests[s.cfg.Test].halved {
		part = 2
	}
	return work, func() Row {
		l := summarize(stamps[warm:], part)
		return Row{Bytes: size, Iters: iters, Latency: &l}
	}
}
