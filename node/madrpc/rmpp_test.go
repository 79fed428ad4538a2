package madrpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// pair is a client and a server of the SA class without a wire between them.
type pair struct {
	t              *testing.T
	client, server *Port
	c, s           AgentID
}

var (
	clientEnv = mad.Envelope{LID: 1, QPN: 1, QKey: ib.QKeyGSI} // as the server sees it
	serverEnv = mad.Envelope{LID: 2, QPN: 1, QKey: ib.QKeyGSI}
)

func newPair(t *testing.T, cfg Config) *pair {
	p := &pair{t: t, client: New(cfg), server: New(cfg)}
	p.c = register(t, p.client, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true})
	p.s = register(t, p.server, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: MethodSet(mad.MethodGetTable, mad.MethodGetMulti)})
	return p
}

// toServer and toClient carry one datagram over and return it.
func (p *pair) toServer() *[mad.Size]byte {
	p.t.Helper()
	env, b := sent(p.t, p.client)
	if env.LID != serverEnv.LID {
		p.t.Fatalf("client sends to LID %d", env.LID)
	}
	p.server.Handle(0, clientEnv, b)
	return b
}

func (p *pair) toClient() *[mad.Size]byte {
	p.t.Helper()
	env, b := sent(p.t, p.server)
	if env.LID != clientEnv.LID {
		p.t.Fatalf("server sends to LID %d", env.LID)
	}
	p.client.Handle(0, serverEnv, b)
	return b
}

// ask sends a GetTable and returns the transaction as the server sees it.
func (p *pair) ask(timeout ib.Time) uint64 {
	p.t.Helper()
	send(p.t, p.client, 0, p.c, Message{Env: serverEnv, Data: dgram(mad.ClassSA, mad.MethodGetTable, 7, 0),
		Timeout: timeout, Cookie: 70})
	p.toServer()
	d := received(p.t, p.server)
	if d.Kind != Unsolicited || d.Agent != p.s {
		p.t.Fatal(d.Kind)
	}
	return tidOf(d.Data)
}

func (p *pair) answer(tid uint64, n int, retries int) {
	p.t.Helper()
	send(p.t, p.server, 0, p.s, Message{Env: clientEnv, Data: message(mad.ClassSA, mad.MethodGetTableResp, tid, n, 3),
		Retries: retries, Cookie: 71})
}

func rmppOf(b *[mad.Size]byte) mad.RMPP {
	var h mad.RMPP
	if _, err := h.Parse(b[mad.RMPPOff:]); err != nil {
		panic(err)
	}
	return h
}

func data(seg, payload uint32, flags uint8) mad.RMPP {
	return mad.RMPP{RMPPVersion: 1, RMPPType: mad.RMPPData, RMPPFlags: flags | mad.RMPPActive, Data1: seg,
		Data2: payload}
}

func ack(seg, window uint32) mad.RMPP {
	return mad.RMPP{RMPPVersion: 1, RMPPType: mad.RMPPAck, RMPPFlags: mad.RMPPActive, Data1: seg, Data2: window}
}

func end(t mad.RMPPType, s mad.RMPPStatus) mad.RMPP {
	return mad.RMPP{RMPPVersion: 1, RMPPType: t, RMPPFlags: mad.RMPPActive, RMPPStatus: s}
}

func wantRMPP(t *testing.T, b *[mad.Size]byte, want mad.RMPP) {
	t.Helper()
	if h := rmppOf(b); h != want {
		t.Errorf("RMPP header %+v\nwant %+v", h, want)
	}
}

func TestTableWalked(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(ib.Second)
	p.answer(tid, 500, 0)
	whole := message(mad.ClassSA, mad.MethodGetTableResp, tid, 500, 3)

	// 500 bytes are three segments of 200, the last with 100 of padding. PayloadLength counts SA's 20 bytes of header
	// in each segment.
	b := p.toClient()
	wantRMPP(t, b, data(1, 3*220-100, mad.RMPPFirst))
	if !bytes.Equal(b[56:], whole[56:256]) || !bytes.Equal(b[:24], whole[:24]) {
		t.Error("first segment's bytes")
	}
	quiet(t, p.server) // the window is one segment at first
	b = p.toServer()
	wantRMPP(t, b, ack(1, 65))
	if b[3] != byte(mad.MethodGetTable) || tidOf(b[:]) != tid {
		t.Error("acknowledgement of another transaction or direction")
	}
	b = p.toClient()
	wantRMPP(t, b, data(2, 0, 0))
	if !bytes.Equal(b[56:], whole[256:456]) {
		t.Error("second segment's bytes")
	}
	b = p.toClient()
	wantRMPP(t, b, data(3, 220-100, mad.RMPPLast))
	if !bytes.Equal(b[56:156], whole[456:]) || !bytes.Equal(b[156:], make([]byte, 100)) {
		t.Error("third segment's bytes")
	}
	d := received(t, p.client)
	if d.Kind != Response || d.Cookie != 70 || d.Agent != p.c || d.Env != serverEnv || len(d.Data) != 556 ||
		!bytes.Equal(d.Data[56:], whole[56:]) {
		t.Errorf("%v, cookie %d, %d bytes", d.Kind, d.Cookie, len(d.Data))
	}
	b = p.toServer()
	wantRMPP(t, b, ack(3, 65))
	quiet(t, p.client)
	quiet(t, p.server)
	if p.server.NextDeadline() != ib.Never {
		t.Error("the server still waits")
	}
	if dl := p.client.NextDeadline(); dl != 10*ib.Second {
		t.Errorf("the client remembers the transfer until %v", dl)
	}
	p.client.HandleTimer(10 * ib.Second)
	drained(t, p.client)
	drained(t, p.server)
}

// TestGoldenSegment holds a first segment and its acknowledgement against bytes written down from IBA 13.6.2.
func TestGoldenSegment(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(ib.Second)
	p.answer(tid, 201, 0)
	got := p.toClient()
	want := "01030292" + "00000000" + "0000000100000007" + "00000000" + "00000000" + // header
		"01010300" + "00000001" + "000000f1" // version 1, Data, first and active, segment 1, 2*220-199 = 241 bytes
	if hex.EncodeToString(got[:36]) != want {
		t.Errorf("segment\n%x\nwant\n%s", got[:36], want)
	}
	got = p.toServer()
	want = "01030212" + "00000000" + "0000000100000007" + "00000000" + "00000000" +
		"01020100" + "00000001" + "00000041"
	if hex.EncodeToString(got[:36]) != want {
		t.Errorf("acknowledgement\n%x\nwant\n%s", got[:36], want)
	}
	got = p.toClient()
	if want = "01010500" + "00000002" + "00000015"; hex.EncodeToString(got[24:36]) != want {
		t.Errorf("last segment\n%x\nwant\n%s", got[24:36], want)
	}
}

// TestMessageLengths checks what an agent gets for messages around the sizes of segments, for every class with RMPP.
func TestMessageLengths(t *testing.T) {
	for _, class := range []mad.Class{mad.ClassSA, mad.ClassDevMgt, vendorClass} {
		hdr := HeaderLen(class)
		per := mad.Size - hdr
		for _, n := range []int{0, 1, per - 1, per, per + 1, 2 * per, 2*per + 1, 200*per - 1, 200 * per} {
			w := newWire(t, 1, Config{})
			r := Registration{Class: class, ClassVersion: 2, RMPP: true, Methods: MethodSet(mad.MethodSend),
				OUI: vendorOUI}
			if class == vendorClass {
				r.ClassVersion = 1
			}
			a := register(t, w.ports[0], r)
			register(t, w.ports[1], r)
			m := message(class, mad.MethodSend, 1, n, 1)
			segs := 0
			w.tap = func(from int, b *[mad.Size]byte) {
				if from == 0 {
					segs++
				}
			}
			send(t, w.ports[0], 0, a, Message{Env: mad.Envelope{LID: 2}, Data: m})
			for w.ports[1].inbox.Len() == 0 && w.step() {
			}
			if d := received(t, w.ports[1]); len(d.Data) != hdr+n || !bytes.Equal(d.Data[hdr:], m[hdr:]) {
				t.Errorf("class 0x%02x: %d bytes of payload arrived as %d", uint8(class), n, len(d.Data)-hdr)
			}
			if want := max(1, (n+per-1)/per); segs != want {
				t.Errorf("class 0x%02x: %d bytes took %d segments, want %d", uint8(class), n, segs, want)
			}
		}
	}
}

// TestPayloadLengthOutOfRange: a last segment that claims an impossible length counts as full, and none at all as
// empty.
func TestPayloadLengthOutOfRange(t *testing.T) {
	for _, c := range []struct{ payload, want uint32 }{{221, 256}, {1 << 31, 256}, {220, 256}, {21, 57}, {20, 56},
		{3, 56}, {0, 56}} {
		p := newPair(t, Config{})
		tid := p.ask(ib.Second)
		p.answer(tid, 0, 0)
		_, b := sent(t, p.server)
		h := data(1, c.payload, mad.RMPPFirst|mad.RMPPLast)
		h.Put(b[:])
		p.client.Handle(0, serverEnv, b)
		if d := received(t, p.client); len(d.Data) != int(c.want) {
			t.Errorf("PayloadLength %d: %d bytes, want %d", c.payload, len(d.Data), c.want)
		}
	}
}

func TestLostSegmentsAndAcks(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(10 * ib.Second)
	p.answer(tid, 500, 2)
	sent(t, p.server) // lost
	if d := p.server.NextDeadline(); d != 2*ib.Second {
		t.Fatalf("waits for an acknowledgement until %v", d)
	}
	p.server.HandleTimer(2 * ib.Second)
	wantRMPP(t, p.toClient(), data(1, 560, mad.RMPPFirst))
	sent(t, p.client) // the acknowledgement is lost
	p.server.HandleTimer(4 * ib.Second)
	p.toClient() // again
	wantRMPP(t, p.toServer(), ack(1, 65))
	p.toClient()
	p.toClient() // all there
	if d := received(t, p.client); d.Kind != Response || len(d.Data) != 556 {
		t.Errorf("%v", d.Kind)
	}
	sent(t, p.client) // the last acknowledgement is lost
	p.server.HandleTimer(6 * ib.Second)
	wantRMPP(t, p.toClient(), data(2, 0, 0))
	wantRMPP(t, p.toServer(), ack(3, 65))
	quiet(t, p.server)
	quiet(t, p.client)
	wantCounter(t, "duplicates", p.client.Counters().Duplicates, 2)
	wantCounter(t, "retries", p.server.Counters().Retries, 3)
}

func TestSegmentsUnacknowledged(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(100 * ib.Second)
	p.answer(tid, 500, 1)
	whole := message(mad.ClassSA, mad.MethodGetTableResp, tid, 500, 3)
	p.toClient()
	sent(t, p.client)
	p.server.HandleTimer(2 * ib.Second)
	sent(t, p.server)
	p.server.HandleTimer(4 * ib.Second)
	if d := received(t, p.server); d.Kind != TimedOut || d.Cookie != 71 || !bytes.Equal(d.Data, whole) {
		t.Errorf("%v, cookie %d", d.Kind, d.Cookie)
	}
	wantRMPP(t, p.toClient(), end(mad.RMPPAbort, mad.RMPPTooManyRetries))
	wantCounter(t, "aborts", p.client.Counters().Aborts, 1)
	if p.client.Outstanding() != 1 || p.client.incoming != 0 {
		t.Error("the request goes on and the half response does not")
	}
	drained(t, p.server)
}

// TestResponseStops: a response that begins and does not go on ends with its request's timeout, and the next try starts
// anew.
func TestResponseStops(t *testing.T) {
	p := newPair(t, Config{})
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: dgram(mad.ClassSA, mad.MethodGetTable, 7, 0),
		Timeout: ib.Second, Retries: 1})
	p.toServer()
	tid := tidOf(received(t, p.server).Data)
	p.answer(tid, 500, 0)
	p.toClient()
	p.toServer()
	p.client.HandleTimer(ib.Second)
	wantRMPP(t, p.toServer(), end(mad.RMPPAbort, mad.RMPPTooLong))
	if d := received(t, p.server); d.Kind != Aborted || d.Status != mad.RMPPTooLong || d.Cookie != 71 {
		t.Errorf("%v, %v", d.Kind, d.Status)
	}
	p.toServer() // the request again
	if d := received(t, p.server); d.Kind != Unsolicited || tidOf(d.Data) != tid {
		t.Error(d.Kind)
	}
	p.answer(tid, 5, 0)
	p.toClient()
	if d := received(t, p.client); d.Kind != Response || len(d.Data) != 61 {
		t.Errorf("%v of %d bytes", d.Kind, len(d.Data))
	}
}

func TestRepeatedRequestDuringAnswer(t *testing.T) {
	p := newPair(t, Config{})
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: dgram(mad.ClassSA, mad.MethodGetTable, 7, 0),
		Timeout: ib.Second, Retries: 1})
	_, b := sent(t, p.client)
	p.server.Handle(0, clientEnv, b)
	tid := tidOf(received(t, p.server).Data)
	p.answer(tid, 500, 0)
	if !p.server.Handle(0, clientEnv, b) {
		t.Error("a repeated request is not taken")
	}
	if _, ok := p.server.PollRecv(); ok {
		t.Error("a request is delivered again while its answer goes out")
	}
	err := p.server.Send(0, p.s, Message{Env: clientEnv,
		Data: message(mad.ClassSA, mad.MethodGetTableResp, tid, 500, 3)})
	if !errors.Is(err, ErrDuplicate) {
		t.Errorf("a second answer: %v", err)
	}
	other := clientEnv
	other.LID = 9 // another node's transactions may have the same numbers
	if p.server.Handle(0, other, b); received(t, p.server).Env.LID != 9 {
		t.Error("another node's request is taken for a repeated one")
	}
}

func TestLateTableIsAborted(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(ms)
	p.client.HandleTimer(ms)
	if d := received(t, p.client); d.Kind != TimedOut {
		t.Fatal(d.Kind)
	}
	p.answer(tid, 500, 9)
	p.toClient()
	wantRMPP(t, p.toServer(), end(mad.RMPPAbort, mad.RMPPUnspecified))
	if d := received(t, p.server); d.Kind != Aborted {
		t.Error(d.Kind)
	}
	quiet(t, p.server)
	wantCounter(t, "late", p.client.Counters().LateResponses, 1)
}

func TestNoRoomStopsSender(t *testing.T) {
	p := newPair(t, Config{ReassemblyMax: 400})
	tid := p.ask(ib.Second)
	p.answer(tid, 500, 9)
	p.toClient()
	p.toServer()
	p.toClient()
	wantRMPP(t, p.toServer(), end(mad.RMPPStop, mad.RMPPResources))
	if d := received(t, p.server); d.Kind != Aborted || d.Status != mad.RMPPResources {
		t.Errorf("%v, %v", d.Kind, d.Status)
	}
	if p.client.incoming != 0 {
		t.Error("room is not given back")
	}
}

// TestDoubleSided walks a request and a response in segments, and the turn between them.
func TestDoubleSided(t *testing.T) {
	p := newPair(t, Config{})
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: message(mad.ClassSA, mad.MethodGetMulti, 7, 300, 1),
		Timeout: 3 * ib.Second, Cookie: 70})
	wantRMPP(t, p.toServer(), data(1, 2*220-100, mad.RMPPFirst))
	b := p.toClient()
	wantRMPP(t, b, ack(1, 65))
	if b[3] != byte(mad.MethodGetMultiResp) {
		t.Error("an acknowledgement has the other direction's method")
	}
	wantRMPP(t, p.toServer(), data(2, 120, mad.RMPPLast))
	d := received(t, p.server)
	if d.Kind != Unsolicited || len(d.Data) != 356 {
		t.Fatalf("%v of %d bytes", d.Kind, len(d.Data))
	}
	tid := tidOf(d.Data)
	b = p.toClient()
	wantRMPP(t, b, ack(2, 65))
	if dl := p.client.NextDeadline(); dl != 3*ib.Second {
		t.Errorf("waits for the response until %v", dl)
	}
	p.client.Handle(0, serverEnv, b) // once more: the turn is given once more
	for range 2 {
		b = p.toServer()
		wantRMPP(t, b, ack(0, 1))
		if b[3] != byte(mad.MethodGetMulti) {
			t.Error("the turn is given in the request's direction")
		}
	}
	send(t, p.server, 0, p.s, Message{Env: clientEnv, Data: message(mad.ClassSA, mad.MethodGetMultiResp, tid, 300, 2)})
	p.toClient()
	quiet(t, p.server)
	p.toServer()
	p.toClient()
	if d := received(t, p.client); d.Kind != Response || d.Cookie != 70 || len(d.Data) != 356 {
		t.Errorf("%v of %d bytes", d.Kind, len(d.Data))
	}
}

// TestWiderTurn: a peer that opens the response's window wider at once is believed.
func TestWiderTurn(t *testing.T) {
	p := newPair(t, Config{})
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: message(mad.ClassSA, mad.MethodGetMulti, 7, 100, 1),
		Timeout: 3 * ib.Second})
	p.toServer()
	tid := tidOf(received(t, p.server).Data)
	p.toClient()
	_, b := sent(t, p.client)
	h := ack(0, 3)
	h.Put(b[:])
	p.server.Handle(0, clientEnv, b)
	send(t, p.server, 0, p.s, Message{Env: clientEnv, Data: message(mad.ClassSA, mad.MethodGetMultiResp, tid, 2000, 2)})
	for i := range uint32(3) {
		if _, b := sent(t, p.server); rmppOf(b).Data1 != i+1 {
			t.Errorf("segment %d", rmppOf(b).Data1)
		}
	}
	quiet(t, p.server)
}

func TestBadDatagramsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		h    mad.RMPP
		want mad.RMPPStatus // of the abort that comes back; 0: nothing comes back
		ends bool           // the answer that is going out
	}{
		{"acknowledges what was not sent", ack(2, 70), mad.RMPPSegmentNumberBig, true},
		{"window before the segment", ack(1, 0), mad.RMPPNewWindowLastSmall, true},
		{"acknowledgement with status", mad.RMPP{RMPPVersion: 1, RMPPType: mad.RMPPAck, RMPPFlags: mad.RMPPActive,
			RMPPStatus: 3}, mad.RMPPIllegalStatus, true},
		{"unknown type", mad.RMPP{RMPPVersion: 1, RMPPType: 9, RMPPFlags: mad.RMPPActive}, mad.RMPPBadType, true},
		{"unknown version", mad.RMPP{RMPPVersion: 2, RMPPType: mad.RMPPAck, RMPPFlags: mad.RMPPActive},
			mad.RMPPUnsupportedVersion, true},
		{"stop without its status", end(mad.RMPPStop, 5), mad.RMPPIllegalStatus, true},
		{"abort without a status of its own", end(mad.RMPPAbort, 1), mad.RMPPIllegalStatus, true},
		{"stop", end(mad.RMPPStop, mad.RMPPResources), 0, true},
		{"abort", end(mad.RMPPAbort, mad.RMPPUnspecified), 0, true},
		{"old acknowledgement", ack(0, 0), 0, false},
		{"segment 0", data(0, 0, 0), mad.RMPPInconsistentFirst, false},
		{"segment 1 that is not the first", data(1, 0, 0), mad.RMPPInconsistentFirst, false},
		{"segment 2 that is the first", data(2, 0, mad.RMPPFirst), mad.RMPPInconsistentFirst, false},
		{"segment of nothing", data(2, 0, 0), 0, false},
		{"segment with status", mad.RMPP{RMPPVersion: 1, RMPPType: mad.RMPPData, RMPPFlags: 3, RMPPStatus: 1, Data1: 1},
			mad.RMPPIllegalStatus, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, Config{})
			tid := p.ask(ib.Second)
			p.answer(tid, 500, 3)
			_, b := sent(t, p.server)
			b[3] = byte(mad.MethodGetTable)
			c.h.Put(b[:])
			if !p.server.Handle(0, clientEnv, b) {
				t.Error("not taken")
			}
			if c.want != 0 {
				_, b := sent(t, p.server)
				wantRMPP(t, b, end(mad.RMPPAbort, c.want))
				if b[3] != byte(mad.MethodGetTableResp) {
					t.Error("the abort goes the wrong way")
				}
			}
			d, ok := p.server.PollRecv()
			if ok != c.ends || ok && (d.Kind != Aborted || d.Cookie != 71) {
				t.Errorf("the answer: %v, %v", ok, d.Kind)
			}
			quiet(t, p.server)
			if c.ends {
				drained(t, p.server)
			}
		})
	}
}

func TestSegmentsOutsideWindow(t *testing.T) {
	p := newPair(t, Config{Window: 4})
	tid := p.ask(ib.Second)
	p.answer(tid, 5000, 0)
	first := p.toClient()
	p.toServer()
	for _, seg := range []uint32{6, 1 << 20, 1<<32 - 1} {
		b := *first
		h := data(seg, 0, 0)
		h.Put(b[:])
		p.client.Handle(0, serverEnv, &b)
	}
	quiet(t, p.client)
	wantCounter(t, "bad", p.client.Counters().BadRMPP, 3)
	if p.client.incoming > 10*mad.Size {
		t.Errorf("%d bytes held for segments that the window does not allow", p.client.incoming)
	}
}

func TestTransactionUsedAgain(t *testing.T) {
	p := newPair(t, Config{})
	for range 3 {
		tid := p.ask(ib.Second)
		p.answer(tid, 20, 0)
		p.toClient()
		if d := received(t, p.client); d.Kind != Response || len(d.Data) != 76 {
			t.Fatalf("%v of %d bytes", d.Kind, len(d.Data))
		}
		p.toServer()
	}
}

// TestSegmentsForAgentWithoutRMPP: such an agent sees datagrams, also acknowledgements, as they come.
func TestSegmentsForAgentWithoutRMPP(t *testing.T) {
	p := newPair(t, Config{})
	if err := p.client.Unregister(p.c); err != nil {
		t.Fatal(err)
	}
	p.c = register(t, p.client, Registration{Class: mad.ClassSA, ClassVersion: 2,
		Methods: MethodSet(mad.MethodGetTable)})
	tid := p.ask(ib.Second)
	p.answer(tid, 500, 0)
	b := p.toClient()
	if d := received(t, p.client); d.Kind != Response || d.Cookie != 70 || !bytes.Equal(d.Data, b[:]) {
		t.Errorf("first segment: %v", d.Kind)
	}
	own := *b
	own[3] = byte(mad.MethodGetTable)
	h := ack(1, 5)
	h.Put(own[:])
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: own[:]})
	wantRMPP(t, p.toServer(), h)
	for range 2 {
		b = p.toClient()
		if d := received(t, p.client); d.Kind != Response || d.Cookie != 0 || !bytes.Equal(d.Data, b[:]) {
			t.Errorf("next segment: %v", d.Kind)
		}
	}
	p.client.Handle(0, serverEnv, &own) // an acknowledgement in the direction of requests
	if d := received(t, p.client); d.Kind != Unsolicited || d.Agent != p.c {
		t.Error(d.Kind)
	}
	quiet(t, p.client)
}

func TestIncomingMessageGivenUp(t *testing.T) {
	p := newPair(t, Config{})
	send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: message(mad.ClassSA, mad.MethodGetMulti, 7, 3000, 1),
		Timeout: ib.Second})
	p.toServer()
	if d := p.server.NextDeadline(); d != 40*ib.Second {
		t.Fatalf("waits until %v", d)
	}
	sent(t, p.server)
	p.server.HandleTimer(40 * ib.Second)
	wantRMPP(t, p.toClient(), end(mad.RMPPAbort, mad.RMPPTooLong))
	if d := received(t, p.client); d.Kind != Aborted || d.Status != mad.RMPPTooLong {
		t.Errorf("%v, %v", d.Kind, d.Status)
	}
	drained(t, p.server)
	drained(t, p.client)
}

func TestUnregisterDuringTransfers(t *testing.T) {
	p := newPair(t, Config{})
	tid := p.ask(ib.Second)
	p.answer(tid, 500, 0)
	p.toClient() // half a response
	if err := p.client.Unregister(p.c); err != nil {
		t.Fatal(err)
	}
	if d := received(t, p.client); d.Kind != Canceled || d.Cookie != 70 {
		t.Error(d.Kind)
	}
	wantRMPP(t, p.toServer(), end(mad.RMPPAbort, mad.RMPPUnspecified))
	if d := received(t, p.server); d.Kind != Aborted {
		t.Error(d.Kind)
	}
	drained(t, p.client)

	p.answer(tid, 500, 0)
	sent(t, p.server)
	if err := p.server.Unregister(p.s); err != nil {
		t.Fatal(err)
	}
	quiet(t, p.server)
	drained(t, p.server)
}

func TestRememberedTransfersAreBounded(t *testing.T) {
	p := newPair(t, Config{TimeWaitMax: 10})
	for i := range 100 {
		send(t, p.client, 0, p.c, Message{Env: serverEnv, Data: dgram(mad.ClassSA, mad.MethodGetTable, uint64(i), 0),
			Timeout: ib.Second})
		p.toServer()
		p.answer(tidOf(received(t, p.server).Data), 20, 0)
		p.toClient()
		if d := received(t, p.client); d.Kind != Response {
			t.Fatal(d.Kind)
		}
		p.toServer()
		if p.client.lingers > 10 || p.client.linger.Len() > 40 {
			t.Fatalf("%d remembered, %d queued", p.client.lingers, p.client.linger.Len())
		}
	}
	p.client.HandleTimer(20 * ib.Second)
	drained(t, p.client)
}
