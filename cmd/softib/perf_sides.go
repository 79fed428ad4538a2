package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"softib/internal/patience"
	"softib/proof/workload/perf"
)

// A test is measured by two processes of this program (softib perf-side, in perf_side.go), each attached to its host.
// They talk to each other over a pair of sockets, and to this process over their standard input and output:
//
//	this one:  {"socket":"…","host":"h1","config":{…}}      the active side has the config
//	the side:  {"setting":{…}}  {"row":{…}} …  {"ok":true}   or {"error":"…"}
//
// A side whose standard input ends stops, so none outlives this process however that ends; one whose peer is gone stops
// because its socket ends.

// sideRequest is what a side has to do.
type sideRequest struct {
	Socket string       `json:"socket"` // of the fabric
	Host   string       `json:"host"`
	Config *perf.Config `json:"config,omitempty"` // nil: the passive side
}

// sideReport is one line of what a side tells. The last one has OK or Error set.
type sideReport struct {
	Setting *perf.Setting `json:"setting,omitempty"`
	Row     *perf.Row     `json:"row,omitempty"`
	OK      bool          `json:"ok,omitempty"`
	Error   string        `json:"error,omitempty"`
	Peer    bool          `json:"peer,omitempty"` // the error is what became of the other side's
	Gone    bool          `json:"gone,omitempty"` // the fabric is no more
}

const (
	// reportMax bounds a line.
	reportMax = 64 << 10
	// sidePatience is how long a side may take to end once it has been told to.
	sidePatience = 3 * time.Second
	// gonePatience is how long the fabric that has ended may take to say so itself.
	gonePatience = 5 * time.Second
)

// fabricGoneError is the failure of a test whose fabric has ended.
type fabricGoneError struct{ text string }

func (e *fabricGoneError) Error() string { return e.text }

// borrow asks the running fabric for two hosts and has f measure between them. The fabric lends them to one test at a
// time.
func (p place) borrow(ctx context.Context, hosts []string, f func(context.Context, *pair) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lent := make(chan *pair, 1)
	ended := make(chan error, 1)
	line, hangUp := context.WithCancel(ctx)
	defer hangUp()
	go func() {
		err := askFabric(line, p, opPair, pairRequest{Hosts: hosts}, func(x pair) error {
			lent <- &x
			return nil
		})
		ended <- err
		cancel(err) // ends the test, if it is under way
	}()
	select {
	case pair := <-lent:
		err := f(ctx, pair)
		if err == nil {
			return nil
		}
		var gone *fabricGoneError
		if errors.As(err, &gone) {
			select {
			case <-ctx.Done():
			case <-time.After(patience.For(gonePatience)):
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	case err := <-ended:
		return err
	}
}

// sides measures with two processes.
type sides struct {
	view   *perfView
	stderr io.Writer
	socket string
	pair   pair
}

// measure runs tests one after the other and shows them.
func (s *sides) measure(ctx context.Context, tests []perf.Config) error {
	for _, c := range tests {
		if err := s.view.end(s.run(ctx, c)); err != nil {
			return err
		}
	}
	return s.view.finish()
}

// run runs one test: the two sides end when both have, or when ctx does.
func (s *sides) run(ctx context.Context, cfg perf.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a pair of sockets: %w", err)
	}
	var ends [2]*os.File
	for i, fd := range fds {
		ends[i] = os.NewFile(uintptr(fd), "side")
		defer ends[i].Close()
	}
	var errs [2]error
	var wg sync.WaitGroup
	for i, host := range s.pair.Hosts {
		p, err := s.start(ctx, exe, ends[i])
		if err != nil {
			cancel()
			wg.Wait()
			return fmt.Errorf("a process for %s: %w", host, err)
		}
		ends[i].Close() // it is the side's alone, so that its end can be seen
		req := sideRequest{Socket: s.socket, Host: host}
		if i == 0 {
			cfg.Routers = s.pair.Routers
			req.Config = &cfg
		}
		wg.Go(func() { errs[i] = p.follow(req, s.show) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return perf.First(errs[0], errs[1])
}

// show takes what the active side has found.
func (s *sides) show(r sideReport) error {
	switch {
	case r.Setting != nil:
		r.Setting.Hops, r.Setting.Where = s.pair.Hops, s.pair.Where
		return s.view.setting(*r.Setting)
	case r.Row != nil:
		return s.view.row(*r.Row)
	}
	return nil
}

// sideProcess is a side from outside.
type sideProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

func (s *sides) start(ctx context.Context, exe string, end *os.File) (*sideProcess, error) {
	p := &sideProcess{cmd: exec.CommandContext(ctx, exe, perfSide)}
	p.cmd.Stderr = s.stderr
	p.cmd.ExtraFiles = []*os.File{end}
	p.cmd.WaitDelay = sidePatience
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.cmd.Cancel = p.stdin.Close
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// follow tells a side what to do and hears how it goes until it has ended.
func (p *sideProcess) follow(req sideRequest, each func(sideReport) error) error {
	var last sideReport
	_ = json.NewEncoder(p.stdin).Encode(req) // if it cannot be told, it has ended, which is noticed below
	lines := bufio.NewScanner(p.stdout)
	lines.Buffer(nil, reportMax)
	var err error
	for err == nil && !last.OK && last.Error == "" && lines.Scan() {
		last = sideReport{}
		if err = json.Unmarshal(lines.Bytes(), &last); err == nil {
			err = each(last)
		}
	}
	p.stdin.Close()
	exit := p.cmd.Wait()
	switch {
	case err != nil:
		return err
	case last.Peer:
		return &perf.PeerError{Text: last.Error}
	case last.Gone:
		return &fabricGoneError{last.Error}
	case last.Error != "":
		return errors.New(last.Error)
	case last.OK:
		return nil
	case exit == nil:
		exit = errors.New("exit status 0")
	}
	return next(fmt.Errorf("the process on %s ended before the test: %w", req.Host, exit),
		"softib status, then measure again")
}
