package built

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestOnce: of many who ask at once one builds, and what failed half-way is built again.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	if _, err := once(dir, "x", func(path string) error {
		return errors.Join(os.Mkdir(path, 0o700), broken)
	}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	var builds atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			path, err := once(dir, "x", func(path string) error {
				builds.Add(1)
				return os.WriteFile(path, []byte("whole"), 0o600)
			})
			if err != nil || path != filepath.Join(dir, "x") {
				t.Error(path, err)
				return
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != "whole" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	group.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	if _, err := once(filepath.Join(dir, "gone"), "x", nil); err == nil || !strings.Contains(err.Error(), "; next: ") {
		t.Error(err)
	}
}

// TestShared: with a folder to share, everybody gets a copy of what is there.
func TestShared(t *testing.T) {
	shared, own := t.TempDir(), t.TempDir()
	t.Setenv(sharedName, shared)
	for _, name := range []string{"softib", "lib/libibumad.so.3"} {
		path := filepath.Join(shared, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err := errors.Join(err, os.WriteFile(path, []byte(name), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	lib, bin := filepath.Join(own, "bin", "lib"), filepath.Join(own, "bin", "softib")
	if err := errors.Join(Libraries(lib), Libraries(lib), Command(bin)); err != nil { // the folder may be there
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		bin: "softib", filepath.Join(lib, "libibumad.so.3"): "lib/libibumad.so.3",
	} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}
