package umad

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/internal/built"
)

var (
	buildDir  string
	buildOnce sync.Once
	buildErr  error
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "softib-umad-test-")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// library builds the drop-in as make does.
func library(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	buildOnce.Do(func() { buildErr = built.Libraries(buildDir) })
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return filepath.Join(buildDir, dropin.UMAD)
}

// compile makes a program of testdata, linked with the drop-in.
func compile(t testing.TB, source string) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/infiniband/umad.h"); err != nil {
		t.Fatal("no libibumad-dev on this machine; next: make test, which installs it")
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Iclib", "-o", out,
		filepath.Join("testdata", source), library(t), "-ldl", "-pthread")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, text)
	}
	return out
}

// fixture is a served cable.
type fixture struct {
	*cable
	socket string
	lib    string
	end    func() // of the server; may be called twice
}

func serve(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{cable: newCable(), lib: library(t)}
	dir, err := os.MkdirTemp("", "softib-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	f.socket = filepath.Join(dir, "umad")
	l, err := Listen(f.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, f.cable) }()
	f.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		f.end()
		f.mu.Lock()
		if f.opened != f.closed {
			t.Errorf("%d sessions opened, %d closed", f.opened, f.closed)
		}
		f.mu.Unlock()
		if _, err := os.Stat(f.socket + ".issm"); err == nil {
			t.Error("files for IsSM stay behind")
		}
		os.RemoveAll(dir)
	})
	return f
}

// command is a program on a host.
func (f *fixture) command(t testing.TB, host, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	if !strings.Contains(name, "/") {
		name = tool(t, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = dropin.Set{Dir: filepath.Dir(f.lib)}.Environment(os.Environ(), dropin.Host{Name: host, UMAD: f.socket})
	return cmd
}

// tool finds a program of infiniband-diags or opensm, which lie where not every user looks.
func tool(t testing.TB, name string) string {
	t.Helper()
	path := "/usr/sbin/" + name
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no %s on this machine; next: make test, which installs infiniband-diags and opensm", path)
	}
	return path
}

// run runs a program to its end and returns what it printed.
func (f *fixture) run(t testing.TB, host, name string, args ...string) string {
	t.Helper()
	cmd := f.command(t, host, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v on %s: %v\n%s%s", name, args, host, err, &stdout, &stderr)
	}
	return stdout.String()
}

// fails runs a program that must fail and returns what it complained.
func (f *fixture) fails(t testing.TB, host, name string, args ...string) string {
	t.Helper()
	out, err := f.command(t, host, name, args...).CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("%s %v on %s: %v, want it to fail\n%s", name, args, host, err, out)
	}
	return string(out)
}

func wants(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in:\n%s", p, text)
		}
	}
}
