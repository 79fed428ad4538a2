package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// A log of OpenSM 3.3.23 with -D 0x07, shortened.
const openSMLog = `Nov 15 06:26:01 684733 [9D2E7740] 0x03 -> OpenSM 3.3.23
Nov 15 06:26:05 676622 [9A2E06C0] 0x80 -> Entering MASTER state
***** LID ASSIGNMENT COMPLETE - STARTING SWITCH TABLE CONFIG *****
Nov 15 06:26:06 153910 [9A2E06C0] 0x04 -> ucast_mgr_route: building routing with 'ftree' routing algorithm...
Nov 15 06:26:06 200000 [9A2E06C0] 0x04 -> ucast_mgr_route: building routing with 'minhop' routing algorithm...
Nov 15 06:26:26 400000 [9A2E06C0] 0x02 -> osm_ucast_mgr_process: minhop tables configured on all switches
Nov 15 06:26:32 500000 [9A2E06C0] 0x02 -> SUBNET UP
*************************** SUBNET UP ****************************
`

func TestOpenSMLog(t *testing.T) {
	began := time.Date(2026, 11, 15, 6, 26, 1, 500_000_000, time.UTC)
	var r openSMRun
	if err := r.read(strings.NewReader(openSMLog), began); err != nil {
		t.Fatal(err)
	}
	if r.up != 31*time.Second || r.routing != 20200*time.Millisecond || r.engine != "minhop" {
		t.Errorf("%+v", r)
	}
	for _, log := range []string{"", openSMLog[:300],
		strings.ReplaceAll(openSMLog, "Nov 15 06:26:32 500000", "Nov 15 06:26:32 5000")} {
		if err := new(openSMRun).read(strings.NewReader(log), began); err == nil {
			t.Errorf("taken: %q", log)
		}
	}
	// The log has no year.
	at, err := stamp("Jan 01 00:00:01 000000 [1] x", time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC))
	if err != nil || !at.Equal(time.Date(2027, 1, 1, 0, 0, 1, 0, time.UTC)) {
		t.Errorf("%v, %v", at, err)
	}
}

// TestHugeTargets: the largest fabric is asked as people type it, and is to answer as fast as the document says.
func TestHugeTargets(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/TRUTH.md")
	if err != nil {
		t.Fatal(err)
	}
	says := strings.Join(strings.Fields(string(text)), " ")
	if want := fmt.Sprintf("the subnet is to be up within %d s,", upHugeMost); !strings.Contains(says, want) {
		t.Errorf("docs/TRUTH.md does not say: %s", want)
	}
	for command, most := range map[string]float64{"top -n 1": 2, "doctor": 20} { // by itself the doctor has an interval
		i := slices.IndexFunc(askedOfHuge(g), func(a asked) bool { return strings.Join(a.args, " ") == command })
		if i < 0 {
			t.Errorf("softib %s is not measured", command)
			continue
		}
		if got := askedOfHuge(g)[i].most; got != most {
			t.Errorf("softib %s may take %v s, want %v", command, got, most)
		}
		want := regexp.MustCompile(fmt.Sprintf("`%s`( to answer)? within %v s", command, most))
		if !want.MatchString(says) {
			t.Errorf("docs/TRUTH.md does not say: %v", want)
		}
	}
}

func TestSample(t *testing.T) {
	s := sample{values: []float64{0.2, 0.1, 3}}
	if got := s.String(); got != "200 ms (100 ms to 3 s)" {
		t.Error(got)
	}
	if got := (sample{unit: inBytes, values: []float64{3 << 30}}).String(); got != "3 GiB" {
		t.Error(got)
	}
	for r, want := range map[float64]string{0.04: "1/25", 0.5: "0.50", 1.2: "1.20"} {
		if got := share(r); got != want {
			t.Errorf("%v is %s, want %s", r, got, want)
		}
	}
}

func TestDamaged(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=3")
	if err != nil {
		t.Fatal(err)
	}
	between := g.NumCables() - len(g.Hosts())
	for _, percent := range []int{0, 1, 5, 50} {
		cut, err := damaged(g, percent, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := g.NumCables()-cut.NumCables(), (between*percent+50)/100; got != want {
			t.Errorf("%d %%: %d cables are gone, want %d", percent, got, want)
		}
		again, err := damaged(g, percent, 1)
		if err != nil {
			t.Fatal(err)
		}
		if string(topo.Append(nil, cut)) != string(topo.Append(nil, again)) {
			t.Errorf("%d %%: the same seed damages otherwise", percent)
		}
		for _, s := range cut.Switches() {
			links := 0
			for p := range s.Ports {
				if s.Ports[p].Connected() && cut.Nodes[s.Ports[p].Peer].IsSwitch() {
					links++
				}
			}
			if links == 0 {
				t.Errorf("%d %%: %s is alone", percent, s.Name)
			}
		}
	}
}

func TestContestLine(t *testing.T) {
	report := func(shift int, random float64) route.Report {
		return route.Report{Engine: "ftree", Shift: route.Congestion{Max: shift},
			Random: route.Congestion{Max: int(random) + 1, Average: random}}
	}
	for _, c := range []struct {
		ours, theirs route.Report
		met          verdict
	}{
		{report(2, 5), report(3, 5), pass},
		{report(3, 5.05), report(3, 5), pass},
		{report(4, 5), report(3, 5), short},
		{report(3, 5.5), report(3, 5), short},
		{route.Report{Engine: "ftree", Unreached: 1, Shift: report(1, 1).Shift, Random: report(1, 1).Random},
			report(3, 5), short},
	} {
		all := contest{ours: []route.Report{c.ours}, theirs: []route.Report{c.theirs}}
		if got := all.line("x"); got.met != c.met {
			t.Errorf("%+v: want %s", got, c.met)
		}
	}
}

// What -measure does, on a fabric that takes no time.
func TestMeasureHere(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=3")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{patience: time.Minute}
	loss, err := b.loseLinks(t.Context(), g, 3, 1)
	if err != nil || len(loss.Seconds) != 3 || len(loss.Another) != 1 {
		t.Fatalf("%v, %v", loss, err)
	}
	r, err := routeOnce(g, "ftree")
	if err != nil || !(r.Seconds > 0) || !(r.Memory > 1<<20) {
		t.Errorf("%+v, %v", r, err)
	}
	if err := b.measureHere(t.Context(), "nothing", "star:2", ""); err == nil {
		t.Error("nothing was measured")
	}
}

// A whole run beside the real OpenSM, on a small fabric.
func TestBesideOpenSM(t *testing.T) {
	m := &management{bench: &bench{rounds: 1, patience: time.Minute}, dir: t.TempDir(),
		graphs: map[string]*topo.Graph{}}
	g, err := m.graph("fat-tree:radix=4,levels=3")
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.openSM(t.Context(), g, "ftree", logUsual|logPhases|logTables)
	if err != nil {
		t.Fatal(err)
	}
	if run.engine != "ftree" || run.up <= 0 || run.whole < run.up || run.routing <= 0 || run.memory < 1<<20 {
		t.Errorf("%v %v %v %v %v", run.engine, run.up, run.whole, run.routing, run.memory)
	}
	dump, err := route.ParseLFTDump("dump", run.lfts)
	if err != nil || len(dump.Switches) != len(g.Switches()) {
		t.Fatal(err)
	}
	var c contest
	if err := m.contest(t.Context(), &c, g, "ftree", route.JudgeOptions{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if l := c.line("x"); l.met != pass {
		t.Errorf("%+v", l)
	}
	n := route.FromGraphLIDs(g, func(r topo.PortRef) (ib.LID,
		uint8) {
		return dump.LIDs[g.Nodes[r.Node].PortGUID(r.Port)], 0
	})
	if len(n.Dests) != len(g.Nodes) {
		t.Errorf("%d destinations of %d nodes", len(n.Dests), len(g.Nodes))
	}
	left, err := filepath.Glob(filepath.Join(m.dir, "*", "opensm-lfts.dump"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(m.dir); err != nil {
		t.Error(err)
	}
}
