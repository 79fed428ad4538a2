package doctor

import (
	"fmt"
	"slices"
	"strings"

	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// badCables reports cables whose counters say that they damage signals, or lose them.
func (j *judgement) badCables(s *Section) {
	read := j.readings()
	if read == 0 {
		s.skip("no port's counters could be read")
		return
	}
	s.Looked = count(len(j.cables), "cable", "cables")
	bare := make([]health.Cable, len(j.cables))
	for i := range bare {
		bare[i] = j.cables[i]
		// Rates stay, for the bits that a cable can carry; what both ends could do is links' matter.
		bare[i].A.State, bare[i].B.State = 0, 0
		bare[i].A.Capable, bare[i].B.Capable = ib.LinkRate{}, ib.LinkRate{}
	}
	judged := map[int]bool{}
	for _, v := range health.Judge(bare, j.interval, j.t) {
		judged[v.Cable] = true
		j.addCable(s, &v, severityOf(v.Severity), "")
	}
	if j.interval == 0 {
		return
	}
	// What was counted before the interval says something about the cable too, if its counters were ever reset.
	for _, v := range health.Judge(bare, 0, j.t) {
		if !judged[v.Cable] {
			j.addCable(s, &v, Warn, "nothing was counted in this interval; clear the counters (ibqueryerrors "+
				"-k -K, perfquery -R) and run this again under load. ")
		}
	}
}

// severityOf is what package health's word is here.
func severityOf(s health.Severity) Severity {
	if s >= health.Bad {
		return Fail
	}
	return Warn
}

// addCable makes a finding of a verdict.
func (j *judgement) addCable(s *Section, v *health.Verdict, severity Severity, first string) {
	var words, limits []string
	kind := "flapping-cable"
	for i := range v.Reasons {
		r := &v.Reasons[i]
		words = append(words, r.Text(j.s))
		if r.Kind == health.Damaging {
			kind = "bad-cable"
		}
		limits = append(limits, limit(&r.Excess))
	}
	if v.BER > 0 {
		limits = append(limits, fmt.Sprintf("bit error rate at most %.0e", j.t.BERWatch))
	}
	f := Finding{
		Severity: severity, Kind: kind, Objects: ends(j.s, v.A, v.B), BER: v.BER,
		Measured: v.Name(j.s) + ": " + strings.Join(words, "; "), Threshold: strings.Join(slices.Compact(limits), "; "),
		Next: first + v.Advice(j.s),
	}
	if v.Direction != health.NoDirection {
		f.Direction = v.Direction.String()
		f.Measured += "; " + v.Suspects(j.s)
	}
	s.add(f)
}

// limit is what a counter may show.
func limit(x *health.Excess) string {
	if x.Interval > 0 {
		return fmt.Sprintf("%v at most %g an hour", x.Counter, x.Limit)
	}
	return fmt.Sprintf("%v at most %g since the last reset", x.Counter, x.Limit)
}

// readings counts the ports whose counters were read.
func (j *judgement) readings() (n int) {
	for _, ports := range j.s.Readings {
		for i := range ports {
			if ports[i].Valid {
				n++
			}
		}
	}
	return n
}

// eachReading visits the ports whose counters were read.
func (j *judgement) eachReading(f func(topo.PortRef, *survey.Port)) {
	for i, ports := range j.s.Readings {
		for p := range ports {
			if ports[p].Valid {
				r := topo.PortRef{Node: i, Port: ib.PortNum(p)}
				f(r, j.s.Port(r))
			}
		}
	}
}

// errors reports ports that drop or refuse packets, and counters that can count no further.
func (j *judgement) errors(s *Section) {
	read := j.readings()
	if read == 0 {
		s.skip("no port's counters could be read")
		return
	}
	s.Looked = count(read, "port", "ports")
	j.eachReading(func(r topo.PortRef, p *survey.Port) {
		counts := j.counts(r)
		said := [ib.NumCounter]bool{}
		for _, x := range health.Exceeding(&counts, j.interval, &j.t) {
			said[x.Counter] = true
			j.addError(s, r, p, &counts, &x, severityOf(x.Severity), "")
		}
		if j.interval > 0 {
			total := j.s.Reading(r).Counters
			for _, x := range health.Exceeding(&total, 0, &j.t) {
				if !said[x.Counter] {
					j.addError(s, r, p, &total, &x, Note, "nothing was counted in this interval. ")
				}
			}
		}
		j.saturated(s, r)
	})
}

func (j *judgement) addError(s *Section, r topo.PortRef, p *survey.Port, counts *ib.Counters, x *health.Excess,
	severity Severity, first string) {
	if x.Class == health.Signal || x.Class == health.Training {
		if p.Cabled() {
			return // the cable's
		}
	}
	name := j.s.PortName(r)
	f := Finding{Severity: severity, Kind: "counter", Objects: []string{name}, Measured: x.Text() + " at " + name +
		" (" + x.Counter.String() + ")", Threshold: limit(x)}
	if all := offered(counts, x); all > x.Count {
		f.Measured += fmt.Sprintf(", %.2g %% of %d packets", 100*float64(x.Count)/float64(all), all)
	}
	if p.Cabled() {
		f.Objects = append(f.Objects, j.s.PortName(topo.PortRef{Node: p.Peer, Port: p.PeerPort}))
	}
	f.Next = first + advice[x.Class] + more[x.Counter]
	s.add(f)
}

// offered is how many packets there were of which a counter has counted some: those that came, or those that were to
// leave. What is refused or discarded is not among the packets that a port counts as received or sent (IBA 16.1.3.5).
func offered(counts *ib.Counters, x *health.Excess) uint64 {
	switch x.Counter {
	case ib.PortXmitDiscards, ib.PortXmitConstraintErrors:
		return counts[ib.PortXmitPkts] + x.Count
	case ib.PortRcvErrors, ib.PortRcvConstraintErrors, ib.PortRcvSwitchRelayErrors, ib.PortRcvRemotePhysicalErrors:
		return counts[ib.PortRcvPkts] + x.Count
	}
	return 0 // of others no number of packets is the base
}

// advice is what to do about each class of counters, and more about single ones.
var (
	advice = [health.NumClass]string{
		health.Signal:     "reseat or replace what is plugged into this port",
		health.Training:   "reseat or replace what is plugged into this port",
		health.Congestion: "find who sends so much, or receives so slowly (softib top; congestion above)",
		health.Policy:     "see the tables that refuse them (softib tenant list, softib partition): ",
		health.Elsewhere:  "another cable on the way has damaged them: see cables",
	}
	more = [ib.NumCounter]string{
		ib.PortXmitDiscards:         "; packets to a port that is down are discarded too: see links",
		ib.VL15Dropped:              "; a management program may ask with too wide a window",
		ib.PortXmitConstraintErrors: "partition enforcement of this switch port",
		ib.PortRcvConstraintErrors: "partition enforcement of this switch port, and the P_Keys that programs " +
			"behind it use",
		ib.PortRcvSwitchRelayErrors: "forwarding tables without an entry for a LID that is in use: see routing",
		ib.ExcessiveBufferOverrunErrors: "; packets overran a buffer although flow control should not let them: " +
			"update the firmware of both ends",
	}
)

// saturated reports counters in old, narrow fields that stand at their end: whatever is counted there now goes unseen.
func (j *judgement) saturated(s *Section, r topo.PortRef) {
	x := j.s.Reading(r)
	if x.Wide {
		return
	}
	attr := mad.CounterAttrByID(mad.AttrPortCounters)
	for i := range attr.Rows {
		row := &attr.Rows[i]
		if j.t.Counter[row.Counter].Class == health.NotJudged || x.Counters[row.Counter] < 1<<row.Field.Bits-1 {
			continue
		}
		name := j.s.PortName(r)
		s.add(Finding{
			Severity: Warn, Kind: "saturated", Objects: []string{name},
			Measured: fmt.Sprintf("%v at %s stands at %d, the most that it can show", row.Counter, name,
				x.Counters[row.Counter]),
			Threshold: "less than that",
			Next:      "clear it (ibqueryerrors -k -K, perfquery -R) and run this again: it counts no further",
		})
	}
}

// congestion reports ports that had packets and no credit to send them, and says which of them are where it begins.
func (j *judgement) congestion(s *Section) {
	if j.readings() == 0 {
		s.skip("no port's counters could be read")
		return
	}
	if j.interval == 0 {
		s.skip("it takes an interval to see how long ports wait")
		return
	}
	waits := map[topo.PortRef]float64{}
	ports := 0
	j.eachReading(func(r topo.PortRef, p *survey.Port) {
		if !p.Linked() {
			return
		}
		ports++
		d := j.delta(r)
		if w := health.WaitShare(&d, p.Info.Rate(), j.interval); w > j.t.WaitShare {
			waits[r] = w
		}
	})
	s.Looked = count(ports, "port", "ports")
	j.eachReading(func(r topo.PortRef, p *survey.Port) {
		w, ok := waits[r]
		if !ok {
			return
		}
		d := j.delta(r)
		used, _ := health.Utilisation(&d, p.Info.Rate(), j.interval)
		name := j.s.PortName(r)
		f := Finding{
			Severity: Warn, Kind: "congestion", Objects: []string{name},
			Threshold: fmt.Sprintf("at most %.0f %% of the time", 100*j.t.WaitShare),
			Measured: fmt.Sprintf("%s waited for credits %.0f %% of %s and sent at %.0f %% of its rate", name, 100*w,
				health.Span(j.interval), 100*used),
		}
		if !p.Cabled() {
			f.Next = "see what it is plugged into"
			s.add(f)
			return
		}
		far := topo.PortRef{Node: p.Peer, Port: p.PeerPort}
		f.Objects = append(f.Objects, j.s.PortName(far))
		n := j.s.Nodes[p.Peer]
		next := ""
		for q := 1; n.IsSwitch() && q < len(n.Ports); q++ {
			on := topo.PortRef{Node: p.Peer, Port: ib.PortNum(q)}
			if waits[on] > 0 && next == "" {
				next = j.s.PortName(on)
			}
		}
		switch {
		case !n.IsSwitch():
			f.Kind, f.Next = "hot-spot", fmt.Sprintf(
				"%s receives more slowly than others send to it: spread the load, or see what its program does", n.Name)
		case next == "":
			f.Kind, f.Next = "hot-spot", fmt.Sprintf("it begins here: more goes through %s than its next links "+
				"carry; see softib route check for how evenly ways are spread", n.Name)
		default:
			f.Next = "it only passes on what begins further on, at " + next + ": see there"
		}
		s.add(f)
	})
	// where it begins first
	slices.SortStableFunc(s.Findings, func(a, b Finding) int { return strings.Compare(b.Kind, a.Kind) })
}
