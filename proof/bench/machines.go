package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"softib/internal/netpair"
	"softib/operate/status"
)

// spanning measures unmodified programs on hosts of a fabric whose two machines are namespaces with a cable, and what
// people put between machines otherwise: WireGuard in user space, over the same cable.
type spanning struct {
	*network
	mu       sync.Mutex
	up, wire bool
	running  []*exec.Cmd
	to       string // the last host; the first machine has the first, the second one the last
}

// Machines of the fabric, and where wireguard-go's ends are.
const (
	spanningNames = "ab"
	etcdPort      = 2379
	wireguard     = "golang.zx2c4.com/wireguard"
	wireName      = "wg0"
	wirePort      = 51820
	wireGuarded   = "203.0.113.1"
)

// keep starts a program of a machine that runs until stop.
func (s *spanning) keep(machine int, env []string, argv ...string) error {
	line := s.pair.Line(machine, argv...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), env...)
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%s.%d.log", filepath.Base(argv[0]), len(s.running))))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running = append(s.running, cmd)
	return nil
}

// stop ends what runs, the newest first: the machines' parts need etcd to say goodbye.
func (s *spanning) stop() {
	for _, cmd := range slices.Backward(s.running) {
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(s.patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	}
}

// run is a machine's run directory.
func (s *spanning) run(machine int) string { return filepath.Join(s.dir, spanningNames[machine:][:1]) }

// fabric brings both machines' parts up, once.
func (s *spanning) fabric(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		return nil
	}
	if _, err := program("etcd"); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	at := "http://" + netpair.Addresses[0] + ":"
	if err := s.keep(0, nil, "etcd", "--data-dir", filepath.Join(s.dir, "etcd"),
		"--listen-client-urls", at+strconv.Itoa(etcdPort), "--advertise-client-urls", at+strconv.Itoa(etcdPort),
		"--listen-peer-urls", at+"2380", "--initial-advertise-peer-urls", at+"2380",
		"--initial-cluster", "default="+at+"2380"); err != nil {
		return err
	}
	if err := s.until(ctx, "etcd to listen", func() error {
		if !s.pair.Listens(0, etcdPort) {
			return errors.New("it does not listen")
		}
		return nil
	}); err != nil {
		return err
	}
	certs := filepath.Join(s.dir, "certs")
	if _, err := s.output(ctx, nil, s.softib, "ca", "init", certs); err != nil {
		return err
	}
	for i, name := range spanningNames {
		if _, err := s.output(ctx, nil, s.softib, "ca", "issue", certs, string(name)); err != nil {
			return err
		}
		if err := os.Mkdir(s.run(i), 0o700); err != nil {
			return err
		}
		if err := s.keep(i, s.on(i), s.softib, "up", "--join",
			fmt.Sprintf("etcd://%s:%d/bench", netpair.Addresses[0], etcdPort), "--machine", string(name),
			"--machines", strings.Join(strings.Split(spanningNames, ""), ","), "--certs", certs, "--state", "none",
			"--http", "off", "fat-tree:radix=4,levels=2"); err != nil {
			return err
		}
	}
	for i := range spanningNames {
		if err := s.until(ctx, "the fabric of two machines to be up", func() error {
			line := s.pair.Line(i, s.softib, "status", "--json")
			out, err := s.output(ctx, s.on(i), line[0], line[1:]...)
			if err != nil {
				return err
			}
			var st status.Status
			if err := json.Unmarshal(out, &st); err != nil {
				return err
			}
			if st.Hosts == 0 || st.HostsActive < st.Hosts {
				return fmt.Errorf("%d of %d hosts are active", st.HostsActive, st.Hosts)
			}
			s.to = fmt.Sprint("h", st.Hosts)
			return nil
		}); err != nil {
			return err
		}
	}
	s.up = true
	return nil
}

// on is the environment of commands of a machine.
func (s *spanning) on(machine int) []string { return []string{"XDG_RUNTIME_DIR=" + s.run(machine)} }

// until asks again and again.
func (s *spanning) until(ctx context.Context, what string, is func() error) error {
	ctx, cancel := s.patient(ctx, what)
	defer cancel()
	for {
		err := is()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// perftest runs a program on a host of either machine, and returns the numbers of the client's last row.
func (s *spanning) perftest(ctx context.Context, args ...string) ([]float64, error) {
	if _, err := program(args[0]); err != nil {
		return nil, err
	}
	if err := s.fabric(ctx); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	side := func(machine int, host string, more ...string) []string {
		line := append(append([]string{"env"}, s.on(machine)...), s.softib, "exec", host, "--")
		line = append(append(line, args...), "-F", "-p", strconv.Itoa(port))
		return append(line, more...)
	}
	out, err := s.both(ctx, port, side(0, "h1"), side(1, s.to, netpair.Addresses[0]))
	if err != nil {
		return nil, err
	}
	return lastRow(args[0], out)
}

// guarded is what one stream of iperf3 carries through wireguard-go over the same cable, in GB/s.
func (s *spanning) guarded(ctx context.Context) (float64, error) {
	if _, err := program("iperf3"); err != nil {
		return 0, err
	}
	if err := s.guard(ctx); err != nil {
		return 0, err
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	server, client := s.iperf(port, wireGuarded)
	out, err := s.both(ctx, port, server, client)
	if err != nil {
		return 0, err
	}
	return iperfRate(out)
}

// guard builds wireguard-go from its module and joins the machines by it, once.
func (s *spanning) guard(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire {
		return nil
	}
	if err := s.start(); err != nil {
		return err
	}
	binary := filepath.Join(s.dir, "wireguard-go")
	if _, err := s.output(ctx, nil, s.goTool, "build", "-modfile=scripts/tools.mod", "-o", binary,
		wireguard); err != nil {
		return err
	}
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	for i := range keys {
		// It is told what to do at a socket in /run, which therefore is one of its own.
		if err := s.keep(i, []string{"LOG_LEVEL=error"}, "unshare", "-m", "sh", "-ec",
			`mount -t tmpfs none "$(readlink -f /var/run)"; exec "$@"`, "sh", binary, "-f", wireName); err != nil {
			return err
		}
		pid := s.running[len(s.running)-1].Process.Pid
		if err := s.until(ctx, "wireguard-go to take its configuration", func() error {
			return configure(fmt.Sprintf("/proc/%d/root/run/wireguard/%s.sock", pid, wireName),
				"set=1\nprivate_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s:%d\nallowed_ip=203.0.113.0/24\n\n",
				keys[i].Bytes(), wirePort, keys[1-i].PublicKey().Bytes(), netpair.Addresses[1-i], wirePort)
		}); err != nil {
			return err
		}
		for _, words := range []string{
			fmt.Sprintf("ip addr add 203.0.113.%d/24 dev %s", i+1, wireName), "ip link set " + wireName + " up"} {
			line := s.pair.Line(i, strings.Fields(words)...)
			if _, err := s.output(ctx, nil, line[0], line[1:]...); err != nil {
				return err
			}
		}
	}
	s.wire = true
	return nil
}

// configure says something to wireguard-go, which answers with an errno.
func configure(socket, format string, v ...any) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, format, v...); err != nil {
		return err
	}
	const fine = "errno=0\n\n"
	answer := make([]byte, len(fine))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != fine {
		return fmt.Errorf("it answered %q (%w)", answer, err)
	}
	return nil
}
