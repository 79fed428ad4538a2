package rdmacm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/capi/dropin"
)

// systemLibrary is the one that programs of this machine were linked with.
func systemLibrary(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*-linux-gnu/librdmacm.so.1")
	if len(found) != 1 {
		t.Fatalf("%d files librdmacm.so.1 on this machine; next: make test, which installs librdmacm-dev", len(found))
	}
	return found[0]
}

// symbols are what a library exports, with versions, sorted.
func symbols(t *testing.T, path string) (list []string) {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--defined-only", "--with-symbol-versions", path).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", path, err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && strings.Contains(f[2], "@@RDMACM_") {
			list = append(list, f[2])
		}
	}
	slices.Sort(list)
	return list
}

// TestSymbols holds names and versions against those of the library that programs were linked with.
func TestSymbols(t *testing.T) {
	set := libraries(t)
	want, have := symbols(t, systemLibrary(t)), symbols(t, set.Path(dropin.RDMACM))
	if len(want) < 60 {
		t.Fatalf("%s has %d symbols", systemLibrary(t), len(want))
	}
	for _, s := range want {
		if _, ok := slices.BinarySearch(have, s); !ok {
			t.Errorf("%s is missing", s)
		}
	}
	for _, s := range have {
		// Programs linked with a newer one want to find what that has.
		isNewer := strings.HasSuffix(s, "@RDMACM_1.4") || strings.HasSuffix(s, "@RDMACM_1.5")
		if _, ok := slices.BinarySearch(want, s); !ok && !isNewer {
			t.Errorf("%s is not librdmacm's", s)
		}
	}
}

// TestLibrary runs the C tests of the library's calls, each in a process of its own.
func TestLibrary(t *testing.T) {
	path := compile(t, "cm.c")
	w := newLand(t, "star:2")
	for _, name := range []string{
		"addresses", "routes", "connect", "reject", "establish", "migrate", "acks", "datagrams", "groups", "names",
		"options", "endpoints", "many", "cancel",
	} {
		t.Run(name, func(t *testing.T) { w.start(t, "h1", path, name).finish() })
	}
}

// TestStreams runs the C tests of rsockets.
func TestStreams(t *testing.T) {
	path := compile(t, "stream.c")
	w := newLand(t, "star:2")
	for _, name := range []string{"options", "echo", "nonblocking", "duplex", "shutdown", "refused", "peek", "poll",
		"select", "iomap", "datagrams", "datagram_errors", "cancel"} {
		t.Run(name, func(t *testing.T) { w.start(t, "h1", path, name).finish() })
	}
	t.Run("death", func(t *testing.T) {
		s := w.serve(t, "h1", path, "victim")
		c := w.start(t, "h2", path, "survivor")
		c.await("connected")
		s.kill()
		c.finish()
	})
}

// TestNoDaemon is a program without a fabric: silent as on a machine without the module, unless it was told of one that
// is gone.
func TestNoDaemon(t *testing.T) {
	path := compile(t, "cm.c")
	cmd := exec.Command(path, "none")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SOFTIB_") })
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+libraries(t).Dir)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "none holds\n" {
		t.Errorf("without a fabric: %v\n%s", err, out)
	}
	w := newLand(t, "star:2")
	p := w.start(t, "h1", path, "gone")
	p.await("ready")
	w.end()
	if out := p.finish(); !strings.Contains(out, "next: softib up") {
		t.Errorf("a program whose fabric went is not told what to do:\n%s", out)
	}
}
