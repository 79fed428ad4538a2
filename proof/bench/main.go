package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	var b bench
	flag.StringVar(&b.softib, "softib", "bin/softib", "the softib to measure")
	flag.StringVar(&b.goTool, "go", "go", "the go to run the simulator's benchmark with")
	flag.IntVar(&b.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&b.patience, "patience", 30*time.Minute, "how long to wait for any one program")
	flag.BoolVar(&b.smoke, "smoke", false,
		"run everything once, tiny, to see that it runs: no speed is judged, and a missing peer is an error")
	m := management{bench: &b}
	flag.StringVar(&m.fabric, "fabric", recordedFabric, "the `TOPOLOGY` that managers are compared on")
	flag.StringVar(&m.huge, "huge", "fat-tree:radix=64,levels=3,pods=44", "the largest `TOPOLOGY` to bring up")
	flag.StringVar(&m.middle, "middle", "fat-tree:radix=16,levels=3",
		"the `TOPOLOGY` that routing tables are compared on")
	flag.BoolVar(&m.long, "long", false,
		"measure also what takes OpenSM many minutes, instead of printing the figures on record")
	only := flag.String("only", "",
		"measure only what has this in its `NAME`; traffic, management, or management/PART ("+
			strings.Join(partNames(), ", ")+") for that table")
	child := flag.String("measure", "", "measure one thing in this process, for another bench: `WHAT`")
	engine := flag.String("engine", "", "routing `ENGINE` for -measure")
	flag.Parse()
	if b.smoke {
		b.rounds, m.fabric, m.huge, m.middle, m.long = 1, smokeFabric, smokeFabric, smokeFabric, true
		b.patience = min(b.patience, 2*time.Minute)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := func() error {
		if *child != "" {
			return b.measureHere(ctx, *child, m.fabric, *engine)
		}
		part, managing := strings.CutPrefix(*only, "management")
		var err error
		if !managing {
			err = b.run(ctx, strings.TrimPrefix(*only, "traffic"))
		}
		if managing || *only == "" {
			fmt.Println()
			err = errors.Join(err, m.run(ctx, strings.TrimPrefix(part, "/")))
		}
		return err
	}(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// What a smoke run takes: a fabric of 16 hosts, and so many messages of each kind.
const (
	smokeFabric = "fat-tree:radix=4,levels=3"
	smokeTimes  = 500
)

// errAbsent is a peer that is not installed.
var errAbsent = errors.New("not installed")

// absent reports whether an error is a peer to be left out: it is not installed, and not everything has to run.
func (b *bench) absent(err error) bool { return errors.Is(err, errAbsent) && !b.smoke }

// figure is something to measure.
type figure struct {
	name    string
	unit    string
	measure func(context.Context) (float64, error)
	worst   bool // its greatest value counts, not the median
	once    bool // it takes long: the first round is enough

	values []float64
	err    error
}

// value is the one that counts.
func (f *figure) value() float64 {
	slices.Sort(f.values)
	if f.worst {
		return f.values[len(f.values)-1]
	}
	return f.values[len(f.values)/2]
}

func (f *figure) text() string {
	if f == nil {
		return ""
	}
	switch {
	case errors.Is(f.err, errAbsent):
		return errAbsent.Error()
	case f.err != nil:
		return "failed, see below"
	}
	return fmt.Sprintf("%.4g %s", f.value(), f.unit)
}

// comparison is a line of the table.
type comparison struct {
	ours *figure
	peer *figure // nil: the target is a figure of its own
	// atMost and atLeast bound the ratio to the peer, or ours if there is none.
	atMost, atLeast float64
}

// bench holds what is measured with.
type bench struct {
	softib string
	goTool string
	rounds int
	// patience is how long a program may take; smoke is a run that proves that everything runs, and measures nothing.
	patience time.Duration
	smoke    bool

	// clusterOutput is of the benchmark of machines that share a fabric.
	clusterOutput string
	simOutput     string // of the last run of the simulator's benchmark
}

// times is how often something is done that counts n times in a measurement.
func (b *bench) times(n int) int {
	if b.smoke {
		return min(n, smokeTimes)
	}
	return n
}

func (b *bench) run(ctx context.Context, only string) error {
	perf := func(name, unit, test string, size int, pick func(row) float64) *figure {
		return &figure{name: name, unit: unit, measure: func(ctx context.Context) (float64, error) {
			r, err := b.perf(ctx, test, size)
			if err != nil {
				return 0, err
			}
			return pick(r), nil
		}}
	}
	sendLat := perf("send_lat 8 bytes", "µs", "send_lat", 8, func(r row) float64 { return r.Latency.Typical })
	writeLat := perf("write_lat 8 bytes", "µs", "write_lat", 8, func(r row) float64 { return r.Latency.Typical })
	write64 := perf("write_bw 64 KiB", "GB/s", "write_bw", 65536,
		func(r row) float64 { return r.Bandwidth.Average / 1e9 })
	write8 := perf("write_bw 8 bytes", "Mmsg/s", "write_bw", 8,
		func(r row) float64 { return r.Bandwidth.MsgRate / 1e6 })
	send8 := perf("send_bw 8 bytes", "Mmsg/s", "send_bw", 8, func(r row) float64 { return r.Bandwidth.MsgRate / 1e6 })
	tcp := &figure{name: "TCP loopback", unit: "µs", measure: tcpLatency}
	qperf := &figure{name: "TCP loopback (qperf)", unit: "µs", measure: b.qperfLatency}
	ucxLat := &figure{name: "UCX shared memory", unit: "µs", measure: b.ucxLatency}
	ucxRate := &figure{name: "UCX shared memory", unit: "Mmsg/s", measure: b.ucxMessageRate}
	memcpy := &figure{name: "memcpy 64 KiB", unit: "GB/s", measure: memcpyBandwidth}
	sim := &figure{name: "sim, 1024 hosts", unit: "Mhops/s", measure: b.simRate}
	simAllocs := &figure{name: "sim, 1024 hosts", unit: "allocs/hop", measure: b.simAllocs}
	simMemory := &figure{name: "sim, 1024 hosts", unit: "MiB", measure: b.simMemory}
	simAdapters := &figure{name: "sim, 1024 hosts, complete adapters", unit: "Mhops/s", measure: b.simCores(1)}
	simTwo := &figure{name: "sim, 1024 hosts, complete adapters, two cores", unit: "Mhops/s", measure: b.simCores(2)}
	flows := &figure{name: "sim by flows, all-to-all of 1024 hosts", unit: "kmsg/s", measure: b.flowRate}
	flowsMost := &figure{name: "sim by flows, a shift of 45056 hosts", unit: "s", measure: b.seconds(flowsShift),
		once: true}
	flowsGPUs := &figure{name: "sim by flows, all-reduce of 16384 GPUs", unit: "s", measure: b.seconds(flowsReduce),
		once: true}
	join := &figure{name: "cluster, 300 machines join", unit: "s", measure: b.clusterJoin, once: true}
	joinBytes := &figure{name: "cluster, 300 machines join", unit: "MB", measure: b.clusterFigure("join-MB"),
		once: true}
	seen := &figure{name: "cluster, a change is seen by 300 machines", unit: "s",
		measure: b.clusterFigure("change-s"), once: true}
	lost := &figure{name: "cluster, a dead machine is missed by 299", unit: "s", measure: b.clusterFigure("lost-s"),
		once: true}
	anew := &figure{name: "cluster, a new master of 298 machines", unit: "s", measure: b.clusterFigure("master-s"),
		once: true}
	liveAllocs := &figure{name: "live, 8-byte sends", unit: "allocs/msg", measure: b.liveAllocs}

	progs := &programs{bench: b}
	defer progs.stop()
	ibSendLat := &figure{name: "ib_send_lat 8 bytes", unit: "µs", measure: progs.latency("ib_send_lat", 100000)}
	ibWriteLat := &figure{name: "ib_write_lat 8 bytes", unit: "µs", measure: progs.latency("ib_write_lat", 100000)}
	ibWrite8 := &figure{name: "ib_write_bw 8 bytes", unit: "Mmsg/s",
		measure: progs.bandwidth("ib_write_bw", 8, 1000000, true)}
	ibWrite64K := &figure{name: "ib_write_bw 64 KiB", unit: "GB/s",
		measure: progs.bandwidth("ib_write_bw", 65536, 50000, false)}
	ibWrite1M := &figure{name: "ib_write_bw 1 MiB", unit: "GB/s",
		measure: progs.bandwidth("ib_write_bw", 1<<20, 4000, false)}
	ibSend8 := &figure{name: "ib_send_bw 8 bytes", unit: "Mmsg/s",
		measure: progs.bandwidth("ib_send_bw", 8, 1000000, true)}
	ibRead64K := &figure{name: "ib_read_bw 64 KiB", unit: "GB/s",
		measure: progs.bandwidth("ib_read_bw", 65536, 50000, false)}
	ibRead1M := &figure{name: "ib_read_bw 1 MiB", unit: "GB/s",
		measure: progs.bandwidth("ib_read_bw", 1<<20, 4000, false)}
	pingpong := &figure{name: "ibv_rc_pingpong -e 8 bytes", unit: "µs", measure: progs.pingpong}
	rcLat := &figure{name: "qperf rc_lat 8 bytes", unit: "µs", measure: progs.rcLatency}
	sendLat4 := &figure{name: "ib_send_lat 8 bytes, 4 at once", unit: "µs",
		measure: atOnce(4, progs.latency("ib_send_lat", 20000))}
	tcp4 := &figure{name: "TCP loopback, 4 at once", unit: "µs", measure: atOnce(4, tcpLatency)}
	mpi := func(way []string, name, what string, size, times int) *figure {
		return &figure{name: name, unit: "µs", measure: progs.collective(way, what, size, times)}
	}
	reduce := mpi(mpiOurs, "Open MPI: all-reduce 8 bytes, 8 ranks", "allreduce", 8, 2000)
	reduceMemory := mpi(mpiMemory, "its shared memory", "allreduce", 8, 2000)
	reduceTCP := mpi(mpiTCP, "its TCP", "allreduce", 8, 2000)
	toAll := mpi(mpiOurs, "Open MPI: all-to-all 4 KiB, 8 ranks", "alltoall", 4096, 500)
	toAllMemory := mpi(mpiMemory, "its shared memory", "alltoall", 4096, 500)
	toAllTCP := mpi(mpiTCP, "its TCP", "alltoall", 4096, 500)
	start := func(world int) *figure {
		return &figure{name: fmt.Sprintf("Open MPI: longest start, %d ranks beside 3 loads", world), unit: "s",
			measure: busily(progs.starts(world)), worst: true}
	}
	start8, start16, start24 := start(8), start(16), start(24)
	throughSwitches := &figure{name: "switched: ib_send_lat 8 bytes", unit: "µs",
		measure: progs.switched(progs.latency("ib_send_lat", 20000))}
	besideLoads := &figure{name: "switched: ib_send_lat 8 bytes beside 3 loads", unit: "µs",
		measure: busily(progs.switched(progs.latency("ib_send_lat", 5000)))}
	packets := &figure{name: "switched: ib_write_bw 4 KiB", unit: "Mpkt/s",
		measure: progs.switched(progs.bandwidth("ib_write_bw", 4096, 200000, true))}
	attach := &figure{name: "ib: attach and first queue pair", unit: "ms", measure: progs.attach}
	idle := &figure{name: "ib: CPU of an idle program", unit: "%", measure: progs.idle}
	simGrid := &figure{name: "SimGrid, 64 of 1023 steps", unit: "kmsg/s", measure: progs.simGrid}
	memory := &figure{name: "ib: daemon's memory for a process", unit: "MB", measure: progs.memory}
	qpMemory := &figure{name: "ib: memory of a queue pair", unit: "KiB",
		measure: progs.many("qps", 10000, "bytes", 1<<10)}
	qps := &figure{name: "ib: 10,000 queue pairs connected", unit: "ms",
		measure: progs.many("qps", 10000, "connected", 1e3)}
	regions := &figure{name: "ib: 100,000 regions of 4 KiB", unit: "ms",
		measure: progs.many("regions", 100000, "registered", 1e3)}
	region := &figure{name: "ib: one region of 16 GiB", unit: "ms",
		measure: progs.many("region", 16<<30, "registered", 1e3)}
	tcpBW := &figure{name: "TCP loopback (qperf)", unit: "GB/s", measure: b.qperfBandwidth}
	ucx64K := &figure{name: "UCX shared memory", unit: "GB/s", measure: b.ucxBandwidth(65536, 50000)}
	ucx1M := &figure{name: "UCX shared memory", unit: "GB/s", measure: b.ucxBandwidth(1<<20, 4000)}

	net := &network{bench: b}
	defer net.stop()
	roceLat := &figure{name: "RoCEv2: ib_send_lat 8 bytes", unit: "µs",
		measure: b.latencyBy(net.perftest, "ib_send_lat", 30000)}
	roce8 := &figure{name: "RoCEv2: ib_write_bw 8 bytes", unit: "Mmsg/s",
		measure: b.bandwidthBy(net.perftest, "ib_write_bw", 8, 300000, true)}
	roce64K := &figure{name: "RoCEv2: ib_write_bw 64 KiB", unit: "GB/s",
		measure: b.bandwidthBy(net.perftest, "ib_write_bw", 65536, 15000, false)}
	cableLat := &figure{name: "TCP over the same veth (qperf)", unit: "µs",
		measure: net.tcp("tcp_lat", "8", "latency", latencyUnits)}
	cableBW := &figure{name: "TCP over the same veth (iperf3)", unit: "GB/s", measure: net.stream}
	span := &spanning{network: net}
	defer span.stop()
	spanBW := &figure{name: "machines: ib_write_bw 64 KiB", unit: "GB/s",
		measure: b.bandwidthBy(span.perftest, "ib_write_bw", 65536, 15000, false)}
	spanLat := &figure{name: "machines: ib_send_lat 8 bytes", unit: "µs",
		measure: b.latencyBy(span.perftest, "ib_send_lat", 30000)}
	guarded := &figure{name: "wireguard-go over the same veth (iperf3)", unit: "GB/s", measure: span.guarded}
	tunnelBW := &figure{name: "machines: 4 KiB messages", unit: "GB/s", measure: b.machines("peering", "GB/s")}
	tunnelLat := &figure{name: "machines: 64 bytes", unit: "µs", measure: b.machines("peering", "us-ping")}
	tlsBW := &figure{name: "Go's TLS over such a veth", unit: "GB/s", measure: b.machines("tls", "GB/s")}
	tlsLat := &figure{name: "Go's TLS over such a veth", unit: "µs", measure: b.machines("tls", "us-ping")}
	ipConnected := &figure{name: "IPoIB connected: TCP (iperf3)", unit: "GB/s",
		measure: progs.overFabric("connected", "h3", "h4")}
	ipDatagram := &figure{name: "IPoIB datagram: TCP (iperf3)", unit: "GB/s",
		measure: progs.overFabric("datagram", "h5", "h6")}
	cable8 := &figure{name: "UCX over TCP over the same veth", unit: "Mmsg/s", measure: net.ucxRate}

	table := []comparison{
		{ours: ibSendLat, peer: qperf, atMost: 0.1},
		{ours: ibSendLat, peer: ucxLat, atMost: 2},
		{ours: ibWriteLat, peer: qperf, atMost: 0.1},
		{ours: ibWriteLat, peer: ucxLat, atMost: 2},
		{ours: ibWrite8, atLeast: 4},
		{ours: ibWrite8, peer: ucxRate, atLeast: 0.6},
		{ours: ibSend8, atLeast: 4},
		{ours: ibSend8, peer: ucxRate, atLeast: 0.6},
		{ours: pingpong, peer: qperf, atMost: 2},
		{ours: rcLat, peer: qperf, atMost: 2},
		{ours: ibWrite64K, peer: tcpBW, atLeast: 2},
		{ours: ibWrite64K, peer: ucx64K, atLeast: 1},
		{ours: ibWrite64K, peer: memcpy},
		{ours: ibWrite1M, peer: tcpBW, atLeast: 2},
		{ours: ibWrite1M, peer: ucx1M, atLeast: 1},
		{ours: ibRead64K, peer: ucx64K, atLeast: 1},
		{ours: ibRead1M, peer: ucx1M, atLeast: 1},
		{ours: sendLat4, peer: tcp4, atMost: 1},
		{ours: start8, atMost: 5},
		{ours: start16, atMost: 5},
		{ours: start24, atMost: 5},
		{ours: reduce, peer: reduceMemory, atMost: 3},
		{ours: reduce, peer: reduceTCP, atMost: 1},
		{ours: toAll, peer: toAllMemory, atMost: 3},
		{ours: toAll, peer: toAllTCP, atMost: 1},
		{ours: throughSwitches, atMost: 8},
		{ours: besideLoads, atMost: 100},
		{ours: packets, atLeast: 0.6},
		{ours: roceLat, peer: cableLat, atMost: 1.5},
		{ours: roce64K, peer: cableBW, atLeast: 0.5},
		{ours: roce8, peer: cable8, atLeast: 3},
		{ours: ipConnected, peer: cableBW, atLeast: 0.5},
		{ours: ipConnected, peer: ipDatagram, atLeast: 1},
		{ours: spanBW, peer: guarded, atLeast: 1},
		{ours: spanLat, peer: cableLat, atMost: 2},
		{ours: tunnelBW, peer: tlsBW, atLeast: 0.6},
		{ours: tunnelLat, peer: tlsLat, atMost: 2},
		{ours: attach, atMost: 20},
		{ours: idle, atMost: 0.1},
		{ours: memory, atMost: 1},
		{ours: qpMemory, atMost: 4},
		{ours: qps, atMost: 1000},
		{ours: regions, atMost: 1000},
		{ours: region, atMost: 1},
		{ours: sendLat, peer: tcp, atMost: 0.1},
		{ours: sendLat, peer: qperf, atMost: 0.1},
		{ours: sendLat, peer: ucxLat, atMost: 4},
		{ours: writeLat, peer: ucxLat},
		{ours: write64, peer: memcpy, atLeast: 0.5},
		{ours: write8, atLeast: 3},
		{ours: send8, peer: ucxRate},
		{ours: sim, atLeast: 2},
		{ours: simAdapters, atLeast: 2},
		{ours: simTwo, peer: simAdapters, atLeast: 1.6},
		{ours: simMemory, atMost: 300},
		{ours: simAllocs, atMost: 0.001},
		{ours: flows, atLeast: 100},
		{ours: flows, peer: simGrid},
		{ours: flowsMost, atMost: 20},
		{ours: flowsGPUs, atMost: 60},
		{ours: join, atMost: 60},
		{ours: joinBytes, atMost: 40},
		{ours: seen, atMost: 2},
		{ours: lost, atMost: 8},
		{ours: anew, atMost: 2},
		{ours: liveAllocs, atMost: 0.001},
	}
	table = slices.DeleteFunc(table, func(c comparison) bool {
		return only != "" && !strings.Contains(c.ours.name, only)
	})
	var figures []*figure
	for _, c := range table {
		for _, f := range []*figure{c.ours, c.peer} {
			if f != nil && !slices.Contains(figures, f) {
				figures = append(figures, f)
			}
		}
	}
	for round := range b.rounds {
		for _, f := range figures {
			if f.err != nil || f.once && round > 0 {
				continue
			}
			progress("round %d of %d: %s", round+1, b.rounds, f.name)
			v, err := f.measure(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.values, f.err = append(f.values, v), err
		}
	}
	progress("")
	return b.print(table)
}

// progress shows on a terminal what is being measured.
func progress(format string, v ...any) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, v...)
	}
}

func (b *bench) print(table []comparison) error {
	fmt.Printf("%d rounds in turn, medians; %d cores, %s\n\n", b.rounds, runtime.NumCPU(), runtime.Version())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tours\tpeer\t\tratio\ttarget\tmet")
	for _, c := range table {
		peer, ratio := "", ""
		value, known := 0.0, c.ours.err == nil
		if known {
			value = c.ours.value()
		}
		if c.peer != nil {
			peer = c.peer.name
			if known = known && c.peer.err == nil; known {
				value /= c.peer.value()
				ratio = fmt.Sprintf("%.3g", value)
			}
		}
		target, met := "", ""
		switch {
		case c.atMost > 0:
			target = fmt.Sprintf("at most %g", c.atMost)
			met = yesNo(value <= c.atMost)
		case c.atLeast > 0:
			target = fmt.Sprintf("at least %g", c.atLeast)
			met = yesNo(value >= c.atLeast)
		}
		if !known || b.smoke {
			met = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ours.name, c.ours.text(), peer, c.peer.text(), ratio, target,
			met)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var failures []error
	for _, c := range table {
		for _, f := range []*figure{c.ours, c.peer} {
			if f != nil && f.err != nil && !b.absent(f.err) &&
				!slices.ContainsFunc(failures, func(e error) bool { return errors.Is(e, f.err) }) {
				failures = append(failures, fmt.Errorf("%s: %w", f.name, f.err))
			}
		}
	}
	return errors.Join(failures...)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
