package cm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestUnknownService(t *testing.T) {
	w := newWorld(t, 1)
	a := w.connect(0, req(0, 1, 0x10))
	e := w.until(0, RejReceived)
	if e.ID != a || e.Rej.Reason != mad.RejInvalidServiceID || e.Rej.Message != mad.CMMessageReq ||
		e.Rej.LocalCommID != 0 {
		t.Errorf("event %+v", e.Rej)
	}
	w.state(0, a, Closed)
	w.must(w.ports[0].Destroy(w.now, a))
	w.idle()
	w.said("A REQ", "B REJ")
	w.drained()
}

func TestReject(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	var lost []byte
	w.each = func(to int, dgram []byte) bool {
		if to == 0 && lost == nil {
			lost = bytes.Clone(dgram)
			return false
		}
		return true
	}
	w.must(w.ports[1].Reject(w.now, b, mad.RejConsumer, []byte{1, 2, 3}, []byte("no")))
	w.must(w.ports[1].Destroy(w.now, b))
	// The REJ is lost: the REQ is repeated, and answered with the same REJ though the ID is gone.
	e := w.until(0, RejReceived)
	if e.Rej.Reason != mad.RejConsumer || !bytes.Equal(e.Rej.ARI(), []byte{1, 2, 3}) ||
		!bytes.HasPrefix(e.Private, []byte("no")) {
		t.Errorf("event %+v", e.Rej)
	}
	if got := e.Rej.Append(nil); !bytes.Equal(got, lost[mad.CMDataOff:]) {
		t.Errorf("another REJ:\n%x\n%x", got, lost)
	}
	w.said("A REQ", "B REJ", "A REQ", "B REJ")
	w.must(w.ports[0].Destroy(w.now, e.ID))
	w.idle()
	w.drained()
}

// TestNobodyAnswers counts the times that a REQ is sent and when it is given up.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, 1)
	w.drop = 1
	r := req(0, 1, 0x10)
	a := w.connect(0, r)
	w.until(0, ReqError)
	each := 2*span(r.Primary.PacketLifeTime) + span(r.RemoteCMTimeout)
	if want := ib.Time(r.MaxCMRetries+1) * each; w.now != want {
		t.Errorf("given up after %v, want %v", w.now, want)
	}
	w.said("A REQ", "A REQ", "A REQ", "A REQ", "A REQ", "A REJ")
	w.state(0, a, Closed)
	if c := w.ports[0].Counters(); c.Retries != 4 || c.Timeouts != 1 || c.Sent != 6 {
		t.Errorf("counters %+v", c)
	}
	w.must(w.ports[0].Destroy(w.now, a))
	w.drained()
}

// TestGivenUpIsTold: the side that was asked and has not decided learns that the other gave up.
func TestGivenUpIsTold(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	w.until(0, ReqError)
	if e := w.until(1, RejReceived); e.ID != b || e.Rej.Reason != mad.RejTimeout ||
		binary.BigEndian.Uint64(e.Rej.ARI()) != uint64(caGUID(0)) {
		t.Errorf("event %+v", e.Rej)
	}
	w.state(1, b, Closed)
	if err := w.ports[1].Accept(w.now, b, rep(0x20)); !errors.Is(err, ErrState) {
		t.Errorf("Accept: %v", err)
	}
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[1].Destroy(w.now, b))
	w.idle()
	w.drained()
}

func TestLostREPAndRTU(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	lose := map[mad.AttrID]int{mad.AttrCMRep: 1, mad.AttrCMRTU: 2}
	w.each = func(_ int, dgram []byte) bool {
		attr := mad.View(dgram).AttrID()
		lose[attr]--
		return lose[attr] < 0
	}
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.must(w.ports[0].Ready(w.now, a, []byte("go")))
	if e := w.until(1, RTUReceived); !bytes.HasPrefix(e.Private, []byte("go")) {
		t.Errorf("event %+v", e.RTU)
	}
	if n := strings.Count(fmt.Sprint(w.log), "B REP"); n < 3 || n > 4 {
		t.Errorf("said %v", w.log)
	}
	w.idle()
	w.state(0, a, StateEstablished)
	w.state(1, b, StateEstablished)
}

// TestNobodyIsReady: a REP that is never answered ends at both sides.
func TestNobodyIsReady(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.until(1, RepError)
	if e := w.until(0, RejReceived); e.ID != a || e.Rej.Reason != mad.RejTimeout {
		t.Errorf("event %+v", e.Rej)
	}
	w.state(0, a, Timewait)
	w.state(1, b, Closed)
	w.until(0, TimewaitExit)
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[1].Destroy(w.now, b))
	w.idle()
	w.drained()
}

func TestDelay(t *testing.T) {
	for _, repeated := range []bool{false, true} {
		w := newWorld(t, 1)
		w.listen(1)
		a := w.connect(0, req(0, 1, 0x10))
		b := w.until(1, ReqReceived).ID
		const long = 16 // 268 ms
		if repeated {
			w.must(w.ports[1].DelayRepeated(b, long, nil))
		} else {
			w.must(w.ports[1].Delay(w.now, b, long, []byte("wait")))
		}
		start := w.now
		e := w.until(0, MRAReceived)
		if e.MRA.ServiceTimeout != long || e.MRA.Message != mad.CMMessageReq {
			t.Errorf("event %+v", e.MRA)
		}
		w.state(0, a, MRAReqRcvd)
		w.state(1, b, MRAReqSent)
		if repeated {
			w.said("A REQ", "A REQ", "B MRA")
		} else {
			w.said("A REQ", "B MRA")
			if !bytes.HasPrefix(e.Private, []byte("wait")) {
				t.Error("private data")
			}
		}
		if d := w.ports[0].NextDeadline(); d < start+span(long) {
			t.Errorf("waits until %v only", d)
		}
		w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
		w.until(0, RepReceived)
		// And the other way round.
		w.must(w.ports[0].Delay(w.now, a, long, nil))
		if e := w.until(1, MRAReceived); e.MRA.Message != mad.CMMessageRep {
			t.Errorf("event %+v", e.MRA)
		}
		w.state(0, a, MRARepSent)
		w.state(1, b, MRARepRcvd)
		// It asks again after the time is over, and is told again.
		w.log = nil
		w.step()
		w.settle()
		w.said("B REP", "A MRA")
		w.must(w.ports[0].Ready(w.now, a, nil))
		w.until(1, RTUReceived)
		w.idle()
	}
}

// TestStale: the other side has lost its memory and connects a queue pair anew that it had before.
func TestStale(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	_, b := w.establish(0x10, 0x20)
	w.ports[0] = New(Config{Rand: w.rng, CAGUID: caGUID(0), AckDelay: 10})
	w.log = nil
	a := w.connect(0, req(0, 1, 0x10))
	if e := w.until(0, RejReceived); e.ID != a || e.Rej.Reason != mad.RejStaleConnection {
		t.Errorf("event %+v", e.Rej)
	}
	w.state(0, a, Timewait)
	if e := w.until(1, DRepReceived); e.ID != b {
		t.Errorf("event %+v", e)
	}
	w.said("A REQ", "B DREQ", "B REJ", "A DREP")
	// In time wait the old one is no obstacle any more.
	a2 := w.connect(0, req(0, 1, 0x10))
	b2 := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Reject(w.now, b2, mad.RejConsumer, nil, nil))
	if e := w.until(0, RejReceived); e.ID != a2 {
		t.Errorf("event %+v", e)
	}
	w.until(0, TimewaitExit)
	w.until(1, TimewaitExit)
	for i, ids := range [2][]ConnID{{a, a2}, {b, b2}} {
		for _, id := range ids {
			w.must(w.ports[i].Destroy(w.now, id))
		}
	}
	w.idle()
	w.drained()
}

// TestStaleREP: it is the accepting side that has lost its memory.
func TestStaleREP(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	old, _ := w.establish(0x10, 0x20)
	w.ports[1] = New(Config{Rand: w.rng, CAGUID: caGUID(1), AckDelay: 10})
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x11))
	b := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	if e := w.until(1, RejReceived); e.ID != b || e.Rej.Reason != mad.RejStaleConnection ||
		e.Rej.Message != mad.CMMessageRep {
		t.Errorf("event %+v", e.Rej)
	}
	if e := w.until(0, DRepReceived); e.ID != old {
		t.Errorf("event %+v", e)
	}
	w.state(1, b, Timewait)
	// The REQ is repeated, as its answer was of no use, and refused; the next attempt finds no obstacle.
	w.until(1, TimewaitExit)
	w.until(0, TimewaitExit)
	if e := w.until(0, RejReceived); e.ID != a || e.Rej.Reason != mad.RejStaleConnection {
		t.Errorf("event %+v", e.Rej)
	}
	w.until(0, TimewaitExit)
	w.establish(0x11, 0x20)
	w.idle()
}

// TestBothDisconnect: two DREQs that cross.
func TestBothDisconnect(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a, b := w.establish(0x10, 0x20)
	w.must(w.ports[0].Disconnect(w.now, a, nil))
	w.must(w.ports[1].Disconnect(w.now, b, nil))
	w.until(0, DReqReceived)
	w.until(1, DReqReceived)
	w.must(w.ports[0].Disconnect(w.now, a, nil))
	w.state(0, a, Timewait)
	w.until(1, DRepReceived)
	w.state(1, b, Timewait)
	w.until(0, TimewaitExit)
	w.until(1, TimewaitExit)
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[1].Destroy(w.now, b))
	w.idle()
	w.drained()
}

func TestDisconnectFromTheDead(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a, b := w.establish(0x10, 0x20)
	w.drop = 1
	w.must(w.ports[0].Disconnect(w.now, a, nil))
	w.until(0, DReqError)
	w.state(0, a, Timewait)
	w.until(0, TimewaitExit)
	w.must(w.ports[0].Destroy(w.now, a))
	w.drop = 0
	// One that is not known any more is agreed to.
	w.log = nil
	w.must(w.ports[1].Disconnect(w.now, b, nil))
	w.until(1, DRepReceived)
	w.said("B DREQ", "A DREP")
}

func TestRTUOvertaken(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	if err := w.ports[1].Established(w.now, b); !errors.Is(err, ErrState) {
		t.Errorf("Established: %v", err)
	}
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.drop = 1
	w.must(w.ports[0].Ready(w.now, a, nil))
	w.flush()
	w.drop = 0
	w.must(w.ports[1].Established(w.now, b)) // data came
	w.until(1, Established)
	w.idle()
	w.state(1, b, StateEstablished)
}

// TestDestroyAnywhere destroys either side's ID in every state that it can be in. The other side always comes to an
// end, and nothing is left over.
func TestDestroyAnywhere(t *testing.T) {
	seen := map[State]bool{}
	for who := range 2 {
		for steps := range 12 {
			w := newWorld(t, uint64(steps))
			w.listen(1)
			ids := [2]ConnID{w.connect(0, req(0, 1, 0x10)), 0}
			script := []func(){
				func() {},
				func() { ids[1] = w.until(1, ReqReceived).ID },
				func() { w.must(w.ports[1].Delay(w.now, ids[1], 14, nil)) },
				func() { w.until(0, MRAReceived) },
				func() { w.must(w.ports[1].Accept(w.now, ids[1], rep(0x20))) },
				func() { w.until(0, RepReceived) },
				func() { w.must(w.ports[0].Delay(w.now, ids[0], 14, nil)); w.until(1, MRAReceived) },
				func() { w.must(w.ports[0].Ready(w.now, ids[0], nil)) },
				func() { w.until(1, RTUReceived) },
				func() { w.must(w.ports[0].Disconnect(w.now, ids[0], nil)) },
				func() { w.until(1, DReqReceived) },
				func() { w.must(w.ports[1].Disconnect(w.now, ids[1], nil)); w.until(0, DRepReceived) },
			}
			for _, f := range script[:steps+1] {
				f()
			}
			if ids[who] == 0 {
				continue
			}
			info, ok := w.ports[who].Info(ids[who])
			if !ok {
				t.Fatal("no such connection")
			}
			seen[info.State] = true
			what := fmt.Sprintf("%s destroyed in %s", side(who), info.State)
			w.must(w.ports[who].Destroy(w.now, ids[who]))
			if _, ok := w.ports[who].Info(ids[who]); ok {
				t.Errorf("%s: still known", what)
			}
			// The other side does what every program does.
			other := 1 - who
			if info, ok := w.ports[other].Info(ids[other]); ok && info.State == DReqRcvd {
				w.must(w.ports[other].Disconnect(w.now, ids[other], nil))
			}
			for {
				e, ok := w.ports[other].PollEvent()
				if ok {
					switch e.Kind {
					case ReqReceived:
						ids[other] = e.ID
						w.must(w.ports[other].Accept(w.now, e.ID, rep(0x21)))
					case RepReceived:
						w.must(w.ports[other].Ready(w.now, e.ID, nil))
					case DReqReceived:
						w.must(w.ports[other].Disconnect(w.now, e.ID, nil))
					}
					continue
				}
				if !w.step() {
					break
				}
			}
			if e, ok := w.ports[who].PollEvent(); ok {
				t.Errorf("%s: event %s afterwards", what, e.Kind)
			}
			if ids[other] != 0 {
				w.state(other, ids[other], Closed)
				w.must(w.ports[other].Destroy(w.now, ids[other]))
			}
			w.idle()
			w.drained()
		}
	}
	for s := ReqSent; s <= Timewait; s++ {
		if !seen[s] {
			t.Errorf("never destroyed in %s", s)
		}
	}
}

func TestLoopback(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(0)
	a := w.connect(0, req(0, 0, 0x10))
	b := w.until(0, ReqReceived).ID
	w.must(w.ports[0].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.must(w.ports[0].Ready(w.now, a, nil))
	w.until(0, RTUReceived)
	w.must(w.ports[0].Disconnect(w.now, b, nil))
	w.until(0, DReqReceived)
	w.must(w.ports[0].Disconnect(w.now, a, nil))
	w.until(0, DRepReceived)
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[0].Destroy(w.now, b))
	w.idle()
	w.drained()
}

func TestRefusals(t *testing.T) {
	alt := path(0, 1)
	alt.DGID = gidOf(7)
	for _, tc := range []struct {
		what   string
		change func(*ReqParams, *mad.CMReq)
		reason mad.CMReason
		ari    []byte
	}{
		{"GID", func(r *ReqParams, _ *mad.CMReq) { r.Primary.DGID = gidOf(7) }, mad.RejInvalidGID, ptr(gidOf(1))[:]},
		{"alternate GID", func(r *ReqParams, _ *mad.CMReq) { r.Alternate = &alt }, mad.RejInvalidAltGID,
			ptr(gidOf(1))[:]},
		{"partition", func(r *ReqParams, _ *mad.CMReq) { r.Primary.PKey = 0x8002 }, mad.RejInvalidGID,
			ptr(gidOf(1))[:]},
		{"no partition", func(r *ReqParams, _ *mad.CMReq) { r.Primary.PKey = 0 }, mad.RejInvalidGID, ptr(gidOf(1))[:]},
		{"limited members", func(r *ReqParams, _ *mad.CMReq) { r.Primary.PKey = 0x0003 }, mad.RejInvalidGID,
			ptr(gidOf(1))[:]},
		{"RD", func(_ *ReqParams, m *mad.CMReq) { m.Transport = mad.CMReliableDatagram }, mad.RejInvalidTransport, nil},
		{"extended", func(_ *ReqParams, m *mad.CMReq) { m.Transport, m.ExtendedTransport = mad.CMExtended, 5 },
			mad.RejInvalidTransport, nil},
		{"MTU", func(_ *ReqParams, m *mad.CMReq) { m.PathMTU = 9 }, mad.RejInvalidMTU, []byte{0x50}},
	} {
		w := newWorld(t, 1)
		w.ports[1].SetAttr(PortAttr{GIDs: []ib.GID{gidOf(1)}, PKeys: []ib.PKey{0xFFFF, 0, 0x0003}})
		w.listen(1)
		r := req(0, 1, 0x10)
		tc.change(&r, new(mad.CMReq))
		w.each = func(to int, b []byte) bool {
			if to == 1 && mad.View(b).AttrID() == mad.AttrCMReq {
				m := parse[mad.CMReq](mad.View(b).Data())
				tc.change(new(ReqParams), m)
				copy(b[mad.CMDataOff:], m.Append(nil))
			}
			return true
		}
		w.connect(0, r)
		if e := w.until(0, RejReceived); e.Rej.Reason != tc.reason || !bytes.Equal(e.Rej.ARI(), tc.ari) {
			t.Errorf("%s: reason %v, information %x; want %v, %x", tc.what, e.Rej.Reason, e.Rej.ARI(), tc.reason,
				tc.ari)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestPendingMax(t *testing.T) {
	w := newWorld(t, 1)
	w.ports[1] = New(Config{Rand: w.rng, PendingMax: 2})
	w.listen(1)
	for i := range 3 {
		w.connect(0, req(0, 1, ib.QPN(0x10+i)))
	}
	w.settle()
	if e := w.until(0, RejReceived); e.Rej.Reason != mad.RejNoResources {
		t.Errorf("reason %v", e.Rej.Reason)
	}
	b := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.connect(0, req(0, 1, 0x14))
	w.settle()
	w.until(1, ReqReceived)
	w.until(1, ReqReceived)
	if _, err := w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service,
		Timeout: ms}); err != nil {
		t.Fatal(err)
	}
	w.until(0, RepReceived)
	if e := w.until(0, SIDRRepReceived); e.SIDRRep.Status != mad.SIDRNoQP {
		t.Errorf("status %v", e.SIDRRep.Status)
	}
}

func TestLAP(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a, b := w.establish(0x10, 0x20)
	for _, tc := range []struct {
		remote uint32
		want   mad.APStatus
	}{{uint32(b), mad.APUnsupported}, {uint32(b) + 1, mad.APInvalidCommID}} {
		m := format(mad.AttrCMLAP, 5, &mad.CMLAP{LocalCommID: uint32(a), RemoteCommID: tc.remote, RemoteQPN: 0x20})
		if !w.ports[1].Handle(w.now, mad.Envelope{LID: 1, QPN: 1}, m[:]) {
			t.Error("not taken")
		}
		env, dgram, ok := w.ports[1].PollSend()
		if !ok || env.LID != 1 || mad.View(dgram[:]).AttrID() != mad.AttrCMAPR {
			t.Fatal("no APR")
		}
		if r := parse[mad.CMAPR](mad.View(dgram[:]).Data()); r.Status != tc.want || r.RemoteCommID != uint32(a) ||
			r.LocalCommID != tc.remote {
			t.Errorf("answer %+v, want %v", r, tc.want)
		}
	}
	w.state(1, b, StateEstablished)
}

func TestListen(t *testing.T) {
	p := New(Config{Rand: newWorld(t, 1).rng})
	const full = ^uint64(0)
	l1, err := p.Listen(0x1234, full)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Listen(0x1234, full); !errors.Is(err, ErrInUse) {
		t.Errorf("the same again: %v", err)
	}
	if _, err := p.Listen(0x1200, ^uint64(0xFF)); !errors.Is(err, ErrInUse) {
		t.Errorf("all around it: %v", err)
	}
	l2, err := p.Listen(0x77AB, ^uint64(0xFF))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Listen(0x77FF, full); !errors.Is(err, ErrInUse) {
		t.Errorf("within: %v", err)
	}
	if _, err := p.Listen(0x7000, ^uint64(0xFFF)); !errors.Is(err, ErrInUse) {
		t.Errorf("around a masked one: %v", err)
	}
	for id, want := range map[uint64]ListenID{0x1234: l1, 0x7700: l2, 0x77FF: l2, 0x7800: 0, 0x1235: 0} {
		if got, ok := p.listeners.find(id); got != want || ok != (want != 0) {
			t.Errorf("%#x is listener %d's, want %d", id, got, want)
		}
	}
	for _, l := range []ListenID{l1, l2} {
		if err := p.Unlisten(l); err != nil {
			t.Error(err)
		}
		if err := p.Unlisten(l); !errors.Is(err, ErrListen) {
			t.Errorf("twice: %v", err)
		}
	}
	if p.Listeners() != 0 || len(p.listeners.exact)+len(p.listeners.masked) != 0 {
		t.Error("listeners are left")
	}
	if _, err := p.Listen(0, 0); err != nil {
		t.Errorf("everything: %v", err)
	}
}

func TestBadCalls(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	for _, tc := range []struct {
		field  string
		change func(*ReqParams)
	}{
		{"QPN", func(r *ReqParams) { r.QPN = 1 << 24 }},
		{"StartingPSN", func(r *ReqParams) { r.StartingPSN = 1 << 24 }},
		{"Transport", func(r *ReqParams) { r.Transport = NumTransport }},
		{"RetryCount", func(r *ReqParams) { r.RetryCount = 8 }},
		{"RNRRetryCount", func(r *ReqParams) { r.RNRRetryCount = 8 }},
		{"MaxCMRetries", func(r *ReqParams) { r.MaxCMRetries = 16 }},
		{"RemoteCMTimeout", func(r *ReqParams) { r.RemoteCMTimeout = 32 }},
		{"LocalCMTimeout", func(r *ReqParams) { r.LocalCMTimeout = 32 }},
		{"Primary.MTU", func(r *ReqParams) { r.Primary.MTU = 0 }},
		{"Primary.PacketLifeTime", func(r *ReqParams) { r.Primary.PacketLifeTime = 64 }},
		{"Alternate.PKey", func(r *ReqParams) { r.Alternate = ptr(r.Primary); r.Alternate.PKey = 1 }},
		{"Alternate.MTU", func(r *ReqParams) { r.Alternate = ptr(r.Primary); r.Alternate.MTU = 1 }},
		{"Private", func(r *ReqParams) { r.Private = make([]byte, 93) }},
	} {
		r := req(0, 1, 0x10)
		tc.change(&r)
		var pe *ParamError
		if _, err := w.ports[0].Connect(0, r); !errors.Is(err, ErrParam) || !errors.As(err, &pe) ||
			pe.Field != tc.field {
			t.Errorf("%s: %v", tc.field, err)
		}
	}
	a := w.connect(0, req(0, 1, 0x10))
	p, q := w.ports[0], w.ports[1]
	b := w.until(1, ReqReceived).ID
	for what, err := range map[string]error{
		"Accept at the asking side": p.Accept(0, a, rep(1)),
		"Ready too early":           p.Ready(0, a, nil),
		"Delay at the asking side":  p.Delay(0, a, 1, nil),
		"Disconnect too early":      p.Disconnect(0, a, nil),
		"SIDRReply":                 p.SIDRReply(0, a, SIDRReplyParams{}),
		"Ready at the other side":   q.Ready(0, b, nil),
	} {
		var se *StateError
		if !errors.Is(err, ErrState) || !errors.As(err, &se) || se.Want == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"private of Reject":   q.Reject(0, b, 1, nil, make([]byte, 149)),
		"ari of Reject":       q.Reject(0, b, 1, make([]byte, 73), nil),
		"private of Delay":    q.Delay(0, b, 1, make([]byte, 223)),
		"timeout of Delay":    q.Delay(0, b, 32, nil),
		"private of Accept":   q.Accept(0, b, RepParams{Private: make([]byte, 197)}),
		"QPN of Accept":       q.Accept(0, b, RepParams{QPN: 1 << 24}),
		"failover of Accept":  q.Accept(0, b, RepParams{FailoverAccepted: 3}),
		"SIDR private":        second(p.SIDRRequest(0, SIDRParams{Timeout: ms, Private: make([]byte, 217)})),
		"SIDR timeout":        second(p.SIDRRequest(0, SIDRParams{})),
		"SIDR retries":        second(p.SIDRRequest(0, SIDRParams{Timeout: ms, Retries: -1})),
		"state of QPAttr":     second(p.QPAttr(a, 0)),
		"highest life of REQ": second(p.QPAttr(a, 4)),
	} {
		if !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.state(0, a, ReqSent)
	w.state(1, b, ReqRcvd)
	for what, err := range map[string]error{
		"Accept": p.Accept(0, 1, rep(1)), "Ready": p.Ready(0, 1, nil), "Reject": p.Reject(0, 1, 1, nil, nil),
		"Disconnect": p.Disconnect(0, 1, nil),
		"Destroy":    p.Destroy(0, 1), "QPAttr": second(p.QPAttr(1, QPRTR)), "Established": p.Established(0, 1),
	} {
		if !errors.Is(err, ErrConn) {
			t.Errorf("%s of nothing: %v", what, err)
		}
	}
	if _, err := p.QPAttr(a, QPRTR); !errors.Is(err, ErrState) {
		t.Errorf("RTR before the REP: %v", err)
	}
	want := fmt.Sprintf("cm: Ready of connection 0x%08x: state is ReqSent, want RepRcvd or MRARepSent", uint32(a))
	if err := p.Ready(0, a, nil); err == nil || err.Error() != want {
		t.Errorf("error reads %q, want %q", err, want)
	}
}

func second[T any](_ T, err error) error { return err }

func TestForeignDatagrams(t *testing.T) {
	p := New(Config{Rand: newWorld(t, 1).rng})
	good := format(mad.AttrCMDReq, 1, &mad.CMDReq{})
	if !p.Handle(0, mad.Envelope{}, good[:]) {
		t.Error("a DREQ is not taken")
	}
	for what, change := range map[string]func(b []byte) []byte{
		"short":         func(b []byte) []byte { return b[:255] },
		"class":         func(b []byte) []byte { b[1] = 3; return b },
		"base version":  func(b []byte) []byte { b[0] = 0x80; return b },
		"class version": func(b []byte) []byte { b[2] = 1; return b },
		"method":        func(b []byte) []byte { b[3] = 1; return b },
		"APR":           func(b []byte) []byte { b[17] = 0x1A; return b },
		"attribute":     func(b []byte) []byte { b[16] = 0xFF; return b },
		"ClassPortInfo": func(b []byte) []byte { b[17] = 1; return b },
	} {
		if p.Handle(0, mad.Envelope{}, change(bytes.Clone(good[:]))) {
			t.Errorf("another %s is taken", what)
		}
	}
	if c := p.Counters(); c.Received != 7 || c.Malformed != 6 {
		t.Errorf("counters %+v", c)
	}
}

// TestRejectAfterAccept: the side that accepted changes its mind, and its REJ is lost.
func TestRejectAfterAccept(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.drop = 1
	w.must(w.ports[1].Reject(w.now, b, mad.RejConsumer, nil, []byte("after all")))
	w.flush()
	w.state(1, b, Timewait)
	w.drop = 0
	w.log = nil
	w.must(w.ports[0].Ready(w.now, a, nil))
	if e := w.until(0, RejReceived); e.Rej.Reason != mad.RejConsumer ||
		!bytes.HasPrefix(e.Private, []byte("after all")) {
		t.Errorf("event %+v", e.Rej)
	}
	w.said("A RTU", "B REJ")
	w.state(0, a, Timewait)
	w.until(1, TimewaitExit)
	w.until(0, TimewaitExit)
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[1].Destroy(w.now, b))
	w.idle()
	w.drained()
}

// TestAcceptTooLate: nobody waits for the REP any more, and its sender is told at once. So is the sender of a RTU.
func TestAcceptTooLate(t *testing.T) {
	w := newWorld(t, 1)
	w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	b := w.until(1, ReqReceived).ID
	w.drop = 1
	w.must(w.ports[0].Destroy(w.now, a))
	w.flush()
	w.drop = 0
	w.log = nil
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	if e := w.until(1, RejReceived); e.ID != b || e.Rej.Reason != mad.RejInvalidCommID ||
		e.Rej.Message != mad.CMMessageRep {
		t.Errorf("event %+v", e.Rej)
	}
	w.said("B REP", "A REJ")
	w.must(w.ports[1].Destroy(w.now, b))
	w.idle()
	w.drained()

	a = w.connect(0, req(0, 1, 0x10))
	b = w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.until(0, RepReceived)
	w.drop = 1
	w.must(w.ports[1].Destroy(w.now, b))
	for w.ports[1].Outstanding() > 0 {
		w.step() // time wait passes
	}
	w.drop = 0
	w.log = nil
	w.must(w.ports[0].Ready(w.now, a, nil))
	if e := w.until(0, RejReceived); e.Rej.Reason != mad.RejInvalidCommID || e.Rej.Message != mad.CMMessageOther {
		t.Errorf("event %+v", e.Rej)
	}
	w.said("A RTU", "B REJ")
}
