package cluster

import "softib/proto/ib"

// rule is who rules, and what this member does about it.
//
// The master is who the key says, and the key is under the master's lease. Two things more make that quick and safe.
//
// The master acts on a renewal for the time of belief, by its own clock, from the moment that it was sent; and only if
// a consistent read that was sent after the answer finds the key unchanged, in the same term of the store's leader: a
// leader that was deposed and has not heard of it answers renewals, but no such reads. When that time is over the
// master has lapsed. It does not act, does not renew, and comes back only by writing its key anew.
//
// Deputies ask the store how long the master's lease has left. Once staleAfter has passed since the store got a
// renewal, belief is over, whatever is still on its way; so a deputy writes its own name, unless the key has changed
// since it began to ask, as it has if the master came back. Nobody waits for the lease to end, which would take the
// whole TTL.
type rule struct {
	name     string
	instance uint64
	lease    LeaseID
	mod, rev int64 // the key's last change, 0 for no master; and the revision at which it was looked at

	mine       bool
	believe    ib.Time
	rounds     int // on their way
	confirming bool
	unsure     bool // our name may be in the key by now: as one who has lapsed, we ask before we renew

	asking             bool // about the master, or to be one
	nextPoll, nextTake ib.Time
}

// roundsMax bounds the renewals on their way at a time.
const roundsMax = 4

// attempt is what a request in a series of them goes on from.
type attempt struct {
	mod   int64   // the master's key as it was when the series began
	sent  ib.Time // when the renewal was
	term  uint64  // of the store, which has to be the same through the series; 0 if nothing was said yet
	probe bool    // by a master that has lapsed: is it still the master
	lease LeaseID // ours
}

// Master says whether this machine is the master and may act as such at this moment.
func (e *Engine) Master(now ib.Time) bool { return e.rule.mine && now < e.rule.believe }

// ActUntil is when it has to stop acting if it hears nothing more; in the past if it is not the master.
func (e *Engine) ActUntil() ib.Time { return e.rule.believe }

// MasterName is who the master is, as far as is known; empty if there is none.
func (e *Engine) MasterName() string { return e.rule.name }

// Term is the revision of the master's key, by which a write to the store is fenced: compare with it, and what an old
// master has decided is not written.
func (e *Engine) Term() int64 { return e.rule.mod }

// learnMaster takes what the key says at a revision; nil if it is not there.
func (e *Engine) learnMaster(now ib.Time, p *Pair, rev int64) {
	r := &e.rule
	if rev < r.rev {
		return
	}
	r.rev = rev
	if p == nil {
		if r.mod != 0 {
			r.mod, r.mine, r.believe = 0, false, 0
			r.name, r.instance, r.lease = "", 0, 0
			e.tell(Event{Kind: EventMaster})
			e.plan(now)
		}
		return
	}
	if p.Mod == r.mod {
		return
	}
	m, err := parseMaster(p)
	if err != nil {
		e.Strange++
	}
	mine := m.Instance == e.cfg.Instance && p.Lease == e.lease && e.lease != 0
	if !mine || !r.mine {
		r.believe = 0
	}
	isNew := m.Instance != r.instance || m.Name != r.name || r.mod == 0
	r.mine, r.mod, r.name, r.instance, r.lease = mine, p.Mod, m.Name, m.Instance, p.Lease
	if isNew {
		e.tell(Event{Kind: EventMaster, Name: m.Name, Revision: p.Mod})
	}
	e.plan(now)
}

// masterPair finds the key among what was read.
func masterPair(a *Answer) *Pair {
	for i := range a.Pairs {
		if a.Pairs[i].Key == MasterKey {
			return &a.Pairs[i]
		}
	}
	return nil
}

// resign acts no more. What is on its way belongs to a lease that is given up.
func (e *Engine) resign() {
	r := &e.rule
	r.mine, r.believe, r.rounds, r.confirming, r.asking, r.unsure = false, 0, 0, false, false, false
	r.nextPoll, r.nextTake = ib.Never, ib.Never
}

// plan says when to look after the master, or to become it.
func (e *Engine) plan(now ib.Time) {
	r := &e.rule
	if _, known := e.view.sections[SpecSection]; e.phase != in || e.cfg.Follows && !known {
		return
	}
	switch {
	case r.mine:
		r.nextPoll, r.nextTake = ib.Never, ib.Never
		e.nextKeep = ib.Earlier(e.nextKeep, now+keepMaster)
	case r.mod == 0:
		r.nextPoll = ib.Never
		if r.nextTake == ib.Never && !r.asking {
			r.nextTake = now + ib.Earlier(ib.Time(e.age())*inTurn, ib.Second)
		}
	default:
		r.nextTake = ib.Never
		if r.nextPoll == ib.Never && !r.asking {
			r.nextPoll = now + pollMaster
		}
	}
}

// age is how many members other than the master are older.
func (e *Engine) age() (older int) {
	self, ok := e.view.members[e.cfg.Name]
	for name, m := range e.view.members { // tidy: order-free
		if name != e.rule.name && name != e.cfg.Name && (!ok || byAge(m, self) < 0) {
			older++
		}
	}
	return older
}

func (e *Engine) ruleDeadline(now ib.Time) {
	r := &e.rule
	if now >= r.nextTake {
		r.nextTake = ib.Never
		if e.phase == in && r.mod == 0 && !r.asking {
			e.take(now, attempt{})
		}
	}
	if now >= r.nextPoll {
		r.nextPoll = ib.Never
		switch {
		case e.phase != in || r.mod == 0 || r.mine || r.asking:
		case e.age() >= deputies:
			r.nextPoll = now + ib.Second
		default:
			r.asking = true
			e.send(now, forStale, Request{Op: OpTimeToLive, Lease: r.lease}, attempt{mod: r.mod, lease: e.lease})
		}
	}
}

// take begins to take the master's place: first it renews, so that nobody takes the place from it at once.
func (e *Engine) take(now ib.Time, try attempt) {
	e.rule.asking = true
	try.lease = e.lease
	e.send(now, forTake, Request{Op: OpKeepAlive, Lease: e.lease}, try)
}

// write is the transaction that makes this machine the master, in place of whoever the key had at a revision.
func (e *Engine) write(mod int64) Request {
	return Request{Op: OpTxn, Txn: Txn{If: []Compare{{MasterKey, mod}}, Then: []Write{{Key: MasterKey,
		Value: encode(master{e.cfg.Name, e.cfg.Instance}), Lease: e.lease}}, Else: []string{MasterKey}}}
}

// round is the master's renewal with the read after it; of a master that has lapsed, the read alone.
func (e *Engine) round(now ib.Time) {
	r := &e.rule
	switch {
	case e.Master(now) && r.rounds < roundsMax:
		r.rounds++
		e.send(now, forRound, Request{Op: OpKeepAlive, Lease: e.lease}, attempt{lease: e.lease})
	case !e.Master(now) && r.rounds == 0:
		r.rounds++
		e.send(now, forRound, Request{Op: OpGet, Key: MasterKey}, attempt{probe: true, lease: e.lease})
	}
}

// ruleAnswer goes on with a series of requests.
func (e *Engine) ruleAnswer(now ib.Time, p pending, a *Answer) {
	r := &e.rule
	if p.try.lease != e.lease {
		return // it was for a lease that is given up
	}
	if a.Outcome == OutcomeGone && p.why != forStale {
		e.leaseGone(now, e.lease)
		return
	}
	goesOn := false
	switch {
	case p.why == forStale:
		stale := a.Outcome == OutcomeGone || a.Outcome == OutcomeDone &&
			(a.TTL < 0 || a.TTL <= a.Granted-1-staleAfter)
		if goesOn = stale && r.mod == p.try.mod; goesOn {
			e.take(now, attempt{mod: p.try.mod, term: a.Term})
		}
	case a.Outcome != OutcomeDone:
	case p.op == OpKeepAlive:
		// The next has to be answered by the store's same leader, or this may have been no one's.
		if goesOn = p.try.term == 0 || p.try.term == a.Term || plantTerm; goesOn {
			e.send(now, p.why, Request{Op: OpGet, Key: MasterKey},
				attempt{mod: p.try.mod, sent: p.sent, term: a.Term, lease: e.lease})
		}
	case p.op == OpGet:
		e.learnMaster(now, masterPair(a), a.Rev)
		if p.why == forRound {
			r.unsure = false
		}
		goesOn = e.read(now, p, a)
	case p.op == OpTxn && a.Held:
		e.learnMaster(now, &Pair{Key: MasterKey, Value: encode(master{e.cfg.Name, e.cfg.Instance}), Mod: a.Rev,
			Lease: e.lease}, a.Rev)
		if r.mine && r.mod == a.Rev {
			r.believe = p.try.sent + beliefTime
		}
	case p.op == OpTxn:
		e.learnMaster(now, masterPair(a), a.Rev)
	}
	if p.op == OpTxn {
		r.confirming = r.confirming && p.why != forRound
		r.unsure = r.unsure && a.Outcome == OutcomeUnknown
	}
	if goesOn {
		return
	}
	if p.why == forRound {
		r.rounds = max(r.rounds-1, 0)
	} else {
		r.asking = false
	}
	e.plan(now)
}

// read goes on from what the master's key is, and says whether it did.
func (e *Engine) read(now ib.Time, p pending, a *Answer) bool {
	r := &e.rule
	same := p.try.term == a.Term || plantTerm
	switch {
	case p.why == forTake:
		if !same || r.mod != p.try.mod {
			return false
		}
		r.unsure = true
		e.send(now, forTake, e.write(r.mod), attempt{mod: r.mod, sent: p.try.sent, term: a.Term, lease: e.lease})
		return true
	case !r.mine:
		return false
	case p.try.probe:
		e.send(now, forRound, Request{Op: OpKeepAlive, Lease: e.lease}, attempt{lease: e.lease})
		return true
	case !same:
		return false
	case e.Master(now) || plantRevive:
		r.believe = max(r.believe, p.try.sent+beliefTime)
		return false
	case r.confirming:
		return false
	}
	// It has lapsed, and others may be about to take its place: whoever writes first is the master.
	r.confirming = true
	e.send(now, forRound, e.write(r.mod), attempt{sent: p.try.sent, term: a.Term, lease: e.lease})
	return true
}
