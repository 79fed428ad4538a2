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
	// patienceMax is how long a deadline waits for peers that have not looked.
	patienceMax = 500 * ib.Millisecond
)

// call makes sure that the attendant looks, making one if there is none.
func (e *Endpoint) call() {
	if !e.employed.Load() && !e.employed.Swap(true) {
		if e.machine != nil {
			e.machine.Employ()
		} else {
			go e.attend()
		}
		return
	}
	e.page.Knock()
}

// attend is the attendant: it does its turns, and what its post asks for between them.
func (e *Endpoint) attend() {
	defer close(e.gone)
	yields := 0
	for n := 0; ; n++ {
		if e.isClosing() { // its knock may have come before we said that we sleep
			return
		}
		post, sleep, streams := e.AttendOnce()
		switch post {
		case Watching, Dozing, Asleep:
			if sleep > 0 {
				if e.isClosing() {
					return
				}
				bell := e.bell
				if post == Watching {
					bell = e.page.bell() // it changes with each event that a program waits for, and there is no hurry
				}
				e.page.sleep(bell, nanoseconds(sleep))
			}
		case Searching:
			if e.page.isLocal() {
				runtime.Gosched() // whoever it waits for is a goroutine, and many attendants may be awake at once
			} else if n&15 == 15 && cacheline.Yield() {
				if yields++; yields == cacheline.YieldsMax {
					yields = 0
					e.mu.Lock()
					e.duty.hurry()
					e.mu.Unlock()
				}
			}
		case Working:
			if streams {
				cacheline.Pause()
			}
		}
	}
}

// nanoseconds is a time as the kernel counts it; for ever is negative.
func nanoseconds(d ib.Time) int64 {
	if d == ib.Never {
		return -1
	}
	return int64(d / ib.Nanosecond)
}

// AttendOnce is one turn of the attendant. It says at which post it is from now on, how long it may sleep there, and
// whether what it took in is part of a stream.
func (e *Endpoint) AttendOnce() (post Post, sleep ib.Time, streams bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	bytes := e.eng.Stats.RxBytes
	n := e.work()
	if n == 0 {
		e.turns = 0
	} else {
		streams = e.isStream(n, e.eng.Stats.RxBytes-bytes)
	}
	e.meanwhile()
	bell := e.page.bell() // looked at once: who wakes us from here on finds another one when we sleep
	post = e.duty.turn(n, e.looked(), bell&asleep == 0, bell != e.bell)
	e.bell = bell
	e.meanwhile()
	switch b := onDuty[post]; {
	case !b.says || b.value == (bell&asleep == 0):
	case !b.value:
		e.bell++
		e.page.Rest()
	case atomic.LoadUint32(&e.hint.sleepers) == 0: // else a thread of the program is to be woken
		e.bell++
		e.page.Attend()
		e.rousePrograms() // one that went to sleep just now would not be
	}
	if post <= Dozing {
		e.wakeAt.Store(int64(e.deadline()))
	}
	return post, e.duty.sleep(e.sleepUntil(), e.waiting > 0), streams
}

// sleepUntil is how long nothing is due.
func (e *Endpoint) sleepUntil() ib.Time {
	d := e.deadline()
	if d == ib.Never {
		return d
	}
	if e.late != 0 {
		return ib.Millisecond // peers have not looked yet
	}
	return max(d-e.Now(), 0)
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
