package fieldtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/listening"
)

// program is a program on a host, whose words can be waited for.
type program struct {
	testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	err  error         // of its end

	mu   sync.Mutex
	out  bytes.Buffer
	bell chan struct{} // something was printed
}

// Write takes what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	select {
	case p.bell <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts a program on a host. It is killed when the test ends.
func (w *world) start(host, name string, args ...string) *program {
	w.Helper()
	return w.starts(fmt.Sprintf("%s %s on %s", filepath.Base(name), strings.Join(args, " "), host),
		w.command(host, name, args...))
}

// starts is start for a command.
func (w *world) starts(name string, cmd *exec.Cmd) *program {
	w.Helper()
	p := &program{TB: w.TB, name: name, cmd: cmd, done: make(chan struct{}), bell: make(chan struct{}, 1)}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	w.Cleanup(p.kill)
	return p
}

// kill ends the program as nothing else does, and waits for that.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended waits for the program's end. Commands are killed when their time is over, so there will be one.
func (p *program) ended() string {
	<-p.done
	return p.printed()
}

// finish is ended for a program that has to succeed.
func (p *program) finish() string {
	p.Helper()
	out := p.ended()
	if p.err != nil {
		p.Fatalf("%s: %v\n%s", p.name, p.err, out)
	}
	return out
}

// fails is ended for a program that has to fail, and of itself.
func (p *program) fails() string {
	p.Helper()
	out := p.ended()
	if e, ok := errors.AsType[*exec.ExitError](p.err); !ok || !e.Exited() {
		p.Fatalf("%s: %v, want it to fail\n%s", p.name, p.err, out)
	}
	return out
}

// await waits until the program has printed a text.
func (p *program) await(text string) {
	p.Helper()
	p.until(fmt.Sprintf("said %q", text), func() bool { return strings.Contains(p.printed(), text) })
}

// until waits until something is true of the program, and looks whenever it has said something and now and then.
func (p *program) until(what string, is func() bool) {
	p.Helper()
	deadline, look := time.After(inTime()), time.NewTicker(2*time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-p.bell:
		case <-look.C:
		case <-p.done:
			if !is() {
				p.Fatalf("%s ended before it %s: %v\n%s", p.name, what, p.err, p.printed())
			}
		case <-deadline:
			p.Fatalf("%s has not %s:\n%s", p.name, what, p.printed())
		}
	}
}

// pair runs a program on two hosts. Those of libibverbs and perftest exchange their addresses over TCP: the first
// listens on a port of the machine, the second is told where. Both must succeed. What they printed is returned.
func (w *world) pair(first, second, name string, args ...string) (server, client string) {
	w.Helper()
	s, c := w.startPair(first, second, name, args...)
	client = c.finish()
	return s.finish(), client
}

// startPair is pair for programs that run on.
func (w *world) startPair(first, second, name string, args ...string) (server, client *program) {
	w.Helper()
	port := freePort(w)
	args = append(args[:len(args):len(args)], "-p", strconv.Itoa(port))
	server = w.start(first, name, args...)
	server.until("listened", func() bool { return listens(port) })
	return server, w.start(second, name, append(args, "127.0.0.1")...)
}

// ports are those that were given out, which programs may not have taken yet.
var ports = struct {
	sync.Mutex
	given map[int]bool
}{given: map[int]bool{}}

// freePort is a TCP port that nobody listens on, below those that the kernel gives to whoever does not care (32768 and
// more by default): somebody else's connection might take one of them before the program does.
func freePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		if ports.given[port] {
			continue
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue // somebody's
		}
		l.Close()
		ports.given[port] = true
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// listens reports whether something listens on a TCP port.
var listens = listening.On

// compile makes a program of testdata, linked with libibverbs.
func compile(t testing.TB, source string) string {
	t.Helper()
	lib := library(t)
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Fatal("no infiniband/verbs.h on this machine; next: make test, which installs libibverbs-dev")
	}
	out := filepath.Join(scratch, strings.TrimSuffix(source, ".c"))
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", out,
		filepath.Join("testdata", source),
		"-L"+filepath.Dir(lib), "-l:libibverbs.so.1", "-pthread")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, text)
	}
	return out
}
