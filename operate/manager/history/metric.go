package history

import (
	"fmt"

	"softib/proto/ib"
)

// Metric is one of the few things that are kept of every port.
type Metric uint8

// The metrics. Their order is on disk: add at the end.
const (
	XmitBytes Metric = iota
	RcvBytes
	XmitPkts
	RcvPkts
	XmitWait
	Errors
	Discards
	LinkDowned
	NumMetric
)

// metricTable says what each metric is and which counters of a port it is made of.
var metricTable = [NumMetric]struct {
	name, unit, what string
	times            uint64 // each count stands for so many units
	of               ib.Counter
	total            func(*ib.Counters) uint64 // where it is no single counter
}{
	XmitBytes: {"xmit_bytes", "B/s", "bytes sent", 4, ib.PortXmitData, nil},
	RcvBytes:  {"rcv_bytes", "B/s", "bytes received", 4, ib.PortRcvData, nil},
	XmitPkts:  {"xmit_pkts", "1/s", "packets sent", 1, ib.PortXmitPkts, nil},
	RcvPkts:   {"rcv_pkts", "1/s", "packets received", 1, ib.PortRcvPkts, nil},
	// A tick is the time of 4 bytes on the link: bytes compare with those that were sent, and with the link's rate.
	XmitWait: {"xmit_wait", "B/s", "bytes that could have been sent while waiting for credit", 4,
		ib.PortXmitWait, nil},
	Errors: {"errors", "1/s", "damaged symbols or packets, recoveries and buffer overruns", 1, 0,
		(*ib.Counters).Errors},
	Discards:   {"discards", "1/s", "packets discarded or refused", 1, 0, (*ib.Counters).Discards},
	LinkDowned: {"link_downed", "1/s", "times the link went down", 1, ib.LinkDownedCounter, nil},
}

func (m Metric) String() string {
	if m < NumMetric {
		return metricTable[m].name
	}
	return fmt.Sprintf("Metric(%d)", uint8(m))
}

// Unit is the unit of the metric's rates.
func (m Metric) Unit() string {
	if m < NumMetric {
		return metricTable[m].unit
	}
	return ""
}

// What says in words what the metric counts.
func (m Metric) What() string {
	if m < NumMetric {
		return metricTable[m].what
	}
	return ""
}

// ParseMetric reads a metric by its name.
func ParseMetric(name string) (Metric, bool) {
	for m := range NumMetric {
		if metricTable[m].name == name {
			return m, true
		}
	}
	return 0, false
}

// Values are the totals of one port, indexed by Metric.
type Values [NumMetric]uint64

// ValuesOf makes them from a port's counters.
func ValuesOf(c *ib.Counters) (v Values) {
	for m := range metricTable {
		row := &metricTable[m]
		v[m] = c[row.of] * row.times
		if row.total != nil {
			v[m] = row.total(c)
		}
	}
	return v
}

// PortKey names a port for ever: topologies and restarts come and go.
type PortKey struct {
	Node ib.GUID
	Port ib.PortNum
}
