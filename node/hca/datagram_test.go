package hca

import (
	"bytes"
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

var group = ib.GID{0xFF, 0x12, 0x40, 0x1B, 15: 7}

const groupLID ib.LID = 0xC005

// udEnd is a datagram queue pair in RTS.
func (w *world) udEnd(hostIdx int, c conf) *end {
	w.t.Helper()
	if c.typ == RC {
		c.typ = UD
	}
	e := w.newEnd(hostIdx, c)
	c = c.filled()
	e.toInit(c)
	e.connect(c, nil, 0, 0)
	return e
}

func (e *end) ah(a AHAttr) *AH {
	e.w.t.Helper()
	ah := must(e.h.CreateAH(e.pd, a))(e.w.t)
	e.ahs = append(e.ahs, ah)
	return ah
}

// datagram posts a SEND of n bytes from offset 0.
func (e *end) datagram(id uint64, ah *AH, to ib.QPN, qkey ib.QKey, n int) {
	e.w.t.Helper()
	e.post(SendWR{WRID: id, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{e.sge(0, n)}, AH: ah, RemoteQPN: to,
		RemoteQKey: qkey})
}

func TestDatagram(t *testing.T) {
	for mtu := ib.MTU256; mtu <= ib.MTU4096; mtu++ {
		for _, global := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", mtu, global), func(t *testing.T) {
				w := newWorld(t, 2, 1)
				w.viaWire = true
				for _, h := range w.hosts {
					p := *h.Port(1)
					p.MTU = mtu
					h.SetPort(1, p)
				}
				a, b := w.udEnd(0, conf{}), w.udEnd(1, conf{})
				at := AHAttr{DLID: lidOf(1, 1), SL: 3}
				want := ""
				if global {
					at.IsGlobal, at.DGID, at.HopLimit, at.FlowLabel, at.TClass = true, b.h.Port(1).GIDs[0], 64, 0x12345,
						9
					want = " grh"
				}
				ah := a.ah(at)
				for i, n := range []int{0, 1, mtu.Bytes() - 1, mtu.Bytes()} {
					id := uint64(i)
					for j := range b.mem {
						b.mem[j] = 0xEE
					}
					b.recv(id, b.sge(1000, 25), b.sge(0, 0), b.sge(2000, n+15))
					a.post(SendWR{WRID: id, Opcode: WRSendImm, Flags: SendSignaled | SendSolicited, Imm: 0x77,
						SGList: []SGE{a.sge(5, n/2), a.sge(9000, n-n/2)}, AH: ah, RemoteQPN: b.qp.num,
						RemoteQKey: 0x1234})
					w.run()
					a.sent(fmt.Sprintf("%d SEND SUCCESS len=%d", id, n))
					wcs := poll(b.rcq)
					expectWCs(t, "b", wcs, []string{fmt.Sprintf("%d RECV SUCCESS len=%d imm=0x77%s", id, n+40, want)})
					if c := wcs[0]; c.SrcQP != a.qp.num || c.SLID != lidOf(0, 1) || c.SL != 3 || c.Port != 1 {
						t.Fatalf("completion says from %v, LID %v, SL %d, port %d", c.SrcQP, c.SLID, c.SL, c.Port)
					}
					data := append(append([]byte(nil), a.mem[5:5+n/2]...), a.mem[9000:9000+n-n/2]...)
					got := append(append([]byte(nil), b.mem[1000:1025]...), b.mem[2000:2000+n+15]...)
					if !bytes.Equal(got[40:], data) {
						t.Fatalf("%d bytes: data differ", n)
					}
					if global {
						g, _, err := wire.ParseGRH(got[:40])
						if err != nil || g.SGID != a.h.Port(1).GIDs[0] || g.DGID != at.DGID || g.Flow != 0x12345 ||
							g.TClass != 9 || g.HopLimit != 64 {
							t.Fatalf("GRH in the buffer: %+v, %v", g, err)
						}
					} else if got[0] != 0xEE || got[39] != 0xEE {
						t.Fatal("the GRH's place was written without a GRH")
					}
				}
				err := a.h.PostSend(a.qp, &SendWR{Opcode: WRSend, SGList: []SGE{a.sge(0, mtu.Bytes()+1)}, AH: ah})
				wantAttr(t, err, "post_send", "sg_list", ErrInvalid)
				w.close()
			})
		}
	}
}

// TestIPCounted: what a network's connections and datagrams carry counts as IP, at both ends, and nothing else does but
// datagrams with IPoIB's Q_Key.
func TestIPCounted(t *testing.T) {
	for _, ipoib := range []bool{false, true} {
		w := newWorld(t, 2, 1)
		c := conf{ipoib: ipoib}
		a, b := w.pair(c)
		b.recv(1, b.sge(0, 1000))
		a.post(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{a.sge(0, 1000)}})
		w.run()
		ua, ub := w.udEnd(0, c), w.udEnd(1, c)
		for i, key := range []ib.QKey{0x80000000, ib.QKeyIPoIB} { // its own, which is none of IPoIB, and that
			ub.recv(uint64(i), ub.sge(0, 100))
			if key == ib.QKeyIPoIB {
				ok(t, ub.h.ModifyQP(ub.qp, QPAttr{State: StateRTS, QKey: key}, MaskState|MaskQKey))
			}
			ua.datagram(uint64(i), ua.ah(AHAttr{DLID: lidOf(1, 1)}), ub.qp.num, key, 8)
			w.run()
		}
		sent, got := a.h.Stats, b.h.Stats
		want := [4]uint64{1, 8, 1, 8}
		if ipoib { // the answers too
			want = [4]uint64{sent.TxPackets, 1016, got.RxPackets, 1016}
		}
		if is := [4]uint64{sent.IPoIBTxPackets, sent.IPoIBTxBytes, got.IPoIBRxPackets, got.IPoIBRxBytes}; is != want {
			t.Errorf("networks %v: packets and bytes sent and received are %d, want %d", ipoib, is, want)
		}
		if ipoib && got.IPoIBTxPackets == 0 {
			t.Error("the acknowledgements do not count")
		}
	}
}

// TestDatagramKeys counts wrong P_Keys and Q_Keys where PortInfo does, and drops.
func TestDatagramKeys(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.udEnd(0, conf{}), w.udEnd(1, conf{})
	ah := a.ah(AHAttr{DLID: lidOf(1, 1)})
	b.recv(1, b.sge(0, 100))
	a.datagram(1, ah, b.qp.num, 0x9999, 8)
	w.run()
	a.sent("1 SEND SUCCESS len=8")
	b.received()
	port := b.h.Port(1)
	if port.QKeyViolations != 1 || b.h.Stats.Drops[DropQKey] != 1 {
		t.Fatalf("Q_Key violations: %d, drops %d", port.QKeyViolations, b.h.Stats.Drops[DropQKey])
	}
	// With the top bit set the sender's own Q_Key is used.
	a.datagram(2, ah, b.qp.num, 0x80000000, 8)
	w.run()
	b.received("1 RECV SUCCESS len=48")
	a.sent("2 SEND SUCCESS len=8")
	// The sender is moved to another partition.
	p := *a.h.Port(1)
	p.PKeys = []ib.PKey{0x8001}
	a.h.SetPort(1, p)
	a.datagram(3, ah, b.qp.num, 0x1234, 8)
	w.run()
	if port.PKeyViolations != 1 || b.h.Stats.Drops[DropPKey] != 1 {
		t.Fatalf("P_Key violations: %d, drops %d", port.PKeyViolations, b.h.Stats.Drops[DropPKey])
	}
	// Two limited members do not hear each other.
	for _, e := range []*end{a, b} {
		p := *e.h.Port(1)
		p.PKeys = []ib.PKey{0x0001}
		e.h.SetPort(1, p)
	}
	a.datagram(4, ah, b.qp.num, 0x1234, 8)
	w.run()
	if port.PKeyViolations != 2 {
		t.Fatalf("P_Key violations: %d, want 2", port.PKeyViolations)
	}
	// The counters stop at their end.
	port.PKeyViolations, port.QKeyViolations = 0xFFFF, 0xFFFF
	a.datagram(5, ah, b.qp.num, 0x1234, 8)
	w.run()
	if port.PKeyViolations != 0xFFFF {
		t.Fatalf("P_Key violations wrapped to %d", port.PKeyViolations)
	}
	b.received()
}

func TestDatagramDrops(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.udEnd(0, conf{}), w.udEnd(1, conf{})
	for _, c := range []struct {
		drop Drop
		ah   AHAttr
		qpn  ib.QPN
	}{
		{DropNoRecv, AHAttr{DLID: lidOf(1, 1)}, b.qp.num},
		{DropNoQP, AHAttr{DLID: lidOf(1, 1)}, 0x999},
		{DropNoQP, AHAttr{DLID: lidOf(1, 1)}, 1},
		{DropGRH, AHAttr{DLID: lidOf(1, 1), IsGlobal: true, DGID: ib.GID{1}}, b.qp.num},
	} {
		before := b.h.Stats.Drops[c.drop]
		a.datagram(1, a.ah(c.ah), c.qpn, 0x1234, 8)
		w.run()
		a.sent("1 SEND SUCCESS len=8")
		if b.h.Stats.Drops[c.drop] != before+1 {
			t.Errorf("not dropped for %q: %v", c.drop, b.h.Stats.Drops)
		}
	}
	b.received()
}

// TestDatagramTooLong: the receive fails and so does the queue pair; nothing is sent back.
func TestDatagramTooLong(t *testing.T) {
	for _, short := range []bool{true, false} {
		w := newWorld(t, 2, 1)
		a, b := w.udEnd(0, conf{}), w.udEnd(1, conf{})
		b.recv(1, b.sge(0, 47))
		b.recv(2, b.sge(0, 48))
		want := "1 RECV LOC_LEN_ERR"
		if !short {
			ok(t, b.h.ModifyQP(b.qp, QPAttr{State: StateReset}, MaskState))
			b.toInit(conf{typ: UD}.filled())
			b.connect(conf{}, nil, 0, 0)
			b.recv(1, SGE{Addr: memVA, Length: 100, LKey: b.mr.LKey() + 1})
			b.recv(2, b.sge(0, 48))
			want = "1 RECV LOC_PROT_ERR"
		}
		a.datagram(1, a.ah(AHAttr{DLID: lidOf(1, 1)}), b.qp.num, 0x1234, 8)
		w.run()
		b.received(want, "2 RECV WR_FLUSH_ERR")
		if b.qp.state != StateErr || b.h.Stats.TxPackets != 0 {
			t.Fatalf("%v, %d packets sent", b.qp.state, b.h.Stats.TxPackets)
		}
	}
}

// TestDatagramSQE: a local error stops the send queue alone, until RTS.
func TestDatagramSQE(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.udEnd(0, conf{}), w.udEnd(1, conf{})
	ah := a.ah(AHAttr{DLID: lidOf(1, 1)})
	back := b.ah(AHAttr{DLID: lidOf(0, 1)})
	a.recv(9, a.sge(500, 100))
	a.datagram(1, ah, b.qp.num, 0x1234, 8)
	a.post(SendWR{WRID: 2, Opcode: WRSend, SGList: []SGE{{Addr: memVA, Length: 8, LKey: 1}}, AH: ah,
		RemoteQPN: b.qp.num})
	a.datagram(3, ah, b.qp.num, 0x1234, 8)
	w.run()
	a.sent("1 SEND SUCCESS len=8", "2 SEND LOC_PROT_ERR", "3 SEND WR_FLUSH_ERR")
	if a.qp.state != StateSQE {
		t.Fatalf("in %v, want SQE", a.qp.state)
	}
	a.datagram(4, ah, b.qp.num, 0x1234, 8)
	a.sent("4 SEND WR_FLUSH_ERR")
	b.datagram(5, back, a.qp.num, 0x1234, 8)
	w.run()
	a.received("9 RECV SUCCESS len=48")
	ok(t, a.h.ModifyQP(a.qp, QPAttr{State: StateRTS, CurState: StateSQE}, MaskState|MaskCurState))
	b.recv(6, b.sge(0, 100))
	a.datagram(7, ah, b.qp.num, 0x1234, 8)
	w.run()
	a.sent("7 SEND SUCCESS len=8")
	b.received("6 RECV SUCCESS len=48")
}

// TestMulticast: members hear it, each once, the sender too unless it asked not
// to; those who left do not.
func TestMulticast(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.viaWire = true
	a, a2, quiet := w.udEnd(0, conf{}), w.udEnd(0, conf{}), w.udEnd(0, conf{blockSMC: true})
	b, b2, c := w.udEnd(1, conf{}), w.udEnd(1, conf{}), w.udEnd(2, conf{})
	members := []*end{a, a2, quiet, b, b2}
	for _, e := range members {
		ok(t, e.h.AttachMcast(e.qp, group, groupLID))
		ok(t, e.h.AttachMcast(e.qp, group, groupLID)) // once is enough
	}
	for _, e := range append(members, c) {
		for i := range 4 {
			e.recv(uint64(i), e.sge(1000*(i+1), 100))
		}
	}
	at := AHAttr{DLID: groupLID, IsGlobal: true, DGID: group}
	a.datagram(1, a.ah(at), 0xFFFFFF, 0x1234, 8)
	w.run()
	for _, e := range members {
		e.received("0 RECV SUCCESS len=48 grh")
		if !bytes.Equal(e.mem[1040:1048], a.mem[:8]) {
			t.Fatal("data differ")
		}
	}
	c.received()
	if c.h.Stats.Drops[DropNoMcast] != 1 {
		t.Fatalf("c dropped %v", c.h.Stats.Drops)
	}
	quiet.datagram(2, quiet.ah(at), 5, 0x1234, 8) // the number does not matter
	w.run()
	quiet.received()
	for _, e := range []*end{a, a2, b, b2} {
		e.received("1 RECV SUCCESS len=48 grh")
	}
	wantAttr(t, b.h.DestroyQP(b.qp), "destroy_qp", "qp", ErrBusy)
	ok(t, b.h.DetachMcast(b.qp, group, groupLID))
	wantAttr(t, b.h.DetachMcast(b.qp, group, groupLID), "detach_mcast", "gid", ErrInvalid)
	a.datagram(3, a.ah(at), 0xFFFFFF, 0x1234, 8)
	w.run()
	b.received()
	b2.received("2 RECV SUCCESS len=48 grh")
	// A wrong Q_Key, and no receive at one member: the others hear it.
	a.datagram(4, a.ah(at), 0xFFFFFF, 0x4444, 8)
	w.run()
	if b2.h.Port(1).QKeyViolations != 1 {
		t.Fatalf("Q_Key violations: %d", b2.h.Port(1).QKeyViolations)
	}
	a.h.drain()
	for _, e := range []*end{a, a2, quiet, b2} {
		ok(t, e.h.DetachMcast(e.qp, group, groupLID))
	}
	a.datagram(5, a.ah(at), 0xFFFFFF, 0x1234, 8)
	w.run()
	if len(a.h.mcast)+len(b.h.mcast) != 0 {
		t.Fatal("groups without members are left")
	}
	w.close()
}

func TestMulticastRefused(t *testing.T) {
	w := newWorld(t, 1, 1)
	h := w.hosts[0]
	h.cfg.Limits.MaxMcastGrp, h.cfg.Limits.MaxMcastQPAttach = 1, 1
	u, u2, rc := w.udEnd(0, conf{}), w.udEnd(0, conf{}), w.newEnd(0, conf{})
	wantAttr(t, h.AttachMcast(rc.qp, group, groupLID), "attach_mcast", "qp", ErrInvalid)
	wantAttr(t, h.AttachMcast(nil, group, groupLID), "attach_mcast", "qp", ErrInvalid)
	wantAttr(t, h.AttachMcast(u.qp, ib.GID{0xFE}, groupLID), "attach_mcast", "gid", ErrInvalid)
	wantAttr(t, h.AttachMcast(u.qp, group, 0xBFFF), "attach_mcast", "lid", ErrInvalid)
	ok(t, h.AttachMcast(u.qp, group, groupLID))
	wantAttr(t, h.AttachMcast(u2.qp, group, groupLID), "attach_mcast", "qp", ErrNoMemory)
	wantAttr(t, h.AttachMcast(u2.qp, group, groupLID+1), "attach_mcast", "group", ErrNoMemory)
	_, err := h.CreateAH(u.pd, AHAttr{DLID: groupLID})
	wantAttr(t, err, "create_ah", "ah_attr.is_global", ErrInvalid)
}

// TestSpecialQPs: QP0 and QP1 send and receive datagrams, QP1 in any of the
// port's partitions.
func TestSpecialQPs(t *testing.T) {
	w := newWorld(t, 2, 1)
	a1, b1 := w.udEnd(0, conf{typ: GSI}), w.udEnd(1, conf{typ: GSI})
	a0, b0 := w.udEnd(0, conf{typ: SMI}), w.udEnd(1, conf{typ: SMI})
	if a0.qp.num != 0 || b1.qp.num != 1 {
		t.Fatalf("numbers %v and %v", a0.qp.num, b1.qp.num)
	}
	_, err := a0.h.CreateQP(QPInit{Type: SMI, PD: a0.pd, SendCQ: a0.scq, RecvCQ: a0.rcq})
	wantAttr(t, err, "create_qp", "qp_type", ErrBusy)
	b1.recv(1, b1.sge(0, 300))
	a1.datagram(1, a1.ah(AHAttr{DLID: lidOf(1, 1)}), 1, 0x1234, 256)
	w.run()
	b1.received("1 RECV SUCCESS len=296")
	a1.sent("1 SEND SUCCESS len=256")
	if !bytes.Equal(a1.mem[:256], b1.mem[40:296]) {
		t.Fatal("data differ")
	}
	// A new partition is followed at once.
	for _, e := range []*end{a1, b1} {
		p := *e.h.Port(1)
		p.PKeys = []ib.PKey{0x8005, 0xFFFF}
		e.h.SetPort(1, p)
	}
	b1.recv(2, b1.sge(0, 300))
	a1.datagram(2, a1.ah(AHAttr{DLID: lidOf(1, 1)}), 1, 0x1234, 8)
	w.pump()
	if k := w.flight[0].p.BTH.PKey; k != 0x8005 {
		t.Fatalf("sent with P_Key %v", k)
	}
	w.run()
	b1.received("2 RECV SUCCESS len=48")
	b1.recv(3, b1.sge(0, 300))
	a1.datagram(3, a1.ah(AHAttr{DLID: lidOf(1, 1)}), 1, 0x1234, 8)
	w.pump()
	w.flight[0].p.BTH.PKey = 0x7FFF // a limited member of the second partition
	w.run()
	if c := poll(b1.rcq); len(c) != 1 || c[0].PKeyIndex != 1 {
		t.Fatalf("completion %+v, want P_Key index 1", c)
	}
	// QP0 by the permissive LID, before the port has an address; keys do not matter.
	b0.recv(3, b0.sge(0, 300))
	a0.datagram(3, a0.ah(AHAttr{DLID: ib.LIDPermissive}), 0, 0, 256)
	w.pump()
	b0.h.HandlePacket(w.now, 1, &w.flight[0].p)
	b0.received("3 RECV SUCCESS len=296")
	// All of them fail with the device.
	b0.h.drain()
	b0.h.Fail()
	if b0.qp.state != StateErr || b1.qp.state != StateErr {
		t.Fatalf("QP0 %v, QP1 %v after the device failed", b0.qp.state, b1.qp.state)
	}
	b0.wantEvents("DEVICE_FATAL")
}
