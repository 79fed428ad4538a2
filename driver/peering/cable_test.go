package peering

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/netpair"
	"softib/internal/pki"
)

// certificates writes a CA's and those of server and client to a folder.
func certificates(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ca, err := pki.NewCA(time.Now(), time.Hour)
	if err == nil {
		err = ca.Save(filepath.Join(dir, pki.CACert), filepath.Join(dir, pki.CAKey))
	}
	for _, name := range []string{"server", "client"} {
		var p *pki.Pair
		if err == nil {
			p, err = ca.Issue(name, time.Now(), time.Hour)
		}
		if err == nil {
			err = p.Save(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// watcher is a handler that prints what happens.
type watcher struct{ benchSide }

func (*watcher) Up(*Peer)                  { fmt.Println("up") }
func (*watcher) Down(_ *Peer, why error)   { fmt.Println("down", why) }
func (*watcher) Trouble(_ string, e error) { fmt.Println("trouble", e) }
func (*watcher) Messages(*Peer, []Message) {}

// watchClient connects to the server and prints what happens, until its input ends.
func watchClient(dir string, mtu int) error {
	c, err := pki.Config(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"),
		filepath.Join(dir, pki.CACert))
	if err != nil {
		return err
	}
	m, err := New(Config{Name: "client", TLS: c, Listen: fmt.Sprint(":", benchPort), MTU: mtu, Handler: &watcher{}})
	if err != nil {
		return err
	}
	if err := m.Connect("server", net.JoinHostPort(netpair.Addresses[0], fmt.Sprint(benchPort))); err != nil {
		return err
	}
	untilClosed()
	m.Close()
	return nil
}

// A cable that is pulled is told as silence, and when it is back so is the peer. Datagrams that are too long
// for it are told as that.
func TestCable(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for what real time does")
	}
	pair, err := netpair.New()
	if err != nil {
		t.Skip(err)
	}
	defer pair.Close()
	dir := certificates(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	side := func(machine int, what string, mtu int) (<-chan string, func()) {
		c := pair.Command(t.Context(), machine, self)
		c.Env = append(os.Environ(), sideEnv+"="+what, dirEnv+"="+dir, mtuEnv+"="+strconv.Itoa(mtu))
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		stop := sync.OnceFunc(func() { in.Close(); _ = c.Wait() })
		t.Cleanup(stop)
		said := make(chan string, 100)
		go func() {
			for s := bufio.NewScanner(out); s.Scan(); {
				said <- s.Text()
			}
		}()
		return said, stop
	}
	cable := func(to string) {
		t.Helper()
		out, err := pair.Command(t.Context(), 1, "ip", "link", "set", netpair.Device, to).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	expect := func(said <-chan string, begin, has string) {
		t.Helper()
		for {
			line := next(t, begin+" "+has, said)
			t.Log(line)
			if strings.HasPrefix(line, begin) && strings.Contains(line, has) {
				return
			}
			if !strings.HasPrefix(line, "trouble") {
				t.Fatalf("%q, and not %s %s", line, begin, has)
			}
		}
	}
	listens := func() {
		t.Helper()
		for end := time.Now().Add(testPatience); !pair.Listens(0, benchPort); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the server does not listen")
			}
		}
	}
	_, stopServer := side(0, "peering-server", 1452)
	listens()
	said, stop := side(1, "watch-client", 1452)
	expect(said, "up", "")
	cable("down")
	expect(said, "down", ErrSilent.Error())
	cable("up")
	expect(said, "up", "")
	stop()
	stopServer()

	side(0, "peering-server", 8952)
	listens()
	said, _ = side(1, "watch-client", 8952)
	expect(said, "trouble", "set a smaller MTU")
}
