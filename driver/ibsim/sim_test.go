package ibsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// simulator is an ibsim that a test has started, under names that nobody else uses.
type simulator struct {
	cfg     Config
	console io.Writer
}

var simulators atomic.Int32

// own is a name of a socket that no other test process uses.
func own(name string) string { return fmt.Sprintf("softib-%s-%d", name, os.Getpid()) }

// startSim starts ibsim on a fabric, and skips the test where there is none.
func startSim(t testing.TB, g *topo.Graph, args ...string) *simulator {
	t.Helper()
	ports := 0
	for _, n := range g.Nodes {
		ports += len(n.Ports)
	}
	return startSimFile(t, topo.Append(nil, g), append([]string{
		"-N", fmt.Sprint(len(g.Nodes) + 1), "-S", fmt.Sprint(len(g.Nodes) + 1), "-P", fmt.Sprint(ports + 1)},
		args...)...)
}

func startSimFile(t testing.TB, netFile []byte, args ...string) *simulator {
	t.Helper()
	path, err := exec.LookPath("ibsim")
	if err != nil {
		t.Fatal("no ibsim on this machine; next: make test, which installs ibsim-utils")
	}
	file := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(file, netFile, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &simulator{cfg: Config{Socket: fmt.Sprintf("softib-%d-%d", os.Getpid(), simulators.Add(1)), Wait: true}}
	cmd := exec.Command(path, append(append([]string{"-s"}, args...), file)...)
	cmd.Env = append(os.Environ(), "IBSIM_SOCKNAME="+s.cfg.Socket)
	// A console that is at its end would keep ibsim busy.
	s.console, err = cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // says that it was killed
	})
	return s
}

// dial attaches to a node of the simulator.
func (s *simulator) dial(t testing.TB, host string) *Port {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cfg := s.cfg
	cfg.Host = host
	p, err := Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// nodeID is how ibsim calls a node of the graph.
func nodeID(n *topo.Node) string {
	return fmt.Sprintf("%c-%016x", " HSR"[n.Type], uint64(n.GUID))
}

// smp makes a directed Get along a path.
func smp(m *[mad.Size]byte, attr mad.AttrID, mod uint32, tid uint64, path []ib.PortNum) {
	clear(m[:])
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMDirect, ClassVersion: 1, Method: mad.MethodGet,
		TransactionID: tid, AttributeID: attr, AttributeModifier: mod}
	h.Append(m[:0])
	m[7] = byte(len(path)) // hop count
	m[32], m[33], m[34], m[35] = 0xFF, 0xFF, 0xFF, 0xFF
	for i, p := range path {
		m[128+1+i] = byte(p)
	}
}

var direct = mad.Envelope{LID: ib.LIDPermissive}

// asker asks many questions at once over a raw port, and matches answers by transaction ID.
type asker struct {
	t     testing.TB
	p     *Port
	limit time.Time
	in    [64]Packet
}

func newAsker(t testing.TB, p *Port) *asker {
	return &asker{t: t, p: p, limit: time.Now().Add(60 * time.Second)}
}

// run sends ask(0), ask(1) … as long as it gives datagrams, with up to width on their way, and hands each answer to
// take.
func (a *asker) run(width int, ask func(i int, m *[mad.Size]byte) bool, take func(tid uint64, m mad.View)) int {
	a.t.Helper()
	var m [mad.Size]byte
	timeout := time.NewTimer(time.Until(a.limit))
	defer timeout.Stop()
	next, onWay, done, ready, more := 0, 0, 0, false, true
	for more || onWay > 0 {
		sent := false
		for more && onWay < width {
			if !ready {
				if more = ask(next, &m); !more {
					break
				}
				ready = true
			}
			err := a.p.Send(&direct, &m)
			if errors.Is(err, ErrBusy) {
				break
			}
			if err != nil {
				a.t.Fatal(err)
			}
			ready, sent = false, true
			next++
			onWay++
		}
		n, err := a.p.Recv(a.in[:])
		if err != nil {
			a.t.Fatal(err)
		}
		for i := range a.in[:n] {
			v := mad.View(a.in[i].Data[:])
			take(v.TID(), v)
		}
		onWay -= n
		done += n
		if n > 0 || sent || (onWay == 0 && more) {
			continue
		}
		if onWay == 0 {
			break
		}
		select {
		case <-a.p.Bell():
		case <-timeout.C:
			a.t.Fatalf("%d of %d answers have come; %+v", done, next, a.p.Counters())
		}
	}
	return done
}

// socketForTest listens where an ibsim would.
func socketForTest(name string) (int, *os.File, error) {
	return socket(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + name + "\x00"}, name)
}

// freePort finds a port with the ten after it that ibsim's clients get.
func freePort(t testing.TB) uint16 {
	t.Helper()
	base := 20000 + os.Getpid()*11%20000
next:
	for try := range 100 {
		port := base + try*11
		for i := range 11 {
			l, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port + i})
			if err != nil {
				continue next
			}
			defer l.Close()
		}
		return uint16(port)
	}
	t.Fatal("no eleven free ports in a row")
	return 0
}

// remote starts an ibsim that listens at a UDP port.
func remote(t testing.TB, g *topo.Graph) *simulator {
	t.Helper()
	port := freePort(t)
	s := startSim(t, g, "-r", "-l", fmt.Sprint(port))
	s.cfg.Server, s.cfg.Port = "127.0.0.1", port
	return s
}
