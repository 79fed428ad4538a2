package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"softib/internal/netpair"
)

// network measures unmodified programs by RoCEv2 between two machines, which are namespaces with a cable, and TCP on
// the same cable.
type network struct {
	*bench
	mu   sync.Mutex
	pair *netpair.Machines
	dir  string // softib's run directory
}

// start makes the machines, once; stop ends them.
func (n *network) start() (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pair != nil {
		return nil
	}
	if n.dir, err = os.MkdirTemp("", "softib-bench-"); err != nil {
		return err
	}
	n.pair, err = netpair.New()
	return err
}

func (n *network) stop() {
	if n.pair != nil {
		for machine := range netpair.Addresses {
			line := n.pair.Line(machine, n.softib, "roce", netpair.Device, "--stop")
			_, _ = n.output(context.Background(), n.env(), line[0], line[1:]...)
		}
		n.pair.Close()
	}
	os.RemoveAll(n.dir)
}

func (n *network) env() []string {
	return []string{"XDG_RUNTIME_DIR=" + n.dir, "UCX_TLS=tcp", "UCX_LOG_LEVEL=error"}
}

// both runs a server on one machine and a client on the other, and returns what the client printed.
func (n *network) both(ctx context.Context, port int, server, client []string) (string, error) {
	if err := n.start(); err != nil {
		return "", err
	}
	s, c := n.pair.Line(0, server...), n.pair.Line(1, client...)
	return n.serve(ctx, n.env(), s[0], func() bool { return n.pair.Listens(0, port) }, port, s[1:], c[1:])
}

// perftest is the numbers of a program's last row.
func (n *network) perftest(ctx context.Context, args ...string) ([]float64, error) {
	if _, err := program(args[0]); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	on := append([]string{n.softib, "exec", "--roce", netpair.Device, "--"}, args...)
	on = append(on, "-F", "-p", strconv.Itoa(port))
	out, err := n.both(ctx, port, on, append(slices.Clone(on), netpair.Addresses[0]))
	if err != nil {
		return nil, err
	}
	return lastRow(args[0], out)
}

// tcp is a figure of qperf's on the same cable.
func (n *network) tcp(test, size, name string, units map[string]float64) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		return n.qperf(ctx, n.both, netpair.Addresses[0], test, size, name, units)
	}
}

// stream is what one stream of iperf3 carries, in GB/s.
func (n *network) stream(ctx context.Context) (float64, error) {
	if _, err := program("iperf3"); err != nil {
		return 0, err
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	server, client := n.iperf(port, netpair.Addresses[0])
	out, err := n.both(ctx, port, server, client)
	if err != nil {
		return 0, err
	}
	return iperfRate(out)
}

// iperf is how iperf3 is called at both ends, for a server at an address.
func (b *bench) iperf(port int, at string) (server, client []string) {
	p, seconds := strconv.Itoa(port), "2"
	if b.smoke {
		seconds = "1"
	}
	return []string{"iperf3", "-s", "-1", "-p", p}, []string{"iperf3", "-c", at, "-p", p, "-t", seconds, "-J"}
}

// overFabric is what one stream of iperf3 carries between networks of two hosts, in GB/s.
func (p *programs) overFabric(mode, from, to string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		if _, err := program("iperf3"); err != nil {
			return 0, err
		}
		if err := p.start(ctx); err != nil {
			return 0, err
		}
		const port = 5201
		on := func(host string, line ...string) []string {
			return append([]string{"exec", "--net=" + mode, host, "--"}, line...)
		}
		server, client := p.iperf(port, to)
		listens := func() bool {
			_, err := p.command(ctx, on(to, "grep", "-q", fmt.Sprintf(":%04X 0", port), "/proc/net/tcp6")...)
			return err == nil
		}
		out, err := p.serve(ctx, p.env(), p.softib, listens, port, on(to, server...), on(from, client...))
		if err != nil {
			return 0, err
		}
		return iperfRate(out)
	}
}

// iperfRate is what iperf3 says that has arrived, in GB/s.
func iperfRate(out string) (float64, error) {
	var r struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.End.Received.Bits == 0 {
		return 0, fmt.Errorf("iperf3 printed no rate: %w\n%s", err, tail([]byte(out)))
	}
	return r.End.Received.Bits / 8e9, nil
}

// machines is a figure of the benchmark of connections between machines: by what, and its unit.
func (b *bench) machines(what, unit string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		out, err := b.goBench(ctx, "./driver/peering", "Machines/"+what+"/mtu=1500", 1)
		if err != nil {
			return 0, err
		}
		return metric(out, unit)
	}
}

// ucxRate is UCX's put_bw for 8 bytes over TCP, in million messages a second.
func (n *network) ucxRate(ctx context.Context) (float64, error) {
	f, err := n.ucxBy(ctx, n.both, netpair.Addresses[0], "ucp_put_bw", 8, 300000)
	return f[7] / 1e6, err
}
