package umad

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestEdges(t *testing.T) {
	f := serve(t)
	if out := f.run(t, "h1", compile(t, "edges.c")); out != "all edges hold\n" {
		t.Error(out)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.hosts["h1"].service[1].Outstanding(); n != 0 {
		t.Errorf("%d requests are still awaited", n)
	}
}

// The same under valgrind, where it is installed: memory errors and leaks.
func TestEdgesValgrind(t *testing.T) {
	if os.Getenv("SOFTIB_VALGRIND") == "" {
		t.Skip("slow; SOFTIB_VALGRIND=1 runs it")
	}
	f := serve(t)
	cmd := f.command(t, "h1", "/usr/bin/valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
		"--show-leak-kinds=definite,indirect,possible",
		"--track-fds=yes", compile(t, "edges.c"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// A program whose request's time is over is told so, or gets its answer, also by a daemon that had no turn meanwhile.
func TestLateDaemon(t *testing.T) {
	f := serve(t)
	cmd := f.command(t, "h1", compile(t, "late.c"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	says := func(want string) {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("it says %q, want %q", lines.Text(), want)
		}
	}
	says("ready")
	f.mu.Lock()
	fmt.Fprintln(in, "go")
	says("late")
	f.mu.Unlock()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Layouts of structures, sizes and words are those of the system's library and header, and of protocol.go.
func TestSameAsSystem(t *testing.T) {
	system, _ := filepath.Glob("/usr/lib/*-linux-gnu/libibumad.so.3")
	if len(system) != 1 {
		t.Fatalf("%d files libibumad.so.3 on this machine; next: make test, which installs libibumad3", len(system))
	}
	out, err := exec.Command(compile(t, "same.c"), library(t), system[0]).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
