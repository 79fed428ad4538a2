package cluster

import (
	"errors"
	"fmt"

	"softib/proto/ib"
)

// changeMax is how many bytes a change may have: etcd takes requests of up to 1.5 MiB.
const changeMax = 1 << 20

// sectionsMax is how many sections it may have: etcd takes transactions of up to 128 operations.
const sectionsMax = 100

// ErrUnsettled is a change of which nobody knows whether it was made: the engine ended before the store said.
var ErrUnsettled = errors.New("nobody knows whether it was made")

// change is the one that is under way.
type change struct {
	active  bool
	seq     int
	c       Change
	headMod int64 // what it was made for
	term    int64 // by which master
	unsure  bool  // an attempt has had no answer
	next    ib.Time
}

// Propose makes a change. An Event says what came of it: EventMade when it is in the store, EventRejected when it is
// not and never will be. Only the master makes changes, one after the other.
func (e *Engine) Propose(now ib.Time, c Change) (id string, err error) {
	size := 0
	for _, s := range c.Put {
		size += len(s.Name) + len(s.Value)
		err = errors.Join(err, checkSection(s.Name))
		c.Sections = append(c.Sections, s.Name)
	}
	for _, name := range c.Drop {
		err = errors.Join(err, checkSection(name))
	}
	switch {
	case err != nil:
		return "", err
	case len(c.Put)+len(c.Drop) > sectionsMax:
		return "", fmt.Errorf("cluster: a change of %d sections: want at most %d", len(c.Put)+len(c.Drop), sectionsMax)
	case size > changeMax:
		return "", fmt.Errorf("cluster: a change of %d bytes: want at most %d", size, changeMax)
	case !e.Master(now) || e.phase != in:
		return "", ErrNotMaster
	case e.chg.active:
		return "", ErrBusy
	case c.Base != e.view.head.Revision:
		return "", fmt.Errorf("cluster: it is for revision %d, and this is %d: %w", c.Base, e.view.head.Revision,
			ErrStale)
	}
	seq := e.chg.seq + 1
	c.ID, c.By = fmt.Sprintf("%s-%x-%d", e.cfg.Name, e.cfg.Instance, seq), e.cfg.Name
	e.chg = change{active: true, seq: seq, c: c, headMod: e.view.headMod, next: ib.Never}
	e.sendChange(now)
	return c.ID, nil
}

// sendChange asks the store to make the change, for the first time or again: the comparisons make it happen once.
func (e *Engine) sendChange(now ib.Time) {
	g := &e.chg
	if !g.active {
		return
	}
	if !g.unsure {
		g.term = e.rule.mod
	}
	c, revision := &g.c, g.c.Base+1
	t := Txn{If: []Compare{{HeadKey, g.headMod}, {MasterKey, g.term}}, Then: []Write{
		{Key: HeadKey, Value: encode(Head{revision, c.ID, c.By})}, {Key: HistoryKey(revision), Value: encode(c)}},
		Else: []string{HeadKey, HistoryKey(revision), MasterKey}}
	if plantFence {
		t.If = t.If[:1]
	}
	for _, s := range c.Put {
		t.Then = append(t.Then, Write{Key: sectionPrefix + s.Name, Value: s.Value})
	}
	for _, name := range c.Drop {
		t.Then = append(t.Then, Write{Key: sectionPrefix + name, Delete: true})
	}
	if revision > historyMax {
		t.Then = append(t.Then, Write{Key: HistoryKey(revision - historyMax), Delete: true})
	}
	e.send(now, forChange, Request{Op: OpTxn, Txn: t}, attempt{})
}

func (e *Engine) changeAnswer(now ib.Time, a *Answer) {
	g := &e.chg
	switch {
	case !g.active:
	case a.Outcome == OutcomeDone && a.Held:
		e.made()
	case a.Outcome == OutcomeDone:
		e.changeFailed(now, a)
	case a.Outcome == OutcomeUnknown || g.unsure:
		// Once it may have been made, only the store's own word settles it.
		g.unsure = true
		g.next = now + retryAfter
	case a.Outcome == OutcomeFull:
		e.reject(fmt.Errorf("cluster: %w", ErrFull))
	default:
		e.reject(fmt.Errorf("cluster: %w: %s", ErrRefused, a.Text))
	}
}

// changeFailed reads why the comparisons did not hold. Revisions never come back, so an attempt that is still on its
// way fails as this one did: the answer is for ever.
func (e *Engine) changeFailed(now ib.Time, a *Answer) {
	g := &e.chg
	revision, headMod := g.c.Base+1, int64(0)
	for i := range a.Pairs {
		p := &a.Pairs[i]
		switch p.Key {
		case HeadKey:
			headMod = p.Mod
		case HistoryKey(revision):
			if c, err := ParseChange(p); err == nil && c.ID == g.c.ID {
				e.made()
				return
			}
		}
	}
	e.learnMaster(now, masterPair(a), a.Rev)
	switch {
	case headMod != g.headMod:
		e.reject(fmt.Errorf("cluster: it is for revision %d: %w", g.c.Base, ErrStale))
	case e.rule.mine && e.rule.mod != g.term:
		g.unsure = false // it is not made; and it is the same master, who came back after it had lapsed
		e.sendChange(now)
	default:
		e.reject(fmt.Errorf("cluster: %w", ErrNotMaster))
	}
}

func (e *Engine) made() {
	e.chg.active = false
	e.tell(Event{Kind: EventMade, Change: e.chg.c.ID, Revision: e.chg.c.Base + 1})
}

func (e *Engine) reject(err error) {
	e.chg.active = false
	e.tell(Event{Kind: EventRejected, Change: e.chg.c.ID, Err: err})
}

// rejectPending ends what is under way because the engine does.
func (e *Engine) rejectPending(err error) {
	if e.chg.active {
		if e.chg.unsure {
			err = ErrUnsettled
		}
		e.reject(err)
	}
}
