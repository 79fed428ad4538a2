package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"softib/operate/cluster"
	"softib/operate/cluster/model"
	"softib/proto/ib"
)

// rig is members on a store that answers at once.
type rig struct {
	t     *testing.T
	now   ib.Time
	store *model.Store
	procs []*proc
}

type proc struct {
	*cluster.Engine
	cut, dead bool
	watch     uint64
	rev       int64
	events    []cluster.Event
}

func newRig(t *testing.T) *rig { return &rig{t: t, store: model.New()} }

func (r *rig) join(name string) *proc {
	p := &proc{Engine: cluster.New(r.now, cluster.Config{Info: cluster.Info{Name: name,
		Instance: uint64(len(r.procs) + 1), Since: "noon", Control: name + ":1"}})}
	r.procs = append(r.procs, p)
	return p
}

// run lets time pass, in steps that are shorter than anything here lasts.
func (r *rig) run(d ib.Time) {
	for end := r.now + d; r.now < end; r.now += 10 * ib.Millisecond {
		r.store.Advance(r.now)
		for _, p := range r.procs {
			if p.dead {
				continue
			}
			if r.now >= p.NextDeadline() {
				p.HandleDeadline(r.now)
			}
			for req, ok := p.PollRequest(); ok; req, ok = p.PollRequest() {
				switch {
				case req.Op == cluster.OpWatch:
					p.watch, p.rev = req.ID, req.Rev
				case p.cut:
					p.HandleAnswer(r.now, cluster.Answer{ID: req.ID, Outcome: cluster.OutcomeUnknown})
				default:
					p.HandleAnswer(r.now, r.store.Do(r.now, req))
				}
			}
			if list, ok := r.store.Since("now/", p.rev); p.watch != 0 && !p.cut {
				if !ok {
					p.HandleBatch(r.now, cluster.Batch{Watch: p.watch, Outcome: cluster.OutcomeCompacted})
					p.watch = 0
				}
				for _, b := range list {
					b.Watch, p.rev = p.watch, b.Rev+1
					p.HandleBatch(r.now, b)
				}
			}
			for ev, ok := p.PollEvent(); ok; ev, ok = p.PollEvent() {
				p.events = append(p.events, ev)
			}
		}
	}
}

func (p *proc) said(k cluster.EventKind) (last cluster.Event, n int) {
	for _, ev := range p.events {
		if ev.Kind == k {
			last = ev
			n++
		}
	}
	return last, n
}

func (r *rig) masters() (names []string) {
	for _, p := range r.procs {
		if !p.dead && p.Master(r.now) {
			names = append(names, p.Name())
		}
	}
	return names
}

// TestStory: machines join, one is the master and changes the fabric; it dies and another goes on from there.
func TestStory(t *testing.T) {
	r := newRig(t)
	a, b, c := r.join("a"), r.join("b"), r.join("c")
	r.run(ib.Second)
	if m := r.masters(); len(m) != 1 || len(a.Members()) != 3 || b.MasterName() != m[0] {
		t.Fatalf("masters %v, members %v", m, a.Members())
	}
	byName := map[string]*proc{"a": a, "b": b, "c": c}
	first := byName[r.masters()[0]]
	id, err := first.Propose(r.now, cluster.Change{Put: []cluster.Section{{Name: "spec", Value: []byte("star:4")}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Propose(r.now, cluster.Change{}); !errors.Is(err, cluster.ErrBusy) {
		t.Errorf("%v", err)
	}
	r.run(100 * ib.Millisecond)
	if ev, n := first.said(cluster.EventMade); n != 1 || ev.Change != id || ev.Revision != 1 {
		t.Errorf("%+v, %d times", ev, n)
	}
	for _, p := range r.procs {
		if v, _ := p.Section("spec"); string(v) != "star:4" || p.Revision() != 1 {
			t.Errorf("%s has %q at %d", p.Name(), v, p.Revision())
		}
		if _, err := p.Propose(r.now, cluster.Change{Base: 7}); p == first && !errors.Is(err, cluster.ErrStale) ||
			p != first && !errors.Is(err, cluster.ErrNotMaster) {
			t.Errorf("%s: %v", p.Name(), err)
		}
	}
	first.dead = true
	died := r.now
	for len(r.masters()) == 0 && r.now < died+2*ib.Second {
		r.run(10 * ib.Millisecond)
	}
	if len(r.masters()) != 1 {
		t.Fatalf("no master after %v", r.now-died)
	}
	second := byName[r.masters()[0]]
	if _, err := second.Propose(r.now, cluster.Change{Base: 1, Drop: []string{"spec"}}); err != nil {
		t.Error(err)
	}
	r.run(6 * ib.Second)
	if _, has := second.Section("spec"); has || second.Revision() != 2 || len(second.Members()) != 2 {
		t.Errorf("%d, %v", second.Revision(), second.Members())
	}
	second.Leave(r.now)
	r.run(200 * ib.Millisecond)
	if m := r.masters(); len(m) != 1 || m[0] == second.Name() {
		t.Errorf("masters %v right after one has left", m)
	}
	if _, n := second.said(cluster.EventLeft); n != 1 || !second.IsOver() {
		t.Errorf("%+v", second.events)
	}
}

// TestNameTaken: who comes second is told who has the name and since when; who comes after a crash waits and joins.
// TestFollower: who cannot say what the fabric is leaves it to who can, however late that comes, and takes over from it
// once it is said.
func TestFollower(t *testing.T) {
	r := newRig(t)
	b := r.join("b")
	b.Engine = cluster.New(r.now, cluster.Config{Info: cluster.Info{Name: "b", Instance: 7, Follows: true}})
	r.run(10 * ib.Second)
	if b.MasterName() != "" {
		t.Fatalf("%q is the master of a fabric that nobody knows", b.MasterName())
	}
	a := r.join("a")
	r.run(2 * ib.Second)
	if !a.Master(r.now) {
		t.Fatalf("who knows the fabric is not the master: %q is", a.MasterName())
	}
	if _, err := a.Propose(r.now, cluster.Change{Base: a.Revision(), What: "made",
		Put: []cluster.Section{{Name: cluster.SpecSection, Value: []byte("{}")}}}); err != nil {
		t.Fatal(err)
	}
	r.run(ib.Second)
	a.dead = true
	r.run(8 * ib.Second)
	if !b.Master(r.now) {
		t.Errorf("the one that is left did not take over: %q is the master", b.MasterName())
	}
}

func TestNameTaken(t *testing.T) {
	r := newRig(t)
	a := r.join("a")
	r.run(ib.Second)
	twin := r.join("a")
	r.run(4 * ib.Second)
	if ev, n := twin.said(cluster.EventRefused); n != 1 || ev.Member.Since != "noon" || ev.Member.Instance != 1 {
		t.Fatalf("%+v", twin.events)
	}
	a.dead = true
	again := r.join("a")
	r.run(7 * ib.Second)
	if !again.IsMember() || !again.Master(r.now) {
		t.Errorf("%+v", again.events)
	}
}

// TestCutOff: who is cut off keeps what he knows and changes nothing; when he is back, he is a member again.
func TestCutOff(t *testing.T) {
	r := newRig(t)
	a := r.join("a")
	r.run(ib.Second)
	if _, err := a.Propose(r.now, cluster.Change{Put: []cluster.Section{{Name: "x", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	r.run(ib.Second / 10)
	b := r.join("b")
	r.run(ib.Second)
	a.cut = true
	r.run(8 * ib.Second)
	if _, err := a.Propose(r.now, cluster.Change{Base: 1}); !errors.Is(err, cluster.ErrNotMaster) {
		t.Errorf("%v", err)
	}
	if v, _ := a.Section("x"); string(v) != "1" || len(a.Members()) != 2 {
		t.Errorf("%q, %v", v, a.Members())
	}
	if ev, n := a.said(cluster.EventTrouble); n != 1 || !strings.Contains(ev.Text, "does not answer") {
		t.Errorf("%+v", ev)
	}
	if !b.Master(r.now) || len(b.Members()) != 1 {
		t.Errorf("%v", b.Members())
	}
	a.cut = false
	r.run(2 * ib.Second)
	if _, n := a.said(cluster.EventLost); n != 1 || !a.IsMember() || len(b.Members()) != 2 || a.Master(r.now) {
		t.Errorf("%+v", a.events)
	}
}

// TestFullStore: a change that has no room is rejected and says so, and the master stays.
func TestFullStore(t *testing.T) {
	r := newRig(t)
	a := r.join("a")
	r.run(ib.Second)
	r.store.Full = true
	if _, err := a.Propose(r.now, cluster.Change{Put: []cluster.Section{{Name: "x"}}}); err != nil {
		t.Fatal(err)
	}
	r.run(ib.Second)
	if ev, n := a.said(cluster.EventRejected); n != 1 || !errors.Is(ev.Err, cluster.ErrFull) || !a.Master(r.now) {
		t.Errorf("%+v", ev)
	}
}

// TestOlderStore: a store that has lost what was acknowledged is not believed.
func TestOlderStore(t *testing.T) {
	r := newRig(t)
	a := r.join("a")
	r.run(ib.Second)
	for i := range int64(3) {
		_, err := a.Propose(r.now, cluster.Change{Base: i,
			Put: []cluster.Section{{Name: "x", Value: []byte{'0' + byte(i)}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.run(ib.Second / 10)
	}
	r.store = model.New() // somebody has put an empty one there
	a.HandleBatch(r.now, cluster.Batch{Watch: a.watch, Outcome: cluster.OutcomeCompacted})
	a.watch = 0
	r.run(3 * ib.Second)
	if v, _ := a.Section("x"); string(v) != "2" || a.Revision() != 3 {
		t.Errorf("%q at %d", v, a.Revision())
	}
	if ev, n := a.said(cluster.EventTrouble); n == 0 || !strings.Contains(ev.Text, "has 3 already") {
		t.Errorf("%+v", a.events)
	}
}

// TestHistoryIsBounded: the store remembers a thousand changes.
func TestHistoryIsBounded(t *testing.T) {
	r := newRig(t)
	a := r.join("a")
	r.run(ib.Second)
	for i := range int64(1005) {
		if _, err := a.Propose(r.now, cluster.Change{Base: i, What: fmt.Sprint(i)}); err != nil {
			t.Fatal(i, err)
		}
		r.run(20 * ib.Millisecond)
	}
	list := r.store.Get(cluster.HistoryPrefix, true)
	if c, err := cluster.ParseChange(&list[0]); len(list) != 1000 || err != nil || c.What != "5" || c.By != "a" {
		t.Errorf("%d: %+v, %v", len(list), c, err)
	}
}

// FuzzValues: whatever others write to the store, members do not fall over it.
func FuzzValues(f *testing.F) {
	for i, s := range []string{`{"name":"z","instance":"3"}`, `{"revision":4,"change":"q"}`, `{"revision":-1}`,
		`[]`, ``} {
		f.Add(uint8(i), []byte(s))
	}
	f.Fuzz(func(t *testing.T, which uint8, value []byte) {
		r := newRig(t)
		a := r.join("a")
		r.run(ib.Second)
		key := []string{cluster.MasterKey, cluster.HeadKey, "now/members/z", "now/sections/z", "now/members/a"}[which%5]
		r.store.Do(r.now, cluster.Request{Op: cluster.OpTxn,
			Txn: cluster.Txn{Then: []cluster.Write{{Key: key, Value: value}}}})
		b := r.join("b")
		r.run(2 * ib.Second)
		if len(r.masters()) > 1 {
			t.Errorf("masters %v", r.masters())
		}
		_, _ = a.Section("z")
		_ = b.Members()
	})
}
