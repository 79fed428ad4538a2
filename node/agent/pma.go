package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// pmaRespTime is the agent's promise how soon it answers: 4.096 us * 2^8, about
// a millisecond.
const pmaRespTime = 8

// handlePM serves a performance management request in place; ok is false if there is
// no answer.
func (a *Agent) handlePM(now ib.Time, _ ib.PortNum, _ ib.LID, v mad.View) (st mad.Status, ok bool) {
	m := v.Method()
	switch m {
	case mad.MethodGet, mad.MethodSet:
	case mad.MethodTrap, mad.MethodTrapRepress:
		return 0, false // neither has a response
	default:
		return mad.StatusUnsupMethod, true
	}
	data, set := v.Data(), m == mad.MethodSet
	if v.AttrMod() != 0 {
		return mad.StatusInvalidField, true
	}
	switch v.AttrID() {
	case mad.AttrClassPortInfo:
		if set {
			return mad.StatusUnsupMethodAttr, true
		}
		clear(data)
		cpi := mad.ClassPortInfo{
			BaseVersion: mad.BaseVersion, ClassVersion: 1,
			CapabilityMask: mad.PMCapAllPortSelect | mad.PMCapExtendedWidth | mad.PMCapXmitWait |
				mad.PMCapRSFECCounters | mad.PMCapQP1Dropped,
			CapabilityMask2: mad.PMCap2AdditionalExtCtrs,
			RespTimeValue:   pmaRespTime,
		}
		cpi.Append(data[:0])
		return mad.StatusOK, true
	case mad.AttrPortSamplesControl:
		return a.samplesControl(now, set, data), true
	case mad.AttrPortSamplesResult, mad.AttrPortSamplesResultExt:
		if set {
			return mad.StatusUnsupMethodAttr, true
		}
		a.samplesResult(now, v.AttrID(), data)
		return mad.StatusOK, true
	}
	attr := mad.CounterAttrByID(v.AttrID())
	if attr == nil || v.AttrID() == mad.AttrSwPortVLCongestion && a.sw == nil {
		return mad.StatusUnsupMethodAttr, true
	}
	first, last, found := a.selectPorts(attr.PortSelect(data))
	if !found {
		return mad.StatusInvalidField, true
	}
	if set {
		a.clearCounters(attr, attr.Select(data), first, last)
	}
	a.showCounters(attr, data, first, last)
	return mad.StatusOK, true
}

// selectPorts is the range of ports that PortSelect names.
func (a *Agent) selectPorts(sel uint8) (first, last ib.PortNum, ok bool) {
	if sel == mad.PortSelectAll {
		return 1, ib.PortNum(a.ports), a.ports > 0
	}
	p := ib.PortNum(sel)
	return p, p, a.hasPort(p)
}

// laneBases is what the counters of a port's lanes and levels were when they were reset: each alone, and the
// sum over all for attributes that show that.
type laneBases struct {
	each *[ib.NumLaneCounter][ib.NumVL]uint64
	sum  [ib.NumLaneCounter]uint64
}

// basesOf is a port's bases, made where there are none.
func (a *Agent) basesOf(p ib.PortNum) *laneBases {
	for len(a.lanes) <= int(p) {
		a.lanes = append(a.lanes, laneBases{})
	}
	return &a.lanes[p]
}

// sumLanes is a counter's sum over all lanes or levels.
func (a *Agent) sumLanes(p ib.PortNum, c ib.LaneCounter) (sum uint64) {
	for i := range ib.NumVL {
		sum += a.node.ReadLaneCounter(p, c, i)
	}
	return sum
}

// clearCounters resets the selected counters. The value that a Set carries does not
// matter: the only one that managers write is 0.
func (a *Agent) clearCounters(attr *mad.CounterAttr, selected uint64, first, last ib.PortNum) {
	for i := range attr.Rows {
		row := &attr.Rows[i]
		if selected>>row.Select&1 == 0 {
			continue
		}
		for p := int(first); p <= int(last); p++ {
			a.clearRow(row, ib.PortNum(p))
		}
	}
}

func (a *Agent) clearRow(row *mad.CounterRow, p ib.PortNum) {
	switch row.Source {
	case mad.FromCounter:
		a.node.ClearCounter(p, row.Counter)
	case mad.FromLane:
		b := a.basesOf(p)
		if b.each == nil {
			b.each = new([ib.NumLaneCounter][ib.NumVL]uint64)
		}
		b.each[row.Lane][row.Elem] = a.node.ReadLaneCounter(p, row.Lane, row.Elem)
	case mad.FromLanes:
		a.basesOf(p).sum[row.Lane] = a.sumLanes(p, row.Lane)
	}
}

// readRow is what a row shows of a port.
func (a *Agent) readRow(row *mad.CounterRow, p ib.PortNum) uint64 {
	var base laneBases
	if int(p) < len(a.lanes) {
		base = a.lanes[p]
	}
	switch row.Source {
	case mad.FromCounter:
		return a.node.ReadCounter(p, row.Counter)
	case mad.FromLane:
		v := a.node.ReadLaneCounter(p, row.Lane, row.Elem)
		if base.each != nil {
			v -= base.each[row.Lane][row.Elem]
		}
		return v
	case mad.FromLanes:
		return a.sumLanes(p, row.Lane) - base.sum[row.Lane]
	}
	return 0
}

// showCounters writes each counter's value, or the sum over all ports, as far as
// its field holds it. Which port, which counters and which opcode are as in the request. No engine tells packets by
// their opcode: what goes by it shows those of all.
func (a *Agent) showCounters(attr *mad.CounterAttr, data []byte, first, last ib.PortNum) {
	op, sel, mask := data[0], attr.PortSelect(data), attr.Select(data)
	clear(data)
	if attr.HasOpCode() {
		data[0] = op
	}
	attr.SetPortSelect(data, sel)
	attr.SetSelect(data, mask)
	for i := range attr.Rows {
		row := &attr.Rows[i]
		var sum uint64
		for p := int(first); p <= int(last); p++ {
			v := a.readRow(row, ib.PortNum(p))
			if sum += v; sum < v {
				sum = ^uint64(0)
			}
		}
		attr.PutCounter(data, i, sum)
	}
}
