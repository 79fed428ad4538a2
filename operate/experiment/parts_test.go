package experiment

import (
	"errors"
	"strings"
	"testing"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/load"
	"softib/job/train"
	"softib/proto/topo"
)

// several is a Spec of some patterns at once.
func several(t *testing.T, topology string, texts ...string) Spec {
	t.Helper()
	s := spec(t, topology, texts[0])
	s.Level = Flows
	for _, text := range texts {
		l, err := load.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Jobs = append(s.Jobs, Part{Name: text, Schedule: l.Schedule, Fit: l.Fit, Says: l.Says})
	}
	return s
}

// TestJobs: jobs on hosts of their own under a switch do not disturb each other; on the same hosts a ping-pong waits
// behind bulk messages that share its links; and alone each is as it was without the other.
func TestJobs(t *testing.T) {
	texts := []string{"ping-pong:size=8,count=50", "shift:size=4M"}
	s := several(t, "star:8", texts...)
	s.Alone = true
	r, err := Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Jobs) != 2 || r.Jobs[0].Ranks != 4 || r.Jobs[0].Took.Count != 200 || r.Jobs[1].Took.Count != 4 {
		t.Fatalf("%+v", r.Jobs)
	}
	for _, j := range r.Jobs {
		if j.End != j.Alone.End || j.Took.P99 != j.Alone.Took.P99 {
			t.Errorf("%s: %v s beside the other, %v alone", j.Name, j.End, j.Alone.End)
		}
	}
	s.Share, s.Level = true, Packets
	if r, err = Run(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	small, bulk := r.Jobs[0], r.Jobs[1]
	if small.Ranks != 8 || bulk.Ranks != 8 || small.Took.P50 < 1.5*small.Alone.Took.P50 {
		t.Errorf("a ping-pong takes %v s alone, and %v beside messages of 4 MiB", small.Alone.Took.P50, small.Took.P50)
	}
	again, err := Run(t.Context(), s, nil)
	if err != nil || again.Hash != r.Hash {
		t.Errorf("hashes %s and %s, %v", r.Hash, again.Hash, err)
	}
	s.Share = false
	s.Jobs[0].Ranks = 8
	if _, err := Run(t.Context(), s, nil); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "next:") {
		t.Errorf("eight of eight hosts, and another job: %v", err)
	}
}

// TestRailPlaces: by-rail has the first adapter of every server first, and a collective is chosen by where ranks are.
func TestRailPlaces(t *testing.T) {
	for place, want := range map[string][3]string{"linear": {"s1g1", "s1g2", "among the 4 of each"},
		"by-rail": {"s1g1", "s2g1", "among all"}, "by-leaf": {"s1g1", "s1g2", "among"}} {
		s := several(t, "rail:gpus=4,servers=4,radix=16", "all-reduce:size=1M")
		s.Place, s.Options.NVLink = place, jobs.DefaultNVLink
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := s.hosts()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if name := s.Graph.Nodes[hosts[i].Node].Name; name != want[i] {
				t.Errorf("%s: rank %d is on %s", place, i, name)
			}
		}
		if len(r.Load.Says) != 1 || !strings.Contains(r.Load.Says[0], want[2]) {
			t.Errorf("%s: %v", place, r.Load.Says)
		}
		if r.Fabric.Servers != 4 || r.Fabric.NVLink == 0 || place == "linear" && r.Load.InServers == 0 {
			t.Errorf("%s: %+v", place, r.Fabric)
		}
	}
}

// TestStep: a training step takes what it takes without communication, and what is exposed of that: less with smaller
// gradients, more on slower links, and more without a spine.
func TestStep(t *testing.T) {
	run := func(topology, more string, lost int) *Report {
		g, err := topo.ParseSpec(topology)
		if err != nil {
			t.Fatal(err)
		}
		m, err := train.Parse("x", []byte("layers=8\nforward=200us\ntensor=4\ndata=8\nmicro-batches=2\nactivation=1M\n"+
			"parameters=400M\nbucket=25M\n"+more))
		if err != nil {
			t.Fatal(err)
		}
		s := Spec{Graph: g, Level: Flows, Seed: 1, Lost: lost, Options: jobs.Options{NVLink: jobs.DefaultNVLink},
			Jobs: []Part{{Name: "x", Ranks: m.Ranks(), Says: m.Says,
				Schedule: func(int, uint64) (*job.Schedule, error) { return m.Schedule() }}}}
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		ns, _ := m.Compute()
		if alone := float64(ns) / 1e9; r.Step == nil || r.Step.Alone < alone*(1-1e-9) || r.Step.Alone > alone*(1+1e-9) {
			t.Fatalf("%s: %+v, want %v s without communication", more, r.Step, float64(ns)/1e9)
		}
		if sum := r.Step.Alone + r.Step.Exposed; sum < r.End*(1-1e-9) || sum > r.End*(1+1e-9) {
			t.Errorf("%s: the parts are %v s, the whole %v", more, sum, r.End)
		}
		return r
	}
	const tree = "rail:gpus=4,servers=8,radix=8,wiring=rack"
	base := run(tree, "overlap=off", 0)
	for _, c := range []struct {
		what       string
		r          *Report
		isMore     bool
		utilisedBy float64
	}{
		{"gradients compressed 8 times", run(tree, "overlap=off\ncompression=8", 0), false, 1},
		{"gradients beside the backward pass", run(tree, "overlap=on", 0), false, 1},
		{"links of half the rate", run(tree+",speed=HDR", "overlap=off", 0), true, -1},
		{"a switch of the top level lost", run(tree, "overlap=off", 1), true, -1},
	} {
		if (c.r.Step.Exposed > base.Step.Exposed) != c.isMore ||
			(c.r.Step.Utilisation-base.Step.Utilisation)*c.utilisedBy <= 0 {
			t.Errorf("%s: %+v, before %+v", c.what, c.r.Step, base.Step)
		}
	}
}
