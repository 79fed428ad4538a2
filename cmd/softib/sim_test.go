package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/operate/experiment"

	"softib/job/goal"
)

func TestSim(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	out := s.run("sim", "fat-tree:radix=4,levels=2", "--load", "all-reduce:size=1M,algorithm=ring", "-o", run)
	wants(t, out, "112 messages", "8 hosts", "routed by ftree", "packets: some", "hosts → leafs", "hash ",
		"report.html")
	for _, name := range []string{"report.html", "report.json", "series.csv", "links.csv", "map.json"} {
		if at, err := os.Stat(filepath.Join(run, name)); err != nil || at.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var r, again experiment.Report
	if err := json.Unmarshal([]byte(s.run("sim", "fat-tree:radix=4,levels=2", "--load",
		"all-reduce:size=1M,algorithm=ring", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	// What the report says repeats it, repeats it.
	args := strings.Fields(r.Command)[1:]
	if err := json.Unmarshal([]byte(s.run(append(args, "--json")...)), &again); err != nil {
		t.Fatal(err)
	}
	if r.Hash == "" || r.Hash != again.Hash || !strings.Contains(out, r.Hash) {
		t.Errorf("hashes %s and %s; the first run said %s", r.Hash, again.Hash, out)
	}
	// A vector of 1 MiB goes around twice, but for one part in eight: 2 * 7/8 of it at 50 GB/s, and what comes on top.
	if ideal := 1 << 20 * 2 * 7 / 8 / 50e9; r.End < ideal || r.End > 1.3*ideal {
		t.Errorf("a ring takes %v s, and could take %v", r.End, ideal)
	}

	sweep := filepath.Join(dir, "sweep")
	out = s.run("sim", "star:4", "--load", "incast:size=64K", "--sweep", "level=packets,flows", "-o", sweep)
	wants(t, out, "packets: asked for", "flows: asked for", "compare.html")
	out = s.run("sim", "compare", filepath.Join(sweep, "level=packets"), filepath.Join(sweep, "level=flows"), "-o",
		filepath.Join(dir, "both.html"))
	wants(t, out, "took", "level=flows", "both.html")
	out = s.run("sim", "compare", filepath.Join(sweep, "level=packets"), filepath.Join(sweep, "level=flows"), "--json")
	wants(t, out, `"level": "flows"`, `"change": 0,`)
	out = s.run("sim", "fat-tree:radix=4,levels=2", "--load", "permutation:size=64K", "--sweep",
		"adaptive=off,packet,flowlet,message")
	wants(t, out, "routed by ftree\n", "routed by ftree, adaptive by packet\n", "adaptive by flowlet",
		"adaptive by message", "switches choose by their queues")
	out = s.run("sim", "fat-tree:radix=4,levels=2", "--load", "permutation:size=64K", "--level", "flows", "--sweep",
		"adaptive=packet,flowlet")
	wants(t, out, "spread evenly over their ways", "take the ports with the fewest others")
	out = s.run("sim", "dragonfly:a=2,h=1,p=1", "--load", "shift:by=2,size=64K", "--routing", "dragonfly", "--adaptive",
		"packet")
	wants(t, out, "routed by dragonfly, adaptive by packet")
	out = s.run("sim", "star:4,planes=2", "--load", "shift:size=64K,count=4", "--sweep", "level=packets,flows")
	wants(t, out, "hosts → switches           8")
	out = s.run("sim", "star:4", "--load", "incast:size=1M", "--sweep", "network=ib,roce,roce-lossy,roce-irn")
	wants(t, out, "routed by ftree, roce\n", "ethernet   roce-irn: 0 pause frames", "notifications")
	out = s.run("sim", "star:4", "--load", "shift", "--sweep", "load=incast:to=1,size=1K,shift:by=2,size=2K")
	wants(t, out, "incast:to=1,size=1K, 3 messages", "shift:by=2,size=2K, 4 messages")
}

// TestSimGOAL runs schedules from files, and refuses those that cannot run.
func TestSimGOAL(t *testing.T) {
	s := newShell(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "x.goal")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ok := file("num_ranks 2\nrank 0 {\na: calc 5000\nb: send 4096b to 1\nb requires a\n}\n" +
		"rank 1 {\nrecv 4096b from 0\n}\n")
	wants(t, s.run("sim", "star:4", "--load", ok, "--set", "o=1000"), "1 message on star:4", "took       7.")
	// 5000 ns of work, o, L, o and G for all bytes but one: as LogGOPSim has it.
	wants(t, s.run("sim", "star:4", "--load", ok, "--level", "ideal", "--set", "L=2500", "--set", "o=1500", "--set",
		"g=1000", "--set", "G=6000", "--set", "eager=65535"), "took       35.07 us")
	for text, want := range map[string]string{
		"num_ranks 2\nrank 0 {\n\nrecv 5b from 1\n}\n":        "line 4",
		"num_ranks 9\nrank 0 {\n}\n":                          "9 ranks on 4 hosts",
		"num_ranks 2\nrank 0 {\na: calc 1\na requires a\n}\n": "waits for itself",
		"num_ranks 1000000000\n":                              "want a number from",
		"num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\nb requires a\n}\nrank 1 {\na: recv 1b from 0\n" +
			"b: send 1b to 0\nb requires a\n}\n": "rank 0 waits in a receive of 1 bytes from rank 1 with tag 0",
	} {
		s.fails(exitFailed, []string{want}, "sim", "star:4", "--load", file(text))
	}
}

// TestSimBinary: a schedule in GOAL's binary form, which has zeros in it, runs as its text does.
func TestSimBinary(t *testing.T) {
	s := newShell(t)
	const text = "num_ranks 2\nrank 0 {\nl1: send 64b to 1 tag 3\n}\nrank 1 {\nl1: recv 64b from 0 tag 3\n}\n"
	sched, err := goal.Parse("two.goal", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var hashes []string
	for _, b := range [][]byte{[]byte(text), goal.AppendBinary(nil, sched)} {
		name := filepath.Join(t.TempDir(), "two")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, hash, ok := strings.Cut(s.run("sim", "star:2", "--load", name), "hash ")
		if !ok {
			t.Fatal("no hash")
		}
		hashes = append(hashes, hash)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("the text gives hash %s, the binary form %s", hashes[0], hashes[1])
	}
}

func TestSimRefuses(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "there is no --load", []string{"sim", "star:4"}},
		{exitFailed, "want one of permutation", []string{"sim", "star:4", "--load", "dance"}},
		{exitUsage, "want one of auto, packets", []string{"sim", "star:4", "--load", "shift", "--level", "deep"}},
		{exitUsage, "want 1 to 15", []string{"sim", "star:4", "--load", "shift", "--set", "cc-threshold=16"}},
		{exitFailed, "next: --level packets", []string{"sim", "star:4", "--load", "shift", "--set", "cc=1", "--level",
			"flows"}},
		{exitUsage, "want one of ib, roce", []string{"sim", "star:4", "--load", "shift", "--network", "token-ring"}},
		{exitFailed, "--set ecmp=0", []string{"sim", "torus:4x4", "--load", "shift", "--network", "roce", "--routing",
			"minhop"}},
		{exitFailed, "pauses for ever", []string{"sim", "star:4", "--load", "incast:size=1M", "--network", "roce",
			"--set", "storm=1"}},
		{exitUsage, "want one of off, packet", []string{"sim", "star:4", "--load", "shift", "--adaptive", "often"}},
		{exitFailed, "ways that go up and then down", []string{"sim", "torus:4x4", "--load", "shift", "--adaptive",
			"packet", "--routing", "minhop"}},
		{exitFailed, "each a subnet", []string{"up", "star:4,planes=2"}},
		{exitUsage, "want one of mtu", []string{"sim", "star:4", "--load", "shift", "--set", "speed=3"}},
		{exitUsage, "want 256, 512", []string{"sim", "star:4", "--load", "shift", "--set", "mtu=1500"}},
		{exitUsage, "want KEY=A,B,C", []string{"sim", "star:4", "--load", "shift", "--sweep", "mtu"}},
		{exitFailed, "want a number from 1 to 3", []string{"sim", "star:4", "--load", "shift:by=4"}},
		{exitFailed, "5 ranks on 4 hosts", []string{"sim", "star:4", "--load", "shift", "--ranks", "5"}},
		{exitFailed, "no such file", []string{"sim", "compare", "/nowhere", "/nowhere"}},
		{exitFailed, "routing", []string{"sim", "star:4", "--load", "shift", "--routing", "magic"}},
	} {
		s.fails(c.code, []string{c.want}, c.args...)
	}
}
