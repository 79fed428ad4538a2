package ufm

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// throttle slows down those who guess: after a few failures a source has to wait before the next try, for longer each
// time. Whoever shows a credential that is known to be right is never asked to wait, so that one who guesses does not
// lock out others behind the same address.
type throttle struct {
	mu   sync.Mutex
	list map[netip.Addr]*failures
}

type failures struct {
	count int
	last  time.Time
	until time.Time
}

const (
	failuresFree   = 5
	failureWait    = 250 * time.Millisecond
	failureWaitMax = 30 * time.Second
	// failureMemory is how long a source must be quiet to be like any other again.
	failureMemory = 2 * time.Minute
	sourcesMax    = 8192
)

// wait is how long a source has to wait before it may try; 0 is not at all.
func (t *throttle) wait(from netip.Addr, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.list[from]
	if f == nil || !now.Before(f.until) {
		return 0
	}
	return f.until.Sub(now)
}

// failed counts a failure.
func (t *throttle) failed(from netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list == nil {
		t.list = map[netip.Addr]*failures{}
	}
	f := t.list[from]
	if f == nil {
		if len(t.list) >= sourcesMax {
			t.forget(now)
		}
		f = &failures{}
		t.list[from] = f
	}
	if now.Sub(f.last) > failureMemory {
		f.count = 0
	}
	f.count++
	f.last = now
	if n := f.count - failuresFree; n > 0 {
		f.until = now.Add(min(failureWait<<min(n-1, 10), failureWaitMax))
	}
}

// forget makes room: those that were quiet for long enough go, and if there are none, whoever was quiet for longest.
func (t *throttle) forget(now time.Time) {
	var oldest netip.Addr
	for a, f := range t.list {
		if now.Sub(f.last) > failureMemory {
			delete(t.list, a)
		} else if o := t.list[oldest]; o == nil || f.last.Before(o.last) {
			oldest = a
		}
	}
	if len(t.list) >= sourcesMax {
		delete(t.list, oldest)
	}
}

// sourceOf is who a request comes from: an address, or for IPv6 the network of a subscriber, who has as many addresses
// as anybody could want.
func sourceOf(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
