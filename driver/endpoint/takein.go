package endpoint

import (
	"time"

	"softib/internal/cacheline"
)

// seenMax is how long what a queue pair sent last waits for peers to take it in.
const seenMax = 20 * time.Millisecond

// TakeIn takes in what has come and sends what is due, before a call that changes a queue pair's state. An adapter of
// silicon has taken in what lies in its rings: a program that hears of a disconnect, and then flushes its queues,
// expects what its peer acknowledged before to have succeeded. And it has sent its acknowledgements; a peer would wait
// in vain for those of a queue pair that is no more.
//
// Last says that the queue pair ends. A program's next word to its peer, by another way, is that it did, and the peer
// ends its own; what was acknowledged is to have arrived by then, as it has between adapters, also where the machine is
// so busy that the peer has no turn.
func (e *Endpoint) TakeIn(last bool) {
	e.mu.Lock()
	e.settleSends()
	e.takeAll()
	e.Leave()
	if last && e.machine == nil && !e.page.isLocal() {
		e.awaitSeen()
	}
}

// takeAll takes in all that lay in the rings when it was called.
func (e *Endpoint) takeAll() {
	for i := 0; i < ringCells/drainMax && e.drainAll() > 0; i++ {
	}
}

// awaitSeen waits until programs have taken in what was sent to them before, or until it has been long. A peer that
// stands still is waited for once.
func (e *Endpoint) awaitSeen() {
	type sent struct {
		r     *Out
		until uint32
	}
	var to []sent
	e.mu.Lock()
	for _, r := range e.out {
		if r.pid != 0 && r.line == nil && r.Unseen() && !(r.idle && r.idleAt == r.Taken()) {
			to = append(to, sent{r, r.heard})
		}
	}
	e.mu.Unlock()
	end := time.Now().Add(seenMax)
	for _, s := range to {
		for turn := 1; ; turn++ {
			taken := s.r.Taken()
			if int32(s.until-taken) <= 0 || s.r.Gone() {
				break
			}
			if time.Now().After(end) {
				e.mu.Lock()
				s.r.idle, s.r.idleAt = true, taken
				e.mu.Unlock()
				break
			}
			cacheline.YieldCore()
			if turn%16 == 0 {
				s.r.peer.Knock()
				e.mu.Lock()
				e.carry() // the peer may wait for the same
				e.mu.Unlock()
			}
		}
	}
}
