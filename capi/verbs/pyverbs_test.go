package verbs

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests of rdma-core, as Debian has them.
const rdmaCoreTests = "/usr/share/doc/rdma-core/tests"

// TestRDMACore runs rdma-core's own tests of libibverbs, which are programs in Python. They skip what an adapter says
// it does not have; what is left has to pass, and must not become less.
func TestRDMACore(t *testing.T) {
	const python = "/usr/bin/python3" // whose modules Debian's packages are
	for _, path := range []string{python, rdmaCoreTests} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("no %s on this machine; next: make test, which installs python3-pyverbs", path)
		}
	}
	dir := filepath.Join(t.TempDir(), "tests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(rdmaCoreTests)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		unpack(t, filepath.Join(rdmaCoreTests, f.Name()), dir)
	}
	out := newWorld(t, "star:2").run(t, "h1", python, filepath.Join(dir, "run_tests.py"), "--dev", "softib0", "-v")
	passed, skipped := outcomes(out)
	if passed < 129 {
		t.Errorf("%d tests passed, want 129 at least:\n%s", passed, out)
	}
	t.Logf("%d passed, %d skipped", passed, skipped)
}

// outcomes counts what unittest -v says of tests that are not for the adapters of one vendor.
func outcomes(out string) (passed, skipped int) {
	begin := regexp.MustCompile(`(?m)^test_\w+ \(tests\.(test_\w+)\.`)
	end := regexp.MustCompile(`(?m)(?:\.\.\. |^)(ok|skipped)\b`)
	at := begin.FindAllStringSubmatchIndex(out, -1)
	for i, m := range at {
		rest := out[m[0]:]
		if i+1 < len(at) {
			rest = out[m[0]:at[i+1][0]]
		}
		said := end.FindStringSubmatch(rest)
		if said == nil || regexp.MustCompile("mlx5|efa").MatchString(out[m[2]:m[3]]) {
			continue
		}
		if said[1] == "ok" {
			passed++
		} else {
			skipped++
		}
	}
	return passed, skipped
}

// unpack copies a file, which may be compressed, to a folder.
func unpack(t testing.TB, path, dir string) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var from io.Reader = in
	name, packed := strings.CutSuffix(filepath.Base(path), ".gz")
	if packed {
		if from, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	to, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
}
