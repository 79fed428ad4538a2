package live

import (
	"slices"
	"time"

	"softib/node/agent"
	"softib/proto/ib"
)

// stir notes that something happened at a node that its agent may have to tell a manager. The fabric's lock is held.
func (f *Fabric) stir(node int) {
	if !f.stirred[node] {
		f.stirred[node] = true
		f.restless = append(f.restless, node)
		select {
		case f.trapBell <- struct{}{}:
		default:
		}
	}
}

// sendTraps sends the agents' traps, and repeats them until a manager has answered.
func (f *Fabric) sendTraps() {
	defer f.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := f.announce()
		if next == ib.Never {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(max(time.Duration((next-f.Now())/ib.Nanosecond), 0) + 50*time.Microsecond)
		}
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
	nodes := slices.Sorted(slices.Values(f.restless))
	f.restless = nil
	for _, n := range nodes {
		f.stirred[n] = false
	}
	f.unlock()
	var p packet
	for _, n := range nodes {
		for {
			f.lock(f.Now())
			p = packet{}
			ok := false
			at := place{node: n, fromHere: true}
			f.with(at, func() {
				f.agents[n].HandleTimer(f.now)
				a, more := f.agents[n].PollTrap(f.now, p.data[:])
				agent.NewSMP(&p.Packet, a.SLID, a.DLID, a.SL)
				at.port, ok = a.Port, more
			})
			if ok {
				f.carry(at, &p, nil)
			}
			due := f.agents[n].NextDeadline()
			if !ok && due != ib.Never && !f.stirred[n] {
				// Not rung for: the timer will come.
				f.stirred[n] = true
				f.restless = append(f.restless, n)
				next = ib.Earlier(next, due)
			}
			f.unlock()
			if !ok {
				break
			}
		}
	}
	return next
}
