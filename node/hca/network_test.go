package hca

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// ipv4 is an address as a GID.
func ipv4(last byte) ib.GID { return ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 14: 2, 15: last} }

// onNetwork is an adapter of Ethernet with a reliable queue pair towards queue pair 77 of ipv4(2), and a WRITE of
// 64 KiB to it.
func onNetwork(t *testing.T, roce RoCE) (*HCA, *QP, *CQ) {
	t.Helper()
	roce.On, roce.ByGID = true, true
	h := New(Config{RoCE: roce})
	h.SetPort(1, Port{State: ib.PortActive, LID: LIDPort, MTU: ib.MTU1024, GIDs: []ib.GID{ipv4(1)},
		PKeys: []ib.PKey{ib.PKeyDefault}})
	pd, cq := must(h.AllocPD())(t), must(h.CreateCQ(16))(t)
	mr := must(h.RegMR(pd, make([]byte, 1<<16), memVA, AccessLocalWrite))(t)
	q := must(h.CreateQP(QPInit{Type: RC, PD: pd, SendCQ: cq, RecvCQ: cq, Caps: Caps{MaxSendWR: 16, MaxSendSGE: 1}}))(t)
	ok(t, h.ModifyQP(q, QPAttr{State: StateInit, Port: 1}, MaskState|pkPortAcc))
	ok(t, h.ModifyQP(q, QPAttr{State: StateRTR, AH: AHAttr{IsGlobal: true, DGID: ipv4(2), Port: 1}, PathMTU: ib.MTU1024,
		DestQPN: 77}, MaskState|ucRTR|MaskMaxDestRD|MaskMinRNRTimer))
	ok(t, h.ModifyQP(q, QPAttr{State: StateRTS, Timeout: 10, RetryCnt: 7}, MaskState|MaskSQPSN|rtsRC))
	ok(t, h.PostSend(q, &SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled,
		SGList: []SGE{{Addr: memVA, Length: 1 << 16, LKey: mr.LKey()}}}))
	return h, q, cq
}

// sendAll emits what may go, and returns it.
func sendAll(h *HCA, now ib.Time) (packets []wire.Packet) {
	for s, has := h.NextSend(); has; s, has = h.NextSend() {
		var p wire.Packet
		if h.Emit(now, s, &p, make([]byte, 4096)) {
			packets = append(packets, p)
		}
	}
	return packets
}

// No more than the window is under way. Acknowledgements of the peer move it on, and those of nobody else.
func TestWindow(t *testing.T) {
	const window = 8
	h, q, cq := onNetwork(t, RoCE{Window: window})
	next := ib.PSN(0)
	for next < 64 {
		got := sendAll(h, 0)
		if len(got) != window {
			t.Fatalf("%d packets, want %d", len(got), window)
		}
		asks := 0
		for _, p := range got {
			if p.LRH.LNH != wire.LNHGlobal || p.LRH.DLID != LIDNetwork || p.GRH.DGID != ipv4(2) || p.BTH.PSN != next {
				t.Fatalf("packet %d: %+v %+v %+v", next, p.LRH, p.GRH, p.BTH)
			}
			if p.BTH.AckReq {
				asks++
			}
			next++
		}
		if asks != 4 {
			t.Errorf("%d of a window ask for an acknowledgement, want 4", asks)
		}
		ack := wire.Packet{LRH: wire.LRH{LNH: wire.LNHGlobal}}
		ack.GRH = wire.GRH{SGID: ipv4(3), DGID: ipv4(1)}
		ack.BTH = wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpAck), PKey: ib.PKeyDefault, DestQP: q.num,
			PSN: next - 1}
		ack.AETH = wire.AETH{Syndrome: wire.SynAckNoCred}
		FromNetwork(&ack)
		h.HandlePacket(0, 1, &ack)
		if h.Stats.Drops[DropAddress] == 0 || len(sendAll(h, 0)) != 0 {
			t.Fatal("a stranger's acknowledgement counts")
		}
		ack.GRH.SGID = ipv4(2)
		h.HandlePacket(0, 1, &ack)
	}
	if wcs := poll(cq); len(wcs) != 1 || wcs[0].Status != WCSuccess {
		t.Errorf("%+v", wcs)
	}
}

// Where nobody answers, a queue pair waits for 1, 2 and then 4 of its timeouts, and gives up after the seventh try.
func TestPatience(t *testing.T) {
	h, _, cq := onNetwork(t, RoCE{Window: 8})
	now := ib.Time(0)
	sendAll(h, now)
	var waits []ib.Time
	for len(waits) < 20 && cq.Len() == 0 {
		at := h.NextDeadline()
		waits = append(waits, (at-now)/ib.AckTimeout(10))
		now = at
		h.HandleTimeout(now)
		sendAll(h, now)
	}
	want := []ib.Time{1, 2, 4, 4, 4, 4, 4, 4}
	if len(waits) != len(want) {
		t.Fatalf("it waited %v, want %v", waits, want)
	}
	for i := range want {
		if waits[i] != want[i] {
			t.Fatalf("it waited %v, want %v", waits, want)
		}
	}
	if wcs := poll(cq); len(wcs) != 1 || wcs[0].Status != WCRetryExcErr {
		t.Errorf("%+v", wcs)
	}
}
