package live

import "softib/proto/ib"

// laneCount is a port's traffic by routes, by lane and service level.
type laneCount [ib.NumLaneCounter][ib.NumVL]uint64

// countLane adds packets that a port sent or received to its lane's and level's. Most ports have none, so
// the counters are made with the first.
func (p *portState) countLane(out bool, vl ib.VL, sl ib.SL, pkts, words uint64) {
	if pkts == 0 {
		return
	}
	if p.lanes == nil {
		p.lanes = new(laneCount)
	}
	if out {
		p.lanes[ib.SLXmitData][sl&15] += words
		return
	}
	p.lanes[ib.VLRcvPkts][vl&15] += pkts
	p.lanes[ib.VLRcvData][vl&15] += words
	p.lanes[ib.SLRcvData][sl&15] += words
}

// countMgmt adds packets of management that a port sent or received to its counters.
func (p *portState) countMgmt(out bool, vl ib.VL, sl ib.SL, pkts uint64) {
	words := pkts * mgmtWords
	count := p.counters()
	if out {
		count[ib.PortXmitPkts] += pkts
		count[ib.PortUnicastXmitPkts] += pkts
		count[ib.PortXmitData] += words
	} else {
		count[ib.PortRcvPkts] += pkts
		count[ib.PortUnicastRcvPkts] += pkts
		count[ib.PortRcvData] += words
	}
	p.countLane(out, vl, sl, pkts, words)
}

// fold moves the packets of subnet management that hops have noted to the counters. Whoever looks at those folds first.
func (p *portState) fold() {
	if p.smpsOut != 0 {
		p.countMgmt(true, ib.VLMgmt, 0, p.smpsOut)
		p.smpsOut = 0
	}
	if p.smpsIn != 0 {
		p.countMgmt(false, ib.VLMgmt, 0, p.smpsIn)
		p.smpsIn = 0
	}
}

// counter is what went through by routes or as management.
func (p *portState) counter(c ib.Counter) uint64 {
	p.fold()
	if p.count == nil {
		return 0
	}
	return p.count[c]
}

// clear resets one counter.
func (p *portState) clear(c ib.Counter) {
	p.fold()
	if p.count != nil {
		p.count[c] = 0
	}
}

// counters are those of the port, made if there are none.
func (p *portState) counters() *ib.Counters {
	if p.count == nil {
		p.count = new(ib.Counters)
	}
	return p.count
}

// lane is what countLane added up.
func (p *portState) lane(c ib.LaneCounter, i int) uint64 {
	if p == nil {
		return 0
	}
	p.fold()
	if p.lanes == nil {
		return 0
	}
	return p.lanes[c][i]
}

func (v hostView) ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64 {
	return v.Node.ReadLaneCounter(port, c, i) + v.h.ports[port].lane(c, i)
}

func (v switchView) ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64 {
	return v.Node.ReadLaneCounter(port, c, i) + v.s.ports[port].lane(c, i)
}
