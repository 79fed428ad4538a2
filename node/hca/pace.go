package hca

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Static rate control (IBA 9.11): what goes to a destination whose way is slower than the port is injected no faster
// than that way takes it. Whoever addresses a queue pair by path records gives it the rate of its way, which a manager
// may have bounded, for a partition, say. The queue pair waits as a whole, its acknowledgements too, for at most the
// time of the packet before.

// slowRate is the rate by which packets to a destination are held back at a port, 0 if they are not.
func (p *Port) slowRate(code uint8) mad.Rate {
	if r := mad.Rate(code); r.IsValid() && r.Less(mad.RateOf(p.Rate)) {
		return r
	}
	return 0
}

// sendRate is the rate of the next packet's destination, 0 if nothing holds it back.
func (q *QP) sendRate() mad.Rate {
	if !q.isUD() || q.sqCursor == q.sqNext {
		return q.path.rate
	}
	a := &q.sq[q.sqCursor&q.sqMask].ah.attr
	if a.StaticRate == 0 {
		return 0
	}
	return q.h.ports[a.Port].slowRate(a.StaticRate)
}

// pace makes the queue pair wait for as long as p takes at a rate, the port's if it is 0, and for some time more. A
// driver that was late may make up for Config.CatchUp of it.
func (q *QP) pace(now ib.Time, p *wire.Packet, r mad.Rate, more ib.Time) {
	n := int(p.WireWords()) * 4
	takes := q.h.ports[q.path.port].byteTime(n)
	if r != 0 {
		takes = r.ByteTime(n)
	}
	q.waitUntil(now, max(q.freeAt, now-q.h.cfg.CatchUp)+takes+more)
}

// waitUntil keeps a queue pair from sending before a time.
func (q *QP) waitUntil(now, at ib.Time) {
	if q.freeAt = at; at > now {
		q.h.ready.remove(q)
		q.paced = true
		q.armTimer(at)
	}
}

// limit is a rate that the program has given to a queue pair.
type limit struct {
	kbps  uint32
	burst ib.Time // how long a burst takes at this rate
	due   ib.Time // when what was sent has gone at this rate
}

// MinRateLimit is the least rate in kb/s. At less a packet would hold back acknowledgements for longer than peers wait.
const MinRateLimit = 1000

// takes is how long n bytes take.
func (l *limit) takes(n int) ib.Time { return ib.Time(int64(n) * 8_000_000_000 / int64(l.kbps)) }

// LimitRate bounds what a queue pair sends to a rate in kb/s, headers included and acknowledgements not, after bursts
// of that many bytes: ibv_modify_qp_rate_limit. 0 is no limit.
func (h *HCA) LimitRate(q *QP, kbps, burst uint32) error {
	const verb = "modify_qp"
	switch {
	case q == nil || q.dead:
		return attrErr(ErrDestroyed, verb, "qp", q, "a live queue pair")
	case q.typ == XRCRecv:
		return badAttr(verb, "qp_type", q.typ, "one that sends")
	case q.state != StateRTS && q.state != StateSQD:
		return attrErr(ErrState, verb, "qp_state", q.state, "RTS or SQD")
	case kbps != 0 && kbps < MinRateLimit:
		return badAttr(verb, "rate_limit", kbps, fmt.Sprintf("0, or %d and more", MinRateLimit))
	case kbps == 0 && burst != 0:
		return badAttr(verb, "max_burst_sz", burst, "0 without a rate")
	case kbps == 0:
		q.limit = nil
		return nil
	}
	l := &limit{kbps: kbps, due: -ib.Never}
	l.burst = l.takes(int(burst))
	if q.limit != nil {
		l.due = q.limit.due // nobody gets another burst by asking for the rate again
	}
	q.limit = l
	return nil
}

// RateLimit is the rate in kb/s that LimitRate has set, 0 if there is none.
func (q *QP) RateLimit() uint32 {
	if q.limit == nil {
		return 0
	}
	return q.limit.kbps
}

// shape makes the queue pair wait as its limit wants it after p.
func (q *QP) shape(now ib.Time, p *wire.Packet) {
	if k := p.BTH.Opcode.Info().Kind; k == wire.KindAck || k == wire.KindCNP {
		return
	}
	n := int(p.WireWords()) * 4
	if q.roce != nil {
		n = int(ethernetBytes(p))
	}
	l := q.limit
	l.due = max(l.due, now-q.h.cfg.CatchUp) + l.takes(n)
	if at := l.due - l.burst; at > max(now, q.freeAt) {
		q.waitUntil(now, at)
	}
}

// maxBundle is how many packets may go as one: with a limit as many as take some 20 microseconds, since all wait then.
func (q *QP) maxBundle() int {
	most := q.h.cfg.MaxBundle
	if q.limit != nil {
		most = min(most, max(1, int(q.limit.kbps/400)>>q.mtuShift))
	}
	return most
}
