package cm

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

const (
	ms      = ib.Millisecond
	service = 0x1000_0000_0000_1234
)

// flight is a datagram on its way to a side.
type flight struct {
	at  ib.Time
	seq int
	to  int
	env mad.Envelope
	b   [mad.Size]byte
}

type flights []*flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(*flight)) }
func (f *flights) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

// world is two ports and the wire between them, in virtual time.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	now   ib.Time
	seq   int
	ports [2]*Port
	wire  flights

	drop, dup float64
	delayMax  ib.Time
	log       []string // what was said, by side
	quiet     bool
	each      func(to int, b []byte) bool // if not nil, false loses a datagram
}

func side(i int) string { return [2]string{"A", "B"}[i] }

func lid(i int) ib.LID     { return ib.LID(i + 1) }
func gidOf(i int) ib.GID   { return ib.MakeGID(ib.DefaultGIDPrefix, ib.GUID(0x100+i)) }
func caGUID(i int) ib.GUID { return ib.GUID(0xC0 + i) }

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), delayMax: 10 * ib.Microsecond}
	for i := range w.ports {
		w.ports[i] = New(Config{Rand: rand.New(rand.NewPCG(seed, uint64(i))), CAGUID: caGUID(i), AckDelay: 10})
		w.ports[i].SetAttr(PortAttr{GIDs: []ib.GID{gidOf(i)}, PKeys: []ib.PKey{0xFFFF}})
	}
	return w
}

// path leads from side i to the other one, or to itself.
func path(from, to int) Path {
	return Path{PathRecord: mad.PathRecord{SLID: lid(from), DLID: lid(to), SGID: gidOf(from), DGID: gidOf(to),
		PKey: 0xFFFF,
		SL:   3, MTU: ib.MTU2048, Rate: 3, PacketLifeTime: 8}}
}

func req(from, to int, qpn ib.QPN) ReqParams {
	return ReqParams{Primary: path(from, to), ServiceID: service, QPN: qpn, StartingPSN: 0x111111,
		ResponderResources: 3, InitiatorDepth: 5,
		RetryCount: 6, RNRRetryCount: 7, RemoteCMTimeout: 12, LocalCMTimeout: 11, MaxCMRetries: 4,
		Private: []byte("hello")}
}

func rep(qpn ib.QPN) RepParams {
	return RepParams{QPN: qpn, StartingPSN: 0x222222, ResponderResources: 5, InitiatorDepth: 3, RNRRetryCount: 2,
		Private: []byte("welcome")}
}

// flush puts what the ports have to say onto the wire.
func (w *world) flush() {
	for i, p := range w.ports {
		for {
			env, b, ok := p.PollSend()
			if !ok {
				break
			}
			to := int(env.LID) - 1
			if !w.quiet {
				w.log = append(w.log, side(i)+" "+mad.AttrName(mad.ClassCM, mad.View(b[:]).AttrID()))
			}
			if w.rng.Float64() < w.drop || w.each != nil && !w.each(to, b[:]) {
				continue
			}
			copies := 1
			if w.rng.Float64() < w.dup {
				copies = 2
			}
			for range copies {
				w.seq++
				from := mad.Envelope{LID: lid(i), QPN: 1, SL: env.SL, QKey: ib.QKeyGSI}
				heap.Push(&w.wire, &flight{w.now + 1 + ib.Time(w.rng.Int64N(int64(w.delayMax))), w.seq, to, from, *b})
			}
		}
	}
}

// step goes to the next thing that happens: a datagram arrives, or a timer expires. It reports false when nothing
// ever will.
func (w *world) step() bool {
	w.flush()
	next, who := ib.Never, -1
	for i, p := range w.ports {
		if d := p.NextDeadline(); d < next {
			next, who = d, i
		}
	}
	if len(w.wire) > 0 && w.wire[0].at <= next {
		f := heap.Pop(&w.wire).(*flight)
		w.now = max(w.now, f.at)
		w.ports[f.to].Handle(w.now, f.env, f.b[:])
		w.flush()
		return true
	}
	if who < 0 {
		return false
	}
	w.now = max(w.now, next)
	w.ports[who].HandleTimer(w.now)
	w.flush()
	return true
}

// until steps until side i has an event, and wants its kind.
func (w *world) until(i int, kind EventKind) Event {
	w.t.Helper()
	for {
		if e, ok := w.ports[i].PollEvent(); ok {
			if e.Kind != kind {
				w.t.Fatalf("%s: event %s, want %s; said %v", side(i), e.Kind, kind, w.log)
			}
			return e
		}
		if !w.step() {
			w.t.Fatalf("%s: no event ever, want %s; said %v", side(i), kind, w.log)
		}
	}
}

// idle steps until nothing happens any more, and wants no event from either side.
func (w *world) idle() {
	w.t.Helper()
	for w.step() {
	}
	for i, p := range w.ports {
		if e, ok := p.PollEvent(); ok {
			w.t.Fatalf("%s: event %s; said %v", side(i), e.Kind, w.log)
		}
	}
}

// settle handles everything that is on its way, but no timer.
func (w *world) settle() {
	w.flush()
	for len(w.wire) > 0 {
		f := heap.Pop(&w.wire).(*flight)
		w.now = max(w.now, f.at)
		w.ports[f.to].Handle(w.now, f.env, f.b[:])
		w.flush()
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) listen(i int) ListenID {
	w.t.Helper()
	l, err := w.ports[i].Listen(service, ^uint64(0))
	w.must(err)
	return l
}

func (w *world) connect(i int, r ReqParams) ConnID {
	w.t.Helper()
	id, err := w.ports[i].Connect(w.now, r)
	w.must(err)
	return id
}

func (w *world) state(i int, id ConnID, want State) {
	w.t.Helper()
	info, ok := w.ports[i].Info(id)
	if !ok || info.State != want {
		w.t.Fatalf("%s: connection is %v (%v), want %v; said %v", side(i), info.State, ok, want, w.log)
	}
}

// establish makes a connection from A to B, where somebody listens.
func (w *world) establish(qa, qb ib.QPN) (a, b ConnID) {
	w.t.Helper()
	a = w.connect(0, req(0, 1, qa))
	b = w.until(1, ReqReceived).ID
	w.must(w.ports[1].Accept(w.now, b, rep(qb)))
	w.until(0, RepReceived)
	w.must(w.ports[0].Ready(w.now, a, nil))
	w.until(1, RTUReceived)
	w.state(0, a, StateEstablished)
	w.state(1, b, StateEstablished)
	return a, b
}

// drained wants a port that remembers nothing.
func (w *world) drained() {
	w.t.Helper()
	for i, p := range w.ports {
		got := fmt.Sprint(len(p.conns), len(p.peers), len(p.qpns), len(p.sidrs), len(p.reqGhosts), len(p.sidrGhosts),
			p.pendings, len(p.timers.heap), p.outbox.n)
		if got != "0 0 0 0 0 0 0 0 0" {
			w.t.Fatalf("%s is left with %s (connections, peers, queue pairs, look-ups, last words of two kinds, "+
				"pending, timers, datagrams)", side(i), got)
		}
	}
}

// said compares what was said since the last time.
func (w *world) said(want ...string) {
	w.t.Helper()
	if fmt.Sprint(w.log) != fmt.Sprint(want) {
		w.t.Errorf("said %v\nwant %v", w.log, want)
	}
	w.log = nil
}
