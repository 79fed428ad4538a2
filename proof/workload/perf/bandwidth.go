package perf

import (
	"time"

	"softib/verbs"
)

// flow is one queue pair of a bandwidth test at its active side.
type flow struct {
	window
	qp   *verbs.QP
	wr   verbs.SendWR
	list []verbs.SendWR // to be posted in one call
	left int
}

// marks are the moments of a bandwidth test: when a group of requests was begun and
// how many had been posted before it, when completions were seen and how many
// requests were complete by then.
type marks struct {
	begun, ended   []time.Duration
	before, within []int
}

func newMarks(groups int) *marks {
	return &marks{
		begun: make([]time.Duration, 0, groups), ended: make([]time.Duration, 0, groups),
		before: make([]int, 0, groups), within: make([]int, 0, groups),
	}
}

// stream is the active side: n requests on every queue pair, as many in flight
// as the depth allows.
func (s *side) stream(size, n int, m *marks, base time.Time) error {
	list := s.cfg.PostList
	flows := make([]flow, len(s.qps))
	for i := range flows {
		flows[i] = flow{window: newWindow(i, s.cfg.TxDepth), qp: s.qps[i], wr: s.request(i, size),
			list: make([]verbs.SendWR, 0, list), left: n}
	}
	posted, completed := 0, 0
	for completed < n*len(flows) {
		if s.stop.Load() {
			return errStopped
		}
		for i := range flows {
			f := &flows[i]
			for f.left > 0 && f.isOpen() {
				if f.group == 0 {
					m.begun, m.before = append(m.begun, time.Since(base)), append(m.before, posted)
				}
				f.left--
				f.next(&f.wr, f.left == 0)
				posted++
				if err := f.post(); err != nil {
					return err
				}
			}
		}
		got := s.sendCQ.Poll(s.wc)
		if got == 0 {
			continue
		}
		if err := s.check(got); err != nil {
			return err
		}
		for i := range s.wc[:got] {
			flows[s.wc[i].WRID>>32].retire(s.wc[i : i+1])
			completed += int(uint32(s.wc[i].WRID))
		}
		m.ended, m.within = append(m.ended, time.Since(base)), append(m.within, completed)
	}
	return nil
}

// post posts the request, or keeps it until the list is full or nothing can be added
// to it.
func (f *flow) post() error {
	if cap(f.list) == 1 {
		return f.qp.PostSend(&f.wr)
	}
	f.list = append(f.list, f.wr)
	if len(f.list) < cap(f.list) && f.left > 0 && f.isOpen() {
		return nil
	}
	_, err := f.qp.PostSends(f.list)
	f.list = f.list[:0]
	return err
}

// absorb is the passive side of send_bw: it takes in n messages for every
// queue pair and puts a new receive in the place of each.
func (e *end) absorb(n int) error {
	recvs := make([]verbs.RecvWR, len(e.qps))
	for i := range recvs {
		recvs[i] = e.receive(i)
	}
	for left := n * len(e.qps); left > 0; {
		got, err := e.spin(e.recvCQ)
		if err != nil {
			return err
		}
		for i := range e.wc[:got] {
			qp := e.wc[i].WRID
			if err := e.qps[qp].PostRecv(&recvs[qp]); err != nil {
				return err
			}
		}
		left -= got
	}
	return nil
}

// bandwidth is what the active side does for one size, and what comes of it.
func (s *side) bandwidth(size, warm, iters int) (work func(base time.Time) error, row func() Row) {
	groups := 2 * len(s.qps) * (max(iters, warm) + 1) // room enough, so that nothing grows
	if mod := newWindow(0, s.cfg.TxDepth).mod; mod > 1 {
		groups = groups/mod + 2*len(s.qps)
	}
	ms := [2]*marks{newMarks(groups), newMarks(groups)}
	work = func(base time.Time) error {
		if err := s.stream(size, warm, ms[0], base); err != nil {
			return err
		}
		return s.stream(size, iters, ms[1], base)
	}
	return work, func() Row {
		bw := ms[1].summarize(size)
		return Row{Bytes: size, Iters: iters * len(s.qps), Bandwidth: &bw}
	}
}
