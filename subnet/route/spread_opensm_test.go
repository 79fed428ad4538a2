package route

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

func unpack(t *testing.T, file string) []byte {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// opensmTree reads the tables that OpenSM 3.3.23 gave a tree with some engine, on ibsim, and numbers the LIDs along the
// tree: OpenSM's own numbers are no order in which programs would shift. The files are named for radix, levels and the
// share of cut cables, in percent. OpenSM's ftree refuses trees that miss cables; the tables are then those of its
// minhop.
func opensmTree(t *testing.T, fabric, engine string) (*Network, *Tables) {
	t.Helper()
	g, err := topo.Parse(fabric, unpack(t, fabric+".net.gz"))
	if err != nil {
		t.Fatal(err)
	}
	dump, err := ParseLFTDump(fabric, unpack(t, fabric+"."+engine+".lfts.gz"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := FromGraphLIDs(g, func(r topo.PortRef) (ib.LID,
		uint8) {
		return dump.LIDs[g.Nodes[r.Node].PortGUID(r.Port)], 0
	})
	tab, missing := dump.Tables(theirs)
	if len(missing) > 0 {
		t.Fatalf("%s: no tables for switches %v", fabric, missing)
	}
	n := FromGraph(g)
	lft := newLFT(n)
	for s := range lft {
		for i, d := range n.Dests {
			lft[s][d.LID] = tab.LFT[s][theirs.Dests[i].LID]
		}
	}
	tab.LFT = lft
	return n, tab
}

// TestTreesBesideOpenSM: our ways through whole and damaged trees are no worse than OpenSM's with the same engine, and
// mostly much better.
func TestTreesBesideOpenSM(t *testing.T) {
	files, err := filepath.Glob("testdata/opensm-trees/*.net.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fabrics: %v", err)
	}
	for _, file := range files {
		for _, e := range []Engine{fatTree{}, upDown{}, minHop{}} {
			n, tab := opensmTree(t, strings.TrimSuffix(file, ".net.gz"), e.Name())
			o := JudgeOptions{Seed: 1, Shifts: -1, Randoms: 200}
			theirs := Judge(n, tab, o)
			tab, err := e.Compute(n, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ours := Judge(n, tab, o)
			what := fmt.Sprintf("%s: %s: shift %d (%.2f), random %.2f, bisection %.3f: OpenSM has %d (%.2f), "+
				"%.2f, %.3f", filepath.Base(file), e.Name(),
				ours.Shift.Max, ours.Shift.Average, ours.Random.Average, ours.Bisection, theirs.Shift.Max,
				theirs.Shift.Average, theirs.Random.Average, theirs.Bisection)
			t.Log(what)
			// OpenSM's updn leaves whole spines of a damaged tree unused, which bounds the worst shift at the cost of
			// all the rest.
			most := theirs.Shift.Max
			if theirs.Bisection < 0.75*ours.Bisection {
				most++
			}
			// Random permutations are a sample, and averages of shifts that differ by a few hundredths are alike.
			if !ours.OK() || ours.Shift.Max > most || ours.Shift.Average > 1.05*theirs.Shift.Average ||
				ours.Random.Average > 1.01*theirs.Random.Average || ours.Bisection < 0.99*theirs.Bisection {
				t.Error(what)
			}
		}
	}
}
