package health

import (
	"time"

	"softib/proto/ib"
)

// Class says what a counter is evidence of.
type Class uint8

// The classes of counters.
const (
	NotJudged  Class = iota // traffic, or a detail of another counter
	Signal                  // bits arrive damaged: the far transmitter, the cable or the near receiver
	Training                // the link lost its signal and trained again
	Congestion              // packets had no room or waited too long
	Policy                  // packets that tables or partitions refuse
	Elsewhere               // damage that another cable did and a switch passed on
	NumClass
)

var classNames = [NumClass]string{"not judged", "signal", "training", "congestion", "policy", "elsewhere"}

func (c Class) String() string { return nameOf(classNames[:], int(c), "Class") }

// Limit is what one counter of a port may show.
type Limit struct {
	Class Class
	Words string // what is counted, in the plural

	// WatchPerHour and BadPerHour are exceeded by more, not by as many.
	WatchPerHour, BadPerHour float64
	// BadMin is how many events it takes for Bad, however short the interval: one event in a second is not yet
	// 3,600 an hour.
	BadMin uint64
	// Total is the limit where no interval is known and the counter since its last reset is all there is.
	// More than ten times that is bad.
	Total uint64
}

// badFactor is how far above Limit.Total a count without an interval is bad.
const badFactor = 10

// Thresholds is every limit that a judgement uses.
type Thresholds struct {
	Counter [ib.NumCounter]Limit

	// A bit error rate above BERWatch is watched, above BERBad it is bad. Fewer than BERMin errors make no rate.
	BERWatch, BERBad float64
	BERMin           uint64

	// RateBad is the share of the possible rate at or below which a link is bad and not only watched.
	RateBad float64

	// WaitShare is the share of an interval that a port may have had something to send and no credit for it.
	WaitShare float64

	// IdleCarries says that cables carry symbols when no packet passes, as real ones do: errors are then held
	// against the bits of the whole interval, otherwise against the bits of the packets. softib's own cables damage
	// only what passes.
	IdleCarries bool

	// Age is how long the counters have counted, where somebody knows. Links that went down and came back are then
	// judged by how often in an hour, not only by how often in all.
	Age time.Duration
}

// Default is the table.
//
// Sources: the file error_thresholds of infiniband-diags (10 for what damages signals, 100 for what is lost or
// refused), which ibqueryerrors and ibcheckerrors read. Those are counts since the last reset; here they are the Total
// column, and the allowance of one hour, in which people look. NVIDIA's bring-up guide wants every involuntary link
// down looked at, and InfiniBand is specified for a bit error rate of 1e-12 (IBA volume 2), which is ibdiagnet's
// default too.
func Default() Thresholds {
	return Thresholds{
		Counter:  limits,
		BERWatch: 1e-12, BERBad: 1e-10, BERMin: 3,
		RateBad:   0.5,
		WaitShare: 0.2,
	}
}

var limits = [ib.NumCounter]Limit{
	ib.SymbolErrorCounter:           {Signal, "symbol errors", 10, 100, 3, 10},
	ib.PortRcvErrors:                {Signal, "damaged packets", 10, 100, 3, 10},
	ib.LocalLinkIntegrityErrors:     {Signal, "local link integrity errors", 0, 10, 2, 10},
	ib.LinkErrorRecoveryCounter:     {Training, "link error recoveries", 0, 10, 2, 10},
	ib.LinkDownedCounter:            {Training, "times down", 0, 3, 2, 10},
	ib.ExcessiveBufferOverrunErrors: {Congestion, "excessive buffer overruns", 0, 10, 2, 10},
	ib.PortXmitDiscards:             {Congestion, "discarded packets", 100, 10_000, 100, 100},
	ib.VL15Dropped:                  {Congestion, "dropped management packets", 100, 10_000, 100, 100},
	ib.QP1Dropped:                   {Congestion, "dropped datagrams of QP1", 100, 10_000, 100, 100},
	ib.PortXmitConstraintErrors:     {Policy, "packets refused on the way out", 100, 10_000, 100, 100},
	ib.PortRcvConstraintErrors:      {Policy, "packets refused on the way in", 100, 10_000, 100, 100},
	ib.PortRcvSwitchRelayErrors:     {Policy, "packets without a way on", 100, 10_000, 100, 100},
	ib.PortRcvRemotePhysicalErrors:  {Elsewhere, "packets marked as damaged earlier", 100, 10_000, 100, 100},
}

// Excess is a counter above its limit.
type Excess struct {
	Counter  ib.Counter
	Class    Class
	Severity Severity // Watch or Bad
	Count    uint64
	Interval time.Duration // 0: since the last reset
	PerHour  float64       // 0 where there is no interval
	Limit    float64       // what was exceeded: an hour's allowance, or Total where there is no interval
}

// over is how many times the limit was reached; at least 1.
func (x *Excess) over() float64 {
	have := x.PerHour
	if x.Interval == 0 {
		have = float64(x.Count)
	}
	return max(1, have/max(1, x.Limit))
}

// Exceeding holds what a port counted in an interval against the limits. With interval 0 the counts are those since the
// last reset, as ibqueryerrors has them.
func Exceeding(counted *ib.Counters, interval time.Duration, t *Thresholds) []Excess {
	var all []Excess
	for c := range ib.NumCounter {
		if counted[c] == 0 || t.Counter[c].Class == NotJudged {
			continue
		}
		if x, ok := exceeds(c, counted, interval, t); ok {
			all = append(all, x)
		}
	}
	return all
}

// exceeds judges one counter.
func exceeds(c ib.Counter, counted *ib.Counters, interval time.Duration, t *Thresholds) (Excess, bool) {
	l := &t.Counter[c]
	n := counted[c]
	if c == ib.PortRcvErrors {
		n = damaged(counted)
	}
	if n == 0 {
		return Excess{}, false
	}
	x := Excess{Counter: c, Class: l.Class, Count: n, Severity: Watch}
	if interval <= 0 {
		x.Limit = float64(l.Total)
		if n > badFactor*l.Total {
			x.Severity = Bad
		}
		return x, n > l.Total
	}
	x.Interval = interval
	x.PerHour = float64(n) / interval.Hours()
	x.Limit = l.WatchPerHour
	if x.PerHour > l.BadPerHour && n >= l.BadMin {
		x.Severity, x.Limit = Bad, l.BadPerHour
	}
	return x, x.PerHour > l.WatchPerHour
}

// flaps judges how often a link was lost, by a counter that has no interval: by the rate of the time that it has
// counted, or else by its limit in all, which says less: many may have been in an hour or in a year. Once is no rate.
func flaps(c ib.Counter, counted *ib.Counters, t *Thresholds) (Excess, bool) {
	if t.Age > 0 && counted[c] >= t.Counter[c].BadMin {
		if x, _ := exceeds(c, counted, t.Age, t); x.PerHour > t.Counter[c].BadPerHour {
			return x, true
		}
	}
	return exceeds(c, counted, 0, t)
}

// damaged is how many packets arrived damaged: PortRcvErrors less what its details, where a port has them, say is
// something else (IBA 16.1.4.1).
func damaged(c *ib.Counters) uint64 {
	n, other := c[ib.PortRcvErrors], c[ib.PortMalformedPacketErrors]+c[ib.PortBufferOverrunErrors]
	if other >= n {
		return 0
	}
	return n - other
}

// WaitShare is the share of the interval in which a port had packets to send and no credit. A tick of PortXmitWait is
// taken as the time of one 4-byte word at the link's rate, as softib counts it; the standard leaves it open (IBA
// 16.1.3.5).
func WaitShare(counted *ib.Counters, rate ib.LinkRate, interval time.Duration) float64 {
	words := float64(rate.Mbps()) * 1e6 / 32 * interval.Seconds()
	if words <= 0 {
		return 0
	}
	return min(1, float64(counted[ib.PortXmitWait])/words)
}

// Utilisation is the share of the link's rate that a port sent and received at in the interval.
func Utilisation(counted *ib.Counters, rate ib.LinkRate, interval time.Duration) (sent, received float64) {
	words := float64(rate.Mbps()) * 1e6 / 32 * interval.Seconds()
	if words <= 0 {
		return 0, 0
	}
	return float64(counted[ib.PortXmitData]) / words, float64(counted[ib.PortRcvData]) / words
}
