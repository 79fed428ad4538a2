package attach

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Where a program looks for its fabric, and what it wants of the folder.
func TestSocket(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	dir := filepath.Join(base, "softib")
	find := func(o Options, exec string) string {
		t.Helper()
		t.Setenv("SOFTIB_VERBS", exec)
		s, err := o.socket()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		exec string
		want string
	}{
		{Options{}, "", filepath.Join(dir, "default.verbs")},
		{Options{}, "/x/y.verbs", "/x/y.verbs"},
		{Options{Name: "ci"}, "", filepath.Join(dir, "ci.verbs")},
		{Options{Name: "ci"}, "/x/y.verbs", filepath.Join(dir, "ci.verbs")},
		{Options{Name: "ci", Socket: "/z"}, "/x/y.verbs", "/z"},
	} {
		if got := find(c.o, c.exec); got != c.want {
			t.Errorf("%+v under exec on %q: %s, want %s", c.o, c.exec, got, c.want)
		}
	}
	t.Setenv("SOFTIB_VERBS", "")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := (Options{}).socket(); !errors.Is(err, ErrNoFabric) {
		t.Errorf("a folder that all may write to: %v", err)
	}
	t.Setenv("SOFTIB_HOST", "")
	if _, err := Open(Options{}); !errors.Is(err, ErrNoFabric) {
		t.Errorf("no host: %v", err)
	}
}
