package hca

import (
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
