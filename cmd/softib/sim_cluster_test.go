package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSimCluster runs what architects of GPU clusters do: training steps from files, what a lost spine or a compressed
// gradient does, and jobs beside each other.
func TestSimCluster(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(t.TempDir(), "step.train")
	text := "# a small model\nlayers = 8\nparameters = 400M\nforward = 200us\ntensor = 4\ndata = 8\nactivation = 1M\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const rail = "rail:gpus=4,servers=8,radix=8"
	out := s.run("sim", rail, "--load", file, "--level", "flows")
	wants(t, out, "on "+rail+" of 32 hosts", "tensor: 32 all-reduces of 1 MiB among 4 GPUs, by halving-doubling",
		"data: 3 buckets", "4.8 ms without communication", "servers    8, ", "within them by NVLink, 450 GB/s a GPU")
	out = s.run("sim", rail, "--load", file, "--level", "flows", "--sweep", "load="+file+","+file+":compression=10")
	wants(t, out, "gradients are compressed 10 times")
	out = s.run("sim", rail, "--load", file, "--level", "flows", "--sweep", "lost=0,1")
	wants(t, out, "lost       1 switch of the top level")
	out = s.run("sim", rail, "--load", "all-reduce:size=1M", "--sweep", "topology="+rail+",fat-tree:radix=8,levels=2")
	wants(t, out, "on "+rail, "on fat-tree:radix=8,levels=2 of 32 hosts", "among the 4 of each",
		"all-reduce by double-tree among all")
	out = s.run("sim", rail, "--load", "ping-pong:count=9@8", "--load", "shift:size=1M", "--alone", "--place",
		"by-rail")
	wants(t, out, "ping-pong:count=9@8 on 8 hosts took", "shift:size=1M on 24 hosts took", "alone ")
	out = s.run("sim", rail, "--load", "ping-pong", "--load", "shift:size=1M", "--share", "--set", "nvlink=0")
	wants(t, out, "ping-pong on 32 hosts", "NVLink is off")
	out = s.run("sim", "rail:gpus=4,servers=16,radix=16", "--load", "../../docs/examples/small.train", "--level",
		"flows", "--sweep", "network=ib,roce")
	wants(t, out, "took       5.151 ms", "routed by ftree, roce\n", "nobody is paused", "took       11.32 ms")
	s.fails(exitFailed, []string{"step.train:compression=none", "want a number up to"}, "sim", rail, "--load",
		file+":compression=none")
	s.fails(exitFailed, []string{"cannot be lost"}, "sim", rail, "--load", "shift", "--set", "lost=9")
	s.fails(exitFailed, []string{"want a number of hosts"}, "sim", rail, "--load", "shift@x")
	bad := filepath.Join(t.TempDir(), "bad.train")
	if err := os.WriteFile(bad, []byte("layers = 8\nforward = fast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{"bad.train:2: forward = fast: want a time"}, "sim", rail, "--load", bad)
}

// TestSimChakra runs a trace of two ranks that compute for 5 us, and refuses one that lacks a rank.
func TestSimChakra(t *testing.T) {
	s := newShell(t)
	name := filepath.Join(t.TempDir(), "trace")
	write := func(rank, text string) {
		if err := os.WriteFile(name+"."+rank+".et", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := "\x00\x06\x08\x01\x18\x04\x38\x05" // no metadata; a node: id 1, COMP_NODE, duration_micros 5
	write("0", node)
	write("1", node)
	wants(t, s.run("sim", "star:4", "--load", name), "took       5 us", "processors are busy 100.0 %")
	s.fails(exitFailed, []string{"say gpu= or algorithm="}, "sim", "star:4", "--load", name+":speed=3")
	write("3", node)
	s.fails(exitFailed, []string{"trace.2.et", "file for each rank, 0 to 3"}, "sim", "star:4", "--load", name)
	write("2", node[:5])
	s.fails(exitFailed, []string{"trace.2.et: byte 1", "take a whole file"}, "sim", "star:4", "--load", name)
}

// TestClusterExample: the large example of docs/DESIGN-A-CLUSTER.md is one of 4,096 GPUs.
func TestClusterExample(t *testing.T) {
	p, err := part("../../docs/examples/gpt-13b.train")
	if err != nil || p.Ranks != 4096 {
		t.Errorf("%d ranks, %v", p.Ranks, err)
	}
}
