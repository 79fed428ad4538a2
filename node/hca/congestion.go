package hca

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Congestion control (IBA A10.2.2): who receives a packet that a switch has marked (FECN) tells its sender (BECN), and
// who is told waits longer between packets, by a table into which it goes further with every such word, and from which
// it comes back with time.

// Congestion is how a port slows down.
type Congestion struct {
	// Levels that do: bit n stands for level n.
	Levels uint16
	// ByLevel: all queue pairs of a level slow down together, rather than each by itself.
	ByLevel bool
	// Entries are what each level does.
	Entries [ib.NumSL]CongestionEntry
	// Table says how long to wait after a packet, by index: a multiple of the time that the packet takes, in the low 14
	// bits, of which the high two say how often it is halved.
	Table []uint16
	// Limit is the last index that is used.
	Limit uint16
}

// CongestionEntry is what packets of a level do.
type CongestionEntry struct {
	// Timer is after how long the index goes back by one, in units of 1.024 us; 0 never does.
	Timer uint16
	// Increase is by how much it grows, and Min what it does not fall below.
	Increase, Min uint8
}

// ccTick is the unit of CongestionEntry.Timer.
const ccTick = 1024 * ib.Nanosecond

// told counts the packets of each level that were marked, and that told of it.
type told struct{ fecn, becn [ib.NumSL]uint64 }

// slowing is how far into the table somebody is.
type slowing struct {
	index uint16
	since ib.Time // when it last went back
}

// congestion is what a port has for it.
type congestion struct {
	Congestion
	levels [ib.NumSL]slowing
}

// Congestion is how a port slows down; the zero value does not.
func (h *HCA) Congestion(n ib.PortNum) Congestion {
	if int(n) < len(h.cc) && h.cc[n] != nil {
		return h.cc[n].Congestion
	}
	return Congestion{}
}

// SetCongestion sets it. Who is slow begins anew.
func (h *HCA) SetCongestion(n ib.PortNum, c Congestion) {
	for len(h.cc) < len(h.ports) {
		h.cc = append(h.cc, nil)
	}
	h.cc[n] = &congestion{Congestion: c}
	for _, q := range h.qps {
		if q != nil && q.attr.Port == n {
			q.slow = slowing{}
		}
	}
}

// slowed is where a queue pair's slowness is kept; nil if its level has none.
func (h *HCA) slowed(q *QP, port ib.PortNum, sl ib.SL) (*congestion, *slowing) {
	if int(port) >= len(h.cc) || h.cc[port] == nil || h.cc[port].Levels>>(sl&15)&1 == 0 {
		return nil, nil
	}
	c := h.cc[port]
	if c.ByLevel {
		return c, &c.levels[sl&15]
	}
	return c, &q.slow
}

// recover lets time do its work.
func (c *congestion) recover(now ib.Time, s *slowing, sl ib.SL) {
	e := &c.Entries[sl&15]
	if e.Timer == 0 || s.index <= uint16(e.Min) {
		s.since = now
		return
	}
	step := ib.Time(e.Timer) * ccTick
	if n := (now - s.since) / step; n > 0 {
		s.index = uint16(max(int64(s.index)-int64(n), int64(e.Min)))
		s.since += n * step
	}
}

// noteCongestion looks at what a packet that has arrived says of congestion.
func (q *QP) noteCongestion(now ib.Time, port ib.PortNum, p *wire.Packet) {
	h := q.h
	if h.told == nil {
		h.told = make([]told, len(h.ports))
	}
	if p.BTH.FECN {
		h.Stats.FECNs++
		h.told[port].fecn[p.LRH.SL&15]++
		if h.cfg.RoCE.DCQCN.On {
			q.tellCNP(now)
		} else {
			q.tellBECN = true
		}
	}
	if !p.BTH.BECN {
		return
	}
	h.Stats.BECNs++
	h.told[port].becn[p.LRH.SL&15]++
	if h.cfg.RoCE.DCQCN.On {
		q.slowDown(now)
		return
	}
	c, s := h.slowed(q, port, q.path.sl)
	if c == nil {
		return
	}
	c.recover(now, s, q.path.sl)
	s.index = min(s.index+uint16(c.Entries[q.path.sl&15].Increase), c.Limit)
}

// waits is how long a queue pair waits after a packet because of congestion.
func (q *QP) waits(now ib.Time, p *wire.Packet) ib.Time {
	c, s := q.h.slowed(q, q.path.port, q.path.sl)
	if c == nil {
		return 0
	}
	c.recover(now, s, q.path.sl)
	at := max(s.index, uint16(c.Entries[q.path.sl&15].Min))
	if int(at) >= len(c.Table) {
		return 0
	}
	e := c.Table[at]
	t := mad.RateOf(q.h.ports[q.path.port].Rate).ByteTime(int(p.WireWords()) * 4)
	return t >> (e >> 14) * ib.Time(e&(1<<14-1))
}
