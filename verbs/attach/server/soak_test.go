package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/race"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

var (
	soakFor  = flag.Duration("soak", 3*time.Second, "how long the soak tests run")
	soakSeed = flag.Uint64("soakseed", 0, "what happens in a soak test; 0 is something else every time")
)

// soakPatience is how long anything may take before it counts as hanging.
const soakPatience = 60 * time.Second

const soakEnv = "SOFTIB_SOAK_PLAYER"

// TestSoakPlayer is not a test but what a process of TestSoakProcesses does.
func TestSoakPlayer(t *testing.T) {
	at := os.Getenv(soakEnv)
	if at == "" {
		t.Skip("only for the processes of TestSoakProcesses")
	}
	socket, host, _ := strings.Cut(at, " ")
	if err := play(os.NewFile(3, "orders"), socket, host); err != nil {
		fmt.Fprintln(os.Stderr, "player:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// seat is a place on a host that a player sits on, one after another.
type seat struct {
	host string
	mu   sync.Mutex
	now  *troupe
}

// troupe is one player as the test sees it.
type troupe struct {
	pid     int // 0 if it is in the test's process
	conn    io.ReadWriteCloser
	enc     *json.Encoder
	mu      sync.Mutex
	next    int
	answers map[int]chan result
	killed  atomic.Bool
	gone    chan struct{} // it does not answer any more
	ended   chan error
}

var errGone = errors.New("the player is gone")

func (p *troupe) listen() {
	dec := json.NewDecoder(p.conn)
	for {
		var r result
		if dec.Decode(&r) != nil {
			close(p.gone)
			return
		}
		p.mu.Lock()
		c := p.answers[r.ID]
		delete(p.answers, r.ID)
		p.mu.Unlock()
		c <- r
	}
}

// tell gives an order and waits for the answer.
func (p *troupe) tell(o order) (result, error) {
	c := make(chan result, 1)
	p.mu.Lock()
	p.next++
	o.ID = p.next
	p.answers[o.ID] = c
	err := p.enc.Encode(&o)
	p.mu.Unlock()
	if err != nil {
		return result{}, errGone
	}
	select {
	case r := <-c:
		return r, nil
	case <-p.gone:
		return result{}, errGone
	case <-time.After(soakPatience):
		return result{}, fmt.Errorf("%s of flow %d hangs", o.Do, o.Flow)
	}
}

func newTroupe(conn io.ReadWriteCloser) *troupe {
	p := &troupe{conn: conn, enc: json.NewEncoder(conn), answers: map[int]chan result{}, gone: make(chan struct{}),
		ended: make(chan error, 1)}
	go p.listen()
	return p
}

// inProcess starts a player in the test's own process.
func inProcess(socket, host string) (*troupe, error) {
	a, b := net.Pipe()
	p := newTroupe(a)
	go func() {
		err := play(b, socket, host)
		b.Close()
		p.ended <- err
	}()
	return p, nil
}

// inChild starts one in a process of its own.
func inChild(socket, host string) (*troupe, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	mine, his := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "his")
	defer his.Close()
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSoakPlayer$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), soakEnv+"="+socket+" "+host, "GOMAXPROCS=2")
	cmd.ExtraFiles = []*os.File{his}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	p := newTroupe(conn)
	p.pid = cmd.Process.Pid
	go func() {
		err := cmd.Wait()
		if p.killed.Load() {
			err = nil
		}
		p.ended <- err
	}()
	return p, nil
}

// soak is one run.
type soak struct {
	t     *testing.T
	f     *live.Fabric
	seats []*seat
	start func(host string) (*troupe, error)
	until time.Time
	flows atomic.Int64

	mu     sync.Mutex
	pairs  map[int]*match
	total  flowStats
	ended  map[string]int
	deeds  map[string]int
	failed atomic.Bool
}

// match is a connection under way.
type match struct {
	id      int
	typ     verbs.QPType
	a, b    *troupe
	excused atomic.Bool // somebody has done something to it that it need not survive
}

func (s *soak) fail(format string, args ...any) {
	if !s.failed.Swap(true) {
		s.t.Errorf(format, args...)
		s.dump()
	}
}

// dump shows what everybody does.
func (s *soak) dump() {
	for _, st := range s.seats {
		st.mu.Lock()
		if p := st.now; p != nil && p.pid != 0 && !p.killed.Load() {
			p.killed.Store(true)
			_ = syscall.Kill(p.pid, syscall.SIGCONT)
			_ = syscall.Kill(p.pid, syscall.SIGQUIT)
		}
		st.mu.Unlock()
	}
	b := make([]byte, 1<<20)
	s.t.Logf("%s", b[:runtime.Stack(b, true)])
}

// player is who sits on a seat, a new one if need be.
func (s *soak) player(st *seat) (*troupe, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.now == nil || st.now.killed.Load() {
		p, err := s.start(st.host)
		if err != nil {
			return nil, err
		}
		st.now = p
	}
	return st.now, nil
}

// connect runs one connection from beginning to end.
func (s *soak) connect(rng *rand.Rand) {
	i, j := rng.IntN(len(s.seats)), rng.IntN(len(s.seats)-1)
	if j >= i {
		j++
	}
	a, errA := s.player(s.seats[i])
	b, errB := s.player(s.seats[j])
	if err := errors.Join(errA, errB); err != nil {
		s.fail("starting a player: %v", err)
		return
	}
	p := &match{id: int(s.flows.Add(1)), a: a, b: b,
		typ: []verbs.QPType{verbs.RC, verbs.RC, verbs.RC, verbs.RC, verbs.UC, verbs.UD}[rng.IntN(6)]}
	spec := flowSpec{Type: p.typ, Max: 300 << 10, SRQ: rng.IntN(3) == 0, Seed: rng.Uint64()&^1 | rng.Uint64()&1,
		Their: rng.Uint64()}
	switch {
	case p.typ == verbs.UD:
		spec.Max = 4096
	case rng.IntN(4) == 0:
		spec.Max = 1 << 20
	}
	modes := []int{rng.IntN(3), rng.IntN(3)}
	back := spec
	back.Seed, back.Their = spec.Their, spec.Seed
	spec.Mode, back.Mode = modes[0], modes[1]

	s.mu.Lock()
	s.pairs[p.id] = p
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pairs, p.id)
		s.mu.Unlock()
	}()
	made := [2]bool{}
	both := func(do string, oa, ob order) (ra, rb result, ok bool) {
		oa.Do, ob.Do, oa.Flow, ob.Flow = do, do, p.id, p.id
		var ea, eb error
		var wg sync.WaitGroup
		if made[0] || do == "make" {
			wg.Go(func() { ra, ea = a.tell(oa) })
		}
		if made[1] || do == "make" {
			wg.Go(func() { rb, eb = b.tell(ob) })
		}
		wg.Wait()
		ok = true
		for i, e := range [2]error{ea, eb} {
			r, who := ra, a
			if i == 1 {
				r, who = rb, b
			}
			switch {
			case errors.Is(e, errGone) && who.killed.Load():
				ok, made[i] = false, false
			case e != nil:
				sa, _ := a.tell(order{Do: "state", Flow: p.id})
				sb, _ := b.tell(order{Do: "state", Flow: p.id})
				s.fail("%v %d (excused %v, end %d): %s: %v\n%s\n%s", p.typ, p.id, p.excused.Load(), i, do, e, sa.Lost,
					sb.Lost)
				ok, made[i] = false, false
			case r.Err != "" && !(do == "connect" && p.excused.Load()):
				s.fail("%v %d: %s: %s", p.typ, p.id, do, r.Err)
				ok = false
			default:
				made[i] = made[i] || do == "make"
			}
		}
		return ra, rb, ok
	}
	ra, rb, ok := both("make", order{Make: spec}, order{Make: back})
	if ok {
		_, _, ok = both("connect", order{Peer: rb.Info}, order{Peer: ra.Info})
	} else {
		// One without a peer has nothing to run.
		p.excused.Store(true)
		both("connect", order{}, order{})
	}
	if ok {
		wait := time.Duration(50+rng.IntN(400)) * time.Millisecond
		if rng.IntN(3) == 0 {
			time.Sleep(wait / 2)
			p.excused.Store(true)
			s.did("break")
			_, _ = a.tell(order{Do: "break", Flow: p.id})
		}
		time.Sleep(wait)
	}
	ra, rb, _ = both("quiesce", order{}, order{})
	s.lost(p, ra.Lost, rb.Lost)
	ra, rb, _ = both("end", order{}, order{})
	s.lost(p, ra.Lost, rb.Lost)
	s.mu.Lock()
	for _, st := range []flowStats{ra.Stats, rb.Stats} {
		s.total.Sent += st.Sent
		s.total.Received += st.Received
		s.total.Bytes += st.Bytes
	}
	s.mu.Unlock()
}

// lost wants a cause for every end that was not asked for.
func (s *soak) lost(p *match, why ...string) {
	for _, w := range why {
		if w == "" {
			continue
		}
		s.mu.Lock()
		s.ended[w]++
		s.mu.Unlock()
		if !p.excused.Load() && !p.a.killed.Load() && !p.b.killed.Load() {
			s.fail("%v %d ended with %s, and nobody has done anything to it", p.typ, p.id, w)
		}
	}
}

func (s *soak) did(what string) {
	s.mu.Lock()
	s.deeds[what]++
	s.mu.Unlock()
}

// cables are those of hosts, and those between switches.
func (s *soak) cables() (hosts, switches []topo.Cable) {
	g := s.f.Graph()
	for _, c := range g.Cables() {
		if g.Nodes[c.A.Node].IsSwitch() && g.Nodes[c.B.Node].IsSwitch() {
			switches = append(switches, c)
		} else {
			hosts = append(hosts, c)
		}
	}
	return hosts, switches
}

// harass does something to the fabric or to a player.
func (s *soak) harass(rng *rand.Rand) {
	hosts, switches := s.cables()
	flip := func(c topo.Cable) {
		for _, up := range []bool{false, true} {
			if err := s.f.SetLink(c.A, up); err != nil {
				s.fail("SetLink: %v", err)
			}
			if _, err := s.f.BringUp(); err != nil && up {
				s.fail("BringUp: %v", err)
			}
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		}
	}
	st := s.seats[rng.IntN(len(s.seats))]
	st.mu.Lock()
	p := st.now
	st.mu.Unlock()
	switch k := rng.IntN(10); {
	case k < 3:
		s.did("trunk")
		flip(switches[rng.IntN(len(switches))])
	case k < 5:
		s.did("cable")
		flip(hosts[rng.IntN(len(hosts))])
	case k < 7 && p != nil && p.pid != 0 && !p.killed.Load():
		s.did("stop")
		_ = syscall.Kill(p.pid, syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
	case k < 8 && p != nil && p.pid != 0 && !p.killed.Load():
		s.did("kill")
		p.killed.Store(true)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	default:
		s.did("counters")
		s.conserved("while running", false)
	}
}

// conserved wants what left one end of every cable to have come out of the other.
func (s *soak) conserved(when string, quiet bool) {
	hosts, switches := s.cables()
	for _, cable := range append(hosts, switches...) {
		c := s.f.CountersOf([]topo.PortRef{cable.A, cable.B})
		a, b := c[0], c[1]
		if quiet && (a[ib.PortXmitPkts] != b[ib.PortRcvPkts] || b[ib.PortXmitPkts] != a[ib.PortRcvPkts]) {
			s.fail("%s: %s sent %d packets and received %d, %s received %d and sent %d", when,
				s.f.Graph().PortName(cable.A), a[ib.PortXmitPkts], a[ib.PortRcvPkts],
				s.f.Graph().PortName(cable.B), b[ib.PortRcvPkts], b[ib.PortXmitPkts])
		}
	}
}

// holdings is what the test's process has that could leak.
func holdings(t *testing.T) (fds, maps int) {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "memfd:softib") {
			fds++
		}
	}
	m, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return fds, strings.Count(string(m), "memfd:softib")
}

func runSoak(t *testing.T, start func(socket, host string) (*troupe, error), pairs int, children bool) {
	if race.Enabled {
		t.Skip("the detector does not see what goes through shared memory")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-soakseed=%d", seed)
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	fds, maps := holdings(t)
	goroutines := runtime.NumGoroutine()
	s := &soak{t: t, f: f, until: time.Now().Add(*soakFor), pairs: map[int]*match{}, ended: map[string]int{},
		deeds: map[string]int{}}
	s.start = func(host string) (*troupe, error) { return start(socket, host) }
	for _, h := range []string{"h1", "h1", "h2", "h5", "h8"} {
		s.seats = append(s.seats, &seat{host: h})
	}
	on := func() bool { return time.Now().Before(s.until) && !s.failed.Load() }
	var wg sync.WaitGroup
	for i := range pairs {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for on() {
				s.connect(rng)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	for on() {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		s.harass(rng)
	}
	wg.Wait()
	for _, st := range s.seats {
		if p := st.now; p != nil {
			p.conn.Close()
			select {
			case err := <-p.ended:
				if err != nil && !p.killed.Load() {
					s.fail("a player on %s: %v", st.host, err)
				}
			case <-time.After(soakPatience):
				s.fail("a player on %s does not end", st.host)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	for len(f.Programs()) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n := len(f.Programs()); n > 0 {
		s.fail("%d processes are still attached", n)
	}
	s.conserved("at the end", true)
	if children {
		// There may be fewer: what a test before this one had is let go of some time after its end.
		a, b := holdings(t)
		for ; (a > fds || b > maps) && ctx.Err() == nil; a, b = holdings(t) {
			time.Sleep(time.Millisecond)
		}
		if a > fds || b > maps {
			s.fail("%d descriptors and %d mappings of shared memory: want %d, %d as at the beginning", a, b, fds, maps)
		}
	}
	n := runtime.NumGoroutine()
	for ; n > goroutines && ctx.Err() == nil; n = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	if n > goroutines {
		s.fail("%d goroutines: want %d as at the beginning", n, goroutines)
	}
	t.Logf("%d connections, %d rounds sent, %d received, %d MB checked; done: %v; ended early: %v", s.flows.Load(),
		s.total.Sent, s.total.Received, s.total.Bytes>>20, s.deeds, s.ended)
	if s.total.Received == 0 {
		t.Error("nothing was received")
	}
}

// TestSoakDevices has programs of one process talk through the fabric while all kinds of things happen to it.
func TestSoakDevices(t *testing.T) { runSoak(t, inProcess, 6, false) }

// TestSoakProcesses has processes do so, which besides are stopped and killed.
func TestSoakProcesses(t *testing.T) { runSoak(t, inChild, 6, true) }
