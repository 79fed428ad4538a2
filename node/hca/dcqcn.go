package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// RoCE is what an adapter of RoCEv2 does that one of InfiniBand does not. The zero value is InfiniBand.
type RoCE struct {
	// On makes it one.
	On bool
	// DCQCN slows senders down that meet congestion; see there.
	DCQCN DCQCN
	// Selective repeats only packets that are lost; see there.
	Selective Selective
	// ByGID makes ways depend on GIDs alone, which are IP addresses, as on a network that is no simulation.
	ByGID bool
	// Window is how many packets a reliable queue pair has under way at most, where nothing else keeps it from sending
	// more than a network's buffers hold; 0 is no bound.
	Window int
	// Endless: tries never run out. Without it a connection ends whose packets were lost too often in a row.
	Endless bool
}

// ackWithin is after how many packets one asks for an acknowledgement: four times in a window.
func (r *RoCE) ackWithin() int {
	if r.Window == 0 {
		return ackEvery
	}
	return max(r.Window/4, 1)
}

// DCQCN is the congestion control of Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM 2015.
// Switches mark packets, their receiver sends congestion notification packets (CNP), and the sender of the flow, a
// queue pair, cuts its rate when one comes and raises it while none does. Zero fields take the paper's values.
type DCQCN struct {
	On bool
	// CNPInterval is the least time between two notifications of a flow (50 us).
	CNPInterval ib.Time
	// AlphaTimer is after how long without one the estimate of congestion falls, and GShift by how much: by 1/2^GShift
	// of itself (55 us, 8).
	AlphaTimer ib.Time
	GShift     uint8
	// RateTimer and ByteCounter are after how long, and after how many bytes, the rate is raised (55 us, 10 MB). The
	// first Rounds times of each it goes half the way back to where it was (5), then that mark grows as well, by
	// AdditiveMbps (40), and by HyperMbps for each further round when both have gone that far (400: the paper names
	// no value; adapters come with ten times the additive one).
	RateTimer               ib.Time
	ByteCounter             int64
	Rounds                  int
	AdditiveMbps, HyperMbps int64
	// MinMbps is the lowest rate (100; the paper names none, its authors' simulator has this one).
	MinMbps int64
}

func (d *DCQCN) setDefaults() {
	for _, f := range []struct {
		at    *ib.Time
		value ib.Time
	}{{&d.CNPInterval, 50 * ib.Microsecond}, {&d.AlphaTimer, 55 * ib.Microsecond},
		{&d.RateTimer, 55 * ib.Microsecond}} {
		if *f.at == 0 {
			*f.at = f.value
		}
	}
	for _, f := range []struct {
		at    *int64
		value int64
	}{{&d.ByteCounter, 10_000_000}, {&d.AdditiveMbps, 40}, {&d.HyperMbps, 400}, {&d.MinMbps, 100}} {
		if *f.at == 0 {
			*f.at = f.value
		}
	}
	if d.GShift == 0 {
		d.GShift = 8
	}
	if d.Rounds == 0 {
		d.Rounds = 5
	}
}

// roceQP is what a queue pair of RoCEv2 has beyond one of InfiniBand.
type roceQP struct {
	cnpAt ib.Time // when the next notification may be sent at the earliest
	limit limiter
	sel   selective
}

// limiter is the rate limiter of a flow: the paper's reaction point. Rates are in bits a second.
type limiter struct {
	on              bool // a notification has come at some time
	alpha           int64
	now, target     int64 // the rate, and where it goes back to
	line            int64
	alphaAt, rateAt ib.Time // when the timers run out next
	bytes           int64   // since the byte counter ran out
	times, counts   int     // how often timer and counter have run out since the last notification
}

// alphaOne is an alpha of 1.
const alphaOne = 1 << 20

// cut is what a notification does.
func (l *limiter) cut(now ib.Time, d *DCQCN, line int64) {
	if !l.on {
		*l = limiter{on: true, alpha: alphaOne, now: line, target: line, line: line, alphaAt: now + d.AlphaTimer,
			rateAt: now + d.RateTimer}
	}
	l.pass(now, d)
	l.target = l.now
	l.now = max(l.now-l.now*l.alpha/(2*alphaOne), d.MinMbps*1_000_000)
	l.alpha += (alphaOne - l.alpha) >> d.GShift
	l.alphaAt, l.rateAt = now+d.AlphaTimer, now+d.RateTimer
	l.bytes, l.times, l.counts = 0, 0, 0
}

// pass lets the timers run out that have by now. Nothing is missed by looking only when a packet is to be sent or a
// notification comes.
func (l *limiter) pass(now ib.Time, d *DCQCN) {
	for ; now >= l.alphaAt && l.alpha > 0; l.alphaAt += d.AlphaTimer {
		l.alpha -= max(l.alpha>>d.GShift, 1)
	}
	for ; now >= l.rateAt && l.now < l.line; l.rateAt += d.RateTimer {
		l.times++
		l.raise(d)
	}
}

// raise is one step of the way back.
func (l *limiter) raise(d *DCQCN) {
	switch {
	case max(l.times, l.counts) < d.Rounds:
	case min(l.times, l.counts) > d.Rounds:
		l.target += d.HyperMbps * 1_000_000 * int64(min(l.times, l.counts)-d.Rounds)
	default:
		l.target += d.AdditiveMbps * 1_000_000
	}
	l.target = min(l.target, l.line)
	l.now = (l.now + l.target) / 2
	if l.line-l.now < 1_000_000 {
		l.now = l.line
	}
}

// sent counts a packet and is how long the flow waits after it.
func (l *limiter) sent(now ib.Time, d *DCQCN, bytes int64) ib.Time {
	l.pass(now, d)
	for l.bytes += bytes; l.bytes >= d.ByteCounter && l.now < l.line; l.bytes -= d.ByteCounter {
		l.counts++
		l.raise(d)
	}
	if l.now >= l.line {
		return 0
	}
	return ib.Time(bytes * 8 * 1_000_000 / (l.now / 1_000_000))
}

// Rate is how fast a queue pair may send, in bits a second; 0 if congestion has never slowed it down.
func (q *QP) Rate() int64 {
	if q.roce == nil {
		return 0
	}
	return q.roce.limit.now
}

// ethernetBytes is how many bytes of an Ethernet cable a packet takes: see link.EthernetExtra.
func ethernetBytes(p *wire.Packet) int64 { return int64(p.WireWords())*4 + 58 }

// tellCNP has the sender of a flow told that a packet of it met congestion, if it was not just now.
func (q *QP) tellCNP(now ib.Time) {
	r := q.roce
	if q.isUD() || q.cnpDue || now < r.cnpAt {
		return
	}
	r.cnpAt = now + q.h.cfg.RoCE.DCQCN.CNPInterval
	q.oweCNP()
}

// slowDown is what a notification does to the flow.
func (q *QP) slowDown(now ib.Time) {
	port := &q.h.ports[q.path.port]
	line := port.CableRate
	if line == 0 {
		line = port.Rate.Mbps() * 1_000_000
	}
	if line <= 0 {
		return // nobody says how fast the link is
	}
	q.roce.limit.cut(now, &q.h.cfg.RoCE.DCQCN, line)
}

// limitRate makes the queue pair wait after a packet for as long as its rate asks for.
func (q *QP) limitRate(now ib.Time, p *wire.Packet) {
	l := &q.roce.limit
	if k := p.BTH.Opcode.Info().Kind; !l.on || k == wire.KindAck || k == wire.KindCNP {
		return
	}
	if wait := l.sent(now, &q.h.cfg.RoCE.DCQCN, ethernetBytes(p)); wait > 0 {
		q.waitUntil(now, max(q.freeAt, now-q.h.cfg.CatchUp)+wait)
	}
}
