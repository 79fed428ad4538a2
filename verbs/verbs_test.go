package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

// fabric is a small live fabric, up.
func fabric(t testing.TB, spec string) *live.Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	return f
}

// must ends the test on an error and passes a value on.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const remote = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind

// side is one end with everything a test needs.
type side struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func open(t testing.TB, h *live.Host, size int) *side {
	t.Helper()
	s := &side{t: t, ctx: verbs.Open(h.Device())}
	s.pd = must(s.ctx.AllocPD())(t)
	s.cq = must(s.ctx.CreateCQ(256))(t)
	s.mr = must(s.pd.RegMR(make([]byte, size), remote))(t)
	return s
}

func (s *side) qp(typ verbs.QPType) *verbs.QP {
	s.t.Helper()
	return must(s.pd.CreateQP(verbs.QPInit{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps}))(s.t)
}

// wait is the next completion, which must have the given status.
func (s *side) wait(want verbs.WCStatus) verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.t.Fatal(err)
	}
	if wc[0].Status != want {
		s.t.Fatalf("completion %+v: status %v, want %v", wc[0], wc[0].Status, want)
	}
	return wc[0]
}

func join(t testing.TB, a, b *verbs.QP) {
	t.Helper()
	ia, ib := must(a.Info(1, 0xFFFFFE))(t), must(b.Info(1, 5))(t)
	o := verbs.DefaultConnect
	o.Timeout = 20 // 4 s: nobody gives up because a thread had no turn
	check(t, a.Connect(ia, ib, o))
	check(t, b.Connect(ib, ia, o))
}

func TestOneSided(t *testing.T) {
	f := fabric(t, "star:2")
	a, b := open(t, f.Hosts()[0], 1<<16), open(t, f.Hosts()[1], 1<<16)
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb)
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i * 31)
	}
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(100, 10000),
		RemoteAddr: b.mr.Addr() + 7, RKey: b.mr.RKey()}
	check(t, qa.PostSend(&wr))
	if wc := a.wait(verbs.WCSuccess); wc.Opcode != verbs.WCRDMAWrite {
		t.Errorf("opcode %v", wc.Opcode)
	}
	if !bytes.Equal(b.mr.Bytes()[7:10007], a.mr.Bytes()[100:10100]) {
		t.Error("written bytes differ")
	}
	wr.Opcode, wr.SGList = verbs.WRRDMARead, []verbs.SGE{a.mr.SGE(20000, 1), a.mr.SGE(30000, 9999)}
	check(t, qa.PostSend(&wr))
	a.wait(verbs.WCSuccess)
	if a.mr.Bytes()[20000] != b.mr.Bytes()[7] || !bytes.Equal(a.mr.Bytes()[30000:39999], b.mr.Bytes()[8:10007]) {
		t.Error("read bytes differ")
	}
	clear(b.mr.Bytes()[:8])
	add := verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 5}
	for i := 0; i < 3; i++ {
		check(t, qa.PostSend(&add))
		a.wait(verbs.WCSuccess)
	}
	if b.mr.Bytes()[0] != 15 || a.mr.Bytes()[0] != 10 {
		t.Errorf("after three additions of 5: %d there, %d was the last old value", b.mr.Bytes()[0], a.mr.Bytes()[0])
	}
	cas := add
	cas.Opcode, cas.CompareAdd, cas.Swap = verbs.WRAtomicCmpSwap, 15, 99
	check(t, qa.PostSend(&cas))
	a.wait(verbs.WCSuccess)
	if b.mr.Bytes()[0] != 99 {
		t.Errorf("compare-and-swap left %d", b.mr.Bytes()[0])
	}
	wr.RKey++
	check(t, qa.PostSend(&wr))
	a.wait(verbs.WCRemAccessErr)
}

// taker counts how often a device was told to take in what has come.
type taker struct {
	*live.Device
	n    int
	last bool
}

func (s *taker) TakeIn(last bool) {
	s.n++
	s.last = last
	s.Device.TakeIn(last)
}

// TestTakenInFirst: what may end a queue pair's work comes after what lies in the rings, or a program would find sends
// flushed that its peer has acknowledged.
func TestTakenInFirst(t *testing.T) {
	f := fabric(t, "star:2")
	s := open(t, f.Hosts()[0], 64)
	d := &taker{Device: f.Hosts()[0].Device()}
	s.ctx = verbs.Open(d)
	s.pd, s.cq = must(s.ctx.AllocPD())(t), must(s.ctx.CreateCQ(4))(t)
	q := s.qp(verbs.RC)
	for _, c := range []struct {
		name string
		do   func() error
		want int
		last bool
	}{
		{"initialising", func() error {
			return q.Modify(verbs.QPAttr{State: verbs.StateInit, Port: 1},
				verbs.MaskState|verbs.MaskPort|verbs.MaskPKeyIndex|verbs.MaskAccess)
		}, 1, false},
		{"other rights", func() error {
			return q.Modify(verbs.QPAttr{Access: verbs.AccessRemoteWrite}, verbs.MaskAccess)
		}, 0, false},
		{"flushing", func() error { return q.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.MaskState) }, 1, true},
		{"closing", q.Close, 1, true},
	} {
		d.n, d.last = 0, false
		check(t, c.do())
		if d.n != c.want || d.last != c.last {
			t.Errorf("%s takes in %d times, for the last time: %v; want %d, %v", c.name, d.n, d.last, c.want, c.last)
		}
	}
}

func TestSharedReceiveQueueAndXRC(t *testing.T) {
	f := fabric(t, "star:2")
	a, b := open(t, f.Hosts()[0], 4096), open(t, f.Hosts()[1], 4096)
	srq := must(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 16, MaxSGE: 1, Limit: 3}))(t)
	for i := 0; i < 4; i++ {
		check(t, srq.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGList: b.mr.SGEs(64*i, 64)}))
	}
	qa := a.qp(verbs.RC)
	qb := must(b.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq,
		Caps: verbs.DefaultCaps}))(t)
	join(t, qa, qb)
	for i := 0; i < 2; i++ {
		check(t, qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSendImm, Imm: 7,
			Flags: verbs.SendSignaled | verbs.SendInline, InlineData: []byte("hello")}))
		if wc := b.wait(verbs.WCSuccess); wc.WRID != uint64(i) || wc.ImmData != 7 || wc.ByteLen != 5 {
			t.Errorf("receive %d: %+v", i, wc)
		}
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		e, err := b.ctx.WaitEvent(ctx)
		cancel()
		check(t, err)
		if e.Type == verbs.EventSRQLimitReached {
			break
		}
	}

	// XRC: one initiator reaches a shared queue of another process by its number.
	a.wait(verbs.WCSuccess)
	a.wait(verbs.WCSuccess)
	xd := b.ctx.OpenXRCD()
	xs := must(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1, XRCD: xd, CQ: b.cq}))(t)
	check(t, xs.PostRecv(&verbs.RecvWR{WRID: 77, SGList: b.mr.SGEs(1024, 64)}))
	ini := must(a.pd.CreateQP(verbs.QPInit{Type: verbs.XRCSend, SendCQ: a.cq, Caps: verbs.DefaultCaps}))(t)
	tgt := must(xd.CreateQP(verbs.QPInit{}))(t)
	join(t, ini, tgt)
	check(t, ini.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, RemoteSRQN: xs.Num(),
		Flags: verbs.SendSignaled | verbs.SendInline, InlineData: []byte("xrc")}))
	if wc := b.wait(verbs.WCSuccess); wc.WRID != 77 || string(b.mr.Bytes()[1024:1027]) != "xrc" {
		t.Errorf("XRC receive: %+v", wc)
	}
	if err := xd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a domain in use: %v", err)
	}
	for _, c := range []interface{ Close() error }{ini, tgt, xs, xd, qa, qb, srq} {
		check(t, c.Close())
	}
}

func TestWindows(t *testing.T) {
	f := fabric(t, "star:2")
	a, b := open(t, f.Hosts()[0], 4096), open(t, f.Hosts()[1], 4096)
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb)
	mw := must(b.pd.AllocMW(verbs.MWType2))(t)
	key := mw.RKey()&^0xFF | 0x42
	check(t, qb.PostSend(&verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
		Bind: mw.Bind(b.mr, 1000, 100, verbs.AccessRemoteWrite, key)}))
	b.wait(verbs.WCSuccess)
	if mw.RKey() != key {
		t.Fatalf("key %#x, want %#x", mw.RKey(), key)
	}
	write := func(off, n int, want verbs.WCStatus) {
		t.Helper()
		check(t, qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, n), RemoteAddr: b.mr.Addr() + uint64(off), RKey: key}))
		a.wait(want)
	}
	a.mr.Bytes()[0] = 1
	write(1000, 100, verbs.WCSuccess)
	if b.mr.Bytes()[1000] != 1 {
		t.Error("nothing was written through the window")
	}
	// A SEND with invalidate closes it.
	check(t, qb.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)}))
	check(t, qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSendInv, Imm: key, Flags: verbs.SendSignaled | verbs.SendInline,
		InlineData: []byte{1}}))
	a.wait(verbs.WCSuccess)
	if wc := b.wait(verbs.WCSuccess); wc.Flags&verbs.WCWithInv == 0 || wc.ImmData != key {
		t.Errorf("receive %+v, want the invalidated key", wc)
	}
	write(1000, 100, verbs.WCRemAccessErr)
}

func TestDatagramsAndMulticast(t *testing.T) {
	f := fabric(t, "fat-tree:radix=4,levels=2")
	const mlid = ib.LID(0xC005)
	mgid := must(ib.ParseGID("ff12:401b:ffff::5"))(t)
	hosts := f.Hosts()
	members := []*live.Host{hosts[0], hosts[3], hosts[7]}
	check(t, f.CreateMulticast(mlid, members...))
	const qkey = 0x1234
	var sides []*side
	var qps []*verbs.QP
	for _, h := range members {
		s := open(t, h, 4096)
		q := s.qp(verbs.UD)
		check(t, q.Ready(1, 0, qkey))
		check(t, q.AttachMcast(mgid, mlid))
		check(t, q.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(0, 2048)}))
		sides, qps = append(sides, s), append(qps, q)
	}
	ah := must(sides[0].pd.CreateAH(verbs.AHAttr{DLID: mlid, IsGlobal: true, DGID: mgid, Port: 1}))(t)
	msg := []byte("to everybody in the group")
	check(t, qps[0].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, AH: ah, RemoteQPN: ib.QPNMulticast,
		RemoteQKey: qkey,
		Flags:      verbs.SendInline, InlineData: msg}))
	for i, s := range sides { // the sender is a member too, and hears itself
		wc := s.wait(verbs.WCSuccess)
		if wc.Flags&verbs.WCGRH == 0 || int(wc.ByteLen) != 40+len(msg) || wc.SrcQP != qps[0].Num() {
			t.Errorf("member %d: %+v", i, wc)
		}
		if !bytes.Equal(s.mr.Bytes()[40:40+len(msg)], msg) {
			t.Errorf("member %d got %q", i, s.mr.Bytes()[40:40+len(msg)])
		}
	}
	// And to one of them alone, without a GRH.
	p := must(sides[2].ctx.QueryPort(1))(t)
	one := must(sides[1].pd.CreateAH(verbs.AHAttr{DLID: p.LID, Port: 1}))(t)
	check(t, qps[2].PostRecv(&verbs.RecvWR{SGList: sides[2].mr.SGEs(0, 2048)}))
	check(t, qps[1].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, AH: one, RemoteQPN: qps[2].Num(),
		RemoteQKey: qkey,
		Flags:      verbs.SendInline, InlineData: msg[:2]}))
	if wc := sides[2].wait(verbs.WCSuccess); wc.Flags&verbs.WCGRH != 0 || wc.ByteLen != 42 {
		t.Errorf("unicast: %+v", wc)
	}
	for i, q := range qps {
		if err := q.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("member %d: closing an attached queue pair: %v", i, err)
		}
		check(t, q.DetachMcast(mgid, mlid))
		check(t, q.Close())
	}
}

// A refused call says which verb and which attribute, and changes nothing.
func TestRefusals(t *testing.T) {
	f := fabric(t, "star:2")
	a := open(t, f.Hosts()[0], 64)
	q := a.qp(verbs.RC)
	_, errPort := a.ctx.QueryPort(9)
	_, errAccess := a.pd.RegMR(make([]byte, 8), verbs.AccessRemoteWrite)
	_, errCQ := a.ctx.CreateCQ(0)
	_, errQP := a.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: a.cq, Caps: verbs.DefaultCaps})
	for _, c := range []struct {
		err        error
		verb, attr string
		kind       error
	}{
		{errPort, "query_port", "port_num", verbs.ErrInvalid},
		{errAccess, "reg_mr", "access", verbs.ErrInvalid},
		{errCQ, "create_cq", "cqe", verbs.ErrInvalid},
		{errQP, "create_qp", "recv_cq", verbs.ErrInvalid},
		{q.PostSend(&verbs.SendWR{Opcode: verbs.WRSend}), "post_send", "qp_state", verbs.ErrState},
		{q.PostRecv(&verbs.RecvWR{}), "post_recv", "qp_state", verbs.ErrState},
		{q.Modify(verbs.QPAttr{State: verbs.StateRTS}, verbs.MaskState), "modify_qp", "qp_state", verbs.ErrState},
		{q.Modify(verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.MaskState|verbs.MaskPort), "modify_qp",
			"attr_mask",
			verbs.ErrInvalid},
		{a.pd.Close(), "dealloc_pd", "pd", verbs.ErrBusy},
		{a.cq.Close(), "destroy_cq", "cq", verbs.ErrBusy},
	} {
		var ae *verbs.AttrError
		if !errors.As(c.err, &ae) || ae.Verb != c.verb || ae.Attr != c.attr || !errors.Is(c.err, c.kind) {
			t.Errorf("%v: want %s refused for %s (%v)", c.err, c.verb, c.attr, c.kind)
		}
	}
	if s := q.State(); s != verbs.StateReset {
		t.Errorf("state %v after refusals", s)
	}
	for _, c := range []interface{ Close() error }{q, a.mr, a.cq, a.pd} {
		check(t, c.Close())
	}
	if err := q.Close(); !errors.Is(err, verbs.ErrDestroyed) {
		t.Errorf("closing twice: %v", err)
	}
}

// The data path does not allocate.
func TestNoAllocation(t *testing.T) {
	f := fabric(t, "star:2")
	a, b := open(t, f.Hosts()[0], 1<<16), open(t, f.Hosts()[1], 1<<16)
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb)
	for _, size := range []int{8, 4096, 65536} {
		wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, size)}
		rr := verbs.RecvWR{SGList: b.mr.SGEs(0, size)}
		var wc [4]verbs.WC
		round := func() {
			if err := qb.PostRecv(&rr); err != nil {
				t.Fatal(err)
			}
			if err := qa.PostSend(&wr); err != nil {
				t.Fatal(err)
			}
			for b.cq.Poll(wc[:]) == 0 {
			}
			for a.cq.Poll(wc[:]) == 0 {
			}
		}
		for i := 0; i < 200; i++ {
			round() // every ring cell gets its buffer
		}
		if n := testing.AllocsPerRun(1000, round); n > 0 {
			t.Errorf("%d bytes: %v allocations a message", size, n)
		}
	}
}

// Close finds an order whatever the order of making was, and leaves nothing.
func TestCloseAll(t *testing.T) {
	f := fabric(t, "star:2")
	a, b := open(t, f.Hosts()[0], 4096), open(t, f.Hosts()[1], 4096)
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb)
	// A window that is older than the region on which it is open.
	mw := must(b.pd.AllocMW(verbs.MWType2))(t)
	late := must(b.pd.RegMR(make([]byte, 64), remote))(t)
	check(t, qb.PostSend(&verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
		Bind: mw.Bind(late, 0, 64, verbs.AccessRemoteWrite, mw.RKey()+1)}))
	b.wait(verbs.WCSuccess)
	if err := late.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a region with a window on it: %v", err)
	}
	// A region that has moved to a younger domain.
	young := must(b.ctx.AllocPD())(t)
	check(t, b.mr.Rereg(young, nil, nil))
	// A member of a group, an address handle, and everything of XRC.
	ud := b.qp(verbs.UD)
	check(t, ud.Ready(1, 0, 0x1234))
	check(t, ud.AttachMcast(must(ib.ParseGID("ff12::5"))(t), 0xC005))
	must(b.pd.CreateAH(verbs.AHAttr{DLID: 1, Port: 1}))(t)
	xd := b.ctx.OpenXRCD()
	must(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1, XRCD: xd, CQ: b.cq}))(t)
	must(xd.CreateQP(verbs.QPInit{}))(t)

	other := verbs.Open(b.ctx.Device())
	pd := must(other.AllocPD())(t)
	check(t, b.ctx.Close())
	for _, c := range []interface{ Close() error }{qb, ud, mw, late, b.mr, b.cq, b.pd, young, xd} {
		if err := c.Close(); !errors.Is(err, verbs.ErrDestroyed) {
			t.Errorf("%T is still there: %v", c, err)
		}
	}
	check(t, pd.Close()) // another Context's is its own
	check(t, b.ctx.Close())
	if _, err := b.ctx.AllocPD(); err != nil {
		t.Errorf("the device is closed too: %v", err)
	}
}
