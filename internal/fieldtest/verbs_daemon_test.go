package fieldtest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start starts a program on a host with softib exec.
func (p *person) start(host, name string, args ...string) *program {
	p.Helper()
	ctx, cancel := patient()
	p.Cleanup(cancel)
	w := &world{TB: p.TB}
	return w.starts(fmt.Sprintf("%s %s on %s", name, strings.Join(args, " "), host),
		p.command(ctx, append([]string{"exec", host, "--", name}, args...)...))
}

// pair starts a program on two hosts.
func (p *person) pair(first, second, name string, args ...string) (server, client *program) {
	p.Helper()
	tool(p, name)
	port := freePort(p)
	args = append(args[:len(args):len(args)], "-p", dec(port))
	server = p.start(first, name, args...)
	server.until("listened", func() bool { return listens(port) })
	return server, p.start(second, name, append(args, "127.0.0.1")...)
}

// The fabric's process is killed: programs get a fatal event and errors and come to an end, and another fabric takes
// new ones at once.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	p := newPerson(t, os.Getuid())
	daemon := p.up("star:4")
	watch := p.start("h1", "stdbuf", "-oL", tool(t, "ibv_asyncwatch"))
	watch.await("async event FD")
	// Those that poll, those that sleep, those that wait for their peer. None ends before the fabric does.
	type pair struct{ server, client *program }
	var pairs []pair
	for _, args := range [][]string{
		{"ibv_rc_pingpong", "-n", "100000000"}, {"ibv_rc_pingpong", "-n", "100000000", "-e"},
		{"ib_write_bw", "-F", "-D", "100000"}, {"ib_send_bw", "-F", "-D", "100000", "-b"},
		{"ib_read_lat", "-F", "-D", "100000"},
	} {
		s, c := p.pair("h2", "h3", args[0], args[1:]...)
		pairs = append(pairs, pair{s, c})
	}
	// A server whose client never came would wait for it, fabric or not.
	talks := regexp.MustCompile(`"rx_packets": *[1-9]`)
	p.eventually("packets of all programs", func() bool {
		return len(talks.FindAllString(p.must("status", "--json"), -1)) == 2*len(pairs)
	})
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	watch.await("IBV_EVENT_DEVICE_FATAL")
	for _, x := range pairs {
		// The server of ib_write_bw and of ib_read_lat does nothing but wait for its client.
		x.client.fails()
		x.server.fails()
	}
	t.Logf("all programs have ended %v after the fabric", time.Since(killed).Round(time.Millisecond))
	watch.kill()
	_, errs, status := p.softib("exec", "h1", "--", "ibv_devinfo")
	if status == 0 {
		t.Error("ibv_devinfo works without a fabric")
	}
	wants(t, errs, "softib up")

	p.up("star:4")
	s, c := p.pair("h2", "h3", "ib_write_bw", "-F", "-n", "20")
	c.finish()
	s.finish()
}
