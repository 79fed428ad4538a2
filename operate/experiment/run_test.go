package experiment

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/load"
	"softib/proto/topo"
	"softib/subnet/route"
)

func spec(t *testing.T, topology, text string) Spec {
	t.Helper()
	g, err := topo.ParseSpec(topology)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Topology: topology, Load: text, Graph: g, Schedule: l.Schedule, Level: Auto, Seed: 1}
}

// TestRun: what a report says is what happened, and the same again gives the same hash.
func TestRun(t *testing.T) {
	s := spec(t, "fat-tree:radix=4,levels=2", "permutation:size=100K,count=3")
	hashes := map[string]string{}
	for _, level := range []string{Packets, Flows} {
		s.Level = level
		for range 2 {
			looks := 0
			r, err := Run(t.Context(), s, func(Progress) { looks++ })
			if err != nil {
				t.Fatal(err)
			}
			if !r.Whole || r.Level != level || r.Load.Messages != 24 || r.Messages[0].Took.Count != 24 || looks == 0 {
				t.Errorf("%s: whole %t, level %s, %d of %d messages, looked at %d times", level, r.Whole, r.Level,
					r.Messages[0].Took.Count, r.Load.Messages, looks)
			}
			if hashes[level] != "" && hashes[level] != r.Hash {
				t.Errorf("%s: hash %s, and %s before", level, r.Hash, hashes[level])
			}
			hashes[level] = r.Hash
			// What hosts have sent over time is what the messages were, and their headers.
			sum, before := 0.0, 0.0
			for i, at := range r.Times {
				sum += r.Sent[i] * (at - before)
				before = at
			}
			if want := float64(r.Load.Bytes); sum < want || sum > 1.02*want {
				t.Errorf("%s: %.0f bytes were sent over time, the messages have %.0f", level, sum, want)
			}
			if math.Abs(before-r.End) > 1e-6 {
				t.Errorf("%s: the last interval ends at %v, the last rank at %v", level, before, r.End)
			}
			for _, tier := range r.Tiers {
				if len(tier.Mean) != len(r.Times) || tier.Use.Max > 1.0001 || tier.Use.Max <= 0 {
					t.Errorf("%s: %s: %d intervals of %d, used up to %v", level, tier.Name, len(tier.Mean),
						len(r.Times), tier.Use.Max)
				}
			}
			if !slices.IsSortedFunc(r.Links, func(a, b Link) int { return int(1e9 * (b.Use - a.Use)) }) {
				t.Errorf("%s: links are not in order", level)
			}
		}
	}
	if hashes[Packets] == hashes[Flows] {
		t.Error("both levels have one hash")
	}
	s.Seed = 2
	if r, err := Run(t.Context(), s, nil); err != nil || r.Hash == hashes[Flows] {
		t.Errorf("another seed gives the same, or %v", err)
	}
}

// TestStopped: who ends a run has a report of what there was.
func TestStopped(t *testing.T) {
	s := spec(t, "fat-tree:radix=8,levels=2", "uniform:size=64K,count=500,window=4")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Run(ctx, s, func(Progress) { cancel() })
	if err != nil {
		t.Fatal(err)
	}
	if r.Whole || r.Stopped == "" || r.Messages[0].Took.Count == 0 || r.Messages[0].Took.Count >= r.Load.Messages {
		t.Errorf("whole %t (%s), %d of %d messages", r.Whole, r.Stopped, r.Messages[0].Took.Count, r.Load.Messages)
	}
}

// TestPlaces: ranks are where they should be.
func TestPlaces(t *testing.T) {
	s := spec(t, "fat-tree:radix=4,levels=2", "shift")
	for place, want := range map[string][]string{"linear": {"h1", "h2", "h3"}, "by-leaf": {"h1", "h3", "h5"},
		"random": nil} {
		s.Place, s.Ranks = place, 3
		if _, err := s.build(); err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for i, ref := range s.Options.Place {
			if seen[ref.Node] {
				t.Errorf("%s: two ranks on one host", place)
			}
			seen[ref.Node] = true
			if name := s.Graph.Nodes[ref.Node].Name; want != nil && name != want[i] {
				t.Errorf("%s: rank %d is on %s, want %s", place, i, name, want[i])
			}
		}
	}
	for _, bad := range []Spec{{Graph: s.Graph, Ranks: 9}, {Graph: s.Graph, Ranks: -1},
		{Graph: s.Graph, Place: "sky"}} {
		if _, err := bad.build(); !errors.Is(err, ErrSpec) {
			t.Errorf("%d ranks, place %q: %v", bad.Ranks, bad.Place, err)
		}
	}
}

// TestChoice: what is quickly done is done by packets, what is not by flows, and the report says so.
func TestChoice(t *testing.T) {
	f, err := jobs.NewFabric(spec(t, "fat-tree:radix=4,levels=2", "shift:size=1M").Graph, jobs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[string]string{"shift:size=1M": Packets, "shift:size=100G": Flows} {
		l, err := load.Parse(size)
		if err != nil {
			t.Fatal(err)
		}
		sched, err := l.Schedule(8, 1)
		if err != nil {
			t.Fatal(err)
		}
		if level, why := choose(f, sched); level != want || why == "" {
			t.Errorf("%s: %s, because %s", size, level, why)
		}
	}
}

// TestTooMany: a schedule for more ranks than there are hosts is refused.
func TestTooMany(t *testing.T) {
	s := spec(t, "star:2", "shift")
	s.Schedule = func(int, uint64) (*job.Schedule, error) { return job.NewBuilder(3).Schedule() }
	if _, err := Run(t.Context(), s, nil); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "next:") {
		t.Errorf("%v", err)
	}
}

// TestAdaptive: what Geoffray and Hoefler measured of a Clos network of 512 hosts (docs/VALIDATION.md).
func TestAdaptive(t *testing.T) {
	s := spec(t, "fat-tree:radix=16,levels=3,hosts=512", "permutation:size=1M")
	s.Level, s.Seed = Packets, 1
	measure := func(name string, want float64) *Report {
		t.Helper()
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f %%", name, 100*r.Speed.Mean)
		if got := r.Speed.Mean; math.Abs(got-want) > 0.05 {
			t.Errorf("%s: messages have %.1f %% of their links, want %.0f %% give or take 5 points", name, 100*got,
				100*want)
		}
		return r
	}
	s.Options.Hash = true
	measure("a way for each pair", 0.38)
	s.Options.Hash, s.Options.Adaptive = false, route.ByPacket
	adaptive := measure("adaptive", 0.77)
	again, err := Run(t.Context(), s, nil)
	if err != nil || again.Hash != adaptive.Hash {
		t.Errorf("once more: hash %s, want %s (%v)", again.Hash, adaptive.Hash, err)
	}
	s.Level = Flows
	flows, err := Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("by flows %.1f %%", 100*flows.Speed.Mean)
	if got := flows.Speed.Mean; got < adaptive.Speed.Mean || got > 1 ||
		!strings.Contains(flows.Why, "the best case") {
		t.Errorf("flows that choose have %.1f %%: %s", 100*got, flows.Why)
	}
}

// TestBisection: random permutations get what route check computes of the tables, by packets and by flows
// (docs/VALIDATION.md).
func TestBisection(t *testing.T) {
	for _, c := range []struct {
		spec  string
		level string
		runs  int
	}{
		{"fat-tree:radix=36,levels=2", Flows, 6}, {"fat-tree:radix=16,levels=3", Flows, 6},
		{"fat-tree:radix=24,levels=2", Packets, 4}, {"fat-tree:radix=24,levels=2", Flows, 4},
	} {
		s := spec(t, c.spec, "permutation:size=1M")
		s.Level = c.level
		f, err := jobs.NewFabric(s.Graph, s.Options)
		if err != nil {
			t.Fatal(err)
		}
		want := route.Judge(f.Net, f.Tables, route.JudgeOptions{Shifts: 1}).Bisection
		mean := 0.0
		for seed := range c.runs {
			s.Seed = uint64(seed)
			r, err := Run(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			mean += r.Speed.Mean / float64(c.runs)
		}
		// Headers are 0.6 % of the bytes.
		if ratio := mean * 1.0064 / want; ratio < 0.97 || ratio > 1.03 {
			t.Errorf("%s by %s: messages have %.1f %% of their links, route check says %.1f %%", c.spec, c.level,
				100*mean, 100*want)
		} else {
			t.Logf("%s by %s: %.1f %%, route check %.1f %%", c.spec, c.level, 100*mean, 100*want)
		}
	}
}
