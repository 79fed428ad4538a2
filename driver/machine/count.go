package machine

import (
	"slices"

	"softib/driver/endpoint"
	"softib/proto/ib"
)

// Happening is something that a machine counts: a torture in which no ring is ever full proves nothing about full ones.
type Happening uint8

// Happenings.
const (
	Direct      Happening = iota // packets, or bundles, from ring to ring
	Switched                     // packets, or bundles, into the fabric
	ByRef                        // payloads that the receiver pulls from the sender's memory
	Ahead                        // payloads written to the receiver's memory ahead of their packets
	Bundles                      // several packets in one, which the fabric took apart
	Full                         // rings that had no room
	Staged                       // requests that were left for the endpoint, as C code does it
	Wakes                        // of threads by the kernel, each after a while
	Naps                         // of threads in the library
	Stills                       // processes that stood still and went on
	Generations                  // ways that got another generation under load
	Moved                        // ways that led from ring to ring, and then through the fabric
	Kills                        // processes that were killed
	DirectKills                  // those of them from which rings led to other processes
	NumHappening
)

var happeningNames = [NumHappening]string{"packets from ring to ring", "packets into the fabric",
	"payloads by reference", "payloads written ahead", "bundles taken apart", "full rings", "staged requests",
	"wake-ups", "naps in the library", "standstills", "new generations of ways", "ways that became switched",
	"processes killed", "processes with direct rings killed"}

func (h Happening) String() string { return happeningNames[h] }

// Count is how often things happened.
type Count [NumHappening]uint64

// Counted is what has happened so far.
func (m *Machine) Counted() Count {
	n := m.count
	for _, p := range m.procs {
		isDirect := func(c *channel) bool { return c.to != nil }
		if p.dead {
			n[Kills]++
			if slices.ContainsFunc(p.out, isDirect) {
				n[DirectKills]++
			}
		}
		for slot, k := range p.keys {
			n[Generations] += uint64(p.slots.Gen(slot))
			to := m.processAt(k.DLID)
			leads := func(c *channel) bool { return c.to == to && c.sl == k.SL }
			if to != nil && !p.direct[k] && slices.ContainsFunc(p.out, leads) {
				n[Moved]++
			}
		}
	}
	return n
}

// seen is what a machine remembers of a process to count.
type seen struct {
	rings     map[*channel]*endpoint.Observer
	sent      uint64 // packets, by its engine
	lastStill ib.Time
	waiting   bool // packets for it
}

// observe counts what a process's step has done.
func (p *process) observe() {
	s, n := &p.m.seen[p.host], &p.m.count
	if p.lastStill > s.lastStill {
		s.lastStill = p.lastStill
		n[Stills]++
	}
	isFull := func(o *outlet) bool { return !o.q.Empty() }
	if waits := slices.ContainsFunc(p.port.out, isFull); waits != s.waiting {
		if s.waiting = waits; waits {
			n[Full]++
		}
	}
	sent := p.ep.Engine().Stats.TxPackets
	if sent == s.sent {
		return
	}
	s.sent = sent
	for _, c := range p.out {
		o := s.rings[c]
		if o == nil {
			o, _ = endpoint.Observe(c.mem) // it is a ring
			s.rings[c] = o
		}
		is := o.Look()
		if c.to != nil {
			n[Direct] += is.Packets
		} else {
			n[Switched] += is.Packets
		}
		n[ByRef] += is.Referred
		n[Ahead] += is.Ahead
		if is.Full {
			n[Full]++
		}
	}
}
