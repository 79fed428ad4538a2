package jobs

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"testing"

	"softib/job"
	"softib/job/load"
	"softib/job/play"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// long leaves a test out of short runs, which are the race detector's: it makes these take minutes, and they have one
// goroutine.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, and of one goroutine")
	}
}

// fabricFor is a fabric of a topology, and the schedule of a load on it. The load's seed is the fabric's, or 1.
func fabricFor(t testing.TB, spec, text string, opt Options) (*Fabric, *job.Schedule) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFabric(g, opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(f.Ranks(), cmp.Or(opt.Seed, 1))
	if err != nil {
		t.Fatal(err)
	}
	return f, s
}

func ends(t *testing.T, spec, text string, opt Options) (packets, flows ib.Time) {
	t.Helper()
	f, s := fabricFor(t, spec, text, opt)
	p, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	for i, net := range []Network{f.Joined(p), f.Joined(f.Flows())} {
		r, err := Run(t.Context(), s, play.Model{}, net, Watch{})
		if err != nil {
			t.Fatalf("%s on %s, level %d: %v", text, spec, i, err)
		}
		if !r.Whole {
			t.Fatalf("%s on %s: not whole", text, spec)
		}
		if i == 0 {
			packets = r.End
		} else {
			flows = r.End
		}
	}
	return packets, flows
}

// TestLevels runs the same schedules by packets and by flows, and says how far apart they are. Where messages to one
// receiver stand before those to others packets are slower: the others wait behind them for buffers, of which flows
// know nothing.
func TestLevels(t *testing.T) {
	long(t)
	for _, c := range []struct {
		spec, load  string
		least, most float64 // of what flows take, by what packets take
	}{
		{"star:2", "shift:size=1M", 0.995, 1.005},
		{"star:8", "incast:size=1M", 0.995, 1.005},
		{"star:8", "outcast:size=1M", 0.995, 1.005},
		{"star:8", "incast:size=1K,count=50,window=4", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "shift:by=4,size=1M", 0.995, 1.005},
		{"fat-tree:radix=8,levels=2", "permutation:size=1M", 0.995, 1.005},
		{"fat-tree:radix=8,levels=2", "neighbours:size=256K,steps=3", 0.995, 1.005},
		{"fat-tree:radix=8,levels=2", "all-to-all:size=64K,algorithm=pairwise", 0.97, 1.01},
		{"fat-tree:radix=8,levels=2", "uniform:size=256K,count=8,window=2", 0.75, 1},
	} {
		near(t, c.spec, c.load, c.least, c.most)
	}
}

// TestChoosingLevels does so where switches choose. By packet, flows are spread evenly, which is what no switch that
// sees its own queues alone comes to; by flowlet and message they take the ports with the fewest others.
func TestChoosingLevels(t *testing.T) {
	long(t)
	tree, high := "fat-tree:radix=8,levels=2", "fat-tree:radix=8,levels=3"
	for _, c := range []struct {
		choice      route.Choice
		spec, load  string
		least, most float64
	}{
		{route.ByPacket, tree, "shift:by=4,size=1M", 0.995, 1.005},
		{route.ByPacket, tree, "permutation:size=1M", 0.75, 1},
		{route.ByPacket, tree + ",taper=2", "permutation:size=1M", 0.8, 1},
		{route.ByPacket, high, "permutation:size=1M", 0.65, 1},
		{route.ByPacket, tree, "all-to-all:size=64K,algorithm=pairwise", 0.85, 1},
		{route.ByFlowlet, tree, "permutation:size=1M", 0.995, 1.005},
		{route.ByFlowlet, high, "permutation:size=1M", 0.9, 1},
		{route.ByMessage, high, "permutation:size=1M", 0.8, 1.05},
		{route.ByMessage, tree, "all-to-all:size=64K,algorithm=pairwise", 0.75, 1},
	} {
		t.Log("adaptive by", c.choice)
		nearWith(t, Options{Adaptive: c.choice}, c.spec, c.load, c.least, c.most)
	}
}

// TestRoCELevels does so on Ethernet, whose ways a hash chooses. Flows know neither pauses nor DCQCN, which takes rates
// back for long after a queue is gone: short messages do not see it, long ones do.
func TestRoCELevels(t *testing.T) {
	long(t)
	roce, tables := Ethernet{Kind: RoCE}, Ethernet{Kind: RoCE, NoECMP: true, NoDCQCN: true}
	tree := "fat-tree:radix=8,levels=2"
	for _, c := range []struct {
		ethernet    Ethernet
		spec, load  string
		least, most float64
	}{
		{roce, "star:8", "incast:size=1M", 0.995, 1.005},
		{roce, tree, "shift:by=4,size=1M", 0.995, 1.005},
		{roce, tree, "all-to-all:size=64K,algorithm=pairwise", 0.96, 1.01},
		{roce, "fat-tree:radix=8,levels=3", "permutation:size=1M", 0.97, 1.01},
		{tables, tree, "permutation:size=4M", 0.995, 1.005},
		{Ethernet{Kind: RoCE, NoECMP: true}, tree, "permutation:size=4M", 0.65, 0.85},
	} {
		nearWith(t, Options{Ethernet: c.ethernet}, c.spec, c.load, c.least, c.most)
	}
}

// near wants what a load takes by flows to be between two parts of what it takes by packets.
func near(t *testing.T, spec, text string, least, most float64) {
	t.Helper()
	nearWith(t, Options{}, spec, text, least, most)
}

func nearWith(t *testing.T, opt Options, spec, text string, least, most float64) {
	t.Helper()
	p, f := ends(t, spec, text, opt)
	ratio := float64(f) / float64(p)
	t.Logf("%-26s %-42s packets %v, flows %v: %+.2f %%", spec, text, p, f, 100*(ratio-1))
	if ratio < least || ratio > most {
		t.Errorf("%s on %s: by flows it takes %.4f of what it takes by packets, want %v to %v", text, spec, ratio,
			least, most)
	}
}

// TestDeadlock: ways that wait for each other are found and told, and so is a schedule that does.
func TestDeadlock(t *testing.T) {
	long(t)
	g, err := topo.ParseSpec("torus:6x6")
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFabric(g, Options{Routing: "minhop", Buffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse("uniform:size=1M,count=8,window=8")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(f.Ranks(), 3)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), s, play.Model{}, n, Watch{}); err != nil {
		t.Fatalf("on the lanes that the engine wants: %v", err)
	}
	f.Tables.SL = nil // and without them
	if n, err = f.Packets(); err != nil {
		t.Fatal(err)
	}
	n.rep = sm.Report{}
	_, err = Run(t.Context(), s, play.Model{}, n, Watch{})
	var stuck *StuckError
	if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "no packet can move") ||
		!strings.Contains(err.Error(), "in a circle, sw") || !strings.Contains(err.Error(), "next:") {
		t.Errorf("minhop on a torus: %v", err)
	}

	b := job.NewBuilder(2)
	for rank := range 2 {
		recv := b.Recv(rank, 1-rank, 8, 0)
		b.After(rank, b.Send(rank, 1-rank, 8, 0), recv)
	}
	if s, err = b.Schedule(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), s, play.Model{}, f.Flows(), Watch{})
	if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "rank 0 waits in a receive of 8 bytes from rank 1") ||
		!strings.Contains(err.Error(), "rank 1 waits in a receive of 8 bytes from rank 0") || r.Whole {
		t.Errorf("two that wait for each other: %v", err)
	}
}

// TestRendezvous: long messages ask first and go when they may, by packets as by flows.
func TestRendezvous(t *testing.T) {
	f, s := fabricFor(t, "fat-tree:radix=8,levels=2", "permutation:size=256K", Options{})
	run := func(m play.Model) (took [2]float64) {
		p, err := f.Packets()
		if err != nil {
			t.Fatal(err)
		}
		for i, net := range []Network{p, f.Flows()} {
			r, err := Run(t.Context(), s, m, net, Watch{})
			if err != nil || !r.Whole {
				t.Fatalf("level %d, %+v: %v", i, m, err)
			}
			took[i] = float64(r.End)
		}
		return took
	}
	at, asked := run(play.Model{}), run(play.Model{Handshake: true})
	t.Logf("packets %v, flows %v; asked first %v, %v", ib.Time(at[0]), ib.Time(at[1]), ib.Time(asked[0]),
		ib.Time(asked[1]))
	if asked[0] <= at[0] || asked[1] <= at[1] || math.Abs(asked[1]/asked[0]-1) > 0.02 {
		t.Errorf("%v by packets and %v by flows: want them within 2 %%, and more than if nobody asks (%v, %v)",
			ib.Time(asked[0]), ib.Time(asked[1]), ib.Time(at[0]), ib.Time(at[1]))
	}
}
