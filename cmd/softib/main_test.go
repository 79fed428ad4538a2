package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/built"
	"softib/operate/status"
)

// binary is softib as it is built for users, made once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "softib-test")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	bin := filepath.Join(dir, "softib")
	return bin, built.Command(bin)
})

// binaryDir is where that is, if it was made.
var binaryDir string

func TestMain(m *testing.M) {
	os.Unsetenv("XDG_STATE_HOME") // fabrics of tests keep their state in their own runtime folders
	code := m.Run()
	if binaryDir != "" {
		os.RemoveAll(binaryDir)
	}
	os.Exit(code)
}

// underWay is what a command says that takes long, on a machine that has much to do.
var underWay = regexp.MustCompile(`(?m)^.* \([0-9.msh]+(, at a load of .*)?\)\n`)

// shell is a user with a runtime folder of their own.
type shell struct {
	t   *testing.T
	bin string
	dir string
}

// newShell is for tests of what the command does. The race step leaves them out: the command is built without the
// detector, and the test only waits for it.
func newShell(t *testing.T) *shell {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the command, which is built without the detector")
	}
	return newShellBeside(t)
}

// newShellBeside is for a test that itself attaches to the fabric of the command.
func newShellBeside(t *testing.T) *shell {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// t.TempDir would be too long for a socket's path.
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{t, bin, dir}
	t.Cleanup(func() {
		// What a failed test left running.
		locks, _ := filepath.Glob(filepath.Join(dir, "softib", "*.lock"))
		for _, l := range locks {
			name := strings.TrimSuffix(filepath.Base(l), ".lock")
			if (place{dir: filepath.Join(dir, "softib"), name: name}).isRunning() {
				_, _, _ = s.try("down", "--name", name)
			}
		}
		os.RemoveAll(dir)
	})
	return s
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+s.dir)
	return cmd
}

// try runs softib and returns what it printed and its exit code.
func (s *shell) try(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

// run is try for what must succeed.
func (s *shell) run(args ...string) string {
	s.t.Helper()
	out, errs, code := s.try(args...)
	if code != 0 || underWay.ReplaceAllString(errs, "") != "" {
		s.t.Fatalf("softib %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// fails is try for what must fail, with words that the error has to have.
func (s *shell) fails(code int, words []string, args ...string) {
	s.t.Helper()
	out, errs, got := s.try(args...)
	if got != code {
		s.t.Errorf("softib %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	for _, w := range append(words, "softib: ", "\nnext: ") {
		if !strings.Contains(errs, w) {
			s.t.Errorf("softib %s: error lacks %q:\n%s", strings.Join(args, " "), w, errs)
		}
	}
}

func wants(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("lacks %q:\n%s", w, text)
		}
	}
}

func TestBackgroundFabric(t *testing.T) {
	s := newShell(t)
	wants(t, s.run("up", "-d"), "fat tree, 32 hosts, 12 switches, 64 cables, 4x NDR", "32 of 32 ACTIVE", "64 ACTIVE",
		"the full mesh: 992 of 992 pairs carried 256 bytes intact", "up in the background, process")

	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	if st.Name != "default" || st.Hosts != 32 || st.HostsActive != 32 || st.Switches != 12 || st.Links != 64 ||
		st.LinkStates["ACTIVE"] != 64 ||
		st.Packets < 992 || st.Bytes < 992*256 || st.Topology != "fat-tree:radix=8,levels=2" {
		t.Errorf("status is %+v", st)
	}
	var steps []string
	for _, x := range st.Start {
		if steps = append(steps, x.What); x.TookSec < 0 || x.CPUSec < 0 {
			t.Errorf("step %+v", x)
		}
	}
	wants(t, strings.Join(steps, ", "), "reading the topology, making the nodes, bringing the subnet up, looking at "+
		"the ports, restoring tenants, starting the management, mesh, opening the page")
	if err := syscall.Kill(st.PID, 0); err != nil {
		t.Errorf("process %d: %v", st.PID, err)
	}
	// Its report's pipe it closes itself, soon after the last word.
	for deadline := time.Now().Add(60 * time.Second); heldPipe(st.PID) != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the fabric in the background holds %s, which belongs to whoever started it", heldPipe(st.PID))
		}
	}
	wants(t, s.run("status"), "fabric    default, process", "32 hosts, 12 switches", "64 ACTIVE", "32 of 32 ACTIVE",
		"packets, ")

	// A second one of that name is refused, one of another name is not.
	s.fails(exitFailed, []string{`"default" is running`, "softib down"}, "up", "-d")
	s.fails(exitFailed, []string{`"default" is running`, "softib down"}, "up", "star:2")
	wants(t, s.run("up", "-d", "star:2", "--name", "lab"), "star, 2 hosts", "softib status --name lab",
		"127.0.0.1:8470 is taken, by another fabric perhaps") // by the first one, or by somebody else's
	wants(t, s.run("status"), "also running: lab")

	// The test runs inside the fabric: its packets are counted there.
	wants(t, s.run("perf", "send_lat", "-n", "100"), "Send Latency Test", "default (fat-tree:radix=8,levels=2)",
		"t_typical[usec]", "1 switch away")
	wants(t, s.run("perf", "write_bw", "-s", "4096", "-n", "200", "--hosts", "h1,h32"), "RDMA_Write BW Test",
		"3 switches away", "MsgRate[Mpps]", "\n 4096       200 ")
	wants(t, s.run("perf", "read_lat", "-n", "50", "--name", "lab"), "lab (star:2)")
	s.fails(exitUsage, []string{"h99", "--hosts h1,h32"}, "perf", "send_lat", "--hosts", "h1,h99")
	s.fails(exitUsage, []string{"h1 twice"}, "perf", "send_lat", "--hosts", "h1,h1")
	s.fails(exitUsage, []string{"leaf1 is a switch"}, "perf", "send_lat", "--hosts", "h1,leaf1")
	before := st.Packets
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil || st.Packets < before+400 {
		t.Errorf("%d packets after the tests, %d before, %v", st.Packets, before, err)
	}

	if out := s.run("down"); out != "fabric default is down\n" {
		t.Errorf("down says %q", out)
	}
	waitGone(t, st.PID)
	s.fails(exitFailed, []string{`no fabric named "default"`, "--name lab"}, "status")
	s.fails(exitFailed, []string{`no fabric named "default"`}, "down")
	s.run("down", "--name", "lab")
	// No file of either is left but libraries, for programs of the next, and what it is to find again.
	for _, f := range listed(t, filepath.Join(s.dir, "softib")) {
		if f != "lib" && filepath.Ext(f) != ".state" {
			t.Errorf("%s is left behind", f)
		}
	}
	s.fails(exitFailed, []string{`no fabric named "lab"`, "softib up -d --name lab"}, "perf", "send_lat", "--name",
		"lab")
}

func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A fabric without a manager has no addresses to speak of, and one whose alarms go nowhere does not start.
func TestUpWithoutManager(t *testing.T) {
	s := newShell(t)
	out := s.run("up", "-d", "star:2", "--no-sm", "--http", "off", "--state", "none")
	wants(t, out, "0 of 2 ACTIVE: h1 to h2, no LIDs yet", "sw1, no LIDs yet")
	s.run("down")
	s.fails(exitUsage, []string{"--alerts", "next: --alerts http://"}, "up", "star:2", "--alerts", "alertmanager:9093")
}

// heldPipe is a pipe that a process has open; empty if there is none.
func heldPipe(pid int) string {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "pipe:") {
			return to
		}
	}
	return ""
}

// waitGone waits until a process has ended. It may be a zombie that nobody collects,
// when its parent is gone and there is no init.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(text, []byte(") Z ")) {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}

// A fabric in the background belongs to the session of who started it, with whose programs it shares the cores, but a
// terminal's keys are not for it, nor is its end.
func TestBackground(t *testing.T) {
	s := newShell(t)
	s.run("up", "-d", "star:2")
	defer s.run("down")
	pid := func() int {
		var st status.Status
		if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
			t.Fatal(err)
		}
		return st.PID
	}
	is := pid()
	ours, err1 := unix.Getsid(0)
	session, err2 := unix.Getsid(is)
	group, err3 := unix.Getpgid(is)
	if err := errors.Join(err1, err2, err3); err != nil || session != ours || group != is {
		t.Errorf("process %d is in session %d and group %d, %v: want session %d and a group of its own", is, session,
			group, err, ours)
	}
	if err := syscall.Kill(is, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if now := pid(); now != is {
		t.Errorf("after a hangup process %d has the fabric: want %d", now, is)
	}
}

// A fabric that was killed leaves files that trouble nobody.
func TestStaleFiles(t *testing.T) {
	s := newShell(t)
	s.run("up", "-d", "star:2")
	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitGone(t, st.PID)
	// A killed process may count as gone before its last thread has let go of
	// its files.
	p := place{dir: filepath.Join(s.dir, "softib"), name: defaultName}
	for deadline := time.Now().Add(60 * time.Second); p.isRunning(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lock outlives its process")
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "softib", "default.sock")); err != nil {
		t.Fatalf("the test needs a stale socket: %v", err)
	}
	s.fails(exitFailed, []string{`no fabric named "default"`}, "status")
	wants(t, s.run("up", "-d", "star:3"), "3 hosts")
	wants(t, s.run("status"), "star:3")
	s.run("down")
}

func TestForegroundFabric(t *testing.T) {
	s := newShell(t)
	cmd := s.command("up", "star:2")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	text := readUntil(t, out, "up: Ctrl-C ends it")
	wants(t, text, "2 of 2 pairs carried")
	wants(t, s.run("status"), "star:2")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	readUntil(t, out, "fabric default is down\n")
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "softib", "*.sock")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// readUntil reads until a text has come.
func readUntil(t *testing.T, r interface{ Read([]byte) (int, error) }, want string) string {
	t.Helper()
	var text []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(text, []byte(want)) {
		n, err := r.Read(buf)
		text = append(text, buf[:n]...)
		if err != nil {
			t.Fatalf("%v before %q came:\n%s", err, want, text)
		}
	}
	return string(text)
}

// What is wrong with a topology is shown in the foreground and from the
// background alike, with file and line.
func TestBadTopologies(t *testing.T) {
	s := newShell(t)
	write := func(name, text string) string {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := s.run("topo", "gen", "star:2")
	lines := strings.Split(good, "\n")
	broken := -1
	for i, l := range lines {
		if strings.HasPrefix(l, "[") {
			lines[i] = "[900]" + l[strings.Index(l, "]")+1:]
			broken = i + 1
			break
		}
	}
	if broken < 0 {
		t.Fatalf("no port line in:\n%s", good)
	}
	bad := write("bad.topo", strings.Join(lines, "\n"))
	at := fmt.Sprintf("%s:%d:", bad, broken)
	for _, args := range [][]string{{"up"}, {"up", "-d"}, {"perf", "send_lat"}, {"topo", "check"}} {
		s.fails(exitFailed, []string{at}, append(args, bad)...)
		s.fails(exitFailed, []string{"no-such-file.topo"}, append(args, "no-such-file.topo")...)
	}
	s.fails(exitFailed, []string{"pyramid", "fat-tree"}, "up", "pyramid")
	s.fails(exitFailed, []string{"star:-1"}, "up", "-d", "star:-1")
	s.fails(exitFailed, []string{"radix"}, "up", "fat-tree:radix=x")
	s.fails(exitFailed, nil, "up", "-d", write("empty.topo", ""))
	if locks, _ := filepath.Glob(filepath.Join(s.dir, "softib", "*.sock")); len(locks) > 0 {
		t.Errorf("a refused topology left %v", locks)
	}
}

func TestTopoFiles(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(s.dir, "lab.topo")
	out, errs, code := s.try("topo", "gen", "fat-tree:radix=4,levels=2", "-o", file)
	if code != 0 || out != "" || !strings.Contains(errs, "8 hosts") {
		t.Errorf("topo gen -o: %d %q %q", code, out, errs)
	}
	wants(t, s.run("topo", "check", file), "8 hosts", "it can work")
	wants(t, s.run("up", "-d", file), "56 of 56 pairs")
	wants(t, s.run("status"), file)
	s.run("down")
}

func TestPerfOnItsOwn(t *testing.T) {
	s := newShell(t)
	var results []perfResult
	if err := json.Unmarshal([]byte(s.run("perf", "all", "-n", "100", "--json")), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 7 {
		t.Fatalf("%d tests, want 7", len(results))
	}
	for _, r := range results {
		if len(r.Rows) != 1 || r.Rows[0].Iters != 100 || (r.Rows[0].Latency == nil) == (r.Rows[0].Bandwidth == nil) ||
			r.Hops != 1 || r.MTU != 4096 {
			t.Errorf("%v: %+v", r.Test, r)
		}
	}
	out := s.run("perf", "write_bw", "-a", "-n", "20", "star:2")
	if n := strings.Count(out, "\n"); !strings.Contains(out, "\n 8388608    20") || n < 23 {
		t.Errorf("-a prints:\n%s", out)
	}
	wants(t, s.run("perf", "send_bw", "-n", "100", "-q", "2", "--tx-depth", "8", "-m", "1024", "star:2"), "1024[B]",
		"Number of qps   : 2", " 65536      200 ")
	for _, args := range [][]string{
		{"send_speed"}, {}, {"send_lat", "star:2", "more"}, {"send_lat", "-s", "0x"}, {"send_lat", "-s", "-4"},
		{"send_lat", "-a", "-s", "8"},
		{"send_lat", "-q", "2"}, {"atomic_lat", "-s", "16"}, {"send_bw", "--mtu", "1000"},
		{"send_lat", "--hosts", "h1"}, {"send_lat", "--bogus"},
	} {
		s.fails(exitUsage, nil, append([]string{"perf"}, args...)...)
	}
}

func TestCommandLine(t *testing.T) {
	s := newShell(t)
	help := s.run("--help")
	wants(t, help, "up ", "down ", "status ", "route ", "log ", "perf ", "topo ", "version ")
	for _, c := range [][]string{{"up"}, {"down"}, {"status"}, {"route", "show"}, {"route", "trace"},
		{"route", "check"}, {"log"}, {"perf"}, {"topo", "gen"}, {"topo", "check"}, {"version"}} {
		wants(t, s.run(append(c, "--help")...), "Usage:", "Examples:", "softib "+strings.Join(c, " "))
	}
	wants(t, s.run("up", "--help"), "fat-tree:", " pods=", "torus:", "dragonfly", "ibnetdiscover")
	wants(t, s.run("version"), "softib "+version, "go1.")
	s.fails(exitUsage, []string{`"stauts"`, "did you mean softib status"}, "stauts")
	s.fails(exitUsage, []string{"--nmae"}, "up", "--nmae", "x")
	s.fails(exitUsage, []string{"a/b"}, "up", "--name", "a/b")
	s.fails(exitUsage, nil, "down", "now")
	s.fails(exitUsage, []string{"--report-fd"}, "up", "--report-fd", "99", "star:2")
	s.fails(exitUsage, nil, "topo", "draw")
	s.fails(exitUsage, []string{`no subcommand "bogus"`, "softib fault --help"}, "fault", "bogus", "--link", "h1")
	s.fails(exitUsage, []string{`no subcommand "lnk"`, "did you mean softib fault link"}, "fault", "lnk")
	s.fails(exitUsage, []string{"unknown flag: --bogus", "softib fault list --help"}, "fault", "list", "--bogus")
}

// The runtime folder has to be the user's own.
func TestForeignRuntimeFolder(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(s.dir, "softib")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{dir, "drwx------"}, "up", "-d")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.dir = filepath.Join(s.dir, strings.Repeat("long/", 30))
	s.fails(exitFailed, []string{"107"}, "status")
}

// A process that dies before it has said anything is noticed, and its last
// words are shown.
func TestBackgroundDies(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(s.dir, "softib")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := place{dir: dir, name: "x"}
	if err := os.WriteFile(p.log(), []byte("panic: something\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := p.diedEarly(context.Background(), errors.New("exit status 2"))
	wants(t, err.Error(), "panic: something", "exit status 2")
	wants(t, nextOf(err), p.log())
}

// TestStopped: commands do not wait for ever for a fabric that somebody has stopped, show that they wait, and say what
// to do; it is there again when it goes on.
func TestStopped(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := newShell(t)
	s.run("up", "-d", "star:2")
	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(st.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() error { return syscall.Kill(st.PID, syscall.SIGCONT) }
	defer goOn()
	var wg sync.WaitGroup
	for _, args := range [][]string{{"status"}, {"exec", "h1", "--", "true"}, {"tenant", "list"}, {"top", "-n", "1"},
		{"perf", "send_lat"}, {"log"}, {"route", "check"}, {"fault", "list"}} {
		wg.Go(func() {
			s.fails(exitFailed, []string{"fabric default: its process ", " is stopped", "has not answered for 10s",
				"kill -CONT " + fmt.Sprint(st.PID), "the fabric does not answer: "}, args...)
		})
	}
	wg.Wait()
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	wants(t, s.run("status"), "2 of 2 ACTIVE")
	wants(t, s.run("down"), "is down")
}

// TestTooFar: a fabric whose manager does not reach all hosts is not there, and nobody is told that it is up.
func TestTooFar(t *testing.T) {
	s := newShell(t)
	for spec, words := range map[string][]string{
		"line:200":    {"137 of 200 hosts", "63 hops", "sw1"},
		"ring:130":    {"5 of 130 hosts", "63 hops"},
		"mesh:70x2":   {"15 of 140 hosts", "63 hops"},
		"torus:3x140": {"hosts have no ACTIVE port", "63 hops"},
	} {
		s.fails(exitFailed, words, "up", "-d", spec, "--state", "none")
		s.fails(exitFailed, words, "up", spec, "--state", "none", "--http", "off")
		if out, _, code := s.try("status"); code == 0 {
			t.Errorf("%s is there:\n%s", spec, out)
		}
	}
	// 63 cables are not too many.
	wants(t, s.run("up", "-d", "line:63", "--state", "none"), "63 of 63 ACTIVE")
	s.run("down")
}
