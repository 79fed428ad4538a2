package fieldtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/capi/rdmacm"
	"softib/capi/umad"
	"softib/driver/live"
	"softib/driver/smrun"
	"softib/internal/built"
	"softib/internal/packetsock"
	waits "softib/internal/patience" // the package has a patience of its own
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs/attach/server"
)

// patience is how long a program may take on a machine that has nothing else to do; the slowest takes a second there.
const patience = 60 * time.Second

// patient is a context that lasts for as long as a program may take on this machine as it is, and inTime how long that
// is by the load of now.
func patient() (context.Context, context.CancelFunc) {
	return waits.Context(context.Background(), patience)
}
func inTime() time.Duration { return waits.For(patience) }

var (
	scratch   string
	buildOnce sync.Once
	buildErr  error
)

func TestMain(m *testing.M) {
	os.Unsetenv("XDG_STATE_HOME") // fabrics of tests keep their state in their own folders
	dir, err := os.MkdirTemp("", "softib-field-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// library is the drop-in, built as make does.
func library(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	dir := filepath.Join(scratch, "lib")
	buildOnce.Do(func() { buildErr = built.Libraries(dir) })
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return filepath.Join(dir, dropin.UMAD)
}

// packages says where programs come from.
var packages = map[string]string{"opensm": "opensm", "osmtest": "opensm", "mpirun": "openmpi-bin",
	"mpicc": "libopenmpi-dev", "bwrap": "bubblewrap", "tgtd": "tgt", "tgtadm": "tgt",
	"iscsi-test-cu": "libiscsi-bin", "ping": "iputils-ping", "socat": "socat", "ssh": "openssh-client",
	"sshd": "openssh-server", "curl": "curl", "iperf3": "iperf3", "rping": "rdmacm-utils"}

// families says the same of programs whose names begin alike.
var families = []struct{ prefix, pkg string }{{"ibv_", "ibverbs-utils"}, {"ib_", "perftest"}, {"ucx_", "ucx-utils"},
	{"fi_", "libfabric-bin"}}

// tool finds a program, which may lie where not every user looks.
func tool(t testing.TB, name string) string {
	t.Helper()
	path := "/usr/sbin/" + name
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	pkg := packages[name]
	for _, f := range families {
		if pkg == "" && strings.HasPrefix(name, f.prefix) {
			pkg = f.pkg
		}
	}
	if pkg == "" {
		pkg = "infiniband-diags"
	}
	t.Fatalf("no %s on this machine; next: make test, which installs %s", name, pkg)
	return ""
}

// world is a fabric with its manager and the server of programs.
type world struct {
	*live.Fabric
	g   *topo.Graph
	sm  *manager
	lib string
	// The servers' sockets.
	umad, verbs, rdmacm string
	// env, if there, changes the environment of programs.
	env func([]string) []string
	// tb names the test whose programs run; a subtest gets a world of its own with "in".
	testing.TB
}

// in is the world for a subtest.
func (w *world) in(t testing.TB) *world {
	x := *w
	x.TB = t
	return &x
}

// manager is a subnet manager that runs on a port of a world.
type manager struct {
	*smrun.Runner
	at     topo.PortRef
	cancel context.CancelFunc

	mu     sync.Mutex
	events []string
	bell   chan struct{}
}

// defaultSpec is what softib up starts without being told anything else.
const defaultSpec = topo.DefaultSpec

// newWorld starts a fabric without a manager.
func newWorld(t testing.TB, g *topo.Graph) *world {
	t.Helper()
	w := &world{g: g, lib: library(t), TB: t}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.Fabric = f
	dir, err := os.MkdirTemp(scratch, "w") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	cms := rdmacm.New(rdmacm.OnFabric(f))
	for _, s := range []struct {
		name   string
		path   *string
		listen func(string) (*packetsock.Listener, error)
		serve  func(*packetsock.Listener) error
	}{
		{"umad", &w.umad, umad.Listen, func(l *packetsock.Listener) error {
			return umad.Serve(ctx, l,
				umad.OnFabric(f, firmware))
		}},
		{"verbs", &w.verbs, server.Listen, func(l *packetsock.Listener) error {
			return server.Serve(ctx, l, f, firmware, cms)
		}},
		{"rdmacm", &w.rdmacm, rdmacm.Listen, func(l *packetsock.Listener) error {
			return cms.Serve(ctx, l)
		}},
	} {
		*s.path = filepath.Join(dir, s.name)
		l, err := s.listen(*s.path)
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			if err := s.serve(l); err != nil {
				t.Errorf("server of %s: %v", s.name, err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		if err := f.Close(); err != nil {
			t.Errorf("live.Fabric.Close: %v", err)
		}
	})
	return w
}

// up starts a fabric from a specification and waits until its manager has brought it up.
func up(t testing.TB, spec string, tune ...func(*sm.Config)) *world {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return upGraph(t, g, tune...)
}

// upGraph is up for a graph.
func upGraph(t testing.TB, g *topo.Graph, tune ...func(*sm.Config)) *world {
	t.Helper()
	w := newWorld(t, g)
	cfg := sm.Config{Window: 1024}
	for _, f := range tune {
		f(&cfg)
	}
	w.sm = w.manage(firstPort(g), cfg)
	w.sm.wait(t, "the subnet to come up", func(m *sm.Manager) bool { return m.Subnet() != nil })
	return w
}

// firstPort is the first port of a host that has a cable.
func firstPort(g *topo.Graph) topo.PortRef {
	for _, h := range g.Hosts() {
		for p := 1; p <= h.NumPorts(); p++ {
			if h.Ports[p].Connected() {
				return topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}
			}
		}
	}
	return topo.PortRef{Node: g.Hosts()[0].Index, Port: 1}
}

// manage starts a manager at a port.
func (w *world) manage(at topo.PortRef, cfg sm.Config) *manager {
	w.Helper()
	s, err := w.OpenMgmt(at)
	if err != nil {
		w.Fatal(err)
	}
	if cfg.Memory.LIDs == nil {
		cfg.Memory.LIDs, cfg.LMCs = sm.HintedLIDs(w.g)
	}
	cfg.Groups = w.Groups()
	m := &manager{at: at, bell: make(chan struct{}, 1)}
	m.Runner, err = smrun.New(cfg, s, smrun.Options{Log: m.log})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() { _ = m.Run(ctx) }()
	w.Cleanup(func() { m.stop() })
	return m
}

func (m *manager) stop() {
	m.cancel()
	<-m.Done()
}

// log notes an event and wakes who waits for one.
func (m *manager) log(e sm.Event) {
	m.mu.Lock()
	m.events = append(m.events, fmt.Sprintf("%s %v", time.Now().Format("05.000"), e))
	m.mu.Unlock()
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// said is what the manager has said so far.
func (m *manager) said() string {
	if m == nil {
		return "nothing: there is none"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.events, "\n")
}

// wait waits until something is true of the manager, and looks whenever it has said something.
func (m *manager) wait(t testing.TB, what string, is func(*sm.Manager) bool) {
	t.Helper()
	deadline := time.After(inTime())
	look := time.NewTicker(20 * time.Millisecond) // for what makes no event
	defer look.Stop()
	for {
		var ok bool
		if err := m.Do(func(m *sm.Manager) { ok = is(m) }); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		select {
		case <-m.bell:
		case <-look.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s; the manager said:\n%s", what, m.said())
		}
	}
}

// eventually waits until something of the fabric is true. The fabric has no event for everything that changes in it.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	deadline := time.Now().Add(inTime())
	for !is() {
		if time.Now().After(deadline) {
			w.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// firmware is the version that the tests' adapters show.
const firmware = "1.2.3"

// command is a program on a host. It is killed when its time is over or the test is.
func (w *world) command(host, name string, args ...string) *exec.Cmd {
	w.Helper()
	ctx, cancel := patient() // some run for processor time
	w.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, tool(w, name), args...)
	cmd.WaitDelay = 5 * time.Second // for children of shell scripts that hold the pipe
	// Scripts find the other programs by PATH.
	env := append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin:"+os.Getenv("PATH"), "LC_ALL=C")
	cmd.Env = dropin.Set{Dir: filepath.Dir(w.lib)}.Environment(env, w.host(host))
	if w.env != nil {
		cmd.Env = w.env(cmd.Env)
	}
	return cmd
}

// host is what a program is told of its host.
func (w *world) host(name string) dropin.Host {
	h := dropin.Host{Name: name, UMAD: w.umad, Verbs: w.verbs, RDMACM: w.rdmacm}
	if n := w.g.ByName(name); n != nil {
		h.GUIDs = []ib.GUID{n.GUID}
	}
	return h
}

// run runs a program to its end and returns what it printed. It must succeed and complain of nothing.
func (w *world) run(host, name string, args ...string) string {
	w.Helper()
	return w.exits(0, host, name, args...)
}

// exits is run for a program that ends with another status.
func (w *world) exits(status int, host, name string, args ...string) string {
	w.Helper()
	cmd := w.command(host, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		w.Fatalf("%s %s on %s: %v\n%s%s", name, strings.Join(args, " "), host, err, &stdout, &stderr)
	}
	if stderr.Len() > 0 {
		w.Errorf("%s %s on %s complains:\n%s", name, strings.Join(args, " "), host, &stderr)
	}
	return stdout.String()
}

// fails runs a program that must fail and returns all that it printed.
func (w *world) fails(host, name string, args ...string) string {
	w.Helper()
	out, err := w.command(host, name, args...).CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		w.Fatalf("%s %s on %s: %v, want it to fail\n%s", name, strings.Join(args, " "), host, err, out)
	}
	return string(out)
}

// serving starts a program that runs until the test ends.
func (w *world) serving(host, name string, args ...string) *exec.Cmd {
	w.Helper()
	cmd := w.command(host, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("%s %s on %s printed:\n%s", name, strings.Join(args, " "), host, &out)
		}
	})
	return cmd
}

// same compares what was got with what was wanted.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wants checks that a text has all of some parts.
func wants(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in:\n%s", p, text)
		}
	}
}

// ownCache lets a script of infiniband-diags keep what it has found in a folder of the test's own, rather than in one
// of the machine's that belongs to root.
func (w *world) ownCache(cmd *exec.Cmd) {
	w.Helper()
	dir := w.TempDir()
	const module = "use IBswcountlimits; $IBswcountlimits::cache_dir = $ENV{FIELDTEST_CACHE}; 1;\n"
	if err := os.WriteFile(filepath.Join(dir, "ownCache.pm"), []byte(module), 0o600); err != nil {
		w.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PERL5LIB="+dir, "PERL5OPT=-MownCache", "FIELDTEST_CACHE="+dir)
}
