package verbs

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"softib/capi/dropin"
)

// systemLibrary is the one that programs of this machine were linked with.
func systemLibrary(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*-linux-gnu/libibverbs.so.1")
	if len(found) != 1 {
		t.Fatalf("%d files libibverbs.so.1 on this machine; next: make test, which installs libibverbs-dev", len(found))
	}
	return found[0]
}

// symbols are what a library exports, with versions, sorted.
func symbols(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--defined-only", "--with-symbol-versions", path).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", path, err)
	}
	var list []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) == 3 && strings.Contains(f[2], "@") && strings.Contains(f[2], "IBVERBS_") && f[1] != "A" {
			list = append(list, f[2])
		}
	}
	slices.Sort(list)
	return list
}

// newer are the versions of rdma-core's libibverbs since 44.
var newer = regexp.MustCompile(`@IBVERBS_(1\.1[5-8]|PRIVATE_65)$`)

// TestSymbols holds names and versions against those of the library that programs were linked with.
func TestSymbols(t *testing.T) {
	want, have := symbols(t, systemLibrary(t)), symbols(t, filepath.Join(libraries(t), dropin.Verbs))
	for _, s := range want {
		if _, ok := slices.BinarySearch(have, s); !ok {
			t.Errorf("%s is missing", s)
		}
	}
	for _, s := range have {
		// It has what newer ones have, and so what programs linked with those want.
		if _, ok := slices.BinarySearch(want, s); !ok && !newer.MatchString(s) {
			t.Errorf("%s is not libibverbs'", s)
		}
	}
}

// TestWords holds words for statuses and the arithmetic of rates, which programs print and compare, against those of
// the system's libraries.
func TestWords(t *testing.T) {
	dir, program := libraries(t), compile(t, "words.c")
	system := filepath.Dir(systemLibrary(t))
	said := func(dir string) []string {
		verbs, rdmacm := filepath.Join(dir, dropin.Verbs), filepath.Join(dir, dropin.RDMACM)
		out, err := exec.Command(program, verbs, rdmacm).Output()
		if err != nil {
			t.Fatalf("the libraries of %s: %v", dir, err)
		}
		return strings.Split(string(out), "\n")
	}
	ours, theirs := said(dir), said(system)
	if len(theirs) < 1000 || len(ours) != len(theirs) {
		t.Fatalf("%d lines, the system's libraries say %d", len(ours), len(theirs))
	}
	for i := range theirs {
		if ours[i] != theirs[i] {
			t.Errorf("%s, want %s", ours[i], theirs[i])
		}
	}
}

// TestCore runs the C tests of the core, each in a process of its own.
func TestCore(t *testing.T) {
	path := compile(t, "core.c")
	w := newWorld(t, "star:2")
	for _, name := range []string{"strings", "device", "memory", "queues", "states", "posting", "behind",
		"completions", "channels", "sleepers", "async", "datagrams", "multicast", "overflow", "threads", "leak",
		"signals", "urgent", "fork", "forkfirst", "reopen", "unmapped", "ownfault"} {
		t.Run(name, func(t *testing.T) { w.run(t, "h1", path, name) })
	}
}

// TestReady runs the C tests of completions on their way to the program.
func TestReady(t *testing.T) {
	path := compile(t, "ready.c")
	w := newWorld(t, "star:2")
	for _, name := range []string{"room", "many", "churn", "fork", "drain", "naps"} {
		t.Run(name, func(t *testing.T) { w.run(t, "h1", path, name) })
	}
}

// TestAhead runs the C tests of whose memory a sender writes to.
func TestAhead(t *testing.T) {
	path := compile(t, "ahead.c")
	for _, name := range []string{"stopped", "delayed", "reused"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("strace"); name == "delayed" && err != nil {
				t.Fatal("no strace on this machine; next: make test, which installs it")
			}
			if _, why, skip := strings.Cut(newWorld(t, "star:2").run(t, "h1", path, name), "skip: "); skip {
				t.Skip(why)
			}
		})
	}
}

// TestExtended runs the C tests of the extended verbs.
func TestExtended(t *testing.T) {
	newWorld(t, "star:2").run(t, "h1", compile(t, "extended.c"))
}

// TestMemory runs the C tests of memory that is more than a buffer.
func TestMemory(t *testing.T) {
	path := compile(t, "memory.c")
	w := newWorld(t, "star:2")
	for _, name := range []string{"dm", "forkdm", "import", "paging", "dmabuf", "null"} {
		t.Run(name, func(t *testing.T) { w.run(t, "h1", path, name) })
	}
}

// TestNoFabric is a program where no fabric is: no device without softib exec, and a clear line when the daemon is
// gone.
func TestNoFabric(t *testing.T) {
	path := compile(t, "core.c")
	cmd := exec.Command(path, "nodevice")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SOFTIB_") })
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+libraries(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("without environment: %v\n%s", err, out)
	}
	w := newWorld(t, "star:2")
	w.end()
	out := w.run(t, "h1", path, "nodaemon")
	if !strings.Contains(out, "softib up") || strings.Count(out, "\n") != 1 {
		t.Errorf("a program without daemon is told %q, want one line with softib up", out)
	}
}

// TestDaemonEnds is a fabric that ends under a program: a fatal event, flushed requests, EIO.
func TestDaemonEnds(t *testing.T) {
	w := newWorld(t, "star:2")
	p := w.start(t, "h1", compile(t, "core.c"), "fatal")
	p.await("ready")
	w.end()
	p.finish()
}
