package hca

import (
	"bytes"
	"testing"
)

// try posts a request, runs, and returns how it ended.
func (e *end) try(wr SendWR) WCStatus {
	e.w.t.Helper()
	wr.Flags |= SendSignaled
	e.post(wr)
	e.w.run()
	wcs := poll(e.scq)
	if len(wcs) != 1 {
		e.w.t.Fatalf("%d completions, want 1", len(wcs))
	}
	return wcs[0].Status
}

func (e *end) writeTo(rkey uint32, va uint64, n int) WCStatus {
	e.w.t.Helper()
	return e.try(SendWR{Opcode: WRRDMAWrite, SGList: []SGE{e.sge(0, n)}, RemoteAddr: va, RKey: rkey})
}

func expect(t *testing.T, what string, got, want WCStatus) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// TestWindowType1 binds, rebinds and unbinds a window that opens for its domain.
// TestNullMR: a null region reads as zeros at every address and keeps nothing, in every list; only the key is checked.
func TestNullMR(t *testing.T) {
	const n = 9000
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{memLen: n, sendWR: 16})
	zeros := [2][]byte{make([]byte, n), make([]byte, n)}
	na, nb := must(a.h.AllocNullMR(a.pd, zeros[0]))(t), must(b.h.AllocNullMR(b.pd, zeros[1]))(t)
	if na.RKey() != 0 {
		t.Error("peers have a key")
	}
	null := func(m *MR, n int) SGE { return SGE{Addr: 1<<63 + 12345, Length: uint32(n), LKey: m.LKey()} }
	fill := func(mem []byte, v byte) []byte {
		for i := range mem {
			mem[i] = v
		}
		return mem
	}
	fill(a.mem, 1)
	// Zeros around 4000 ones; the first 2000 zeros and the last 500 ones go nowhere.
	fill(b.mem, 7)
	b.recv(1, null(nb, 2000), b.sge(0, 4500), null(nb, n))
	a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{null(na, 3000), a.sge(0, 4000),
		null(na, 10)}})
	w.run()
	b.received("1 RECV SUCCESS len=7010")
	want := append(append(make([]byte, 1000), fill(make([]byte, 3500), 1)...), fill(make([]byte, n-4500), 7)...)
	if !bytes.Equal(b.mem, want) {
		t.Error("what was received is not what the lists say")
	}
	// A READ, and the answer to an atomic.
	fill(b.mem, 9)
	a.post(SendWR{WRID: 2, Opcode: WRRDMARead, Flags: SendSignaled, SGList: []SGE{null(na, 5000), a.sge(8, 3000)},
		RemoteAddr: memVA, RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 3, Opcode: WRAtomicFetchAdd, Flags: SendSignaled, SGList: []SGE{null(na, 8)},
		RemoteAddr: memVA, RKey: b.mr.RKey(), CompareAdd: 1})
	w.run()
	a.sent("1 SEND SUCCESS len=7010", "2 RDMA_READ SUCCESS len=8000", "3 FETCH_ADD SUCCESS len=8")
	if a.mem[7] != 1 || !bytes.Equal(a.mem[8:3008], fill(make([]byte, 3000), 9)) || a.mem[3008] != 1 || b.mem[0] != 10 {
		t.Error("what was read is not what the list says")
	}
	for i, z := range zeros {
		if !bytes.Equal(z, make([]byte, n)) {
			t.Errorf("the zeros of %d are none any more", i)
		}
	}
	wantAttr(t, a.h.ReregMR(na, nil, a.mem, memVA, nil), "rereg_mr", "mr", ErrInvalid)
	// It is nothing to peers, and too short for more than it was made for.
	a.post(SendWR{WRID: 4, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RKey: nb.LKey()})
	w.run()
	a.sent("4 RDMA_WRITE REM_ACCESS_ERR")
	c, _ := w.pair(conf{})
	nc := must(c.h.AllocNullMR(c.pd, zeros[0][:100]))(t)
	c.post(SendWR{WRID: 5, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{null(nc, 101)}})
	w.run()
	c.sent("5 SEND LOC_PROT_ERR")
}

func TestWindowType1(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	mw := must(b.h.AllocMW(b.pd, MWType1))(t)
	bind := func(va, n uint64, acc Access) WCStatus {
		t.Helper()
		return b.try(SendWR{Opcode: WRBindMW, Bind: &BindInfo{MW: mw, MR: b.mr, Addr: va, Length: n, Access: acc}})
	}
	expect(t, "bind", bind(memVA+100, 50, AccessRemoteWrite), WCSuccess)
	k1 := mw.RKey()
	expect(t, "inside", a.writeTo(k1, memVA+100, 50), WCSuccess)
	if !bytes.Equal(a.mem[:50], b.mem[100:150]) {
		t.Fatal("data differ")
	}
	wantAttr(t, b.h.DeregMR(b.mr), "dereg_mr", "mr", ErrBusy)
	wantAttr(t, b.h.ReregMR(b.mr, nil, nil, 0, nil), "rereg_mr", "mr", ErrBusy)
	expect(t, "bind again", bind(memVA+200, 50, AccessRemoteRead), WCSuccess)
	if mw.RKey() == k1 || mw.RKey()>>8 != k1>>8 {
		t.Fatalf("keys %#x then %#x", k1, mw.RKey())
	}
	if b.mr.windows != 1 {
		t.Fatalf("%d windows on the region", b.mr.windows)
	}
	expect(t, "unbind", bind(0, 0, 0), WCSuccess)
	if b.mr.windows != 0 {
		t.Fatalf("%d windows on the region", b.mr.windows)
	}
	// The caller may choose the low byte, so that it knows the key before the bind is done.
	k2 := mw.RKey()&^0xFF | 0x77
	expect(t, "bind with a key", b.try(SendWR{Opcode: WRBindMW,
		Bind: &BindInfo{MW: mw, MR: b.mr, Addr: memVA, Length: 8, Access: AccessRemoteWrite, RKey: k2}}), WCSuccess)
	expect(t, "the chosen key", a.writeTo(k2, memVA, 8), WCSuccess)
	expect(t, "unbind with a key", b.try(SendWR{Opcode: WRBindMW, Bind: &BindInfo{MW: mw, RKey: k2 + 1}}), WCSuccess)
	if mw.RKey() != k2+1 {
		t.Fatalf("key %#x, want %#x", mw.RKey(), k2+1)
	}
	expect(t, "the old key", a.writeTo(k1, memVA+100, 8), WCRemAccessErr)
	ok(t, b.h.DeallocMW(mw))
	wantAttr(t, b.h.DeallocMW(mw), "dealloc_mw", "mw", ErrDestroyed)
	w.close()
}

// TestWindowBounds shows that a window opens no more than was bound.
func TestWindowBounds(t *testing.T) {
	for _, c := range []struct {
		what string
		acc  Access
		va   uint64
		n    int
		want WCStatus
	}{
		{"all of it", AccessRemoteWrite, 100, 50, WCSuccess},
		{"one before", AccessRemoteWrite, 99, 8, WCRemAccessErr},
		{"one past", AccessRemoteWrite, 143, 8, WCRemAccessErr},
		{"no right", AccessRemoteRead, 100, 8, WCRemAccessErr},
	} {
		for _, typ := range []MWType{MWType1, MWType2} {
			w := newWorld(t, 2, 1)
			a, b := w.pair(conf{})
			mw := must(b.h.AllocMW(b.pd, typ))(t)
			expect(t, "bind", b.try(SendWR{Opcode: WRBindMW,
				Bind: &BindInfo{MW: mw, MR: b.mr, Addr: memVA + 100, Length: 50, Access: c.acc,
					RKey: mw.RKey() ^ 0x55}}), WCSuccess)
			expect(t, c.what, a.writeTo(mw.RKey(), memVA+c.va, c.n), c.want)
			if c.want == WCSuccess && !bytes.Equal(a.mem[:c.n], b.mem[c.va:][:c.n]) {
				t.Fatal("data differ")
			}
			ok(t, b.h.DeallocMW(mw)) // bound still
			w.close()
		}
	}
}

func TestWindowZeroBased(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	mw := must(b.h.AllocMW(b.pd, MWType2))(t)
	expect(t, "bind", b.try(SendWR{Opcode: WRBindMW,
		Bind: &BindInfo{MW: mw, MR: b.mr, Addr: memVA + 100, Length: 50, Access: AccessRemoteWrite | AccessZeroBased,
			RKey: mw.RKey()}}), WCSuccess)
	expect(t, "at 10", a.writeTo(mw.RKey(), 10, 40), WCSuccess)
	if !bytes.Equal(a.mem[:40], b.mem[110:150]) {
		t.Fatal("data differ")
	}
	expect(t, "past", a.writeTo(mw.RKey(), 11, 40), WCRemAccessErr)
}

// TestWindowType2 opens for one queue pair, until it is invalidated, by its
// owner or by the peer's SEND.
func TestWindowType2(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	a2, b2 := w.newEnd(0, conf{}), w.newEnd(1, conf{})
	// The second pair's target shares the first one's domain.
	b2.qp.pd.users--
	b2.qp.pd = b.pd
	b.pd.users++
	w.join(a2, b2, conf{}, conf{})
	mw := must(b.h.AllocMW(b.pd, MWType2))(t)
	info := BindInfo{MW: mw, MR: b.mr, Addr: memVA, Length: 64, Access: AccessRemoteWrite | AccessRemoteRead,
		RKey: mw.RKey()&^0xFF | 0x42}
	expect(t, "bind", b.try(SendWR{Opcode: WRBindMW, Bind: &info}), WCSuccess)
	if mw.RKey() != info.RKey || mw.Type() != MWType2 {
		t.Fatalf("key %#x, want %#x", mw.RKey(), info.RKey)
	}
	expect(t, "its own queue pair", a.writeTo(info.RKey, memVA, 8), WCSuccess)
	expect(t, "another queue pair", a2.writeTo(info.RKey, memVA, 8), WCRemAccessErr)

	b.recv(1, b.sge(1000, 100))
	expect(t, "SEND with invalidate", a.try(SendWR{Opcode: WRSendInv, Imm: info.RKey, SGList: []SGE{a.sge(0, 8)}}),
		WCSuccess)
	wcs := poll(b.rcq)
	if len(wcs) != 1 || wcs[0].Flags != WCWithInv || wcs[0].ImmData != info.RKey {
		t.Fatalf("completions %+v", wcs)
	}
	if b.mr.windows != 0 {
		t.Fatal("an invalidated window still holds the region")
	}
	info.RKey = info.RKey&^0xFF | 0x43
	expect(t, "bind again", b.try(SendWR{Opcode: WRBindMW, Bind: &info}), WCSuccess)
	expect(t, "local invalidate", b.try(SendWR{Opcode: WRLocalInv, Imm: info.RKey}), WCSuccess)
	expect(t, "after it", a.writeTo(info.RKey, memVA, 8), WCRemAccessErr)
}

// TestWindowDies with its queue pair.
func TestWindowDies(t *testing.T) {
	w := newWorld(t, 2, 1)
	_, b := w.pair(conf{})
	mw := must(b.h.AllocMW(b.pd, MWType2))(t)
	expect(t, "bind", b.try(SendWR{Opcode: WRBindMW,
		Bind: &BindInfo{MW: mw, MR: b.mr, Addr: memVA, Length: 64, RKey: mw.RKey()}}), WCSuccess)
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateReset}, MaskState))
	if mw.reg.valid || b.mr.windows != 0 {
		t.Fatal("a window outlives the queue pair that it opened for")
	}
	ok(t, b.h.DeallocMW(mw))
	w.close()
}

func TestBindRefused(t *testing.T) {
	for _, c := range []struct {
		what string
		mrA  Access
		typ  MWType
		set  func(b *end, i *BindInfo)
	}{
		{"region without MW_BIND", AccessLocalWrite, MWType1, func(b *end, i *BindInfo) {}},
		{"write without local write", AccessMWBind, MWType1,
			func(b *end, i *BindInfo) { i.Access = AccessRemoteWrite }},
		{"past the region", 0, MWType1, func(b *end, i *BindInfo) { i.Length = memLen + 1 }},
		{"a length beyond any", 0, MWType1, func(b *end, i *BindInfo) { i.Length = 1 << 63 }},
		{"another key index, type 1", 0, MWType1, func(b *end, i *BindInfo) { i.RKey += 0x100 }},
		{"another key index", 0, MWType2, func(b *end, i *BindInfo) { i.RKey += 0x100 }},
		{"no length, type 2", 0, MWType2, func(b *end, i *BindInfo) { i.Length = 0 }},
		{"no region", 0, MWType1, func(b *end, i *BindInfo) { i.MR = nil }},
		{"local rights", 0, MWType1, func(b *end, i *BindInfo) { i.Access = AccessLocalWrite }},
		{"bound already, type 2", 0, MWType2, func(b *end, i *BindInfo) {
			expect(b.w.t.(*testing.T), "first", b.try(SendWR{Opcode: WRBindMW, Bind: i}), WCSuccess)
		}},
		{"window of another domain", 0, MWType1, func(b *end, i *BindInfo) {
			pd := must(b.h.AllocPD())(b.w.t)
			i.MW = must(b.h.AllocMW(pd, MWType1))(b.w.t)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t, 2, 1)
			_, b := w.pair(conf{mrAccess: c.mrA})
			mw := must(b.h.AllocMW(b.pd, c.typ))(t)
			i := &BindInfo{MW: mw, MR: b.mr, Addr: memVA, Length: 64, RKey: mw.RKey()}
			c.set(b, i)
			expect(t, c.what, b.try(SendWR{Opcode: WRBindMW, Bind: i}), WCMWBindErr)
			if b.qp.state != StateErr {
				t.Fatalf("in %v", b.qp.state)
			}
		})
	}
	w := newWorld(t, 2, 1)
	_, b := w.pair(conf{})
	expect(t, "local invalidate of a region", b.try(SendWR{Opcode: WRLocalInv, Imm: b.mr.RKey()}), WCLocQPOpErr)
	a, b := w.pair(conf{})
	b.recv(1, b.sge(0, 64))
	expect(t, "remote invalidate of a region", a.try(SendWR{Opcode: WRSendInv, Imm: b.mr.RKey()}), WCRemAccessErr)
	b.received("1 RECV WR_FLUSH_ERR")
}

// TestLocalOpsWait: a bind stands in order between the requests around it.
func TestLocalOpsWait(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	mw := must(a.h.AllocMW(a.pd, MWType2))(t)
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: memVA, RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 2, Opcode: WRBindMW, Flags: SendSignaled,
		Bind: &BindInfo{MW: mw, MR: a.mr, Addr: memVA, Length: 64, RKey: mw.RKey()}})
	a.post(SendWR{WRID: 3, Opcode: WRRDMARead, Flags: SendSignaled, SGList: []SGE{a.sge(100, 8)}, RemoteAddr: memVA,
		RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 4, Opcode: WRLocalInv, Flags: SendSignaled, Imm: mw.RKey()})
	w.pump()
	if mw.reg.valid {
		t.Fatal("bound before the request in front of it was done")
	}
	w.run()
	a.sent("2 BIND_MW SUCCESS len=0", "3 RDMA_READ SUCCESS len=8", "4 LOCAL_INV SUCCESS len=0")
	if w.hosts[0].Stats.Timeouts != 0 {
		t.Fatal("it took a timeout")
	}
}

// TestKeys: a freed key never opens what comes after it.
func TestKeys(t *testing.T) {
	h := New(Config{})
	pd := must(h.AllocPD())(t)
	seen := map[uint32]bool{0: true}
	for range 200 {
		m := must(h.RegMR(pd, make([]byte, 8), 0, 0))(t)
		if seen[m.RKey()] {
			t.Fatalf("key %#x was given out twice", m.RKey())
		}
		seen[m.RKey()] = true
		if h.keys.lookup(m.RKey()) == nil {
			t.Fatal("a new key opens nothing")
		}
		ok(t, h.DeregMR(m))
		if h.keys.lookup(m.RKey()) != nil {
			t.Fatal("a freed key opens something")
		}
	}
	for _, k := range []uint32{0, 1, 0xFF, 0x100, 0xFFFFFFFF} {
		if h.keys.lookup(k) != nil {
			t.Fatalf("key %#x opens something", k)
		}
	}
}

func TestRereg(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	old := b.mr.RKey()
	mem := make([]byte, 100)
	acc := AccessLocalWrite | AccessRemoteWrite
	pd2 := must(b.h.AllocPD())(t)
	ok(t, b.h.ReregMR(b.mr, nil, mem, 0x5000, &acc))
	if b.mr.RKey() == old || b.mr.Addr() != 0x5000 || b.mr.Len() != 100 || b.mr.Access() != acc ||
		&b.mr.Bytes()[0] != &mem[0] {
		t.Fatalf("region after rereg: %+v", b.mr.reg)
	}
	key := b.mr.RKey()
	expect(t, "new memory", a.writeTo(key, 0x5000, 100), WCSuccess)
	if !bytes.Equal(mem, a.mem[:100]) {
		t.Fatal("data differ")
	}
	ok(t, b.h.ReregMR(b.mr, pd2, nil, 0, nil))
	if pd2.users != 1 || b.pd.users != 1 {
		t.Fatalf("users: %d and %d", pd2.users, b.pd.users)
	}
	b.h.TakeWithdrawn()
	ok(t, b.h.ReregMR(b.mr, b.pd, nil, 0, &acc))
	if !b.h.TakeWithdrawn() {
		t.Fatal("what was granted under the old rights still holds")
	}
	expect(t, "the same key after domain and rights changed", a.writeTo(key, 0x5000, 100), WCSuccess)
	ok(t, b.h.ReregMR(b.mr, pd2, nil, 0, nil))
	expect(t, "another domain", a.writeTo(b.mr.RKey(), 0x5000, 8), WCRemAccessErr)
	bad := AccessRemoteWrite
	wantAttr(t, b.h.ReregMR(b.mr, nil, nil, 0, &bad), "rereg_mr", "access", ErrInvalid)
	wantAttr(t, b.h.ReregMR(b.mr, &PD{}, nil, 0, nil), "rereg_mr", "pd", ErrInvalid)
	wantAttr(t, b.h.ReregMR(b.mr, nil, mem, ^uint64(0), nil), "rereg_mr", "addr", ErrInvalid)
}

func TestZeroBasedRegion(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	mem := make([]byte, 64)
	m := must(b.h.RegMR(b.pd, mem, 0x123456, AccessLocalWrite|AccessRemoteWrite|AccessZeroBased))(t)
	expect(t, "at 0", a.writeTo(m.RKey(), 0, 64), WCSuccess)
	if !bytes.Equal(mem, a.mem[:64]) {
		t.Fatal("data differ")
	}
}

// TestDeregInFlight: memory that goes away while a request is under way fails
// that request, at either end, and is never touched.
func TestDeregInFlight(t *testing.T) {
	// The source of a WRITE that is to be sent again.
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{timeout: 4})
	w.fate = func(f *flying) fate { return fate{drop: true} }
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, SGList: []SGE{a.sge(0, 600)}, RemoteAddr: memVA, RKey: b.mr.RKey()})
	w.pump()
	ok(t, a.h.DeregMR(a.mr))
	w.run()
	a.sent("1 RDMA_WRITE LOC_PROT_ERR")

	// The target of a READ.
	w = newWorld(t, 2, 1)
	a, b = w.pair(conf{})
	a.post(SendWR{WRID: 1, Opcode: WRRDMARead, SGList: []SGE{a.sge(0, 600)}, RemoteAddr: memVA + 1000,
		RKey: b.mr.RKey()})
	w.runFor(1)
	before := append([]byte(nil), a.mem...)
	ok(t, a.h.DeregMR(a.mr))
	w.run()
	a.sent("1 RDMA_READ LOC_PROT_ERR")
	if !bytes.Equal(before, a.mem) {
		t.Fatal("memory that was taken back was written")
	}

	// The source of a READ, with some of the answer sent: what was sent counts,
	// the rest is refused.
	w = newWorld(t, 2, 1)
	a, b = w.pair(conf{})
	b.recv(7, b.sge(0, 8))
	a.post(SendWR{WRID: 1, Opcode: WRRDMARead, SGList: []SGE{a.sge(0, 600)}, RemoteAddr: memVA + 1000,
		RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 2, Opcode: WRSend, SGList: []SGE{a.sge(0, 8)}})
	w.pump()
	for _, f := range w.flight {
		b.h.HandlePacket(w.now, 1, &f.p)
	}
	w.flight = nil
	s, _ := b.h.NextSend()
	p := flying{from: b.h, port: 1}
	if !b.h.Emit(w.now, s, &p.p, w.buf) {
		t.Fatal("no answer to a READ")
	}
	p.p.Payload = append([]byte(nil), p.p.Payload...)
	w.flight = append(w.flight, p)
	ok(t, b.h.DeregMR(b.mr))
	w.run()
	a.sent("1 RDMA_READ REM_ACCESS_ERR", "2 SEND WR_FLUSH_ERR")
	b.received("7 RECV SUCCESS len=8")
	b.wantEvents("QP_ACCESS_ERR")

	// The request behind the failed one was acknowledged after all.
	w = newWorld(t, 2, 1)
	a, b = w.pair(conf{timeout: 4})
	m2 := must(a.h.RegMR(a.pd, make([]byte, 64), 0x9000, 0))(t)
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: memVA,
		RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 2, Opcode: WRRDMAWrite, Flags: SendSignaled,
		SGList: []SGE{{Addr: 0x9000, Length: 64, LKey: m2.LKey()}}, RemoteAddr: memVA, RKey: b.mr.RKey()})
	a.post(SendWR{WRID: 3, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: memVA,
		RKey: b.mr.RKey()})
	w.fate = func(f *flying) fate {
		if f.from == b.h && w.now < 100*1000*1000 {
			return fate{extra: 200 * 1000 * 1000} // the ACK comes late
		}
		return fate{drop: w.now > 0 && f.from == a.h}
	}
	w.pump()
	ok(t, a.h.DeregMR(m2))
	w.run()
	if a.qp.Outstanding() != 0 || a.scq.Len() != 3 {
		t.Fatalf("%d requests left, %d completions", a.qp.Outstanding(), a.scq.Len())
	}
}

// TestReadBeforeWrite: a READ returns what was there before a WRITE that
// follows it, even if its answer leaves later.
func TestReadBeforeWrite(t *testing.T) {
	for _, op := range []string{"write", "send", "atomic"} {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{})
		want := append([]byte(nil), b.mem[:1000]...)
		a.post(SendWR{WRID: 1, Opcode: WRRDMARead, SGList: []SGE{a.sge(5000, 1000)}, RemoteAddr: memVA,
			RKey: b.mr.RKey()})
		switch op {
		case "write":
			a.post(SendWR{WRID: 2, Opcode: WRRDMAWrite, SGList: []SGE{a.sge(20000, 1000)}, RemoteAddr: memVA + 300,
				RKey: b.mr.RKey()})
		case "send":
			b.recv(1, b.sge(500, 100))
			a.post(SendWR{WRID: 2, Opcode: WRSend, SGList: []SGE{a.sge(20000, 100)}})
		case "atomic":
			a.post(SendWR{WRID: 2, Opcode: WRAtomicFetchAdd, SGList: []SGE{a.sge(20000, 8)}, RemoteAddr: memVA + 992,
				RKey: b.mr.RKey(), CompareAdd: 77})
		}
		w.run()
		if !bytes.Equal(a.mem[5000:6000], want) {
			t.Fatalf("%s: the READ saw the request behind it", op)
		}
		if bytes.Equal(b.mem[:1000], want) {
			t.Fatalf("%s was not executed", op)
		}
	}
}
