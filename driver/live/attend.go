package live

import (
	"runtime"
	"time"

	"softib/internal/cacheline"
	"softib/proto/ib"
)

const (
	// lookIn is how often the attendant looks whether a poller still polls.
	lookIn = 200 * time.Microsecond
	// emptyTurns is how many turns without work the attendant waits before it sleeps.
	emptyTurns = 200
	// stream is how many packets at once, or turns in a row, make a stream.
	stream = 4
	// doze is how long the first sleep is. cacheline.StoreRelease does not wait until
	// its store can be seen, so a sender may have found us attended while we found
	// its packet missing; that is over long before the doze is. The same holds
	// for credit that comes back while queue pairs wait for it.
	doze = ib.Millisecond
)

// ring wakes the attendant, if it sleeps. Most hosts of a large fabric never need one, so the first ring makes it.
func (h *Host) ring() {
	if !h.employed.Load() && !h.employed.Swap(true) {
		h.f.employ(h)
	}
	select {
	case h.bell <- struct{}{}:
	default:
	}
}

// employ starts the attendant of a host, unless the fabric is being closed.
func (f *Fabric) employ(h *Host) {
	f.staff.Lock()
	defer f.staff.Unlock()
	if !f.closed.Load() {
		f.wg.Add(1)
		go h.attend()
	}
}

// attend takes in packets when nobody polls, keeps the timers, and sleeps as
// long as there is nothing to do.
func (h *Host) attend() {
	defer h.f.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var polls uint32
	empty := emptyTurns // nothing has happened yet
	dozed := false
	for {
		select {
		case <-h.f.closing:
			return
		default:
		}
		if h.overdue() {
			h.help()
		}
		h.mu.Lock()
		bytes := h.eng.Stats.RxBytes
		n := h.work()
		streams := false
		if n == 0 {
			h.turns = 0
		} else {
			streams = h.isStream(n, h.eng.Stats.RxBytes-bytes)
		}
		polled := h.polls != polls
		polls = h.polls
		h.mu.Unlock()

		switch {
		case polled:
			// Somebody polls. Leave the work to them, but come back.
			empty, dozed = 0, false
			h.sleep(timer, ib.Time(lookIn)*ib.Nanosecond)
			continue
		case n > 0:
			empty, dozed = 0, false
			if !h.attended.Load() {
				h.attended.Store(true)
			}
			if streams {
				cacheline.Pause()
			}
			continue
		case empty < emptyTurns && !dozed:
			empty++
			runtime.Gosched()
			continue
		}
		// Nothing to do. Say so, then look once more.
		h.attended.Store(false)
		h.mu.Lock()
		n = h.work()
		next := h.eng.NextDeadline()
		h.wakeAt.Store(int64(next))
		waits := h.waiting > 0
		h.mu.Unlock()
		if n == 0 {
			d := next
			if next != ib.Never {
				d = next - h.f.Now()
			}
			if !dozed || waits {
				d = min(d, doze)
			}
			dozed = !h.sleep(timer, d)
		}
		if !dozed {
			h.attended.Store(true)
			empty = 0
		}
	}
}

// overdue reports whether a deadline has come.
func (h *Host) overdue() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.eng.NextDeadline()
	return d != ib.Never && h.refresh() >= d
}

// work does one turn of everything and returns how much there was.
func (h *Host) work() int {
	n := h.carry()
	h.timers(h.clock)
	h.send()
	h.finish()
	return n
}

// carry takes in what arrived and sends what is due. It leaves the timers alone: an
// answer that came in the meantime makes some of them void.
func (h *Host) carry() int {
	h.refresh()
	n := h.drainAll()
	if h.waiting > 0 {
		h.unpark()
	}
	h.owed = false
	if _, ok := h.eng.NextSend(); ok {
		h.send()
		n++
	}
	h.finish()
	return n
}

// sleep waits for the bell, at most d, and reports whether it rang.
func (h *Host) sleep(timer *time.Timer, d ib.Time) bool {
	if d <= 0 {
		return false
	}
	if d == ib.Never {
		select {
		case <-h.bell:
		case <-h.f.closing:
		}
		return true
	}
	timer.Reset(time.Duration(d / ib.Nanosecond))
	select {
	case <-h.bell:
		return true
	case <-timer.C:
	case <-h.f.closing:
	}
	return false
}
