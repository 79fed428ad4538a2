package link

import "softib/proto/ib"

// waitTickBytes makes a tick of PortXmitWait the time of one 4-byte word at the
// link's rate, so that waiting compares with PortXmitData. The standard leaves
// the tick open (IBA 16.1.3.5).
const waitTickBytes = 4

// total is a lane's totals, to add to. Most ports never have any: they have carried little, or nothing.
func (p *Port) total(vl int) *totals {
	if vl >= len(p.cold.totals) {
		grown := make([]totals, vl+1)
		copy(grown, p.cold.totals)
		p.cold.totals = grown
	}
	return &p.cold.totals[vl]
}

// totals is what they are.
func (p *Port) totals(vl int) totals {
	if vl >= len(p.cold.totals) {
		return totals{}
	}
	return p.cold.totals[vl]
}

// raw is every counter since the port was made: rawCounter of each, in one look at the lanes.
func (p *Port) raw() ib.Counters {
	c := p.cold.count
	var flow uint64
	for vl := range ib.NumVL {
		l, t := p.lane(vl), p.totals(vl)
		c[ib.PortXmitData] += t.txWords + uint64(l.tx.words)
		c[ib.PortXmitPkts] += t.txPkts + uint64(l.tx.pkts)
		c[ib.PortRcvData] += t.rxWords + uint64(l.rx.words)
		c[ib.PortRcvPkts] += t.rxPkts + uint64(l.rx.pkts)
		flow += uint64(l.fcRcvd)
	}
	c[ib.PortMulticastXmitPkts], c[ib.PortMulticastRcvPkts] = p.cold.mcastTx, p.cold.mcastRx
	c[ib.PortUnicastXmitPkts] = c[ib.PortXmitPkts] - p.cold.mcastTx
	c[ib.PortUnicastRcvPkts] = c[ib.PortRcvPkts] - p.cold.mcastRx
	c[ib.PortXmitWait] = p.ticks(p.cold.waited)
	c[ib.PortXmitFlowPkts], c[ib.PortRcvFlowPkts] = uint64(p.fcSent), flow
	return c
}

// rawCounter is one counter since the port was made.
func (p *Port) rawCounter(c ib.Counter) uint64 {
	switch c {
	case ib.PortXmitData, ib.PortXmitPkts, ib.PortRcvData, ib.PortRcvPkts:
		n := p.cold.count[c]
		for vl := range ib.NumVL {
			n += p.laneCounter(vl, c)
		}
		return n
	case ib.PortMulticastXmitPkts:
		return p.cold.mcastTx
	case ib.PortMulticastRcvPkts:
		return p.cold.mcastRx
	case ib.PortUnicastXmitPkts:
		return p.rawCounter(ib.PortXmitPkts) - p.cold.mcastTx
	case ib.PortUnicastRcvPkts:
		return p.rawCounter(ib.PortRcvPkts) - p.cold.mcastRx
	case ib.PortXmitWait:
		return p.ticks(p.cold.waited)
	case ib.PortXmitFlowPkts:
		return uint64(p.fcSent)
	case ib.PortRcvFlowPkts:
		var n uint64
		for vl := range ib.NumVL {
			n += uint64(p.lane(vl).fcRcvd)
		}
		return n
	}
	return p.cold.count[c]
}

// laneCounter is a lane's part of a port's counter.
func (p *Port) laneCounter(vl int, c ib.Counter) uint64 {
	l, t := p.lane(vl), p.totals(vl)
	switch c {
	case ib.PortXmitData:
		return t.txWords + uint64(l.tx.words)
	case ib.PortXmitPkts:
		return t.txPkts + uint64(l.tx.pkts)
	case ib.PortRcvData:
		return t.rxWords + uint64(l.rx.words)
	}
	return t.rxPkts + uint64(l.rx.pkts)
}

func (p *Port) ticks(t ib.Time) uint64 {
	tick := p.cold.cfg.Rate.ByteTime(waitTickBytes)
	if tick <= 0 || tick == ib.Never {
		return 0
	}
	return uint64(t / tick)
}

// Counters reads all counters.
func (p *Port) Counters() ib.Counters {
	c := p.raw()
	if b := p.cold.base; b != nil {
		for i := range c {
			c[i] -= b[i]
		}
	}
	return c
}

// SetCounter writes one counter; management resets them so.
func (p *Port) SetCounter(c ib.Counter, v uint64) {
	if c < ib.NumCounter {
		if p.cold.base == nil {
			p.cold.base = new(ib.Counters)
		}
		p.cold.base[c] = p.rawCounter(c) - v
	}
}

// Counter reads one counter.
func (p *Port) Counter(c ib.Counter) uint64 {
	n := p.rawCounter(c)
	if b := p.cold.base; b != nil {
		n -= b[c]
	}
	return n
}

// LaneCounter reads a counter of lane or level i, as it has been since the port was made.
func (p *Port) LaneCounter(c ib.LaneCounter, i int) uint64 {
	i &= 15
	switch c {
	case ib.VLRcvPkts:
		return p.laneCounter(i, ib.PortRcvPkts)
	case ib.VLRcvData:
		return p.laneCounter(i, ib.PortRcvData)
	case ib.VLXmitWait:
		return p.ticks(p.totals(i).waited)
	case ib.SLXmitData:
		return p.level(i, true)
	case ib.SLRcvData:
		return p.level(i, false)
	case ib.VLMarked:
		return p.Marked(ib.VL(i))
	case ib.VLXmitTimeCong:
		return p.ticks(p.congestedFor(i))
	}
	return 0
}

// level is how many words of a service level were sent or received.
func (p *Port) level(sl int, sent bool) uint64 {
	var n uint64
	for vl := range ib.NumVL {
		l, t := p.lane(vl), p.totals(vl)
		of, words, old := l.rx.sl, l.rx.words, t.rxWords
		if sent {
			of, words, old = l.rx.txSL, l.tx.words, t.txWords
		}
		if int(of) == sl {
			n += uint64(words)
		}
		if p.cold.levels == nil && sl == 0 {
			n += old
		}
	}
	switch v := p.cold.levels; {
	case v == nil:
		return n
	case sent:
		return n + v.tx[sl]
	default:
		return n + v.rx[sl]
	}
}

// AddCounter adds to a counter that the node rather than the link keeps, such
// as QP1Dropped.
func (p *Port) AddCounter(c ib.Counter, n uint64) {
	if c < ib.NumCounter {
		p.cold.count[c] += n
	}
}

// AddTraffic counts packets that crossed the port, out of it or into it, other than by its queues: a driver that knows
// their way spares the engine each of them. Words are those of all of them.
func (p *Port) AddTraffic(out bool, vl ib.VL, sl ib.SL, multicast bool, pkts, words uint64) {
	if sl &= 15; sl != 0 {
		p.countLevels()
	}
	t, mcast := p.total(int(vl&15)), &p.cold.mcastRx
	sumPkts, sumWords := &t.rxPkts, &t.rxWords
	if out {
		mcast, sumPkts, sumWords = &p.cold.mcastTx, &t.txPkts, &t.txWords
	}
	*sumPkts += pkts
	*sumWords += words
	if multicast {
		*mcast += pkts
	}
	if v := p.cold.levels; v != nil && out {
		v.tx[sl] += words
	} else if v != nil {
		v.rx[sl] += words
	}
}

// VLCounters are what one lane carried.
type VLCounters struct {
	XmitPkts, XmitData uint64
	RcvPkts, RcvData   uint64
	XmitWait           uint64
}

// VLCounters reads one lane's.
func (p *Port) VLCounters(vl ib.VL) VLCounters { return p.laneCounters(int(vl & 15)) }

func (p *Port) laneCounters(vl int) VLCounters {
	l, t := p.lane(vl), p.totals(vl)
	return VLCounters{
		t.txPkts + uint64(l.tx.pkts), t.txWords + uint64(l.tx.words),
		t.rxPkts + uint64(l.rx.pkts), t.rxWords + uint64(l.rx.words),
		p.ticks(t.waited),
	}
}

// fold moves a lane's short counters to its totals.
func (p *Port) fold(vl int) {
	l, t := p.lane(vl), p.total(vl)
	if v := p.cold.levels; v != nil {
		v.tx[l.rx.txSL] += uint64(l.tx.words)
		v.rx[l.rx.sl] += uint64(l.rx.words)
	}
	t.txPkts, t.txWords = t.txPkts+uint64(l.tx.pkts), t.txWords+uint64(l.tx.words)
	t.rxPkts, t.rxWords = t.rxPkts+uint64(l.rx.pkts), t.rxWords+uint64(l.rx.words)
	l.tx.pkts, l.tx.words, l.rx.pkts, l.rx.words = 0, 0, 0, 0
}

// relevel makes a lane count for other service levels from here on. Most lanes carry one
// level, so that counting by level costs a packet one comparison.
func (p *Port) relevel(vl int, tx, rx ib.SL) {
	p.countLevels()
	p.fold(vl)
	l := p.lane(vl)
	l.rx.txSL, l.rx.sl = tx&15, rx&15
}

// countLevels makes totals count by service level too from here on.
func (p *Port) countLevels() {
	if p.cold.levels != nil {
		return
	}
	v := new(levels)
	for i := range p.cold.totals {
		v.tx[0] += p.cold.totals[i].txWords
		v.rx[0] += p.cold.totals[i].rxWords
	}
	p.cold.levels = v
}

// FCPackets counts the flow-control packets sent.
func (p *Port) FCPackets() uint64 { return uint64(p.fcSent) }
