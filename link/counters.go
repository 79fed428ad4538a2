package link

import "softib/ib"

// waitTickBytes makes a tick of PortXmitWait the time of one 4-byte word at the
// link's rate, so that waiting compares with PortXmitData. The standard leaves
// the tick open (IBA 16.1.3.5).
const waitTickBytes = 4

// raw is every counter since the port was made.
func (p *Port) raw() ib.Counters {
	c := p.cold.count
	for vl := range ib.NumVL {
		v := p.laneCounters(vl)
		c[ib.PortXmitData] += v.XmitData
		c[ib.PortXmitPkts] += v.XmitPkts
		c[ib.PortRcvData] += v.RcvData
		c[ib.PortRcvPkts] += v.RcvPkts
	}
	c[ib.PortMulticastXmitPkts] = p.cold.mcastTx
	c[ib.PortMulticastRcvPkts] = p.cold.mcastRx
	c[ib.PortUnicastXmitPkts] = c[ib.PortXmitPkts] - p.cold.mcastTx
	c[ib.PortUnicastRcvPkts] = c[ib.PortRcvPkts] - p.cold.mcastRx
	c[ib.PortXmitWait] = p.ticks(p.cold.waited)
	return c
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
	for i := range c {
		c[i] -= p.cold.base[i]
	}
	return c
}

// SetCounter writes one counter; management resets them so.
func (p *Port) SetCounter(c ib.Counter, v uint64) {
	if c < ib.NumCounter {
		raw := p.raw()
		p.cold.base[c] = raw[c] - v
	}
}

// AddCounter adds to a counter that the node rather than the link keeps, such
// as QP1Dropped.
func (p *Port) AddCounter(c ib.Counter, n uint64) {
	if c < ib.NumCounter {
		p.cold.count[c] += n
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
	l, t := p.lane(vl), &p.cold.totals[vl]
	return VLCounters{
		t.txPkts + uint64(l.tx.pkts), t.txWords + uint64(l.tx.words),
		t.rxPkts + uint64(l.rx.pkts), t.rxWords + uint64(l.rx.words),
		p.ticks(t.waited),
	}
}

// fold moves a lane's short counters to its totals.
func (p *Port) fold(vl int) {
	l, t := p.lane(vl), &p.cold.totals[vl]
	t.txPkts, t.txWords = t.txPkts+uint64(l.tx.pkts), t.txWords+uint64(l.tx.words)
	t.rxPkts, t.rxWords = t.rxPkts+uint64(l.rx.pkts), t.rxWords+uint64(l.rx.words)
	l.tx.pkts, l.tx.words, l.rx.pkts, l.rx.words = 0, 0, 0, 0
}

// FCPackets counts the flow-control packets sent.
func (p *Port) FCPackets() uint64 { return uint64(p.fcSent) }
