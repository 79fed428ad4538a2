package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// reportFD is where the background process finds its pipe.
const reportFD = 3

// detach starts this program anew as a process of its own session, shows what it
// reports until its fabric is up, and leaves it there.
func detach(ctx context.Context, p place, o upOptions, t *terminal) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if p.isRunning() { // before the log of the one that runs is overwritten
		return p.alreadyRunning()
	}
	log, err := os.OpenFile(p.log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	keepDescriptors()
	args := append(append([]string{"up"}, o.args...), "--report-fd", strconv.Itoa(reportFD))
	if o.named {
		args = append(args, "--", o.topology)
	}
	child := exec.Command(exe, args...)
	child.Stdout, child.Stderr = log, log
	child.ExtraFiles = []*os.File{w}
	// Not in a session of its own: Linux shares a machine between sessions first (sched_autogroup), and 6.18 has been
	// seen to leave one waiting for half a minute while programs of another outnumber the cores and yield. In a process
	// group of its own it outlives the terminal and does not hear its keys.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = child.Start()
	w.Close()
	if err != nil {
		return next(err, "softib up%s keeps it in the foreground", p.flag())
	}
	defer context.AfterFunc(ctx, func() {
		_ = child.Process.Signal(syscall.SIGTERM)
	})()

	out := toTerminal(t)
	for dec := json.NewDecoder(r); ; {
		var rep report
		if err := dec.Decode(&rep); err != nil {
			if !errors.Is(err, io.EOF) {
				_ = child.Process.Kill()
			}
			return p.diedEarly(ctx, child.Wait())
		}
		out.show(rep)
		switch {
		case rep.Error != "":
			_ = child.Wait() // its exit says no more than its report
			return &hint{errors.New(rep.Error), rep.Next}
		case rep.Up:
			t.say("%s", t.green("up")+fmt.Sprintf(" in the background, process %d: %s, softib down%s", rep.PID,
				o.examples(p), p.flag()))
			return child.Process.Release()
		}
	}
}

// keepDescriptors lets the background process inherit nothing but what it is
// given: a pipe that our own parent forgot to close would stay open for as long as the
// fabric runs, and keep whoever reads from it waiting.
func keepDescriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// diedEarly is the error of a background process that ended without a word.
func (p place) diedEarly(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted: the fabric was not started")
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	text, _ := os.ReadFile(p.log())
	const tail = 20
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > tail {
		lines = lines[len(lines)-tail:]
	}
	return next(fmt.Errorf("the background process ended before its fabric was up: %w\n%s", err,
		bytes.Join(lines, []byte("\n"))),
		"softib up%s keeps it in the foreground; the whole log is %s", p.flag(), p.log())
}

// upInBackground is the other end: a fabric that reports to the process that
// started it, and belongs to no terminal and no folder.
func upInBackground(ctx context.Context, p place, o upOptions) error {
	pipe := os.NewFile(uintptr(o.reportFD), "report")
	if pipe == nil {
		return errReportFD(o.reportFD)
	}
	if _, err := pipe.Stat(); err != nil {
		return errReportFD(o.reportFD)
	}
	syscall.CloseOnExec(o.reportFD)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE) // a SIGHUP is told to the manager, once there is one
	out := toPipe(pipe)
	isUp := false
	err := up(ctx, p, o, out, func() {
		_ = os.Chdir("/")
		out.show(report{Up: true, PID: os.Getpid()})
		pipe.Close()
		isUp = true
	})
	if !isUp && err != nil {
		out.show(report{Error: err.Error(), Next: nextOf(err)})
		pipe.Close()
	}
	return err
}

// errReportFD refuses a descriptor that is not open.
func errReportFD(fd int) error {
	return next(&usageError{fmt.Errorf("--report-fd is %d: want an open descriptor", fd)},
		"softib up -d, which passes one")
}
