package endpoint

import (
	"runtime"
	"sync/atomic"
	"time"

	"softib/internal/cacheline"
	"softib/proto/ib"
)

const (
	// slack is how far ahead the clock runs that timers are started by.
	slack = 200 * time.Microsecond
	// lookIn is how often the attendant looks whether a poller still polls. Peers knock if it matters sooner.
	lookIn = ib.Millisecond
	// emptyTurns is how many turns without work the attendant waits before it sleeps.
	emptyTurns = 100
	// localTurns is the same where to sleep and to be woken is a matter of goroutines, not of threads.
	localTurns = 8
	// stream is how many packets at once, or turns in a row, make a stream.
	stream = 4
	// doze is how long the first sleep is. cacheline.StoreRelease does not wait until
	// its store can be seen, so a sender may have found us attended while we found
	// its packet missing; that is over long before the doze is. The same holds
	// for credit that comes back while queue pairs wait for it.
	doze = ib.Millisecond
	// knockAfter is how long a packet may lie in a ring before its sender knocks, knockAgain when it does so again.
	knockAfter = 20 * ib.Microsecond
	knockAgain = 200 * ib.Microsecond
	// crowdedAfter is how long somebody else runs, when a poller yields, for the machine to be short of cores.
	crowdedAfter = 100 * time.Microsecond
	// restPolls is how often a program may poll after it has armed a queue without being taken for one that goes on
	// polling.
	restPolls = 16
	// patienceMax is how long a deadline waits for peers that have not looked.
	patienceMax = 500 * ib.Millisecond
)

// polledSince reports whether somebody polls who can be trusted to go on: *polls is the count at the last look.
func (e *Endpoint) polledSince(polls *uint32) bool {
	looked := e.looked()
	polled := looked != *polls
	*polls = looked
	return polled && !(e.resting && looked-e.restAt < restPolls)
}

// call makes sure that the attendant looks, making one if there is none.
func (e *Endpoint) call() {
	if !e.employed.Load() && !e.employed.Swap(true) {
		go e.attend()
		return
	}
	e.page.Knock()
}

// attend takes in packets when nobody polls, keeps the timers, and sleeps as
// long as there is nothing to do.
func (e *Endpoint) attend() {
	defer close(e.gone)
	var polls uint32
	bell := &e.page.h.bell
	limit := emptyTurns
	if e.page.isLocal() {
		limit = localTurns
	}
	empty := limit // nothing has happened yet
	dozed := false
	for {
		select {
		case <-e.closing:
			return
		default:
		}
		e.mu.Lock()
		bytes := e.eng.Stats.RxBytes
		n := e.work()
		streams := false
		if n == 0 {
			e.turns = 0
		} else {
			streams = e.isStream(n, e.eng.Stats.RxBytes-bytes)
		}
		polled := e.polledSince(&polls)
		next := e.sleepUntil()
		e.mu.Unlock()

		switch {
		case polled:
			// Somebody polls. Leave the work to them, but come back.
			empty, dozed = 0, false
			e.page.sleep(awake, int64(min(lookIn, next)/ib.Nanosecond))
			continue
		case n > 0:
			empty, dozed = 0, false
			if !e.attended() {
				atomic.StoreUint32(bell, awake)
			}
			if streams {
				cacheline.Pause()
			}
			continue
		case empty < limit && !dozed:
			empty++
			if e.page.isLocal() {
				runtime.Gosched() // whoever it waits for is a goroutine, and many attendants may be awake at once
			} else if empty&15 == 15 {
				cacheline.YieldCore()
			}
			continue
		}
		// Nothing to do. Say so, then look once more.
		atomic.StoreUint32(bell, asleep)
		e.mu.Lock()
		n = e.work()
		polled = e.polledSince(&polls)
		e.wakeAt.Store(int64(e.eng.NextDeadline()))
		d := e.sleepUntil()
		waits := e.waiting > 0
		e.mu.Unlock()
		if n == 0 && !polled {
			if !dozed || waits {
				d = min(d, doze)
			}
			ns := int64(-1)
			if d != ib.Never {
				ns = int64(d / ib.Nanosecond)
			}
			select {
			case <-e.closing: // its knock may have come before we said that we sleep
				return
			default:
			}
			if ns != 0 {
				e.page.sleep(asleep, ns)
			}
			dozed = !e.attended()
		}
		if !dozed {
			atomic.StoreUint32(bell, awake)
			empty = 0
		}
	}
}

// sleepUntil is how long nothing is due.
func (e *Endpoint) sleepUntil() ib.Time {
	d := e.eng.NextDeadline()
	if d == ib.Never {
		return d
	}
	if e.late != 0 {
		return ib.Millisecond // peers have not looked yet
	}
	return max(max(d, e.notBefore)-e.Now(), 0)
}

// work does one turn of everything and returns how much there was.
func (e *Endpoint) work() int {
	n := e.carry()
	e.timers()
	e.send()
	e.finish()
	return n
}

// carry takes in what arrived and sends what is due. It leaves the timers alone: an
// answer that came in the meantime makes some of them void.
func (e *Endpoint) carry() int {
	e.refresh()
	n := e.drainAll()
	if e.waiting > 0 {
		e.unpark()
	}
	e.owed = false
	if _, ok := e.eng.NextSend(); ok {
		e.send()
		n++
	}
	e.finish()
	return n
}
