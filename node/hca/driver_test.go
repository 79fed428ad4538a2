package hca

import (
	"errors"
	"runtime"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestSendSaysWho: what NextSend says of the next packet is what Emit then puts
// into it.
func TestSendSaysWho(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	u, v := w.udEnd(0, conf{}), w.udEnd(1, conf{})
	b.recv(1, b.sge(0, 8))
	v.recv(1, v.sge(0, 100))
	a.post(SendWR{WRID: 1, Opcode: WRSend, SGList: []SGE{a.sge(0, 8)}})
	u.datagram(1, u.ah(AHAttr{DLID: lidOf(1, 1)}), v.qp.num, 0x1234, 8)
	u.datagram(2, u.ah(AHAttr{DLID: groupLID, IsGlobal: true, DGID: group}), 7, 0x1234, 8)
	want := []ib.QPN{b.qp.num, v.qp.num, ib.QPNMulticast}
	for i, qpn := range want {
		s, has := a.h.NextSend()
		var p wire.Packet
		if !has || s.DQPN != qpn || !a.h.Emit(0, s, &p, w.buf) || p.BTH.DestQP != qpn || p.LRH.DLID != s.DLID {
			t.Fatalf("packet %d is for %v: %+v, then %+v", i, qpn, s, p.BTH)
		}
		if qpn != ib.QPNMulticast {
			b.h.HandlePacket(0, 1, &p)
		}
	}
	// The responder's turn: its acknowledgement goes to the requester.
	if s, has := b.h.NextSend(); !has || s.DQPN != a.qp.num {
		t.Fatalf("%+v, want an acknowledgement for %v", s, a.qp.num)
	}
}

// TestCompletionsCounted: every completion counts, failed ones and those that
// nobody polls too.
func TestCompletionsCounted(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	b.recv(1, b.sge(0, 8))
	b.recv(2, b.sge(0, 8))
	a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}})
	a.write(2, b, 8, 0) // not signaled
	w.run()
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateErr}, MaskState))
	if a.h.Stats.Completions != 1 || b.h.Stats.Completions != 2 {
		t.Fatalf("%d and %d completions, want 1 and 2", a.h.Stats.Completions, b.h.Stats.Completions)
	}
	poll(b.rcq)
	if b.h.Stats.Completions != 2 {
		t.Fatal("polling changed how many came")
	}
}

// TestQPNumberBlock: an adapter that has a block of numbers gives out all of
// them and no other.
func TestQPNumberBlock(t *testing.T) {
	const first, size = 0x4000, 8192
	l := DefaultLimits()
	l.MaxQP = size
	h := New(Config{FirstQPN: first, Limits: l})
	pd := must(h.AllocPD())(t)
	cq := must(h.CreateCQ(1))(t)
	create := func() (*QP, error) {
		return h.CreateQP(QPInit{Type: RC, PD: pd, SendCQ: cq, RecvCQ: cq})
	}
	seen := map[ib.QPN]bool{}
	var qps []*QP
	for range size {
		q := must(create())(t)
		if seen[q.num] || q.num < first || q.num >= first+size {
			t.Fatalf("number %v is taken or outside", q.num)
		}
		seen[q.num] = true
		qps = append(qps, q)
	}
	if _, err := create(); !errors.Is(err, ErrNoMemory) {
		t.Fatalf("one too many: %v", err)
	}
	for i := range 300 {
		ok(t, h.DestroyQP(qps[i*7]))
		q := must(create())(t)
		if q.num < first || q.num >= first+size || h.QP(q.num) != q {
			t.Fatalf("number %v", q.num)
		}
	}
	for _, n := range []ib.QPN{0, 1, first - 1, first + size, ib.QPNMask} {
		if h.QP(n) != nil {
			t.Errorf("there is a queue pair %v", n)
		}
	}
	// The last number of all is no queue pair's.
	h = New(Config{FirstQPN: ib.QPNMulticast - 2, Limits: l})
	pd, cq = must(h.AllocPD())(t), must(h.CreateCQ(1))(t)
	for range 2 {
		must(create())(t)
	}
	if q, err := create(); !errors.Is(err, ErrNoMemory) {
		t.Fatalf("%v, %v", q, err)
	}
}

// TestNewIsSmall: an adapter with nothing in it costs little, however much it
// may hold.
func TestNewIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	const n = 64
	keep := make([]*HCA, n)
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = New(Config{Ports: 2})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 64<<10 {
		t.Fatalf("an empty adapter takes %d bytes", each)
	} else {
		t.Logf("%d bytes", each)
	}
	runtime.KeepAlive(keep)
}

// wantQPCounts compares the counts of queue pairs with the queue pairs.
func wantQPCounts(t testing.TB, h *HCA) {
	t.Helper()
	var want QPCounts
	n := 0
	for _, list := range [][]*QP{h.special[:], h.qps} {
		for _, q := range list {
			if q != nil {
				want[q.typ][q.state]++
				n++
			}
		}
	}
	if got := h.QPCounts(); got != want || got.Total() != n {
		t.Fatalf("queue pairs are counted as %v: want %v", got, want)
	}
}

// TestLives: a sample of a queue pair's former life is told from one of this.
func TestLives(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	life := a.qp.Life()
	psn := a.qp.nextPSN
	a.write(1, b, 8, 0)
	if a.qp.Acked(psn) {
		t.Error("acknowledged before it was sent")
	}
	w.run()
	if !a.qp.Acked(psn) || a.qp.Acked(psn.Add(1)) || a.qp.Life() != life {
		t.Errorf("acknowledged: %v, and the next one: %v", a.qp.Acked(psn), a.qp.Acked(psn.Add(1)))
	}
	ok(t, a.h.ModifyQP(a.qp, QPAttr{State: StateReset}, MaskState))
	if a.qp.Life() == life {
		t.Error("a reset is not the end of a life")
	}
	wantQPCounts(t, a.h.HCA)
}
