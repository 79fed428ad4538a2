package tunnel

import "softib/proto/ib"

// Constants of RFC 9002, with what suits machines of one cluster: timers fire within a millisecond, and a way is short.
const (
	reorderMax   = 3 // datagrams by which one may be overtaken
	granularity  = ib.Millisecond
	rttFirst     = 100 * ib.Millisecond
	probesEach   = 2
	probeWaitMax = 250 * ib.Millisecond
	windowStart  = 10 // datagrams
	windowLeast  = 2
)

// record is a datagram that was sent.
type record struct {
	at    ib.Time
	piece span
	size  int32
	open  bool // neither acknowledged nor lost
}

// records are those whose numbers run from base up to next.
type records struct {
	buf        []record // a power of two
	base, next uint64
}

func (r *records) at(number uint64) *record { return &r.buf[number&uint64(len(r.buf)-1)] }

func (r *records) push(v record) {
	if r.next-r.base == uint64(len(r.buf)) {
		old := *r
		r.buf = make([]record, max(256, 2*len(r.buf)))
		for n := r.base; n < r.next; n++ {
			*r.at(n) = *old.at(n)
		}
	}
	*r.at(r.next) = v
	r.next++
	r.trim()
}

// trim forgets the oldest that are not open.
func (r *records) trim() {
	for r.base < r.next && !r.at(r.base).open {
		r.base++
	}
}

// oldest is the lowest open number; or else the one that is given, which is the next.
func (r *records) oldest(next uint64) uint64 {
	if r.base == r.next {
		return next
	}
	return r.base
}

// recovery is RFC 9002: what is under way, how long that takes, what is lost, and how much may be under way.
type recovery struct {
	sent     records
	underWay int // bytes of open datagrams
	opened   ib.Time

	rtt, rttVar, rttMin, rttLast ib.Time

	largest  uint64  // acknowledged number and one; 0 if none is
	lossAt   ib.Time // when the next one is lost by time
	probes   int     // that are to be sent now
	timeouts int     // without an answer

	mtu       int
	window    int    // bytes that may be under way
	threshold int    // where slow start ends
	credit    int    // bytes acknowledged since the window last grew by a datagram
	recovers  uint64 // losses of lower numbers have been answered
	held      bool   // there was more to send than the window let
}

func (r *recovery) init(mtu int) {
	r.mtu = mtu
	r.window = windowStart * mtu
	r.threshold = 1 << 62
	r.lossAt = ib.Never
}

// send takes note of a datagram that goes out.
func (r *recovery) send(v record) {
	if v.open {
		r.underWay += int(v.size)
		r.opened = v.at
	}
	r.sent.push(v)
}

// timeout is how long an acknowledgement may take (RFC 9002 section 6.2.1).
func (r *recovery) timeout() ib.Time {
	if r.rtt == 0 {
		return 2 * rttFirst
	}
	return r.rtt + max(4*r.rttVar, granularity) + ackDelay
}

// deadline is when something is lost or has to be probed for.
func (r *recovery) deadline() ib.Time {
	switch {
	case r.underWay == 0 || r.probes > 0:
		return ib.Never
	case r.lossAt != ib.Never:
		return r.lossAt
	}
	return r.opened + min(r.timeout()<<min(r.timeouts, 10), max(probeWaitMax, r.timeout()))
}

// handleRecovery does what is due by time.
func (s *Session) handleRecovery(now ib.Time) {
	r := &s.rec
	if now < r.deadline() {
		return
	}
	if r.lossAt != ib.Never {
		s.detectLoss(now)
		return
	}
	r.timeouts++
	r.probes = probesEach
	s.stats.Probes += probesEach
	if !s.out.hasData() {
		s.out.lost.add(r.sent.at(r.sent.base).piece)
	}
}

// acknowledged takes the acknowledgement that was parsed last, and reports whether more of the stream has
// arrived.
func (s *Session) acknowledged(now ib.Time) bool {
	r, o, a := &s.rec, &s.out, &s.in.ack
	o.limit = max(o.limit, a.limit)
	largest := a.spans[0].to
	if largest > o.keyFrom {
		o.proven = true
	}
	r.largest = max(r.largest, largest)
	bytes, news := 0, false
	for i, sp := range a.spans[:a.n] {
		for n := max(sp.from, r.sent.base); n < min(sp.to, r.sent.next); n++ {
			v := r.sent.at(n)
			if !v.open {
				continue
			}
			v.open = false
			bytes += int(v.size)
			news = o.acknowledge(v.piece) || news
			if i == 0 && n+1 == sp.to {
				r.measure(now-v.at, ib.Time(a.delayUs)*ib.Microsecond)
			}
			if n >= r.recovers {
				r.grow(int(v.size))
			}
		}
	}
	if bytes > 0 {
		r.underWay -= bytes
		r.held = r.held && o.hasData()
	}
	s.detectLoss(now)
	if bytes > 0 {
		r.timeouts, r.probes = 0, 0
	}
	return news
}

// measure takes the time between a datagram and its acknowledgement (RFC 9002 section 5.3).
func (r *recovery) measure(took, delay ib.Time) {
	took = max(took, ib.Nanosecond)
	r.rttLast = took
	if r.rtt == 0 {
		r.rtt, r.rttVar, r.rttMin = took, took/2, took
		return
	}
	r.rttMin = min(r.rttMin, took)
	if delay = min(delay, ackDelay); took >= r.rttMin+delay {
		took -= delay
	}
	r.rttVar += (max(r.rtt-took, took-r.rtt) - r.rttVar) / 4
	r.rtt += (took - r.rtt) / 8
}

// grow lets more be under way (RFC 9002 section 7.3): twice as much a round trip until the first loss, a datagram a
// round trip thereafter. A window that is not used proves nothing and does not grow.
func (r *recovery) grow(bytes int) {
	if !r.held {
		return
	}
	if r.window < r.threshold {
		r.window += bytes
		return
	}
	if r.credit += bytes; r.credit >= r.window {
		r.credit -= r.window
		r.window += r.mtu
	}
}

// detectLoss gives up on datagrams that later ones have overtaken by number or by time (RFC 9002 section 6.1).
func (s *Session) detectLoss(now ib.Time) {
	r, o := &s.rec, &s.out
	wait := max(max(r.rtt, r.rttLast)*9/8, granularity)
	r.lossAt = ib.Never
	highest, lost := uint64(0), false
	for n := r.sent.base; n < min(r.largest, r.sent.next); n++ {
		v := r.sent.at(n)
		if !v.open {
			continue
		}
		if n+reorderMax >= r.largest && now < v.at+wait {
			r.lossAt = v.at + wait // the first that is left is the oldest
			break
		}
		v.open = false
		r.underWay -= int(v.size)
		if !plantForget {
			o.lost.add(v.piece)
		}
		if v.piece == (span{}) {
			o.ping = true // it may have had a window to tell
		}
		s.stats.Lost++
		highest, lost = n, true
	}
	if lost && highest >= r.recovers {
		// Once a round trip (RFC 9002 section 7.3.2). Where all is lost for long, from the beginning (7.6).
		r.recovers = r.sent.next
		r.threshold = max(r.window/2, windowLeast*r.mtu)
		r.window = r.threshold
		if r.timeouts > 2 {
			r.window = windowLeast * r.mtu
		}
		r.credit = 0
	}
	r.sent.trim()
}
