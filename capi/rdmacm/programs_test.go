package rdmacm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/internal/perftest"
	"softib/proto/ib"
	"softib/proto/topo"
)

// The programs of Debian's rdmacm-utils, and others that use librdmacm, between two hosts of a fabric with two levels.
const (
	twoLevels   = "fat-tree:radix=4,levels=2"
	near, far   = "h1", "h5"
	nearAddress = "198.18.0.1"
)

// pair runs a program that takes connections on one host and one that makes them on another, and returns what both
// printed.
func (w *land) pair(t testing.TB, path string, serverArgs []string, clientPath string, clientArgs []string) (server,
	client string) {
	t.Helper()
	s := w.serve(t, near, path, serverArgs...)
	client = w.start(t, far, clientPath, clientArgs...).finish()
	return s.finish(), client
}

func TestPrograms(t *testing.T) {
	w := newLand(t, twoLevels)
	g := w.Graph().ByName(near).Ports[1].GUID
	gid := netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64([]byte{0xFE, 0x80, 7: 0}, uint64(g)))).String()
	for _, test := range []struct {
		name           string
		server, client []string
		says           string // both do
	}{
		{"rping", []string{"rping", "-s", "-v", "-V", "-C", "20"},
			[]string{"rping", "-c", "-v", "-V", "-C", "20", "-a", nearAddress}, "rdma-ping-19"},
		{"rping large", []string{"rping", "-s", "-V", "-C", "5", "-S", "60000"},
			[]string{"rping", "-c", "-V", "-C", "5", "-S", "60000", "-a", nearAddress}, ""},
		{"ucmatose", []string{"ucmatose", "-c", "5", "-C", "20"},
			[]string{"ucmatose", "-c", "5", "-C", "20", "-s", nearAddress}, "return status 0"},
		{"ucmatose large", []string{"ucmatose", "-C", "5", "-S", "1000000"},
			[]string{"ucmatose", "-C", "5", "-S", "1000000", "-s", nearAddress}, "return status 0"},
		{"ucmatose migrate", []string{"ucmatose", "-m", "-c", "3"},
			[]string{"ucmatose", "-m", "-c", "3", "-s", nearAddress}, "return status 0"},
		{"ucmatose ib", []string{"ucmatose", "-P", "ib"}, []string{"ucmatose", "-P", "ib", "-s", nearAddress},
			"return status 0"},
		{"rping IPv6", []string{"rping", "-s", "-v", "-C", "3", "-a", "::"},
			[]string{"rping", "-c", "-v", "-C", "3", "-a", "fd53:6f66:7469:6200::1"}, "rdma-ping-2"},
		{"ucmatose gid", []string{"ucmatose", "-P", "ib", "-f", "gid", "-b", gid},
			[]string{"ucmatose", "-P", "ib", "-f", "gid", "-s", gid}, "return status 0"},
		{"udaddy", []string{"udaddy", "-c", "3", "-C", "20"},
			[]string{"udaddy", "-c", "3", "-C", "20", "-s", nearAddress}, "return status 0"},
		{"udaddy ipoib", []string{"udaddy", "-p", "0x2"}, []string{"udaddy", "-p", "0x2", "-s", nearAddress},
			"return status 0"},
		{"rdma_server", []string{"rdma_server"}, []string{"rdma_client", "-s", nearAddress}, "end 0"},
		{"rdma_xserver rc", []string{"rdma_xserver", "-c", "r"}, []string{"rdma_xclient", "-c", "r", "-s", nearAddress},
			"end 0"},
		{"rdma_xserver xrc", []string{"rdma_xserver", "-c", "x"},
			[]string{"rdma_xclient", "-c", "x", "-s", nearAddress}, "end 0"},
		{"rstream", []string{"rstream", "-T", "v", "-S", "1000", "-I", "10", "-C", "50"},
			[]string{"rstream", "-T", "v", "-S", "1000", "-I", "10", "-C", "50", "-s", nearAddress}, "custom"},
		{"rstream large", []string{"rstream", "-T", "v", "-S", "1000000", "-I", "3", "-C", "5"},
			[]string{"rstream", "-T", "v", "-S", "1000000", "-I", "3", "-C", "5", "-s", nearAddress}, "custom"},
		{"rstream async", []string{"rstream", "-T", "a", "-I", "10", "-C", "50"},
			[]string{"rstream", "-T", "a", "-I", "10", "-C", "50", "-s", nearAddress}, "custom"},
		{"rstream blocking", []string{"rstream", "-T", "b", "-I", "10", "-C", "50"},
			[]string{"rstream", "-T", "b", "-I", "10", "-C", "50", "-s", nearAddress}, "custom"},
		{"rstream rdma", []string{"rstream", "-T", "r", "-I", "3", "-C", "10"},
			[]string{"rstream", "-T", "r", "-I", "3", "-C", "10", "-s", nearAddress}, "custom"},
		{"riostream", []string{"riostream", "-T", "v", "-I", "10", "-C", "10"},
			[]string{"riostream", "-T", "v", "-I", "10", "-C", "10", "-s", nearAddress}, "custom"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := w.pair(t, utility(t, test.server[0]), test.server[1:], utility(t, test.client[0]), test.client[1:])
			for _, out := range []string{s, c} {
				if !strings.Contains(out, test.says) || strings.Contains(out, "No such device") {
					t.Errorf("does not say %q:\nserver:\n%s\nclient:\n%s", test.says, s, c)
				}
			}
		})
	}
}

// TestRoutedPrograms: connections, datagrams and sockets between two subnets that a router joins.
func TestRoutedPrograms(t *testing.T) {
	w := newLand(t, "subnets:2,routers=1,each=star:4")
	for _, test := range []struct{ server, client []string }{
		{[]string{"rping", "-s", "-V", "-C", "20"}, []string{"rping", "-c", "-V", "-C", "20", "-a", nearAddress}},
		{[]string{"ucmatose", "-c", "3"}, []string{"ucmatose", "-c", "3", "-s", nearAddress}},
		{[]string{"udaddy", "-c", "3"}, []string{"udaddy", "-c", "3", "-s", nearAddress}},
		{[]string{"rstream", "-T", "v", "-S", "1000", "-I", "10", "-C", "50"},
			[]string{"rstream", "-T", "v", "-S", "1000", "-I", "10", "-C", "50", "-s", nearAddress}},
	} {
		t.Run(test.server[0], func(t *testing.T) {
			path := utility(t, test.server[0])
			w.pair(t, path, test.server[1:], path, test.client[1:])
		})
	}
	t.Run("mckey", func(t *testing.T) { // of site-local scope
		path, group := utility(t, "stdbuf"), "ff15:401b:ffff::7777"
		mckey := []string{"-oL", utility(t, "mckey"), "-C", "5", "-M", group, "-b"}
		r := w.start(t, near, path, append(slices.Clip(mckey), nearAddress)...)
		r.await("receiving data transfers")
		s := w.start(t, far, path, append(slices.Clip(mckey), "198.18.0.5", "-s")...)
		for _, out := range []string{s.finish(), r.finish()} {
			if !strings.Contains(out, "joined dgid: "+group) || !strings.Contains(out, "return status 0") {
				t.Errorf("not joined to %s:\n%s", group, out)
			}
		}
	})
	rt := topo.PortRef{Node: w.Graph().Routers()[0].Index, Port: 1}
	if c := w.Counters(rt); c[ib.PortRcvPkts] < 100 || c[ib.PortRcvSwitchRelayErrors] != 0 {
		t.Errorf("the router has taken %d packets in, and not known where to with %d", c[ib.PortRcvPkts],
			c[ib.PortRcvSwitchRelayErrors])
	}
	t.Run("perftest", func(t *testing.T) {
		path := utility(t, "ib_write_bw")
		w := *w
		w.env = perftest.Pair(t, perftest.Quick)
		s := w.serve(t, near, path, "-F", "-R", "-n", "100")
		w.start(t, far, path, "-F", "-R", "-n", "100", nearAddress).finish()
		s.finish()
	})
}

// TestPerftest runs perftest over rdma_cm. Its client connects twice, and does not survive that the server listens a
// second time only after it was asked; package perftest sees to that.
func TestPerftest(t *testing.T) {
	w := newLand(t, twoLevels)
	for _, args := range [][]string{
		{"ib_send_lat", "-F", "-R", "-n", "100"}, {"ib_write_bw", "-F", "-R", "-n", "100"},
		{"ib_send_bw", "-F", "-R", "-n", "100", "-c", "UD", "-s", "1024"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			path := utility(t, args[0])
			w := *w
			w.env = perftest.Pair(t, perftest.Quick)
			s := w.serve(t, near, path, args[1:]...)
			c := w.start(t, far, path, append(args[1:len(args):len(args)], nearAddress)...)
			if out := c.finish(); !strings.Contains(out, "rdma_cm QPs\t : ON") {
				t.Fatalf("%s:\n%s", c.name, out)
			}
			s.finish()
		})
	}
}

// TestPreloaded are programs that know nothing of all this, with sockets that rdma-core's librspreload makes rsockets.
func TestPreloaded(t *testing.T) {
	const library = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
	if _, err := os.Stat(library); err != nil {
		t.Fatalf("%v; next: make test, which installs librdmacm1", err)
	}
	w := *newLand(t, twoLevels)
	w.env = func(env []string) []string {
		for i, kv := range env {
			if strings.HasPrefix(kv, "LD_PRELOAD=") {
				env[i] += ":" + library
			}
		}
		return append(env, "PYTHONUNBUFFERED=1")
	}
	const text = "over rsockets\n"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("netcat", func(t *testing.T) {
		path := utility(t, "nc.openbsd")
		s := w.serve(t, near, path, "-l", "7000")
		w.start(t, far, utility(t, "sh"), "-c", "nc.openbsd -N "+nearAddress+" 7000 <"+file).finish()
		if out := s.finish(); !strings.HasSuffix(out, text) {
			t.Errorf("the server got %q", out)
		}
	})
	t.Run("http", func(t *testing.T) {
		s := w.serve(t, near, utility(t, "python3"), "-m", "http.server", "-d", filepath.Dir(file), "8000")
		if out := w.start(t, far, utility(t, "curl"), "-s", "http://"+nearAddress+":8000/file").finish(); out != text {
			t.Errorf("curl got %q\n%s", out, s.printed())
		}
		s.await(`"GET /file HTTP/1.1" 200`)
		s.kill()
	})
	// It waits by epoll, and its client asks by a second connect whether the first has worked.
	t.Run("redis", func(t *testing.T) {
		client := func(args ...string) string {
			return w.start(t, far, utility(t, "redis-cli"), append([]string{"-h", nearAddress}, args...)...).finish()
		}
		s := w.serve(t, near, utility(t, "redis-server"), "--save", "", "--protected-mode", "no")
		long := strings.Repeat(text, 10000)
		if err := os.WriteFile(file, []byte(long), 0o644); err != nil {
			t.Fatal(err)
		}
		w.start(t, far, utility(t, "sh"), "-c", "redis-cli -h "+nearAddress+" -x set key <"+file).finish()
		if got := client("--raw", "get", "key"); got != long+"\n" {
			t.Errorf("%d bytes came back of %d\n%s", len(got), len(long), s.printed())
		}
		s.kill()
		c := w.start(t, far, utility(t, "redis-cli"), "-h", nearAddress, "ping")
		if <-c.done; !strings.Contains(c.printed(), "Connection refused") {
			t.Errorf("without a server: %s", c.printed())
		}
	})
}

// TestEndlessServers are programs whose server has no end.
func TestEndlessServers(t *testing.T) {
	w := newLand(t, twoLevels)
	t.Run("cmtime", func(t *testing.T) {
		path := utility(t, "cmtime")
		s := w.serve(t, near, path, "-c", "50")
		if out := w.start(t, far, path, "-c", "50", "-s", nearAddress).finish(); !strings.Contains(out, "disconnect") {
			t.Errorf("no table:\n%s", out)
		}
		s.kill()
	})
	t.Run("udpong", func(t *testing.T) {
		path := utility(t, "udpong")
		s := w.serve(t, near, path)
		if out := w.start(t, far, path, "-C", "100", "-s", nearAddress).finish(); !strings.Contains(out, "custom") {
			t.Errorf("no result:\n%s", out)
		}
		s.kill()
	})
	t.Run("rcopy", func(t *testing.T) {
		path, dir := utility(t, "rcopy"), t.TempDir()
		data := bytes.Repeat([]byte("a file that is longer than the rings are\n"), 50000)
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		if err := os.WriteFile(in, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := w.serve(t, near, path)
		w.start(t, far, path, in, nearAddress+":"+out).finish()
		s.await("done")
		if got, err := os.ReadFile(out); err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
			t.Errorf("%d bytes copied as %d others: %v", len(data), len(got), err)
		}
		s.kill()
	})
}

// TestMckey runs rdmacm's multicast test with groups of each kind.
func TestMckey(t *testing.T) {
	w := newLand(t, twoLevels)
	// Printed line by line, so that it is known when a receiver is ready.
	path, mckey := utility(t, "stdbuf"), []string{"-oL", utility(t, "mckey"), "-C", "5"}
	for _, test := range []struct {
		name             string
		receiver, sender []string
		group            string
	}{
		{"UDP", []string{"-m", "239.1.2.3"}, []string{"-m", "239.1.2.3"}, "ff12:4001:ffff::f01:203"},
		{"IPoIB", []string{"-m", "239.1.2.4", "-p", "0x2"}, []string{"-m", "239.1.2.4", "-p", "0x2"},
			"ff12:401b:ffff::f01:204"},
		{"send only", []string{"-m", "239.1.2.5"}, []string{"-m", "239.1.2.5", "-o"}, "ff12:4001:ffff::f01:205"},
		{"unmapped", []string{"-M", "ff12:401b:ffff::7777", "-b", nearAddress},
			[]string{"-M", "ff12:401b:ffff::7777", "-b", "198.18.0.5"}, "ff12:401b:ffff::7777"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // senders sleep for 5 s before they send
			r := w.start(t, near, path, slices.Concat(mckey, test.receiver)...)
			r.await("receiving data transfers")
			s := w.start(t, far, path, slices.Concat(mckey, test.sender, []string{"-s"})...)
			for _, out := range []string{s.finish(), r.finish()} {
				if !strings.Contains(out, "joined dgid: "+test.group) || !strings.Contains(out, "return status 0") {
					t.Errorf("not joined to %s:\n%s", test.group, out)
				}
			}
		})
	}
}
