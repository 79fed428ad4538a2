package ufm

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/subnet/policy"
)

// line is a queue in a time of its own, with those who guess: each shows the next password as soon as the one before
// was answered.
type line struct {
	q      *queue
	now    time.Time
	later  []event
	guests []*guest
	tested int // guesses that were looked at
}

type event struct {
	at time.Time
	do func()
}

// guest is somebody in the line.
type guest struct {
	t     *turn
	again func() (netip.Addr, string) // who it is next; nil for one who comes once
	away  bool
	done  time.Time
}

// hashing is how long it takes to look at a password.
const hashing = 200 * time.Millisecond

func newLine() *line {
	l := &line{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	l.q = newQueue(func() time.Time { return l.now })
	l.q.after = func(d time.Duration, f func()) { l.later = append(l.later, event{l.now.Add(d), f}) }
	return l
}

// guesser joins, and joins again and again as whoever next says.
func (l *line) guesser(next func() (netip.Addr, string)) {
	g := &guest{again: next}
	g.t = l.q.join(next())
	l.guests = append(l.guests, g)
}

// look gives turns that have come to those whose they are. Only one has the right password: who comes once.
func (l *line) look() {
	for moved := true; moved; {
		moved = false
		for _, g := range slices.Clone(l.guests) {
			select {
			case ours := <-g.t.ours:
				moved = true
				switch {
				case g.again == nil:
					g.away = !ours
					if t := g.t; ours {
						l.q.after(hashing, func() { g.done = l.now; l.q.done(t, true) })
					} else {
						g.done = l.now
					}
				case ours:
					t := g.t
					l.q.after(hashing, func() {
						l.tested++
						l.q.done(t, false)
						g.t = l.q.join(g.again())
					})
				default:
					l.q.after(failureWaitMax, func() { g.t = l.q.join(g.again()) }) // comes back when it was told to
				}
			default:
			}
		}
	}
}

// pass lets time pass, until the end or until until says so.
func (l *line) pass(d time.Duration, until func() bool) {
	end := l.now.Add(d)
	for l.look(); until == nil || !until(); l.look() {
		if len(l.later) == 0 {
			break
		}
		i := 0
		for k := range l.later {
			if l.later[k].at.Before(l.later[i].at) {
				i = k
			}
		}
		e := l.later[i]
		if e.at.After(end) {
			break
		}
		l.later = slices.Delete(l.later, i, i+1)
		l.now = e.at
		e.do()
	}
	if until == nil {
		l.now = end
	}
}

// operator comes with the right password and says how long it took; more than a day is for ever.
func (l *line) operator(from, name string) (took time.Duration, away bool) {
	came := l.now
	g := &guest{t: l.q.join(sourceAt(from), name)}
	l.guests = append(l.guests, g)
	l.pass(24*time.Hour, func() bool { return !g.done.IsZero() })
	l.guests = l.guests[:len(l.guests)-1]
	if g.done.IsZero() {
		return 24 * time.Hour, false
	}
	return g.done.Sub(came), g.away
}

// TestQueue: however people guess, they get a few answers a second at most, and who has the right password gets in
// after a bounded time.
func TestQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of virtual time, in one goroutine")
	}
	fixed := func(from, name string) func(int) func() (netip.Addr, string) {
		return func(int) func() (netip.Addr, string) {
			return func() (netip.Addr, string) { return sourceAt(from), name }
		}
	}
	var n int
	for _, c := range []struct {
		title    string
		guessers int
		who      func(i int) func() (netip.Addr, string)
		rate     float64       // of guesses in a second, at most
		same     time.Duration // the longest wait of the operator, who comes from the guessers' address
		other    time.Duration // the same from another
	}{
		{"one connection", 1, fixed("10.0.0.1:1", "operator"), 0.15, 9 * time.Second, time.Second},
		{"16 connections", 16, fixed("10.0.0.1:1", "operator"), 4, 17 * time.Second, time.Second},
		{"as many as may wait but for one", turnsOfSource - 1, fixed("10.0.0.1:1", "operator"), 4, 90 * time.Second,
			time.Second},
		{"all of this machine's addresses", 100, func(i int) func() (netip.Addr, string) {
			return fixed(fmt.Sprintf("127.%d.0.%d:1", i, i), "operator")(i)
		}, 4, 45 * time.Second, time.Second},
		{"200 addresses, one account", 200, func(i int) func() (netip.Addr, string) {
			return fixed(fmt.Sprintf("10.0.1.%d:1", i), "operator")(i)
		}, 4, 90 * time.Second, time.Second},
		{"a subscriber's IPv6 addresses", 100, func(int) func() (netip.Addr, string) {
			return func() (netip.Addr, string) { n++; return sourceAt(fmt.Sprintf("[2001:db8::%x]:1", n)), "operator" }
		}, 4, 45 * time.Second, time.Second},
		{"one address, another account each time", 16, func(int) func() (netip.Addr, string) {
			return func() (netip.Addr, string) { n++; return sourceAt("10.0.0.1:1"), fmt.Sprint("user", n) }
		}, 4, 17 * time.Second, time.Second},
	} {
		t.Run(c.title, func(t *testing.T) {
			l := newLine()
			for i := range c.guessers {
				l.guesser(c.who(i))
			}
			l.pass(2*time.Minute, nil) // those who begin are faster
			l.tested = 0
			const long = 3 * time.Minute
			l.pass(long, nil)
			if got := float64(l.tested) / long.Seconds(); got > c.rate || got == 0 {
				t.Errorf("%.3f guesses a second: want some and at most %v", got, c.rate)
			}
			same, _ := c.who(0)()
			from := netip.AddrPortFrom(same, 9).String()
			for _, x := range []struct {
				from string
				most time.Duration
			}{{from, c.same}, {"192.0.2.7:9", c.other}} {
				for range 10 {
					l.pass(777*time.Millisecond, nil)
					if took, away := l.operator(x.from, "operator"); away || took > x.most {
						t.Fatalf("the right password from %s: %v, sent away %t: want %v at most", x.from, took, away,
							x.most)
					}
				}
			}
			if len(l.q.waiting) > turnsMax || len(l.q.failed.list) > subjectsMax {
				t.Errorf("%d wait, %d are remembered", len(l.q.waiting), len(l.q.failed.list))
			}
		})
	}
}

// TestQueuePlaces: where all places of a source are taken, one who has not failed there gets that of one who has; who
// leaves gives its place back, also in its turn.
func TestQueuePlaces(t *testing.T) {
	l := newLine()
	from := sourceAt("10.0.0.1:1")
	for range 10 {
		x := l.q.join(from, "operator")
		if !<-x.ours {
			t.Fatal("no turn")
		}
		l.q.done(x, false)
		l.now = l.now.Add(failureWaitMax)
	}
	var there []*turn
	for range turnsOfSource + 1 { // one of them has its turn
		there = append(there, l.q.join(from, "operator"))
	}
	late := l.q.join(from, "operator")
	if len(l.q.waiting) != turnsOfSource || len(late.ours) != 1 || <-late.ours {
		t.Errorf("%d wait, and who came last is not sent away", len(l.q.waiting))
	}
	ann := l.q.join(from, "ann")
	if last := there[len(there)-1]; len(l.q.waiting) != turnsOfSource || len(ann.ours) != 0 || len(last.ours) != 1 ||
		<-last.ours {
		t.Errorf("%d wait, and nobody made room for one who has not failed", len(l.q.waiting))
	}
	l.q.quit(there[0]) // whose turn it is
	if len(ann.ours) != 1 || !<-ann.ours {
		t.Error("a turn that somebody left is given to nobody")
	}
	for _, x := range append(there, ann) {
		l.q.quit(x)
	}
	if len(l.q.waiting) != 0 || l.q.busy != nil {
		t.Errorf("all have left, and %d wait", len(l.q.waiting))
	}
	for i := range 2 * subjectsMax {
		l.now = l.now.Add(time.Millisecond)
		l.q.failed.failed(subject{name: fmt.Sprint(i)}, l.now)
		l.q.failed.failed(subject{from: from}, l.now)
	}
	if n := len(l.q.failed.list); n > subjectsMax || l.q.failed.of(subject{from: from}, l.now).count < subjectsMax {
		t.Errorf("%d subjects are remembered, and not who fails all the time", n)
	}
}

// hasty makes time jump to whatever the queue of a server waits for.
func hasty(s *Server, c *clock) {
	s.queue.after = func(d time.Duration, f func()) {
		go func() {
			c.pass(d)
			f()
		}()
	}
	s.queue.rest = func(time.Duration) {}
}

// ask is a request from an address, with a password.
func ask(s *Server, from, name, secret string) int {
	r := httptest.NewRequest("GET", "http://localhost/ufmRest/app/ufm_version", nil)
	r.RemoteAddr = from
	r.SetBasicAuth(name, secret)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// TestOperatorAmongGuessers: a right password is let in while others guess at the same account from the same address.
func TestOperatorAmongGuessers(t *testing.T) {
	c := &clock{now: time.Now()}
	p := newPlace(t, "star:3", policy.Partitions{}, func(cfg *Config) { cfg.Credentials, cfg.Now = ann(t, ""), c.Now })
	hasty(p.s, c)
	var over atomic.Bool
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := 0; !over.Load(); k++ {
				if got := ask(p.s, fmt.Sprintf("127.0.0.%d:%d", i+1, k), "ann", fmt.Sprint("guess ", k)); got != 401 {
					t.Errorf("a guess: %d", got)
				}
			}
		})
	}
	creds := p.s.cfg.Credentials
	for range 40 {
		if got := ask(p.s, "127.0.0.1:9", "ann", "a long password"); got != 200 {
			t.Errorf("the right password: %d", got)
		}
		creds.mu.Lock()
		clear(creds.proven) // as if it had not been seen
		creds.mu.Unlock()
	}
	over.Store(true)
	wg.Wait()
}

// TestWaitingIsNotCut: a client that waits for its turn is not cut off for what it does not send meanwhile, and has all
// of its time when the turn has come.
func TestWaitingIsNotCut(t *testing.T) {
	p := newPlace(t, "star:3", policy.Partitions{}, func(cfg *Config) { cfg.Credentials = ann(t, "") })
	page := p.s.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		h    http.Handler
		make func() *http.Request
	}{
		"REST": {p.s, func() *http.Request {
			return httptest.NewRequest("GET", "http://localhost/ufmRest/app/ufm_version", nil)
		}},
		"page": {page, func() *http.Request { return httptest.NewRequest("GET", "http://localhost/", nil) }},
		"login": {p.s, func() *http.Request {
			r := httptest.NewRequest("POST", "http://localhost/dologin",
				strings.NewReader("httpd_username=ann&httpd_password=a+long+password"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return r
		}},
	} {
		q := p.s.queue
		first := q.join(sourceAt("10.0.0.1:1"), "bob") // who keeps the turn
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := c.make()
			r.SetBasicAuth("ann", "a long password")
			c.h.ServeHTTP(w, r)
		}()
		for there := false; !there; runtime.Gosched() {
			q.mu.Lock()
			there = len(q.waiting) == 1
			q.mu.Unlock()
		}
		if !w.read.IsZero() {
			t.Errorf("%s: who waits has to send something until %v", name, w.read)
		}
		w.write = time.Time{} // the time to write begins anew
		turn := time.Now()
		q.quit(first)
		<-done
		if w.Code != 200 || w.write.Sub(turn) < changeWait+writeMax {
			t.Errorf("%s: status %d, to be written until %v, its turn came at %v", name, w.Code, w.write, turn)
		}
		creds := p.s.cfg.Credentials
		creds.mu.Lock()
		clear(creds.proven)
		creds.mu.Unlock()
	}
}

// TestGlance: a password that is known passes without a turn; from a source that failed it is compared with others one
// by one and not too fast, and from another source not at all.
func TestGlance(t *testing.T) {
	c := &clock{now: time.Now()}
	p := newPlace(t, "star:3", policy.Partitions{}, func(cfg *Config) { cfg.Credentials, cfg.Now = ann(t, ""), c.Now })
	hasty(p.s, c)
	var rests []time.Duration
	p.s.queue.rest = func(d time.Duration) { rests = append(rests, d) }
	const here, there = "127.0.0.1:9", "10.0.0.9:9"
	for range 10 {
		if got := ask(p.s, here, "ann", "a long password"); got != 200 || len(rests) != 0 {
			t.Fatalf("who knows: %d, with %d rests", got, len(rests))
		}
	}
	if p.s.cfg.Credentials.known(sourceAt(there), "ann", "a long password", c.Now()) {
		t.Error("what was shown at one source is known at another")
	}
	for i := range failuresFree + 1 + 20 {
		if got := ask(p.s, here, "ann", fmt.Sprint("guess ", i)); got != 401 {
			t.Fatalf("a guess: %d", got)
		}
	}
	if len(rests) != 20 || rests[0] != glancePause {
		t.Errorf("20 guesses too many were held up %d times", len(rests))
	}
	p.s.queue.join(sourceAt("10.0.0.1:1"), "ann") // somebody has the turn, and keeps it
	if got := ask(p.s, here, "ann", "a long password"); got != 200 {
		t.Errorf("who knows waits for a turn: %d", got)
	}
	if len(p.s.queue.lanes) != 0 {
		t.Errorf("%d lanes that nobody uses", len(p.s.queue.lanes))
	}
}

// TestSources: what is one source.
func TestSources(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"127.0.0.1:1", "127.9.8.7:2", true}, {"127.0.0.1:1", "[::1]:2", true},
		{"[::ffff:127.0.0.3]:1", "127.0.0.1:2", true}, {"127.0.0.1:1", "10.0.0.1:1", false},
		{"10.0.0.1:1", "10.0.0.1:2", true}, {"10.0.0.1:1", "10.0.0.2:1", false},
		{"[2001:db8::1]:99", "[2001:db8::2:3]:1", true}, {"[2001:db8::1]:99", "[2001:db8:0:1::1]:99", false},
		{"[fe80::1%eth0]:1", "[fe80::2%eth1]:1", true},
	} {
		if got := sourceOf(&http.Request{RemoteAddr: c.a}) == sourceOf(&http.Request{RemoteAddr: c.b}); got != c.same {
			t.Errorf("%s and %s are one source: %t", c.a, c.b, got)
		}
	}
}
