package route

import (
	"errors"
	"strings"
	"testing"

	"softib/internal/benchsize"
	"softib/proto/ib"
	"softib/proto/topo"
)

// soundTables holds tables to what every engine owes, by means that no engine uses.
func soundTables(t *testing.T, name string, n *Network, tab *Tables, vls int) Report {
	t.Helper()
	rep := Judge(n, tab, JudgeOptions{Randoms: 4, Shifts: 4})
	if rep.Unreached != 0 || rep.Looping != 0 || rep.BareUnreached != 0 {
		t.Errorf("%s: %v", name, rep)
	}
	o := newOracle(n, tab, EndTraffic)
	if !o.acyclic() {
		t.Errorf("%s: the dependencies have a cycle: %v", name, rep.Cycle)
	}
	if tab.VLs < 1 || tab.VLs > vls {
		t.Errorf("%s: %d lanes: want 1 to %d", name, tab.VLs, vls)
	}
	for s := range n.Switches {
		for d := range n.Dests {
			if int(tab.Level(int32(s), d)) >= tab.VLs {
				t.Errorf("%s: level %d of %d lanes", name, tab.Level(int32(s), d), tab.VLs)
			}
		}
	}
	return rep
}

func TestDFSSSP(t *testing.T) {
	for i, spec := range smallSpecs() {
		for name, n := range damaged(t, spec, uint64(i)) {
			tab, err := dfsssp{}.Compute(n, Options{VLs: 15})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			rep := soundTables(t, name, n, tab, 15)
			// Shortest ways: no other tables have fewer hops.
			if best := Judge(n, shortest(n), JudgeOptions{Randoms: -1, Shifts: 1}); rep.HopsAverage > best.HopsAverage {
				t.Errorf("%s: %.3f hops on average: want %.3f", name, rep.HopsAverage, best.HopsAverage)
			}
			again, _ := dfsssp{}.Compute(n, Options{VLs: 15})
			if d := Diff(tab, again); d.Entries+d.Levels > 0 {
				t.Errorf("%s: a second run differs: %+v", name, d)
			}
		}
	}
}

func TestDFSSSPTooFewLanes(t *testing.T) {
	n := netOf(t, "torus:5x5")
	_, err := dfsssp{}.Compute(n, Options{VLs: 1})
	var unfit *UnfitError
	if !errors.Is(err, ErrUnfit) || !errors.As(err, &unfit) || !strings.Contains(err.Error(), "it needs ") {
		t.Errorf("%v", err)
	}
	tab, err := dfsssp{}.Compute(n, Options{})
	if err != nil || tab.VLs != 8 {
		t.Fatalf("%v", err)
	}
	// Lanes that no cycle asks for carry their share.
	var ways [8]int
	for s := range n.Switches {
		for d := range n.Dests {
			if n.Dests[d].IsEnd() {
				ways[tab.Level(int32(s), d)]++
			}
		}
	}
	for l, count := range ways {
		if count == 0 {
			t.Errorf("lane %d is empty: %v", l, ways)
		}
	}
}

func bigNet() string { return benchsize.Tree("fat-tree:radix=36,levels=3") }

func bigTorus() string { return benchsize.Of("torus:8x8x8,hosts=4", "torus:3x3x3,hosts=2") }

func benchEngine(b *testing.B, e Engine, spec string) {
	n := netOf(b, spec)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Compute(n, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDFSSSP(b *testing.B)      { benchEngine(b, dfsssp{}, bigNet()) }
func BenchmarkDFSSSPTorus(b *testing.B) { benchEngine(b, dfsssp{}, bigTorus()) }

func BenchmarkJudge(b *testing.B) {
	n := netOf(b, bigNet())
	tab, err := dfsssp{}.Compute(n, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := Judge(n, tab, JudgeOptions{}); !r.OK() {
			b.Fatal(r)
		}
	}
}

// Several LIDs for a port, networks of one switch, without end ports, or of nothing.
func TestEnginesOddNetworks(t *testing.T) {
	g, err := topo.ParseSpec("torus:4x4,hosts=2")
	if err != nil {
		t.Fatal(err)
	}
	next := ib.LID(1)
	nets := map[string]*Network{
		"LMC 2": FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
			next = (next + 7) &^ 3
			return next, 2
		}),
		"one switch":   netOf(t, "star:3"),
		"no end ports": netOf(t, "random:switches=6,hosts=0,links=9"),
		"nothing":      {},
	}
	for name, n := range nets {
		for _, e := range []Engine{dfsssp{}, nue{}} {
			tab, err := e.Compute(n, Options{})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			soundTables(t, name+" "+e.Name(), n, tab, 8)
		}
	}
}
