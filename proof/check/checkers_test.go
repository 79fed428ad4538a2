package check

import (
	"errors"
	"strings"
	"testing"

	"softib/driver/machine"
	"softib/node/hca"
	"softib/proof/workload"
	"softib/proto/ib"
)

// stage is a small run in which tests do what must not be.
type stage struct {
	*scene
	h    *history
	mem  *memory
	last panel
}

// small is one RC conn between two hosts that sends, writes, reads and adds.
func small() Scenario {
	ops := []workload.Op{
		{N: 0, Code: hca.WRSend, Size: 100, SGEs: 2, Flags: hca.SendSignaled},
		{N: 1, Code: hca.WRRDMAWrite, Size: 600, SGEs: 1, Flags: hca.SendSignaled},
		{N: 2, Code: hca.WRRDMARead, Size: 300, SGEs: 1, Flags: hca.SendSignaled},
		{N: 3, Code: hca.WRAtomicFetchAdd, Size: 8, SGEs: 1, Flags: hca.SendSignaled},
		{N: 4, Code: hca.WRSendImm, Size: 50, SGEs: 1, Flags: hca.SendSignaled, Delay: 30 * ib.Microsecond},
	}
	flow := workload.Flow{SendDepth: 8, SendSGEs: 2, RecvDepth: 4, RecvSGEs: 1, RecvSize: 256, Slots: 1, SlotSize: 1024,
		Cells: 1}
	c := workload.Conn{ID: 0, Type: hca.RC, Host: [2]int{0, 1}, MTU: ib.MTU256, Timeout: 12, Retry: 7, RNRRetry: 7,
		MinRNRTimer: 1, MaxRD: 2}
	c.Flows = [2]workload.Flow{flow, flow}
	c.Flows[0].Ops = ops
	return Scenario{
		Seed: 1, Topo: "star:2", MTU: ib.MTU4096, Buffer: 8, VLs: 1, Calm: true,
		Machine: machine.Config{Habits: []machine.Habit{machine.Polls}},
		Work: workload.Spec{Seed: 7, Hosts: 2, PKeys: [][]ib.PKey{{ib.PKeyDefault}, {ib.PKeyDefault}},
			Conns: []workload.Conn{c}},
	}
}

// newStage sets a scenario up, before anything is posted.
func newStage(t *testing.T, sc *Scenario) *stage {
	t.Helper()
	c := &scene{sc: sc, qps: map[*workload.End]*endState{}}
	m, err := sc.build(sc.graph(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	c.sim, c.machine = m.Sim, m
	st := &stage{scene: c, mem: newMemory(c)}
	st.last = panel{&witness{scene: c}, newCompletion(c), newStatus(c), newDelivery(c), st.mem, &credit{scene: c},
		&drops{scene: c}}
	if c.run, err = workload.New(m, &sc.Work, st.last); err != nil {
		t.Fatal(err)
	}
	st.mem.begin()
	st.h = &history{scene: c, all: st.last}
	return st
}

// wants makes sure that a checker has said something with these words in it.
func (s *stage) wants(t *testing.T, checker, words string) {
	t.Helper()
	for _, v := range s.found {
		if v.Checker == checker && strings.Contains(v.Text, words) {
			return
		}
	}
	t.Errorf("no violation of %s with %q: %v", checker, words, s.found)
}

// done is a successful completion of op i.
func (s *stage) done(i int) *hca.WC {
	o := &s.run.Flows[0].Ops[i]
	return &hca.WC{WRID: o.ID(), QPN: o.Flow.From.QP.Num(), Opcode: wantOpcode[o.Code], ByteLen: uint32(o.Size)}
}

func TestSmallRunIsClean(t *testing.T) {
	sc := small()
	s := newStage(t, &sc)
	s.h.play()
	if len(s.found) > 0 {
		t.Fatal(s.found)
	}
	if n := s.run.Flows[0].Ops[4]; !n.Done || n.Status != hca.WCSuccess {
		t.Errorf("the last op: done %v, %v", n.Done, n.Status)
	}
}

// TestCheckersComplain does one forbidden thing after another.
func TestCheckersComplain(t *testing.T) {
	after := func(tamper func(s *stage)) func(*stage) {
		return func(s *stage) {
			s.h.play()
			s.found = nil
			tamper(s)
		}
	}
	for _, c := range []struct {
		name, checker, words string
		do                   func(s *stage)
	}{
		{"a byte between regions changes", memoryName, "outside every region", func(s *stage) {
			s.run.Mem[1][3] ^= 1
			s.h.play()
		}},
		{"a byte of a region that nobody may reach changes", memoryName, "another domain", func(s *stage) {
			s.run.Mem[1][s.run.Foreign[1].Off+9] ^= 1
			s.h.play()
		}},
		{"a byte that was written changes later", memoryName, "target region", after(func(s *stage) {
			s.run.Mem[1][s.run.Flows[0].Slots.Off+599] ^= 1
			s.last.Audit()
		})},
		{"a write says that it is done before it is", memoryName, "is not what it", func(s *stage) {
			o := &s.run.Flows[0].Ops[1]
			o.Posted = true
			s.mem.OpPosted(0, o)
			s.mem.SendDone(0, 0, s.done(1))
		}},
		{"a read brings something else", memoryName, "not what was there", func(s *stage) {
			o := &s.run.Flows[0].Ops[2]
			o.Posted = true
			s.mem.OpPosted(0, o)
			s.mem.SendDone(0, 0, s.done(2))
		}},
		{"an atomic finds what cannot be there", memoryName, "executed once and in order", func(s *stage) {
			o := &s.run.Flows[0].Ops[3]
			o.Posted, o.Orig = true, 12345
			s.mem.OpPosted(0, o)
			s.mem.SendDone(0, 0, s.done(3))
		}},
		{"freed memory is written", memoryName, "no request may touch", after(func(s *stage) {
			s.mem.Freed(0, s.run.Ends[1].TargetAt)
			s.run.Mem[1][s.run.Flows[0].Slots.Off] ^= 1
			s.last.Audit()
		})},
		{"a completion comes twice", completionName, "completed twice",
			after(func(s *stage) { s.last.SendDone(0, 0, s.done(4)) })},
		{"a completion of nothing", completionName, "nobody posted", after(func(s *stage) {
			s.last.SendDone(0, 0, &hca.WC{WRID: 1<<63 | 99<<32})
		})},
		{"a completion overtakes another", completionName, "which was posted earlier", func(s *stage) {
			s.run.Start()
			s.last.SendDone(0, 0, s.done(1))
		}},
		{"success after an error", completionName, "want WR_FLUSH_ERR", func(s *stage) {
			s.run.Start()
			wc := s.done(0)
			wc.Status = hca.WCRetryExcErr
			s.last.SendDone(0, 0, wc)
			s.last.SendDone(0, 0, s.done(1))
		}},
		{"a receive completes twice", completionName, "completed twice", after(func(s *stage) {
			v := s.run.Ends[1].Recvs[0]
			s.last.RecvDone(0, 1, &hca.WC{WRID: v.ID, QPN: s.run.Ends[1].QP.Num()})
			s.last.RecvDone(0, 1, &hca.WC{WRID: v.ID, QPN: s.run.Ends[1].QP.Num()})
		})},
		{"a request fails without cause", statusName, "only 0 faults", func(s *stage) {
			s.run.Start()
			wc := s.done(0)
			wc.Status = hca.WCRetryExcErr
			s.last.SendDone(0, 0, wc)
		}},
		{"a request is refused without cause", statusName, "nothing is wrong with it", func(s *stage) {
			s.run.Start()
			wc := s.done(0)
			wc.Status = hca.WCRemAccessErr
			s.last.SendDone(0, 0, wc)
		}},
		{"a queue pair is flushed without cause", statusName, "nothing has failed", func(s *stage) {
			s.run.Start()
			wc := s.done(0)
			wc.Status = hca.WCWRFlushErr
			s.last.SendDone(0, 0, wc)
		}},
		{"a verb is refused", statusName, "was refused",
			func(s *stage) { s.last.Refused(0, 0, "post_send", errors.New("no")) }},
		{"a completion queue overflows", statusName, "CQ_ERR",
			func(s *stage) { s.last.Event(0, 0, hca.Event{Type: hca.EventCQErr}) }},
		{"a message is received that was not sent", deliveryName, "received already", func(s *stage) {
			v := s.run.Ends[1].Recvs[0]
			s.last.RecvDone(0, 1, &hca.WC{WRID: v.ID, QPN: s.run.Ends[1].QP.Num()})
		}},
		{"a message is not intact", deliveryName, "not intact", func(s *stage) {
			s.run.Start()
			v := s.run.Ends[1].Recvs[0]
			s.last.RecvDone(0, 1, &hca.WC{
				WRID: v.ID, QPN: s.run.Ends[1].QP.Num(), Opcode: hca.WCRecv, ByteLen: 100,
				SrcQP: s.run.Ends[0].QP.Num(), SLID: s.lid(0),
			})
		}},
		{"a message is shorter than it was", deliveryName, "99 bytes: want 100", func(s *stage) {
			s.run.Start()
			v := s.run.Ends[1].Recvs[0]
			s.last.RecvDone(0, 1, &hca.WC{WRID: v.ID, QPN: s.run.Ends[1].QP.Num(), Opcode: hca.WCRecv, ByteLen: 99})
		}},
		{"a send succeeds and nobody has it", deliveryName, "never received", after(func(s *stage) {
			s.last[3].(*delivery).flow(s.run.Flows[0]).next = 1
			s.last.Rest()
		})},
		{"packets are sent again without faults", dropsName, "sent again", after(func(s *stage) {
			s.run.Adapter(0).Stats.Retransmits = 3
			s.last.Rest()
		})},
		{"an adapter drops without cause", dropsName, "Q_Key", after(func(s *stage) {
			s.run.Adapter(0).Stats.Drops[hca.DropQKey] = 1
			s.last.Rest()
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			sc := small()
			s := newStage(t, &sc)
			c.do(s)
			s.wants(t, c.checker, c.words)
		})
	}
}

// TestStuckLoadIsFound has a conn wait for ever: nobody posts what it waits for.
func TestStuckLoadIsFound(t *testing.T) {
	sc := small()
	sc.Calm = false
	sc.Work.Conns[0].MinRNRTimer = 20
	sc.Work.Conns[0].Flows[0].RecvDepth = 0 // the receiver is never ready, and the sender tries for ever
	res := Run(&sc)
	if !res.Failed() || res.Violations[0].Checker != progressName ||
		!strings.Contains(res.Violations[0].Text, "does not end") {
		t.Errorf("found %v", res.Violations)
	}
}

// TestPanicIsAViolation turns a bug that panics into a report.
func TestPanicIsAViolation(t *testing.T) {
	sc := small()
	sc.Work.Conns[0].Host[1] = 77
	res := Run(&sc)
	if !res.Failed() || res.Violations[0].Checker != "panic" {
		t.Errorf("found %v", res.Violations)
	}
}
