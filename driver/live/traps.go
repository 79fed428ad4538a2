package live

import (
	"cmp"
	"slices"
	"time"

	"softib/node/agent"
	"softib/proto/ib"
)

// stir notes that something happened at a node that its agent may have to tell a manager. The fabric's lock is held.
func (f *Fabric) stir(n *node) {
	if !n.stirred {
		n.stirred = true
		f.restless = append(f.restless, n)
		ring(f.trapBell)
	}
}

// sendTraps sends the agents' traps, and repeats them until a manager has answered.
func (f *Fabric) sendTraps() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := min(f.announce(), f.Now()+3600*ib.Second)
		timer.Reset(max(time.Duration((next-f.Now())/ib.Nanosecond), 0) + 50*time.Microsecond)
		select {
		case <-f.closing:
			return
		case <-f.trapBell:
		case <-timer.C:
		}
	}
}

// announce sends what is due and says when it wants to be called again.
func (f *Fabric) announce() ib.Time {
	next := ib.Never
	f.lock(f.Now())
	nodes := f.restless
	f.restless = nil
	for _, n := range nodes {
		n.stirred = false
	}
	f.unlock()
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.topo.Index, b.topo.Index) })
	for _, n := range nodes {
		for ok := true; ok; {
			var due ib.Time
			f.lock(f.Now())
			if ok, due = f.trap(n); !ok && due != ib.Never && !n.stirred {
				// Not rung for: the timer will come.
				n.stirred = true
				f.restless = append(f.restless, n)
				next = ib.Earlier(next, due)
			}
			f.unlock()
		}
	}
	return next
}

// trap sends a trap of a node, if there is one that is due, and says when the next is. The fabric's lock is held.
func (f *Fabric) trap(n *node) (sent bool, due ib.Time) {
	var p packet
	n.fold()
	n.agent.HandleTimer(f.now)
	a, sent := n.agent.PollTrap(f.now, p.data[:])
	n.passOn()
	if sent {
		agent.NewSMP(&p.Packet, a.SLID, a.DLID, a.SL)
		f.carry(place{n, a.Port, true}, &p, nil)
	}
	return sent, n.agent.NextDeadline()
}
