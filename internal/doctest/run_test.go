package doctest

import (
	"bufio"
	"bytes"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"softib/internal/built"
	"softib/internal/listening"
	"softib/internal/patience"
	"softib/internal/perftest"
)

// commandTime is how long one command may take on an idle machine.
const commandTime = 60 * time.Second

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "softib-doc-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the command with its drop-in libraries beside it, in the folder that it returns.
var build = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch, "bin")
	if err := built.Libraries(filepath.Join(bin, "lib")); err != nil {
		return "", err
	}
	if err := built.Command(filepath.Join(bin, "softib")); err != nil {
		return "", err
	}
	// go run finds them compiled.
	if out, err := exec.Command("go", "build", "../../examples/...").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// need fails the test at once where a program that a document uses is not installed.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if _, err := os.Stat("/usr/sbin/" + p); err != nil {
				t.Fatalf("no %s on this machine; next: make test, which installs it", p)
			}
		}
	}
}

// shell is a shell in which a document is followed.
type shell struct {
	*testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	dir  string // in which it works
	port string // of the fabric's page
	// How many times as long programs send as the document says; 0 before one does.
	slower int
}

// documentPort is the page's port as documents say it.
const documentPort = "8470"

const mark = "-- doctest: status "

func newShell(t *testing.T) *shell {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(scratch, "d") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + dir, "NO_COLOR=1",
		"LC_ALL=C.UTF-8", "TMPDIR=" + dir}
	// What Go has built and fetched is below the home that the shell does not have.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	for name, folder := range map[string]string{"XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "state", "WORK": "work"} {
		path := filepath.Join(dir, folder)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+path)
	}
	// Documents speak of files in the folder of the source; they may only read them.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs", "contrib", "examples"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, "work", name)); err != nil {
			t.Fatal(err)
		}
	}
	env = perftest.Steady(t)(env)
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env = filepath.Join(dir, "work"), env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		r.Close()
		for _, name := range []string{"default", "ci"} {
			ctx, cancel := patience.Context(context.Background(), commandTime)
			down := exec.CommandContext(ctx, filepath.Join(bin, "softib"), "down", "--name", name)
			down.Env = env
			_ = down.Run() // there is none if the document ended it
			cancel()
		}
	})
	return &shell{T: t, in: in, out: bufio.NewReader(r), dir: cmd.Dir, port: documentPort}
}

// atSource has a program work in the folder of the source, as for somebody who types it there, while files that a
// document writes stay in the shell's own folder.
func (s *shell) atSource(program string) {
	s.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		s.Fatal(err)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		s.Fatal(err)
	}
	folder := filepath.Join(filepath.Dir(s.dir), "at-source")
	script := fmt.Sprintf("#!/bin/sh\ncd '%s' && exec '%s' \"$@\"\n", root, path)
	if err := errors.Join(os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, program), []byte(script), 0o700)); err != nil {
		s.Fatal(err)
	}
	if out, status := s.run("export PATH='" + folder + "':$PATH"); status != 0 {
		s.Fatal(out)
	}
}

// progressLine is what a command says to standard error that takes more than a second.
var progressLine = regexp.MustCompile(
	`(?m)^[a-z].*(: [0-9]+ s|: [0-9]+ of [0-9]+|\([0-9.]+m?s(, at a load of [0-9]+ on .*)?\))\n`)

// startLines are where the time of a start went that took longer than that.
var startLines = regexp.MustCompile(`(?m)^start +took .*\n(?: +.*\n)*`)

// takenLine is what is said where a fabric of another test has the port of the documents.
var takenLine = regexp.MustCompile(`(?m)^note +\S+ is taken, .*\n`)

// asIfIdle is what commands say without what they say on a busy machine alone.
func asIfIdle(text string) string {
	for _, busy := range []*regexp.Regexp{startLines, progressLine, takenLine} {
		text = busy.ReplaceAllString(text, "")
	}
	return text
}

func TestAsIfIdle(t *testing.T) {
	const idle = `subnet    up in 217.98ms: 770 management datagrams, ftree routing
mesh      the full mesh: 992 of 992 pairs carried 256 bytes intact in 1.6s
page      http://127.0.0.1:8470/
`
	lines := strings.SplitAfter(idle, "\n")
	busy := lines[0] + "mesh: 320 of 992\nmesh: 2 s\n" + lines[1] + "note      8470 is taken, so is this text\n" +
		lines[2] + `start     took 3.15s, 159ms of the processors: bringing the subnet up 212ms
          (3.75ms), starting the management 361ms (6.88ms), mesh 1.62s (86.9ms),
          opening the page 949ms (59.9ms)
`
	if got := asIfIdle(busy); got != idle {
		t.Errorf("%s", got)
	}
	if got := asIfIdle(idle); got != idle {
		t.Errorf("%s", got)
	}
}

// lasting is how long perftest is to send, while a document looks at the traffic.
var lasting = regexp.MustCompile(` -D [0-9]+\b`)

// longer gives a document as much longer to look at traffic as all else takes longer on a busy machine, within reason.
// What has to agree about it does: it is the same for all of a document.
func (s *shell) longer(option string) string {
	if s.slower == 0 {
		s.slower = min(int(patience.For(time.Second)/time.Second), 3)
	}
	sec, err := strconv.Atoi(option[len(" -D "):])
	if err != nil {
		s.Fatal(err)
	}
	return fmt.Sprintf(" -D %d", sec*s.slower)
}

var pageLine = regexp.MustCompile(`page +http://127\.0\.0\.1:([0-9]+)/`)

// run runs a command and returns what it printed and its status.
func (s *shell) run(command string) (out string, status int) {
	s.Helper()
	return s.tell("{\n" + command + "\n} </dev/null")
}

// late has the softib of the shell begin a second later where its arguments begin so: whoever relies on its being
// there already fails, and not only on a busy machine.
func (s *shell) late(args string) {
	s.Helper()
	const function = `softib() { case "$*" in '%s'*) sleep 1 ;; esac; command softib "$@"; }`
	if out, status := s.tell(fmt.Sprintf(function, args)); status != 0 {
		s.Fatal(out)
	}
}

// tell hands the shell some lines in one piece, and returns what they printed and the last one's status.
func (s *shell) tell(command string) (out string, status int) {
	s.Helper()
	command = strings.ReplaceAll(command, "127.0.0.1:"+documentPort, "127.0.0.1:"+s.port)
	command = lasting.ReplaceAllStringFunc(command, s.longer)
	fmt.Fprintf(s.in, "%s\nprintf '\\n%s%%d\\n' $?\n", command, mark)
	type result struct {
		text   string
		status int
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var text bytes.Buffer
		for {
			line, err := s.out.ReadString('\n')
			if err != nil {
				done <- result{text.String(), 0, err}
				return
			}
			if rest, ok := strings.CutPrefix(line, mark); ok {
				r := result{text: text.String()}
				_, r.err = fmt.Sscan(rest, &r.status)
				done <- r
				return
			}
			text.WriteString(line)
		}
	}()
	ctx, cancel := patience.Context(context.Background(), commandTime)
	defer cancel()
	select {
	case r := <-done:
		if r.err != nil {
			s.Fatalf("the shell ended at %q: %v\n%s", command, r.err, r.text)
		}
		if m := pageLine.FindStringSubmatch(r.text); m != nil {
			s.port = m[1]
		}
		return strings.ReplaceAll(asIfIdle(r.text), "127.0.0.1:"+s.port, "127.0.0.1:"+documentPort), r.status
	case <-ctx.Done():
		s.Fatalf("%q has not ended: %v", command, context.Cause(ctx))
	}
	return "", 0
}

// follow does what a document says.
func (s *shell) follow(path string) {
	s.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	blocks, err := parse(string(text))
	if err != nil {
		s.Fatalf("%s: %v", path, err)
	}
	for _, b := range blocks {
		does := map[string]string{}
		for _, d := range b.directives {
			word, arg, _ := strings.Cut(d, " ")
			if !slices.Contains([]string{"skip", "fails", "mixed", "after", "again", "listens", "writes",
				pastedMark}, word) {
				s.Fatalf("%s:%d: no directive %q", path, b.line, d)
			}
			does[word] = arg
		}
		if _, skip := does["skip"]; skip {
			continue
		}
		if _, ok := does[pastedMark]; ok {
			s.paste(path, b.steps)
			continue
		}
		last := len(b.steps) - 1
		for _, st := range b.steps[:last] {
			s.step(path, st, nil)
		}
		st := b.steps[last]
		if command, ok := does["after"]; ok {
			s.await(fmt.Sprintf("%s:%d: %s", path, st.line, command), func() bool {
				_, status := s.run(command)
				return status == 0
			})
		}
		s.step(path, st, does)
		if file, ok := does["writes"]; ok {
			s.await(fmt.Sprintf("%s:%d: something in %s", path, st.line, file), func() bool {
				info, err := os.Stat(filepath.Join(s.dir, file))
				return err == nil && info.Size() > 0
			})
		}
		if text, ok := does["listens"]; ok {
			port, err := strconv.Atoi(text)
			if err != nil {
				s.Fatal(err)
			}
			s.await(fmt.Sprintf("%s:%d: something that listens on port %d", path, st.line, port),
				func() bool { return listening.On(port) })
		}
	}
}

// paste hands the shell some commands as somebody does who does not wait for one to end.
func (s *shell) paste(path string, steps []step) {
	s.Helper()
	commands := make([]string, len(steps))
	for i, st := range steps {
		commands[i] = st.command
	}
	if out, status := s.tell(strings.Join(commands, "\n")); status != 0 {
		s.logFiles()
		s.Fatalf("%s:%d: pasted with what follows, ended with status %d\n%s", path, steps[0].line, status, out)
	}
}

// step runs one command of a document and compares; does has its block's directives, if the command is the last there.
func (s *shell) step(path string, st step, does map[string]string) {
	s.Helper()
	_, fails := does["fails"]
	_, again := does["again"]
	compare := same
	if _, mixed := does["mixed"]; mixed {
		compare = sameMixed
	}
	limit := patience.New(commandTime)
	for tries := 1; ; tries++ {
		began := time.Now()
		out, status := s.run(st.command)
		missing, ok := "", true
		if st.want != nil {
			missing, ok = compare(st.want, strings.Split(out, "\n"))
		}
		good := ok && (status != 0) == fails
		if good {
			s.Logf("%s:%d: %s: in %v, at try %d", path, st.line, st.command, time.Since(began).Round(time.Millisecond),
				tries)
			return
		}
		if again && !limit.Over() {
			<-time.After(50 * time.Millisecond) // there are two cores, and others need them to get there
			continue
		}
		s.logFiles()
		if !ok {
			s.Fatalf("%s:%d: %s\nlacks: %s\nprinted (status %d):\n%s", path, st.line, st.command, missing, status, out)
		}
		s.Fatalf("%s:%d: %s\nended with status %d, and should it fail: %v\n%s", path, st.line, st.command, status,
			fails, out)
	}
}

// logFiles shows what programs in the background have written, where the reason for a failure often is.
func (s *shell) logFiles() {
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.txt"))
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			s.Logf("%s:\n%s", filepath.Base(name), text[:min(len(text), 4096)])
		}
	}
}

// await waits until something is true.
func (s *shell) await(what string, is func() bool) {
	s.Helper()
	for limit := patience.New(commandTime); !is(); <-time.After(20 * time.Millisecond) {
		if limit.Over() {
			s.logFiles()
			s.Fatalf("waited %v in vain for %s; next: see by hand what the step before it does", limit, what)
		}
	}
}
