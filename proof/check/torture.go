package check

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"softib/proof/workload"
)

// Options say what to torture.
type Options struct {
	// First is the first seed, Seeds how many.
	First uint64
	Seeds int
	// Hosts is how many hosts each fabric has, about; 0 leaves it to the seed.
	Hosts int
	// Parallel is how many run at once; 0 is one on each core.
	Parallel int
	// Again runs every n-th seed a second time, each packet as bytes at each
	// hop, and compares the trace hashes; 0 is every fourth, negative none.
	Again int
	// StopAfter ends the torture after so many failed seeds; 0 is five.
	StopAfter int
	// NoShrink leaves failing scenarios as they are.
	NoShrink bool
	// Kind is what the histories are about; the zero value is both: every fourth is of management. Of the others, one
	// in four has a history of reductions beside it.
	Kind Kind
}

// Kind is what a history is about.
type Kind uint8

// Kinds of history.
const (
	Both           Kind = iota
	DataKind            // programs, their packets and the cables: a Scenario
	ManagementKind      // managers, their tables and what becomes of traffic: a Management
	ReductionKind       // jobs for which switches add: a Reductions
	ClusterKind         // machines that agree by a store: a Cluster
	NumKind
)

var kindNames = [NumKind]string{"both", "data", "management", "reductions", "cluster"}

func (k Kind) String() string {
	if k < NumKind {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// ParseKind reads a kind's name.
func ParseKind(s string) (Kind, error) {
	for k, name := range kindNames {
		if s == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("check: kind %q: want %s", s, strings.Join(kindNames[:], ", "))
}

// IsManagement reports whether a seed's history is one of management.
func (k Kind) IsManagement(seed uint64) bool { return k == ManagementKind || k == Both && seed%4 == 3 }

// Progress is how far a torture has come.
type Progress struct {
	Done, Seeds, Failed int
	Hops                uint64
	Elapsed             time.Duration
}

// Report is what came of it.
type Report struct {
	Progress
	// Histories are how many were of each kind: a seed may have two. Direct is how many of data had ways from ring to
	// ring.
	Histories [NumKind]int
	Direct    int
	Ops, Runs int
	Tally     Tally
	Failures  []Failure
}

// Faults counts the faults that were injected.
func (r *Report) Faults() uint64 {
	n := uint64(0)
	for _, k := range r.Tally.Faults {
		n += k
	}
	return n
}

// Failure is a seed that failed.
type Failure struct {
	Seed  uint64
	Hosts int
	Kind  Kind
	// Found is what the seed violated, Result what its smallest scenario does: Small, or Mgmt, Red or Cluster where one
	// is not nil.
	Found   []Violation
	Small   Scenario
	Mgmt    *Management
	Red     *Reductions
	Cluster *Cluster
	Result  Result
}

// Command runs the seed again.
func (f *Failure) Command() string {
	cmd := fmt.Sprintf("softib torture --seed %d", f.Seed)
	if f.Hosts > 0 {
		cmd += fmt.Sprintf(" --hosts %d", f.Hosts)
	}
	if f.Kind != Both {
		cmd += fmt.Sprintf(" --kind %v", f.Kind)
	}
	return cmd
}

// Torture runs seeds until all are done, enough have failed or ctx ends. progress, where it
// is not nil, is called after each seed, from one goroutine at a time.
func Torture(ctx context.Context, opt Options, progress func(Progress)) Report {
	if opt.Parallel <= 0 {
		opt.Parallel = runtime.GOMAXPROCS(0)
	}
	if opt.Again == 0 {
		opt.Again = 4
	}
	if opt.StopAfter <= 0 {
		opt.StopAfter = 5
	}
	t := &torture{opt: opt, progress: progress, start: time.Now()}
	t.report.Seeds = opt.Seeds
	var wg sync.WaitGroup
	for range min(opt.Parallel, opt.Seeds) {
		wg.Go(func() {
			for seed, ok := t.take(ctx); ok; seed, ok = t.take(ctx) {
				t.one(seed)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(t.report.Failures, func(a, b Failure) int { return int(a.Seed) - int(b.Seed) })
	t.report.Elapsed = time.Since(t.start)
	return t.report
}

type torture struct {
	opt      Options
	progress func(Progress)
	start    time.Time

	mu     sync.Mutex
	next   int
	report Report
}

func (t *torture) take(ctx context.Context) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next >= t.opt.Seeds || t.report.Failed >= t.opt.StopAfter || ctx.Err() != nil {
		return 0, false
	}
	t.next++
	return t.opt.First + uint64(t.next-1), true
}

// one runs a seed and, if it fails, cuts it down.
func (t *torture) one(seed uint64) {
	fail := &Failure{Seed: seed, Hosts: t.opt.Hosts, Kind: t.opt.Kind}
	kinds, direct := []Kind{DataKind}, 0
	play := func(opt runOptions) Result { return run(&fail.Small, opt) }
	again := seed
	if t.opt.Kind.IsManagement(seed) {
		sc := DrawManagement(seed, t.opt.Hosts)
		kinds[0] = ManagementKind
		fail.Mgmt = &sc
		play = func(opt runOptions) Result { return runManagement(&sc, opt) }
		if t.opt.Kind == Both {
			again = seed / 4 // of these seeds none is a multiple of four
		}
	} else if t.opt.Kind == ReductionKind {
		kinds[0] = ReductionKind
		play = fail.reductions()
	} else if t.opt.Kind == ClusterKind {
		sc := DrawCluster(seed)
		kinds[0] = ClusterKind
		fail.Cluster = &sc
		play = func(runOptions) Result { return RunCluster(&sc) }
	} else {
		fail.Small = Draw(seed, t.opt.Hosts)
		if fail.Small.Machine.Direct > 0 {
			direct = 1
		}
	}
	res, runs := t.played(play, again)
	if !res.Failed() && t.opt.Kind == Both && fail.Mgmt == nil && drawsReductions(seed) {
		// A history of its own, after which the seed is done.
		kinds = append(kinds, ReductionKind)
		more, n := t.played(fail.reductions(), again)
		runs += n - 1
		more.Hops += res.Hops
		more.Ops += res.Ops
		more.Tally.Add(&res.Tally)
		res = more
	}
	if res.Failed() {
		fail.Found, fail.Result = res.Violations, res
		if !t.opt.NoShrink {
			fail.shrink()
		}
	} else {
		fail = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.report
	r.Done++
	r.Direct += direct
	for _, k := range kinds {
		r.Histories[k]++
	}
	r.Runs += runs
	r.Hops += res.Hops * uint64(runs)
	r.Ops += res.Ops
	r.Tally.Add(&res.Tally)
	if fail != nil {
		r.Failed++
		r.Failures = append(r.Failures, *fail)
	}
	r.Elapsed = time.Since(t.start)
	if t.progress != nil {
		t.progress(r.Progress)
	}
}

// reductions draws a seed's history of reductions.
func (f *Failure) reductions() func(runOptions) Result {
	sc := DrawReductions(f.Seed, f.Hosts)
	f.Red = &sc
	return func(opt runOptions) Result { return runReductions(&sc, opt) }
}

// played runs a history, and some of them twice.
func (t *torture) played(play func(runOptions) Result, again uint64) (res Result, runs int) {
	res, runs = play(runOptions{}), 1
	if !res.Failed() && t.opt.Again > 0 && again%uint64(t.opt.Again) == 0 {
		runs++
		if v, differs := rerun(play, &res); differs {
			res.Violations = append(res.Violations, v)
		}
	}
	return res, runs
}

// rerun runs a scenario once more, with each packet as bytes at each hop: the
// history must be the same.
func rerun(play func(runOptions) Result, was *Result) (Violation, bool) {
	again := play(runOptions{wireExact: true})
	if len(again.Violations) > 0 {
		v := again.Violations[0]
		v.Text = "in the second run alone: " + v.Text
		return v, true
	}
	if again.Hash == was.Hash && again.Hops == was.Hops {
		return Violation{}, false
	}
	return Violation{Checker: "determinism", Time: again.End, Text: fmt.Sprintf(
		"a second run has trace hash %016x after %d hops and %v: want %016x after %d hops and %v", again.Hash,
		again.Hops, again.End, was.Hash, was.Hops, was.End)}, true
}

// Write prints a failure: what was found, the smallest scenario and its last
// packets, and the command that runs the seed again.
func (f *Failure) Write(w io.Writer) error {
	p := &printer{w: w}
	p.line("seed %d FAILED", f.Seed)
	for _, v := range f.Found[:min(len(f.Found), 4)] {
		p.line("  %v", v)
	}
	if f.Mgmt != nil {
		f.writeMgmt(p)
		return p.err
	}
	if f.Red != nil {
		f.writeReductions(p)
		return p.err
	}
	if f.Cluster != nil {
		f.writeCluster(p)
		return p.err
	}
	sc := &f.Small
	ops, bytes := sc.Work.Totals()
	p.line("smallest scenario that fails: %s, %d conns, %d ops, %d bytes, %d faults", sc.Topo, len(sc.Work.Conns), ops,
		bytes, len(sc.Faults))
	for i := range sc.Faults {
		p.line("  fault: %v", sc.Faults[i])
	}
	for i := range sc.Work.Conns {
		p.conn(&sc.Work.Conns[i])
	}
	for _, v := range f.Result.Violations[:min(len(f.Result.Violations), 4)] {
		p.line("  %v", v)
	}
	if len(f.Result.Packets) > 0 {
		p.line("last packets:")
		for _, l := range f.Result.Packets {
			p.line("  %s", l)
		}
	}
	p.line("run it again: %s", f.Command())
	return p.err
}

// writeMgmt prints the smallest scenario of a failure of management.
func (f *Failure) writeMgmt(p *printer) {
	sc := f.Mgmt
	p.line("smallest scenario that fails: %s, engines %s, %d managers, %d faults, %d connections", sc.Topo, sc.Engines,
		len(sc.Managers), len(sc.Faults), len(sc.Conns))
	for i := range sc.Managers {
		m := &sc.Managers[i]
		p.line("  manager %d: h%d, priority %d, from %v on", i, m.Host+1, m.Priority, m.At)
		if sc.Turns && i > 0 {
			p.line("    the one before has stood still for %v, or since its write %d; it wakes %v and hears %v later",
				m.Still, m.Writes, m.Wakes, m.Wakes+m.Hears)
		}
	}
	for i := range sc.Faults {
		p.line("  fault: %v", &sc.Faults[i])
	}
	for i := range sc.Attacks {
		p.line("  attack: %v", &sc.Attacks[i])
	}
	for i := range sc.Conns {
		p.line("  connection %d: h%d to h%d, %d bytes every %v, patient %v", i, sc.Conns[i].From+1, sc.Conns[i].To+1,
			sc.Conns[i].Size, sc.Conns[i].Every, sc.Conns[i].Patient)
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

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) conn(c *workload.Conn) {
	p.line("  conn %d: %v h%d - h%d, MTU %v, PSN %v/%v, timeout %d, retry %d, RNR retry %d", c.ID, c.Type, c.Host[0]+1,
		c.Host[1]+1,
		c.MTU, uint32(c.PSN[0]), uint32(c.PSN[1]), c.Timeout, c.Retry, c.RNRRetry)
	for e := range c.Flows {
		for i := range c.Flows[e].Ops {
			p.line("    end %d: %v", e, &c.Flows[e].Ops[i])
		}
	}
}
