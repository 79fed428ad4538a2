package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// programs measures unmodified programs on hosts of a fabric, each in a process of its own.
type programs struct {
	*bench
	mu  sync.Mutex
	dir string // the fabric's run directory, and what was built
}

// start brings the fabric up, once; stop ends it.
func (p *programs) start(ctx context.Context) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir != "" {
		return nil
	}
	if p.dir, err = os.MkdirTemp("", "softib-bench-"); err != nil {
		return err
	}
	_, err = p.output(ctx, p.env(), p.softib, "up", "-d", fmt.Sprintf("star:%d", ranks))
	return err
}

func (p *programs) stop() {
	if p.dir != "" {
		_, _ = p.output(context.Background(), p.env(), p.softib, "down")
		os.RemoveAll(p.dir)
	}
}

func (p *programs) env() []string {
	return []string{"XDG_RUNTIME_DIR=" + p.dir, "XDG_STATE_HOME=" + p.dir}
}

func (p *programs) command(ctx context.Context, args ...string) ([]byte, error) {
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p.output(ctx, p.env(), p.softib, args...)
}

// pair runs a program of perftest on both hosts and returns the numbers of the client's last row.
func (p *programs) pair(ctx context.Context, args ...string) ([]float64, error) {
	if _, err := program(args[0]); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server := append(slices.Clone(args), "-F", "-p", strconv.Itoa(port))
	out, err := p.both(ctx, port, server, append(slices.Clone(server), "localhost"))
	if err != nil {
		return nil, err
	}
	return lastRow(args[0], out)
}

// lastRow is the numbers of the last row that a program of perftest has printed.
func lastRow(name, out string) (row []float64, err error) {
	for line := range strings.Lines(out) {
		if v := numbers(line); len(v) >= 4 {
			row = v
		}
	}
	if row == nil {
		return nil, fmt.Errorf("%s printed no row of numbers: %s", name, out)
	}
	return row, nil
}

// both runs a server on one host and a client on the other, and returns what the client printed.
func (p *programs) both(ctx context.Context, port int, server, client []string) (string, error) {
	if err := p.start(ctx); err != nil {
		return "", err
	}
	on := func(host string, line []string) []string { return append([]string{"exec", host, "--"}, line...) }
	return p.withServer(ctx, p.env(), p.softib, port, on("h1", server), on("h2", client))
}

// pingpong is how long a message of ibv_rc_pingpong takes whose programs sleep in between, in microseconds.
func (p *programs) pingpong(ctx context.Context) (float64, error) {
	if _, err := program("ibv_rc_pingpong"); err != nil {
		return 0, err
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	server := []string{"ibv_rc_pingpong", "-e", "-g", "0", "-s", "8", "-n", strconv.Itoa(p.times(20000)), "-p",
		strconv.Itoa(port)}
	out, err := p.both(ctx, port, server, append(slices.Clone(server), "localhost"))
	if err != nil {
		return 0, err
	}
	words := strings.Fields(out)
	at := slices.Index(words, "usec/iter")
	if at < 1 {
		return 0, fmt.Errorf("ibv_rc_pingpong printed no time: %s", out)
	}
	v, err := strconv.ParseFloat(words[at-1], 64)
	return v / 2, err
}

// rcLatency is qperf's rc_lat, whose programs sleep as well.
func (p *programs) rcLatency(ctx context.Context) (float64, error) {
	return p.qperf(ctx, p.both, "localhost", "rc_lat", "8", "latency", latencyUnits)
}

// numbers are the fields of a line, if all are numbers. perftest prints -nan for a deviation that it could not compute.
func numbers(line string) (v []float64) {
	for _, f := range strings.Fields(line) {
		if f == "-nan" {
			f = "nan"
		}
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	return v
}

// latency is the typical latency of a test of perftest, in microseconds.
func (p *programs) latency(test string, iters int) func(context.Context) (float64, error) {
	return p.latencyBy(p.pair, test, iters)
}

// runner runs a program of perftest on both sides of something.
type runner func(ctx context.Context, args ...string) ([]float64, error)

func (b *bench) latencyBy(run runner, test string, iters int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		v, err := run(ctx, test, "-s", "8", "-n", strconv.Itoa(b.times(iters)))
		if err != nil {
			return 0, err
		}
		return v[4], nil
	}
}

// bandwidth is the average of one, in GB/s, or in million messages a second for short ones.
func (p *programs) bandwidth(test string, size, iters int, rate bool) func(context.Context) (float64, error) {
	return p.bandwidthBy(p.pair, test, size, iters, rate)
}

func (b *bench) bandwidthBy(run runner, test string, size, iters int, rate bool) func(context.Context) (float64,
	error) {
	return func(ctx context.Context) (float64, error) {
		v, err := run(ctx, test, "-s", strconv.Itoa(size), "-n", strconv.Itoa(b.times(iters)), "--report_gbits")
		if err != nil {
			return 0, err
		}
		if len(v) < 5 {
			return 0, fmt.Errorf("%s printed a row of %d numbers: want 5", test, len(v))
		}
		if rate {
			return v[4], nil
		}
		return v[3] / 8, nil
	}
}

//go:embed testdata/*.c
var testdata embed.FS

// build builds a program of testdata, once.
func (p *programs) build(ctx context.Context, name, compiler string, libraries ...string) (string, error) {
	if err := p.start(ctx); err != nil {
		return "", err
	}
	path := filepath.Join(p.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	text, err := testdata.ReadFile("testdata/" + name + ".c")
	if err != nil {
		return "", err
	}
	source := path + ".c"
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	_, err = p.output(ctx, nil, compiler, append([]string{"-O2", "-o", path, source}, libraries...)...)
	return path, err
}

// attach is how long a program takes to open the device and make its first queue pair, in milliseconds.
func (p *programs) attach(ctx context.Context) (float64, error) {
	v, err := p.says(ctx, "attached", "attach", "1")
	return v / 1e3, err
}

// idle is how much CPU an attached program takes that does nothing, in percent.
func (p *programs) idle(ctx context.Context) (float64, error) {
	ms := p.times(2000)
	v, err := p.says(ctx, "idle", "attach", strconv.Itoa(ms))
	return v / float64(ms*1000) * 100, err
}

// many is what making so many of a kind costs, by the word that the program has for it and in the given unit.
func (p *programs) many(kind string, count int, what string, unit float64) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		v, err := p.says(ctx, what, "many", kind, strconv.Itoa(p.times(count)))
		return v / unit, err
	}
}

// says is a number that a program of testdata prints behind a word.
func (p *programs) says(ctx context.Context, what, name string, args ...string) (float64, error) {
	program, err := p.build(ctx, name, "gcc", "-libverbs")
	if err != nil {
		return 0, err
	}
	out, err := p.command(ctx, append([]string{"exec", "h1", "--", program}, args...)...)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, what+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("%s did not say %q: %s", name, what, out)
}

// memory is what one attached process costs the daemon, in MB, when there are many.
func (p *programs) memory(ctx context.Context) (float64, error) {
	program, err := p.build(ctx, "attach", "gcc", "-libverbs")
	if err != nil {
		return 0, err
	}
	daemon, err := p.daemon(ctx)
	if err != nil {
		return 0, err
	}
	before, err := resident(daemon)
	if err != nil {
		return 0, err
	}
	count := 64
	if p.smoke {
		count = 2
	}
	ctx, cancel := p.patient(ctx, fmt.Sprintf("%d programs to attach", count))
	defer cancel()
	for i := range count {
		cmd := command(ctx, p.env(), p.softib, "exec", "h"+strconv.Itoa(1+i%2), "--", program)
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		defer func() {
			in.Close()
			_ = cmd.Wait()
		}()
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			return 0, fmt.Errorf("process %d did not attach: %w", i+1, gaveUp(ctx, err))
		}
	}
	after, err := resident(daemon)
	return (after - before) / float64(count), err
}

// daemon is the fabric's process.
func (p *programs) daemon(ctx context.Context) (int, error) {
	out, err := p.command(ctx, "status", "--json")
	if err != nil {
		return 0, err
	}
	var status struct {
		PID int `json:"pid"`
	}
	err = json.Unmarshal(out, &status)
	return status.PID, err
}

// resident is a process's memory, in MB.
func resident(pid int) (float64, error) {
	out, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	v := numbers(string(out))
	if len(v) < 2 {
		return 0, fmt.Errorf("statm of process %d: %q", pid, out)
	}
	return v[1] * float64(os.Getpagesize()) / 1e6, nil
}
