package rdmacm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/internal/built"
	"softib/proto/ib"
	attached "softib/verbs/attach/server"
)

// programPatience is how long a program may take; they take a second or two on an idle machine.
const programPatience = 60 * time.Second

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "softib-rdmacm-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the drop-in libraries as make does.
var build = sync.OnceValue(func() error { return built.Libraries(filepath.Join(scratch, "lib")) })

// libraries is the set of drop-in libraries.
func libraries(t testing.TB) dropin.Set {
	t.Helper()
	if testing.Short() {
		t.Skip("builds libraries and runs programs")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		t.Fatal("no librdmacm-dev on this machine; next: make test, which installs it")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return dropin.Set{Dir: filepath.Join(scratch, "lib")}
}

// compile makes a program of testdata, linked with the drop-ins.
func compile(t testing.TB, source string) string {
	t.Helper()
	set := libraries(t)
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", out,
		filepath.Join("testdata", source),
		set.Path(dropin.RDMACM), set.Path(dropin.Verbs), "-pthread")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, text)
	}
	return out
}

// utility finds a program of rdmacm-utils or perftest.
func utility(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no %s on this machine; next: make test, which installs rdmacm-utils and perftest", name)
	}
	return path
}

// land is a fabric whose hosts run programs.
type land struct {
	*world
	set   dropin.Set
	verbs string
	env   func([]string) []string // what programs get besides; nil for nothing
}

func newLand(t testing.TB, spec string) *land {
	t.Helper()
	w := &land{set: libraries(t), world: up(t, spec, defaults)}
	dir, err := os.MkdirTemp(scratch, "w") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	w.verbs = filepath.Join(dir, "verbs")
	l, err := attached.Listen(w.verbs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- attached.Serve(ctx, l, w.Fabric, "test", nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// process is a program that runs on a host.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan error

	mu   sync.Mutex
	out  bytes.Buffer
	bell chan struct{} // something was printed
}

// Write takes what the program prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	select {
	case p.bell <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (w *land) start(t testing.TB, host, path string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programPatience)
	p := &process{
		t: t, name: filepath.Base(path) + " " + strings.Join(args, " ") + " on " + host,
		cmd: exec.CommandContext(ctx, path, args...), done: make(chan error, 1),
		bell: make(chan struct{}, 1),
	}
	h := dropin.Host{Name: host, Verbs: w.verbs, RDMACM: w.socket}
	if n := w.Graph().ByName(host); n != nil {
		h.GUIDs = []ib.GUID{n.GUID}
	}
	p.cmd.Env = w.set.Environment(os.Environ(), h)
	if w.env != nil {
		p.cmd.Env = w.env(p.cmd.Env)
	}
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

// finish waits for the program's end, which has to be a good one, and returns what it printed.
func (p *process) finish() string {
	p.t.Helper()
	if err := <-p.done; err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.printed())
	}
	return p.printed()
}

// await waits until the program has printed text.
func (p *process) await(text string) {
	p.t.Helper()
	deadline := time.After(programPatience)
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

// kill ends a program that does not end by itself.
func (p *process) kill() {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.t.Fatalf("%s has ended: %v\n%s", p.name, err, p.printed())
	default:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// listens reports whether programs on a host take connections.
func (w *land) listens(name string) (is bool) {
	w.s.mu.Lock()
	h := w.s.hosts[name]
	w.s.mu.Unlock()
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, port := range h.ports {
		is = is || len(port.listens) > 0
	}
	return is
}

// serve starts a program on a host and waits until it takes connections.
func (w *land) serve(t testing.TB, name, path string, args ...string) *process {
	t.Helper()
	eventually(t, "nobody to listen on "+name, func() bool { return !w.listens(name) })
	p := w.start(t, name, path, args...)
	eventually(t, p.name+" to listen", func() bool {
		select {
		case err := <-p.done:
			t.Fatalf("%s has ended: %v\n%s", p.name, err, p.printed())
		default:
		}
		return w.listens(name)
	})
	return p
}
