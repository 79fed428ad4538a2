package server_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/live"
	"softib/driver/span"
	"softib/internal/mmsg"
	"softib/internal/race"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach/server"
)

// machines is a fabric of which three machines, all in this process, have a part each: one the switches, the others
// hosts in turn. Programs attach to each, and their own datagrams go over loopback.
type machines struct {
	all     map[string]*span.Fabric
	sockets map[string]string
	box     map[string]chan trunked
	deaf    bool // programs' datagrams go nowhere
}

type trunked struct {
	from  string
	cable int
	data  []byte
}

type atMachine struct {
	*machines
	here string
}

func (m atMachine) Send(machine string, cable int, msg []byte) {
	m.box[machine] <- trunked{m.here, cable, slices.Clone(msg)}
}

func (m atMachine) Flush() {}

func (m atMachine) Call(ctx context.Context, machine, method string, in []byte) ([]byte, error) {
	return m.all[machine].Answer(ctx, m.here, method, in)
}

func (m atMachine) Socket() (fd int, at netip.AddrPort, mtu int, err error) {
	if fd, err = mmsg.Open(false); err != nil {
		return fd, at, 0, err
	}
	ip := netip.MustParseAddr("127.0.0.1")
	if err = unix.Bind(fd, &unix.SockaddrInet6{Addr: ip.As16()}); err != nil {
		return fd, at, 0, err
	}
	self, err := unix.Getsockname(fd)
	port := uint16(self.(*unix.SockaddrInet6).Port)
	if m.deaf {
		port = 9 // discard
	}
	return fd, netip.AddrPortFrom(ip, port), 1452, err
}

func (m atMachine) Passes(context.Context, string) bool { return true }

func newMachines(t *testing.T, deaf bool) *machines {
	t.Helper()
	g, err := topo.ParseSpec("star:4")
	if err != nil {
		t.Fatal(err)
	}
	m := &machines{map[string]*span.Fabric{}, map[string]string{}, map[string]chan trunked{}, deaf}
	names := []string{"switch", "odd", "even"}
	var where []string
	hosts := 0
	for _, n := range g.Nodes {
		if n.IsSwitch() {
			where = append(where, "switch")
		} else {
			hosts++
			where = append(where, names[2-hosts%2])
		}
	}
	for _, name := range names {
		m.box[name] = make(chan trunked, 1<<16)
	}
	var carrying, serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for _, name := range names {
		f, err := span.New(span.Config{Graph: g, Here: name, Where: where, Machines: atMachine{m, name}})
		if err != nil {
			t.Fatal(err)
		}
		m.all[name] = f
		carrying.Go(func() {
			for p := range m.box[name] {
				_ = f.Message(p.from, p.cable, p.data)
				f.Turn()
			}
		})
		m.sockets[name] = filepath.Join(t.TempDir(), "verbs")
		l, err := server.Listen(m.sockets[name])
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { _ = server.Serve(ctx, l, f.Live(), "test", nil) })
	}
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, f := range m.all {
			f.Close()
		}
		for _, b := range m.box {
			close(b)
		}
		carrying.Wait()
	})
	for _, a := range names {
		for _, b := range names {
			if a != b {
				m.all[a].Reached(b, true)
			}
		}
	}
	m.await(t, ib.PortInit)
	if _, err := m.all["odd"].BringUp(); err != nil {
		t.Fatal(err)
	}
	m.await(t, ib.PortActive)
	return m
}

// await waits until all see all ports in a state.
func (m *machines) await(t *testing.T, state ib.PortState) {
	t.Helper()
	for _, f := range m.all {
		for _, c := range f.Graph().Cables() {
			until(t, "a cable does not come up", func() bool {
				return min(f.PortState(c.A), f.PortState(c.B)) >= state
			})
		}
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// pair is two programs on two machines with a connection.
func (m *machines) pair(t *testing.T) (a, b *side, qa, qb *verbs.QP) {
	t.Helper()
	a, b = newSide(t, m.sockets["odd"], "h1"), newSide(t, m.sockets["even"], "h2")
	qa, qb = a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout = 16
	join(t, qa, qb, o)
	return a, b, qa, qb
}

// TestLines: programs on different machines talk directly, all kinds of operations work there, and the ports of all
// machines have counted what went by.
func TestLines(t *testing.T) {
	m := newMachines(t, false)
	a, b, qa, qb := m.pair(t)
	const n = 3000
	stream(t, a, b, qa, qb, n, 4096, nil)
	if now, laid := m.all["odd"].Lines("even"); now != 1 || laid != 1 {
		t.Errorf("the sender's machine has %d lines and has laid %d, want one", now, laid)
	}
	if now, _ := m.all["even"].Lines("odd"); now != 1 {
		t.Errorf("the receiver's machine has %d lines for acknowledgements, want one", now)
	}
	g := m.all["odd"].Graph()
	last := topo.PortRef{Node: g.Hosts()[1].Index, Port: 1}
	until(t, "ports at the other end do not count", func() bool {
		return m.all["switch"].Counters(last)[ib.PortRcvPkts] >= n &&
			m.all["switch"].Counters(g.Peer(last))[ib.PortXmitPkts] >= n
	})
	if race.Enabled {
		return // programs that poll memory race by design
	}
	x, y := open(t, m.sockets["odd"], "h3"), open(t, m.sockets["even"], "h4")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for test := perf.Test(0); test < perf.NumTest; test++ {
		cfg := perf.Config{Test: test, Iters: 50, Sizes: []int{8, 4096, 65536, 1 << 20}}
		if test == perf.AtomicLat {
			cfg.Sizes = nil
		}
		if err := perf.Run(ctx, x, y, cfg, func(perf.Row) error { return nil }); err != nil {
			t.Errorf("%v: %v", test, err)
		}
	}
}

// TestLinesComeAndGo: whatever happens to the cables of a way while a program streams, every message arrives once and
// in its turn: by a line, or through the switches.
func TestLinesComeAndGo(t *testing.T) {
	m := newMachines(t, false)
	a, b, qa, qb := m.pair(t)
	g := m.all["odd"].Graph()
	rng := rand.New(rand.NewPCG(1, 2))
	faulty := topo.PortRef{}
	seen := map[bool]int{}
	stream(t, a, b, qa, qb, 2000, 2048, func(i int) {
		if i%200 != 100 {
			return
		}
		now, _ := m.all["odd"].Lines("even")
		seen[now > 0]++
		if faulty.Port != 0 {
			if err := m.all["switch"].ClearFault(faulty); err != nil {
				t.Fatal(err)
			}
			faulty = topo.PortRef{}
			// It is asked for again after a second; a program that begins anew need not wait.
			time.Sleep(time.Duration(rng.IntN(1200)) * time.Millisecond)
			return
		}
		faulty = g.Peer(topo.PortRef{Node: g.Hosts()[rng.IntN(2)].Index, Port: 1})
		if err := m.all["switch"].SetFault(faulty, live.Fault{Drop: 0.01}); err != nil {
			t.Fatal(err)
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("there was a line %d times, and none %d times", seen[true], seen[false])
	}
}

// TestLinesThatCarryNothing: where datagrams stop to pass between programs, daemons carry what they say: a connection
// that is patient lives on.
func TestLinesThatCarryNothing(t *testing.T) {
	m := newMachines(t, true)
	a, b := newSide(t, m.sockets["odd"], "h1"), newSide(t, m.sockets["even"], "h2")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout = 18 // 1 s, eight times
	join(t, qa, qb, o)
	stream(t, a, b, qa, qb, 200, 1024, nil)
	if now, _ := m.all["odd"].Lines("even"); now != 0 {
		t.Errorf("%d lines are left that carry nothing", now)
	}
}
