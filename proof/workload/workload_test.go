package workload

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

func TestPayloadSaysWhoseItIs(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 100} {
		a, b, c := make([]byte, n), make([]byte, n), make([]byte, n)
		Payload(a, 1, 5, 6)
		Payload(b, 1, 5, 6)
		Payload(c, 2, 5, 6)
		if !bytes.Equal(a, b) {
			t.Errorf("%d bytes: two payloads of one op", n)
		}
		if n > headerSize+1 && bytes.Equal(a, c) {
			t.Errorf("%d bytes: another seed has the same payload", n)
		}
		flow, op, ok := Identify(a)
		if ok != (n >= headerSize) || ok && (flow != 5 || op != 6) {
			t.Errorf("%d bytes: identified as flow %d op %d, %v", n, flow, op, ok)
		}
	}
	if f, n := FromImmediate(Immediate(77, 1234)); f != 77 || n != 1234 {
		t.Errorf("immediate of flow %d op %d: want 77 and 1234", f, n)
	}
}

func TestCutCoversItsRange(t *testing.T) {
	for seed := range uint64(200) {
		r := Range{Off: 1000, Len: 1 + int(seed*37%900)}
		k := 1 + int(seed%5)
		pieces := cut(r, k, seed)
		if len(pieces) != min(k, r.Len) {
			t.Fatalf("%d pieces: want %d", len(pieces), min(k, r.Len))
		}
		hit := make([]int, r.Len)
		for _, p := range pieces {
			if p.Len < 1 {
				t.Fatalf("an empty piece in %v", pieces)
			}
			for i := range p.Len {
				hit[p.Off-r.Off+i]++
			}
		}
		for i, n := range hit {
			if n != 1 {
				t.Fatalf("byte %d is in %d pieces of %v", i, n, pieces)
			}
		}
		mem, data := make([]byte, 2000), make([]byte, r.Len)
		fill(data, seed)
		Scatter(mem, pieces, data)
		if got := Gather(nil, mem, pieces); !bytes.Equal(got, data) {
			t.Fatalf("scattered and gathered: %d bytes differ", len(got))
		}
	}
	if cut(Range{}, 3, 1) != nil {
		t.Error("pieces of nothing")
	}
}

// TestGenerateKeepsToItsShape draws many loads and looks whether each is one that can be
// run, and as calm as it was to be.
func TestGenerateKeepsToItsShape(t *testing.T) {
	for seed := range uint64(300) {
		sh := Shape{Hosts: 2 + int(seed%9), Conns: 20, Ops: 30, Bytes: 1 << 20, MTU: ib.MTU2048, Lossy: seed%2 == 0,
			Calm: seed%3 == 0, Partitions: seed%5 == 0}
		draw := func() Spec { return Generate(rand.New(rand.NewPCG(seed, 1)), sh) }
		s := draw()
		if !reflect.DeepEqual(s, draw()) {
			t.Fatalf("seed %d: two loads", seed)
		}
		if _, b := s.Totals(); b > 3*sh.Bytes {
			t.Errorf("seed %d: %d bytes: asked for about %d", seed, b, sh.Bytes)
		}
		for i := range s.Conns {
			c := &s.Conns[i]
			if sh.Calm && c.Crosses(&s) {
				t.Errorf("seed %d: conn %d crosses partitions in a calm load", seed, c.ID)
			}
			if c.MTU > sh.MTU || c.Type == hca.XRCSend && (len(c.Flows[1].Ops) > 0 || c.SRQ[1] == 0) {
				t.Errorf("seed %d: conn %d cannot be: %+v", seed, c.ID, c)
			}
			for e := range c.Flows {
				f := &c.Flows[e]
				for k := range f.Ops {
					o := &f.Ops[k]
					switch {
					case o.N != k:
						t.Fatalf("seed %d: op %d is numbered %d", seed, k, o.N)
					case sh.Calm && o.Misuse != None:
						t.Errorf("seed %d: %v in a calm load", seed, o)
					case (o.Writes() || o.Code == hca.WRRDMARead) && (o.Size > f.SlotSize || o.Slot >= f.Slots):
						t.Errorf("seed %d: %v of slot %d does not fit %d slots of %d", seed, o, o.Slot, f.Slots,
							f.SlotSize)
					case o.SGEs > f.SendSGEs || o.Flags&hca.SendInline != 0 && o.Size > maxInline:
						t.Errorf("seed %d: %v cannot be posted", seed, o)
					case c.Type == hca.UD && o.Size > sh.MTU.Bytes():
						t.Errorf("seed %d: %v is no datagram", seed, o)
					}
				}
			}
		}
	}
}

// listener counts what a runner tells.
type listener struct {
	posted, done, failed, received int
	refused                        []error
}

func (l *listener) OpPosted(ib.Time, *OpState) { l.posted++ }
func (l *listener) SendDone(_ ib.Time, _ int, wc *hca.WC) {
	if l.done++; wc.Status != hca.WCSuccess {
		l.failed++
	}
}
func (l *listener) RecvPosted(ib.Time, *Recv)      {}
func (l *listener) RecvDone(ib.Time, int, *hca.WC) { l.received++ }
func (l *listener) Event(ib.Time, int, hca.Event)  {}
func (l *listener) Closed(ib.Time, *Conn)          {}
func (l *listener) Freed(ib.Time, Range)           {}
func (l *listener) Scribbled(ib.Time, Range)       {}
func (l *listener) Failed(ib.Time, *End)           {}
func (l *listener) Refused(_ ib.Time, _ int, _ string, err error) {
	l.refused = append(l.refused, err)
}

// TestRunner runs calm loads to their end: every op is posted and ends well, and
// everything can be destroyed.
func TestRunner(t *testing.T) {
	for seed := range uint64(12) {
		g, err := topo.ParseSpec("star:5")
		if err != nil {
			t.Fatal(err)
		}
		s, err := sim.New(g, sim.Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.BringUp(); err != nil {
			t.Fatal(err)
		}
		spec := Generate(rand.New(rand.NewPCG(seed, 2)),
			Shape{Hosts: 5, Conns: 12, Ops: 20, Bytes: 1 << 20, MTU: ib.MTU4096, Calm: true})
		l := &listener{}
		r, err := New(bare{s}, &spec, l)
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		for !r.Finished() {
			w := s.Next(ib.Second)
			if w.Kind == sim.WakeIdle || w.Kind == sim.WakeLimit {
				t.Fatalf("seed %d: stuck with %d flows unfinished", seed, len(r.Unfinished()))
			}
			r.Handle(w)
		}
		s.RunUntilIdle(ib.Second)
		r.Drain()
		if ops, _ := spec.Totals(); l.posted != ops || l.failed > 0 || len(l.refused) > 0 {
			t.Errorf("seed %d: %d of %d posted, %d failed, refused %v", seed, l.posted, ops, l.failed, l.refused)
		}
		if err := r.Close(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(g, sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BringUp(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(bare{s}, &Spec{Hosts: 3}, &listener{}); err == nil {
		t.Error("three hosts on a fabric of two")
	}
}

// bare is a simulation that drives its adapters itself: programs do nothing but post and poll, in no time.
type bare struct{ *sim.Sim }

// Engine is a host's adapter.
func (b bare) Engine(host int) *hca.HCA {
	h, _ := b.Host(host).(*hca.HCA)
	return h
}

// SetPKeys writes the adapter's table.
func (b bare) SetPKeys(host int, keys []ib.PKey) {
	p := *b.Engine(host).Port(1)
	p.PKeys = keys
	b.Engine(host).SetPort(1, p)
}

// Use is the adapter as it is.
func (b bare) Use(host int) *hca.HCA { return b.Engine(host) }

// PostSend posts a request.
func (b bare) PostSend(host int, q *hca.QP, wr *hca.SendWR) error {
	return b.Engine(host).PostSend(q, wr)
}

// Outstanding is what the adapter says.
func (b bare) Outstanding(_ int, q *hca.QP) int { return q.Outstanding() }

// Still is never so.
func (b bare) Still(int) bool { return false }

// Arm asks for an event.
func (b bare) Arm(_ int, cq *hca.CQ) { cq.ReqNotify(false) }

// Poll takes completions.
func (b bare) Poll(_ int, cq *hca.CQ, out []hca.WC) int { return cq.Poll(out) }

// PollEvent takes an event.
func (b bare) PollEvent(host int) (hca.Event, bool) { return b.Engine(host).PollEvent() }
