package ufm

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// queue is where passwords wait to be looked at, one at a time: there are better uses for processors.
//
// Whether a password is right shows only when it is looked at, and to look at as many as come is to let people guess.
// So whoever comes after failures, from the same source or at the same account, is not refused but held up: tries are
// so far apart as the failures ask for, and wrong ones wait for their answer as right ones do. The more wait, the
// closer together they are looked at, so that all get their answer within a bounded time; never closer than
// failureWait, and a source that holds many connections gains no more than that. Who has not failed goes before those
// who have.
type queue struct {
	now   func() time.Time
	after func(time.Duration, func()) // calls a function later
	rest  func(time.Duration)

	mu      sync.Mutex
	failed  throttle
	waiting []*turn // in the order in which they came
	busy    *turn   // whose password is looked at
	wake    time.Time
	lanes   map[netip.Addr]*lane
}

// turn is one that waits. Its channel says that it is its turn, or that there was no place for it.
type turn struct {
	// of is what its failure is counted of: the source, the account, and both together.
	of   [3]subject
	came time.Time
	ours chan bool
	// began is when its turn came; tries are so far apart, however long it takes to look at one.
	began time.Time
}

const (
	// turnsOfSource and turnsMax bound who waits, and so for how long: of one source, and in all.
	turnsOfSource = 320
	turnsMax      = 512
	// headStart is what those who have not failed have before those who have, for each failure up to headStarts: in all
	// longer than any who guess wait. As it is bounded, nobody waits for ever.
	headStart  = 8 * time.Second
	headStarts = 8
	// glancePause is how far apart passwords of a source that failed are compared with those that are known.
	glancePause = 5 * time.Millisecond
)

// lane lets those of one source pass one after the other.
type lane struct {
	sync.Mutex
	users int
}

func newQueue(now func() time.Time) *queue {
	return &queue{now: now, after: func(d time.Duration, f func()) { time.AfterFunc(d, f) }, rest: time.Sleep,
		lanes: map[netip.Addr]*lane{}}
}

// glance asks whether a password is known, which needs no turn and no work, so that who shows the right one again and
// again goes on as if nobody guessed. From a source that failed those who ask pass one by one and not too fast: else it
// would be the place to guess at. Who has left meanwhile is not told.
func (q *queue) glance(ctx context.Context, from netip.Addr, known func() bool) bool {
	q.mu.Lock()
	if q.failed.of(subject{from: from}, q.now()).pause() == 0 {
		q.mu.Unlock()
		return known()
	}
	l := q.lanes[from]
	if l == nil {
		l = &lane{}
		q.lanes[from] = l
	}
	l.users++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(q.lanes, from)
		}
	}()
	l.Lock()
	defer l.Unlock()
	if ctx.Err() != nil {
		return false
	}
	q.rest(glancePause)
	return known()
}

// join waits for a turn. Where all places are taken, the one among all that wait who has failed most gives its up.
func (q *queue) join(from netip.Addr, name string) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	account := "user " + clip(name)
	t := &turn{of: [3]subject{{from: from}, {name: account}, {from, account}}, came: q.now(), ours: make(chan bool, 1)}
	q.waiting = append(q.waiting, t)
	ofSource := 0
	for _, x := range q.waiting {
		if x.of[0] == t.of[0] {
			ofSource++
		}
	}
	if ofSource > turnsOfSource {
		q.sendAway(func(x *turn) bool { return x.of[0] == t.of[0] })
	} else if len(q.waiting) > turnsMax {
		q.sendAway(func(*turn) bool { return true })
	}
	q.next()
	return t
}

// quit is of one who waits no more, whether or not its turn has come.
func (q *queue) quit(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy == t {
		q.busy = nil
	}
	q.drop(t)
	q.next()
}

// done ends a turn.
func (q *queue) done(t *turn, right bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !right {
		for _, s := range t.of {
			q.failed.failed(s, t.began)
		}
	}
	q.busy = nil
	q.next()
}

// next gives the next one its turn, or sees to it that somebody does when it is time.
func (q *queue) next() {
	if q.busy != nil || len(q.waiting) == 0 {
		return
	}
	now := q.now()
	crowd := map[subject]int{}
	for _, t := range q.waiting {
		crowd[t.of[0]]++
		crowd[t.of[1]]++
	}
	var first *turn
	var due, soonest time.Time
	for _, t := range q.waiting {
		if at := q.notBefore(t, crowd, now); at.After(now) {
			if soonest.IsZero() || at.Before(soonest) {
				soonest = at
			}
			continue
		}
		if d := t.came.Add(q.handicap(t, now)); first == nil || d.Before(due) {
			first, due = t, d
		}
	}
	if first != nil {
		q.drop(first)
		q.busy, first.began = first, now
		first.ours <- true
		return
	}
	if q.wake.IsZero() || soonest.Before(q.wake) {
		q.wake = soonest
		q.after(soonest.Sub(now), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.wake = time.Time{}
			q.next()
		})
	}
}

// notBefore is when one may have its turn. Crowd is how many wait of each source and for each account.
func (q *queue) notBefore(t *turn, crowd map[subject]int, now time.Time) (at time.Time) {
	failedHere := q.failed.of(t.of[2], now).count > 0
	for _, x := range t.of[:2] {
		f := q.failed.of(x, now)
		apart := failureWait // for failures of others
		if failedHere {
			apart = max(failureWait, failureWaitMax/time.Duration(crowd[x]))
		}
		if x := f.last.Add(min(f.pause(), apart)); x.After(at) {
			at = x
		}
	}
	return at
}

// handicap is by how much those go before one who have not failed.
func (q *queue) handicap(t *turn, now time.Time) time.Duration {
	n := min(q.failed.of(t.of[0], now).count, headStarts) + min(q.failed.of(t.of[2], now).count, headStarts)
	return time.Duration(n) * headStart
}

// sendAway takes the place of one who has failed most, and of those the last that came.
func (q *queue) sendAway(among func(*turn) bool) {
	var away *turn
	var most time.Duration
	now := q.now()
	for _, t := range q.waiting {
		if h := q.handicap(t, now); among(t) && (away == nil || h >= most) {
			away, most = t, h
		}
	}
	q.drop(away)
	away.ours <- false
}

func (q *queue) drop(t *turn) {
	q.waiting = slices.DeleteFunc(q.waiting, func(x *turn) bool { return x == t })
}

// token counts a wrong token of a source's, and says how long it has to wait if it shows them too fast. These count by
// themselves: nobody guesses a token, and who has an old one does not slow passwords down.
func (q *queue) token(from netip.Addr) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, s := q.now(), subject{from, "token"}
	f := q.failed.of(s, now)
	if d := f.last.Add(f.pause()).Sub(now); d > 0 {
		return d
	}
	q.failed.failed(s, now)
	return 0
}
