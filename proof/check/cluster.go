package check

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"softib/operate/cluster"
	"softib/operate/cluster/model"
	"softib/proto/ib"
)

const (
	clusterName = "cluster"
	// masterBound is how long a fabric may be without a master while somebody could be it.
	masterBound = 2 * ib.Second
	// clusterQuiet is how long everything may take to settle when the faults are over: leases that end, two names that
	// are one.
	clusterQuiet = 14 * ib.Second
)

// clusterRun is one history.
type clusterRun struct {
	sc    *Cluster
	rng   *rand.Rand
	now   ib.Time
	queue clusterQueue
	seq   int
	store *model.Store
	procs []*clusterProc

	// deposed is what a leader that is none any more still believes: leases as they were.
	deposed *model.Store

	acked    map[int64]string   // by revision
	rejected map[string]bool    // changes that were said to be never made
	was      map[int64][]string // sections at a revision, as name and value

	lastActing, storeFine ib.Time
	found                 []Violation
	ops                   uint64
	log                   []string
	hash                  uint64
	tally                 ClusterTally
}

// ClusterTally counts what a history went through.
type ClusterTally struct {
	Changes, Rejected, Masters, Lost, Refused, Relisted uint64
	// Gap is the longest time without a master while somebody could be it.
	Gap ib.Time
}

func (t *ClusterTally) add(o *ClusterTally) {
	t.Changes += o.Changes
	t.Rejected += o.Rejected
	t.Masters += o.Masters
	t.Lost += o.Lost
	t.Refused += o.Refused
	t.Relisted += o.Relisted
	t.Gap = max(t.Gap, o.Gap)
}

// clusterProc is a process on a machine.
type clusterProc struct {
	*clusterRun
	member  int // of the history
	name    string
	e       *cluster.Engine
	dead    bool
	offset  ib.Time
	timer   ib.Time
	held    []func() // what happens when it does not stand still any more
	healthy ib.Time  // since when; Never if it is not

	watch     uint64
	watchRev  int64
	watchTime ib.Time // of the last delivery: a watch keeps the order
	pumping   bool
	applied   int64
}

type clusterEvent struct {
	at  ib.Time
	seq int
	do  func()
}

type clusterQueue []clusterEvent

func (q clusterQueue) Len() int      { return len(q) }
func (q clusterQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *clusterQueue) Push(v any)   { *q = append(*q, v.(clusterEvent)) }
func (q *clusterQueue) Pop() any {
	last := len(*q) - 1
	v := (*q)[last]
	*q = (*q)[:last]
	return v
}
func (q clusterQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

// RunCluster lets a history happen under all its checks.
func RunCluster(sc *Cluster) (res Result) {
	r := &clusterRun{sc: sc, rng: rand.New(rand.NewPCG(sc.Seed, 0xC2)), store: model.New(), acked: map[int64]string{},
		rejected: map[string]bool{}, was: map[int64][]string{}}
	defer func() {
		if p := recover(); p != nil {
			r.report("panic", "%v\n%s", p, debug.Stack())
		}
		res.Violations, res.Hash, res.Hops, res.End = r.found, r.hash, r.ops, r.now
		res.Ops, res.Log = int(r.tally.Changes), r.log
		res.Tally.Cluster = r.tally
	}()
	for i := range sc.Members {
		r.at(sc.Members[i].At, func() { r.start(i) })
	}
	for i := range sc.Faults {
		r.ruin(&sc.Faults[i])
	}
	r.at(r.store.NextExpiry(), r.expire)
	end := clusterSpan + clusterQuiet
	for len(r.queue) > 0 && r.queue[0].at <= end && len(r.found) == 0 {
		ev := heap.Pop(&r.queue).(clusterEvent)
		r.now = ev.at
		ev.do()
		r.look()
	}
	if len(r.found) == 0 {
		r.settled()
	}
	return res
}

func (r *clusterRun) report(checker, format string, args ...any) {
	if len(r.found) < violationsMax {
		r.found = append(r.found, Violation{Checker: checker, Time: r.now, Text: fmt.Sprintf(format, args...)})
	}
}

func (r *clusterRun) say(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf("%v ", r.now)+fmt.Sprintf(format, args...))
	if len(r.log) > keptPackets {
		r.log = r.log[1:]
	}
}

func (r *clusterRun) at(t ib.Time, do func()) {
	r.seq++
	heap.Push(&r.queue, clusterEvent{max(t, r.now), r.seq, do})
}

// active says whether a fault of a kind is on for a member; -1 is any.
func (r *clusterRun) active(k ClusterFaultKind, member int) *ClusterFault {
	for i := range r.sc.Faults {
		f := &r.sc.Faults[i]
		if f.Kind == k && (member < 0 || f.Member == member) && f.At <= r.now && r.now < f.At+f.For {
			return f
		}
	}
	return nil
}

// ruin makes a fault happen; those that are looked at while they last need no more than a moment to look at them.
func (r *clusterRun) ruin(f *ClusterFault) {
	r.at(f.At, func() {
		r.say("fault: %v", *f)
		switch f.Kind {
		case BrokenWatch:
			for _, p := range r.procs {
				if id := p.watch; p.member == f.Member && id != 0 {
					p.watch = 0
					p.handle(func() {
						p.e.HandleBatch(p.clock(), cluster.Batch{Watch: id, Outcome: cluster.OutcomeUnknown})
					})
				}
			}
		case Compaction:
			r.store.Compact(r.store.Rev() - r.rng.Int64N(3))
		case DeposedLeader:
			if r.deposed == nil {
				r.deposed = r.store.Clone()
				r.store.ChangeLeader(r.now)
			}
		case Crash:
			for _, p := range r.procs {
				p.dead = p.dead || p.member == f.Member
			}
		case Twin:
			r.start(f.Member)
		case FullStore:
			r.store.Full = true
		}
	})
	r.at(f.At+f.For, func() {
		switch f.Kind {
		case DeposedLeader:
			if r.active(DeposedLeader, -1) == nil {
				r.deposed = nil
			}
		case Crash:
			r.start(f.Member)
		case FullStore:
			r.store.Full = r.active(FullStore, -1) != nil
		case Standstill:
			for _, p := range r.procs {
				if p.member == f.Member && !p.isStill() {
					held := p.held
					p.held = nil
					for _, do := range held {
						p.handle(do)
					}
				}
			}
		}
	})
}

// start begins a process on a machine.
func (r *clusterRun) start(member int) {
	p := &clusterProc{clusterRun: r, member: member, name: fmt.Sprintf("m%d", member+1), healthy: ib.Never,
		offset: ib.Time(r.rng.Int64N(int64(100 * ib.Second))), timer: ib.Never}
	r.procs = append(r.procs, p)
	p.e = cluster.New(p.clock(), cluster.Config{Info: cluster.Info{Name: p.name, Instance: uint64(len(r.procs))}})
	r.say("%s starts as process %d", p.name, len(r.procs))
	p.handle(func() { p.e.HandleDeadline(p.clock()) })
	r.at(r.now+r.sc.Every, p.work)
}

// clock is what the process's own says now.
func (p *clusterProc) clock() ib.Time { return p.local(p.now) }

func (p *clusterProc) local(t ib.Time) ib.Time {
	return p.offset + t + t/1000*ib.Time(p.sc.Members[p.member].Permille)
}

// global is the first moment at which the process's clock says so.
func (p *clusterProc) global(t ib.Time) ib.Time {
	if t == ib.Never {
		return ib.Never
	}
	g := (t-p.offset)/ib.Time(1000+p.sc.Members[p.member].Permille)*1000 - 1000
	for p.local(g) < t {
		g++
	}
	return g
}

func (p *clusterProc) isStill() bool { return p.active(Standstill, p.member) != nil }

// handle lets the process do something, now or when it can.
func (p *clusterProc) handle(do func()) {
	switch {
	case p.dead || p.e.IsOver():
		return
	case p.isStill():
		p.held = append(p.held, do)
		return
	}
	do()
	for req, ok := p.e.PollRequest(); ok; req, ok = p.e.PollRequest() {
		p.request(req)
	}
	for ev, ok := p.e.PollEvent(); ok; ev, ok = p.e.PollEvent() {
		p.event(ev)
	}
	if d := p.global(p.e.NextDeadline()); d != p.timer {
		p.timer = d
		if d != ib.Never {
			p.at(d, func() {
				if p.timer == d {
					p.handle(func() { p.timer = ib.Never; p.e.HandleDeadline(p.clock()) })
				}
			})
		}
	}
}

// latency is how long a message takes.
func (r *clusterRun) latency() ib.Time {
	t := r.sc.Latency/4 + ib.Time(r.rng.Int64N(int64(r.sc.Latency)))
	if f := r.active(SlowStore, -1); f != nil {
		t += ib.Time(r.rng.Int64N(int64(f.Delay) + 1))
	}
	return t
}

// request carries a request to the store and its answer back, or loses one of them.
func (p *clusterProc) request(req cluster.Request) {
	if req.Op == cluster.OpWatch {
		p.watch, p.watchRev = req.ID, req.Rev
		p.pump(p.latency())
		return
	}
	p.mix(uint64(p.now), uint64(req.Op), uint64(p.member))
	sent, patience := p.now, req.Patience
	late := func() {
		p.at(sent+patience, func() {
			p.handle(func() {
				p.e.HandleAnswer(p.clock(), cluster.Answer{ID: req.ID, Outcome: cluster.OutcomeUnknown})
			})
		})
	}
	if p.active(CutRequests, p.member) != nil {
		late()
		return
	}
	p.at(p.now+p.latency(), func() {
		a, answered := p.serve(req)
		back := p.latency()
		if !answered || p.active(CutAnswers, p.member) != nil || p.now+back > sent+patience {
			late()
			return
		}
		p.at(p.now+back, func() { p.handle(func() { p.e.HandleAnswer(p.clock(), a) }) })
	})
}

// serve does a request in the store. A deposed leader renews, and says what it knows of leases; the rest needs a
// quorum.
func (p *clusterProc) serve(req cluster.Request) (a cluster.Answer, answered bool) {
	p.ops++
	if f := p.active(DeposedLeader, -1); f != nil && f.Others>>p.member&1 == 1 && p.deposed != nil {
		if req.Op == cluster.OpKeepAlive || req.Op == cluster.OpTimeToLive {
			return p.deposed.Do(p.now, req), true
		}
		return a, false
	}
	p.store.Advance(p.now)
	rev := p.store.Rev()
	ruler := p.ruler()
	a = p.store.Do(p.now, req)
	if a.Held && p.store.Rev() != rev {
		p.committed(&req, ruler)
	}
	if p.store.Rev() != rev {
		if p.rules(p.ruler()) && !p.rules(ruler) && !p.isHealthy() {
			p.lastActing = p.now // what it sent before it died makes it the master, which others have to get over
		}
		p.changed()
	}
	return a, true
}

// ruler is the value of the master's key.
func (r *clusterRun) ruler() []byte {
	for _, pair := range r.store.Get(cluster.MasterKey, false) {
		return pair.Value
	}
	return nil
}

// rules says whether a value of the master's key is the process's.
func (p *clusterProc) rules(ruler []byte) bool {
	return bytes.Contains(ruler, fmt.Appendf(nil, `"instance":"%d"`, slices.Index(p.procs, p)+1))
}

// committed looks at a transaction that has changed what the fabric is.
func (p *clusterProc) committed(req *cluster.Request, ruler []byte) {
	for _, w := range req.Txn.Then {
		if w.Key != cluster.HeadKey {
			continue
		}
		if !p.rules(ruler) {
			p.report(clusterName, "%s has changed what the fabric is, and the master is %s", p.name, ruler)
		}
		head := p.head()
		var sections []string
		for _, pair := range p.store.Get("now/sections/", true) {
			sections = append(sections, pair.Key[len("now/sections/"):], string(pair.Value))
		}
		if p.was[head] != nil {
			p.report(clusterName, "revision %d was made twice", head)
		}
		p.was[head] = sections
	}
}

// head is the number of the store's newest revision of the fabric.
func (r *clusterRun) head() (n int64) {
	for _, pair := range r.store.Get(cluster.HeadKey, false) {
		if _, err := fmt.Sscanf(string(pair.Value), `{"revision":%d`, &n); err != nil {
			r.report(clusterName, "%s: %v", pair.Value, err)
		}
	}
	return n
}

func (r *clusterRun) expire() {
	rev := r.store.Rev()
	r.store.Advance(r.now)
	if r.store.Rev() != rev {
		r.changed()
	}
	r.at(r.store.NextExpiry(), r.expire)
}

// changed lets watches tell.
func (r *clusterRun) changed() {
	for _, p := range r.procs {
		p.pump(r.latency())
	}
}

// pump delivers what the watch has to tell, after a while; who is cut off hears it when he is not any more.
func (p *clusterProc) pump(wait ib.Time) {
	if p.pumping || p.watch == 0 || p.dead {
		return
	}
	p.pumping = true
	if f := p.active(LateWatch, p.member); f != nil {
		wait += f.Delay
	}
	p.at(p.now+wait, func() {
		p.pumping = false
		if p.watch == 0 {
			return
		}
		if p.active(CutRequests, p.member) != nil || p.active(CutAnswers, p.member) != nil {
			p.pump(50 * ib.Millisecond)
			return
		}
		list, ok := p.store.Since("now/", p.watchRev)
		if !ok {
			list = []cluster.Batch{{Outcome: cluster.OutcomeCompacted}}
		}
		for _, b := range list {
			b.Watch = p.watch
			p.watchRev = b.Rev + 1
			p.watchTime = max(p.watchTime, p.now) + ib.Microsecond
			p.at(p.watchTime, func() { p.handle(func() { p.e.HandleBatch(p.clock(), b) }) })
		}
		if !ok {
			p.watch = 0
		}
	})
}

// work is what the process does as a master: it changes something now and then.
func (p *clusterProc) work() {
	if p.dead || p.e.IsOver() {
		return
	}
	p.at(p.now+p.sc.Every/2+ib.Time(p.rng.Int64N(int64(p.sc.Every))), p.work)
	if p.now > clusterSpan+clusterQuiet/2 || p.isStill() || !p.e.Master(p.clock()) {
		return
	}
	c := cluster.Change{Base: p.e.Revision(), What: "torture"}
	name := fmt.Sprintf("s%d", p.rng.IntN(4))
	if _, has := p.e.Section(name); has && p.rng.IntN(4) == 0 {
		c.Drop = []string{name}
	} else {
		c.Put = []cluster.Section{{Name: name, Value: fmt.Appendf(nil, "%d", p.rng.Uint64())}}
	}
	p.handle(func() { _, _ = p.e.Propose(p.clock(), c) })
}

// event holds what a process hears against what happened.
func (p *clusterProc) event(ev cluster.Event) {
	p.mix(uint64(p.now), uint64(ev.Kind), uint64(ev.Revision))
	p.say("%s: %v %s %d %s %v", p.name, ev.Kind, ev.Name, ev.Revision, ev.Change, ev.Err)
	switch ev.Kind {
	case cluster.EventApplied:
		if ev.Revision <= p.applied {
			p.report(clusterName, "%s applies revision %d after %d", p.name, ev.Revision, p.applied)
		}
		p.applied = ev.Revision
		var have []string
		for _, name := range p.e.Sections() {
			v, _ := p.e.Section(name)
			have = append(have, name, string(v))
		}
		if !slices.Equal(have, p.was[ev.Revision]) {
			p.report(clusterName, "%s has revision %d as %v: want %v", p.name, ev.Revision, have, p.was[ev.Revision])
		}
	case cluster.EventMade:
		p.tally.Changes++
		if was, dup := p.acked[ev.Revision]; dup {
			p.report(clusterName, "revision %d was acknowledged as %s and as %s", ev.Revision, was, ev.Change)
		}
		p.acked[ev.Revision] = ev.Change
	case cluster.EventRejected:
		p.tally.Rejected++
		p.rejected[ev.Change] = true
	case cluster.EventMaster:
		if ev.Name == p.name {
			p.tally.Masters++
		}
	case cluster.EventLost:
		p.tally.Lost++
	case cluster.EventRefused:
		p.tally.Refused++
		// A renewal that a dead process has left behind in a slow store looks like life: whoever starts daemons starts
		// this one again.
		p.at(p.now+ib.Second, func() {
			if !slices.ContainsFunc(p.procs, func(o *clusterProc) bool {
				return o.member == p.member && !o.dead && !o.e.IsOver()
			}) {
				p.start(p.member)
			}
		})
	case cluster.EventJoined:
		p.tally.Relisted++
	}
}

// isHealthy says whether a process could be the master: it runs, and nothing is between it and the store.
func (p *clusterProc) isHealthy() bool {
	return !p.dead && p.e.IsMember() && !p.isStill() && p.active(CutRequests, p.member) == nil &&
		p.active(CutAnswers, p.member) == nil && p.active(LateWatch, p.member) == nil
}

// look is what has to be so at every moment.
func (r *clusterRun) look() {
	var acting []string
	could := ib.Never // since when somebody could have become the master
	for i, p := range r.procs {
		if !p.dead && !p.isStill() && p.e.Master(p.clock()) {
			acting = append(acting, fmt.Sprintf("%s (process %d)", p.name, i+1))
		}
		if !p.isHealthy() {
			if p.healthy != ib.Never && p.rules(r.ruler()) {
				r.lastActing = r.now // it was the master, though it may not have come to act
			}
			p.healthy = ib.Never
		} else if p.healthy == ib.Never {
			p.healthy = r.now
		}
		could = min(could, p.healthy)
	}
	if len(acting) > 1 {
		r.report(clusterName, "there are %d masters: %v", len(acting), acting)
	}
	if len(acting) > 0 {
		r.lastActing = r.now
	}
	if r.isSlow() || r.active(DeposedLeader, -1) != nil || r.store.Full {
		r.storeFine = r.now
	}
	if could == ib.Never {
		return
	}
	gap := r.now - max(r.lastActing, r.storeFine, could)
	r.tally.Gap = max(r.tally.Gap, gap)
	if gap > masterBound {
		r.report(clusterName, "no master for %v", gap)
	}
}

// isSlow says whether something may still be on its way that a slow store has held up.
func (r *clusterRun) isSlow() bool {
	return slices.ContainsFunc(r.sc.Faults, func(f ClusterFault) bool {
		return f.Kind == SlowStore && f.At <= r.now && r.now < f.At+f.For+2*f.Delay
	})
}

// settled is what has to be so at the end.
func (r *clusterRun) settled() {
	head := r.head()
	var members []string
	for _, pair := range r.store.Get("now/members/", true) {
		members = append(members, pair.Key[len("now/members/"):])
	}
	var masters int
	left := map[string]int{}
	for _, p := range r.procs {
		if p.dead || p.e.IsOver() {
			continue
		}
		left[p.name]++
		if p.e.Master(p.clock()) {
			masters++
		}
		var known []string
		for _, m := range p.e.Members() {
			known = append(known, m.Name)
		}
		slices.Sort(known)
		if !p.e.IsMember() || p.e.Revision() != head || !slices.Equal(known, members) {
			r.report(clusterName, "%s has revision %d and knows %v, member %t: want %d and %v", p.name, p.e.Revision(),
				known, p.e.IsMember(), head, members)
		}
	}
	for i := range r.sc.Members {
		if name := fmt.Sprintf("m%d", i+1); left[name] != 1 {
			r.report(clusterName, "%d processes are %s", left[name], name)
		}
	}
	if masters != 1 {
		r.report(clusterName, "%d masters at the end", masters)
	}
	made := map[int64]string{}
	for rev := int64(1); rev <= head; rev++ {
		for _, pair := range r.store.Get(cluster.HistoryKey(rev), false) {
			c, err := cluster.ParseChange(&pair)
			if err != nil {
				r.report(clusterName, "%v", err)
			}
			made[rev] = c.ID
			if r.rejected[c.ID] {
				r.report(clusterName, "revision %d is %s, which was said not to be made", rev, c.ID)
			}
		}
	}
	for rev, id := range r.acked {
		if made[rev] != id {
			r.report(clusterName, "revision %d was acknowledged as %s and is %q", rev, id, made[rev])
		}
	}
}

func (r *clusterRun) mix(v ...uint64) {
	h := fnv.New64a()
	b := binary.BigEndian.AppendUint64(nil, r.hash)
	for _, x := range v {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	_, _ = h.Write(b)
	r.hash = h.Sum64()
}

// clusterShrink cuts a failing history down.
func clusterShrink(sc Cluster, checker string) (Cluster, Result) {
	last := RunCluster(&sc)
	for i := 0; i < len(sc.Faults); {
		next := sc
		next.Faults = slices.Delete(slices.Clone(sc.Faults), i, i+1)
		res := RunCluster(&next)
		if !slices.ContainsFunc(res.Violations, func(v Violation) bool { return v.Checker == checker }) {
			i++
			continue
		}
		sc, last = next, res
	}
	return sc, last
}

// writeCluster prints the smallest history of a failure.
func (f *Failure) writeCluster(p *printer) {
	sc := f.Cluster
	p.line("smallest history that fails: %d machines, %d faults", len(sc.Members), len(sc.Faults))
	for i, m := range sc.Members {
		p.line("  m%d: from %v on, its clock gains %d ms a second", i+1, m.At, m.Permille)
	}
	for i := range sc.Faults {
		p.line("  fault: %v", sc.Faults[i])
	}
	for _, v := range f.Result.Violations[:min(len(f.Result.Violations), 4)] {
		p.line("  %v", v)
	}
	p.line("what happened last:")
	for _, l := range f.Result.Log {
		p.line("  %s", l)
	}
	p.line("run it again: %s", f.Command())
}
