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
	Table [CongestionSteps]uint16
	// Limit is the last index that is used.
	Limit uint16
}

// CongestionSteps is how many entries a port's table has.
const CongestionSteps = 128

// CongestionEntry is what packets of a level do.
type CongestionEntry struct {
	// Timer is after how long the index goes back by one, in units of 1.024 us; 0 never does.
	Timer uint16
	// Increase is by how much it grows, and Min what it does not fall below.
	Increase, Min uint8
}

// ccTick is the unit of CongestionEntry.Timer.
const ccTick = 1024 * ib.Nanosecond

// Told counts the packets of each level that a port has received which were marked, and which told of it.
type Told struct{ FECN, BECN [ib.NumSL]uint64 }

// slowing is how far into the table somebody is.
type slowing struct {
	index uint16
	since ib.Time // when it last went back
}

// congestion is what a port has for it.
type congestion struct {
	*Congestion
	levels [ib.NumSL]slowing
}

// SetCongestion sets how a port slows down.
func (h *HCA) SetCongestion(n ib.PortNum, c Congestion) {
	h.ports[n].Congestion = &c
	h.newCongestion(n)
}

// newCongestion does what a port has been told of it. Who is slow stays so, as far as the new settings go.
func (h *HCA) newCongestion(n ib.PortNum) {
	for len(h.cc) < len(h.ports) {
		h.cc = append(h.cc, nil)
	}
	old := h.cc[n]
	if h.cc[n] = nil; h.ports[n].Congestion != nil {
		h.cc[n] = &congestion{Congestion: h.ports[n].Congestion}
		if old != nil {
			h.cc[n].levels = old.levels
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
	told := h.toldAt(port)
	if p.BTH.FECN {
		h.Stats.FECNs++
		told.FECN[p.LRH.SL&15]++
		switch {
		case h.cfg.RoCE.DCQCN.On:
			q.tellCNP(now)
		case h.cfg.CNP:
			q.notify(port, p)
		default:
			q.tellBECN = true
		}
	}
	if !p.BTH.BECN {
		return
	}
	h.Stats.BECNs++
	told.BECN[p.LRH.SL&15]++
	if h.cfg.RoCE.DCQCN.On {
		q.slowDown(now)
		return
	}
	sl := q.path.sl
	if q.isUD() {
		sl = p.LRH.SL
	}
	c, s := h.slowed(q, port, sl)
	if c == nil {
		return
	}
	c.recover(now, s, sl)
	s.index = min(s.index+uint16(c.Entries[sl&15].Increase), c.Limit)
}

// waits is how long a queue pair waits after a packet because of congestion.
func (q *QP) waits(now ib.Time, p *wire.Packet) ib.Time {
	sl := q.path.sl
	if q.isUD() {
		sl = p.LRH.SL
	}
	c, s := q.h.slowed(q, q.path.port, sl)
	if c == nil {
		return 0
	}
	c.recover(now, s, sl)
	at := min(max(s.index, uint16(c.Entries[sl&15].Min)), c.Limit)
	if int(at) >= len(c.Table) || c.Table[at] == 0 {
		return 0
	}
	e := c.Table[at]
	t := q.h.ports[q.path.port].byteTime(int(p.WireWords()) * 4)
	return t >> (e >> 14) * ib.Time(e&(1<<14-1))
}

// byteTime is how long so many bytes take at a port.
func (p *Port) byteTime(n int) ib.Time {
	if p.CableRate != 0 {
		return ib.Time(n) * 8 * ib.Second / ib.Time(p.CableRate)
	}
	return mad.RateOf(p.Rate).ByteTime(n)
}

// toldAt is where what comes to a port is counted.
func (h *HCA) toldAt(port ib.PortNum) *Told {
	if h.told == nil {
		h.told = make([]Told, len(h.ports))
	}
	return &h.told[port]
}

// Told is what the ports have counted, by number; nil if nobody was told anything.
func (h *HCA) Told() []Told { return h.told }

// AddTold adds to what a port has counted: the queue pairs of the adapter may be in other engines.
func (h *HCA) AddTold(port ib.PortNum, t *Told) {
	if h.Port(port) == nil || *t == (Told{}) {
		return
	}
	sum := h.toldAt(port)
	for i := range t.FECN {
		sum.FECN[i] += t.FECN[i]
		sum.BECN[i] += t.BECN[i]
	}
}
