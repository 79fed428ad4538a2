package health

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Severity is how bad a cable is.
type Severity uint8

// Severities, from fine to out of use.
const (
	OK Severity = iota
	Watch
	Bad
	Down
	NumSeverity
)

var severityNames = [NumSeverity]string{"ok", "watch", "bad", "down"}

func (s Severity) String() string { return nameOf(severityNames[:], int(s), "Severity") }

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads it.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("health: severity %q: want one of %v", text, severityNames)
	}
	*s = Severity(i)
	return nil
}

// End is one end of a cable. Zero means unknown for State, Rate and Capable, and what is unknown is not held against
// the cable.
type End struct {
	Ref     topo.PortRef
	State   ib.PortState
	Rate    ib.LinkRate // what the link runs at
	Capable ib.LinkRate // the best that this end can do
	MTU     ib.MTU      // of the packets that the link takes
	Delta   ib.Counters // counted in the interval
	Total   ib.Counters // counted since the last reset
}

// Cable is a cable with both ends.
type Cable struct{ A, B End }

// Direction is the way in which a cable damages signals.
type Direction uint8

// Directions.
const (
	NoDirection Direction = iota // the counters do not say
	AtoB                         // what A sends arrives damaged at B
	BtoA                         // what B sends arrives damaged at A
	BothWays
	NumDirection
)

var directionNames = [NumDirection]string{"unknown", "a-to-b", "b-to-a", "both"}

func (d Direction) String() string { return nameOf(directionNames[:], int(d), "Direction") }

// MarshalText writes the direction's name.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Kind is what a reason is about.
type Kind uint8

// Kinds of reasons. Each is one alarm.
const (
	LinkDown  Kind = iota // an end is down
	NotActive             // trained, but no manager made it active
	Slow                  // narrower or slower than both ends can do
	Damaging              // damages signals
	Flapping              // loses its signal and trains again

	// Of what Traffic looks at, which is no fault of the cable's:

	MTUs      // its ends take packets of different sizes
	Congested // packets wait for credits
	Refused   // packets are refused for their partition

	// Of nodes, which whoever knows them says with Said and Do:

	DeadSwitch // all its links are down
	Miswired   // a cable is not where a tree has it
	DoubleName // two machines have one name
	TakenOver  // another manager is master
	NoMaster   // no manager is
	TwoMasters // several are
	TwinGUID   // two nodes have one GUID
	BadTables  // they lose packets, or send them round
	NumKind
)

var kindNames = [NumKind]string{"link down", "not active", "slow link", "signal errors", "flapping", "different MTUs",
	"congestion", "refused packets", "dead switch", "miswired cable", "duplicate name", "taken over",
	"no manager", "two managers", "duplicate GUID", "bad tables"}

func (k Kind) String() string { return nameOf(kindNames[:], int(k), "Kind") }

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Reason is one thing that is wrong with a cable. Text puts it into words.
type Reason struct {
	Kind     Kind
	Severity Severity
	At       topo.PortRef // the end where it was seen
	Peer     topo.PortRef // the other end

	// For Damaging and Flapping: the counter, and for the bits that were carried meanwhile the rate of errors among
	// them.
	Excess Excess
	BER    float64

	// For LinkDown and NotActive.
	State, PeerState ib.PortState
	// For Slow.
	Rate, Possible ib.LinkRate
	// For MTUs.
	MTU, PeerMTU ib.MTU
	// For Congested, which is where it begins: the share of the time that At had packets and no credit, and how many
	// ports wait for that, At among them.
	Wait float64
	Held int
	// For those of nodes: what is so, and what to do about it.
	Said, Do string

	score float64
}

// Verdict is what is wrong with one cable.
type Verdict struct {
	Cable    int // index into what was judged
	A, B     topo.PortRef
	Severity Severity
	Score    float64 // above 0; worse is more; compares within a severity
	// Reasons are never empty; the gravest comes first.
	Reasons []Reason
	// BER estimates the bit error rate of the direction that has the errors, of the worse one where both do; 0 where no
	// error was counted. A few errors of the other direction, by which little came, would say nothing.
	BER float64
	// Direction says whose signals arrive damaged.
	Direction Direction
}

// Weights of the reasons in a cable's score. Orders of magnitude above the limit count, not multiples: ten
// times more errors do not make ten times as bad a cable.
var weights = [NumKind]float64{LinkDown: 100, NotActive: 20, Slow: 30, Damaging: 10, Flapping: 20}

// signalCounters and trainingCounters are those of the table that judge a cable, in the order of the reasons.
var (
	signalCounters   = [...]ib.Counter{ib.SymbolErrorCounter, ib.PortRcvErrors, ib.LocalLinkIntegrityErrors}
	trainingCounters = [...]ib.Counter{ib.LinkDownedCounter, ib.LinkErrorRecoveryCounter}
)

// Judge gives a verdict on every cable that is not OK, worst first; equally bad ones are in the order given. With
// interval 0 there are no deltas, and the totals since the last reset are held against absolute limits.
func Judge(cables []Cable, interval time.Duration, t Thresholds) []Verdict {
	var all []Verdict
	for i := range cables {
		if v, ok := judge(&cables[i], interval, &t); ok {
			v.Cable = i
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, compare)
	return all
}

// compare orders the worse verdict first.
func compare(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Cable, b.Cable))
}

func judge(c *Cable, interval time.Duration, t *Thresholds) (Verdict, bool) {
	v := Verdict{A: c.A.Ref, B: c.B.Ref}
	v.judgeState(c)
	v.judgeRate(c, t)
	atA, berA := v.judgeEnd(&c.A, &c.B, interval, t)
	atB, berB := v.judgeEnd(&c.B, &c.A, interval, t)
	if len(v.Reasons) == 0 {
		return Verdict{}, false
	}
	v.Direction = direction(atA, atB)
	switch v.Direction {
	case BtoA:
		v.BER = berA
	case AtoB:
		v.BER = berB
	default:
		v.BER = max(berA, berB)
	}
	for i := range v.Reasons {
		r := &v.Reasons[i]
		v.Severity = max(v.Severity, r.Severity)
		v.Score += r.score
	}
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.score, a.score))
	})
	return v, true
}

// judgeState looks at the link states of both ends (IBA 7.2.7).
func (v *Verdict) judgeState(c *Cable) {
	a, b := &c.A, &c.B
	if b.State != ib.PortNoChange && (a.State == ib.PortNoChange || b.State < a.State) {
		a, b = b, a
	}
	r := Reason{At: a.Ref, Peer: b.Ref, State: a.State, PeerState: b.State}
	switch a.State {
	case ib.PortDown:
		r.Kind, r.Severity = LinkDown, Down
	case ib.PortInit, ib.PortArmed:
		r.Kind, r.Severity = NotActive, Watch
	default:
		return
	}
	r.score = weights[r.Kind]
	v.Reasons = append(v.Reasons, r)
}

// judgeRate compares what the link runs at with what both ends can do.
func (v *Verdict) judgeRate(c *Cable, t *Thresholds) {
	if c.A.State == ib.PortDown || c.B.State == ib.PortDown {
		return
	}
	a, b := &c.A, &c.B
	if b.Rate.Mbps() != 0 && (a.Rate.Mbps() == 0 || b.Rate.Mbps() < a.Rate.Mbps()) {
		a, b = b, a
	}
	possible := a.Capable.Lesser(b.Capable)
	have, can := a.Rate.Mbps(), possible.Mbps()
	if have == 0 || have >= can {
		return
	}
	share := float64(have) / float64(can)
	r := Reason{Kind: Slow, Severity: Watch, At: a.Ref, Peer: b.Ref, Rate: a.Rate, Possible: possible,
		score: weights[Slow] * (1 - share)}
	if share <= t.RateBad {
		r.Severity = Bad
	}
	v.Reasons = append(v.Reasons, r)
}

// judgeEnd holds the counters of one end against the limits, and returns how many signs of damaged
// signals it has seen, whether or not they are above a limit, and the bit error rate that they come to.
func (v *Verdict) judgeEnd(e, peer *End, interval time.Duration, t *Thresholds) (signs uint64, ber float64) {
	counted, sent := &e.Delta, &peer.Delta
	if interval <= 0 {
		counted, sent = &e.Total, &peer.Total
	}
	// Most ports have no errors at all, and are done here.
	var any uint64
	for _, c := range signalCounters {
		any |= counted[c]
	}
	for _, c := range trainingCounters {
		any |= counted[c]
	}
	if any == 0 {
		return 0, 0
	}
	ber, errors := bitErrors(e, counted, sent, interval, t)
	judged := false
	for _, c := range signalCounters {
		if x, ok := exceeds(c, counted, interval, t); ok {
			r := Reason{Kind: Damaging, At: e.Ref, Peer: peer.Ref, Excess: x, Severity: x.Severity,
				score: weights[Damaging] * (1 + math.Log10(x.over()))}
			if !judged && c != ib.LocalLinkIntegrityErrors {
				judged = true
				r.addBER(ber, errors, t)
			}
			v.Reasons = append(v.Reasons, r)
		}
	}
	// So few errors that no hour's allowance is exceeded may still be many for the few bits that passed.
	if !judged && ber > t.BERWatch && errors >= t.BERMin {
		c := ib.SymbolErrorCounter
		if counted[c] == 0 {
			c = ib.PortRcvErrors
		}
		x := Excess{Counter: c, Class: Signal, Severity: Watch, Count: errors, Interval: interval,
			Limit: t.Counter[c].WatchPerHour}
		if interval > 0 {
			x.PerHour = float64(errors) / interval.Hours()
		} else {
			x.Limit = float64(t.Counter[c].Total)
		}
		r := Reason{Kind: Damaging, At: e.Ref, Peer: peer.Ref, Excess: x, Severity: Watch, score: weights[Damaging]}
		r.addBER(ber, errors, t)
		v.Reasons = append(v.Reasons, r)
	}
	for _, c := range trainingCounters {
		x, ok := exceeds(c, counted, interval, t)
		if interval <= 0 {
			x, ok = flaps(c, counted, t)
		}
		if ok {
			v.Reasons = append(v.Reasons, Reason{
				Kind: Flapping, At: e.Ref, Peer: peer.Ref, Excess: x, Severity: x.Severity,
				score: weights[Flapping] * (1 + math.Log10(x.over())),
			})
		}
	}
	return max(errors, counted[ib.LocalLinkIntegrityErrors]), ber
}

// addBER makes a reason as grave as the bit error rate is.
func (r *Reason) addBER(ber float64, errors uint64, t *Thresholds) {
	r.BER = ber
	if errors < t.BERMin || ber <= t.BERWatch {
		return
	}
	r.score += weights[Damaging] * math.Log10(ber/t.BERWatch)
	if ber > t.BERBad {
		r.Severity = Bad
	}
}

// bitErrors estimates the rate of bit errors of what arrived at an end, and says how many errors it is made from:
// symbol errors, or damaged packets where those are more, each of which has at least one.
func bitErrors(e *End, counted, sent *ib.Counters, interval time.Duration, t *Thresholds) (float64, uint64) {
	errors := max(counted[ib.SymbolErrorCounter], damaged(counted))
	if errors == 0 {
		return 0, 0
	}
	// Damaged packets are not in PortRcvData, but the sender counted them.
	words := max(counted[ib.PortRcvData], sent[ib.PortXmitData])
	bits := float64(words) * 32
	if all := float64(e.Rate.Mbps()) * 1e6 * interval.Seconds(); t.IdleCarries && all > 0 || bits == 0 {
		bits = all
	}
	if bits == 0 {
		return 0, errors
	}
	return min(0.5, float64(errors)/bits), errors
}

// oneSided is how many times more errors one end must see for the other direction to be free of blame.
const oneSided = 10

// direction says whose signals are damaged: errors are counted where they arrive.
func direction(atA, atB uint64) Direction {
	switch {
	case atA == 0 && atB == 0:
		return NoDirection
	case atB == 0 || atA/oneSided >= atB:
		return BtoA
	case atA == 0 || atB/oneSided >= atA:
		return AtoB
	}
	return BothWays
}
