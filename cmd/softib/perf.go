package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
	attached "softib/verbs/attach/server"
)

func newPerf() *cobra.Command {
	var o perfOptions
	cmd := &cobra.Command{
		Use:   "perf TEST [TOPOLOGY]",
		Short: "Measure latency or bandwidth between two hosts",
		Long: `Runs a twin of perftest's tools over verbs, between two hosts of a fabric:

  send_lat, write_lat           half of a round trip, in microseconds
  read_lat, atomic_lat          one whole operation, in microseconds
  send_bw, write_bw, read_bw    MB/sec (of 2^20 bytes) and million messages a second
  all                           all of them in turn

It uses the fabric that is running under --name. Without one, or when a TOPOLOGY is
given, it uses a fabric of its own that ends with the test.

Each side is a process of its own on its host, as a program under softib exec is. Both
busy-poll, so the figures want two idle cores.

` + topologyHelp(),
		Example: `  softib perf send_lat                      # 2 bytes between h1 and h2
  softib perf write_bw -s 65536
  softib perf read_bw -a --hosts h1,h32     # 2 bytes to 8 MiB, across the tree
  softib perf all --json > figures.json
  softib perf send_bw -q 4 --tx-depth 64 star:2`,
		Args:      arguments(1, 2, "a TEST and at most one TOPOLOGY"),
		ValidArgs: append(perf.Names(), "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tests, err := o.tests(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			o.topology = ""
			if len(args) == 2 {
				o.topology = args[1]
			}
			return o.run(cmd, tests)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.size, "size", "s", 0, "message size in `BYTES` (2 for latency, 65536 for bandwidth)")
	f.BoolVarP(&o.all, "all", "a", false, "all sizes from 2 bytes to 8 MiB")
	f.IntVarP(&o.iters, "iters", "n", 0, "messages for each size and queue pair (chosen by size)")
	f.StringSliceVar(&o.hosts, "hosts", nil, "the two hosts, `A,B` (the first two)")
	f.IntVarP(&o.qps, "qps", "q", 0, "queue pairs of a bandwidth test (1)")
	f.IntVar(&o.depth, "tx-depth", 0, "requests in flight of a bandwidth test (128)")
	f.IntVarP(&o.list, "post-list", "l", 0, "requests of a bandwidth test posted in one call (1)")
	f.IntVarP(&o.mtu, "mtu", "m", 0, "path MTU in `BYTES`: 256 to 4096 (the port's)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

type perfOptions struct {
	size, iters, qps, depth, list, mtu int
	all, json                          bool
	hosts                              []string
	name, topology                     string
}

// tests are those that a command line asks for.
func (o *perfOptions) tests(name string) ([]perf.Config, error) {
	var picked []perf.Test
	if name == "all" {
		for t := range perf.NumTest {
			picked = append(picked, t)
		}
	} else {
		t, err := perf.ParseTest(name)
		if err != nil {
			return nil, err
		}
		picked = append(picked, t)
	}
	if o.all && o.size != 0 {
		return nil, fmt.Errorf("-a and -s %d exclude each other", o.size)
	}
	if o.size < 0 {
		return nil, fmt.Errorf("-s is %d: want 1 to %d bytes", o.size, perf.MaxSize)
	}
	var tests []perf.Config
	for _, t := range picked {
		c := perf.Config{Test: t, Iters: o.iters, TxDepth: o.depth, PostList: o.list}
		if !t.IsLatency() || name != "all" {
			c.QPs = o.qps
		}
		switch {
		case t == perf.AtomicLat && (o.all || name == "all"):
			// There is one size.
		case o.all:
			c.Sizes = perf.AllSizes()
		case o.size != 0:
			c.Sizes = []int{o.size}
		}
		if o.mtu != 0 {
			m, ok := ib.MTUFromBytes(o.mtu)
			if !ok {
				return nil, fmt.Errorf("--mtu is %d: want 256, 512, 1024, 2048 or 4096", o.mtu)
			}
			c.MTU = m
		}
		if err := c.Check(); err != nil {
			return nil, err
		}
		tests = append(tests, c)
	}
	return tests, nil
}

// run measures in the running fabric, or in one of its own.
func (o *perfOptions) run(cmd *cobra.Command, tests []perf.Config) error {
	p, err := newPlace(o.name)
	if err != nil {
		return err
	}
	t := &sides{view: &perfView{w: cmd.OutOrStdout(), json: o.json}, stderr: cmd.ErrOrStderr(), socket: p.verbs()}
	if o.topology == "" && p.isRunning() {
		return p.borrow(cmd.Context(), o.hosts, func(ctx context.Context, pair *pair) error {
			t.pair = *pair
			return t.measure(ctx, tests)
		})
	}
	if o.name != defaultName && o.topology == "" {
		return p.notRunning()
	}
	topology := o.topology
	if topology == "" {
		topology = topo.DefaultSpec
	}
	g, err := loadTopology(newTerminal(cmd.ErrOrStderr()), topology)
	if err != nil {
		return err
	}
	if _, err := checkTopology(topology, g); err != nil {
		return err
	}
	if err := onePlane(topology, g); err != nil {
		return err
	}
	f, err := newFabric(cmd.Context(), "its own", topology, g, &sm.Config{Window: 1024}, nil, io.Discard,
		toTerminal(newTerminal(cmd.ErrOrStderr())))
	if err != nil {
		return err
	}
	defer f.Close()
	pair, err := f.pair(o.hosts)
	if err != nil {
		return err
	}
	t.pair = *pair
	socket, end, err := f.admit()
	if err != nil {
		return err
	}
	defer end()
	t.socket = socket
	return t.measure(cmd.Context(), tests)
}

// admit lets processes that know the socket attach to a fabric which has no name, until end is called.
func (f *fabric) admit() (socket string, end func(), err error) {
	p, err := newPlace(fmt.Sprintf("perf-%d", os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	l, err := attached.Listen(p.verbs())
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = attached.Serve(ctx, l, f.Live(), version, nil) })
	return p.verbs(), func() {
		cancel()
		wg.Wait()
		_ = os.Remove(p.verbs())
	}, nil
}

// perfView prints tests as they run, or as JSON at the end.
type perfView struct {
	w    io.Writer
	json bool

	results []perfResult
}

// perfResult is a test in JSON.
type perfResult struct {
	perf.Setting
	Rows []perf.Row `json:"rows"`
}

func (v *perfView) setting(s perf.Setting) error {
	v.results = append(v.results, perfResult{Setting: s})
	if v.json {
		return nil
	}
	return s.WriteHead(v.w)
}

func (v *perfView) row(r perf.Row) error {
	last := &v.results[len(v.results)-1]
	last.Rows = append(last.Rows, r)
	if v.json {
		return nil
	}
	_, err := fmt.Fprintln(v.w, strings.TrimRight(last.Test.Columns().Line(r), " "))
	return err
}

// end closes the table of a test, however it went.
func (v *perfView) end(err error) error {
	if v.json || len(v.results) == 0 {
		return err
	}
	if footErr := v.results[len(v.results)-1].WriteFoot(v.w); err == nil {
		err = footErr
	}
	return err
}

// finish prints the JSON: one object, or a list if there were several tests.
func (v *perfView) finish() error {
	if !v.json {
		return nil
	}
	enc := json.NewEncoder(v.w)
	enc.SetIndent("", "  ")
	if len(v.results) == 1 {
		return enc.Encode(v.results[0])
	}
	return enc.Encode(v.results)
}
