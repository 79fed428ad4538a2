package files_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"softib/internal/files"
)

// TestReadText: files are read as they are up to a limit, whatever they are; what is longer, or no text, is refused
// after little was read.
func TestReadText(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, n := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		text := bytes.Repeat([]byte("x\n"), n)[:n]
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := files.ReadText(path, 100_000); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d of %d bytes, %v", len(got), n, err)
		}
		if _, err := files.ReadText(path, int64(n)-1); !errors.Is(err, files.ErrTooLong) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes where one less may be: %v", n, err)
		}
	}
	if _, err := files.ReadText("/dev/zero", files.TextMax); !errors.Is(err, files.ErrNotText) {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := files.ReadText(filepath.Join(dir, "none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if _, err := files.ReadText(dir, 1); err == nil {
		t.Error("a folder was read")
	}

	// A pipe whose writer never ends, and one that does.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fill := func(max int) chan int {
		wrote := make(chan int, 1)
		go func() {
			n := 0
			defer func() { wrote <- n }()
			w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				return
			}
			defer w.Close()
			for n < max {
				m, err := w.Write(bytes.Repeat([]byte("y"), 1000))
				if n += m; err != nil {
					return
				}
			}
		}()
		return wrote
	}
	wrote := fill(1 << 30)
	if _, err := files.ReadText(pipe, 200_000); !errors.Is(err, files.ErrTooLong) {
		t.Errorf("a pipe that never ends: %v", err)
	}
	if n := <-wrote; n > 1<<20 {
		t.Errorf("%d bytes were taken from it", n)
	}
	fill(150_000)
	if got, err := files.ReadText(pipe, 200_000); err != nil || len(got) != 150_000 {
		t.Errorf("%d bytes of a pipe with 150,000: %v", len(got), err)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "another", ""} {
		if err := files.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v: want %q", got, err, text)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v is left, %v", list, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := files.Replace(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("a folder that is not there")
	}
}
