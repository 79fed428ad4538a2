package madrpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

const ms = ib.Millisecond

// dgram makes a datagram of the class's own version.
func dgram(class mad.Class, method mad.Method, tid uint64, fill byte) []byte {
	b := bytes.Repeat([]byte{fill}, mad.Size)
	version := uint8(1)
	if i := class.Info(); i != nil {
		version = i.Version
	}
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: class, ClassVersion: version, Method: method,
		TransactionID: tid}
	h.Append(b[:0])
	if HeaderLen(class) != 0 {
		clear(b[mad.RMPPOff:mad.RMPPClassOff])
	}
	return b
}

func tidOf(b []byte) uint64 { return binary.BigEndian.Uint64(b[offTID:]) }

func register(t testing.TB, p *Port, r Registration) AgentID {
	t.Helper()
	id, err := p.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func send(t testing.TB, p *Port, now ib.Time, id AgentID, m Message) {
	t.Helper()
	if err := p.Send(now, id, m); err != nil {
		t.Fatal(err)
	}
}

// sent is the next datagram for the wire, copied.
func sent(t testing.TB, p *Port) (mad.Envelope, *[mad.Size]byte) {
	t.Helper()
	env, b, ok := p.PollSend()
	if !ok {
		t.Fatal("nothing to send")
	}
	c := *b
	return env, &c
}

func received(t testing.TB, p *Port) Delivery {
	t.Helper()
	d, ok := p.PollRecv()
	if !ok {
		t.Fatal("nothing delivered")
	}
	return d
}

func quiet(t testing.TB, p *Port) {
	t.Helper()
	if _, b, ok := p.PollSend(); ok {
		t.Fatalf("sends % x…", b[:40])
	}
	if d, ok := p.PollRecv(); ok {
		t.Fatalf("delivers %v to %d", d.Kind, d.Agent)
	}
}

func wantCounter(t testing.TB, what string, got, want uint64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestRequestResponse(t *testing.T) {
	p := New(Config{AgentAfter: 6})
	id := register(t, p, Registration{Class: mad.ClassSMDirect, ClassVersion: 1})
	if id != 7 {
		t.Fatalf("agent %d, want the one after 6", id)
	}
	env := mad.Envelope{LID: ib.LIDPermissive}
	data := dgram(mad.ClassSMDirect, mad.MethodGet, 0x1111_2222_0000_0042, 0xA0)
	send(t, p, 0, id, Message{Env: env, Data: data, Timeout: 100 * ms, Cookie: 99})
	clear(data) // the caller's again
	gotEnv, b := sent(t, p)
	if gotEnv != env {
		t.Errorf("envelope %+v", gotEnv)
	}
	if tidOf(b[:]) != 0x0000_0007_0000_0042 {
		t.Errorf("TID %#x: want the agent above, the sender's lower half below", tidOf(b[:]))
	}
	if b[100] != 0xA0 {
		t.Error("data was not copied at Send")
	}
	if d := p.NextDeadline(); d != 100*ms {
		t.Errorf("deadline %v", d)
	}
	if p.Outstanding() != 1 {
		t.Errorf("%d outstanding", p.Outstanding())
	}
	b[3] = byte(mad.MethodGetResp)
	b[100] = 0xB0
	from := mad.Envelope{LID: 5, PathBits: 1}
	if !p.Handle(20*ms, from, b) {
		t.Fatal("response not taken")
	}
	clear(b[:])
	d := received(t, p)
	if d.Agent != id || d.Kind != Response || d.Cookie != 99 || d.Env != from || len(d.Data) != mad.Size ||
		d.Data[100] != 0xB0 || tidOf(d.Data) != 0x7_0000_0042 {
		t.Errorf("delivered %v to %d, cookie %d, %d bytes", d.Kind, d.Agent, d.Cookie, len(d.Data))
	}
	if p.NextDeadline() != ib.Never || p.Outstanding() != 0 {
		t.Error("the request is still waited for")
	}
	quiet(t, p)
}

func TestRetriesAndTimeout(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{})
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 1), Timeout: 100 * ms, Retries: 2,
		Cookie: 5})
	p.HandleTimer(50 * ms) // the timeout counts from when the datagram leaves
	for i := range ib.Time(3) {
		_, b := sent(t, p)
		if b[100] != 1 {
			t.Fatal("another datagram")
		}
		b[100] = 2 // ours to change
		at := 50*ms + (i+1)*100*ms
		if d := p.NextDeadline(); d != at {
			t.Fatalf("try %d: deadline %v, want %v", i, d, at)
		}
		p.HandleTimer(at - 1)
		if _, _, ok := p.PollSend(); ok {
			t.Fatal("sent again too early")
		}
		p.HandleTimer(at)
	}
	d := received(t, p)
	if d.Kind != TimedOut || d.Cookie != 5 || d.Data[100] != 1 || len(d.Data) != mad.Size ||
		tidOf(d.Data)>>32 != uint64(id) {
		t.Errorf("delivered %v, cookie %d", d.Kind, d.Cookie)
	}
	quiet(t, p)
	c := p.Counters()
	wantCounter(t, "retries", c.Retries, 2)
	wantCounter(t, "timeouts", c.Timeouts, 1)
	wantCounter(t, "sent", c.Sent, 3)
}

func TestResponsesThatNobodyAwaits(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{Class: mad.ClassPerf, ClassVersion: 1})
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 0), Timeout: ms})
	_, b := sent(t, p)
	b[3] |= methodResponse
	wrong := *b
	wrong[1] = byte(mad.ClassCC)
	other := *b
	binary.BigEndian.PutUint64(other[offTID:], tidOf(b[:])+1<<32)
	version := *b
	version[0] = 2
	for _, x := range []*[mad.Size]byte{&wrong, &other, &version} {
		if p.Handle(0, mad.Envelope{}, x) {
			t.Error("taken")
		}
	}
	if !p.Handle(0, mad.Envelope{}, b) {
		t.Error("the response itself is not taken")
	}
	if p.Handle(0, mad.Envelope{}, b) {
		t.Error("taken twice")
	}
	if d := received(t, p); d.Kind != Response {
		t.Error(d.Kind)
	}
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 2, 0), Timeout: ms})
	_, b = sent(t, p)
	p.HandleTimer(ms)
	b[3] |= methodResponse
	if p.Handle(ms, mad.Envelope{}, b) {
		t.Error("taken too late")
	}
	if d := received(t, p); d.Kind != TimedOut {
		t.Error(d.Kind)
	}
	quiet(t, p)
	wantCounter(t, "late", p.Counters().LateResponses, 4)
	wantCounter(t, "base version", p.Counters().BadVersion, 1)
}

func TestResponseToQueuedRetry(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{})
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 0), Timeout: ms, Retries: 1})
	_, b := sent(t, p)
	p.HandleTimer(ms) // the retry waits to be polled
	b[3] |= methodResponse
	p.Handle(ms, mad.Envelope{}, b)
	if d := received(t, p); d.Kind != Response {
		t.Error(d.Kind)
	}
	quiet(t, p)
}

func TestDuplicateTransaction(t *testing.T) {
	p := New(Config{})
	a, b := register(t, p, Registration{}), register(t, p, Registration{})
	m := Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 0), Timeout: ms}
	send(t, p, 0, a, m)
	if err := p.Send(0, a, m); !errors.Is(err, ErrDuplicate) {
		t.Errorf("second with the same transaction: %v", err)
	}
	send(t, p, 0, b, m) // another agent's transactions are its own
	m.Data = dgram(mad.ClassCC, mad.MethodGet, 1, 0)
	send(t, p, 0, a, m) // and so are another class's
	m.Data, m.Timeout = dgram(mad.ClassPerf, mad.MethodTrap, 1, 0), 0
	send(t, p, 0, a, m) // nothing is awaited
	if p.Outstanding() != 3 {
		t.Errorf("%d outstanding, want 3", p.Outstanding())
	}
}

func TestSendRefused(t *testing.T) {
	p := New(Config{})
	plain, rmpp := register(t, p, Registration{}),
		register(t, p, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true})
	sa := dgram(mad.ClassSA, mad.MethodGetTable, 1, 0)
	short := dgram(mad.ClassSA, mad.MethodGetTable, 1, 0)[:40]
	short[mad.RMPPOff+2] = mad.RMPPActive
	for _, c := range []struct {
		name string
		id   AgentID
		data []byte
		want error
	}{
		{"nobody", 77, sa, ErrAgent},
		{"no header", plain, sa[:23], ErrLength},
		{"empty", plain, nil, ErrLength},
		{"long without RMPP", plain, make([]byte, 257), ErrLength},
		{"class without RMPP", rmpp, dgram(mad.ClassPerf, mad.MethodGet, 1, 0), ErrClass},
		{"active but shorter than the class's header", rmpp, short, ErrLength},
	} {
		if err := p.Send(0, c.id, Message{Data: c.data}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	quiet(t, p)
}

func TestShortDatagramIsPadded(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{})
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 0xFF)})
	sent(t, p) // the slot now holds 0xFF to its end
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, 1, 0xFF)[:64]})
	_, b := sent(t, p)
	if !bytes.Equal(b[64:], make([]byte, 192)) || b[63] != 0xFF {
		t.Error("not padded with zeros")
	}
}

func TestRegistration(t *testing.T) {
	p := New(Config{})
	get, set := MethodSet(mad.MethodGet), MethodSet(mad.MethodSet)
	sm := register(t, p, Registration{Class: mad.ClassSMLID, ClassVersion: 1,
		Methods: MethodSet(mad.MethodGet, mad.MethodTrap), Name: "sm"})
	oui := [3]byte{0, 0x14, 5}
	ping := register(t, p, Registration{Class: 0x32, ClassVersion: 1, Methods: get, OUI: oui})
	for _, c := range []struct {
		name string
		r    Registration
		want error
	}{
		{"same method", Registration{Class: mad.ClassSMLID, ClassVersion: 1,
			Methods: MethodSet(mad.MethodSet, mad.MethodTrap)}, ErrInUse},
		{"other method", Registration{Class: mad.ClassSMLID, ClassVersion: 1, Methods: set}, nil},
		{"other version", Registration{Class: mad.ClassSMLID, ClassVersion: 2, Methods: get}, nil},
		{"other class", Registration{Class: mad.ClassSMDirect, ClassVersion: 1, Methods: get}, nil},
		{"sender only", Registration{Class: mad.ClassSMLID, ClassVersion: 1}, nil},
		{"sender only, again", Registration{Class: mad.ClassSMLID, ClassVersion: 1}, nil},
		{"same vendor", Registration{Class: 0x32, ClassVersion: 1, Methods: get, OUI: oui}, ErrInUse},
		{"other vendor", Registration{Class: 0x32, ClassVersion: 1, Methods: get, OUI: [3]byte{1}}, nil},
		{"no vendor", Registration{Class: 0x32, ClassVersion: 1, Methods: get}, ErrRegistration},
		{"reserved class", Registration{Class: 0x50, ClassVersion: 1}, ErrRegistration},
		{"methods of no class", Registration{Methods: get}, ErrRegistration},
		{"RMPP where there is none", Registration{Class: mad.ClassPerf, ClassVersion: 1, RMPP: true}, ErrRegistration},
		{"RMPP", Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true}, nil},
	} {
		if _, err := p.Register(c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	_, err := p.Register(Registration{Class: mad.ClassSMLID, ClassVersion: 1, Methods: MethodSet(mad.MethodTrap)})
	var in *InUseError
	if !errors.As(err, &in) || in.Owner != sm || in.Name != "sm" || in.Method != mad.MethodTrap ||
		in.Class != mad.ClassSMLID {
		t.Errorf("in use: %v", err)
	}

	take := func(b []byte, want AgentID) {
		t.Helper()
		taken := p.Handle(0, mad.Envelope{LID: 9}, (*[mad.Size]byte)(b))
		d, ok := p.PollRecv()
		if taken != (want != 0) || ok != taken || ok &&
			(d.Agent != want || d.Kind != Unsolicited || d.Env.LID != 9 || !bytes.Equal(d.Data, b)) {
			t.Errorf("taken %v, to agent %d, want %d", taken, d.Agent, want)
		}
	}
	take(dgram(mad.ClassSMLID, mad.MethodTrap, 1<<40, 0), sm)
	take(dgram(mad.ClassSMLID, mad.MethodGet, 1<<40, 0), sm)
	take(dgram(mad.ClassPerf, mad.MethodGet, 1<<40, 0), 0)
	take(dgram(mad.ClassSMLID, mad.MethodReport, 1<<40, 0), 0)
	v := dgram(0x32, mad.MethodGet, 1, 0)
	copy(v[offOUI:], oui[:])
	take(v, ping)
	v[offOUI] = 0xEE
	take(v, 0)
	if err := p.Unregister(sm); err != nil {
		t.Fatal(err)
	}
	take(dgram(mad.ClassSMLID, mad.MethodTrap, 1<<40, 0), 0)
	if id := register(t, p, Registration{Class: mad.ClassSMLID, ClassVersion: 1, Methods: get}); id <= ping {
		t.Errorf("number %d was used before", id)
	}
	if err := p.Unregister(sm); !errors.Is(err, ErrAgent) {
		t.Errorf("unregistered twice: %v", err)
	}
	if r, ok := p.Agent(ping); !ok || r.OUI != oui {
		t.Error("Agent does not know its registration")
	}
	if _, ok := p.Agent(sm); ok {
		t.Error("Agent knows one that has gone")
	}
	wantCounter(t, "unclaimed", p.Counters().Unclaimed, 4)
}

func TestAgentNumbersWrap(t *testing.T) {
	p := New(Config{AgentAfter: agentMax - 1})
	a, b := register(t, p, Registration{}), register(t, p, Registration{})
	if a != agentMax || b != 1 {
		t.Errorf("agents %d and %d", a, b)
	}
}

func TestTrapRepressEndsTrap(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{Class: mad.ClassSMLID, ClassVersion: 1})
	send(t, p, 0, id, Message{Data: dgram(mad.ClassSMLID, mad.MethodTrap, 3, 0), Timeout: ms, Retries: 9})
	_, b := sent(t, p)
	b[3] = byte(mad.MethodTrapRepress)
	if !p.Handle(0, mad.Envelope{}, b) {
		t.Fatal("not taken")
	}
	if d := received(t, p); d.Kind != Response {
		t.Error(d.Kind)
	}
	if p.NextDeadline() != ib.Never {
		t.Error("the trap goes on")
	}
}

func TestAnswerKeepsTransaction(t *testing.T) {
	p := New(Config{})
	id := register(t, p, Registration{Class: mad.ClassPerf, ClassVersion: 1, Methods: MethodSet(mad.MethodGet)})
	// A timeout makes no sense for an answer, and Linux's callers give one now and then.
	send(t, p, 0, id, Message{Data: dgram(mad.ClassPerf, mad.MethodGetResp, 0xABCD_0000_0001, 0), Timeout: ms})
	if _, b := sent(t, p); tidOf(b[:]) != 0xABCD_0000_0001 {
		t.Errorf("TID %#x", tidOf(b[:]))
	}
	if p.NextDeadline() != ib.Never {
		t.Error("waits for an answer to an answer")
	}
}

func TestUnregisterCancels(t *testing.T) {
	p := New(Config{})
	a, b := register(t, p, Registration{}), register(t, p, Registration{})
	for i := range uint64(5) {
		send(t, p, 0, a, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, i, 0), Timeout: ms, Cookie: i})
		send(t, p, 0, b, Message{Data: dgram(mad.ClassPerf, mad.MethodGet, i, 0), Timeout: ms, Cookie: i})
	}
	sent(t, p)
	if err := p.Unregister(a); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		if d := received(t, p); d.Kind != Canceled || d.Agent != a || d.Cookie != i {
			t.Errorf("%v to %d, cookie %d", d.Kind, d.Agent, d.Cookie)
		}
	}
	for range 5 {
		if _, x := sent(t, p); tidOf(x[:])>>32 != uint64(b) {
			t.Error("sends what was canceled")
		}
	}
	quiet(t, p)
	if p.Outstanding() != 5 {
		t.Errorf("%d outstanding", p.Outstanding())
	}
}
