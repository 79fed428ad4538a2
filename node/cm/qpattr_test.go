package cm

import (
	"testing"

	"softib/proto/ib"
)

// attrs connects and says what both sides' queue pairs are told, in all states in order: INIT, RTR, RTS.
func attrs(t *testing.T, change func(*ReqParams)) (a, b [3]QPAttr) {
	w := newWorld(t, 1)
	w.ports[1].SetAttr(PortAttr{LMC: 1, GIDs: []ib.GID{{1}, gidOf(1)}, PKeys: []ib.PKey{0, 0x7FFF, 0xFFFF}})
	w.listen(1)
	r := req(0, 1, 0x10)
	r.Primary.PKeyIndex = 4
	change(&r)
	ids := [2]ConnID{w.connect(0, r)}
	ids[1] = w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, ids[1], rep(0x20)))
	w.until(0, RepReceived)
	w.must(w.ports[0].Ready(w.now, ids[0], nil))
	w.until(1, RTUReceived)
	for i := range 3 {
		for who, to := range [2]*[3]QPAttr{&a, &b} {
			x, err := w.ports[who].QPAttr(ids[who], QPState(i+1))
			w.must(err)
			to[i] = x
		}
	}
	return a, b
}

const (
	maskInit = QPHasState | QPHasAccess | QPHasPKeyIndex | QPHasPort
	maskRTR  = QPHasState | QPHasAV | QPHasPathMTU | QPHasDestQPN | QPHasRQPSN
	maskRC   = QPHasMaxDestRD | QPHasMinRNRTimer
	maskRTS  = QPHasState | QPHasSQPSN
	maskSend = QPHasTimeout | QPHasRetryCnt | QPHasRNRRetry | QPHasMaxRDAtomic
)

func TestQPAttrRC(t *testing.T) {
	a, b := attrs(t, func(*ReqParams) {})
	access := uint32(AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic)
	// A's REQ: 3 served, 5 started; B's REP: 5 served, 3 started. Ack timeouts: life 2^8 twice, delay 2^10.
	wantA := [3]QPAttr{
		{Mask: maskInit, State: QPInit, Access: access, PKeyIndex: 4, Port: 1},
		{Mask: maskRTR | maskRC, State: QPRTR, AH: AHAttr{DLID: 2, SL: 3, StaticRate: 3, Port: 1}, PathMTU: ib.MTU2048,
			DestQPN: 0x20, RQPSN: 0x111111, MaxDestRD: 3},
		{Mask: maskRTS | maskSend, State: QPRTS, SQPSN: 0x222222, Timeout: 11, RetryCnt: 6, RNRRetry: 2,
			MaxRDAtomic: 5},
	}
	wantB := [3]QPAttr{
		{Mask: maskInit, State: QPInit, Access: access, PKeyIndex: 2, Port: 1},
		{Mask: maskRTR | maskRC, State: QPRTR, AH: AHAttr{DLID: 1, SL: 3, StaticRate: 3, Port: 1}, PathMTU: ib.MTU2048,
			DestQPN: 0x10, RQPSN: 0x222222, MaxDestRD: 5},
		{Mask: maskRTS | maskSend, State: QPRTS, SQPSN: 0x111111, Timeout: 11, RetryCnt: 6, RNRRetry: 7,
			MaxRDAtomic: 3},
	}
	if a != wantA {
		t.Errorf("A:\n got %+v\nwant %+v", a, wantA)
	}
	if b != wantB {
		t.Errorf("B:\n got %+v\nwant %+v", b, wantB)
	}
}

func TestQPAttrKinds(t *testing.T) {
	for _, tc := range []struct {
		transport              Transport
		rtrA, rtsA, rtrB, rtsB QPMask
	}{
		{RC, maskRTR | maskRC, maskRTS | maskSend, maskRTR | maskRC, maskRTS | maskSend},
		{UC, maskRTR, maskRTS, maskRTR, maskRTS},
		{XRC, maskRTR, maskRTS | maskSend, maskRTR | maskRC, maskRTS | QPHasTimeout},
	} {
		a, b := attrs(t, func(r *ReqParams) { r.Transport = tc.transport })
		if a[1].Mask != tc.rtrA || a[2].Mask != tc.rtsA || b[1].Mask != tc.rtrB || b[2].Mask != tc.rtsB {
			t.Errorf("%v: masks %#x %#x %#x %#x", tc.transport, a[1].Mask, a[2].Mask, b[1].Mask, b[2].Mask)
		}
	}
}

func TestQPAttrAlternate(t *testing.T) {
	a, b := attrs(t, func(r *ReqParams) {
		alt := path(0, 1)
		alt.SL, alt.SLID, alt.DLID, alt.PacketLifeTime, alt.PathBits = 5, 9, 0x13, 14, 1
		r.Alternate = &alt
	})
	for i, x := range [2][3]QPAttr{a, b} {
		want := [2]AHAttr{{DLID: 0x13, SL: 5, StaticRate: 3, SrcPath: 1, Port: 1},
			{DLID: 9, SL: 5, StaticRate: 3, SrcPath: 1, Port: 1}}[i]
		if x[1].Mask&QPHasAltPath == 0 || x[2].Mask&QPHasPathMigState == 0 || x[1].AltAH != want ||
			x[2].PathMigState != MigRearm || x[1].AltTimeout != 15 || x[1].AltPort != 1 {
			t.Errorf("%s: %+v", side(i), x[1:])
		}
	}
}

// TestQPAttrRouted: a path that may leave the subnet has a global route, and its LIDs are those of routers, which each
// side knows for itself.
func TestQPAttrRouted(t *testing.T) {
	a, b := attrs(t, func(r *ReqParams) { r.Primary.HopLimit, r.Primary.TClass, r.Primary.FlowLabel = 64, 7, 0xABCDE })
	for i, x := range [2][3]QPAttr{a, b} {
		want := AHAttr{DLID: lid(1 - i), SL: 3, StaticRate: 3, IsGlobal: true, DGID: gidOf(1 - i), FlowLabel: 0xABCDE,
			SGIDIndex: uint8(i), HopLimit: 64, TClass: 7, Port: 1}
		if x[1].AH != want {
			t.Errorf("%s:\n got %+v\nwant %+v", side(i), x[1].AH, want)
		}
	}
}

func TestAckTimeout(t *testing.T) {
	for _, tc := range []struct{ delay, life, want uint8 }{
		{0, 0, 2}, {0, 1, 2}, {15, 18, 19}, {18, 18, 20}, {19, 18, 20}, {20, 18, 21}, {21, 18, 21}, {31, 0, 31},
		{0, 63, 31}, {31, 30, 31},
	} {
		if got := ackTimeout(tc.delay, tc.life); got != tc.want {
			t.Errorf("delay %d, life %d: %d, want %d", tc.delay, tc.life, got, tc.want)
		}
	}
}
