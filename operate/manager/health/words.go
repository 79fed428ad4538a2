package health

import (
	"fmt"
	"strings"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Namer gives a port the name that people know it by; a *topo.Graph does.
type Namer interface {
	PortName(topo.PortRef) string
}

// nameOf is an enumeration's word.
func nameOf(names []string, i int, enum string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", enum, i)
}

// Text says what a reason is, with its numbers.
func (r *Reason) Text(n Namer) string {
	at, peer := n.PortName(r.At), n.PortName(r.Peer)
	switch r.Kind {
	case LinkDown:
		if r.PeerState == ib.PortDown {
			return "down at both ends"
		}
		if r.PeerState == ib.PortNoChange {
			return "down at " + at
		}
		return fmt.Sprintf("down at %s, but %v at %s", at, r.PeerState, peer)
	case NotActive:
		return fmt.Sprintf("%v and not Active at %s: no subnet manager has brought it up", r.State, at)
	case MTUs:
		return fmt.Sprintf("%s takes packets of %v bytes, %s of %v", at, r.MTU, peer, r.PeerMTU)
	case Congested:
		s := fmt.Sprintf("%s waited for credits %.0f %% of the time: it begins here, at what %s takes", at, 100*r.Wait,
			peer)
		if r.Held > 1 {
			s += fmt.Sprintf("; %d more ports wait for it", r.Held-1)
		}
		return s
	case Refused:
		return fmt.Sprintf("%s at %s, for their partition: of programs behind %s, or for them", r.Excess.Text(), at,
			peer)
	case DeadSwitch, Miswired, DoubleName, TakenOver, NoMaster, TwoMasters, TwinGUID, BadTables:
		return r.Said
	case Slow:
		return fmt.Sprintf("runs at %v (%s) at %s, both ends can do %v (%s)", r.Rate, rateText(r.Rate), at, r.Possible,
			rateText(r.Possible))
	}
	s := r.Excess.Text() + " at " + at
	if r.BER > 0 {
		s += fmt.Sprintf(", bit error rate about %.0e", r.BER)
	}
	return s
}

// Text says what was counted, without where.
func (x *Excess) Text() string {
	words := limits[x.Counter].Words
	switch {
	case x.Counter == ib.LinkDownedCounter && x.Count == 1:
		words = "time down"
	case x.Count == 1:
		words = singular(words)
	}
	s := fmt.Sprintf("%d %s", x.Count, words)
	if x.Interval > 0 {
		return s + " in " + Span(x.Interval)
	}
	return s + " since the counters were reset"
}

// singular drops the plural of the first word that has one: "packets refused on the way out", "link error recoveries".
func singular(words string) string {
	fields := strings.Fields(words)
	for i, f := range fields {
		switch {
		case strings.HasSuffix(f, "ies"):
			fields[i] = strings.TrimSuffix(f, "ies") + "y"
		case strings.HasSuffix(f, "s"):
			fields[i] = strings.TrimSuffix(f, "s")
		default:
			continue
		}
		break
	}
	return strings.Join(fields, " ")
}

// Span writes a length of time as people say it: 10 s, 5 min, 2 h.
func Span(d time.Duration) string {
	switch {
	case d >= 2*time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.3g min", d.Minutes())
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}

func rateText(r ib.LinkRate) string { return fmt.Sprintf("%.3g Gb/s", float64(r.Mbps())/1000) }

// Name writes both ends as a cable is written: leaf1[5] spine1[2].
func (v *Verdict) Name(n Namer) string { return n.PortName(v.A) + " " + n.PortName(v.B) }

// Summary is the cable's name and all reasons in one line.
func (v *Verdict) Summary(n Namer) string {
	texts := make([]string, len(v.Reasons))
	for i := range v.Reasons {
		texts[i] = v.Reasons[i].Text(n)
	}
	return v.Name(n) + ": " + strings.Join(texts, "; ")
}

// Suspects says which end's transmitter or receiver to look at; empty where the counters do not say.
func (v *Verdict) Suspects(n Namer) string {
	a, b := n.PortName(v.A), n.PortName(v.B)
	switch v.Direction {
	case AtoB:
		a, b = b, a
		fallthrough
	case BtoA:
		return fmt.Sprintf("signals from %s arrive damaged at %s: the transmitter of %s, the cable, or the "+
			"receiver of %s", b, a, b, a)
	case BothWays:
		return fmt.Sprintf("signals are damaged both ways between %s and %s: the cable or its connectors", a, b)
	}
	return ""
}

// Advice is what to do next about the gravest reason.
func (v *Verdict) Advice(n Namer) string { return v.Reasons[0].Advice(n) }

// Advice is what to do next.
func (r *Reason) Advice(n Namer) string {
	at, peer := n.PortName(r.At), n.PortName(r.Peer)
	switch r.Kind {
	case LinkDown:
		return fmt.Sprintf("see that the cable is plugged in at %s and at %s and that neither port is disabled", at,
			peer)
	case NotActive:
		return "see that a subnet manager runs and what its log says about " + at
	case Slow:
		return fmt.Sprintf("reseat the cable at both ends; if it stays slow see which widths and speeds are "+
			"enabled at %s and %s, then replace it", at, peer)
	case MTUs:
		return "see that one manager alone sets both ends, and what its log says of them: softib doctor, softib log"
	case Congested:
		return fmt.Sprintf("spread the load, or see what slows %s down: softib top, softib route check", peer)
	case Refused:
		return "softib tenant list says whose hosts are whose; softib doctor names who is refused where"
	case DeadSwitch, Miswired, DoubleName, TakenOver, NoMaster, TwoMasters, TwinGUID, BadTables:
		return r.Do
	case Flapping:
		return fmt.Sprintf("reseat the cable at both ends; if it goes on, replace it, then try another port than %s",
			at)
	}
	return fmt.Sprintf("reseat or replace the cable; if the errors stay at %s, replace what sends to it at %s", at,
		peer)
}
