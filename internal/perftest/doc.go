// Package perftest is for tests that run perftest's programs, unchanged. It loads something before their libraries: see
// testdata/preload.c.
//
//	env := perftest.Pair(t, perftest.Quick)
//	server.Env, client.Env = env(server.Env), env(client.Env)
package perftest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed testdata/preload.c
var source string

// compiled is the library.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "softib-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, "preload.so")
	gcc := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", library,
		"-xc", "-")
	gcc.Stdin = strings.NewReader(source)
	if text, err := gcc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc preload.c: %w\n%s", err, text)
	}
	return os.ReadFile(library)
})

// Quick programs find their clock soon, and are wrong about speed. It is for Pair.
const Quick = "SOFTIB_QUICK=1"

// NoAlarm has programs with -D go on until somebody sends them SIGALRM, for each part of their time once: with -D 1
// there is one, without a margin. It is for Pair and Steady.
const NoAlarm = "SOFTIB_NO_ALARM=1"

// OwnTime has the seconds of -D be the processor time of each program. It is for Pair, and not for programs that sleep
// until an event comes (-e): their time does not go on.
func OwnTime(t testing.TB) string { return "SOFTIB_OWN_TIME=" + filepath.Join(t.TempDir(), "running") }

// Pair makes what a server and its client share. The function that it returns adds that to the environment of each:
// over rdma_cm the client connects only where the server listens.
func Pair(t testing.TB, more ...string) func(env []string) []string {
	t.Helper()
	return PairIn(t, t.TempDir(), more...)
}

// PairIn is Pair with what they share in a folder: that of the user who they belong to, if that is another.
func PairIn(t testing.TB, dir string, more ...string) func(env []string) []string {
	t.Helper()
	pipe := filepath.Join(dir, "turns")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Chmod(pipe, 0o666)); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return steadyIn(t, dir, append(more, "SOFTIB_TURNS="+pipe)...)
}

// Steady returns a function that adds to the environment of programs what lets them find their clock on a busy machine.
func Steady(t testing.TB, more ...string) func(env []string) []string {
	t.Helper()
	return steadyIn(t, t.TempDir(), more...)
}

func steadyIn(t testing.TB, dir string, more ...string) func(env []string) []string {
	t.Helper()
	library := filepath.Join(dir, "preload.so")
	code, err := compiled()
	if err == nil {
		err = errors.Join(os.WriteFile(library, code, 0o700), os.Chmod(library, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(env []string) []string {
		preload, out := library, slices.Clone(more)
		for _, kv := range env {
			if rest, ok := strings.CutPrefix(kv, "LD_PRELOAD="); ok {
				preload = library + ":" + rest
			} else {
				out = append(out, kv)
			}
		}
		return append(out, "LD_PRELOAD="+preload)
	}
}
