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
func (e *end) stream(t Test, size, n, depth, list int, peer *end, m *marks, base time.Time) error {
	flows := make([]flow, len(e.qps))
	for i := range flows {
		flows[i] = flow{window: newWindow(i, depth), qp: e.qps[i], wr: e.request(t, i, size, peer), list: make([]verbs.SendWR, 0, list), left: n}
	}
	posted, completed := 0, 0
	for completed < n*len(flows) {
		if e.stop.Load() {
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
		got := e.sendCQ.Poll(e.wc)
		if got == 0 {
			continue
		}
		if err := e.check(got); err != nil {
			return err
		}
		for i := range e.wc[:got] {
			flows[e.wc[i].WRID>>32].retire(e.wc[i : i+1])
			completed += int(uint32(e.wc[i].WRID))
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
	return e.serve() // the last acknowledgements
}

// bandwidth measures one size.
func (r *runner) bandwidth(size int) (Row, error) {
	iters := r.cfg.iters(size)
	warm := warmup(size, iters)
	t, a, b, depth := r.cfg.Test, r.active, r.passive, r.cfg.TxDepth
	groups := 2 * len(a.qps) * (max(iters, warm) + 1) // room enough, so that nothing grows
	if mod := newWindow(0, depth).mod; mod > 1 {
		groups = groups/mod + 2*len(a.qps)
	}
	ms := [2]*marks{newMarks(groups), newMarks(groups)}
	base := time.Now()
	serve := b.serve
	if t == SendBW {
		serve = func() error { return b.absorb(warm + iters) }
	}
	err := r.both(func() error {
		if err := a.stream(t, size, warm, depth, r.cfg.PostList, b, ms[0], base); err != nil {
			return err
		}
		return a.stream(t, size, iters, depth, r.cfg.PostList, b, ms[1], base)
	}, serve)
	if err != nil {
		return Row{}, err
	}
	if err := r.verify(size, 0); err != nil {
		return Row{}, err
	}
	bw := ms[1].summarize(size)
	return Row{Bytes: size, Iters: iters * len(a.qps), Bandwidth: &bw}, nil
}
