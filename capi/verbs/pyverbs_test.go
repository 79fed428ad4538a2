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
	passed := len(regexp.MustCompile(`(?m)\.\.\. ok$`).FindAllString(out, -1))
	if passed < 95 {
		t.Errorf("%d tests passed, want 95 at least:\n%s", passed, out)
	}
	t.Logf("%d passed, %d skipped", passed, strings.Count(out, "... skipped"))
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
