package cluster

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Times by which members live. A member's clock may run up to one percent fast or slow.
const (
	// TTL is how many seconds a member is kept that says nothing. The least that is asked for: mastership needs to
	// tell the first second from the others.
	TTL = 5
	// How long whoever carries a request waits for its answer. What the master lives by is of no use when it is late;
	// what the store writes to its disk may take a while; a list, which may be large, twice as long each time.
	askPatience   = 500 * ib.Millisecond
	writePatience = ib.Second
	listDoublings = 3
	failDoublings = 4

	keepMember = ib.Second            // between renewals of a member's lease
	keepMaster = 300 * ib.Millisecond // and of the master's
	// belief is how long, from the moment a renewal was sent, the master may act on it. Others take over when the
	// store says that staleAfter has passed since it got one; both clocks may be wrong by a percent.
	belief     = 900 * ib.Millisecond
	staleAfter = 1 // second; a whole number, since the store rounds
	pollMaster = 250 * ib.Millisecond
	// deputies is how many look after the master: the oldest members. The others wait for its lease to end.
	deputies = 4
	// inTurn is what members wait for those before them when there is no master.
	inTurn       = 30 * ib.Millisecond
	retryAfter   = 200 * ib.Millisecond
	checkEvery   = 4 * ib.Second         // between looks whether the watch has missed something
	holderLook   = 500 * ib.Millisecond  // between looks at who has our name
	holderAlive  = 2500 * ib.Millisecond // after which one who renews is alive, not just not gone yet
	troubleAfter = 2 * ib.Second
)

// Config is who this machine is.
type Config struct {
	Info
	// TTL of the lease in seconds, if it should be longer than the constant.
	TTL int64
}

type phase uint8

const (
	granting phase = iota // wants a lease
	joining               // has one, wants the name
	waiting               // another has the name, perhaps not for long
	listing               // is a member, wants to know the others
	in
	leaving
	over
)

// purpose is what an answer is for.
type purpose uint8

const (
	forGrant purpose = iota
	forJoin
	forHolder // is who has our name alive
	forList
	forKeep
	forCheck  // has the watch missed something
	forRound  // a master's renewal, and the read after it
	forStale  // is the master silent
	forTake   // renewal, read and transaction of who wants to be master
	forChange // the transaction
	forLeave
)

// pending is a request on its way.
type pending struct {
	op    Op
	why   purpose
	sent  ib.Time
	lease LeaseID
	try   attempt
}

// Engine is one machine's part in a cluster. The zero value is not ready; see New.
type Engine struct {
	cfg   Config
	phase phase

	last     uint64
	inFlight map[uint64]pending
	out      ib.Queue[Request]
	events   ib.Queue[Event]

	lease      LeaseID
	nextKeep   ib.Time
	nextTry    ib.Time // of whatever the phase wants
	nextCheck  ib.Time
	heard      ib.Time // the last time that the store said anything
	troubled   bool
	holder     Member
	holderFrom ib.Time
	holderTerm uint64
	lists      int // attempts that had no answer
	fails      int // and those to get a lease and the name

	watch uint64 // the request that watches now
	view  view
	rule  rule
	chg   change
	// Strange counts values of the store that make no sense.
	Strange int
}

// New is an engine that has done nothing yet. Its first deadline is at once.
func New(now ib.Time, cfg Config) *Engine {
	cfg.TTL = max(cfg.TTL, TTL)
	return &Engine{cfg: cfg, inFlight: map[uint64]pending{}, nextTry: now, nextKeep: ib.Never, nextCheck: ib.Never,
		heard: now, view: newView(), rule: rule{nextPoll: ib.Never, nextTake: ib.Never}, chg: change{next: ib.Never}}
}

// PollRequest is the next request for the store.
func (e *Engine) PollRequest() (Request, bool) { return e.out.Pop() }

// PollEvent is the next thing that has happened.
func (e *Engine) PollEvent() (Event, bool) { return e.events.Pop() }

// NextDeadline is when HandleDeadline wants to be called.
func (e *Engine) NextDeadline() ib.Time {
	if e.phase == over {
		return ib.Never
	}
	d := ib.Earlier(e.nextTry, e.nextKeep)
	d = ib.Earlier(d, e.nextCheck)
	d = ib.Earlier(d, ib.Earlier(e.rule.nextPoll, e.rule.nextTake))
	d = ib.Earlier(d, e.chg.next)
	if !e.troubled {
		d = ib.Earlier(d, e.heard+troubleAfter)
	}
	return d
}

func (e *Engine) send(now ib.Time, why purpose, r Request, try attempt) uint64 {
	e.last++
	r.ID = e.last
	switch {
	case r.Prefix:
		r.Patience = ib.Second << e.lists
		e.lists = min(e.lists+1, listDoublings)
	case r.Op == OpKeepAlive || r.Op == OpTimeToLive || r.Op == OpGet:
		r.Patience = askPatience
	default:
		r.Patience = writePatience
		if why == forGrant || why == forJoin {
			r.Patience <<= min(e.fails, listDoublings)
		}
	}
	e.out.Push(r)
	if r.Op != OpWatch {
		e.inFlight[r.ID] = pending{r.Op, why, now, r.Lease, try}
	}
	return r.ID
}

func (e *Engine) tell(ev Event) { e.events.Push(ev) }

// HandleDeadline does what time has come for.
func (e *Engine) HandleDeadline(now ib.Time) {
	if e.phase == over {
		return
	}
	if !e.troubled && now >= e.heard+troubleAfter {
		e.trouble("the store does not answer")
	}
	if now >= e.nextTry {
		e.nextTry = ib.Never
		e.proceed(now)
	}
	if now >= e.nextKeep {
		e.renew(now)
	}
	if now >= e.nextCheck {
		e.nextCheck = now + checkEvery
		e.send(now, forCheck, Request{Op: OpGet, Key: HeadKey}, attempt{})
	}
	e.ruleDeadline(now)
	if now >= e.chg.next {
		e.chg.next = ib.Never
		e.sendChange(now)
	}
}

// proceed asks for what the phase is about.
func (e *Engine) proceed(now ib.Time) {
	switch e.phase {
	case granting:
		e.send(now, forGrant, Request{Op: OpGrant, TTL: e.cfg.TTL}, attempt{})
	case joining:
		key := memberPrefix + e.cfg.Name
		e.send(now, forJoin, Request{Op: OpTxn, Txn: Txn{If: []Compare{{key, 0}},
			Then: []Write{{Key: key, Value: encode(e.cfg.Info), Lease: e.lease}}, Else: []string{key}}}, attempt{})
	case waiting:
		e.send(now, forHolder, Request{Op: OpTimeToLive, Lease: e.holder.Lease}, attempt{})
	case listing:
		e.send(now, forList, Request{Op: OpGet, Key: nowPrefix, Prefix: true}, attempt{})
	}
}

// renew keeps the lease; the master does it as a part of a round.
func (e *Engine) renew(now ib.Time) {
	if e.rule.mine || e.rule.unsure {
		e.nextKeep = now + keepMaster
		e.round(now)
		return
	}
	e.nextKeep = now + keepMember
	e.send(now, forKeep, Request{Op: OpKeepAlive, Lease: e.lease}, attempt{})
}

// Leave gives everything back, so that others need not wait for the lease to end.
func (e *Engine) Leave(now ib.Time) {
	if e.phase == over || e.phase == leaving {
		return
	}
	lease := e.lease
	e.phase = leaving
	e.stop()
	if lease == 0 {
		e.end(Event{Kind: EventLeft})
		return
	}
	e.send(now, forLeave, Request{Op: OpRevoke, Lease: lease}, attempt{})
}

// stop ends all that needs a lease.
func (e *Engine) stop() {
	e.lease = 0
	e.nextKeep, e.nextCheck, e.nextTry = ib.Never, ib.Never, ib.Never
	e.watch = 0
	e.resign()
}

func (e *Engine) end(ev Event) {
	e.phase = over
	e.rejectPending(ErrNotMaster)
	e.tell(ev)
}

// begin starts over with a new lease.
func (e *Engine) begin(now ib.Time) {
	e.stop()
	e.phase, e.nextTry = granting, now
}

// leaseGone begins anew, unless another lease has taken the place of this one already.
func (e *Engine) leaseGone(now ib.Time, lease LeaseID) {
	if lease != e.lease || lease == 0 || e.phase == leaving {
		return
	}
	if e.phase >= listing {
		e.tell(Event{Kind: EventLost, Text: "the lease has ended"})
	}
	e.begin(now)
}

func (e *Engine) trouble(text string) {
	if !e.troubled {
		e.troubled = true
		e.tell(Event{Kind: EventTrouble, Text: text})
	}
}

// HandleAnswer takes what the store has said to a request, or that it has said nothing.
func (e *Engine) HandleAnswer(now ib.Time, a Answer) {
	p, ok := e.inFlight[a.ID]
	delete(e.inFlight, a.ID)
	if !ok || e.phase == over {
		return
	}
	switch a.Outcome {
	case OutcomeUnknown:
	case OutcomeRefused, OutcomeFull:
		e.heard = now
		if e.phase < in { // later it is whoever asked for something that hears of it
			e.trouble(strings.TrimSpace(fmt.Sprintf("%v: %v %s", p.op, a.Outcome, a.Text)))
		}
	default:
		e.heard = now
		if e.troubled {
			e.troubled = false
			e.tell(Event{Kind: EventCalm})
		}
	}
	switch p.why {
	case forGrant:
		e.granted(now, &a)
	case forJoin:
		e.joined(now, &a)
	case forHolder:
		e.holderSays(now, &a)
	case forList:
		e.listed(now, &a)
	case forKeep:
		if a.Outcome == OutcomeGone {
			e.leaseGone(now, p.lease)
		}
	case forCheck:
		e.checked(now, &a)
	case forRound, forStale, forTake:
		e.ruleAnswer(now, p, &a)
	case forChange:
		e.changeAnswer(now, &a)
	case forLeave:
		e.end(Event{Kind: EventLeft})
	}
}

func (e *Engine) retry(now ib.Time) { e.nextTry = now + retryAfter }

// backOff tries again later each time, and not when others do: a store that has too much to do to let a thousand
// machines in must not get more to do by that.
func (e *Engine) backOff(now ib.Time) {
	wait := retryAfter << e.fails
	e.nextTry = now + wait + ib.Time(e.cfg.Instance%1024)*wait/1024
	e.fails = min(e.fails+1, failDoublings)
}

func (e *Engine) granted(now ib.Time, a *Answer) {
	if e.phase != granting {
		return
	}
	if a.Outcome != OutcomeDone {
		e.backOff(now)
		return
	}
	e.lease, e.phase, e.nextTry = a.Lease, joining, now
	e.nextKeep = now + keepMember
}

func (e *Engine) joined(now ib.Time, a *Answer) {
	if e.phase != joining {
		return
	}
	switch {
	case a.Outcome == OutcomeGone:
		e.begin(now)
		e.backOff(now)
		return
	case a.Outcome != OutcomeDone:
		e.backOff(now)
		return
	case a.Held:
		e.isMember(now)
		return
	}
	if len(a.Pairs) == 0 {
		e.retry(now) // it has just gone
		return
	}
	m, err := parseInfo(&a.Pairs[0])
	if err != nil {
		e.Strange++
	}
	if err == nil && m.Instance == e.cfg.Instance && m.Lease == e.lease {
		e.isMember(now) // an attempt whose answer was lost
		return
	}
	if m.Lease == 0 { // no member wrote this: it would be there for ever
		e.end(Event{Kind: EventRefused, Member: m, Name: e.cfg.Name, Err: err})
		return
	}
	if e.holder.Lease != m.Lease {
		e.holder, e.holderFrom = m, now
	}
	e.phase, e.nextTry = waiting, now
}

// holderSays judges who has our name: a process that was killed does not renew, and will be gone soon.
func (e *Engine) holderSays(now ib.Time, a *Answer) {
	if e.phase != waiting {
		return
	}
	if a.Outcome == OutcomeDone && a.Term != e.holderTerm {
		e.holderTerm, e.holderFrom = a.Term, now // a new leader of the store takes all leases for fresh
	}
	switch {
	case a.Outcome == OutcomeDone && a.TTL < 0 || a.Outcome == OutcomeGone:
		e.phase = joining
		e.nextTry = now
	case a.Outcome == OutcomeDone && now >= e.holderFrom+holderAlive && a.TTL >= a.Granted-2 &&
		e.holder.Instance != e.cfg.Instance:
		lease := e.lease
		e.stop()
		e.send(now, forLeave, Request{Op: OpRevoke, Lease: lease}, attempt{})
		e.end(Event{Kind: EventRefused, Member: e.holder, Name: e.cfg.Name})
	default:
		e.nextTry = now + holderLook
	}
}

func (e *Engine) isMember(now ib.Time) {
	e.holder = Member{}
	e.phase, e.nextTry = listing, now
	e.nextCheck = now + checkEvery
}

// checked looks whether the store has a head that the watch has not told of for a whole interval.
func (e *Engine) checked(now ib.Time, a *Answer) {
	if e.phase != in || a.Outcome != OutcomeDone {
		return
	}
	mod := int64(0)
	for i := range a.Pairs {
		mod = a.Pairs[i].Mod
	}
	if mod > e.view.seen && e.view.missing == mod {
		e.relist(now)
	}
	e.view.missing = mod
}

// relist reads everything anew and watches from there.
func (e *Engine) relist(now ib.Time) {
	e.watch = 0
	e.phase, e.nextTry = listing, now
}

func (e *Engine) listed(now ib.Time, a *Answer) {
	if e.phase != listing {
		return
	}
	if a.Outcome != OutcomeDone {
		e.retry(now)
		return
	}
	e.phase, e.lists, e.fails = in, 0, 0
	e.tell(Event{Kind: EventJoined, Revision: a.Rev})
	e.takeWhole(now, a)
	e.watch = e.send(now, 0, Request{Op: OpWatch, Key: nowPrefix, Rev: a.Rev + 1}, attempt{})
	e.plan(now)
}

// HandleBatch takes what a watch tells.
func (e *Engine) HandleBatch(now ib.Time, b Batch) {
	if e.phase != in || b.Watch != e.watch {
		return
	}
	e.heard = now
	switch b.Outcome {
	case OutcomeDone:
		e.takeBatch(now, &b)
	case OutcomeCompacted:
		e.relist(now)
	default:
		e.watch = e.send(now, 0, Request{Op: OpWatch, Key: nowPrefix, Rev: e.view.seen + 1}, attempt{})
	}
}

// IsMember says whether the store has this machine, as far as it knows.
func (e *Engine) IsMember() bool { return e.phase == listing || e.phase == in }

// IsOver says that the engine has left, or was refused.
func (e *Engine) IsOver() bool { return e.phase == over }

// Members are those that are there, in the order in which they came.
func (e *Engine) Members() []Member {
	list := make([]Member, 0, len(e.view.members))
	for _, m := range e.view.members { // tidy: order-free
		list = append(list, m)
	}
	slices.SortFunc(list, byAge)
	return list
}

// Name is this machine's.
func (e *Engine) Name() string { return e.cfg.Name }
