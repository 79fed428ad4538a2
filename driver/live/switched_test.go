package live

import (
	"slices"
	"sync"
	"testing"
	"time"

	"softib/node/agent"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
	"softib/verbs"
)

// seen is a sink that keeps what it sees.
type seen struct {
	mu     sync.Mutex
	events []trace.Event
}

func (s *seen) Write(e *trace.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, *e)
	s.events[len(s.events)-1].Bytes = slices.Clone(e.Bytes)
	return nil
}

// watch captures what passes a port, until stop is called.
func watch(t *testing.T, f *Fabric, ref topo.PortRef) (s *seen, stop func()) {
	t.Helper()
	s = &seen{}
	end, err := f.Capture([]topo.PortRef{ref}, s)
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		t.Helper()
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

// take waits for n events, which are written a little after they happen, and forgets them.
func (s *seen) take(t *testing.T, n int) (list []trace.Event) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		if len(s.events) >= n {
			list, s.events = s.events, nil
		}
		s.mu.Unlock()
		if list != nil {
			return list
		}
		if time.Now().After(end) {
			t.Fatalf("%d packets do not come", n)
		}
	}
}

// questions ask the same host's agent in the three ways that there are: by a directed route, by LID to QP0, and by LID
// to QP1.
func questions(t *testing.T, f *Fabric, s *Session, far topo.PortRef) []func(ib.Time) {
	lid := f.nodes[far.Node].lid(1)
	way, err := f.Way(s.Ref(), lid, 0, ib.PKeyDefault)
	if err != nil || way.End() != far {
		t.Fatalf("no way to %v: %+v, %v", far, way, err)
	}
	var path []ib.PortNum
	for _, h := range way.Hops {
		path = append(path, h.Out.Port)
	}
	dr, smp, pm := registerAt(t, s, askDR), registerAt(t, s, askSMP), registerAt(t, s, askPM)
	send := func(id madrpc.AgentID, m madrpc.Message) {
		t.Helper()
		if err := s.Send(id, m); err != nil {
			t.Fatal(err)
		}
	}
	return []func(ib.Time){
		func(d ib.Time) {
			send(dr, madrpc.Message{Env: smi(ib.LIDPermissive), Data: directed(mad.AttrNodeInfo, path...), Timeout: d})
		},
		func(d ib.Time) {
			send(smp, madrpc.Message{Env: smi(lid), Data: request(mad.ClassSMLID, 1, mad.MethodGet, mad.AttrNodeInfo,
				0),
				Timeout: d})
		},
		func(d ib.Time) {
			send(pm, madrpc.Message{Env: gsi(lid), Timeout: d,
				Data: request(mad.ClassPerf, 1, mad.MethodGet, mad.AttrClassPortInfo, 0)})
		},
	}
}

// Datagrams of management take as long as the cables on their way, in both directions, and captures show both ends.
func TestManagementDelayed(t *testing.T) {
	const delay = 20 * time.Millisecond
	f := managed(t, "fat-tree:radix=4,levels=2")
	near, far := hostPort(f, 0), hostPort(f, 7)
	s := openAt(t, f, near)
	for i, ask := range questions(t, f, s, far) {
		if err := f.SetFault(far, Fault{Delay: delay}); err != nil {
			t.Fatal(err)
		}
		got, stop := watch(t, f, far)
		before := f.Counters(far)
		start := time.Now()
		ask(10 * ib.Second)
		d := recvAt(t, s)
		if took := time.Since(start); d.Kind != madrpc.Response || took < 2*delay {
			t.Errorf("question %d: %v after %v, want an answer after %v", i, d.Kind, took, 2*delay)
		}
		stop()
		after := f.Counters(far)
		if rx, tx := after[ib.PortRcvPkts]-before[ib.PortRcvPkts],
			after[ib.PortXmitPkts]-before[ib.PortXmitPkts]; rx != 1 || tx != 1 {
			t.Errorf("question %d: the port counts %d packets in and %d out, want 1 and 1", i, rx, tx)
		}
		if len(got.events) != 2 || got.events[0].Dir != trace.In || got.events[1].Dir != trace.Out {
			t.Fatalf("question %d: captured %+v, want one packet in and one out", i, got.events)
		}
		var p wire.Packet
		if err := p.Parse(got.events[1].Bytes); err != nil || len(p.Payload) != mad.Size ||
			!mad.View(p.Payload).Method().IsResponse() || (p.LRH.VL == ib.VLMgmt) != (i < 2) {
			t.Errorf("question %d: the answer on the wire is %+v, %v", i, p, err)
		}
		if err := f.ClearFault(far); err != nil {
			t.Fatal(err)
		}
	}
}

// A datagram that is sent while the plane is late is not sent in the past.
func TestManagementDelayedLate(t *testing.T) {
	const delay = 5 * time.Millisecond
	f := managed(t, "star:2")
	near, far := hostPort(f, 0), hostPort(f, 1)
	if err := f.SetFault(far, Fault{Delay: delay}); err != nil {
		t.Fatal(err)
	}
	got, stop := watch(t, f, far)
	defer stop()
	f.lock(f.Now())
	f.eng.Schedule(f.eng.Now(), evGiveUp, 0, 0) // is due, and nobody can handle it
	time.Sleep(delay)
	f.now = f.Now()
	sent := f.now
	f.eng.Advance(sent)
	var p packet
	agent.NewPacket(&p.Packet, &mad.Envelope{LID: f.nodes[far.Node].lid(1), QPN: ib.QPNGSI, QKey: ib.QKeyGSI},
		mad.ClassPerf, f.nodes[near.Node].lid(1), []ib.PKey{ib.PKeyDefault}, nil)
	f.carry(place{f.nodes[near.Node], 1, true}, &p, nil)
	f.mu.Unlock()
	if came := got.take(t, 1)[0].Time; came < sent+ib.Time(delay)*ib.Nanosecond {
		t.Errorf("it was sent at %v and came at %v: want %v later or more", sent, came, delay)
	}
}

// A packet that a program has sent while the plane was in the middle of a turn has not been sent when that began.
func TestSentDuringTurn(t *testing.T) {
	const delay = 5 * time.Millisecond
	f := bringUp(t, "star:2")
	hosts := f.Hosts()
	a, b := newEnd(t, hosts[0].Device(), 64), newEnd(t, hosts[1].Device(), 64)
	connect(t, a, b)
	far := portRef(hosts[1])
	if err := f.SetFault(far, Fault{Delay: delay}); err != nil {
		t.Fatal(err)
	}
	got, stop := watch(t, f, far)
	defer stop()
	f.RenewWays()
	write(t, a, b, 1, 8) // the way is known
	got.take(t, 2)
	f.lock(f.Now())
	time.Sleep(delay)
	sent := f.Now()
	if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	f.plane.pumpInlets()
	f.mu.Unlock()
	if came := got.take(t, 1)[0].Time; came < sent+ib.Time(delay)*ib.Nanosecond {
		t.Errorf("it was sent at %v and came at %v: want %v later or more", sent, came, delay)
	}
}

// A slow cable lets datagrams pass one after the other.
func TestManagementAtARate(t *testing.T) {
	const rate, n = 1_000_000, 8
	f := managed(t, "star:3")
	near, far := hostPort(f, 0), hostPort(f, 2)
	if err := f.SetFault(far, Fault{Rate: rate}); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, f, near)
	bytes := mgmtWords*4 + wire.VCRCSize
	for i, ask := range questions(t, f, s, far) {
		start := time.Now()
		for range n {
			ask(10 * ib.Second)
		}
		for range n {
			if d := recvAt(t, s); d.Kind != madrpc.Response {
				t.Fatalf("question %d: %v", i, d.Kind)
			}
		}
		// All questions, and the last answer after them.
		if took, want := time.Since(start), time.Duration(bytes*8*(n+1))*time.Second/rate; took < want {
			t.Errorf("question %d: %d answers after %v, want %v at least", i, n, took, want)
		}
	}
}

// Cables lose datagrams and flip their bits, and what they did is counted where it should be.
func TestManagementLost(t *testing.T) {
	f := managed(t, "star:3")
	near, far := hostPort(f, 0), hostPort(f, 2)
	s := openAt(t, f, near)
	asks := questions(t, f, s, far)
	for _, c := range []struct {
		fault              Fault
		dropped, corrupted uint64
	}{{Fault{Drop: 1}, 3, 0}, {Fault{BER: 0.1}, 0, 3}} {
		if err := f.SetFault(far, c.fault); err != nil {
			t.Fatal(err)
		}
		before := f.Counters(far)
		for i, ask := range asks {
			ask(30 * ib.Millisecond)
			if d := recvAt(t, s); d.Kind != madrpc.TimedOut {
				t.Errorf("%+v: question %d: %v, want a timeout", c.fault, i, d.Kind)
			}
		}
		is := f.Faults()[0]
		// Who asks gives up after 30 ms; when a datagram comes to the cable is up to the machine.
		for end := time.Now().Add(time.Minute); is.Dropped+is.Corrupted < c.dropped+c.corrupted &&
			time.Now().Before(end); is = f.Faults()[0] {
			time.Sleep(time.Millisecond)
		}
		if is.Dropped != c.dropped || is.Corrupted != c.corrupted {
			t.Errorf("%+v: %d dropped, %d corrupted: want %d and %d", c.fault, is.Dropped, is.Corrupted, c.dropped,
				c.corrupted)
		}
		after := f.Counters(far)
		if n := after[ib.PortRcvErrors] - before[ib.PortRcvErrors]; n != c.corrupted {
			t.Errorf("%+v: %d errors at the port, want %d", c.fault, n, c.corrupted)
		}
		if (after[ib.SymbolErrorCounter] > before[ib.SymbolErrorCounter]) != (c.corrupted > 0) {
			t.Errorf("%+v: symbol errors went from %d to %d", c.fault, before[ib.SymbolErrorCounter],
				after[ib.SymbolErrorCounter])
		}
		if err := f.ClearFault(far); err != nil {
			t.Fatal(err)
		}
	}
	// Everything is well again.
	for i, ask := range asks {
		ask(10 * ib.Second)
		if d := recvAt(t, s); d.Kind != madrpc.Response {
			t.Errorf("question %d after the faults: %v", i, d.Kind)
		}
	}
}

// A subnet comes up over cables that take their time, and a trap comes through.
func TestBringUpDelayed(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for k := range 3 {
		if err := f.SetFault(hostPort(f, k), Fault{Delay: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		if st := f.port(hostPort(f, k)).link.State(); st != ib.PortActive || f.nodes[hostPort(f, k).Node].lid(1) == 0 {
			t.Errorf("host %d: %v", k, st)
		}
	}
}

// An answer that was in time by the engine's clock is not given up because the process that drives it comes late; one
// that there is not is.
func TestCallLate(t *testing.T) {
	f := bringUp(t, "star:2")
	from := hostPort(f, 0)
	at, call := f.port(from), f.caller(from)
	for _, c := range []struct {
		fault Fault
		want  bool
	}{{Fault{Delay: 50 * time.Millisecond}, true}, {Fault{Drop: 1}, false}} {
		if err := f.SetFault(from, c.fault); err != nil {
			t.Fatal(err)
		}
		done := make(chan bool, 1)
		go func() {
			var resp [mad.Size]byte
			done <- call(directed(mad.AttrNodeInfo, from.Port), &resp)
		}()
		for isLate := false; !isLate && len(done) == 0; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			if isLate = at.call != nil; isLate { // nothing moves until the time is up
				for until := f.Now() + 220*ib.Millisecond; f.Now() < until; {
					time.Sleep(time.Millisecond)
				}
			}
			f.mu.Unlock()
		}
		if got := <-done; got != c.want {
			t.Errorf("%+v: answered %v, want %v", c.fault, got, c.want)
		}
	}
}

// A request that is lost is repeated, as a manager does it.
func TestCallRepeats(t *testing.T) {
	f := bringUp(t, "star:2")
	from := hostPort(f, 0)
	at, call := f.port(from), f.caller(from)
	if err := f.SetFault(from, Fault{Drop: 1}); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() {
		var resp [mad.Size]byte
		done <- call(directed(mad.AttrNodeInfo, from.Port), &resp)
	}()
	for isAsked := false; !isAsked; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		isAsked = at.call != nil
		f.mu.Unlock()
	}
	if err := f.SetFault(from, Fault{}); err != nil {
		t.Fatal(err)
	}
	if !<-done {
		t.Error("a request that was lost once has no answer")
	}
}
