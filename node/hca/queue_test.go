package hca

import (
	"bytes"
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

func (e *end) write(id uint64, peer *end, n int, f SendFlags) {
	e.w.t.Helper()
	e.post(SendWR{WRID: id, Opcode: WRRDMAWrite, Flags: f, SGList: []SGE{e.sge(0, n)}, RemoteAddr: memVA,
		RKey: peer.mr.RKey()})
}

// TestCQOverflow: one completion too many breaks the queue and the queue pair,
// and the other queue hears of it.
func TestCQOverflow(t *testing.T) {
	t.Run("send", func(t *testing.T) {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{cqe: 2})
		a.recv(9, a.sge(0, 8))
		for i := range 4 {
			a.write(uint64(i), b, 8, SendSignaled)
		}
		w.run()
		a.wantEvents("CQ_ERR", "QP_FATAL")
		a.sent("0 RDMA_WRITE SUCCESS len=8", "1 RDMA_WRITE SUCCESS len=8")
		a.received("9 RECV WR_FLUSH_ERR")
		if !a.scq.Failed() || a.rcq.Failed() || a.qp.state != StateErr {
			t.Fatalf("queues failed: %v %v, queue pair %v", a.scq.Failed(), a.rcq.Failed(), a.qp.state)
		}
		a.write(5, b, 8, SendSignaled) // accepted and lost
		w.run()
		a.sent()
		a.wantEvents()
		w.close()
	})
	t.Run("recv", func(t *testing.T) {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{cqe: 2})
		for i := range 4 {
			b.recv(uint64(i), b.sge(100*i, 8))
			a.post(SendWR{WRID: uint64(i), Opcode: WRSend, SGList: []SGE{a.sge(0, 8)}})
		}
		w.fate = func(f *flying) fate { return fate{drop: f.p.BTH.DestQP == a.qp.num} }
		b.write(7, a, 8, 0)
		w.runFor(10 * ib.Microsecond)
		b.wantEvents("CQ_ERR", "QP_FATAL")
		b.received("0 RECV SUCCESS len=8", "1 RECV SUCCESS len=8")
		b.sent("7 RDMA_WRITE WR_FLUSH_ERR")
		if b.qp.state != StateErr {
			t.Fatalf("in %v", b.qp.state)
		}
		w.run()
		w.close()
	})
	t.Run("datagram", func(t *testing.T) {
		w := newWorld(t, 2, 1)
		a, b := w.udEnd(0, conf{cqe: 1}), w.udEnd(1, conf{cqe: 1})
		ah := a.ah(AHAttr{DLID: lidOf(1, 1)})
		for i := range 3 {
			b.recv(uint64(i), b.sge(0, 100))
			a.datagram(uint64(i), ah, b.qp.num, 0x1234, 8)
		}
		w.run()
		a.wantEvents("CQ_ERR", "QP_FATAL")
		a.sent("0 SEND SUCCESS len=8")
		b.received("0 RECV SUCCESS len=48")
		if a.qp.state != StateErr {
			t.Fatalf("in %v", a.qp.state)
		}
		w.close()
	})
}

// TestCQIgnoreOverrun: a queue that ignores overruns goes on with the newest completions, through polls, purges and
// events, and its queue pairs with it.
func TestCQIgnoreOverrun(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{cqe: 3, sendWR: 16})
	a.scq.IgnoreOverrun()
	write := func(from, to int) {
		for i := from; i < to; i++ {
			a.write(uint64(i), b, 8, SendSignaled)
		}
		w.run()
	}
	write(0, 11)
	a.wantEvents()
	a.sent("8 RDMA_WRITE SUCCESS len=8", "9 RDMA_WRITE SUCCESS len=8", "10 RDMA_WRITE SUCCESS len=8")
	a.scq.ReqNotifyMissed(false)
	a.wantEvents()
	write(11, 16)
	a.wantEvents("COMPLETION")
	a.scq.ReqNotifyMissed(false) // those that came after the event's
	a.wantEvents("COMPLETION")
	ok(t, a.h.ResizeCQ(a.scq, 4))
	write(16, 18)
	if a.scq.Failed() || a.qp.State() != StateRTS {
		t.Fatalf("queue pair in %v", a.qp.State())
	}
	a.sent("14 RDMA_WRITE SUCCESS len=8", "15 RDMA_WRITE SUCCESS len=8", "16 RDMA_WRITE SUCCESS len=8",
		"17 RDMA_WRITE SUCCESS len=8")
	w.close()
}

func TestCQResize(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{cqe: 5})
	next := uint64(0)
	put := func(n int) {
		for range n {
			a.write(next, b, 1, SendSignaled)
			next++
		}
		w.run()
	}
	got := uint64(0)
	get := func(n int) {
		t.Helper()
		out := make([]WC, n)
		if m := a.scq.Poll(out); m != n {
			t.Fatalf("%d completions, want %d", m, n)
		}
		for _, c := range out {
			if c.WRID != got || c.Status != WCSuccess {
				t.Fatalf("completion %d %v, want %d", c.WRID, c.Status, got)
			}
			got++
		}
	}
	put(5)
	get(3)
	put(3)
	wantAttr(t, a.h.ResizeCQ(a.scq, 4), "resize_cq", "cqe", ErrInvalid)
	wantAttr(t, a.h.ResizeCQ(a.scq, 0), "resize_cq", "cqe", ErrInvalid)
	ok(t, a.h.ResizeCQ(a.scq, 9))
	if a.scq.Cap() != 9 || a.scq.Len() != 5 {
		t.Fatalf("holds %d of %d", a.scq.Len(), a.scq.Cap())
	}
	put(4)
	get(9)
	ok(t, a.h.ResizeCQ(a.scq, 1))
	put(1)
	get(1)
	if a.scq.Failed() {
		t.Fatal("overflow")
	}
	put(2)
	if !a.scq.Failed() {
		t.Fatal("no overflow beyond the new size")
	}
	w.close()
}

// TestNotify: an armed queue raises its event once, for what it was armed for.
func TestNotify(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	send := func(f SendFlags) {
		t.Helper()
		b.recv(1, b.sge(0, 8))
		a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: f, SGList: []SGE{a.sge(0, 8)}})
		w.run()
	}
	send(0)
	b.wantEvents() // not armed
	b.rcq.ReqNotify(false)
	b.wantEvents() // what is there already does not count
	send(0)
	b.wantEvents("COMPLETION")
	at := w.now
	send(0)
	b.wantEvents() // once
	if wcs := poll(b.rcq); len(wcs) != 3 || wcs[1].At > at || wcs[2].At <= wcs[1].At || wcs[2].At > w.now {
		t.Fatalf("completions made at %v, %v; now %v", wcs[1].At, wcs[2].At, w.now)
	}
	b.rcq.ReqNotify(true)
	send(0)
	b.wantEvents() // not solicited
	send(SendSolicited)
	b.wantEvents("COMPLETION")
	b.rcq.ReqNotify(false)
	b.rcq.ReqNotify(true) // the stronger stays
	send(0)
	b.wantEvents("COMPLETION")
	b.rcq.ReqNotify(true)
	b.rcq.ReqNotify(false)
	send(0)
	b.wantEvents("COMPLETION")
	// A failure counts as solicited.
	b.rcq.ReqNotify(true)
	b.recv(2, b.sge(0, 8))
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateErr}, MaskState))
	b.wantEvents("COMPLETION")
}

// TestNotifyMissed: arming makes up for the event that a completion had when the queue was not armed, once.
func TestNotifyMissed(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	send := func(f SendFlags) {
		t.Helper()
		b.recv(1, b.sge(0, 8))
		a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: f, SGList: []SGE{a.sge(0, 8)}})
		w.run()
	}
	b.rcq.ReqNotifyMissed(false)
	b.wantEvents() // nothing is there
	send(0)
	b.wantEvents("COMPLETION")
	b.rcq.ReqNotifyMissed(false)
	b.wantEvents() // there was an event for it
	send(0)
	b.wantEvents("COMPLETION")
	send(0)
	b.wantEvents()
	b.rcq.ReqNotifyMissed(true)
	b.wantEvents() // missed, but not solicited
	b.rcq.ReqNotifyMissed(false)
	b.wantEvents("COMPLETION")
	send(SendSolicited)
	send(0)
	ok(t, b.h.ResizeCQ(b.rcq, 100))
	b.rcq.ReqNotifyMissed(true)
	b.wantEvents("COMPLETION")
	send(SendSolicited)
	if wcs := poll(b.rcq); len(wcs) != 6 {
		t.Fatalf("%d completions", len(wcs))
	}
	b.rcq.ReqNotifyMissed(true)
	b.rcq.ReqNotifyMissed(false)
	b.wantEvents() // all was polled
	send(0)
	b.wantEvents("COMPLETION")
	// What is gone with its queue pair is not missed, what comes after it is.
	send(SendSolicited)
	b.rcq.purge(b.qp.Num(), 0)
	b.rcq.ReqNotifyMissed(true)
	b.rcq.ReqNotifyMissed(false)
	b.wantEvents()
	send(0)
	b.wantEvents("COMPLETION")
}

// TestModeration holds the event back until enough completions or enough time.
func TestModeration(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	put := func(n int) {
		t.Helper()
		for range n {
			a.write(1, b, 1, SendSignaled)
		}
		w.runFor(10 * ib.Microsecond)
	}
	ok(t, a.h.ModifyCQ(a.scq, 3, 100*ib.Microsecond))
	a.scq.ReqNotify(false)
	put(2)
	a.wantEvents()
	put(1)
	a.wantEvents("COMPLETION")
	a.scq.ReqNotify(false)
	put(1)
	a.wantEvents()
	w.runFor(95 * ib.Microsecond)
	a.wantEvents("COMPLETION")
	w.runFor(10 * ib.Millisecond)
	a.wantEvents()
	// Events do not depend on timers of an earlier arming.
	a.scq.ReqNotify(false)
	put(1)
	put(2)
	a.wantEvents("COMPLETION")
	a.scq.ReqNotify(false)
	w.runFor(200 * ib.Microsecond)
	a.wantEvents()
	put(1)
	ok(t, a.h.ModifyCQ(a.scq, 0, 0)) // what was held back goes out
	a.wantEvents("COMPLETION")
	a.scq.ReqNotify(false)
	put(1)
	a.wantEvents("COMPLETION")
	wantAttr(t, a.h.ModifyCQ(a.scq, -1, 0), "modify_cq", "cq_count", ErrInvalid)
	wantAttr(t, a.h.ModifyCQ(a.scq, 1<<16, 0), "modify_cq", "cq_count", ErrInvalid)
	wantAttr(t, a.h.ModifyCQ(a.scq, 1, -1), "modify_cq", "cq_period", ErrInvalid)
	w.close()
}

// TestDestroyPurges: completions of a destroyed queue pair are gone, those of
// others on the same queue stay in order.
func TestDestroyPurges(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	pd2, mr2 := a.pd, a.mr
	c := conf{}.filled()
	q2 := must(a.h.CreateQP(QPInit{Type: RC, PD: pd2, SendCQ: a.scq, RecvCQ: a.rcq,
		Caps: Caps{MaxSendWR: 8, MaxSendSGE: 1}}))(t)
	b2 := w.newEnd(1, conf{})
	a2 := &end{name: "a2", w: w, h: a.h, pd: pd2, scq: a.scq, rcq: a.rcq, qp: q2, mr: mr2, mem: a.mem, back: a.back}
	w.join(a2, b2, c, c)
	for i := range 6 {
		if i%2 == 0 {
			a.write(uint64(i), b, 8, SendSignaled)
		} else {
			a2.write(uint64(i), b2, 8, SendSignaled)
		}
		w.run()
	}
	ok(t, a.h.DestroyQP(q2))
	a.sent("0 RDMA_WRITE SUCCESS len=8", "2 RDMA_WRITE SUCCESS len=8", "4 RDMA_WRITE SUCCESS len=8")
	w.close()
}

// TestSharedQueue lets two queue pairs draw from one queue, in order, with
// messages of several packets under way at once.
func TestSharedQueue(t *testing.T) {
	w := newWorld(t, 2, 1)
	b := w.newEnd(1, conf{srq: 8})
	b2 := w.newEnd(1, conf{})
	ok(t, b2.h.DestroyQP(b2.qp))
	// The second queue pair has a domain of its own; the buffers belong to the queue's.
	b2.qp = must(b2.h.CreateQP(QPInit{Type: RC, PD: b2.pd, SendCQ: b2.scq, RecvCQ: b2.rcq, SRQ: b.srq,
		Caps: Caps{MaxSendWR: 8, MaxSendSGE: 1}}))(t)
	a, a2 := w.newEnd(0, conf{}), w.newEnd(0, conf{})
	w.join(a, b, conf{}, conf{})
	w.join(a2, b2, conf{}, conf{})
	wantAttr(t, b2.h.PostRecv(b2.qp, &RecvWR{}), "post_recv", "qp", ErrInvalid)
	for i := range 4 {
		b.recv(uint64(i), b.sge(2000*i, 2000))
	}
	for i, e := range []*end{a, a2} {
		for j := range e.mem[:4000] {
			e.mem[j] = byte(j*3 + 100*i)
		}
		e.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{e.sge(0, 1000)}})
		e.post(SendWR{WRID: 2, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{e.sge(1000, 600)}})
	}
	w.run()
	for i, e := range []*end{a, a2} {
		e.sent("1 SEND SUCCESS len=1000", "2 SEND SUCCESS len=600")
		rc := []*CQ{b.rcq, b2.rcq}[i]
		off := 0
		for _, c := range poll(rc) {
			if !bytes.Equal(b.mem[2000*c.WRID:][:c.ByteLen], e.mem[off:off+int(c.ByteLen)]) {
				t.Fatalf("message of %d bytes in receive %d: data differ", c.ByteLen, c.WRID)
			}
			off += int(c.ByteLen)
		}
		if off != 1600 {
			t.Fatalf("%d bytes came, want 1600", off)
		}
	}
	wantAttr(t, b.h.DestroySRQ(b.srq), "destroy_srq", "srq", ErrBusy)
	w.close()
}

// TestSharedQueueUC: a broken message of UC ends the receive that it held.
func TestSharedQueueUC(t *testing.T) {
	w := newWorld(t, 2, 1)
	c := conf{typ: UC, srq: 4}
	a, b := w.pair(c)
	b.recv(1, b.sge(0, 1000))
	b.recv(2, b.sge(0, 1000))
	w.fate = func(f *flying) fate { return fate{drop: f.p.BTH.PSN == 1} }
	for range 2 {
		a.post(SendWR{Opcode: WRSend, SGList: []SGE{a.sge(0, 700)}})
	}
	w.run()
	b.received("1 RECV WR_FLUSH_ERR", "2 RECV SUCCESS len=700")
	w.close()
}

// TestSRQLimit arms the limit again.
func TestSRQLimit(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{srq: 8})
	for i := range 8 {
		b.recv(uint64(i), b.sge(0, 8))
	}
	wantAttr(t, b.h.PostSRQRecv(b.srq, &RecvWR{}), "post_recv", "receive queue", ErrFull)
	ok(t, b.h.ModifySRQ(b.srq, 7))
	one := func() {
		t.Helper()
		a.post(SendWR{Opcode: WRSend, SGList: []SGE{a.sge(0, 8)}})
		w.run()
	}
	one()
	b.wantEvents()
	wantSRQ := func(limit int) {
		t.Helper()
		if wr, sge, l, err := b.h.QuerySRQ(b.srq); err != nil || wr != 8 || sge < 1 || l != limit {
			t.Fatalf("max_wr %d, max_sge %d, limit %d, %v; want limit %d", wr, sge, l, err, limit)
		}
	}
	wantSRQ(7)
	one()
	b.wantEvents("SRQ_LIMIT_REACHED")
	wantSRQ(0)
	one()
	b.wantEvents()
	ok(t, b.h.ModifySRQ(b.srq, 5))
	one()
	b.wantEvents("SRQ_LIMIT_REACHED")
	wantAttr(t, b.h.ModifySRQ(b.srq, 9), "modify_srq", "srq_limit", ErrInvalid)
	wantAttr(t, b.h.ModifySRQ(b.srq, -1), "modify_srq", "srq_limit", ErrInvalid)
	if b.srq.Len() != 4 {
		t.Fatalf("%d receives left", b.srq.Len())
	}
}

// TestXRCDomains: the shared queue's domain decides what keys open, and a
// target reaches only queues of its XRC domain.
func TestXRCDomains(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.xrcPair(conf{})
	pd2 := must(b.h.AllocPD())(t)
	mem2 := make([]byte, 64)
	mr2 := must(b.h.RegMR(pd2, mem2, 0, AccessLocalWrite|AccessRemoteWrite))(t)
	srq2 := must(b.h.CreateSRQ(SRQInit{PD: pd2, MaxWR: 4, MaxSGE: 1, XRCD: b.xrcd, CQ: b.rcq}))(t)
	ok(t, b.h.PostSRQRecv(srq2, &RecvWR{WRID: 5, SGList: []SGE{{Addr: 0, Length: 64, LKey: mr2.LKey()}}}))
	a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 64)}, RemoteSRQN: srq2.Num()})
	w.run()
	a.sent("1 SEND SUCCESS len=64")
	b.received("5 RECV SUCCESS len=64")
	if !bytes.Equal(mem2, a.mem[:64]) {
		t.Fatal("data differ")
	}
	a.post(SendWR{WRID: 2, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RKey: mr2.RKey(),
		RemoteSRQN: srq2.Num()})
	w.run()
	a.sent("2 RDMA_WRITE SUCCESS len=8")
	// The same key by way of a queue of the other domain.
	a.post(SendWR{WRID: 3, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RKey: mr2.RKey(),
		RemoteSRQN: b.srq.Num()})
	w.run()
	a.sent("3 RDMA_WRITE REM_ACCESS_ERR")

	// A queue of another XRC domain, and an ordinary shared queue.
	for _, other := range []bool{true, false} {
		a, b := w.xrcPair(conf{})
		init := SRQInit{PD: b.pd, MaxWR: 4, MaxSGE: 1}
		if other {
			init.XRCD, init.CQ = b.h.OpenXRCD(), b.rcq
		}
		s := must(b.h.CreateSRQ(init))(t)
		ok(t, b.h.PostSRQRecv(s, &RecvWR{SGList: []SGE{b.sge(0, 8)}}))
		a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RemoteSRQN: s.Num()})
		w.run()
		a.sent("1 SEND REM_INV_REQ_ERR")
	}
	// An XRC queue serves no ordinary queue pair.
	_, err := b.h.CreateQP(QPInit{Type: RC, PD: b.pd, SendCQ: b.scq, RecvCQ: b.rcq, SRQ: srq2})
	wantAttr(t, err, "create_qp", "srq", ErrInvalid)
}

// TestXRCCompletions: what a target has received stays when it is reset or destroyed, since only the shared queue's
// owner knows whose buffer it was, and goes with the shared queue.
func TestXRCCompletions(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.xrcPair(conf{})
	other := must(b.h.CreateSRQ(SRQInit{PD: b.pd, MaxWR: 4, MaxSGE: 1, XRCD: b.xrcd, CQ: b.rcq}))(t)
	ok(t, b.h.PostSRQRecv(other, &RecvWR{WRID: 20, SGList: []SGE{b.sge(0, 8)}}))
	for i, s := range []*SRQ{b.srq, other, b.srq} {
		b.recv(uint64(10+i), b.sge(0, 8))
		a.post(SendWR{WRID: uint64(i), Opcode: WRSend, SGList: []SGE{a.sge(0, 8)}, RemoteSRQN: s.Num()})
	}
	w.run()
	// The next message does not end: its receive is the owner's again.
	w.fate = func(f *flying) fate { return fate{drop: f.p.BTH.Opcode.Op() != wire.OpSendFirst} }
	a.post(SendWR{WRID: 3, Opcode: WRSend, SGList: []SGE{a.sge(0, 8000)}, RemoteSRQN: b.srq.Num()})
	ok(t, b.h.PostSRQRecv(b.srq, &RecvWR{WRID: 13, SGList: []SGE{b.sge(0, 8000)}}))
	w.runFor(10 * ib.Microsecond)
	target := b.qp.Num()
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateReset}, MaskState))
	ok(t, b.h.DestroyQP(b.qp))
	b.rcq.purge(target, 0) // as by another queue pair that has its number
	if n := b.rcq.Len(); n != 4 {
		t.Fatalf("%d completions are left with the target gone, want 4", n)
	}
	ok(t, b.h.DestroySRQ(b.srq))
	b.received("20 RECV SUCCESS len=8")
}

// TestXRCQueueGone: a target in the middle of a message for a shared queue that is destroyed fails, and leaves nothing.
func TestXRCQueueGone(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.xrcPair(conf{})
	b.recv(1, b.sge(0, 8000))
	w.fate = func(f *flying) fate { return fate{drop: f.p.BTH.Opcode.Op() != wire.OpSendFirst} }
	a.post(SendWR{WRID: 3, Opcode: WRSend, SGList: []SGE{a.sge(0, 8000)}, RemoteSRQN: b.srq.Num()})
	w.runFor(10 * ib.Microsecond)
	if b.qp.cur == nil {
		t.Fatal("want it in a message")
	}
	ok(t, b.h.DestroySRQ(b.srq))
	ok(t, b.h.DestroyCQ(b.rcq))
	if b.qp.State() != StateErr || b.rcq.Len() != 0 {
		t.Fatalf("in %v, %d completions", b.qp.State(), b.rcq.Len())
	}
	b.wantEvents("QP_ACCESS_ERR")
}

// TestManyRounds wraps every ring many times.
func TestManyRounds(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sendWR: 3, recvWR: 3, cqe: 3, psn: 0xFFFFF0})
	for i := range 500 {
		b.recv(uint64(i), b.sge(0, 300))
		a.post(SendWR{WRID: uint64(i), Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(i%100, 300)}})
		w.run()
		a.sent(fmt.Sprintf("%d SEND SUCCESS len=300", i))
		b.received(fmt.Sprintf("%d RECV SUCCESS len=300", i))
		if !bytes.Equal(a.mem[i%100:i%100+300], b.mem[:300]) {
			t.Fatal("data differ")
		}
	}
	w.close()
}
