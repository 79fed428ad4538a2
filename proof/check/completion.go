package check

import (
	"fmt"

	"softib/node/hca"
	"softib/proof/workload"
	"softib/proto/ib"
	"softib/subnet/route"
)

// completion guards that every signalled request completes exactly once, in the order
// of posting, and that an error flushes the rest in order (IBA 10.8.3, C10-97).
type completion struct {
	ignore
	*scene
	flows map[*workload.FlowState]*flowCompletion
	recvs map[uint64]bool
}

type flowCompletion struct {
	next   int // ops before it are accounted for
	broken bool
	done   []bool
}

func newCompletion(c *scene) *completion {
	return &completion{scene: c, flows: map[*workload.FlowState]*flowCompletion{}, recvs: map[uint64]bool{}}
}

const completionName = "completion"

func (c *completion) flow(f *workload.FlowState) *flowCompletion {
	s := c.flows[f]
	if s == nil {
		s = &flowCompletion{done: make([]bool, len(f.Ops))}
		c.flows[f] = s
	}
	return s
}

func (c *completion) OpPosted(now ib.Time, o *workload.OpState) {
	if s := c.flow(o.Flow); s.broken && usable(o.Flow.From) {
		s.broken = false // its owner has taken the send queue out of SQE
	}
}

func (c *completion) SendDone(now ib.Time, host int, wc *hca.WC) {
	o := c.run.Op(wc.WRID)
	if o == nil {
		c.report(completionName, nil, "h%d: completion of a request %#x that nobody posted (%v)", host+1, wc.WRID,
			wc.Status)
		return
	}
	id := []int{o.Flow.ID}
	s := c.flow(o.Flow)
	switch {
	case host != o.Flow.From.Host || wc.QPN != o.Flow.From.QP.Num():
		c.report(completionName, id, "%s: completed on h%d QP %v", name(o), host+1, wc.QPN)
		return
	case !o.Posted:
		c.report(completionName, id, "%s: completed (%v) before it was posted", name(o), wc.Status)
		return
	case s.done[o.Index]:
		c.report(completionName, id, "%s: completed twice, now %v", name(o), wc.Status)
		return
	case o.Index < s.next:
		c.report(completionName, id, "%s: completed (%v) after a request that was posted later", name(o), wc.Status)
		return
	}
	for i := s.next; i < o.Index; i++ {
		p := &o.Flow.Ops[i]
		if !p.Posted || s.done[i] {
			continue
		}
		if p.Signaled || s.broken {
			c.report(completionName, id, "%s: completed (%v) before %v, which was posted earlier and must complete too",
				name(o), wc.Status, p.Op)
			return
		}
	}
	s.next = o.Index + 1
	s.done[o.Index] = true
	switch {
	case s.broken && wc.Status != hca.WCWRFlushErr:
		c.report(completionName, id, "%s: completed with %v after an error: want WR_FLUSH_ERR", name(o), wc.Status)
	case wc.Status == hca.WCSuccess && !o.Signaled:
		c.report(completionName, id, "%s: success was reported although it is not signalled", name(o))
	case wc.Status == hca.WCSuccess && wc.ByteLen != uint32(o.Size) && !o.Local():
		c.report(completionName, id, "%s: completion says %d bytes", name(o), wc.ByteLen)
	}
	if wc.Status != hca.WCSuccess {
		s.broken = true
	}
	if wc.Opcode != wantOpcode[o.Code] {
		c.report(completionName, id, "%s: completion says %v", name(o), wc.Opcode)
	}
}

// wantOpcode is what the completion of each operation is called.
var wantOpcode = [hca.NumWROpcode]hca.WCOpcode{
	hca.WRRDMAWrite: hca.WCRDMAWrite, hca.WRRDMAWriteImm: hca.WCRDMAWrite, hca.WRSend: hca.WCSend,
	hca.WRSendImm:  hca.WCSend,
	hca.WRRDMARead: hca.WCRDMARead, hca.WRAtomicCmpSwap: hca.WCCompSwap, hca.WRAtomicFetchAdd: hca.WCFetchAdd,
	hca.WRLocalInv: hca.WCLocalInv, hca.WRBindMW: hca.WCBindMW, hca.WRSendInv: hca.WCSend,
}

func (c *completion) RecvPosted(now ib.Time, r *workload.Recv) { c.recvs[r.ID] = true }

func (c *completion) RecvDone(now ib.Time, host int, wc *hca.WC) {
	r := c.run.Recv(wc.WRID)
	switch {
	case r == nil:
		c.report(completionName, nil, "h%d QP %v: completion of a receive %#x that nobody posted (%v)", host+1, wc.QPN,
			wc.WRID, wc.Status)
	case !c.recvs[r.ID]:
		c.report(completionName, nil, "h%d QP %v: receive %#x completed twice, now %v", host+1, wc.QPN, wc.WRID,
			wc.Status)
	case r.At.Host != host || r.End != nil && r.End.QP.Num() != wc.QPN:
		c.report(completionName, nil, "h%d QP %v: completed a receive of another queue", host+1, wc.QPN)
	}
	if r != nil {
		delete(c.recvs, r.ID)
	}
}

func (c *completion) Rest() {
	for _, f := range c.run.Flows {
		if c.run.Stopped(f.From.Host) {
			continue
		}
		s := c.flow(f)
		for i := range f.Ops {
			if o := &f.Ops[i]; o.Posted && !s.done[i] && (o.Signaled || i >= s.next) {
				c.report(completionName, []int{f.ID}, "%s: posted at %v and never completed", name(o), o.PostedAt)
				break
			}
		}
	}
}

// status guards that no request fails without a cause.
type status struct {
	ignore
	*scene
	broken map[*workload.End]bool
}

const statusName = "status"

func newStatus(c *scene) *status { return &status{scene: c, broken: map[*workload.End]bool{}} }

func (s *status) OpPosted(now ib.Time, o *workload.OpState) {
	if e := o.Flow.From; s.broken[e] && usable(e) {
		s.broken[e] = false
	}
}

func (s *status) SendDone(now ib.Time, host int, wc *hca.WC) {
	o := s.run.Op(wc.WRID)
	if o == nil {
		return
	}
	e := o.Flow.From
	conn, id := e.Conn, []int{o.Flow.ID}
	if wc.Status == hca.WCSuccess {
		if reliable(conn) && o.Misuse.Fails() || o.Misuse == workload.BadLKey {
			s.report(statusName, id, "%s: succeeded", name(o))
		}
		if reliable(conn) && conn.Crosses(s.run.Spec) && !o.Local() {
			s.report(statusName, id, "%s: succeeded although the ends share no partition", name(o))
		}
		return
	}
	if s.broken[e] {
		return // the rest, flushed
	}
	s.broken[e] = true
	if why := s.unexplained(now, o, wc.Status); why != "" {
		s.report(statusName, id, "%s: failed with %v: %s", name(o), wc.Status, why)
	}
}

// unexplained says why the first failure of a queue pair should not have been; empty
// if it has a cause.
func (s *status) unexplained(now ib.Time, o *workload.OpState, st hca.WCStatus) string {
	f := o.Flow
	conn := f.From.Conn
	want, _ := o.Misuse.Status()
	if want == st && o.Misuse != workload.None &&
		(reliable(conn) || want == hca.WCLocProtErr || want == hca.WCMWBindErr || o.Misuse == workload.KillQP) {
		return ""
	}
	switch st {
	case hca.WCWRFlushErr:
		if s.end(f.From).killed || s.misusedBy(f.Opposite(), f.From.Host) {
			return ""
		}
		return "nothing has failed the queue pair"
	case hca.WCRNRRetryExcErr:
		if conn.RNRRetry == 7 {
			return "its RNR retry count means for ever"
		}
		if s.sc.Calm {
			return "there was room for every message"
		}
		return ""
	case hca.WCRemAccessErr, hca.WCRemInvReqErr, hca.WCRemOpErr:
		if st == hca.WCRemAccessErr && posted(f, workload.DeregRemote) {
			return "" // this one came too late
		}
		return "nothing is wrong with it"
	case hca.WCRetryExcErr:
		if least := ib.Time(conn.Retry+1) * ib.AckTimeout(conn.Timeout); s.losesNothing() && now-o.PostedAt < least {
			return fmt.Sprintf("it was given up after %v, its timers are of %v in all", now-o.PostedAt, least)
		}
		return s.retries(now, conn, f)
	}
	return "nothing is wrong with it"
}

// losesNothing reports whether packets come to their ends, late or not: then tries fail by timers alone.
func (s *status) losesNothing() bool {
	return s.sc.Machine.Direct == 100 && s.misused[workload.DeregLocal] == 0
}

// retries says why a conn should not have run out of tries; empty if there was
// cause enough.
func (s *status) retries(now ib.Time, conn *workload.Conn, f *workload.FlowState) string {
	switch {
	case conn.Crosses(s.run.Spec), s.end(f.To).failed, f.To.QP.State() == hca.StateErr, s.run.Stopped(f.To.Host):
		return ""
	case conn.Timeout < patient && !s.sc.Calm:
		return "" // its timer is shorter than a busy fabric's round trip
	case posted(f, workload.DeregRemote):
		return "" // a READ that asks again after the memory has gone is not answered: it may be a late copy
	}
	// A failed try needs a packet that was harmed, its own or the answer's; where packets come in any order, also one
	// that was overtaken by more than an adapter keeps, and asked for again.
	tries := int(conn.Retry) + 1
	since := now - 2*ib.Time(tries+1)*ib.AckTimeout(conn.Timeout) - 5*ib.Millisecond
	// An endpoint puts its timers off as long as any peer has packets of it to look at.
	since -= s.machine.Endpoint(f.From.Host).PutOff()
	if s.machine.Stalled(f.From.Host, since) || s.machine.Stalled(f.To.Host, since) {
		return "" // nobody did its work
	}
	if posted(f, workload.DeregLocal) {
		return "" // a payload by reference that was taken back is a lost packet
	}
	if n := s.harmed(since, f) + s.gaps(f); n < tries {
		return fmt.Sprintf("%d tries failed, but only %d faults have hit the two hosts since %v", tries, n,
			max(since, 0))
	}
	return ""
}

// patient is the first timeout code that waits longer than any queue in a small
// fabric holds a packet.
const patient = 8

// harmed counts what has happened since to packets between a flow's hosts, both ways; a
// link or node that went down counts for as many as anybody may need.
func (s *status) harmed(since ib.Time, f *workload.FlowState) int {
	a, b := s.lid(f.From.Host), s.lid(f.To.Host)
	between := func(x, y ib.LID) bool { return x == a && y == b || x == b && y == a }
	n := 0
	for _, r := range s.sim.Log() {
		if r.Time < since {
			continue
		}
		// Ways from ring to ring cross no cable, and who talks to the dead is told apart elsewhere.
		if r.DLID == 0 && isDown(r.Kind) && s.sc.Machine.Direct < 100 {
			return 1 << 20
		}
		if between(r.SLID, r.DLID) {
			n++
		}
	}
	return n
}

// gaps counts what the two hosts of a flow took for lost, where switches choose. Of what they could not keep before its
// turn while an RNR NAK stood nobody was told: each may hide one gap.
func (s *status) gaps(f *workload.FlowState) (n int) {
	if s.sc.Adaptive == route.NoChoice {
		return 0
	}
	for _, host := range [2]int{f.From.Host, f.To.Host} {
		st := &s.run.Adapter(host).Stats
		n += int(st.SeqNAKsSent + st.ImpliedNAKs + min(st.OutOfSequence, st.RNRsSent))
	}
	return n
}

func posted(f *workload.FlowState, m workload.Misuse) bool {
	for i := range f.Ops {
		if f.Ops[i].Posted && f.Ops[i].Misuse == m {
			return true
		}
	}
	return false
}

// misusedBy reports whether an op of f was posted that makes the responder fail.
func (s *status) misusedBy(f *workload.FlowState, host int) bool {
	for i := range f.Ops {
		o := &f.Ops[i]
		if !o.Posted || o.Misuse == workload.None {
			continue
		}
		switch st, _ := o.Misuse.Status(); st {
		case hca.WCRemAccessErr, hca.WCRemInvReqErr, hca.WCRemOpErr:
			return true
		}
	}
	return false
}

func (s *status) RecvDone(now ib.Time, host int, wc *hca.WC) {
	e := s.run.EndOf(host, wc.QPN)
	if e == nil || wc.Status == hca.WCSuccess {
		return
	}
	id := []int{e.In.ID}
	switch {
	case wc.Status == hca.WCWRFlushErr && e.QP.State() == hca.StateErr:
	case wc.Status == hca.WCLocLenErr && posted(e.In, workload.TooLong):
	default:
		s.report(statusName, id, "%s: a receive failed with %v in state %v without cause", endName(e), wc.Status,
			e.QP.State())
	}
}

func (s *status) Event(now ib.Time, host int, e hca.Event) {
	switch e.Type {
	case hca.EventCQErr, hca.EventQPFatal, hca.EventSRQErr, hca.EventDeviceFatal, hca.EventWQFatal:
		s.report(statusName, nil, "h%d: event %v", host+1, e)
	case hca.EventQPAccessErr, hca.EventQPReqErr:
		if end := s.run.EndAt(e.QP); end != nil && !s.misusedBy(end.In, host) {
			s.report(statusName, []int{end.In.ID}, "%s: event %v although its peer does nothing wrong", endName(end), e)
		}
	}
}

func (s *status) Refused(now ib.Time, host int, verb string, err error) {
	s.report(statusName, nil, "h%d: %s was refused: %v", host+1, verb, err)
}

// usable reports whether a send queue takes requests to be executed.
func usable(e *workload.End) bool {
	return e.QP.State() == hca.StateRTS || e.QP.State() == hca.StateSQD
}
