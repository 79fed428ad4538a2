package sim

import "softib/proto/ib"

// WakeKind says why Next returned.
type WakeKind uint8

// Kinds of wake-up.
const (
	WakeLimit WakeKind = iota // the time that was asked for has come
	WakeIdle                  // nothing will ever happen again by itself
	WakeHost                  // a host has completions or asynchronous events
	WakeTimer                 // a timer set with At
)

// Wake is something that the workload asked to be told of.
type Wake struct {
	Kind WakeKind
	Host int
	ID   uint64
}

// At sets a timer: Next reports id when t has come.
func (s *Sim) At(t ib.Time, id uint64) {
	var slot uint32
	if n := len(s.free); n > 0 {
		slot = s.free[n-1]
		s.free = s.free[:n-1]
		s.timers[slot] = id
	} else {
		slot = uint32(len(s.timers))
		s.timers = append(s.timers, id)
	}
	s.q.push(max(t, s.now), code(evUser, 0, slot))
}

// Step lets the next event happen. It reports false when there is none.
func (s *Sim) Step() bool {
	if _, ok := s.q.peek(); !ok {
		return false
	}
	s.step()
	return true
}

// poll takes the next report.
func (s *Sim) poll() (Wake, bool) {
	if s.wakesAt == len(s.wakes) {
		return Wake{}, false
	}
	w := s.wakes[s.wakesAt]
	if s.wakesAt++; s.wakesAt == len(s.wakes) {
		s.wakes, s.wakesAt = s.wakes[:0], 0
	}
	if w.Kind == WakeHost {
		s.hosts[w.Host].waking = false
	}
	return w, true
}

// Next runs until there is something for the workload, until has come, or
// nothing is left to happen. After WakeLimit, Now is until.
func (s *Sim) Next(until ib.Time) Wake {
	for {
		if w, ok := s.poll(); ok {
			return w
		}
		t, ok := s.q.peek()
		if !ok {
			return Wake{Kind: WakeIdle}
		}
		if t > until {
			s.now = max(s.now, until)
			return Wake{Kind: WakeLimit}
		}
		s.step()
	}
}

// Run runs until the given time, whatever there is to report; reports are kept
// for Next.
func (s *Sim) Run(until ib.Time) {
	for t, ok := s.q.peek(); ok && t <= until; t, ok = s.q.peek() {
		s.step()
	}
	s.now = max(s.now, until)
}

// RunUntilIdle runs until nothing is left to happen, or limit has come. It
// reports whether the fabric is at rest.
func (s *Sim) RunUntilIdle(limit ib.Time) bool {
	for t, ok := s.q.peek(); ok; t, ok = s.q.peek() {
		if t > limit {
			s.now = max(s.now, limit)
			return false
		}
		s.step()
	}
	return true
}
