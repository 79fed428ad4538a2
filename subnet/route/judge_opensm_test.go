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

// opensmTables reads a fabric and the tables that OpenSM 3.3.23 gave it with its dfsssp engine, as "opensm -o -R dfsssp
// -D 0x43" on ibsim left them in opensm-lfts.dump. The number behind the name is the share of cut cables.
func opensmTables(t *testing.T, name string) (*Network, *Tables) {
	t.Helper()
	read := func(suffix string) []byte {
		packed, err := os.ReadFile(name + suffix)
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
	g, err := topo.Parse(name, read(".net.gz"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseLFTDump(name, read(".lfts.gz"))
	if err != nil {
		t.Fatal(err)
	}
	n := FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) { return d.LIDs[g.Nodes[r.Node].PortGUID(r.Port)], 0 })
	tab, missing := d.Tables(n)
	if len(missing) > 0 {
		t.Fatalf("%s: no tables for switches %v", name, missing)
	}
	return n, tab
}

// Our tables are not worse than OpenSM's for the same fabric, judged by the same measure.
func TestBesideOpenSM(t *testing.T) {
	files, err := filepath.Glob("testdata/opensm/*.net.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fabrics: %v", err)
	}
	for _, file := range files {
		n, tab := opensmTables(t, strings.TrimSuffix(file, ".net.gz"))
		o := JudgeOptions{Seed: 1, Shifts: -1, Randoms: 200}
		theirs := Judge(n, tab, o)
		if theirs.Unreached > 0 || theirs.Looping > 0 {
			t.Errorf("%s: OpenSM's tables are misread: %v", file, theirs)
		}
		for _, e := range []Engine{dfsssp{}, nue{}} {
			tab, err := e.Compute(n, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ours := Judge(n, tab, o)
			what := fmt.Sprintf("%s: %s: shift %d, random %.2f, bisection %.3f: OpenSM has %d, %.2f, %.3f",
				filepath.Base(file), e.Name(),
				ours.Shift.Max, ours.Random.Average, ours.Bisection, theirs.Shift.Max, theirs.Random.Average,
				theirs.Bisection)
			t.Log(what)
			// Random permutations are a sample: a hundredth is noise.
			if !ours.OK() || ours.Shift.Max > theirs.Shift.Max || ours.Random.Average > 1.01*theirs.Random.Average ||
				ours.Bisection < 0.99*theirs.Bisection {
				t.Error(what)
			}
		}
	}
}
