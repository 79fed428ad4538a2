package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// sampleTick is the unit of SampleStart and SampleInterval: a symbol of the slowest link, 4 ns.
const sampleTick = 4 * ib.Nanosecond

// sampled is what can be sampled, by the numbers of IBA 16.1.3.4.
var sampled = map[uint16]ib.Counter{
	mad.SampleXmitData: ib.PortXmitData, mad.SampleRcvData: ib.PortRcvData,
	mad.SampleXmitPkts: ib.PortXmitPkts, mad.SampleRcvPkts: ib.PortRcvPkts, mad.SampleXmitWait: ib.PortXmitWait,
}

// samples is the node's one sampling mechanism: nil until somebody uses it.
type samples struct{ s *sampling }

// sampling counts what some counters of a port do in an interval.
type sampling struct {
	mad.PortSamples
	start, end ib.Time
	counts     [mad.SampleCounters]uint64 // what they were at the start; when done, what they counted
}

// deadline is when advance has something to do.
func (m *samples) deadline() ib.Time {
	if m.s != nil {
		switch m.s.SampleStatus {
		case mad.SampleStarted:
			return m.s.start
		case mad.SampleRunning:
			return m.s.end
		}
	}
	return ib.Never
}

// advance starts and ends the sampling as time goes by. Counters are read when it is called: a driver that calls
// HandleTimer late samples for longer.
func (m *samples) advance(n Node, now ib.Time) {
	s := m.s
	if s == nil {
		return
	}
	if s.SampleStatus == mad.SampleStarted && now >= s.start {
		s.SampleStatus = mad.SampleRunning
		for i := range s.counts {
			s.counts[i] = s.read(n, i)
		}
	}
	if s.SampleStatus == mad.SampleRunning && now >= s.end {
		s.SampleStatus = mad.SampleDone
		for i := range s.counts {
			// A counter that was reset meanwhile shows what it counted since.
			v := s.read(n, i)
			s.counts[i] = v - min(s.counts[i], v)
		}
	}
}

// read is the present value of sampled counter i, summed over all ports where all are selected.
func (s *sampling) read(n Node, i int) (v uint64) {
	c, ok := sampled[s.CounterSelect[i]]
	if !ok {
		return 0
	}
	if s.PortSelect != mad.PortSelectAll {
		return n.ReadCounter(ib.PortNum(s.PortSelect), c)
	}
	for p := range n.NodeInfo(1).NumPorts {
		v += n.ReadCounter(ib.PortNum(p+1), c)
	}
	return v
}

// samplesControl serves PortSamplesControl: a Set starts a sampling unless one is under way.
func (a *Agent) samplesControl(now ib.Time, set bool, data []byte) mad.Status {
	a.samples.advance(a.node, now)
	var want mad.PortSamples
	if _, err := want.Parse(data); err != nil {
		return failed(err)
	}
	if _, _, ok := a.selectPorts(want.PortSelect); !ok {
		return mad.StatusInvalidField
	}
	if set {
		if a.samples.s == nil {
			a.samples.s = new(sampling)
		}
		if s := a.samples.s; s.SampleStatus == mad.SampleDone {
			*s = sampling{PortSamples: want, start: now + ib.Time(want.SampleStart)*sampleTick}
			s.end = s.start + ib.Time(want.SampleInterval)*sampleTick
			s.SampleStatus = mad.SampleStarted
			a.samples.advance(a.node, now)
		}
	}
	is := mad.PortSamples{PortSelect: want.PortSelect}
	if a.samples.s != nil {
		is = a.samples.s.PortSamples
	}
	clear(data)
	is.Append(data[:0])
	return mad.StatusOK
}

// samplesResult serves what the last sampling counted, in 32 or 64 bits.
func (a *Agent) samplesResult(now ib.Time, id mad.AttrID, data []byte) {
	a.samples.advance(a.node, now)
	clear(data)
	l := &mad.PortSamplesResultLayout
	if id == mad.AttrPortSamplesResultExt {
		l = &mad.PortSamplesResultExtLayout
		l.Field("ExtendedWidth").Put(data, 0, mad.SampleWidth64)
	}
	s := a.samples.s
	if s == nil {
		return
	}
	l.Field("Tag").Put(data, 0, uint64(s.Tag))
	l.Field("SampleStatus").Put(data, 0, uint64(s.SampleStatus))
	if s.SampleStatus != mad.SampleDone {
		return
	}
	f := l.Field("Counter")
	for i, v := range s.counts {
		if f.Bits < 64 {
			v = min(v, 1<<f.Bits-1)
		}
		f.Put(data, i, v)
	}
}
