package ufm

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// subject is what failures are counted of: a source, an account, or one source's tries at one account.
type subject struct {
	from netip.Addr
	name string
}

// failures are those of a subject.
type failures struct {
	count int
	last  time.Time
}

const (
	// failuresFree are what somebody may mistype at no cost.
	failuresFree = 5
	// failureWait is how far apart tries are after that, twice as far after each failure.
	failureWait = 250 * time.Millisecond
	// failureWaitMax is also how long those wait at most who try from few connections.
	failureWaitMax = 8 * time.Second
	// failureMemory is how long a subject must be quiet to be like any other again.
	failureMemory = 2 * time.Minute
	subjectsMax   = 16384
)

// throttle counts who failed, so that those who guess are slowed down. Who uses it has a lock.
type throttle struct {
	list map[subject]*failures
}

// of are the failures of a subject; none after a while without any.
func (t *throttle) of(s subject, now time.Time) failures {
	f := t.list[s]
	if f == nil || now.Sub(f.last) > failureMemory {
		return failures{}
	}
	return *f
}

// failed counts a failure.
func (t *throttle) failed(s subject, now time.Time) {
	if t.list == nil {
		t.list = map[subject]*failures{}
	}
	f := t.list[s]
	if f == nil {
		if len(t.list) >= subjectsMax {
			t.forget()
		}
		f = &failures{}
		t.list[s] = f
	}
	if now.Sub(f.last) > failureMemory {
		f.count = 0
	}
	f.count++
	f.last = now
}

// forget makes room: an eighth of all goes, those that were quiet for longest.
func (t *throttle) forget() {
	last := make([]time.Time, 0, len(t.list))
	for _, f := range t.list {
		last = append(last, f.last)
	}
	slices.SortFunc(last, time.Time.Compare)
	quiet := last[len(last)/8]
	for s, f := range t.list {
		if !f.last.After(quiet) {
			delete(t.list, s)
		}
	}
}

// pause is how long after the last failure the next try may be.
func (f failures) pause() time.Duration {
	n := f.count - failuresFree
	if n <= 0 {
		return 0
	}
	return min(failureWait<<min(n-1, 10), failureWaitMax)
}

// sourceOf is who a request comes from: an address, or for IPv6 the network of a subscriber, who has as many addresses
// as anybody could want. So does whoever is on this machine: its own addresses are one source.
func sourceOf(r *http.Request) netip.Addr { return sourceAt(r.RemoteAddr) }

// sourceAt is the source at an address with a port.
func sourceAt(addr string) netip.Addr {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	a = a.Unmap().WithZone("")
	if a.IsLoopback() {
		return netip.IPv6Loopback()
	}
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
