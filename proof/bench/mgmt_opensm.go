package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"softib/driver/ibsim"
	"softib/proto/topo"
)

// preload is where distributions have ibsim's library for programs on libibumad.
var preload = []string{"/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so",
	"/usr/lib/aarch64-linux-gnu/umad2sim/libumad2sim.so",
	"/usr/lib64/umad2sim/libumad2sim.so", "/usr/local/lib/umad2sim/libumad2sim.so"}

// program finds one that distributions put where only root looks.
func program(name string) (string, error) {
	for _, at := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(at); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w; next: make bench, which installs it", name, errAbsent)
}

// openSMVersion is the peer, in words.
func openSMVersion(ctx context.Context) string {
	path, err := program("opensm")
	if err != nil {
		return "OpenSM is not installed"
	}
	out, _ := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	for l := range strings.Lines(string(out)) {
		if strings.HasPrefix(l, "OpenSM ") {
			return strings.TrimSpace(l)
		}
	}
	return "OpenSM of unknown version"
}

// simulator is an ibsim of our own, under a name that nobody else uses.
type simulator struct {
	socket string
	host   string // the node that a manager runs at
	stop   func()
}

var simulators atomic.Int32

// startSimulator starts ibsim on a fabric in which nothing is configured yet, and returns once it answers.
func (m *management) startSimulator(ctx context.Context, g *topo.Graph) (*simulator, error) {
	path, err := program("ibsim")
	if err != nil {
		return nil, err
	}
	dir, err := m.folder()
	if err != nil {
		return nil, err
	}
	file, err := netFile(dir, g)
	if err != nil {
		return nil, err
	}
	ports := 0
	for _, n := range g.Nodes {
		ports += len(n.Ports)
	}
	s := &simulator{
		socket: fmt.Sprintf("softib-bench-%d-%d", os.Getpid(), simulators.Add(1)),
		host:   fmt.Sprintf("H-%016x", uint64(g.Hosts()[0].GUID)),
	}
	nodes := strconv.Itoa(len(g.Nodes) + 1)
	cmd := command(ctx, []string{"IBSIM_SOCKNAME=" + s.socket}, path, "-s", "-N", nodes, "-S", nodes, "-P",
		strconv.Itoa(ports+1), file)
	// Its console: at the end of a file it would spin.
	console, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.stop = func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		_ = console.Close()
	}
	dial, cancel := m.patient(ctx, "ibsim to answer on its socket "+s.socket)
	defer cancel()
	port, err := ibsim.Dial(dial, ibsim.Config{Host: s.host, Socket: s.socket, Wait: true})
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("ibsim: %w", gaveUp(dial, err))
	}
	if err := port.Close(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// openSMRun is what one run of opensm -o took.
type openSMRun struct {
	up      time.Duration // from the start of the process to SUBNET UP in its log
	whole   time.Duration // until the process has ended
	routing time.Duration // the routing engine alone; 0 where the log does not say it
	cpu     time.Duration // of the process, on whatever cores
	memory  float64       // the most that it held, in bytes
	engine  string        // that gave the tables: another than was asked for if that one refused
	lfts    []byte        // opensm-lfts.dump, where it was asked for
}

// Bits of OpenSM's log mask (-D): what it logs without being asked, what brackets the routing, and what leaves the
// tables in a file.
const (
	logUsual  = 0x03
	logPhases = 0x04
	logTables = 0x40
)

// openSM lets OpenSM bring a fabric up once, on an ibsim of its own, with its defaults but for the engine.
func (m *management) openSM(ctx context.Context, g *topo.Graph, engine string, mask int) (run openSMRun, err error) {
	path, err := program("opensm")
	if err != nil {
		return run, err
	}
	lib := slices.IndexFunc(preload, func(f string) bool { _, err := os.Stat(f); return err == nil })
	if lib < 0 {
		return run, fmt.Errorf("libumad2sim.so: %w; next: make bench, which installs it", errAbsent)
	}
	sim, err := m.startSimulator(ctx, g)
	if err != nil {
		return run, err
	}
	defer sim.stop()
	dir, err := m.folder()
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // the dumps are large
	logFile := filepath.Join(dir, "log")
	args := []string{"-o", "-f", logFile}
	if engine != "" {
		args = append(args, "-R", engine)
	}
	if mask != logUsual {
		args = append(args, "-D", fmt.Sprintf("%#x", mask))
	}
	ctx, cancel := m.patient(ctx, fmt.Sprintf("opensm %s to end on ibsim with %s", strings.Join(args, " "), size(g)))
	defer cancel()
	cmd := command(ctx, []string{"LD_PRELOAD=" + preload[lib], "IBSIM_SOCKNAME=" + sim.socket, "SIM_HOST=" + sim.host,
		"OSM_CACHE_DIR=" + dir, "OSM_TMP_DIR=" + dir}, path, args...)
	cmd.Dir = dir
	began := time.Now()
	out, memory, err := watched(cmd)
	run.whole, run.memory, run.cpu = time.Since(began), memory, cpuTime(cmd)
	if err != nil {
		return run, fmt.Errorf("opensm %s: %w\n%s", strings.Join(args, " "), gaveUp(ctx, err), tail(out))
	}
	log, err := os.Open(logFile)
	if err != nil {
		return run, err
	}
	defer log.Close()
	if err := run.read(log, began); err != nil {
		return run, err
	}
	if mask&logTables != 0 {
		run.lfts, err = os.ReadFile(filepath.Join(dir, "opensm-lfts.dump"))
	}
	return run, err
}

// watched runs a command and returns what it printed and the most memory it held. The kernel's own count for children
// that have ended does not do: it includes what the parent held when it forked.
func watched(cmd *exec.Cmd) (out []byte, memory float64, err error) {
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	peak := watchMemory(cmd.Process.Pid)
	err = cmd.Wait()
	return []byte(text.String()), peak(time.Now()), err
}

// cpuTime is what a command that has ended took of the processors. It says more than the clock where others are at work
// too.
func cpuTime(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// watchMemory looks how much memory a process holds, until the function that it returns is called. That says how much
// it had held at most when it was first looked at after a time, or in the end.
func watchMemory(pid int) (peak func(at time.Time) float64) {
	type look struct {
		at   time.Time
		most float64
	}
	stop, result := make(chan struct{}), make(chan []look)
	go func() {
		var looks []look
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if v, err := memoryPeak(pid); err == nil {
				looks = append(looks, look{time.Now(), v})
			}
			select {
			case <-tick.C:
			case <-stop:
				result <- looks
				return
			}
		}
	}()
	return func(at time.Time) float64 {
		close(stop)
		most := 0.0
		for _, l := range <-result {
			most = l.most // the kernel keeps the highest
			if l.at.After(at) {
				break
			}
		}
		return most
	}
}

// memoryPeak is the most memory that a process has held, in bytes.
func memoryPeak(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return 0, errors.New("the process has ended")
	}
	kib, err := strconv.ParseFloat(words[0], 64)
	return kib * 1024, err
}

// What a line of OpenSM's log begins with: the time without a year, and microseconds.
const (
	stampLayout = "Jan 02 15:04:05 2006"
	stampLength = len("Nov 15 06:15:36 355367")
)

var tablesDone = regexp.MustCompile(`osm_ucast_mgr_process: (\S+) tables configured on all switches`)

// read takes the times from a log.
func (r *openSMRun) read(log io.Reader, began time.Time) error {
	var routing time.Time
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l := lines.Text()
		switch {
		case strings.Contains(l, "ucast_mgr_route: building routing with"):
			at, err := stamp(l, began)
			if err != nil {
				return err
			}
			routing = at
		case strings.HasSuffix(l, "SUBNET UP"):
			at, err := stamp(l, began)
			if err != nil {
				return err
			}
			r.up = at.Sub(began)
		default:
			found := tablesDone.FindStringSubmatch(l)
			if found == nil {
				continue
			}
			at, err := stamp(l, began)
			if err != nil {
				return err
			}
			r.engine = found[1]
			if !routing.IsZero() {
				r.routing = at.Sub(routing)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if r.up == 0 || r.engine == "" {
		return errors.New("OpenSM's log has no SUBNET UP, or no routing before it")
	}
	return nil
}

// stamp is the time of a line, near a time that is known to the year.
func stamp(line string, near time.Time) (time.Time, error) {
	if len(line) < stampLength {
		return time.Time{}, fmt.Errorf("OpenSM's log: %q: want a line that begins with its time", line)
	}
	clock, micros := line[:stampLength-7], line[stampLength-6:stampLength]
	at, err := time.ParseInLocation(stampLayout, fmt.Sprintf("%s %d", clock, near.Year()), near.Location())
	if err != nil {
		return at, fmt.Errorf("OpenSM's log: %w", err)
	}
	us, err := strconv.Atoi(micros)
	if err != nil {
		return at, fmt.Errorf("OpenSM's log: %w", err)
	}
	at = at.Add(time.Duration(us) * time.Microsecond)
	if at.Before(near.AddDate(0, -1, 0)) {
		at = at.AddDate(1, 0, 0) // the year has ended meanwhile
	}
	return at, nil
}

// openSMOnce is openSM on the fabric that everything is compared on, once for each engine.
func (m *management) openSMOnce(ctx context.Context, engine string, mask int) (openSMRun, error) {
	key := fmt.Sprintf("%s %#x", engine, mask)
	if r, ok := m.peers[key]; ok {
		return r, nil
	}
	g, err := m.graph(m.fabric)
	if err != nil {
		return openSMRun{}, err
	}
	progress("OpenSM %s on %s", engine, m.fabric)
	r, err := m.openSM(ctx, g, engine, mask)
	if err == nil {
		m.peers[key] = r
	}
	return r, err
}
