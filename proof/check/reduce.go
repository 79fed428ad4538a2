package check

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"softib/driver/sim"
	"softib/node/aggregate"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/am"
)

// redRun is one history of reductions.
type redRun struct {
	*scene
	sc   *Reductions
	red  *sim.Reductions
	jobs []*redJob
	of   map[*sim.Reduction]*redJob
	ops  int
	lost uint64 // trees
}

// redJob is a job and what its members have got.
type redJob struct {
	*RedJob
	job     *sim.Reduction
	members []redMember
	sums    map[redSum][]byte
	vectors map[[2]uint64][]byte // by member and operation
	ended   error                // it was given up
	stops   bool                 // a host of it stops
	freed   bool
}

type redMember struct {
	started, done int
	got           []byte // of the operation that ends next
	failures      int
}

// redSum is what a result depends on: floating-point numbers are added in the order of the tree.
type redSum struct {
	op   uint64
	tree uint32
}

// Timers of a history.
const timerTables = 1

const reduceName = "reduction"

// RunReductions lets a history of reductions happen under all its checks.
func RunReductions(sc *Reductions) Result { return runReductions(sc, runOptions{}) }

func runReductions(sc *Reductions, opt runOptions) (res Result) {
	r := &redRun{scene: &scene{sc: &Scenario{}}, sc: sc, of: map[*sim.Reduction]*redJob{}}
	defer func() {
		if p := recover(); p != nil {
			r.report("panic", nil, "%v\n%s", p, debug.Stack())
		}
		res.Violations, res.More = r.found, r.more
	}()
	s, err := sim.New(sc.graph(), sim.Config{Seed: sc.Seed, WireExact: opt.wireExact, HashPayload: true,
		StoreForward: sc.StoreForward})
	if err == nil {
		r.sim = s
		_, err = s.BringUp()
	}
	if err != nil {
		r.report("scenario", nil, "%v", err)
		return res
	}
	r.red = s.Reductions(sim.ReductionConfig{
		Node: aggregate.Config{Latency: sc.Latency, PerMessage: sc.PerMessage, PerByte: sc.PerByte,
			Limits: aggregate.Limits{Trees: 8, Streams: sc.Streams, OSTs: 256, Buffer: 1 << 24}},
		MTU: sc.MTU, Timeout: sc.Timeout, RetryCnt: sc.Retry, Patience: sc.Patience, Mend: sc.Mend,
		// Longer than any fault lasts.
		Tries: int((sc.quiet()+5*ib.Millisecond)/sc.Mend) + 1,
		Fill:  r.fill, Got: r.got, Failed: r.failed, Ended: r.ended,
	})
	if err := r.begin(); err != nil {
		r.report("scenario", nil, "%v", err)
		return res
	}
	r.ruin()
	r.play()
	res.Hash, res.Hops, res.End, res.Ops = s.TraceHash(), s.Hops(), s.Now(), r.ops
	res.Tally.Faults = s.FaultCounts()
	res.Tally.Drops = s.Drops()
	res.Tally.TreesLost = r.lost
	return res
}

// redBound is how long jobs may take to end once the faults are over.
const redBound = 100 * ib.Millisecond

// begin makes the jobs and lets members begin.
func (r *redRun) begin() error {
	for i := range r.sc.Jobs {
		j := &redJob{RedJob: &r.sc.Jobs[i], sums: map[redSum][]byte{},
			vectors: map[[2]uint64][]byte{}}
		var places []topo.PortRef
		for _, h := range j.Hosts {
			places = append(places, topo.PortRef{Node: r.sim.HostNode(h).Index, Port: 1})
			j.stops = j.stops || r.sc.stops(h)
		}
		job, err := r.red.Create(places, am.Request{OSTs: j.OSTs, Payload: j.Payload, Stream: j.Stream,
			Multicast: r.sc.Multicast, Wait: true})
		if err != nil {
			return err
		}
		j.job, j.members = job, make([]redMember, len(j.Hosts))
		r.jobs = append(r.jobs, j)
		r.of[job] = j
	}
	for _, j := range r.jobs {
		for m := range j.members {
			r.feed(j, m)
		}
	}
	return nil
}

// feed lets a member begin operations, as many as it may have at a time.
func (r *redRun) feed(j *redJob, m int) {
	s := &j.members[m]
	for s.started < len(j.Ops) && s.started < s.done+j.Ahead {
		o := j.Ops[s.started]
		s.started++
		r.red.Start(j.job, m, o)
	}
}

// over reports whether a job has nothing to do any more.
func (j *redJob) over() bool {
	if j.ended != nil {
		return true
	}
	for m := range j.members {
		if j.members[m].done < len(j.Ops) {
			return false
		}
	}
	return true
}

func (j *redJob) toBeFreed() bool { return j.over() && !j.freed }

// play goes on until all jobs are over, and the fabric is at rest.
func (r *redRun) play() {
	limit := r.sc.quiet() + redBound
	for {
		left := 0
		for _, j := range r.jobs {
			switch {
			case !j.over():
				left++
			case !j.freed:
				j.freed = true
				r.settled(j)
				r.red.Release(j.job)
			}
		}
		if left == 0 || len(r.found) > 0 {
			break
		}
		if r.sim.Now() >= limit || r.sim.Hops() > hopsMax {
			r.report(progressName, nil, "%s", r.stuck())
			return
		}
		w := r.sim.Next(min(limit, r.sim.Now()+slice))
		if w.Kind == sim.WakeIdle && !slices.ContainsFunc(r.jobs, (*redJob).toBeFreed) {
			r.report(progressName, nil, "nothing is left to happen, but %s", r.stuck())
			return
		}
		r.handle(w)
	}
	if len(r.found) > 0 {
		return
	}
	for rest := r.sim.Now() + boundRest; r.sim.Now() < rest; {
		w := r.sim.Next(rest)
		if w.Kind == sim.WakeIdle {
			if err := r.sim.AtRest(); err != nil {
				r.report(leakName, nil, "%v", err)
			}
			if used := r.red.Used(); used != (aggregate.Limits{}) {
				r.report(leakName, nil, "aggregation nodes still have %+v taken", used)
			}
			return
		}
		r.handle(w)
	}
	r.report(progressName, nil, "the fabric does not come to rest although all jobs are over")
}

func (r *redRun) handle(w sim.Wake) {
	switch w.Kind {
	case sim.WakeHost:
		a := r.sim.Host(w.Host).(*hca.HCA)
		for _, ok := a.PollEvent(); ok; _, ok = a.PollEvent() {
		}
		r.red.ServeHost(w.Host)
	case sim.WakeTimer:
		// What a manager does when a switch comes back. Where a fault still is in its way, the last one is not.
		_, _ = r.sim.Program()
	}
}

// stuck says who waits.
func (r *redRun) stuck() string {
	for i, j := range r.jobs {
		for m := range j.members {
			if s := &j.members[m]; !j.over() && s.done < len(j.Ops) {
				return fmt.Sprintf("job %d, member %d has done %d of %d operations, %v after the last fault; its tree "+
					"is number %d of the job: %v", i, m, s.done, len(j.Ops), r.sim.Now()-r.sc.quiet(), j.job.Trees,
					j.job.Member(m).Failed())
			}
		}
	}
	return "nobody waits"
}

// settled checks a job that is over: a failure that one member has heard of, all have.
func (r *redRun) settled(j *redJob) {
	if j.ended != nil && !j.stops {
		r.report(reduceName, nil, "a job was given up though none of its hosts has stopped: %v", j.ended)
	}
	for m := range j.members {
		if a, b := j.members[m].failures, j.members[0].failures; j.ended != nil && a != b {
			r.report(reduceName, nil, "member %d was told of %d trees that failed, and member 0 of %d", m, a, b)
		}
	}
	r.lost += uint64(max(j.job.Trees-1, 0))
}

// vectorOf is what a member gives to an operation. It is not to be changed.
func (r *redRun) vectorOf(j *redJob, member int, o *aggregate.Operation) []byte {
	k := [2]uint64{uint64(member), o.ID}
	if v, ok := j.vectors[k]; ok {
		return v
	}
	rng := rand.New(rand.NewPCG(r.sc.Seed^uint64(member)<<32, o.ID<<8|uint64(len(j.Hosts))))
	b := make([]byte, o.Bytes)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	if o.IsFloat() {
		// The upper byte of each has the exponent's: keep it where sums are numbers, of sizes that round.
		for i := o.Size() - 1; i < len(b); i += o.Size() {
			b[i] = 0x3C + b[i]&3
		}
	}
	j.vectors[k] = b
	return b
}

func (r *redRun) fill(job *sim.Reduction, member int, id, offset uint64, vector []byte) {
	j := r.of[job]
	copy(vector, r.vectorOf(j, member, &j.Ops[id])[offset:])
}

// want is the result of an operation in the order in which a tree adds.
func (r *redRun) want(j *redJob, o *aggregate.Operation) []byte {
	k := redSum{o.ID, j.job.Tree.ID}
	if v, ok := j.sums[k]; ok {
		return v
	}
	var sum func(node int32) []byte
	sum = func(node int32) (total []byte) {
		for _, c := range j.job.Tree.Nodes[node].Children {
			var v []byte
			if c.Node >= 0 {
				v = sum(c.Node)
			} else if o.From == aggregate.Everybody || o.From == uint32(c.Member) {
				v = bytes.Clone(r.vectorOf(j, int(c.Member), o))
			}
			if total == nil {
				total = v
			} else if v != nil {
				aggregate.Combine(o.Op, o.Type, total, v)
			}
		}
		return total
	}
	v := sum(0)
	j.sums[k] = v
	return v
}

// got holds what a member has got against what it has to be.
func (r *redRun) got(job *sim.Reduction, member int, n aggregate.News) {
	j := r.of[job]
	s := &j.members[member]
	o := &j.Ops[n.ID]
	if n.Again {
		if n.ID >= uint64(s.done) {
			r.report(reduceName, nil, "member %d gets operation %d again, and has done %d", member, n.ID, s.done)
		}
		return
	}
	if n.ID != uint64(s.done) {
		r.report(reduceName, nil, "member %d gets operation %d: want %d", member, n.ID, s.done)
		return
	}
	if n.Offset == 0 {
		s.got = s.got[:0] // the first part may have come in a tree that has failed since
	}
	if o.Target == aggregate.Everybody || o.Target == uint32(member) {
		want := r.want(j, o)
		if n.Offset+uint64(len(n.Vector)) > uint64(len(want)) ||
			!bytes.Equal(n.Vector, want[n.Offset:][:len(n.Vector)]) {
			r.report(reduceName, nil, "member %d, %v of %v, operation %d from byte %d: %x: want %x", member, o.Op,
				o.Type, n.ID, n.Offset, clip(n.Vector), clip(want[min(n.Offset, uint64(len(want))):]))
		}
		s.got = append(s.got, n.Vector...)
	} else if len(n.Vector) > 0 {
		r.report(reduceName, nil, "member %d gets a result that is for member %d", member, o.Target)
	}
	if !n.Over {
		return
	}
	if wants := o.Target == aggregate.Everybody || o.Target == uint32(member); wants &&
		uint64(len(s.got)) != o.Bytes {
		r.report(reduceName, nil, "member %d, operation %d: %d bytes: want %d", member, n.ID, len(s.got), o.Bytes)
	}
	s.got = s.got[:0]
	s.done++
	r.ops++
	r.feed(j, member)
}

func clip(b []byte) []byte { return b[:min(len(b), 16)] }

func (r *redRun) failed(job *sim.Reduction, member int, _ aggregate.Reason) {
	r.of[job].members[member].failures++
}

func (r *redRun) ended(job *sim.Reduction, err error) { r.of[job].ended = err }

// redShrink cuts a failing history down: fewer faults, jobs and operations.
func redShrink(sc Reductions, checker string) (Reductions, Result) {
	last := RunReductions(&sc)
	left := shrinkRuns
	try := func(next Reductions) bool {
		if left--; left < 0 {
			return false
		}
		res := RunReductions(&next)
		for _, v := range res.Violations {
			if v.Checker == checker {
				sc, last = next, res
				return true
			}
		}
		return false
	}
	without := func(i int) []RedFault {
		return append(append([]RedFault(nil), sc.Faults[:i]...), sc.Faults[i+1:]...)
	}
	for i := 0; i < len(sc.Faults); {
		next := sc
		if next.Faults = without(i); !try(next) {
			i++
		}
	}
	for i := 0; i < len(sc.Jobs) && len(sc.Jobs) > 1; {
		next := sc
		if next.Jobs = append(append([]RedJob(nil), sc.Jobs[:i]...), sc.Jobs[i+1:]...); !try(next) {
			i++
		}
	}
	for i := range sc.Jobs {
		for len(sc.Jobs[i].Ops) > 1 {
			next := sc
			next.Jobs = append([]RedJob(nil), sc.Jobs...)
			next.Jobs[i].Ops = next.Jobs[i].Ops[:len(next.Jobs[i].Ops)/2]
			if !try(next) {
				break
			}
		}
	}
	return sc, last
}

// writeReductions prints the smallest history of a failure.
func (f *Failure) writeReductions(p *printer) {
	sc := f.Red
	p.line("smallest history of reductions that fails: %s, %d jobs, %d faults", sc.Topo, len(sc.Jobs), len(sc.Faults))
	for i := range sc.Faults {
		p.line("  fault: %v", sc.Faults[i])
	}
	for i := range sc.Jobs {
		j := &sc.Jobs[i]
		p.line("  job %d: hosts %v, %d operations, %d outstanding of %d bytes, stream %v", i, j.Hosts, len(j.Ops),
			j.OSTs, j.Payload, j.Stream)
	}
	for _, v := range f.Result.Violations[:min(len(f.Result.Violations), 4)] {
		p.line("  %v", v)
	}
	p.line("run it again: %s", f.Command())
}
