package hca

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// sizes are the message lengths around the edges of packets.
func sizes(mtu int) []int { return []int{0, 1, mtu - 1, mtu, mtu + 1, 3*mtu + 5} }

// services are the ways to connect two ends.
var services = []struct {
	name string
	typ  QPType
	make func(*world, conf) (*end, *end)
}{
	{"RC", RC, (*world).pair},
	{"UC", UC, func(w *world, c conf) (*end, *end) { c.typ = UC; return w.pair(c) }},
	{"XRC", XRCSend, (*world).xrcPair},
}

// split cuts a length into uneven pieces, some of them empty.
func split(e *end, off, n int) []SGE {
	a := n / 3
	b := n / 2
	// The pieces lie apart and out of order in memory.
	return []SGE{e.sge(off+14000, a), e.sge(off, 0), e.sge(off, b), e.sge(off+7000, n-a-b)}
}

// flat is the data that a list names.
func flat(e *end, l []SGE) []byte {
	var out []byte
	for _, s := range l {
		out = append(out, e.mem[s.Addr-memVA:][:s.Length]...)
	}
	return out
}

// TestOperations moves every size by every operation of every service at every
// MTU, with one and with several pieces of memory at both ends, across the
// end of the PSN space.
func TestOperations(t *testing.T) {
	for _, sv := range services {
		for mtu := ib.MTU256; mtu <= ib.MTU4096; mtu++ {
			for _, bundle := range []int{0, 3, 16} {
				operations(t, sv.name, sv.make, mtu, bundle)
			}
		}
	}
}

func operations(t *testing.T, service string, make func(*world, conf) (*end, *end), mtu ib.MTU, bundle int) {
	for _, wired := range []bool{true, false} {
		for _, byRef := range []int{0, 1000} {
			if bundle == 0 && !wired || bundle > 0 && mtu != ib.MTU256 && mtu != ib.MTU4096 || byRef > 0 && wired {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v/%d/%v/%d", service, mtu, bundle, wired, byRef), func(t *testing.T) {
				w := newWorld(t, 2, 1)
				w.viaWire = wired
				w.bundles(bundle)
				w.hosts[0].cfg.ByRefMin = byRef
				a, b := make(w, conf{mtu: mtu, psn: 0xFFFFFA, global: mtu%2 == 0})
				id := uint64(0)
				for _, n := range append(sizes(mtu.Bytes()), min(20*mtu.Bytes()-3, 12000)) {
					for _, pieces := range []bool{false, true} {
						for op := WRRDMAWrite; op < NumWROpcode; op++ {
							if wrTable[op].services&a.qp.services == 0 || wrTable[op].kind == kindLocal ||
								op == WRSendInv {
								continue
							}
							id++
							oneOp(t, w, a, b, op, id, n, pieces)
						}
					}
				}
				if w.hosts[0].Stats.Retransmits+w.hosts[1].Stats.SeqNAKsSent != 0 {
					t.Errorf("retransmitted without loss")
				}
				for i, h := range w.hosts { // which counts packets, however they came
					if peer := w.hosts[1-i]; h.Stats.TxPackets != peer.Stats.RxPackets ||
						h.Stats.TxBytes != peer.Stats.RxBytes {
						t.Errorf("%d packets and %d bytes sent, %d and %d received", h.Stats.TxPackets, h.Stats.TxBytes,
							peer.Stats.RxPackets, peer.Stats.RxBytes)
					}
				}
				if bundle > 0 && !wired && w.bundled == 0 {
					t.Error("no bundles")
				}
				w.close()
			})
		}
	}
}

func oneOp(t *testing.T, w *world, a, b *end, op WROpcode, id uint64, n int, pieces bool) {
	t.Helper()
	local, remote := []SGE{a.sge(0, n)}, []SGE{b.sge(0, n)}
	if pieces {
		local, remote = split(a, 100, n), split(b, 300, n)
	}
	if n == 0 && !pieces {
		local, remote = nil, nil
	}
	for i := range a.mem {
		a.mem[i] = byte(uint64(i)*13 + id)
		b.mem[i] = byte(uint64(i)*29 + id + 5)
	}
	before := append([]byte(nil), b.mem...)
	wr := SendWR{WRID: id, Opcode: op, Flags: SendSignaled, SGList: local, RemoteAddr: memVA + 20000, RKey: b.mr.RKey(),
		Imm: 0xABCD0000 + uint32(id)}
	if b.srq != nil {
		wr.RemoteSRQN = b.srq.Num()
	}
	row := wrTable[op]
	wantRecv := ""
	switch {
	case row.kind == kindSend:
		wantRecv = fmt.Sprintf("%d RECV SUCCESS len=%d", id, n)
	case op == WRRDMAWriteImm:
		wantRecv = fmt.Sprintf("%d %v SUCCESS len=%d", id, WCRecvRDMAWithImm, n)
		remote = nil
	case op == WRFlush:
		wr.SGList, wr.Flush = nil, Flush{Length: uint32(n), Type: wire.FlushGlobal, Level: uint8(id & 1)}
	case row.kind == kindAtomic, row.kind == kindAtomicWrite:
		wr.SGList = []SGE{a.sge(16, 8)}
		if pieces {
			wr.SGList = []SGE{a.sge(16, 3), a.sge(40, 5)}
		}
		n = 8
		wr.CompareAdd, wr.Swap = binary.LittleEndian.Uint64(b.mem[20000:]), 0x1122334455667788
	}
	if op == WRSendImm || op == WRRDMAWriteImm {
		wantRecv += fmt.Sprintf(" imm=%#x", wr.Imm)
	}
	if wantRecv != "" {
		b.recv(id, remote...)
	}
	a.post(wr)
	w.run()
	a.sent(fmt.Sprintf("%d %v SUCCESS len=%d", id, row.wc, n))
	if wantRecv != "" {
		b.received(wantRecv)
	} else {
		b.received()
	}
	switch row.kind {
	case kindSend:
		if !bytes.Equal(flat(b, remote), flat(a, local)) {
			t.Fatalf("%v of %d bytes: data differ", op, n)
		}
		if n > 0 {
			untouched(t, b.mem, before, b, remote)
		}
	case kindWrite:
		if !bytes.Equal(b.mem[20000:20000+n], flat(a, local)) {
			t.Fatalf("%v of %d bytes: data differ", op, n)
		}
		untouched(t, b.mem, before, b, []SGE{b.sge(20000, n)})
	case kindFlush:
		untouched(t, b.mem, before, b, nil)
	case kindAtomicWrite:
		if !bytes.Equal(b.mem[20000:20008], flat(a, wr.SGList)) {
			t.Fatalf("%v: data differ", op)
		}
		untouched(t, b.mem, before, b, []SGE{b.sge(20000, 8)})
	case kindRead:
		if !bytes.Equal(flat(a, local), before[20000:20000+n]) {
			t.Fatalf("%v of %d bytes: data differ", op, n)
		}
	case kindAtomic:
		old := binary.LittleEndian.Uint64(before[20000:])
		now := binary.LittleEndian.Uint64(b.mem[20000:])
		if got := binary.LittleEndian.Uint64(flat(a, wr.SGList)); got != old {
			t.Fatalf("%v returned %#x, memory held %#x", op, got, old)
		}
		want := wr.Swap
		if op == WRAtomicFetchAdd {
			want = old + wr.CompareAdd
		}
		if now != want {
			t.Fatalf("%v left %#x, want %#x", op, now, want)
		}
		untouched(t, b.mem, before, b, []SGE{b.sge(20000, 8)})
	}
	a.intact()
	b.intact()
}

// untouched checks that nothing but the named pieces changed.
func untouched(t *testing.T, mem, before []byte, e *end, pieces []SGE) {
	t.Helper()
	m := append([]byte(nil), mem...)
	for _, s := range pieces {
		off := s.Addr - memVA
		copy(m[off:off+uint64(s.Length)], before[off:])
	}
	if !bytes.Equal(m, before) {
		t.Fatalf("memory outside the target changed")
	}
}

func TestCompareFails(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	binary.LittleEndian.PutUint64(b.mem[8:], 5)
	a.post(SendWR{WRID: 1, Opcode: WRAtomicCmpSwap, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: memVA +
		8, RKey: b.mr.RKey(), CompareAdd: 6, Swap: 9})
	w.run()
	a.sent("1 COMP_SWAP SUCCESS len=8")
	if got, now := binary.LittleEndian.Uint64(a.mem), binary.LittleEndian.Uint64(b.mem[8:]); got != 5 || now != 5 {
		t.Fatalf("returned %d and left %d, want 5 and 5", got, now)
	}
}

// TestInline sends inline data of each kind, and shows that the buffer is the
// caller's again at once.
func TestInline(t *testing.T) {
	for _, sv := range services {
		t.Run(sv.name, func(t *testing.T) {
			w := newWorld(t, 2, 1)
			a, b := sv.make(w, conf{mtu: ib.MTU256, inline: 600})
			var srqn uint32
			if b.srq != nil {
				srqn = b.srq.Num()
			}
			for i, n := range []int{0, 1, 256, 257, 600} {
				data := make([]byte, n)
				for j := range data {
					data[j] = byte(j + i)
				}
				want := append([]byte(nil), data...)
				b.recv(1, b.sge(0, 1000))
				a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled | SendInline, InlineData: data,
					RemoteSRQN: srqn})
				clear(data)
				w.run()
				b.received(fmt.Sprintf("1 RECV SUCCESS len=%d", n))
				a.sent(fmt.Sprintf("1 SEND SUCCESS len=%d", n))
				if !bytes.Equal(b.mem[:n], want) {
					t.Fatalf("inline SEND of %d: data differ", n)
				}
				// From a list, and changed after posting.
				copy(a.mem[100:], want)
				a.post(SendWR{WRID: 2, Opcode: WRRDMAWrite, Flags: SendSignaled | SendInline,
					SGList: []SGE{a.sge(100, n)}, RemoteAddr: memVA + 5000, RKey: b.mr.RKey(), RemoteSRQN: srqn})
				clear(a.mem[100 : 100+n])
				w.run()
				a.sent(fmt.Sprintf("2 RDMA_WRITE SUCCESS len=%d", n))
				if !bytes.Equal(b.mem[5000:5000+n], want) {
					t.Fatalf("inline WRITE of %d: data differ", n)
				}
			}
			err := a.h.PostSend(a.qp, &SendWR{Opcode: WRSend, Flags: SendInline, InlineData: make([]byte, 601)})
			wantAttr(t, err, "post_send", "inline length", ErrInvalid)
		})
	}
}

// TestUnsignaled completes what asked for it and nothing else, and reuses the queue.
func TestUnsignaled(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sendWR: 5})
	for round := range 40 {
		for i := range 5 {
			f := SendFlags(0)
			if i == 4 {
				f = SendSignaled
			}
			a.post(SendWR{WRID: uint64(round*5 + i), Opcode: WRRDMAWrite, Flags: f, SGList: []SGE{a.sge(i*8, 8)},
				RemoteAddr: memVA + uint64(i)*8, RKey: b.mr.RKey()})
		}
		wantAttr(t, a.h.PostSend(a.qp, &SendWR{Opcode: WRSend}), "post_send", "send queue", ErrFull)
		w.run()
		a.sent(fmt.Sprintf("%d RDMA_WRITE SUCCESS len=8", round*5+4))
		if a.qp.Outstanding() != 0 {
			t.Fatalf("%d requests left", a.qp.Outstanding())
		}
	}
	if !bytes.Equal(a.mem[:40], b.mem[:40]) {
		t.Fatal("data differ")
	}
}

func TestSigAll(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sigAll: true})
	for i := range 3 {
		a.post(SendWR{WRID: uint64(i), Opcode: WRRDMAWrite, SGList: []SGE{a.sge(0, 1)}, RemoteAddr: memVA,
			RKey: b.mr.RKey()})
	}
	w.run()
	a.sent("0 RDMA_WRITE SUCCESS len=1", "1 RDMA_WRITE SUCCESS len=1", "2 RDMA_WRITE SUCCESS len=1")
}

// TestLoopback talks to a queue pair of the same adapter.
func TestLoopback(t *testing.T) {
	w := newWorld(t, 1, 1)
	a, b := w.newEnd(0, conf{}), w.newEnd(0, conf{})
	w.join(a, b, conf{}, conf{})
	b.recv(1, b.sge(0, 5000))
	a.post(SendWR{WRID: 2, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 5000)}})
	w.pump()
	if len(w.flight) == 0 || !a.qp.path.loop {
		t.Fatal("a path to ourselves is not marked as one")
	}
	w.run()
	a.sent("2 SEND SUCCESS len=5000")
	b.received("1 RECV SUCCESS len=5000")
	if !bytes.Equal(a.mem[:5000], b.mem[:5000]) {
		t.Fatal("data differ")
	}
	w.close()
}

// TestManyQPs interleaves queue pairs: none starves while another has much to send.
func TestManyQPs(t *testing.T) {
	w := newWorld(t, 2, 1)
	var as, bs []*end
	for range 10 {
		a, b := w.pair(conf{})
		as, bs = append(as, a), append(bs, b)
	}
	for i, a := range as {
		a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 60000)},
			RemoteAddr: memVA, RKey: bs[i].mr.RKey()})
	}
	w.pump()
	seen := map[ib.QPN]bool{}
	for _, f := range w.flight[:10*burstMax] {
		seen[f.p.BTH.DestQP] = true
	}
	if len(seen) != 10 {
		t.Fatalf("%d of 10 queue pairs got a turn in the first %d packets", len(seen), 10*burstMax)
	}
	w.run()
	for i, a := range as {
		a.sent("1 RDMA_WRITE SUCCESS len=60000")
		if !bytes.Equal(a.mem[:60000], bs[i].mem[:60000]) {
			t.Fatal("data differ")
		}
	}
	w.close()
}

// TestPark takes a queue pair out of the turn and puts it back.
func TestPark(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 600)}, RemoteAddr: memVA,
		RKey: b.mr.RKey()})
	s, has := a.h.NextSend()
	if !has || s.QP != a.qp || s.DLID != lidOf(1, 1) || s.Port != 1 {
		t.Fatalf("NextSend: %+v, %v", s, has)
	}
	a.h.Park(s)
	w.run()
	if len(poll(a.scq)) != 0 || a.h.Stats.TxPackets != 0 {
		t.Fatal("a parked queue pair sent")
	}
	a.h.Unpark(a.qp)
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=600")
	if !bytes.Equal(a.mem[:600], b.mem[:600]) {
		t.Fatal("data differ")
	}
	// Parked with a packet outstanding: the timer does not run out on it.
	w.fate = func(f *flying) fate { return fate{drop: f.from.name == "a"} }
	a.post(SendWR{WRID: 2, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 8)}, RemoteAddr: memVA,
		RKey: b.mr.RKey()})
	w.pump()
	a.h.Park(&Send{QP: a.qp})
	w.runFor(100 * ib.Millisecond)
	a.sent()
	w.fate = nil
	a.h.Unpark(a.qp)
	w.run()
	a.sent("2 RDMA_WRITE SUCCESS len=8")
	// Destroyed while parked.
	a.h.Park(&Send{QP: a.qp})
	w.close()
	a.h.Unpark(a.qp)
	if _, has := a.h.NextSend(); has {
		t.Fatal("a destroyed queue pair has something to send")
	}
}
