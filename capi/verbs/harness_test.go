package verbs

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/driver/live"
	"softib/internal/built"
	"softib/internal/listening"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs/attach/server"
)

// patience is how long a program may take; they take a second or two on an idle machine.
const patience = 60 * time.Second

// firmware is what adapters say of themselves.
const firmware = "test"

var (
	scratch   string
	buildOnce sync.Once
	buildErr  error
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "softib-verbs-test-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// libraries is the folder of the drop-ins, built as make does.
func libraries(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Fatal("no libibverbs-dev on this machine; next: make test, which installs it")
	}
	dir := filepath.Join(scratch, "lib")
	buildOnce.Do(func() { buildErr = built.Libraries(dir) })
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return dir
}

// compile makes a program of testdata, linked with the drop-in.
func compile(t testing.TB, source string, more ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	cmd := exec.Command("gcc", append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", out,
		filepath.Join("testdata", source), filepath.Join(libraries(t), dropin.Verbs), "-ldl", "-pthread"}, more...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, text)
	}
	return out
}

// tool finds a program of a Debian package.
func tool(t testing.TB, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no %s on this machine; next: make test, which installs %s", name, pkg)
	}
	return path
}

// world is a fabric that programs can attach to.
type world struct {
	*live.Fabric
	set    dropin.Set
	socket string
	end    func() // of the daemon; may be called twice
}

func newWorld(t testing.TB, spec string) *world {
	t.Helper()
	w := &world{set: dropin.Set{Dir: libraries(t)}}
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	if w.Fabric, err = live.New(g, live.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.BringUp(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(scratch, "w") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "verbs")
	l, err := server.Listen(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, w.Fabric, firmware, nil) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// program is one that runs on a host.
type program struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan error

	mu   sync.Mutex
	out  bytes.Buffer
	bell chan struct{} // something was printed
}

// Write takes what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	select {
	case p.bell <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

var _ io.Writer = (*program)(nil)

// start starts a program on a host.
func (w *world) start(t testing.TB, host, path string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &program{t: t, name: filepath.Base(path) + " on " + host, cmd: exec.CommandContext(ctx, path, args...),
		done: make(chan error, 1), bell: make(chan struct{}, 1)}
	h := dropin.Host{Name: host, Verbs: w.socket}
	if n := w.Graph().ByName(host); n != nil {
		h.GUIDs = []ib.GUID{n.GUID}
	}
	p.cmd.Env = w.set.Environment(os.Environ(), h)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.done <- p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
	})
	return p
}

// await waits until the program has printed text.
func (p *program) await(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(p.printed(), text) {
		select {
		case <-p.bell:
		case err := <-p.done:
			p.t.Fatalf("%s ended before it said %q: %v\n%s", p.name, text, err, p.printed())
		case <-deadline:
			p.t.Fatalf("%s does not say %q:\n%s", p.name, text, p.printed())
		}
	}
}

// finish waits for the program's end, which has to be a good one, and returns what it printed.
func (p *program) finish() string {
	p.t.Helper()
	if err := <-p.done; err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.printed())
	}
	return p.printed()
}

// run runs a program on a host and returns what it printed.
func (w *world) run(t testing.TB, host, path string, args ...string) string {
	t.Helper()
	return w.start(t, host, path, args...).finish()
}

// pair runs a program on two hosts: one that listens on a TCP port, as those of libibverbs and perftest do to exchange
// addresses, and one that is told where. It returns what they printed.
func (w *world) pair(t testing.TB, serverHost, clientHost, path string, args ...string) (server, client string) {
	t.Helper()
	port := freePort(t)
	args = append(args[:len(args):len(args)], "-p", strconv.Itoa(port))
	s := w.start(t, serverHost, path, args...)
	awaitPort(t, s, port)
	c := w.start(t, clientHost, path, append(args, "127.0.0.1")...)
	client = c.finish()
	return s.finish(), client
}

// freePort is a TCP port that nobody listens on, below those that the kernel gives to whoever does not care (32768 and
// more by default): somebody else's connection might take one of them before the program does.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 14000 + rand.IntN(4000)
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// awaitPort waits until somebody listens on a TCP port. It looks instead of connecting, because the program takes the
// first connection for its peer's.
func awaitPort(t testing.TB, p *program, port int) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !listening.On(port) {
		select {
		case <-tick.C:
		case err := <-p.done:
			t.Fatalf("%s ended before it listened: %v\n%s", p.name, err, p.printed())
		case <-deadline:
			t.Fatalf("%s does not listen on port %d:\n%s", p.name, port, p.printed())
		}
	}
}
