package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// simRate runs the simulator's benchmark; its other figures come from the
// same run.
func (b *bench) simRate(ctx context.Context) (float64, error) {
	var err error
	if b.simOutput, err = b.goBench(ctx, "./driver/sim", "Permutation/1024$", 2000000); err != nil {
		return 0, err
	}
	return metric(b.simOutput, "Mhops/s")
}

func (b *bench) simAllocs(context.Context) (float64, error) { return metric(b.simOutput, "allocs/op") }
func (b *bench) simMemory(context.Context) (float64, error) { return metric(b.simOutput, "MiB") }

// clusterJoin runs the benchmark of machines that share a fabric, which needs an etcd; the other figures come from the
// same run.
func (b *bench) clusterJoin(ctx context.Context) (float64, error) {
	if _, err := exec.LookPath("etcd"); err != nil {
		return 0, fmt.Errorf("etcd: %w", errAbsent)
	}
	var err error
	if b.clusterOutput, err = b.goBench(ctx, "./operate/cluster/etcd", "Members$", 1); err != nil {
		return 0, err
	}
	return metric(b.clusterOutput, "join-s")
}

// clusterFigure is another figure of that run.
func (b *bench) clusterFigure(unit string) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) {
		if b.clusterOutput == "" {
			return 0, fmt.Errorf("etcd: %w", errAbsent)
		}
		return metric(b.clusterOutput, unit)
	}
}

// simCores is how fast the same is with complete adapters, worked on by so many processors.
func (b *bench) simCores(cores int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		out, err := b.goBench(ctx, "./driver/sim", fmt.Sprintf("RC/1024-hosts-%d-cores$", cores), 4000000)
		if err != nil {
			return 0, err
		}
		return metric(out, "Mhops/s")
	}
}

// Simulations by flows: an all-to-all of 1,024 hosts, of which SimGrid does the first steps, a shift of as many hosts
// as a subnet has addresses for, and an all-reduce of GPUs.
var (
	flowsAll    = simulation{"fat-tree:radix=16,levels=3", "all-to-all:size=64K"}
	flowsShift  = simulation{"fat-tree:radix=64,levels=3,pods=44", "shift:by=17,size=1M"}
	flowsReduce = simulation{"rail:gpus=8,servers=2048,radix=64", "all-reduce:size=256M"}
)

const (
	peerRadix = 16
	peerSteps = 64
)

// simulation is a run by flows.
type simulation struct{ topology, load string }

// took is how long it took, in seconds, and how many messages there were.
func (b *bench) took(ctx context.Context, s simulation) (seconds float64, messages int, err error) {
	if b.smoke {
		s.topology = strings.Replace(s.topology, "servers=2048", "servers=4", 1)
		s.topology = strings.Replace(s.topology, "pods=44", "pods=1", 1)
		s.topology = strings.Replace(s.topology, "radix=16", "radix=4", 1)
	}
	out, err := b.output(ctx, nil, b.softib, "sim", s.topology, "--load", s.load, "--level", "flows", "--json")
	if err != nil {
		return 0, 0, err
	}
	var report struct {
		Wall float64 `json:"wall_s"`
		Load struct {
			Messages int `json:"messages"`
		} `json:"load"`
	}
	err = json.Unmarshal(out, &report)
	return report.Wall, report.Load.Messages, err
}

// flowRate is how many thousand messages a second are simulated.
func (b *bench) flowRate(ctx context.Context) (float64, error) {
	took, messages, err := b.took(ctx, flowsAll)
	return float64(messages) / took / 1e3, err
}

// seconds is how long a simulation takes.
func (b *bench) seconds(s simulation) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		took, _, err := b.took(ctx, s)
		return took, err
	}
}

// simGrid is flowRate of SimGrid, without what it models of TCP.
func (p *programs) simGrid(ctx context.Context) (float64, error) {
	if _, err := os.Stat("/usr/include/simgrid/engine.h"); err != nil {
		return 0, fmt.Errorf("SimGrid: %w; next: make bench, which installs it", errAbsent)
	}
	path, err := p.build(ctx, "flows", "gcc", "-lsimgrid")
	if err != nil {
		return 0, err
	}
	radix, steps := peerRadix, peerSteps
	if p.smoke {
		radix, steps = 4, 4
	}
	out, err := p.output(ctx, nil, path, "--log=root.thres:error", "--cfg=network/TCP-gamma:0",
		"--cfg=network/crosstraffic:0", "--cfg=network/bandwidth-factor:1", "--cfg=network/latency-factor:1",
		strconv.Itoa(radix), strconv.Itoa(steps))
	if err != nil {
		return 0, err
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return rate / 1e3, err
}
