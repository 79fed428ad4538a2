package check

import (
	"fmt"
	"strings"

	"softib/driver/machine"
	"softib/driver/sim"
	"softib/node/hca"
	"softib/proof/workload"
	"softib/proto/ib"
)

// Violation is something that must not be.
type Violation struct {
	Checker string
	Time    ib.Time
	Text    string
	// Flows are those that it is about, for whoever prints packets.
	Flows []int
}

func (v Violation) String() string { return fmt.Sprintf("%v: %s: %s", v.Time, v.Checker, v.Text) }

// violationsMax bounds what one run reports: the first ones tell most.
const violationsMax = 16

// scene is what the checkers of one run share.
type scene struct {
	sc      *Scenario
	sim     *sim.Sim
	machine *machine.Machine // whose fabric sim is
	run     *workload.Runner
	found   []Violation
	more    int

	// misused: ops that are wrong on purpose were posted, by kind.
	misused [workload.NumMisuse]int
	// crossing: something was sent on a conn whose ends do not share a partition.
	crossing bool
	grouped  bool
	// closed: queue pairs were destroyed before the end.
	closed bool
	// failed: some queue pair has failed.
	failed bool
	// qps says of each queue pair what is known of its end.
	qps map[*workload.End]*endState
}

// endState is what checkers remember of a queue pair.
type endState struct {
	killed  bool // failed by its owner
	failed  bool // a completion said that it is in error
	failure ib.Time
}

func (c *scene) end(e *workload.End) *endState {
	s := c.qps[e]
	if s == nil {
		s = &endState{}
		c.qps[e] = s
	}
	return s
}

// report notes a violation.
func (c *scene) report(checker string, flows []int, format string, args ...any) {
	if len(c.found) >= violationsMax {
		c.more++
		return
	}
	now := ib.Time(0)
	if c.sim != nil {
		now = c.sim.Now()
	}
	c.found = append(c.found, Violation{checker, now, fmt.Sprintf(format, args...), flows})
}

// reliable reports whether a conn's service acknowledges.
func reliable(c *workload.Conn) bool { return c.Type == hca.RC || c.Type == hca.XRCSend }

// name says which op is meant.
func name(o *workload.OpState) string {
	f := o.Flow
	return fmt.Sprintf("conn %d (%v h%d QP %v to h%d QP %v) op %v", f.From.Conn.ID, f.From.Conn.Type,
		f.From.Host+1, f.From.QP.Num(), f.To.Host+1, f.To.QP.Num(), o.Op)
}

func endName(e *workload.End) string {
	return fmt.Sprintf("conn %d (%v) h%d QP %v", e.Conn.ID, e.QP.Type(), e.Host+1, e.QP.Num())
}

// checker guards one thing. It is told all that the load's program sees, is asked
// at some moments (Audit), and when everything is at rest (Rest).
type checker interface {
	workload.Observer
	Audit()
	Rest()
}

// ignore is a checker that looks at nothing; the others embed it.
type ignore struct{}

func (ignore) OpPosted(ib.Time, *workload.OpState) {}
func (ignore) SendDone(ib.Time, int, *hca.WC)      {}
func (ignore) RecvPosted(ib.Time, *workload.Recv)  {}
func (ignore) RecvDone(ib.Time, int, *hca.WC)      {}
func (ignore) Event(ib.Time, int, hca.Event)       {}
func (ignore) Closed(ib.Time, *workload.Conn)      {}
func (ignore) Freed(ib.Time, workload.Range)       {}
func (ignore) Scribbled(ib.Time, workload.Range)   {}
func (ignore) Failed(ib.Time, *workload.End)       {}
func (ignore) Refused(ib.Time, int, string, error) {}
func (ignore) Audit()                              {}
func (ignore) Rest()                               {}

// panel tells every checker.
type panel []checker

func (p panel) OpPosted(now ib.Time, o *workload.OpState) {
	for _, c := range p {
		c.OpPosted(now, o)
	}
}

func (p panel) SendDone(now ib.Time, host int, wc *hca.WC) {
	for _, c := range p {
		c.SendDone(now, host, wc)
	}
}

func (p panel) RecvPosted(now ib.Time, r *workload.Recv) {
	for _, c := range p {
		c.RecvPosted(now, r)
	}
}

func (p panel) RecvDone(now ib.Time, host int, wc *hca.WC) {
	for _, c := range p {
		c.RecvDone(now, host, wc)
	}
}

func (p panel) Event(now ib.Time, host int, e hca.Event) {
	for _, c := range p {
		c.Event(now, host, e)
	}
}

func (p panel) Closed(now ib.Time, conn *workload.Conn) {
	for _, c := range p {
		c.Closed(now, conn)
	}
}

func (p panel) Freed(now ib.Time, at workload.Range) {
	for _, c := range p {
		c.Freed(now, at)
	}
}

func (p panel) Scribbled(now ib.Time, at workload.Range) {
	for _, c := range p {
		c.Scribbled(now, at)
	}
}

func (p panel) Failed(now ib.Time, e *workload.End) {
	for _, c := range p {
		c.Failed(now, e)
	}
}

func (p panel) Refused(now ib.Time, host int, verb string, err error) {
	for _, c := range p {
		c.Refused(now, host, verb, err)
	}
}

func (p panel) Audit() {
	for _, c := range p {
		c.Audit()
	}
}

func (p panel) Rest() {
	for _, c := range p {
		c.Rest()
	}
}

// witness keeps the facts of the context that several checkers ask for. It comes
// first in the panel.
type witness struct {
	ignore
	*scene
}

func (w *witness) OpPosted(now ib.Time, o *workload.OpState) {
	w.misused[o.Misuse]++
	if o.Group > 0 {
		w.grouped = true
	}
	if o.Flow.From.Conn.Crosses(w.run.Spec) {
		w.crossing = true
	}
}

func (w *witness) SendDone(now ib.Time, host int, wc *hca.WC) {
	if o := w.run.Op(wc.WRID); o != nil && wc.Status != hca.WCSuccess {
		w.fail(now, o.Flow.From)
	}
}

func (w *witness) RecvDone(now ib.Time, host int, wc *hca.WC) {
	if e := w.run.EndOf(host, wc.QPN); e != nil && wc.Status != hca.WCSuccess {
		w.fail(now, e)
	}
}

func (w *witness) Event(now ib.Time, host int, e hca.Event) {
	if e.Type != hca.EventQPAccessErr && e.Type != hca.EventQPReqErr || e.QP == nil {
		return
	}
	if end := w.run.EndAt(e.QP); end != nil {
		w.fail(now, end)
	}
}

func (w *witness) Closed(ib.Time, *workload.Conn) { w.closed = true }

func (w *witness) Failed(now ib.Time, e *workload.End) {
	w.end(e).killed = true
	w.fail(now, e)
}

func (w *witness) fail(now ib.Time, e *workload.End) {
	w.failed = true
	if s := w.end(e); !s.failed {
		s.failed, s.failure = true, now
	}
}

// words joins a list for a message.
func words(list []string) string { return strings.Join(list, ", ") }
