package health

import (
	"cmp"
	"slices"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Traffic finds what is wrong at cables that are not to blame for it: ends that take packets of different sizes,
// packets that wait for credits, with where that begins, and packets that are refused for their partition. It takes an
// interval.
func Traffic(cables []Cable, interval time.Duration, t Thresholds) []Verdict {
	if interval <= 0 {
		return nil
	}
	waits, far := map[topo.PortRef]float64{}, map[topo.PortRef]topo.PortRef{}
	var waiting []topo.PortRef
	for i := range cables {
		for _, e := range [2]*End{&cables[i].A, &cables[i].B} {
			if e.Delta[ib.PortXmitWait] == 0 {
				continue
			}
			if w := WaitShare(&e.Delta, e.Rate, interval); w > t.WaitShare {
				waits[e.Ref] = w
				far[cables[i].A.Ref], far[cables[i].B.Ref] = cables[i].B.Ref, cables[i].A.Ref
				waiting = append(waiting, e.Ref)
			}
		}
	}
	held := roots(waiting, far, waits)
	var all []Verdict
	for i := range cables {
		c := &cables[i]
		v := Verdict{Cable: i, A: c.A.Ref, B: c.B.Ref}
		active := c.A.State == ib.PortActive && c.B.State == ib.PortActive
		if active && c.A.MTU != 0 && c.B.MTU != 0 && c.A.MTU != c.B.MTU {
			v.add(Reason{Kind: MTUs, Severity: Bad, At: c.A.Ref, Peer: c.B.Ref, MTU: c.A.MTU, PeerMTU: c.B.MTU})
		}
		for _, e := range [2][2]*End{{&c.A, &c.B}, {&c.B, &c.A}} {
			at, peer := e[0], e[1]
			if n, ok := held[at.Ref]; ok {
				v.add(Reason{Kind: Congested, Severity: Watch, At: at.Ref, Peer: peer.Ref, Wait: waits[at.Ref],
					Held: n})
			}
			for _, counter := range [2]ib.Counter{ib.PortRcvConstraintErrors, ib.PortXmitConstraintErrors} {
				x, ok := exceeds(counter, &at.Delta, interval, &t)
				if ok && x.Count >= t.Counter[counter].BadMin {
					v.add(Reason{Kind: Refused, Severity: x.Severity, At: at.Ref, Peer: peer.Ref, Excess: x})
				}
			}
		}
		if len(v.Reasons) > 0 {
			all = append(all, v)
		}
	}
	return all
}

// add adds a reason.
func (v *Verdict) add(r Reason) {
	v.Severity = max(v.Severity, r.Severity)
	v.Reasons = append(v.Reasons, r)
}

// rootsMost is how many places where congestion begins are told of, the worst: a fabric under a load that is too much
// for it waits everywhere.
const rootsMost = 32

// roots are the ports where congestion begins, with how many ports wait for each: ports wait because a port of the node
// that they send to waits, too, until one sends to somebody who is slow.
func roots(waiting []topo.PortRef, far map[topo.PortRef]topo.PortRef, waits map[topo.PortRef]float64) (
	held map[topo.PortRef]int) {
	at := map[int][]topo.PortRef{} // ports that wait, by node
	for _, r := range waiting {
		at[r.Node] = append(at[r.Node], r)
	}
	held = map[topo.PortRef]int{}
	var order []topo.PortRef
	for _, r := range waiting {
		seen := map[topo.PortRef]bool{}
		for !seen[r] {
			seen[r] = true
			for _, next := range at[far[r].Node] {
				if next != far[r] {
					r = next
					break
				}
			}
		}
		if held[r]++; held[r] == 1 {
			order = append(order, r)
		}
	}
	if len(order) > rootsMost {
		slices.SortStableFunc(order, func(a, b topo.PortRef) int {
			return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(waits[b], waits[a]))
		})
		for _, r := range order[rootsMost:] {
			delete(held, r)
		}
	}
	return held
}
