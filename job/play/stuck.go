package play

import (
	"fmt"
	"strings"

	"softib/job"
)

// Stuck says why a schedule that is not done does nothing any more: which ranks wait for each other, or for a message
// that does not come.
func (p *Player) Stuck() string {
	on := make([]int32, len(p.hosts)) // whom a rank waits for; -1 for nobody that is known
	why := make([]string, len(p.hosts))
	first := -1
	for rank := range p.hosts {
		on[rank] = -1
		h, r := &p.hosts[rank], &p.s.Ranks[rank]
		if h.undone == 0 {
			continue
		}
		if first < 0 {
			first = rank
		}
		for n := range r.Ops {
			if w, ok := p.waitsIn(uint32(rank), uint32(n)); ok {
				on[rank], why[rank] = w, fmt.Sprintf("rank %d waits in a %v", rank, r.Ops[n])
				if len(r.Lines) > n {
					why[rank] += fmt.Sprintf(" (line %d)", r.Lines[n])
				}
				break
			}
		}
	}
	if first < 0 {
		return "nobody waits"
	}
	// From the first that waits, along those who are waited for, to a circle or to the end.
	var chain []string
	seen := make([]bool, len(on))
	for at := int32(first); at >= 0 && !seen[at]; at = on[at] {
		seen[at] = true
		if why[at] == "" {
			if p.hosts[at].undone == 0 {
				chain = append(chain, fmt.Sprintf("rank %d has ended", at))
			} else {
				chain = append(chain, fmt.Sprintf("rank %d has %d operations left", at, p.hosts[at].undone))
			}
			break
		}
		if chain = append(chain, why[at]); len(chain) == 16 {
			chain = append(chain, "and so on")
			break
		}
	}
	waiting := 0
	for rank := range p.hosts {
		if p.hosts[rank].undone > 0 {
			waiting++
		}
	}
	return fmt.Sprintf("%d of %d ranks wait for ever: %s", waiting, len(p.hosts), strings.Join(chain, "; "))
}

// waitsIn finds what an operation that has begun and not ended waits for: the sender of a receive, the receiver of a
// rendezvous.
func (p *Player) waitsIn(rank, op uint32) (int32, bool) {
	if p.hosts[rank].left[op] > 0 {
		return 0, false
	}
	o := &p.s.Ranks[rank].Ops[op]
	switch {
	case o.Kind == job.Recv && p.posted.has(rank, o.Peer, o.Tag, op):
		if o.Peer == job.Any {
			return -1, true
		}
		return int32(o.Peer), true
	case o.Kind == job.Aggregate && p.onItsWay(rank, op):
		return -1, true
	case o.Kind == job.Send && o.Size > p.m.Eager && p.onItsWay(rank, op):
		return int32(o.Peer), true
	}
	return 0, false
}

// onItsWay reports whether the message of an operation has left its rank and not arrived.
func (p *Player) onItsWay(rank, op uint32) bool {
	h := &p.hosts[rank]
	for _, m := range p.msgs[h.first : h.first+h.sent] {
		if m.op == op && m.Arrived > p.now {
			return true
		}
	}
	return false
}

// has reports whether something waits.
func (q *pending) has(at, from, tag, what uint32) bool {
	for _, w := range q.wild[at] {
		if w.what == what {
			return true
		}
	}
	lot := q.lots[key{at, from, tag}]
	if lot == nil {
		return false
	}
	for range lot.Len() {
		v, _ := lot.Pop()
		lot.Push(v)
		if v == what {
			return true // turned round only in part, and nothing is taken from it any more
		}
	}
	return false
}
