package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/machine"
	"softib/driver/sim"
	"softib/fabric"
	"softib/internal/patience"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs/attach/server"
)

// world is two hosts with a program each, the sender's and the receiver's, and the fabric that joins them.
type world interface {
	// do has the program of an end do something, and tell.
	do(end int, o order) told
	// still has the process of an end stand still, or go on.
	still(end int, on bool)
	// link takes the cable of an end out, or puts it in again.
	link(end int, up bool)
	// fault makes the cable of the receiver a bad one, or with no faults a good one; harmed is how many packets it has
	// hit since.
	fault(f fabric.Faults)
	harmed() uint64
	counters(topo.PortRef) ib.Counters
	// pass lets time go by, and now is how much has.
	pass(d time.Duration)
	now() time.Duration
	// packets ends the capture, if there is one, and is what it has seen.
	packets() []string
}

// virtual is a machine in virtual time.
type virtual struct {
	*testing.T
	m     *machine.Machine
	film  *tape
	sides [2]*side
}

func newVirtual(t *testing.T, is setup, captured bool) world {
	g, err := topo.ParseSpec(spec)
	must(t, err)
	v := &virtual{T: t, film: newTape(g)}
	cfg := machine.Config{Seed: 1, Habits: []machine.Habit{machine.Polls}, Direct: 100}
	if captured {
		cfg.Direct = 0
	}
	v.m, err = machine.New(cfg, func(newHost func(*topo.Node) sim.Host) (*sim.Sim, error) {
		c := sim.Config{Seed: 1, NewHost: newHost}
		if captured {
			c.Sink = v.film
		}
		s, err := sim.New(g, c)
		if err == nil {
			_, err = s.BringUp()
		}
		return s, err
	})
	must(t, err)
	t.Cleanup(v.m.Close)
	v.sides = pair(t, is, v.m.Endpoint(1), v.m.Endpoint(2))
	return v
}

func (v *virtual) do(end int, o order) told {
	r, err := v.sides[end].do(o, v.sides[1-end].address())
	must(v, err)
	return r
}

func (v *virtual) still(end int, on bool) {
	if !on {
		v.pass(time.Millisecond) // in which it has stood still
	}
	until := v.m.Now()
	if on {
		until += 100 * ib.Second
	}
	v.m.StandStill(1+end, until)
}

func (v *virtual) link(end int, up bool) {
	at := host(v.m.Graph(), end)
	v.m.SetLink(at, up)
	for up && v.m.Port(at).State() != ib.PortActive {
		v.pass(time.Microsecond)
	}
}

func (v *virtual) fault(f fabric.Faults) {
	f.SpareFC = f != fabric.Faults{} // as in real time
	v.m.SetFault(host(v.m.Graph(), receiver), f)
}

func (v *virtual) counters(ref topo.PortRef) ib.Counters { return v.m.Counters(ref) }
func (v *virtual) now() time.Duration                    { return time.Duration(v.m.Now() / ib.Nanosecond) }
func (v *virtual) packets() []string                     { return v.film.lines }

func (v *virtual) harmed() (n uint64) {
	for _, r := range cable(v.m.Graph()) {
		h := v.m.HarmAt(v.m.Place(r.Node, r.Port))
		n += h.Dropped + h.Corrupted
	}
	return n
}

func (v *virtual) pass(d time.Duration) {
	for until := v.m.Now() + ib.Time(d)*ib.Nanosecond; v.m.Now() < until; {
		v.m.Next(until)
	}
}

func pair(t *testing.T, is setup, x, y adapter) [2]*side {
	t.Helper()
	a, err := newSide(x, is)
	must(t, err)
	b, err := newSide(y, is)
	must(t, err)
	must(t, a.connect(b.address()))
	must(t, b.connect(a.address()))
	return [2]*side{a, b}
}

// real is a fabric in real time; programs are added to it.
type real struct {
	*testing.T
	f     *live.Fabric
	film  *tape
	stop  func() error
	began time.Time
}

func newReal(t *testing.T, captured bool) *real {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	must(t, err)
	f, err := live.New(g, live.Config{})
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.BringUp()
	must(t, err)
	r := &real{T: t, f: f, film: newTape(g), stop: func() error { return nil }, began: time.Now()}
	if captured {
		r.stop, err = f.Capture(r.film.ends, r.film)
		must(t, err)
	}
	return r
}

func (r *real) link(end int, up bool) {
	must(r, r.f.SetLink(host(r.f.Graph(), end), up))
	if up {
		_, err := r.f.BringUp()
		must(r, err)
	}
}

func (r *real) fault(f fabric.Faults) {
	at := host(r.f.Graph(), 1)
	if f == (fabric.Faults{}) {
		must(r, r.f.ClearFault(at))
		return
	}
	must(r, r.f.SetFault(at, inspect.Fault{Drop: f.Drop, BER: f.BER, Rate: f.Rate,
		Delay: time.Duration(f.Lag / ib.Nanosecond)}))
}

func (r *real) harmed() (n uint64) {
	for _, f := range r.f.Faults() {
		n += f.Dropped + f.Corrupted
	}
	return n
}

func (r *real) counters(ref topo.PortRef) ib.Counters { return r.f.Counters(ref) }
func (r *real) pass(d time.Duration)                  { time.Sleep(d) }

func (r *real) now() time.Duration { return time.Since(r.began) }

func (r *real) packets() []string {
	must(r, r.stop())
	return r.film.lines
}

// inProcess is hosts of the fabric's own process.
type inProcess struct {
	*real
	sides [2]*side
}

func newInProcess(t *testing.T, is setup, captured bool) world {
	p := &inProcess{real: newReal(t, captured)}
	hosts := hosts(p.f.Graph())
	x, err := p.f.Host(hosts[0].Name)
	must(t, err)
	y, err := p.f.Host(hosts[1].Name)
	must(t, err)
	p.sides = pair(t, is, x.Device(), y.Device())
	return p
}

func (p *inProcess) do(end int, o order) told {
	r, err := p.sides[end].do(o, p.sides[1-end].address())
	must(p, err)
	return r
}

// still keeps the adapter's lock, so that nobody can do the program's work.
func (p *inProcess) still(end int, on bool) {
	if on {
		p.sides[end].Enter()
	} else {
		p.sides[end].Leave()
	}
}

// inProcesses is hosts whose programs are processes of their own.
type inProcesses struct {
	*real
	children [2]*child
}

// child is such a program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newInProcesses(t *testing.T, is setup, captured bool) world {
	p := &inProcesses{real: newReal(t, captured)}
	socket := filepath.Join(t.TempDir(), "verbs")
	l, err := server.Listen(socket)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, p.f, "test", nil) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-served)
	})
	var at [2]address
	for i, h := range hosts(p.f.Graph()) {
		p.children[i] = newChild(t, socket, h.Name)
		p.tell(i, is)
		p.hear(i, &at[i])
	}
	for i := range p.children {
		p.tell(i, at[1-i])
		p.do(i, order{}) // it is connected
	}
	return p
}

func newChild(t *testing.T, socket, name string) *child {
	t.Helper()
	ctx, cancel := patience.Context(context.Background(), 4*patiently)
	c := &child{cmd: exec.CommandContext(ctx, "/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), "DRIVERTEST_SOCKET="+socket, "DRIVERTEST_HOST="+name)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT) // where the test has ended in the midst
		in.Close()
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	})
	c.in, c.out = in, bufio.NewReader(out)
	return c
}

func (p *inProcesses) tell(end int, v any) {
	p.Helper()
	b, err := json.Marshal(v)
	must(p, err)
	_, err = p.children[end].in.Write(append(b, '\n'))
	must(p, err)
}

func (p *inProcesses) hear(end int, v any) {
	p.Helper()
	line, err := p.children[end].out.ReadBytes('\n')
	must(p, err)
	must(p, json.Unmarshal(line, v))
}

func (p *inProcesses) do(end int, o order) (r told) {
	p.tell(end, o)
	p.hear(end, &r)
	return r
}

// still stops the process, and returns when all of its threads have stopped.
func (p *inProcesses) still(end int, on bool) {
	pid := p.children[end].cmd.Process.Pid
	if !on {
		must(p, syscall.Kill(pid, syscall.SIGCONT))
		return
	}
	must(p, syscall.Kill(pid, syscall.SIGSTOP))
	var is syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &is, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		must(p, err)
		break
	}
	if !is.Stopped() {
		p.Fatalf("process %d has not stopped: status %#x", pid, uint32(is))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
