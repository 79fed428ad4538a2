package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/operate/status"
	"softib/proof/workload/perf"
)

// children are the processes that a process has started, by id.
func children(t *testing.T, pid int) (ids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		var id, parent int
		var state string
		_, _ = fmt.Sscan(string(text), &id)
		_, _ = fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent)
		if parent == pid {
			ids = append(ids, id)
		}
	}
	return ids
}

// endless is a test that goes on until somebody ends it, with its two sides.
type endless struct {
	t     *testing.T
	cmd   *exec.Cmd
	errs  bytes.Buffer
	sides []int
}

func (s *shell) endless(args ...string) *endless {
	s.t.Helper()
	e := &endless{t: s.t, cmd: s.command(append([]string{"perf", "send_lat", "-n", fmt.Sprint(perf.MaxIters)},
		args...)...)}
	e.cmd.Stderr = &e.errs
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	readUntil(s.t, out, "t_typical") // the sides have met
	if e.sides = children(s.t, e.cmd.Process.Pid); len(e.sides) != 2 {
		s.t.Fatalf("a test has the processes %v: want two", e.sides)
	}
	return e
}

// ends waits for the end of all three processes.
func (e *endless) ends(code int, words ...string) {
	e.t.Helper()
	err := e.cmd.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != code {
		e.t.Errorf("it ends with %v, want exit code %d\n%s", err, code, e.errs.String())
	}
	wants(e.t, e.errs.String(), words...)
	for _, id := range e.sides {
		waitGone(e.t, id)
	}
}

// However one of the three processes of a test ends, the others end too.
func TestPerfEnds(t *testing.T) {
	s := newShell(t)
	signal := func(pid int, sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		e := s.endless("star:2")
		signal(e.cmd.Process.Pid, sig)
		e.ends(exitInterrupted, "softib: interrupted\n")
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "softib", "perf-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	s.run("up", "-d", "star:3")
	e := s.endless()
	signal(e.cmd.Process.Pid, syscall.SIGKILL)
	e.ends(-1)
	for i := range 2 {
		e := s.endless("--hosts", "h2,h3")
		signal(e.sides[i], syscall.SIGKILL)
		e.ends(exitFailed, "softib: the process on h", "signal: killed", "\nnext: ")
	}
	e = s.endless()
	s.fails(exitFailed, []string{"another perf test"}, "perf", "send_lat")
	s.run("down")
	e.ends(exitFailed, "was ended during the test", "\nnext: softib up -d")

	s.run("up", "-d", "star:2")
	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	e = s.endless()
	signal(st.PID, syscall.SIGKILL)
	e.ends(exitFailed, "fabric default", "\nnext: ")
	// The next one is not troubled.
	wants(t, s.run("up", "-d", "star:2"), "2 hosts")
	wants(t, s.run("perf", "write_bw", "-n", "100"), "\n 65536      100 ")
	s.run("down")
}

// A reader of the figures that goes away ends the test.
func TestPerfUnread(t *testing.T) {
	s := newShell(t)
	cmd := s.command("perf", "send_lat", "-a", "-n", "1000", "star:2")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, out, "t_typical")
	sides := children(t, cmd.Process.Pid)
	out.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it succeeds though nobody reads")
		}
	case <-time.After(60 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("it goes on though nobody reads")
	}
	for _, id := range sides {
		waitGone(t, id)
	}
}

// A side is not for people.
func TestPerfSideByHand(t *testing.T) {
	s := newShell(t)
	s.fails(exitUsage, []string{"started by softib perf"}, perfSide)
	s.fails(exitUsage, nil, perfSide, "more")
	if out := s.run("--help"); strings.Contains(out, perfSide) {
		t.Errorf("the help shows it:\n%s", out)
	}
}
