package hca

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// inject hands b a packet as a would have sent it, changed by set.
func inject(a, b *end, op wire.Opcode, psn ib.PSN, n int, set func(p *wire.Packet)) {
	var p wire.Packet
	a.qp.header(&p, op, psn)
	p.Payload = a.mem[:n]
	p.RETH = wire.RETH{VA: memVA, RKey: b.mr.RKey(), DMALen: uint32(n)}
	p.AtomicETH = wire.AtomicETH{VA: memVA, RKey: b.mr.RKey(), Swap: 1}
	p.AETH = wire.AETH{Syndrome: wire.SynAckNoCred}
	if set != nil {
		set(&p)
	}
	p.Seal()
	b.h.HandlePacket(b.w.now, 1, &p)
}

// answers takes what an end wants to send, in short.
func (e *end) answers() (out []string) {
	for {
		s, has := e.h.NextSend()
		if !has {
			return out
		}
		var p wire.Packet
		if e.h.Emit(e.w.now, s, &p, e.w.buf) {
			line := fmt.Sprintf("%s %d", strings.TrimPrefix(p.BTH.Opcode.String(), "RC "), p.BTH.PSN)
			if p.BTH.Opcode.Op() == wire.OpAck {
				line = fmt.Sprintf("%v %d", p.AETH.Syndrome, p.BTH.PSN)
			}
			out = append(out, line)
		}
	}
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// TestInvalidRequests: packets that break the rules of their message get a NAK
// and end the queue pair, and touch nothing.
func TestInvalidRequests(t *testing.T) {
	const mtu = 256
	type step struct {
		op  wire.Opcode
		n   int
		set func(*wire.Packet)
	}
	dma := func(n int) func(*wire.Packet) { return func(p *wire.Packet) { p.RETH.DMALen = uint32(n) } }
	for _, c := range []struct {
		what  string
		steps []step
	}{
		{"middle without first", []step{{wire.OpSendMiddle, mtu, nil}}},
		{"last without first", []step{{wire.OpSendLast, 8, nil}}},
		{"write middle without first", []step{{wire.OpWriteMiddle, mtu, nil}}},
		{"first within a message", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpSendFirst, mtu, nil}}},
		{"only within a message", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpSendOnly, 8, nil}}},
		{"read within a message", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpReadRequest, 0, nil}}},
		{"atomic within a message", []step{{wire.OpWriteFirst, mtu, dma(600)}, {wire.OpFetchAdd, 0, nil}}},
		{"write within a send", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpWriteLast, 8, nil}}},
		{"send within a write", []step{{wire.OpWriteFirst, mtu, dma(600)}, {wire.OpSendMiddle, mtu, nil}}},
		{"short first", []step{{wire.OpSendFirst, mtu - 1, nil}}},
		{"long only", []step{{wire.OpSendOnly, mtu + 1, nil}}},
		{"short middle", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpSendMiddle, 8, nil}}},
		{"empty last", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpSendLast, 0, nil}}},
		{"long last", []step{{wire.OpSendFirst, mtu, nil}, {wire.OpSendLast, mtu + 1, nil}}},
		{"write only shorter than it says", []step{{wire.OpWriteOnly, 8, dma(9)}}},
		{"write only longer than it says", []step{{wire.OpWriteOnly, 9, dma(8)}}},
		{"write first that is all", []step{{wire.OpWriteFirst, mtu, dma(mtu)}}},
		{"write last before the end", []step{{wire.OpWriteFirst, mtu, dma(600)}, {wire.OpWriteLast, mtu, nil}}},
		{"write last past the end", []step{{wire.OpWriteFirst, mtu, dma(300)}, {wire.OpWriteLast, 100, nil}}},
		{"write beyond any length", []step{{wire.OpWriteFirst, mtu, dma(1<<31 + 1)}}},
		{"read beyond any length", []step{{wire.OpReadRequest, 0, dma(1<<31 + 1)}}},
		{"read of half the PSN space", []step{{wire.OpReadRequest, 0, dma(1 << 31)}}},
		{"read with payload", []step{{wire.OpReadRequest, 4, nil}}},
		{"atomic off its place", []step{{wire.OpFetchAdd, 0, func(p *wire.Packet) { p.AtomicETH.VA += 4 }}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t, 2, 1)
			a, b := w.pair(conf{})
			b.recv(1, b.sge(4096, 4096))
			for i, s := range c.steps {
				if b.qp.state != StateRTS {
					t.Fatalf("failed before step %d", i)
				}
				inject(a, b, s.op, ib.PSN(i), s.n, s.set)
			}
			same(t, "answer", b.answers(), fmt.Sprintf("%v %d", wire.NAKInvReq, len(c.steps)-1))
			if b.qp.state != StateErr {
				t.Fatalf("in %v", b.qp.state)
			}
			b.received("1 RECV WR_FLUSH_ERR")
			b.wantEvents("QP_REQ_ERR")
			b.intact()
		})
	}
}

// TestHeaderChecks: packets that are not for this queue pair are dropped and
// counted, and change nothing.
func TestHeaderChecks(t *testing.T) {
	for _, c := range []struct {
		drop Drop
		set  func(p *wire.Packet)
	}{
		{DropNoQP, func(p *wire.Packet) { p.BTH.DestQP = 0x9999 }},
		{DropNoQP, func(p *wire.Packet) { p.BTH.DestQP = 2 }},
		{DropService, func(p *wire.Packet) { p.BTH.Opcode = wire.MakeOpcode(wire.UC, wire.OpSendOnly) }},
		{DropService, func(p *wire.Packet) { p.BTH.Opcode = wire.MakeOpcode(wire.XRC, wire.OpSendOnly) }},
		{DropService, func(p *wire.Packet) { p.BTH.Opcode = wire.OpcodeCNP }},
		{DropOpcode, func(p *wire.Packet) { p.BTH.Opcode = 0xFF }},
		{DropOpcode, func(p *wire.Packet) { p.LRH.LNH = wire.LNHRaw }},
		{DropDLID, func(p *wire.Packet) { p.LRH.DLID = 77 }},
		{DropDLID, func(p *wire.Packet) { p.LRH.DLID = ib.LIDPermissive }},
		{DropAddress, func(p *wire.Packet) { p.LRH.SLID = 77 }},
		{DropPKey, func(p *wire.Packet) { p.BTH.PKey = 0x8001 }},
		{DropGRH, func(p *wire.Packet) { p.LRH.LNH = wire.LNHGlobal; p.GRH.DGID = ib.GID{9} }},
		{DropGRH, func(p *wire.Packet) { p.BTH.DestQP = ib.QPNMulticast }},
	} {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{})
		b.recv(1, b.sge(0, 64))
		inject(a, b, wire.OpSendOnly, 0, 8, c.set)
		if b.h.Stats.Drops[c.drop] != 1 || b.qp.ePSN != 0 || len(b.answers()) != 0 {
			t.Errorf("not dropped for %q alone: %v", c.drop, b.h.Stats.Drops)
		}
		if c.drop == DropPKey && b.h.Port(1).PKeyViolations != 1 {
			t.Error("P_Key violation was not counted")
		}
		inject(a, b, wire.OpSendOnly, 0, 8, nil)
		b.received("1 RECV SUCCESS len=8")
	}
	// A queue pair that is not ready yet, and one that failed.
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	c := w.newEnd(1, conf{})
	c.toInit(conf{}.filled())
	inject(a, b, wire.OpSendOnly, 0, 8, func(p *wire.Packet) { p.BTH.DestQP = c.qp.num })
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateErr}, MaskState))
	inject(a, b, wire.OpSendOnly, 0, 8, nil)
	if b.h.Stats.Drops[DropState] != 2 {
		t.Errorf("drops %v", b.h.Stats.Drops)
	}
	// A port that does not exist.
	var p wire.Packet
	a.qp.header(&p, wire.OpSendOnly, 0)
	b.h.HandlePacket(0, 9, &p)
}

// TestStrangeAnswers: acknowledgements of what was not asked are dropped;
// those that cannot be right fail the request that they answer.
func TestStrangeAnswers(t *testing.T) {
	type in struct {
		op  wire.Opcode
		psn ib.PSN
		n   int
		syn wire.Syndrome
	}
	for _, c := range []struct {
		what string
		op   WROpcode
		in   in
		want string // status, or empty: dropped
		drop Drop
	}{
		{"ACK before the window", WRRDMAWrite, in{wire.OpAck, 0xFFFFFF, 0, wire.SynAckNoCred}, "", DropStaleAck},
		{"ACK of what was not sent", WRRDMAWrite, in{wire.OpAck, 3, 0, wire.SynAckNoCred}, "", DropStaleAck},
		{"NAK of what was not sent", WRRDMAWrite, in{wire.OpAck, 3, 0, wire.NAKAccess}, "", DropStaleAck},
		{"reserved syndrome", WRRDMAWrite, in{wire.OpAck, 0, 0, 0x40}, "", DropStaleAck},
		{"a READ's answer to a WRITE", WRRDMAWrite, in{wire.OpReadResponseOnly, 0, 8, wire.SynAckNoCred}, "",
			DropStaleAck},
		{"NAK of a code that does not exist", WRRDMAWrite, in{wire.OpAck, 0, 0, wire.SynNAK | 9}, "BAD_RESP_ERR", 0},
		{"RD's NAK", WRRDMAWrite, in{wire.OpAck, 0, 0, wire.NAKInvRDReq}, "BAD_RESP_ERR", 0},
		{"READ: only instead of first", WRRDMARead, in{wire.OpReadResponseOnly, 0, 256, wire.SynAckNoCred},
			"BAD_RESP_ERR", 0},
		{"READ: short first", WRRDMARead, in{wire.OpReadResponseFirst, 0, 255, wire.SynAckNoCred}, "BAD_RESP_ERR", 0},
		{"READ: an atomic's answer", WRRDMARead, in{wire.OpAtomicAck, 0, 0, wire.SynAckNoCred}, "BAD_RESP_ERR", 0},
		{"READ: NAK with data", WRRDMARead, in{wire.OpReadResponseFirst, 0, 256, wire.NAKAccess}, "BAD_RESP_ERR", 0},
		{"atomic: a READ's answer", WRAtomicFetchAdd, in{wire.OpReadResponseOnly, 0, 8, wire.SynAckNoCred},
			"BAD_RESP_ERR", 0},
	} {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{})
		n := 600
		if c.op == WRAtomicFetchAdd {
			n = 8
		}
		a.post(SendWR{WRID: 1, Opcode: c.op, SGList: []SGE{a.sge(0, n)}, RemoteAddr: memVA, RKey: b.mr.RKey()})
		a.answers()
		inject(b, a, c.in.op, c.in.psn, c.in.n, func(p *wire.Packet) { p.AETH.Syndrome = c.in.syn })
		if c.want == "" {
			a.sent()
			if a.h.Stats.Drops[c.drop] != 1 || a.qp.state != StateRTS {
				t.Errorf("%s: dropped %v, %v", c.what, a.h.Stats.Drops, a.qp.state)
			}
			continue
		}
		wcs := poll(a.scq)
		if len(wcs) != 1 || wcs[0].Status.String() != c.want || a.qp.state != StateErr {
			t.Errorf("%s: %+v, %v, want %s", c.what, wcs, a.qp.state, c.want)
		}
	}
	// Answers at a queue pair that asks nothing: a target, a datagram queue pair.
	w := newWorld(t, 2, 1)
	x, y := w.xrcPair(conf{})
	inject(x, y, wire.OpAck, 0, 0, nil)
	inject(y, x, wire.OpSendOnly, 0, 0, nil)
	if y.h.Stats.Drops[DropState] != 1 || x.h.Stats.Drops[DropService] != 1 {
		t.Errorf("drops %v and %v", x.h.Stats.Drops, y.h.Stats.Drops)
	}
}

// TestDoubledRNR: the same refusal twice costs one try.
func TestDoubledRNR(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{rnr: 1})
	w.fate = func(f *flying) fate { return fate{dup: 1} }
	a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}})
	w.runFor(5 * ib.Microsecond)
	b.recv(2, b.sge(0, 8))
	w.run()
	a.sent("1 SEND SUCCESS len=8")
	b.received("2 RECV SUCCESS len=8")
}

// TestReplaysDoNotCount: answers to duplicates that wait to be sent do not
// make the next READ look like one too many.
func TestReplaysDoNotCount(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{rd: 2, destRD: 2})
	read := func(psn ib.PSN, n int) {
		inject(a, b, wire.OpReadRequest, psn, 0, func(p *wire.Packet) { p.RETH.DMALen = uint32(n) })
	}
	read(0, 8)
	read(1, 300)
	same(t, "first", b.answers(), "RDMA READ Response Only 0", "RDMA READ Response First 1",
		"RDMA READ Response Last 2")
	read(0, 8) // asked again, and the answers cannot leave
	read(1, 300)
	read(1, 300)
	read(3, 8) // the peer has the old answers by now, and goes on
	if b.qp.state != StateRTS {
		t.Fatalf("in %v", b.qp.state)
	}
	b.answers()
	read(3, 8)
	same(t, "again", b.answers(), "RDMA READ Response Only 3")
	// The rest of the latest one; and what was never asked like this.
	inject(a, b, wire.OpReadRequest, 2, 0, func(p *wire.Packet) { p.RETH.VA += 256; p.RETH.DMALen = 44 })
	same(t, "rest", b.answers(), "RDMA READ Response Only 2")
	inject(a, b, wire.OpReadRequest, 2, 0, func(p *wire.Packet) { p.RETH.VA += 257; p.RETH.DMALen = 44 })
	inject(a, b, wire.OpReadRequest, 2, 0, func(p *wire.Packet) { p.RETH.VA += 256; p.RETH.DMALen = 45 })
	inject(a, b, wire.OpReadRequest, 2, 0, func(p *wire.Packet) { p.RETH.VA += 256; p.RETH.DMALen = 44; p.RETH.RKey++ })
	inject(a, b, wire.OpFetchAdd, 3, 0, nil)
	same(t, "other memory", b.answers())
	// Three that are new are one too many.
	read(4, 8)
	read(5, 8)
	read(6, 8)
	same(t, "too many", b.answers(), "RDMA READ Response Only 4", "RDMA READ Response Only 5",
		fmt.Sprintf("%v 6", wire.NAKInvReq))
}

// TestNewestReplay: when PSNs have come around, a duplicate finds the newest.
func TestNewestReplay(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{destRD: 3})
	binary.LittleEndian.PutUint64(b.mem, 10)
	inject(a, b, wire.OpFetchAdd, 0, 0, nil)
	b.answers()
	b.qp.ePSN = 0 // 2^24 requests later
	inject(a, b, wire.OpFetchAdd, 0, 0, nil)
	b.answers()
	inject(a, b, wire.OpFetchAdd, 0, 0, nil)
	s, _ := b.h.NextSend()
	var p wire.Packet
	if !b.h.Emit(0, s, &p, w.buf) || p.AtomicAck != 11 {
		t.Fatalf("the duplicate was answered %d, want 11", p.AtomicAck)
	}
}

// TestMoreDestReads: max_dest_rd_atomic may be raised while draining.
func TestMoreDestReads(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{rd: 4, destRD: 1})
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateSQD}, MaskState))
	inject(a, b, wire.OpReadRequest, 0, 0, nil) // waits in the queue
	ok(t, b.h.ModifyQP(b.qp, QPAttr{MaxDestRD: 4}, MaskMaxDestRD))
	ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateRTS}, MaskState))
	same(t, "kept", b.answers(), "RDMA READ Response Only 0")
	b.qp.ePSN = 0
	for i := range 4 {
		a.post(SendWR{WRID: uint64(i), Opcode: WRRDMARead, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)},
			RemoteAddr: memVA, RKey: b.mr.RKey()})
	}
	w.run()
	for _, c := range poll(a.scq) {
		if c.Status != WCSuccess {
			t.Fatalf("%+v", c)
		}
	}
	if a.qp.Outstanding() != 0 {
		t.Fatal("not done")
	}
}

// TestHugeMessage: no window holds 2 GiB in packets of 256 bytes.
func TestHugeMessage(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	m := must(a.h.RegMR(a.pd, make([]byte, 1<<16), 0, AccessLocalWrite))(t)
	m.reg.mem = m.reg.mem[:0]
	list := []SGE{{Addr: 0, Length: 1 << 31, LKey: m.LKey()}}
	if s := a.qp.start(&sendWQE{length: 1 << 31}); s != WCLocLenErr {
		t.Fatalf("start: %v", s)
	}
	// And one whose memory is not there never gets that far.
	a.post(SendWR{WRID: 1, Opcode: WRRDMARead, SGList: list, RKey: b.mr.RKey()})
	w.run()
	a.sent("1 RDMA_READ LOC_PROT_ERR")
}

// TestMigrationFails: the alternate port is down.
func TestMigrationFails(t *testing.T) {
	w := newWorld(t, 2, 2)
	a, b := w.pair(conf{timeout: 4, retry: 1})
	for _, e := range []*end{a, b} {
		at := QPAttr{AltPort: 2, AltTimeout: 4, PathMigState: Rearm, AltAH: AHAttr{DLID: lidOf(1-e.h.idx, 2), Port: 2}}
		ok(t, e.h.ModifyQP(e.qp, at, MaskAltPath|MaskPathMigState))
	}
	a.write(1, b, 8, SendSignaled)
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=8")
	if a.qp.attr.PathMigState != Armed {
		t.Fatalf("%v", a.qp.attr.PathMigState)
	}
	p := *a.h.Port(2)
	p.State = ib.PortDown
	a.h.SetPort(2, p)
	a.h.drain()
	w.fate = func(f *flying) fate { return fate{drop: true} }
	a.write(2, b, 8, SendSignaled)
	w.run()
	a.sent("2 RDMA_WRITE RETRY_EXC_ERR")
	a.wantEvents("PATH_MIG_ERR")
}

// TestMigratedIsNoMigration: MIGRATED for a path that is not armed changes nothing.
func TestMigratedIsNoMigration(t *testing.T) {
	w := newWorld(t, 2, 2)
	a, _ := w.pair(conf{})
	at := QPAttr{AltPort: 2, PathMigState: Migrated, AltAH: AHAttr{DLID: lidOf(1, 2), Port: 2}}
	ok(t, a.h.ModifyQP(a.qp, at, MaskAltPath|MaskPathMigState))
	if a.qp.path.dlid != lidOf(1, 1) || a.qp.attr.AltPort != 2 {
		t.Fatalf("towards %v, alternate %d", a.qp.path.dlid, a.qp.attr.AltPort)
	}
	a.wantEvents()
}

// TestTimersDoNotPile: neither waits for a receiver nor much traffic leave
// entries in the timer heap.
func TestTimersDoNotPile(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{timeout: 31})
	a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}})
	w.runFor(20 * ib.Millisecond)
	if n := len(a.h.timers.e); a.h.Stats.RNRNAKs < 1000 || n > 4 {
		t.Fatalf("%d timers after %d RNR NAKs", n, a.h.Stats.RNRNAKs)
	}
	b.recv(1, b.sge(0, 8))
	w.runFor(ib.Millisecond)
	a.sent("1 SEND SUCCESS len=8")
	for range 1000 {
		a.write(1, b, 8, SendSignaled)
		w.runFor(10 * ib.Microsecond)
		a.sent("1 RDMA_WRITE SUCCESS len=8")
	}
	if n := len(a.h.timers.e); n > 4 {
		t.Fatalf("%d timers after much traffic", n)
	}
}

// TestAborted: the driver learns once that requests with references in flight
// were given up, and only then.
func TestAborted(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.hosts[0].cfg.ByRefMin = 64
	a, b := w.pair(conf{timeout: 4, retry: 1})
	a.write(1, b, 200, SendSignaled)
	w.pump()
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=200")
	if a.h.TakeAborted() != nil {
		t.Fatal("aborted without a failure")
	}
	w.fate = func(f *flying) fate { return fate{drop: true} }
	a.write(2, b, 200, SendSignaled)
	w.run()
	a.sent("2 RDMA_WRITE RETRY_EXC_ERR")
	if a.h.TakeAborted() == nil || a.h.TakeAborted() != nil {
		t.Fatal("want it told once")
	}
	// The packet itself refers to registered memory from the size on, and is a copy below.
	a, b = w.pair(conf{})
	for _, n := range []int{63, 64, 256} {
		a.write(3, b, n, 0)
		s, _ := a.h.NextSend()
		var p wire.Packet
		if !a.h.Emit(0, s, &p, w.buf) || len(p.Payload) != n {
			t.Fatalf("payload of %d", len(p.Payload))
		}
		if ref := &p.Payload[0] == &a.mem[0]; ref != (n >= 64) || cap(p.Payload) < n || ref && cap(p.Payload) != n {
			t.Fatalf("%d bytes: by reference %v, cap %d", n, ref, cap(p.Payload))
		}
	}
}

// TestTimerHeap sorts, and forgets what moved.
func TestTimerHeap(t *testing.T) {
	var h timerHeap
	x := uint32(12345)
	for range 1000 {
		x = x*1664525 + 1013904223
		h.push(ib.Time(x>>8), nil, nil)
	}
	last := ib.Time(-1)
	for len(h.e) > 0 {
		e := h.pop()
		if e.at < last {
			t.Fatalf("%v after %v", e.at, last)
		}
		last = e.at
	}
}
