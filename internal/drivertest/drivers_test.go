package drivertest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"softib/fabric"
	"softib/internal/patience"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// step is something that happens. If it is nothing else, the sender posts something for the receiver, and that is over
// before the next step.
type step struct {
	Op    hca.WROpcode
	Bytes int
	Imm   uint32
	// Wrong is what is wrong with the request.
	Wrong string
	// Times is how many are posted at once, one behind the other in memory; Begins: the next step does not wait for it.
	Times  int
	Begins bool
	// By is the end that does what Do says; Event is something else that happens there.
	By    int
	Do    action
	Event event
	// Faults are those of the receiver's cable from now on, and Until is what is awaited next.
	Faults *fabric.Faults
	Until  func(seen) bool `json:"-"`
}

// event is what happens to a process or its cable.
type event uint8

const (
	standsStill event = iota + 1
	goesOn
	cableOut
	cableIn
)

// posted reports whether the step is a request.
func (s *step) posted() bool {
	return s.Event == 0 && s.Do == tells && s.Faults == nil && s.Until == nil
}

// script is what is done, one after the other.
type script struct {
	setup
	steps []step
	// directly: only where ways lead from ring to ring.
	directly bool
}

// common is how scripts begin.
var common = []step{
	{Op: hca.WRSend, Bytes: 8},
	{Op: hca.WRSendImm, Bytes: 300, Imm: 0xCAFE},
	{Op: hca.WRSend, Bytes: 5000},
	{Op: hca.WRRDMAWrite, Bytes: 64},
	{Op: hca.WRRDMAWrite, Bytes: 64}, // from the second on it may be written ahead
	{Op: hca.WRRDMAWrite, Bytes: 128},
	{Op: hca.WRRDMAWrite, Bytes: 20000},
	{Op: hca.WRRDMAWriteImm, Bytes: 1024, Imm: 7},
	{Op: hca.WRRDMARead, Bytes: 1000},
	{Op: hca.WRRDMARead, Bytes: 20000},
	{Op: hca.WRAtomicFetchAdd, Bytes: 8},
	{Op: hca.WRSend, Bytes: 0},
	{Op: hca.WRSend, Bytes: 32768},
}

// after is a script that goes on after the common steps.
func after(more ...step) script {
	return script{setup{Receives: 32, RNRTimer: 12, RNRRetry: 7}, append(slices.Clone(common), more...), false}
}

// losing is a script in which acknowledgements are lost.
func (x script) losing(timeout uint8) script { x.setup.Timeout = timeout; return x }

// with is a script from its beginning.
func with(is setup, steps ...step) script { return script{is, steps, false} }

var (
	write = step{Op: hca.WRRDMAWrite, Bytes: 64}
	send  = step{Op: hca.WRSend, Bytes: 64}
	heals = step{Faults: &fabric.Faults{}}
	ends  = step{Until: over}
)

// begins is a step for whose end the next does not wait.
func (s step) begins() step { s.Begins = true; return s }

// wrong is a step whose request is wrong.
func (s step) wrong(how string) step { s.Wrong = how; return s }

// times is a step of many requests.
func (s step) times(n int) step { s.Times = n; return s }

func happens(end int, e event) step  { return step{By: end, Event: e} }
func does(end int, what action) step { return step{By: end, Do: what} }
func cableDoes(f fabric.Faults) step { return step{Faults: &f} }
func awaits(f func(seen) bool) step  { return step{Until: f} }

// over reports whether all requests have completed.
func over(s seen) bool { return len(s.Sender) >= s.sent }

// hit waits until the faults of the cable have hit so many packets.
func hit(n uint64) step { return awaits(func(s seen) bool { return s.harmed >= n }) }

// discarded waits until ports have discarded so many packets.
func discarded(n uint64) step {
	return awaits(func(s seen) bool {
		sum := uint64(0)
		for _, c := range s.Counters {
			sum += c[ib.PortXmitDiscards]
		}
		return sum >= n
	})
}

const (
	sender = iota
	receiver
)

// scripts are by what happens.
var scripts = map[string]script{
	"nothing":                  after(step{Op: hca.WRSend, Bytes: 16}),
	"a wrong key":              after(write.wrong("key")),
	"a key that may only read": after(write.wrong("rights")),
	"too far":                  after(write.wrong("bounds")),
	"a wrong key of one's own": after(send.wrong("own key")),
	"a cable is out":           after(happens(receiver, cableOut), send).losing(timeoutAll),
	"its own cable is out":     after(happens(sender, cableOut), send).losing(timeoutAll),
	"a cable is out for a while": after(happens(receiver, cableOut), send.begins(), discarded(1),
		happens(receiver, cableIn), ends, send, write).losing(timeoutOne),
	"a process stands still": after(happens(receiver, standsStill), send.begins(), happens(receiver, goesOn), ends,
		send, happens(receiver, standsStill), write.begins(), happens(receiver, goesOn), ends, write),
	"memory is deregistered": after(write, does(receiver, deregisters), write),
	"memory is deregistered while a peer writes": after(cableDoes(fabric.Faults{Drop: 1}), write.begins(), hit(1),
		does(receiver, deregisters), heals).losing(timeoutOne),
	"a peer's queue pair fails": after(does(receiver, fails), send).losing(timeoutAll),
	"a queue pair fails": after(happens(receiver, standsStill), send.begins(), does(sender, fails),
		happens(receiver, goesOn)),
	"a packet is lost": after(cableDoes(fabric.Faults{Drop: 1}), send.begins(), hit(1), heals, ends,
		send).losing(timeoutOne),
	"all packets are lost": after(cableDoes(fabric.Faults{Drop: 1}), send).losing(timeoutAll),
	"a packet is damaged": after(cableDoes(fabric.Faults{BER: 0.1}), send.begins(), hit(1), heals, ends,
		send).losing(timeoutOne),
	"all packets are damaged": after(cableDoes(fabric.Faults{BER: 0.1}), write).losing(timeoutAll),
	"packets are slow": after(cableDoes(fabric.Faults{Lag: 20 * ib.Millisecond}), send, write,
		step{Op: hca.WRRDMARead, Bytes: 1000}, heals, send),
	"nobody receives":     with(setup{RNRTimer: 12, RNRRetry: 2}, write, send),
	"nobody receives yet": with(setup{RNRTimer: 0, RNRRetry: 2}, write, does(receiver, answers), send),
	"buffers are full":    with(setup{Unreliable: true}, cableDoes(fabric.Faults{Rate: 20e6}), write.times(400)),
	"a ring is full": {setup{Unreliable: true}, []step{happens(receiver, standsStill), write.times(400).begins(),
		happens(receiver, goesOn)}, true},
}

// seen is what can be seen of a run.
type seen struct {
	Sender, Receiver []done
	Ends             [2]seenEnd
	Counters         map[string]ib.Counters
	Packets          []string
	harmed           uint64
	sent             int // how many requests were posted
}

// seenEnd is how an end is: what its adapter has counted, and a digest of the memory.
type seenEnd struct {
	Stats  hca.Stats
	Memory uint64
}

// spec has a third host, which is first: switches tell the manager there that a cable is out, in real time alone.
const spec = "star:3,speed=HDR,length=2m"

// hosts are those of the two programs.
func hosts(g *topo.Graph) []*topo.Node { return g.Hosts()[1:3] }

// host names the port of an end.
func host(g *topo.Graph, end int) topo.PortRef {
	return topo.PortRef{Node: hosts(g)[end].Index, Port: 1}
}

// ports are all that packets pass.
func ports(g *topo.Graph) (list []topo.PortRef) {
	for _, c := range g.Cables() {
		list = append(list, c.A, c.B)
	}
	return list
}

// cable is the ends of the receiver's.
func cable(g *topo.Graph) [2]topo.PortRef { return [2]topo.PortRef{host(g, 1), g.Peer(host(g, 1))} }

// tape is a capture of what is sent at the two ends of the sender's cable.
type tape struct {
	mu    sync.Mutex
	ends  []topo.PortRef
	lines []string
}

func newTape(g *topo.Graph) *tape {
	at := host(g, 0)
	p := g.Port(at)
	return &tape{ends: []topo.PortRef{at, {Node: p.Peer, Port: p.PeerPort}}}
}

// Write notes a packet of the transport by what it says.
func (p *tape) Write(e *trace.Event) error {
	at := slices.Index(p.ends, topo.PortRef{Node: int(e.Node), Port: e.Port})
	if e.Kind != trace.Packet || e.Dir != trace.Out || at < 0 {
		return nil
	}
	pkt := e.Packet
	if pkt == nil {
		pkt = &wire.Packet{}
		if err := pkt.Parse(e.Bytes); err != nil {
			return err
		}
	}
	if b := &pkt.BTH; b.DestQP > ib.QPNGSI {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lines = append(p.lines, fmt.Sprintf("%s %v PSN %d ack %v, %d words", [...]string{"out", "in"}[at], b.Opcode,
			b.PSN, b.AckReq, pkt.LRH.Length))
	}
	return nil
}

// TestSameEverywhere is the table: scripts over drivers.
func TestSameEverywhere(t *testing.T) {
	drivers := []struct {
		name string
		make func(*testing.T, setup, bool) world
	}{{"virtual time", newVirtual}, {"one process", newInProcess}, {"processes", newInProcesses}}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		sc := scripts[name]
		for _, captured := range []bool{false, true} {
			if sc.directly && captured {
				continue
			}
			t.Run(fmt.Sprintf("%s/captured=%v", name, captured), func(t *testing.T) {
				t.Parallel() // most of the time is waiting for timeouts
				var first seen
				for i, d := range drivers {
					t.Run(d.name, func(t *testing.T) {
						got := play(t, d.make(t, sc.setup, captured), sc.steps)
						if i == 0 {
							first = got
							isOther := func(s step) bool { return !s.posted() }
							sent := len(slices.DeleteFunc(slices.Clone(sc.steps), isOther))
							if len(got.Sender) < sent || captured && len(got.Packets) < sent {
								t.Fatalf("%d completions of %d, %d packets", len(got.Sender), sent, len(got.Packets))
							}
							return
						}
						compare(t, got, first)
					})
				}
			})
		}
	}
}

// compare wants a run to be as another was.
func compare(t *testing.T, got, want seen) {
	t.Helper()
	same(t, "completions of the sender", got.Sender, want.Sender)
	same(t, "completions of the receiver", got.Receiver, want.Receiver)
	same(t, "packets", got.Packets, want.Packets)
	for i, is := range got.Ends {
		if is.Memory != want.Ends[i].Memory {
			t.Errorf("end %d has %#x in its memory, want %#x", i+1, is.Memory, want.Ends[i].Memory)
		}
		a, b := reflect.ValueOf(is.Stats), reflect.ValueOf(want.Ends[i].Stats)
		for k := range a.NumField() {
			if !a.Field(k).Equal(b.Field(k)) {
				t.Errorf("the adapter of %s has counted %v %s, want %v", [...]string{"the sender", "the receiver"}[i],
					a.Field(k), a.Type().Field(k).Name, b.Field(k))
			}
		}
	}
	for port, c := range want.Counters {
		is := withoutDatagrams(got.Counters[port], c)
		for k := range ib.NumCounter {
			if is[k] != c[k] {
				t.Errorf("%s has %v %d, want %d", port, k, is[k], c[k])
			}
		}
	}
}

// datagramWords is how long a datagram of management is for counters.
const datagramWords = (wire.LRHSize + wire.BTHSize + wire.DETHSize + mad.Size + wire.ICRCSize) / 4

// withoutDatagrams takes out of what a port has counted what it has more than it should, if those are datagrams of
// management: in real time the switch tells the manager that a cable is out, again and again, and a link that is up
// again is managed by datagrams. In virtual time nobody manages here. What counts time is left out, and how many bits
// of damaged packets were wrong.
func withoutDatagrams(have, want ib.Counters) ib.Counters {
	for _, k := range [][3]ib.Counter{{ib.PortXmitPkts, ib.PortXmitData, ib.PortUnicastXmitPkts},
		{ib.PortRcvPkts, ib.PortRcvData, ib.PortUnicastRcvPkts}} {
		if n := have[k[0]] - want[k[0]]; have[k[0]] > want[k[0]] && have[k[1]]-want[k[1]] == n*datagramWords {
			have[k[0]], have[k[1]], have[k[2]] = want[k[0]], want[k[1]], want[k[2]]
		}
	}
	for _, k := range []ib.Counter{ib.PortXmitWait, ib.PortXmitFlowPkts, ib.PortRcvFlowPkts} {
		have[k] = want[k]
	}
	if k := ib.SymbolErrorCounter; have[k] > 0 && want[k] > 0 {
		have[k] = want[k]
	}
	return have
}

func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s differ from number %d on: %v, want %v", what, i, got[min(i, len(got)):],
				want[min(i, len(want)):])
			return
		}
	}
}

// patiently is how long a step may take.
const patiently = 10 * time.Second

// player plays a script in a world.
type player struct {
	*testing.T
	world
	graph  *topo.Graph
	seen   seen
	still  [2]bool
	before map[string]ib.Counters
}

func play(t *testing.T, w world, steps []step) seen {
	g, err := topo.ParseSpec(spec)
	must(t, err)
	p := &player{T: t, world: w, graph: g}
	p.look()
	p.before = p.seen.Counters
	for i, st := range steps {
		p.step(i, st)
	}
	p.await(len(steps), over)
	p.settle()
	for end := range p.still {
		p.ask(end, order{Do: digests})
	}
	p.seen.Packets = w.packets()
	return p.seen
}

// step does one step.
func (p *player) step(i int, st step) {
	switch {
	case st.Event == standsStill, st.Event == goesOn:
		p.still[st.By] = st.Event == standsStill
		p.world.still(st.By, p.still[st.By])
	case st.Event != 0:
		p.link(st.By, st.Event == cableIn)
	case st.Faults != nil:
		p.fault(*st.Faults)
	case st.Until != nil:
		p.await(i, st.Until)
	case st.Do != tells:
		p.ask(st.By, order{Do: st.Do})
	default:
		p.seen.sent += max(st.Times, 1)
		p.ask(sender, order{posts, i, st})
		if !st.Begins {
			p.await(i, over)
		}
	}
}

// ask has a program do something, and notes what it tells.
func (p *player) ask(end int, o order) {
	r := p.do(end, o)
	if end == sender {
		p.seen.Sender = append(p.seen.Sender, r.Done...)
	} else {
		p.seen.Receiver = append(p.seen.Receiver, r.Done...)
	}
	r.Done = nil
	p.seen.Ends[end] = seenEnd{r.Stats, r.Memory}
}

// look looks at everything that can be seen.
func (p *player) look() {
	for end, still := range p.still {
		if !still {
			p.ask(end, order{})
		}
	}
	p.seen.harmed = p.harmed()
	p.seen.Counters = map[string]ib.Counters{}
	for _, r := range ports(p.graph) {
		c, b := p.counters(r), p.before[p.graph.PortName(r)]
		for k := range c {
			c[k] -= b[k]
		}
		p.seen.Counters[p.graph.PortName(r)] = c
	}
}

// await waits until a step is over.
func (p *player) await(i int, over func(seen) bool) {
	p.Helper()
	began, limit := p.now(), patience.New(patiently)
	for d := time.Microsecond; ; d = min(2*d, time.Millisecond) {
		if p.look(); over(p.seen) {
			return
		}
		if waited := p.now() - began; limit.OverAfter(waited) {
			p.Fatalf("step %d does not end in %s: %+v", i, limit.After(waited), p.seen)
		}
		p.pass(d)
	}
}

// settle lets what is under way arrive: nothing moves any more.
func (p *player) settle() {
	for quiet := 0; quiet < 20; quiet++ {
		was := p.seen
		p.pass(5 * time.Millisecond)
		if p.look(); !maps.Equal(p.seen.Counters, was.Counters) || p.seen.Ends != was.Ends {
			quiet = 0
		}
	}
}

// TestRate: a cable with a rate carries that much and, in virtual time, where nobody lacks a processor, not less by a
// tenth.
func TestRate(t *testing.T) {
	const rate, size, n = 5e6, 3200, 10
	w := newVirtual(t, setup{}, false)
	p := &player{T: t, world: w, graph: w.(*virtual).m.Graph()}
	p.step(0, cableDoes(fabric.Faults{Rate: rate}))
	began := w.now()
	p.step(1, step{Op: hca.WRRDMAWrite, Bytes: size}.times(n))
	words := p.seen.Counters[p.graph.PortName(host(p.graph, receiver))][ib.PortRcvData]
	if got := float64(words) * 32 / (w.now() - began).Seconds(); got < 0.9*rate || got > 1.05*rate {
		t.Errorf("%.2f Mb/s over a cable of %.2f Mb/s", got/1e6, rate/1e6)
	}
}
