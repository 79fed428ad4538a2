package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TB is what is needed of a test or a benchmark.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Server is an etcd that can be killed and started again.
type Server struct {
	// Addr is where it answers: host and port.
	Addr string

	t      TB
	dir    string
	peer   string
	args   []string
	scheme string
	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	out    bytes.Buffer
}

// patience is how long etcd may take to come up on a busy machine.
const patience = 60 * time.Second

// Start runs an etcd, with further arguments if there are any.
func Start(t TB, args ...string) *Server {
	t.Helper()
	return start(t, "http", args)
}

// StartTLS runs one that wants certificates, which lie in a folder as ca.pem, server.pem and server.key.
func StartTLS(t TB, certs string) *Server {
	t.Helper()
	file := func(name string) string { return filepath.Join(certs, name) }
	return start(t, "https", []string{"--cert-file", file("server.pem"), "--key-file", file("server.key"),
		"--trusted-ca-file", file("ca.pem"), "--client-cert-auth"})
}

func start(t TB, scheme string, args []string) *Server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Fatalf("there is no etcd: %v; next: scripts/setup.sh test", err)
	}
	s := &Server{t: t, dir: t.TempDir(), args: args, scheme: scheme}
	t.Cleanup(s.Kill)
	// A free port may be taken by another before etcd has it: then others are tried.
	for range 5 {
		s.Addr, s.peer = freeAddress(t), freeAddress(t)
		if s.tryRun() {
			return s
		}
	}
	t.Fatalf("etcd does not come up:\n%s", s.output())
	return nil
}

func freeAddress(t TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Run starts it again with what it had.
func (s *Server) Run() {
	s.t.Helper()
	if !s.tryRun() {
		s.t.Fatalf("etcd does not come up again:\n%s", s.output())
	}
}

func (s *Server) tryRun() bool {
	client, peer := s.scheme+"://"+s.Addr, "http://"+s.peer
	s.cmd = exec.Command("etcd", append([]string{"--data-dir", filepath.Join(s.dir, "data"),
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer, "--logger", "zap",
		"--log-outputs", "stderr"}, s.args...)...)
	s.cmd.Stderr = s
	// It ends with the test even if that is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.mu.Lock()
	s.out.Reset()
	s.mu.Unlock()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v", err)
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(s.cmd, s.ended)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if strings.Contains(s.output(), "serving client traffic") {
			return true
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// Write takes what etcd says.
func (s *Server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out.Len() < 1<<20 {
		s.out.Write(p)
	}
	return len(p), nil
}

func (s *Server) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// Kill ends it as kill -9 does. What it has told its clients is in its folder.
func (s *Server) Kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// Stop makes it stand still, and Continue go on. On a busy machine its threads work on until one of them has a turn to
// see the signal.
func (s *Server) Stop() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	for {
		err := unix.Waitid(unix.P_PID, s.cmd.Process.Pid, nil, unix.WSTOPPED, nil)
		if err == nil {
			return
		} else if err != unix.EINTR {
			s.t.Fatalf("etcd does not stop: %v", err)
		}
	}
}

// Continue lets it go on after Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%v", err)
	}
}

// URL is softib's for a fabric in it.
func (s *Server) URL(fabric string) string {
	scheme := "etcd"
	if s.scheme == "https" {
		scheme = "etcds"
	}
	return fmt.Sprintf("%s://%s/%s", scheme, s.Addr, fabric)
}

// Context ends with the test's patience.
func Context(t TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
