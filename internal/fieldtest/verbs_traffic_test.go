package fieldtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"softib/proto/topo"
	"softib/subnet/sm"
)

// carried is what perfquery says that every port of a fabric has sent and received, in bytes.
func (w *world) carried() map[topo.PortRef][2]uint64 {
	w.Helper()
	all := map[topo.PortRef][2]uint64{}
	for _, n := range w.g.Nodes {
		last := n.NumPorts()
		args := []string{"-x", dec(w.lid(n, 1)), "1"}
		if last > 1 {
			args = []string{"-x", "-l", dec(w.lid(n, 1)), fmt.Sprintf("1-%d", last)}
		}
		text := w.run("h2", "perfquery", args...)
		port := 0
		for _, f := range fields(text) {
			v, _ := strconv.ParseUint(f.value, 0, 64)
			r := ref(n, port)
			c := all[r]
			switch f.name {
			case "PortSelect":
				port = int(v)
				continue
			case "PortXmitData":
				c[0] = 4 * v
			case "PortRcvData":
				c[1] = 4 * v
			default:
				continue
			}
			all[r] = c
		}
		if port != last {
			w.Fatalf("perfquery shows %d ports of %s, want %d:\n%s", port, n.Name, last, text)
		}
	}
	return all
}

// What programs send is counted at every port on its way, in its direction, and at no other.
func TestPerfqueryVerbs(t *testing.T) {
	t.Parallel()
	w := up(t, "fat-tree:radix=4,levels=2", func(c *sm.Config) { c.SweepInterval = -1 })
	const size, iters = 1 << 20, 40
	const most = 8 * size // far more than perfquery and acknowledgements are, far less than the messages
	for _, test := range []struct {
		name, server, client string
		forth, back          bool // messages go from the client to the server, and back
		args                 string
	}{
		{"ib_write_bw", "h1", "h8", true, false, ""},
		{"ib_read_bw", "h3", "h6", false, true, ""},
		{"ib_send_bw", "h7", "h4", true, true, "-b"},
		{"ib_write_bw", "h5", "h5", false, false, ""}, // within the adapter
	} {
		before := w.carried()
		// what is sent twice counts twice
		w.pair(test.server, test.client, test.name, append(strings.Fields(test.args), "-F", "-s", dec(size), "-n",
			dec(iters), "-u", "20")...)
		after := w.carried()
		sent, received := map[topo.PortRef]bool{}, map[topo.PortRef]bool{}
		way := func(from, to string) {
			hops, ok := w.walk(w.node(from), 1, w.lid(w.node(to), 1))
			if !ok {
				t.Fatalf("no way from %s to %s", from, to)
			}
			for _, h := range hops {
				sent[ref(h.from, h.out)], received[ref(h.to, h.in)] = true, true
			}
		}
		if test.forth {
			way(test.client, test.server)
		}
		if test.back {
			way(test.server, test.client)
		}
		for r, c := range after {
			for i, on := range []bool{sent[r], received[r]} {
				n := c[i] - before[r][i]
				what := fmt.Sprintf("%s from %s to %s: %s at %s", test.name, test.client, test.server,
					[]string{"sent", "received"}[i], w.g.PortName(r))
				switch {
				case on && (n < size*iters || n > size*iters+size*iters/20+most):
					t.Errorf("%s: %d bytes, want %d and a little more", what, n, size*iters)
				case !on && n > most:
					t.Errorf("%s: %d bytes, want next to none", what, n)
				}
			}
		}
	}
}

// softib status shows the traffic too.
func TestStatusVerbs(t *testing.T) {
	t.Parallel()
	tool(t, "ib_write_bw")
	u := newUser(t)
	u.up("v", "star:2")
	carried := func() (s struct{ Packets, Bytes uint64 }) {
		if err := json.Unmarshal([]byte(u.must("status", "--name", "v", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := carried()
	const size, iters = 1 << 16, 100
	port := dec(freePort(t))
	args := []string{"ib_write_bw", "-F", "-s", dec(size), "-n", dec(iters), "-u", "20", "-p", port}
	server := make(chan string)
	go func() {
		out, errs, status := u.softib(append([]string{"exec", "--name", "v", "h1", "--"}, args...)...)
		server <- fmt.Sprintf("%d\n%s%s", status, out, errs)
	}()
	number, _ := strconv.Atoi(port)
	for !listens(number) {
		select {
		case out := <-server:
			t.Fatal("the server ends with status", out)
		case <-time.After(2 * time.Millisecond):
		}
	}
	u.must(append(append([]string{"exec", "--name", "v", "h2", "--"}, args...), "127.0.0.1")...)
	if out := <-server; !strings.HasPrefix(out, "0\n") {
		t.Error("the server ends with status", out)
	}
	after := carried()
	// perftest's messages, in packets of 4096 bytes.
	if n := after.Bytes - before.Bytes; n < size*iters || n > size*iters*11/10 {
		t.Errorf("%d bytes carried, want %d and a little more", n, size*iters)
	}
	if n := after.Packets - before.Packets; n < size*iters/4096 || n > 2*size*iters/4096 {
		t.Errorf("%d packets carried, want %d and their acknowledgements", n, size*iters/4096)
	}
}
