package endpoint

import (
	"time"

	"golang.org/x/sys/unix"

	"softib/node/hca"
	"softib/proto/ib"
)

// meter is what an endpoint keeps for its ledger.
type meter struct {
	ledger *Ledger
	// tickAt is when to write it next: at the end of the window of the machine's clock, which showed boot when the
	// endpoint's showed 0.
	tickAt ib.Time
	boot   ib.Time
	window int64
	active []*Route // that packets went by in this window

	// sampleIn is after how many packets the time to an acknowledgement is taken again, if none is awaited.
	sampleIn int64
	dice     uint32
	samples  uint64
	awaited  sample
}

// sample is a packet whose acknowledgement is waited for.
type sample struct {
	qp   *hca.QP // nil if there is none
	life uint32
	psn  ib.PSN
	dlid ib.LID
	at   ib.Time
}

const (
	burstWindow = ib.Time(BurstWindow) * ib.Nanosecond
	// A sample is taken every 48 to 79 packets: reading the clock twice costs about as much as one, and a program that
	// does the same every 64 packets is seen at all of them.
	sampleMin, sampleSpread = 48, 32
)

// CurrentWindow is the window of the machine's monotonic clock.
func CurrentWindow() int64 { return int64(monotonic() / burstWindow) }

func monotonic() ib.Time {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ib.Time(ts.Nano()) * ib.Nanosecond
}

func (m *meter) init(l *Ledger) {
	m.ledger, m.tickAt, m.dice, m.sampleIn = l, ib.Never, 1, sampleMin/4
	if l != nil {
		m.boot = monotonic()
		m.begin(m.boot)
	}
}

// tick ends a window, or several without traffic.
func (e *Endpoint) tick() {
	e.endWindow()
	e.begin(e.boot + e.clock)
	e.publish()
}

// begin begins the window that it is by the machine's clock.
func (m *meter) begin(at ib.Time) {
	m.window = int64(at / burstWindow)
	m.tickAt = ib.Time(m.window+1)*burstWindow - m.boot
}

// endWindow writes down what went by each way in this window.
func (e *Endpoint) endWindow() {
	for i, rt := range e.active {
		n := rt.slot.words - rt.told
		rt.told, rt.active = rt.slot.words, false
		e.active[i] = nil
		if e.ledger != nil {
			e.ledger.PutBurst(Burst{e.window, int(rt.index), n})
		}
	}
	e.active = e.active[:0]
}

// publish writes down what the engine has counted.
//
//go:noinline
func (e *Endpoint) publish() {
	if e.ledger != nil {
		e.ledger.put(e.eng)
	}
}

// count adds packets to their way.
func (e *Endpoint) count(rt *Route, pkts, words uint64) {
	rt.slot.count(pkts, words)
	if !rt.active {
		e.use(rt)
	}
}

// use notes that a way is used in this window.
//
//go:noinline
func (e *Endpoint) use(rt *Route) {
	rt.active = true
	e.active = append(e.active, rt)
}

// sample makes the packet that is about to go, which asks for an acknowledgement, a sample, unless one is awaited, or
// it has gone before: again is how many had before it.
func (e *Endpoint) sample(q *hca.QP, again uint64) {
	if e.ledger == nil || e.awaited.qp != nil || again != e.eng.Stats.Retransmits {
		return
	}
	e.dice = e.dice*1664525 + 1013904223
	e.sampleIn = sampleMin + int64(e.dice>>16)%sampleSpread
	e.awaited = sample{q, q.Life(), e.scratch.BTH.PSN, e.scratch.LRH.DLID, e.Now()}
}

// hear looks whether the acknowledgement that is waited for has come. One that will not come is not counted: it is an
// error, and counted there.
func (e *Endpoint) hear() {
	s := &e.awaited
	if st := s.qp.State(); s.qp.Life() != s.life || st != hca.StateRTS && st != hca.StateSQD {
		s.qp = nil
		return
	}
	if s.qp.Acked(s.psn) {
		s.qp = nil
		e.samples++
		e.ledger.putTime(e.samples, s.dlid, time.Duration((e.Now()-s.at)/ib.Nanosecond))
	}
}
