package wiring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"softib/internal/cputime"
	"softib/proto/topo"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 5)) }

func gen(t testing.TB, spec string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// clean wants no finding at all, not even a note.
func clean(t *testing.T, what string, g *topo.Graph, o Options) *Report {
	t.Helper()
	r := Check(g, o)
	for i, f := range r.Findings {
		t.Errorf("%s: %v", what, f)
		if i == 10 {
			break
		}
	}
	if !r.OK || !r.IsTree {
		t.Errorf("%s: OK is %v, tree %v: %s", what, r.OK, r.IsTree, r.NotATree)
	}
	return r
}

func TestRightTreesAreClean(t *testing.T) {
	var specs []string
	for radix := 4; radix <= 36; radix += 2 {
		specs = append(specs, fmt.Sprintf("fat-tree:radix=%d,levels=2", radix))
		if radix <= 16 {
			specs = append(specs, fmt.Sprintf("fat-tree:radix=%d,levels=3", radix))
		}
	}
	specs = append(specs, "fat-tree:radix=4,levels=4", "fat-tree:radix=6,levels=4", "fat-tree:radix=8,levels=4,pods=4",
		"fat-tree:radix=8,levels=2,oversub=3", "fat-tree:radix=36,levels=2,oversub=2",
		"fat-tree:radix=12,levels=3,oversub=3", "fat-tree:radix=8,levels=3,oversub=3:1,pods=5",
		"fat-tree:radix=16,levels=3,pods=3", "fat-tree:radix=8,levels=2,pods=3", "fat-tree:radix=8,levels=1", "star:5")
	for _, spec := range specs {
		g := gen(t, spec)
		clean(t, spec, g, Options{})
		clean(t, spec+" planned", g, Options{Plan: gen(t, spec)})
	}
}

func TestLargeTreeIsCleanAndQuick(t *testing.T) {
	g := gen(t, "fat-tree:radix=36,levels=3")
	began, worked := time.Now(), cputime.Used(t)
	r := clean(t, "11,664 hosts", g, Options{Engines: "ftree,updn"})
	worked = cputime.Used(t) - worked
	t.Logf("%s took %v, %v of them at work", r.Describe, time.Since(began), worked)
	// Of the processor's time: what else the machine does is not the check's fault.
	if worked > 3*time.Second {
		t.Errorf("took %v, want less than 3 s", worked)
	}
	if r.Hosts != 11664 || len(r.Levels) != 3 || r.Bisection.Wired != 1 {
		t.Errorf("%+v, %+v", r, r.Bisection)
	}
	began = time.Now()
	clean(t, "11,664 hosts planned", g, Options{Plan: g.Clone()})
	t.Logf("with a plan: %v", time.Since(began))
}
