// Package cmturns is for tests that run perftest's programs over rdma_cm: it makes the client connect only where the
// server listens, which perftest itself leaves to luck. See testdata/turns.c.
//
//	env := cmturns.Pair(t)
//	server.Env, client.Env = env(server.Env), env(client.Env)
package cmturns

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

//go:embed testdata/turns.c
var source string

// Pair makes what a server and its client share. The function that it returns adds that to the environment of each.
func Pair(t testing.TB) func(env []string) []string {
	t.Helper()
	dir := t.TempDir()
	library, pipe := filepath.Join(dir, "turns.so"), filepath.Join(dir, "turns")
	gcc := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", library,
		"-xc", "-")
	gcc.Stdin = strings.NewReader(source)
	if text, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("gcc turns.c: %v\n%s", err, text)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(env []string) []string {
		preload, out := library, []string{"SOFTIB_TURNS=" + pipe}
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
