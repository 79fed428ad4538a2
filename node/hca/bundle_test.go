package hca

import (
	"bytes"
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestBundleRefused: a bundle that is not as long as it says ends like a packet
// of the wrong length, and touches nothing.
func TestBundleRefused(t *testing.T) {
	for _, c := range []struct {
		op    wire.Opcode
		n     int
		count uint16
	}{
		{wire.OpSendOnly, 600, 2}, {wire.OpSendOnly, 600, 4}, {wire.OpSendOnly, 512, 3}, {wire.OpSendOnly, 0, 2},
		{wire.OpSendOnly, 256, 2},
		{wire.OpSendFirst, 600, 3}, {wire.OpSendFirst, 512, 3}, {wire.OpSendFirst, 768, 2}, {wire.OpSendFirst, 0, 2},
		{wire.OpWriteOnly, 600, 2}, {wire.OpWriteFirst, 512, 3}, {wire.OpReadRequest, 0, 2}, {wire.OpFetchAdd, 0, 2},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%d/%d/%v", wire.MakeOpcode(wire.RC, c.op), c.n, c.count, far), func(t *testing.T) {
				w := newWorld(t, 2, 1)
				a, b := w.pair(conf{mtu: ib.MTU256})
				b.recv(1, b.sge(4096, 4096))
				before := append([]byte(nil), b.mem...)
				inject(a, b, c.op, 0, c.n, func(p *wire.Packet) {
					p.Count = c.count
					p.RETH.DMALen = uint32(c.n)
					if info := p.BTH.Opcode.Info(); !info.Is(wire.FlagEnd) {
						p.RETH.DMALen += 100
					}
					if far && c.n > 0 {
						p.Far, p.FarLen, p.Payload = &elsewhere{p.Payload, func() bool { return true }}, c.n, nil
					}
				})
				same(t, "answer", b.answers(), fmt.Sprintf("%v 0", wire.NAKInvReq))
				b.received("1 RECV WR_FLUSH_ERR")
				if b.qp.state != StateErr || !bytes.Equal(b.mem, before) {
					t.Fatalf("in %v, or memory changed", b.qp.state)
				}
			})
		}
	}
	// What belongs to a requester, or is no part of a message, is dropped.
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	u := w.udEnd(1, conf{})
	u.recv(1, u.sge(0, 4096))
	a.write(1, b, 8, SendSignaled)
	w.pump()
	inject(b, a, wire.OpAck, 0, 0, func(p *wire.Packet) { p.Count = 2 })
	a.sent()
	inject(a, b, wire.OpSendOnly, 0, 300, func(p *wire.Packet) {
		p.BTH.Opcode, p.BTH.DestQP, p.Count = wire.MakeOpcode(wire.UD, wire.OpSendOnly), u.qp.num, 2
		p.DETH = wire.DETH{QKey: 0x1234, SrcQP: a.qp.num}
	})
	u.received()
	if a.h.Stats.Drops[DropLength] != 1 || b.h.Stats.Drops[DropLength] != 1 {
		t.Fatalf("drops %v and %v", a.h.Stats.Drops, b.h.Stats.Drops)
	}
}

// TestBadReadBundles: a READ response that is not what its place calls for fails
// the request.
func TestBadReadBundles(t *testing.T) {
	for _, c := range []struct {
		op    wire.Opcode
		n     int
		count uint16
	}{
		{wire.OpReadResponseOnly, 600, 2}, {wire.OpReadResponseOnly, 600, 4}, {wire.OpReadResponseFirst, 512, 3},
		{wire.OpReadResponseFirst, 768, 3},
		{wire.OpReadResponseFirst, 500, 2}, {wire.OpReadResponseFirst, 1024, 4}, {wire.OpReadResponseOnly, 599, 3},
	} {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{mtu: ib.MTU256})
		a.post(SendWR{WRID: 1, Opcode: WRRDMARead, SGList: []SGE{a.sge(0, 600)}, RemoteAddr: memVA, RKey: b.mr.RKey()})
		before := append([]byte(nil), a.mem...)
		s, _ := a.h.NextSend()
		var p wire.Packet
		if !a.h.Emit(0, s, &p, w.buf) {
			t.Fatal("no request")
		}
		inject(b, a, c.op, 0, c.n, func(p *wire.Packet) { p.Count = c.count })
		a.sent("1 RDMA_READ BAD_RESP_ERR")
		if !bytes.Equal(a.mem, before) {
			t.Errorf("%v of %d bytes in %d packets was written", c.op, c.n, c.count)
		}
	}
}

// TestBundleBoundaries: wherever in a message sending resumes, bundles end where
// they would have.
func TestBundleBoundaries(t *testing.T) {
	lists := [][]int{{10000}, {100, 9900}, {256, 9744}, {3000, 10, 10, 6980}, {1, 255, 300, 9444}, {5000, 5000}}
	for _, byRef := range []int{0, 1, 256, 2000} {
		for _, room := range []int{256, 700, 1024, 5000, 1 << 14} {
			for _, typ := range []QPType{RC, UC} {
				for _, list := range lists {
					t.Run(fmt.Sprintf("%d/%d/%v/%v", byRef, room, typ, list),
						func(t *testing.T) { boundaries(t, byRef, room, typ, list) })
				}
			}
		}
	}
}

func boundaries(t *testing.T, byRef, room int, typ QPType, list []int) {
	w := newWorld(t, 2, 1)
	w.bundles(8)
	w.hosts[0].cfg.ByRefMin = byRef
	w.room = func() int { return room }
	a, b := w.pair(conf{typ: typ, mtu: ib.MTU256})
	var sges []SGE
	off := 0
	for _, n := range list {
		sges = append(sges, a.sge(off, n))
		off += n
	}
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, SGList: sges, RemoteAddr: memVA, RKey: b.mr.RKey()})
	ends := map[int]bool{}
	pass := func(from int) (at []int) {
		for next := from; next < 40; {
			s, has := a.h.NextSend()
			var p wire.Packet
			if !has || !w.emit(a.h, s, &p) {
				t.Fatalf("nothing to send at packet %d", next)
			}
			k := p.Packets()
			if int(p.BTH.PSN) != next || !bytes.Equal(p.Payload, a.mem[next*256:min((next+k)*256, 10000)]) {
				t.Fatalf("packet %v with %d, want %d", p.BTH.PSN, k, next)
			}
			if first, last := next == 0, next+k == 40; p.BTH.Opcode.Info().Is(wire.FlagStart) != first ||
				p.BTH.Opcode.Info().Is(wire.FlagEnd) != last {
				t.Fatalf("%v for packets %d to %d of 40", p.BTH.Opcode, next, next+k-1)
			}
			next += k
			at = append(at, next)
		}
		return at
	}
	for _, e := range pass(0) {
		ends[e] = true
	}
	if typ == UC {
		return // never sends again
	}
	// One that has got shorter may fit as a whole, or be too short to refer to.
	exact := byRef == 0 && room >= 2048 || byRef > 0 && byRef <= 256 && room%256 == 0
	for from := 39; from > 0; from-- {
		a.qp.rewind(ib.PSN(from))
		got := pass(from)
		for _, e := range got {
			if exact && !ends[e] {
				t.Fatalf("from packet %d a bundle ends at %d, want one of %v", from, e, ends)
			}
		}
	}
}

// TestBundleStraddles: a bundle that begins with what the peer has and goes on with
// what it has not is refused as often as it comes, and the requester goes
// on where the peer is, without the help of a timer and with one try.
func TestBundleStraddles(t *testing.T) {
	for _, op := range []WROpcode{WRSend, WRRDMAWrite} {
		t.Run(op.String(), func(t *testing.T) {
			w := newWorld(t, 2, 1)
			w.tracing = true
			w.bundles(16)
			a, b := w.pair(conf{mtu: ib.MTU256, retry: 1, noTimeout: true})
			b.recv(9, b.sge(20000, 5000))
			w.room = func() int { return 512 } // two packets each
			w.fate = func(f *flying) fate {
				// Two bundles come through, and no answer.
				return fate{drop: f.p.BTH.PSN >= 4 || f.from.name == "b"}
			}
			a.post(SendWR{WRID: 1, Opcode: op, Flags: SendSignaled, SGList: []SGE{a.sge(0, 4000)}, RemoteAddr: memVA +
				20000, RKey: b.mr.RKey()})
			w.run()
			if b.qp.ePSN != 4 || a.qp.ackPSN != 0 {
				t.Fatalf("b expects %v, a knows of %v", b.qp.ePSN, a.qp.ackPSN)
			}
			// Buffers grow; the first answer to what begins at 0 is lost too.
			w.room = nil
			naks := 0
			w.fate = func(f *flying) fate {
				if f.from.name == "b" {
					naks++
				}
				return fate{drop: f.from.name == "b" && naks == 1}
			}
			a.qp.rewind(0)
			w.run()
			if naks != 1 || b.qp.ePSN != 4 || b.h.Stats.Drops[DropDuplicate] != 1 {
				t.Fatalf("%d answers, b expects %v, drops %v", naks, b.qp.ePSN, b.h.Stats.Drops)
			}
			a.qp.rewind(2)
			w.run()
			w.tracing = false
			var wcs []string
			for _, line := range w.trace {
				if i := bytes.Index([]byte(line), []byte("wc ")); i >= 0 {
					wcs = append(wcs, line[i:])
				}
			}
			want := []string{"wc 1 RDMA_WRITE SUCCESS len=4000"}
			if op == WRSend {
				want = []string{"wc 9 RECV SUCCESS len=4000", "wc 1 SEND SUCCESS len=4000"}
			}
			same(t, "completions", wcs, want...)
			if !bytes.Equal(b.mem[20000:24000], a.mem[:4000]) {
				t.Fatal("data differ")
			}
		})
	}
}

// TestReadStraddles: part of a READ response that is there already comes once more
// in a bundle with what is missing: that is asked for at once.
func TestReadStraddles(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.bundles(16)
	a, b := w.pair(conf{mtu: ib.MTU256, noTimeout: true})
	a.post(SendWR{WRID: 1, Opcode: WRRDMARead, Flags: SendSignaled, SGList: []SGE{a.sge(0, 2000)}, RemoteAddr: memVA +
		20000, RKey: b.mr.RKey()})
	w.room = func() int { return 512 }
	w.fate = func(f *flying) fate { return fate{drop: f.from.name == "b" && f.p.BTH.PSN >= 4} }
	w.run()
	if a.qp.ackPSN != 4 {
		t.Fatalf("a has %v packets, want 4", a.qp.ackPSN)
	}
	w.room, w.fate = nil, nil
	inject(b, a, wire.OpReadResponseMiddle, 2, 1024, func(p *wire.Packet) { p.Count = 4 })
	w.run()
	a.sent("1 RDMA_READ SUCCESS len=2000")
	if !bytes.Equal(a.mem[:2000], b.mem[20000:22000]) {
		t.Fatal("data differ")
	}
}

// TestBundleAcks: packets count towards the next request for an acknowledgement,
// not bundles, and it names the last of them.
func TestBundleAcks(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.bundles(10)
	a, b := w.pair(conf{mtu: ib.MTU256})
	asks := map[ib.PSN]bool{}
	acks := map[ib.PSN]bool{}
	w.fate = func(f *flying) fate {
		if f.from.name == "a" && f.p.BTH.AckReq {
			asks[lastPSN(&f.p)] = true
		}
		if f.from.name == "b" {
			acks[f.p.BTH.PSN] = true
		}
		return fate{}
	}
	a.write(1, b, 100*256, SendSignaled)
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=25600")
	if fmt.Sprint(asks) != fmt.Sprint(map[ib.PSN]bool{39: true, 79: true, 99: true}) || !acks[99] {
		t.Fatalf("asked after %v, got %v", asks, acks)
	}
	if a.h.Stats.TxPackets != 100 || b.h.Stats.RxPackets != 100 || a.h.Stats.RxPackets != b.h.Stats.AcksSent {
		t.Fatalf("%d packets sent, %d received", a.h.Stats.TxPackets, b.h.Stats.RxPackets)
	}
}

// TestSmallBuffer: a buffer that holds what is left is enough, though it is
// shorter than a packet could be.
func TestSmallBuffer(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{mtu: ib.MTU4096})
	a.write(1, b, 100, SendSignaled)
	s, _ := a.h.NextSend()
	var p wire.Packet
	if s.Copied != 100 || !a.h.Emit(0, s, &p, make([]byte, 100)) || len(p.Payload) != 100 {
		t.Fatalf("%+v: %d bytes", s, len(p.Payload))
	}
	b.h.HandlePacket(0, 1, &p)
	w.run()
	a.sent("1 RDMA_WRITE SUCCESS len=100")
}

// TestBundleHeaderFirst: of a message that begins with a short element only the
// packet that has parts of two is copied.
func TestBundleHeaderFirst(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.bundles(64)
	w.hosts[0].cfg.ByRefMin = 8 << 10
	a, b := w.pair(conf{mtu: ib.MTU4096})
	a.post(SendWR{WRID: 1, Opcode: WRRDMAWrite, Flags: SendSignaled, SGList: []SGE{a.sge(0, 20), a.sge(1000, 60000)},
		RemoteAddr: memVA, RKey: b.mr.RKey()})
	var got []string
	w.fate = func(f *flying) fate {
		if f.from == a.h {
			got = append(got, fmt.Sprint(len(f.p.Payload)))
		}
		return fate{}
	}
	s, _ := a.h.NextSend()
	if s.Refers {
		t.Fatal("two elements cannot be referred to")
	}
	w.run()
	same(t, "packets", got, "4096", "55924")
	a.sent("1 RDMA_WRITE SUCCESS len=60020")
	if !bytes.Equal(b.mem[:20], a.mem[:20]) || !bytes.Equal(b.mem[20:60020], a.mem[1000:61000]) {
		t.Fatal("data differ")
	}
}
