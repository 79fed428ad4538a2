package fieldtest

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// both runs a program on two hosts, which meet over TCP: the first listens on the port, the second has its name in
// other. Both must succeed. What they printed is returned.
func (p *person) both(first, second string, port int, env, one, other []string) (server, client string) {
	p.Helper()
	ctx, cancel := patient()
	defer cancel()
	var out [2]bytes.Buffer
	done := make(chan error, 1)
	s := p.command(ctx, append([]string{"exec", first, "--"}, one...)...)
	s.Env = append(s.Env, env...)
	s.Stdout, s.Stderr = &out[0], &out[0]
	if err := s.Start(); err != nil {
		p.Fatal(err)
	}
	go func() { done <- s.Wait() }()
	for !listens(port) {
		select {
		case err := <-done:
			p.Fatalf("%s on %s ended before it listened: %v\n%s", strings.Join(one, " "), first, err, &out[0])
		case <-ctx.Done():
			cancel()
			<-done
			p.Fatalf("%s on %s does not listen:\n%s", strings.Join(one, " "), first, &out[0])
		case <-time.After(2 * time.Millisecond):
		}
	}
	c := p.command(ctx, append([]string{"exec", second, "--"}, other...)...)
	c.Env = append(c.Env, env...)
	c.Stdout, c.Stderr = &out[1], &out[1]
	err := c.Run()
	if err != nil {
		cancel() // the server may wait for ever
	}
	if serr := <-done; err != nil || serr != nil {
		p.Fatalf("%s on %s: %v\n%s\nand on %s: %v\n%s", strings.Join(other, " "), second, err, &out[1], first, serr,
			&out[0])
	}
	return out[0].String(), out[1].String()
}

// ucxResult is ucx_perftest's last line: iterations, then times.
var ucxResult = regexp.MustCompile(`(?m)^Final: +(\d+) +[0-9.]+ `)

// ucx runs ucx_perftest on h1 and h3 and returns how many iterations it did.
func (p *person) ucx(transports string, args ...string) (iters int) {
	p.Helper()
	port := freePort(p)
	argv := append([]string{"ucx_perftest", "-p", strconv.Itoa(port)}, args...)
	env := []string{"UCX_TLS=" + transports, "UCX_NET_DEVICES=softib0:1"}
	server, client := p.both("h1", "h3", port, env, argv, append(argv[:len(argv):len(argv)], "127.0.0.1"))
	m := ucxResult.FindStringSubmatch(client)
	if m == nil {
		p.Fatalf("no result:\n%s", client)
	}
	for _, out := range []string{server, client} {
		if strings.Contains(out, "ERROR") || strings.Contains(out, "WARN") {
			p.Errorf("%s complains:\n%s", strings.Join(argv, " "), out)
		}
	}
	iters, err := strconv.Atoi(m[1])
	if err != nil {
		p.Fatal(err)
	}
	return iters
}

// UCX finds the adapter, with its files in /sys and /dev and without, and its own tests run over both verbs transports:
// two-sided, one-sided, atomic, polling and asleep.
func TestUCX(t *testing.T) {
	t.Parallel()
	tool(t, "ucx_perftest")
	tool(t, "perfquery")
	p := newPerson(t, os.Getuid())
	p.up("fat-tree:radix=4,levels=2")

	for _, how := range [][]string{{"exec", "h3", "--"}, {"exec", "--plain", "h3", "--"}} {
		out := p.must(append(how, "ucx_info", "-d")...)
		wants(t, out, "Memory domain: softib0", "Transport: rc_verbs", "Transport: ud_verbs", "Device: softib0:1",
			"Connection manager: rdmacm")
		if strings.Contains(out, "Transport: dc") {
			t.Errorf("softib0 is no adapter with dynamic connections:\n%s", out)
		}
	}

	const iters = 500
	for _, transports := range []string{"rc_v,self", "ud_v,self"} {
		for _, c := range []struct {
			name string
			args []string
			size int
			// Which of the two sends: a ping-pong's both, a stream's h3; a get's data come from h1.
			h1, h3 bool
		}{
			{"short", []string{"-t", "tag_lat"}, 8, true, true},
			{"packet", []string{"-t", "tag_lat"}, 4096, true, true},
			{"large", []string{"-t", "tag_bw"}, 1 << 20, false, true},
			{"rendezvous by put", []string{"-t", "tag_sync_lat"}, 60000, true, true},
			{"stream", []string{"-t", "stream_bw"}, 20000, false, true},
			{"put", []string{"-t", "ucp_put_bw"}, 20000, false, true},
			{"get", []string{"-t", "ucp_get"}, 20000, true, false},
			{"add", []string{"-t", "ucp_fadd"}, 8, false, false},
			{"swap", []string{"-t", "ucp_cswap"}, 8, false, false},
			{"asleep", []string{"-t", "tag_lat", "-E", "sleep"}, 1000, true, true},
		} {
			p.sub(transports+"/"+c.name, func(p *person) {
				l := p.ledger("h1", "h2", "h3")
				n := iters
				if c.size >= 1<<20 || c.name == "get" {
					n = 100
				}
				got := p.ucx(transports, append(slices.Clone(c.args), "-s", strconv.Itoa(c.size), "-n", strconv.Itoa(n),
					"-w", "10")...)
				same(p, "iterations", got, n)
				var from1, from3 uint64
				if c.h1 {
					from1 = uint64(c.size * n)
				}
				if c.h3 {
					from3 = uint64(c.size * n)
				}
				l.atLeast("h1", from1, from3)
				l.atLeast("h3", from3, from1)
				l.idle("h2")
			})
		}
	}
}
