package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/machine"
	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
	"softib/verbs/attach/server"
)

// step is something that h1 does to h2.
type step struct {
	Op     hca.WROpcode
	Bytes  int
	Imm    uint32
	BadKey bool
	// Down takes the cable of h2 out first.
	Down bool
}

// script is what is done, one after the other; each step is over before the next.
var script = []step{
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

// endings are the last step of a script, each a fault that ends the connection.
var endings = map[string]step{
	"a wrong key":     {Op: hca.WRRDMAWrite, Bytes: 64, BadKey: true},
	"a cable is out":  {Op: hca.WRSend, Bytes: 64, Down: true},
	"nothing happens": {Op: hca.WRSend, Bytes: 16},
}

// seen is what can be seen of a run.
type seen struct {
	Sender, Receiver []done
	Counters         map[string][4]uint64
	Packets          []string
}

const spec = "star:2,speed=HDR,length=2m"

// host names a port of a host.
func host(g *topo.Graph, i int) topo.PortRef { return topo.PortRef{Node: g.Hosts()[i].Index, Port: 1} }

// ports are all that packets pass.
func ports(g *topo.Graph) (list []topo.PortRef) {
	for _, c := range g.Cables() {
		list = append(list, c.A, c.B)
	}
	return list
}

// counted is what ports have counted since before.
func counted(g *topo.Graph, read func(topo.PortRef) ib.Counters, before map[string][4]uint64) map[string][4]uint64 {
	now := map[string][4]uint64{}
	for _, r := range ports(g) {
		c, b := read(r), before[g.PortName(r)]
		now[g.PortName(r)] = [4]uint64{c[ib.PortXmitPkts] - b[0], c[ib.PortXmitData] - b[1], c[ib.PortRcvPkts] - b[2],
			c[ib.PortRcvData] - b[3]}
	}
	return now
}

// tape is a capture of what is sent at the two ends of h1's cable.
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
		run  func(*testing.T, []step, bool) seen
	}{{"virtual time", virtual}, {"one process", inProcess}, {"processes", inProcesses}}
	for name, last := range endings {
		for _, captured := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/captured=%v", name, captured), func(t *testing.T) {
				steps := append(slices.Clone(script), last)
				var first seen
				for i, d := range drivers {
					got := d.run(t, steps, captured)
					if i == 0 {
						first = got
						if len(got.Sender) < len(steps) || captured && len(got.Packets) < len(steps) {
							t.Fatalf("%s: %d completions of %d, %d packets", d.name, len(got.Sender), len(steps),
								len(got.Packets))
						}
						continue
					}
					same(t, "completions of the sender", d.name, got.Sender, first.Sender)
					same(t, "completions of the receiver", d.name, got.Receiver, first.Receiver)
					same(t, "packets", d.name, got.Packets, first.Packets)
					for port, want := range first.Counters {
						if have := got.Counters[port]; withoutTraps(have, want) != want {
							t.Errorf("%s: %s has sent and received %v, want %v", d.name, port, have, want)
						}
					}
				}
			})
		}
	}
}

// trapWords is how long a datagram of management is for counters.
const trapWords = (wire.LRHSize + wire.BTHSize + wire.DETHSize + mad.Size + wire.ICRCSize) / 4

// withoutTraps takes out of what a port has counted what it has more than it should, if those are datagrams: in real
// time the switch tells the manager that a cable is out, again and again, and in virtual time nobody manages here.
func withoutTraps(have, want [4]uint64) [4]uint64 {
	for i := 0; i < 4; i += 2 {
		if n := have[i] - want[i]; have[i] > want[i] && have[i+1]-want[i+1] == n*trapWords {
			have[i], have[i+1] = want[i], want[i+1]
		}
	}
	return have
}

func same[T comparable](t *testing.T, what, driver string, got, want []T) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: %s differ from number %d on: %v, want %v", driver, what, i, got[min(i, len(got)):],
				want[min(i, len(want)):])
			return
		}
	}
}

// virtual runs the script on a machine in virtual time. Where a capture is wanted the ways are switched.
func virtual(t *testing.T, steps []step, captured bool) (out seen) {
	g, err := topo.ParseSpec(spec)
	must(t, err)
	film := newTape(g)
	cfg := machine.Config{Seed: 1, Habits: []machine.Habit{machine.Polls}}
	m, err := machine.New(cfg, func(newHost func(*topo.Node) sim.Host) (*sim.Sim, error) {
		c := sim.Config{Seed: 1, NewHost: newHost}
		if captured {
			c.Sink = film
		}
		s, err := sim.New(g, c)
		if err == nil {
			_, err = s.BringUp()
		}
		return s, err
	})
	must(t, err)
	defer m.Close()
	a, b := pair(t, m.Endpoint(0), m.Endpoint(1))
	before := counted(g, m.Counters, nil)
	limit := m.Now() + 100*ib.Second
	for i, st := range steps {
		if st.Down {
			m.PlanDown(m.Now(), host(g, 1))
			settleVirtual(m)
		}
		must(t, a.post(i, st, b.address()))
		for n := len(out.Sender); len(out.Sender) == n; {
			out.Sender = append(out.Sender, a.poll()...)
			out.Receiver = append(out.Receiver, b.poll()...)
			m.Next(m.Now() + ib.Microsecond)
			if m.Now() > limit {
				t.Fatalf("step %d does not end", i)
			}
		}
	}
	for range 10 {
		settleVirtual(m)
		out.Sender = append(out.Sender, a.poll()...)
		out.Receiver = append(out.Receiver, b.poll()...)
	}
	out.Counters, out.Packets = counted(g, m.Counters, before), film.lines
	return out
}

// settleVirtual lets what is under way arrive.
func settleVirtual(m *machine.Machine) {
	for until := m.Now() + ib.Millisecond; m.Now() < until; {
		m.Next(until)
	}
}

func pair(t *testing.T, x, y adapter) (a, b *side) {
	t.Helper()
	a, err := newSide(x)
	must(t, err)
	b, err = newSide(y)
	must(t, err)
	must(t, a.connect(b.address()))
	must(t, b.connect(a.address()))
	return a, b
}

// realFabric is a fabric in real time, its capture if there is to be one, and what it has counted so far.
func realFabric(t *testing.T, captured bool) (f *live.Fabric, film *tape, stop func()) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	must(t, err)
	f, err = live.New(g, live.Config{})
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.BringUp()
	must(t, err)
	film = newTape(g)
	stop = func() {}
	if captured {
		end, err := f.Capture(film.ends, film)
		must(t, err)
		stop = func() { must(t, end()) }
	}
	return f, film, stop
}

// patience is how long a step may take on a busy machine.
const patience = 30 * time.Second

// inProcess runs the script on hosts of the fabric's own process.
func inProcess(t *testing.T, steps []step, captured bool) (out seen) {
	f, film, stop := realFabric(t, captured)
	g := f.Graph()
	x, err := f.Host(g.Hosts()[0].Name)
	must(t, err)
	y, err := f.Host(g.Hosts()[1].Name)
	must(t, err)
	a, b := pair(t, x.Device(), y.Device())
	before := counted(g, f.Counters, nil)
	for i, st := range steps {
		if st.Down {
			must(t, f.SetLink(host(g, 1), false))
		}
		must(t, a.post(i, st, b.address()))
		for n, end := len(out.Sender), time.Now().Add(patience); len(out.Sender) == n; {
			out.Sender = append(out.Sender, a.poll()...)
			out.Receiver = append(out.Receiver, b.poll()...)
			if time.Now().After(end) {
				t.Fatalf("step %d does not end", i)
			}
		}
	}
	settleReal(f, func() {
		out.Sender = append(out.Sender, a.poll()...)
		out.Receiver = append(out.Receiver, b.poll()...)
	})
	stop()
	out.Counters, out.Packets = counted(g, f.Counters, before), film.lines
	return out
}

// settleReal lets what is under way arrive: counters stand still.
func settleReal(f *live.Fabric, poll func()) {
	var last []ib.Counters
	for quiet := 0; quiet < 20; {
		poll()
		time.Sleep(5 * time.Millisecond)
		now := f.CountersOf(ports(f.Graph()))
		if quiet++; !slices.Equal(now, last) {
			quiet = 0
		}
		last = now
	}
}

// child is a program in a process of its own.
type child struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func newChild(t *testing.T, socket, name string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), "DRIVERTEST_SOCKET="+socket, "DRIVERTEST_HOST="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	})
	return &child{t, in, bufio.NewReader(out)}
}

func (c *child) tell(v any) {
	c.t.Helper()
	b, err := json.Marshal(v)
	must(c.t, err)
	_, err = c.in.Write(append(b, '\n'))
	must(c.t, err)
}

func (c *child) hear(v any) {
	c.t.Helper()
	line, err := c.out.ReadBytes('\n')
	must(c.t, err)
	must(c.t, json.Unmarshal(line, v))
}

// inProcesses runs the script on hosts whose programs are processes of their own.
func inProcesses(t *testing.T, steps []step, captured bool) (out seen) {
	f, film, stop := realFabric(t, captured)
	g := f.Graph()
	socket := filepath.Join(t.TempDir(), "verbs")
	l, err := server.Listen(socket)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, f, "test", nil) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-served)
	})
	var to [2]address
	a, b := newChild(t, socket, g.Hosts()[0].Name), newChild(t, socket, g.Hosts()[1].Name)
	a.hear(&to[0])
	b.hear(&to[1])
	a.tell(to[1])
	b.tell(to[0])
	ask := func(c *child) (got []done) {
		c.tell(order{I: -1})
		c.hear(&got)
		return got
	}
	ask(b) // it is connected
	before := counted(g, f.Counters, nil)
	for i, st := range steps {
		if st.Down {
			must(t, f.SetLink(host(g, 1), false))
		}
		a.tell(order{i, st})
		var got []done
		a.hear(&got)
		out.Sender = append(out.Sender, got...)
	}
	settleReal(f, func() {
		out.Sender = append(out.Sender, ask(a)...)
		out.Receiver = append(out.Receiver, ask(b)...)
	})
	stop()
	out.Counters, out.Packets = counted(g, f.Counters, before), film.lines
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
