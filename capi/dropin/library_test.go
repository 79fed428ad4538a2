package dropin

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"softib/proto/ib"
)

func TestEnvironment(t *testing.T) {
	const dir = "/run/s/lib"
	s := Set{dir}
	h := Host{Name: "h1", IP: netip.MustParseAddr("198.18.0.1"), GUIDs: []ib.GUID{0x0002c903000000a1},
		UMAD: "/run/s/umad", Verbs: "/run/s/verbs", RDMACM: "/run/s/rdmacm"}
	ours := s.Path(UMAD) + ":" + s.Path(RDMACM) + ":" + s.Path(Verbs)
	got := s.Environment([]string{"A=1", "LD_PRELOAD=/x.so:/y.so", "SOFTIB_HOST=old", "LD_LIBRARY_PATH=",
		"SOFTIB_UMAD=old", "VALGRIND_OPTS=-q --num-callers=9"}, h)
	want := []string{
		"A=1", "LD_PRELOAD=" + ours + ":/x.so:/y.so", "LD_LIBRARY_PATH=" + dir,
		"VALGRIND_OPTS=--suppressions=" + dir + "/valgrind.supp -q --num-callers=9",
		"NCCL_GIN_ENABLE=0", "NCCL_GIN_TYPE=0", "NCCL_HOSTID=h1",
		"SOFTIB_HOST=h1", "SOFTIB_UMAD=/run/s/umad", "SOFTIB_VERBS=/run/s/verbs", "SOFTIB_RDMACM=/run/s/rdmacm",
		"SOFTIB_NODE_GUID=0002c903000000a1", "SOFTIB_ADDRESS=198.18.0.1", "SOFTIB_LIB=" + dir,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if again := s.Environment(got, h); !slices.Equal(again, want) {
		t.Errorf("twice: %q", again)
	}
	// From one host to another, and what the user has set.
	other := h
	other.Name = "h2"
	if again := s.Environment(got, other); !slices.Contains(again, "NCCL_HOSTID=h2") ||
		slices.Contains(again, "NCCL_HOSTID=h1") {
		t.Errorf("from h1 to h2: %q", again)
	}
	for _, set := range []string{"NCCL_GIN_ENABLE=1", "NCCL_GIN_TYPE=2", "NCCL_HOSTID=mine"} {
		name, _, _ := strings.Cut(set, "=")
		again := s.Environment([]string{set}, h)
		if n := slices.IndexFunc(again, func(kv string) bool { return strings.HasPrefix(kv, name) }); again[n] != set {
			t.Errorf("%s of the user's became %s", set, again[n])
		}
	}
	// LD_PRELOAD has no quoting, and what is not known is not told.
	got = Set{"/a b"}.Environment([]string{"LD_PRELOAD=/x.so"}, Host{Name: "h", Verbs: "s"})
	if want := []string{"LD_PRELOAD=/x.so", "LD_LIBRARY_PATH=/a b", "NCCL_GIN_ENABLE=0", "NCCL_GIN_TYPE=0",
		"SOFTIB_HOST=h", "SOFTIB_VERBS=s", "SOFTIB_LIB=/a b"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReadyWithout(t *testing.T) {
	if embedded() != nil {
		t.Skip("built with the libraries")
	}
	if s, err := Ready(t.TempDir()); !errors.Is(err, ErrNoLibrary) ||
		!strings.Contains(err.Error(), "next: make build") {
		t.Errorf("%q, %v", s, err)
	}
}

func files(sum, content string) fstest.MapFS {
	f := fstest.MapFS{sumFile: {Data: []byte(sum + "\n")}}
	for _, name := range []string{UMAD, Verbs, RDMACM, Engine, enterer} {
		f[name] = &fstest.MapFile{Data: []byte(name + content)}
	}
	return f
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for _, sum := range []string{"0123", "4567"} {
		want := files(sum, sum)
		// Two that start at once, and those that come later.
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				s, err := write(want, dir)
				if err != nil || s.Dir != filepath.Join(dir, sum) {
					t.Errorf("%q, %v", s, err)
				}
				if !isWhole(want, s) {
					t.Error("not whole")
				}
			})
		}
		wait.Wait()
		s := Set{filepath.Join(dir, sum)}
		for name, f := range want {
			b, err := os.ReadFile(s.Path(name))
			if err != nil || string(b) != string(f.Data) {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		// Damage is mended.
		if err := os.Truncate(s.Path(Verbs), 3); err != nil {
			t.Fatal(err)
		}
		if s, err := write(want, dir); err != nil || !isWhole(want, s) {
			t.Errorf("%q, %v", s, err)
		}
		// So is a library that lacks one of its names.
		if err := os.Remove(s.Path("libibverbs.so")); err != nil {
			t.Fatal(err)
		}
		if _, err := write(want, dir); err != nil {
			t.Error(err)
		}
		if to, err := os.Readlink(s.Path("libibverbs.so")); to != Verbs || err != nil {
			t.Errorf("libibverbs.so is %q, %v", to, err)
		}
		if left, _ := os.ReadDir(s.Dir); len(left) != len(want)+len(preloaded) {
			t.Errorf("%v", left)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%v", left)
	}
	if err := Clean(dir, "4567"); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 || left[0].Name() != "4567" {
		t.Errorf("%v", left)
	}
}

// Whether the libraries are there is asked each time a program starts: by their sizes, they are not read.
func TestWholeReadsNothing(t *testing.T) {
	want := files("0123", strings.Repeat("x", 16<<20))
	dir := t.TempDir()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cost := func() int {
		before := moved(t)
		if _, err := write(want, dir); err != nil {
			t.Fatal(err)
		}
		return moved(t) - before
	}
	if n := cost(); n < 16<<20 {
		t.Errorf("%d bytes were read and written to put 16 MiB in place", n)
	}
	if n := cost(); n > 64<<10 {
		t.Errorf("%d bytes were read and written to find 16 MiB in place", n)
	}
}

// moved is how many bytes this thread has read and written.
func moved(t testing.TB) (sum int) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Fatal(err)
	}
	var read, written int
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\n", &read, &written); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return read + written
}

// BenchmarkWhole is what a program's start pays for libraries that are in place.
func BenchmarkWhole(b *testing.B) {
	want, dir := files("0123", strings.Repeat("x", 16<<20)), b.TempDir()
	if _, err := write(want, dir); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := write(want, dir); err != nil {
			b.Fatal(err)
		}
	}
}

// A program that was linked statically with a libibverbs is known as such; others are not, and neither are files that
// are no programs.
func TestHasOwnVerbs(t *testing.T) {
	dir := t.TempDir()
	compile := func(name string, args ...string) string {
		out := filepath.Join(dir, name)
		cmd := exec.Command("gcc", append([]string{"-o", out, "../verbs/testdata/count.c"}, args...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, text)
		}
		return out
	}
	static := compile("static", "-static", "-libverbs", "-lnl-route-3", "-lnl-3", "-pthread")
	for path, want := range map[string]bool{static: true, compile("shared", "-libverbs"): false,
		"/bin/sh": false, "library_test.go": false, dir: false, "/proc/self/exe": false} {
		if got := HasOwnVerbs(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	// Wherever a reader stops.
	text := strings.Repeat("x", 2<<20-5) + "libibverbs: y"
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text[2<<20-9:])),
		iotest.DataErrReader(strings.NewReader(text))} {
		if !contains(r, verbsWords) {
			t.Error("not found")
		}
	}
	if contains(strings.NewReader(text[:len(text)-3]), verbsWords) {
		t.Error("found what is not there")
	}
}
