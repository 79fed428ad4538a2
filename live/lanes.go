package live

import "softib/ib"

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

// lane is what countLane added up.
func (p *portState) lane(c ib.LaneCounter, i int) uint64 {
	if p == nil || p.lanes == nil {
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
