package check

import (
	"fmt"
	"io"
	"runtime/debug"

	"softib/driver/sim"
	"softib/fabric"
	"softib/proof/workload"
	"softib/proto/ib"
)

// Result is what came of one run.
type Result struct {
	Violations []Violation
	More       int // violations beyond those listed
	Hash       uint64
	Hops       uint64
	Ops        int
	Tally      Tally
	End        ib.Time
	// Packets are the last that passed, where Run was asked to keep them.
	Packets []string
	// Log is what managers said last.
	Log []string
	// CaptureErr is why a capture ended early.
	CaptureErr error
}

// Failed reports whether anything was found.
func (r *Result) Failed() bool { return len(r.Violations) > 0 }

// Bounds on a run.
const (
	// boundAfterQuiet is how long everything may take to end once the faults are over.
	boundAfterQuiet = 5 * ib.Second
	// boundRest is how long the fabric may take to come to rest after that.
	boundRest = 5 * ib.Second
	// slice is how often a run that reports nothing is looked at.
	slice = 5 * ib.Millisecond
	// hopsMax is far beyond what any drawn load needs.
	hopsMax = 20_000_000
	// auditEvery spaces audits while the load runs.
	auditEvery = 40 * ib.Microsecond
	auditsMax  = 40
)

// Timers of a run, beside the runner's.
const (
	timerAudit = workload.UserTimer
	timerStop  = workload.UserTimer | 1<<40
)

// runOptions say how to run.
type runOptions struct {
	// wireExact makes each packet bytes at each hop.
	wireExact bool
	// record keeps the last packets of the flows it names; of all if there is none.
	record int
	flows  []int
	// capture gets everything that flies, as pcapng.
	capture io.Writer
}

// Run lets a scenario happen under all checkers. A panic of an engine is a violation too.
func Run(sc *Scenario) Result { return run(sc, runOptions{}) }

// Capture is Run that writes every packet on every cable to w, as pcapng.
func Capture(sc *Scenario, w io.Writer) Result { return run(sc, runOptions{capture: w}) }

func run(sc *Scenario, opt runOptions) (res Result) {
	c := &scene{sc: sc, qps: map[*workload.End]*endState{}}
	defer func() {
		if p := recover(); p != nil {
			c.report("panic", nil, "%v\n%s", p, debug.Stack())
		}
		res.Violations, res.More = c.found, c.more
	}()
	part, order := &partition{scene: c}, &waits{scene: c}
	g := sc.graph()
	var rec *recorder
	var sink fabric.Sink
	if opt.record > 0 || sc.Enforce || sc.Engines != "" || opt.capture != nil {
		rec = &recorder{scene: c, part: part, waits: order, graph: g, max: opt.record, flows: opt.flows}
		if opt.capture != nil {
			if rec.file, res.CaptureErr = newCapture(g, opt.capture); res.CaptureErr != nil {
				return res
			}
			defer func() {
				if c.sim != nil {
					res.CaptureErr = c.sim.SinkErr()
				}
			}()
		}
		sink = rec
		defer func() { res.Packets = rec.lines() }()
	}
	m, err := sc.build(g, sink, opt.wireExact)
	if err != nil {
		c.report("scenario", nil, "%v", err)
		return res
	}
	c.sim, c.machine = m.Sim, m
	defer m.Close()
	mem := newMemory(c)
	tally := &counter{scene: c}
	all := panel{&witness{scene: c}, tally, newCompletion(c), newStatus(c), newDelivery(c), mem, &credit{scene: c},
		part, order, &drops{scene: c}}
	r, err := workload.New(m, &sc.Work, all)
	if err != nil {
		c.report("scenario", nil, "%v", err)
		return res
	}
	c.run = r
	if sc.Slowing != nil {
		for i := range sc.Work.Hosts {
			r.Adapter(i).SetCongestion(1, *sc.Slowing)
		}
	}
	mem.begin()
	h := &history{scene: c, all: all}
	h.play()
	res.Hash, res.Hops, res.End = m.TraceHash(), m.Hops(), m.Now()
	res.Ops, _ = sc.Work.Totals()
	res.Tally = tally.finish()
	res.Tally.Detours = order.detours
	return res
}

// history is one run from its first post to rest.
type history struct {
	*scene
	all    panel
	audits int
}

const (
	progressName = "progress"
	leakName     = "leak"
)

func (h *history) play() {
	s, r := h.sim, h.run
	for i := range h.sc.Faults {
		if f := &h.sc.Faults[i]; f.Kind == Stop {
			s.At(f.At, timerStop|uint64(f.Host))
		}
	}
	s.At(s.Now()+auditEvery, timerAudit)
	r.Start()
	limit := h.sc.Quiet() + boundAfterQuiet
	for !r.Finished() {
		if s.Now() >= limit || s.Hops() > hopsMax {
			h.unfinished("does not end: it is " + fmt.Sprint(s.Now()-h.sc.Quiet()) + " after the last fault")
			return
		}
		w := h.machine.Next(min(limit, s.Now()+slice))
		if w.Kind == sim.WakeIdle {
			h.unfinished("will never end: nothing is left to happen")
			break
		}
		h.handle(w)
	}
	rested := h.rest()
	for _, text := range append(h.machine.Neglected, h.machine.Early...) {
		h.report(progressName, nil, "%s", text)
	}
	if !rested {
		return
	}
	r.Drain()
	h.all.Rest()
	if len(h.found) > 0 {
		return
	}
	if n := s.FramesInUse(); n != 0 {
		h.report(leakName, nil, "%d packets are nowhere in the fabric and were never given back", n)
	}
	if err := r.Close(); err != nil {
		h.report(leakName, nil, "closing: %v", err)
	}
}

func (h *history) handle(w sim.Wake) {
	if w.Kind != sim.WakeTimer || w.ID < workload.UserTimer {
		h.run.Handle(w)
		return
	}
	if w.ID >= timerStop {
		h.machine.Kill(int(w.ID &^ timerStop))
		h.run.Stop(int(w.ID &^ timerStop))
		return
	}
	h.all.Audit()
	if h.audits++; h.audits < auditsMax && !h.run.Finished() {
		h.sim.At(h.sim.Now()+auditEvery*ib.Time(1+h.audits/8), timerAudit)
	}
}

// rest lets the fabric come to rest: acknowledgements, credits, faults that come
// after the load.
func (h *history) rest() bool {
	s := h.sim
	h.machine.Rest()
	limit := max(s.Now(), h.sc.Quiet()) + boundRest
	if h.sc.AlwaysRefresh {
		limit -= boundRest - 20*ib.Millisecond // it never falls silent
	}
	for s.Now() < limit {
		w := h.machine.Next(min(limit, s.Now()+slice))
		if w.Kind == sim.WakeIdle {
			return true
		}
		h.handle(w)
		if s.Hops() > hopsMax {
			break
		}
	}
	if !h.sc.AlwaysRefresh {
		h.report(progressName, nil, "the fabric does not come to rest although all requests have ended")
		return false
	}
	return true
}

// unfinished reports the requests that have not ended.
func (h *history) unfinished(why string) {
	var list []string
	var flows []int
	for _, f := range h.run.Unfinished() {
		for i := range f.Ops {
			if o := &f.Ops[i]; !o.Done && !o.Skipped {
				state := "was not posted"
				if o.Posted {
					state = fmt.Sprintf("was posted at %v", o.PostedAt)
				}
				list = append(list, fmt.Sprintf("%s (%s; QP in %v)", name(o), state, f.From.QP.State()))
				flows = append(flows, f.ID)
				break
			}
		}
		if len(list) == 4 {
			break
		}
	}
	h.report(progressName, flows, "the load %s: %s", why, words(list))
	h.all.Audit()
}
