package hca

import "softib/proto/ib"

// timerEntry is one deadline of a queue pair or of a moderated completion
// queue. Entries are not taken out when a deadline moves: the owner knows
// which one counts, the others are skipped when they come up.
type timerEntry struct {
	at ib.Time
	qp *QP
	cq *CQ
}

// timerHeap is a binary heap by time. Ties are broken by insertion order
// through strict comparison alone, which is deterministic.
type timerHeap struct{ e []timerEntry }

func (t *timerHeap) push(at ib.Time, q *QP, c *CQ) {
	t.e = append(t.e, timerEntry{at, q, c})
	i := len(t.e) - 1
	for i > 0 {
		up := (i - 1) / 2
		if t.e[up].at <= t.e[i].at {
			break
		}
		t.e[up], t.e[i] = t.e[i], t.e[up]
		i = up
	}
}

func (t *timerHeap) pop() timerEntry {
	top := t.e[0]
	n := len(t.e) - 1
	t.e[0] = t.e[n]
	t.e[n] = timerEntry{}
	t.e = t.e[:n]
	i := 0
	for {
		l := 2*i + 1
		if l >= n {
			break
		}
		if r := l + 1; r < n && t.e[r].at < t.e[l].at {
			l = r
		}
		if t.e[i].at <= t.e[l].at {
			break
		}
		t.e[i], t.e[l] = t.e[l], t.e[i]
		i = l
	}
	return top
}

// NextDeadline is when HandleTimeout should be called next, or ib.Never. It
// may be early: a deadline that moved back is noticed when it comes up.
func (h *HCA) NextDeadline() ib.Time {
	if len(h.timers.e) == 0 {
		return ib.Never
	}
	return h.timers.e[0].at
}

// HandleTimeout does what is due at now.
func (h *HCA) HandleTimeout(now ib.Time) {
	h.now = now
	for len(h.timers.e) > 0 && h.timers.e[0].at <= now {
		e := h.timers.pop()
		switch {
		case e.qp != nil && e.qp.timerAt == e.at:
			e.qp.timerAt, e.qp.timerLater = e.qp.timerLater, ib.Never
			e.qp.onTimer(now)
		case e.cq != nil && e.cq.modAt == e.at && !e.cq.dead:
			e.cq.modAt = ib.Never
			if e.cq.armed {
				e.cq.fire()
			}
		}
	}
}

// Resume is for a driver whose clock has stood still: what was started at since, by that clock, or later begins at now.
// Time that nobody had counts for no timer.
func (h *HCA) Resume(since, now ib.Time) {
	if h.timed < since {
		return
	}
	for _, e := range h.timers.e {
		q := e.qp
		if q == nil || q.timerAt != e.at {
			continue
		}
		if s := q.selects(); s != nil {
			if q.ackDue != ib.Never && s.since >= since {
				s.since, q.ackDue = now, now+q.selectiveWait()
			}
		} else if d := ib.AckTimeout(q.attr.Timeout); q.ackDue != ib.Never && q.ackDue-d >= since {
			q.ackDue = now + d
		}
		if q.rnrUntil > since {
			q.rnrUntil += now - since
		}
	}
}

// AckWait is how a queue pair waits for acknowledgements.
type AckWait struct {
	Waits   bool    // packets are on their way without one
	Timeout ib.Time // how long it waits; ib.Never is for ever
	Expired uint32  // how often it has done so in vain
}

// AckWait says how the queue pair waits, for whoever watches over timers.
func (q *QP) AckWait() AckWait {
	timeout := ib.AckTimeout(q.attr.Timeout)
	if q.selects() != nil {
		timeout = q.h.cfg.RoCE.Selective.RTOLow
	}
	return AckWait{q.ackPSN != q.sentPSN, timeout, q.expired}
}

// armTimer makes sure that onTimer runs at at or before.
func (q *QP) armTimer(at ib.Time) {
	if at < q.timerAt {
		// What the heap held for us before still comes up, and is remembered:
		// or each RNR wait would leave another ACK timeout behind.
		q.timerLater = q.timerAt
		q.timerAt = at
		q.h.timers.push(at, q, nil)
	}
}

// onTimer looks at the queue pair's deadlines: the RNR wait, the local ACK timeout and
// what its static rate makes it wait for.
func (q *QP) onTimer(now ib.Time) {
	if q.state == StateReset || q.state == StateErr || q.dead {
		return
	}
	if q.rnrUntil != 0 && q.rnrUntil <= now {
		q.rnrUntil = 0
		q.markReady()
	}
	if q.paced && q.freeAt <= now {
		q.paced = false
		q.markReady()
	}
	if q.ackDue <= now {
		q.ackTimeout(now)
	}
	if q.rnrUntil != 0 {
		q.armTimer(q.rnrUntil)
	}
	if q.paced {
		q.armTimer(q.freeAt)
	}
	if q.ackDue != ib.Never {
		q.armTimer(q.ackDue)
	}
}
