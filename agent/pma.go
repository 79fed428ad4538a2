package agent

import (
	"softib/ib"
	"softib/mad"
)

// pmaRespTime is the agent's promise how soon it answers: 4.096 us * 2^8, about
// a millisecond.
const pmaRespTime = 8

// handlePM serves a performance management request in place; ok is false if there is
// no answer.
func (a *Agent) handlePM(v mad.View) (st mad.Status, ok bool) {
	m := v.Method()
	switch m {
	case mad.MethodGet, mad.MethodSet:
	case mad.MethodTrap, mad.MethodTrapRepress:
		return 0, false // neither has a response
	default:
		return mad.StatusUnsupMethod, true
	}
	data := v.Data()
	if v.AttrID() == mad.AttrClassPortInfo && m == mad.MethodGet {
		if v.AttrMod() != 0 {
			return mad.StatusInvalidField, true
		}
		clear(data)
		cpi := mad.ClassPortInfo{
			BaseVersion: mad.BaseVersion, ClassVersion: 1,
			CapabilityMask: mad.PMCapAllPortSelect | mad.PMCapExtendedWidth | mad.PMCapXmitWait |
				mad.PMCapQP1Dropped,
			CapabilityMask2: mad.PMCap2AdditionalExtCtrs,
			RespTimeValue:   pmaRespTime,
		}
		cpi.Append(data[:0])
		return mad.StatusOK, true
	}
	attr := mad.CounterAttrByID(v.AttrID())
	if attr == nil {
		return mad.StatusUnsupMethodAttr, true
	}
	first, last, found := a.selectPorts(attr.PortSelect(data))
	if v.AttrMod() != 0 || !found {
		return mad.StatusInvalidField, true
	}
	selected := attr.Select(data)
	if m == mad.MethodSet {
		a.clearCounters(attr, selected, first, last)
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

// clearCounters resets the selected counters. The value that a Set carries does not
// matter: the only one that managers write is 0.
func (a *Agent) clearCounters(attr *mad.CounterAttr, selected uint64, first, last ib.PortNum) {
	for i := range attr.Rows {
		if selected>>attr.Rows[i].Select&1 == 0 {
			continue
		}
		for p := int(first); p <= int(last); p++ {
			a.node.ClearCounter(ib.PortNum(p), attr.Rows[i].Counter)
		}
	}
}

// showCounters writes each counter's value, or the sum over all ports, as far as
// its field holds it.
func (a *Agent) showCounters(attr *mad.CounterAttr, data []byte, first, last ib.PortNum) {
	sel, mask := attr.PortSelect(data), attr.Select(data)
	clear(data)
	attr.SetPortSelect(data, sel)
	attr.SetSelect(data, mask)
	for i := range attr.Rows {
		var sum uint64
		for p := int(first); p <= int(last); p++ {
			v := a.node.ReadCounter(ib.PortNum(p), attr.Rows[i].Counter)
			if sum += v; sum < v {
				sum = ^uint64(0)
			}
		}
		attr.PutCounter(data, i, sum)
	}
}
