package hca

import (
	"testing"

	"softib/proto/ib"
)

// TestBadCalls passes each verb something wrong, one thing at a time.
func TestBadCalls(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sendWR: 4, recvWR: 4, sge: 2, inline: 16})
	x, _ := w.xrcPair(conf{})
	u := w.udEnd(0, conf{})
	uc, _ := w.pair(conf{typ: UC})
	h, other := a.h.HCA, b.h.HCA
	deadPD := must(h.AllocPD())(t)
	ok(t, h.DeallocPD(deadPD))
	deadCQ := must(h.CreateCQ(1))(t)
	ok(t, h.DestroyCQ(deadCQ))
	deadX := h.OpenXRCD()
	ok(t, h.CloseXRCD(deadX))
	deadAH := must(h.CreateAH(u.pd, AHAttr{DLID: 5}))(t)
	ok(t, h.DestroyAH(deadAH))
	foreignAH := must(h.CreateAH(a.pd, AHAttr{DLID: 5}))(t)
	goodAH := must(h.CreateAH(u.pd, AHAttr{DLID: 5}))(t)
	deadMR := must(h.RegMR(a.pd, nil, 0, 0))(t)
	ok(t, h.DeregMR(deadMR))
	deadSRQ := must(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1}))(t)
	ok(t, h.DestroySRQ(deadSRQ))
	init := QPInit{Type: RC, PD: a.pd, SendCQ: a.scq, RecvCQ: a.rcq}
	with := func(f func(*QPInit)) error {
		i := init
		f(&i)
		_, err := h.CreateQP(i)
		return err
	}
	send := func(e *end, wr SendWR) error { return h.PostSend(e.qp, &wr) }
	two := func(_ any, err error) error { return err }
	big := []SGE{a.sge(0, 1), a.sge(0, 1), a.sge(0, 1)}
	huge := []SGE{{Length: 1 << 31}, {Length: 1}}
	for i, c := range []struct {
		verb, attr string
		kind       error
		err        error
	}{
		{"dealloc_pd", "pd", ErrDestroyed, h.DeallocPD(nil)},
		{"dealloc_pd", "pd", ErrDestroyed, h.DeallocPD(deadPD)},
		{"dealloc_pd", "pd", ErrDestroyed, other.DeallocPD(a.pd)},
		{"dealloc_pd", "pd", ErrBusy, h.DeallocPD(a.pd)},

		{"reg_mr", "pd", ErrInvalid, two(h.RegMR(nil, nil, 0, 0))},
		{"reg_mr", "pd", ErrInvalid, two(h.RegMR(deadPD, nil, 0, 0))},
		{"reg_mr", "pd", ErrInvalid, two(other.RegMR(a.pd, nil, 0, 0))},
		{"reg_mr", "access", ErrInvalid, two(h.RegMR(a.pd, nil, 0, 1<<15))},
		{"reg_mr", "access", ErrInvalid, two(h.RegMR(a.pd, nil, 0, AccessRemoteWrite))},
		{"reg_mr", "access", ErrInvalid, two(h.RegMR(a.pd, nil, 0, AccessRemoteAtomic))},
		{"reg_mr", "addr", ErrInvalid, two(h.RegMR(a.pd, make([]byte, 8), ^uint64(3), 0))},
		{"dereg_mr", "mr", ErrDestroyed, h.DeregMR(nil)},
		{"dereg_mr", "mr", ErrDestroyed, h.DeregMR(deadMR)},
		{"rereg_mr", "mr", ErrDestroyed, h.ReregMR(deadMR, nil, nil, 0, nil)},

		{"alloc_mw", "pd", ErrInvalid, two(h.AllocMW(nil, MWType1))},
		{"alloc_mw", "type", ErrInvalid, two(h.AllocMW(a.pd, 3))},
		{"dealloc_mw", "mw", ErrDestroyed, h.DeallocMW(nil)},

		{"create_ah", "pd", ErrInvalid, two(h.CreateAH(deadPD, AHAttr{DLID: 1}))},
		{"create_ah", "ah_attr.dlid", ErrInvalid, two(h.CreateAH(a.pd, AHAttr{}))},
		{"create_ah", "ah_attr.sl", ErrInvalid, two(h.CreateAH(a.pd, AHAttr{DLID: 1, SL: 16}))},
		{"create_ah", "ah_attr.port_num", ErrInvalid, two(h.CreateAH(a.pd, AHAttr{DLID: 1, Port: 2}))},
		{"destroy_ah", "ah", ErrDestroyed, h.DestroyAH(nil)},
		{"destroy_ah", "ah", ErrDestroyed, h.DestroyAH(deadAH)},

		{"create_cq", "cqe", ErrInvalid, two(h.CreateCQ(0))},
		{"create_cq", "cqe", ErrInvalid, two(h.CreateCQ(1<<22 + 1))},
		{"resize_cq", "cq", ErrDestroyed, h.ResizeCQ(deadCQ, 1)},
		{"resize_cq", "cqe", ErrInvalid, h.ResizeCQ(a.scq, 1<<23)},
		{"modify_cq", "cq", ErrDestroyed, h.ModifyCQ(nil, 1, 1)},
		{"destroy_cq", "cq", ErrDestroyed, h.DestroyCQ(deadCQ)},
		{"destroy_cq", "cq", ErrBusy, h.DestroyCQ(a.scq)},

		{"create_srq", "pd", ErrInvalid, two(h.CreateSRQ(SRQInit{MaxWR: 1}))},
		{"create_srq", "max_wr", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd}))},
		{"create_srq", "max_wr", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1<<15 + 1}))},
		{"create_srq", "max_sge", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, MaxSGE: 33}))},
		{"create_srq", "max_sge", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, MaxSGE: -1}))},
		{"create_srq", "srq_limit", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, Limit: 2}))},
		{"create_srq", "xrcd, cq", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, CQ: a.rcq}))},
		{"create_srq", "xrcd, cq", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, CQ: a.rcq, XRCD: deadX}))},
		{"create_srq", "xrcd, cq", ErrInvalid, two(h.CreateSRQ(SRQInit{PD: a.pd, MaxWR: 1, CQ: b.rcq,
			XRCD: h.OpenXRCD()}))},
		{"modify_srq", "srq", ErrDestroyed, h.ModifySRQ(deadSRQ, 1)},
		{"destroy_srq", "srq", ErrDestroyed, h.DestroySRQ(deadSRQ)},
		{"post_srq_recv", "srq", ErrDestroyed, h.PostSRQRecv(deadSRQ, &RecvWR{})},
		{"close_xrcd", "xrcd", ErrDestroyed, h.CloseXRCD(deadX)},

		{"create_qp", "qp_type", ErrInvalid, with(func(i *QPInit) { i.Type = NumQPType })},
		{"create_qp", "pd", ErrInvalid, with(func(i *QPInit) { i.PD = nil })},
		{"create_qp", "pd", ErrInvalid, with(func(i *QPInit) { i.PD = b.pd })},
		{"create_qp", "send_cq", ErrInvalid, with(func(i *QPInit) { i.SendCQ = nil })},
		{"create_qp", "send_cq", ErrInvalid, with(func(i *QPInit) { i.SendCQ = deadCQ })},
		{"create_qp", "send_cq", ErrInvalid, with(func(i *QPInit) { i.SendCQ = b.scq })},
		{"create_qp", "recv_cq", ErrInvalid, with(func(i *QPInit) { i.RecvCQ = nil })},
		{"create_qp", "srq", ErrInvalid, with(func(i *QPInit) { i.SRQ = deadSRQ })},
		{"create_qp", "xrcd", ErrInvalid, with(func(i *QPInit) { i.Type = XRCRecv })},
		{"create_qp", "xrcd", ErrInvalid, with(func(i *QPInit) { i.Type, i.XRCD = XRCRecv, deadX })},
		{"create_qp", "xrcd", ErrInvalid, with(func(i *QPInit) { i.Type, i.XRCD = XRCRecv, other.OpenXRCD() })},
		{"create_qp", "pd", ErrInvalid, with(func(i *QPInit) { i.Type, i.XRCD, i.PD = XRCRecv, h.OpenXRCD(), deadPD })},
		{"create_qp", "cap.max_send_wr", ErrInvalid, with(func(i *QPInit) { i.Caps.MaxSendWR = 1<<15 + 1 })},
		{"create_qp", "cap.max_recv_wr", ErrInvalid, with(func(i *QPInit) { i.Caps.MaxRecvWR = -1 })},
		{"create_qp", "cap.max_send_sge", ErrInvalid, with(func(i *QPInit) { i.Caps.MaxSendSGE = 33 })},
		{"create_qp", "cap.max_recv_sge", ErrInvalid, with(func(i *QPInit) { i.Caps.MaxRecvSGE = 33 })},
		{"create_qp", "cap.max_inline_data", ErrInvalid, with(func(i *QPInit) { i.Caps.MaxInline = 1025 })},
		{"destroy_qp", "qp", ErrDestroyed, h.DestroyQP(nil)},

		{"post_send", "qp", ErrDestroyed, h.PostSend(nil, &SendWR{})},
		{"post_send", "opcode", ErrInvalid, send(a, SendWR{Opcode: NumWROpcode})},
		{"post_send", "opcode", ErrInvalid, send(u, SendWR{Opcode: WRRDMAWrite})},
		{"post_send", "opcode", ErrInvalid, send(uc, SendWR{Opcode: WRRDMARead})},
		{"post_send", "opcode", ErrInvalid, send(uc, SendWR{Opcode: WRSendInv})},
		{"post_send", "send_flags", ErrInvalid, send(a, SendWR{Opcode: WRSend, Flags: 1 << 7})},
		{"post_send", "send_flags", ErrInvalid, send(a, SendWR{Opcode: WRRDMARead, Flags: SendInline})},
		{"post_send", "num_sge", ErrInvalid, send(a, SendWR{Opcode: WRSend, SGList: big})},
		{"post_send", "sg_list", ErrInvalid, send(a, SendWR{Opcode: WRSend, SGList: huge})},
		{"post_send", "sg_list", ErrInvalid, send(a, SendWR{Opcode: WRAtomicFetchAdd, SGList: []SGE{a.sge(0, 7)}})},
		{"post_send", "remote_addr", ErrInvalid, send(a,
			SendWR{Opcode: WRAtomicCmpSwap, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: 4})},
		{"post_send", "bind_mw", ErrInvalid, send(a, SendWR{Opcode: WRBindMW})},
		{"post_send", "inline length", ErrInvalid, send(a,
			SendWR{Opcode: WRSend, Flags: SendInline, SGList: []SGE{a.sge(0, 17)}})},
		{"post_send", "sg_list", ErrInvalid, send(a, SendWR{Opcode: WRSend, Flags: SendInline,
			SGList: []SGE{{Length: 4}}})},
		{"post_send", "ah", ErrInvalid, send(u, SendWR{Opcode: WRSend})},
		{"post_send", "ah", ErrInvalid, send(u, SendWR{Opcode: WRSend, AH: deadAH})},
		{"post_send", "ah", ErrInvalid, send(u, SendWR{Opcode: WRSend, AH: foreignAH})},
		{"post_send", "remote_qpn", ErrInvalid, send(u, SendWR{Opcode: WRSend, AH: goodAH, RemoteQPN: 1 << 24})},
		{"post_send", "remote_srqn", ErrInvalid, send(x, SendWR{Opcode: WRSend, RemoteSRQN: 1 << 24})},
		{"post_recv", "qp", ErrDestroyed, h.PostRecv(nil, &RecvWR{})},
		{"post_recv", "qp", ErrInvalid, h.PostRecv(x.qp, &RecvWR{})},
		{"post_recv", "num_sge", ErrInvalid, h.PostRecv(a.qp, &RecvWR{SGList: big})},
		{"post_recv", "sg_list", ErrInvalid, h.PostRecv(a.qp, &RecvWR{SGList: huge})},
	} {
		if c.err == nil {
			t.Errorf("%d: %s accepted a bad %s", i, c.verb, c.attr)
			continue
		}
		wantAttr(t, c.err, c.verb, c.attr, c.kind)
	}
	// Nothing of all that was queued.
	w.run()
	a.sent()
	if a.qp.Outstanding()+u.qp.Outstanding()+uc.qp.Outstanding()+x.qp.Outstanding() != 0 {
		t.Fatal("a refused request was queued")
	}
	for range 4 {
		a.recv(1)
	}
	wantAttr(t, h.PostRecv(a.qp, &RecvWR{}), "post_recv", "receive queue", ErrFull)
	h.xrcds, other.xrcds = h.xrcds-2, other.xrcds-1 // those opened in passing
	ok(t, h.DestroyAH(foreignAH))
	ok(t, h.DestroyAH(goodAH))
	w.close()
}

// TestLimits runs every kind of object against the device's limit.
func TestLimits(t *testing.T) {
	l := DefaultLimits()
	l.MaxPD, l.MaxCQ, l.MaxMR, l.MaxMW, l.MaxAH, l.MaxSRQ, l.MaxQP, l.MaxMRSize = 2, 2, 2, 1, 2, 2, 2, 100
	h := New(Config{Limits: l, Ports: 1})
	if h.Limits() != l || h.Config().Ports != 1 || h.NumPorts() != 1 || h.Port(0) != nil || h.Port(2) != nil {
		t.Fatal("the adapter is not as configured")
	}
	pd := must(h.AllocPD())(t)
	must(h.AllocPD())(t)
	_, err := h.AllocPD()
	wantAttr(t, err, "alloc_pd", "pd", ErrNoMemory)
	cq := must(h.CreateCQ(1))(t)
	must(h.CreateCQ(1))(t)
	_, err = h.CreateCQ(1)
	wantAttr(t, err, "create_cq", "cq", ErrNoMemory)
	m := must(h.RegMR(pd, make([]byte, 100), 0, 0))(t)
	must(h.RegMR(pd, nil, 0, 0))(t)
	_, err = h.RegMR(pd, nil, 0, 0)
	wantAttr(t, err, "reg_mr", "mr", ErrNoMemory)
	_, err = h.RegMR(pd, make([]byte, 101), 0, 0)
	wantAttr(t, err, "reg_mr", "length", ErrInvalid)
	wantAttr(t, h.ReregMR(m, nil, make([]byte, 101), 0, nil), "rereg_mr", "length", ErrInvalid)
	must(h.AllocMW(pd, MWType1))(t)
	_, err = h.AllocMW(pd, MWType1)
	wantAttr(t, err, "alloc_mw", "mw", ErrNoMemory)
	must(h.CreateAH(pd, AHAttr{DLID: 1}))(t)
	must(h.CreateAH(pd, AHAttr{DLID: 1}))(t)
	_, err = h.CreateAH(pd, AHAttr{DLID: 1})
	wantAttr(t, err, "create_ah", "ah", ErrNoMemory)
	s := must(h.CreateSRQ(SRQInit{PD: pd, MaxWR: 1}))(t)
	must(h.CreateSRQ(SRQInit{PD: pd, MaxWR: 1}))(t)
	_, err = h.CreateSRQ(SRQInit{PD: pd, MaxWR: 1})
	wantAttr(t, err, "create_srq", "srq", ErrNoMemory)
	ok(t, h.DestroySRQ(s))
	if again := must(h.CreateSRQ(SRQInit{PD: pd, MaxWR: 1}))(t); again.Num() != s.Num() {
		t.Fatalf("SRQ number %d, want %d again", again.Num(), s.Num())
	}
	init := QPInit{Type: RC, PD: pd, SendCQ: cq, RecvCQ: cq}
	q := must(h.CreateQP(init))(t)
	must(h.CreateQP(init))(t)
	_, err = h.CreateQP(init)
	wantAttr(t, err, "create_qp", "qp", ErrNoMemory)
	ok(t, h.DestroyQP(q))
	wantAttr(t, h.DestroyQP(q), "destroy_qp", "qp", ErrDestroyed)
	must(h.CreateQP(init))(t)
}

// TestQPNumbers: numbers rest before they come back.
func TestQPNumbers(t *testing.T) {
	h := New(Config{FirstQPN: 0x100})
	pd, cq := must(h.AllocPD())(t), must(h.CreateCQ(1))(t)
	last := map[ib.QPN]int{}
	for i := range 500 {
		q := must(h.CreateQP(QPInit{Type: UD, PD: pd, SendCQ: cq, RecvCQ: cq}))(t)
		if prev, used := last[q.Num()]; used && i-prev < 64 {
			t.Fatalf("%v came back after %d others", q.Num(), i-prev)
		}
		last[q.Num()] = i
		if h.QP(q.Num()) != q || q.Num() < 0x100 {
			t.Fatalf("QP(%v) is another", q.Num())
		}
		ok(t, h.DestroyQP(q))
		if h.QP(q.Num()) != nil {
			t.Fatal("a destroyed queue pair is still found")
		}
	}
	if len(last) > 70 {
		t.Fatalf("%d numbers used for one queue pair at a time", len(last))
	}
}

// TestPortEvents: SetPort raises what changed, and paths follow.
func TestPortEvents(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	a.wantEvents()
	p := *a.h.Port(1)
	p.State = ib.PortInit
	a.h.SetPort(1, p)
	a.wantEvents("PORT_ERR")
	p.State, p.LID, p.SMLID = ib.PortActive, 99, 7
	p.PKeys = []ib.PKey{0xFFFF, 0x8001}
	p.GIDs = append([]ib.GID(nil), ib.MakeGID(1, 2))
	a.h.SetPort(1, p)
	a.wantEvents("PORT_ACTIVE", "LID_CHANGE", "SM_CHANGE", "PKEY_CHANGE", "GID_CHANGE")
	a.h.Reregister(1)
	a.wantEvents("CLIENT_REREGISTER")
	a.write(1, b, 8, SendSignaled)
	w.pump()
	if s := w.flight[0].p.LRH.SLID; s != 99 {
		t.Fatalf("sent from LID %v", s)
	}
	w.fate = nil
	b.wantEvents()
}

// TestCommEst is raised once by the first packet at a queue pair in RTR.
func TestCommEst(t *testing.T) {
	w := newWorld(t, 2, 1)
	c := conf{}.filled()
	a, b := w.newEnd(0, c), w.newEnd(1, c)
	a.toInit(c)
	b.toInit(c)
	a.connect(c, b, 0, 0x1000)
	at := QPAttr{State: StateRTR, AH: AHAttr{DLID: lidOf(0, 1)}, PathMTU: c.mtu, DestQPN: a.qp.num, MaxDestRD: 1}
	ok(t, b.h.ModifyQP(b.qp, at, MaskState|ucRTR|MaskMaxDestRD|MaskMinRNRTimer))
	a.write(1, b, 8, SendSignaled)
	a.write(2, b, 8, SendSignaled)
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=8", "2 RDMA_WRITE SUCCESS len=8")
	b.wantEvents("COMM_EST")
}
