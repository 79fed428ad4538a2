package jobs

import (
	"math"
	"slices"
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

// TestReductions: what switches do by packets and by flows takes about the same time, and the sums are right: Packets
// looks at every element that a rank gets.
func TestReductions(t *testing.T) {
	long(t)
	for _, c := range []struct {
		spec, load  string
		least, most float64 // of what flows take, by what packets take
	}{
		{"star:2", "all-reduce:algorithm=sharp,size=8", 0.98, 1.02},
		{"star:5", "all-reduce:algorithm=sharp,size=7", 0.98, 1.02},
		{"star:8", "all-reduce:algorithm=sharp,size=1M", 0.98, 1.02},
		{"star:8", "barrier:algorithm=sharp", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=8", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=4K", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=4K,count=4", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "reduce:algorithm=sharp,size=4K", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "broadcast:algorithm=sharp,size=2K", 0.98, 1.02},
		{"fat-tree:radix=4,levels=3", "barrier:algorithm=sharp,count=3", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=1M,count=2", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "reduce:algorithm=sharp,size=100001", 0.95, 1.05},
		{"fat-tree:radix=8,levels=2", "broadcast:algorithm=sharp,size=64K", 0.95, 1.05},
		{"fat-tree:radix=4,levels=3", "all-reduce:algorithm=sharp,size=256K", 0.97, 1.03},
		{"torus:4x4,hosts=1", "all-reduce:algorithm=sharp,size=8", 0.97, 1.03},
	} {
		near(t, c.spec, c.load, c.least, c.most)
	}
}

// TestResultsByMulticast: what they save is the same by packets and by flows.
func TestResultsByMulticast(t *testing.T) {
	both := func(spec, load string, opt Options) (saved float64) {
		p, f := ends(t, spec, load, opt)
		opt.Reduction.Multicast = true
		pm, fm := ends(t, spec, load, opt)
		t.Logf("%-62s %-45s %v, by multicast packets %v, flows %v", spec, load, p, pm, fm)
		if a, b := float64(f)/float64(p), float64(fm)/float64(pm); math.Abs(a-1) > 0.02 || math.Abs(b-1) > 0.02 {
			t.Errorf("%s on %s: flows take %.3f of what packets take, by multicast %.3f: want both within 2 %%", load,
				spec, a, b)
		}
		return 1 - float64(pm)/float64(p)
	}
	for _, load := range []string{"all-reduce:algorithm=sharp,size=8", "all-reduce:algorithm=sharp,size=4K,count=3",
		"broadcast:algorithm=sharp,size=1K", "barrier:algorithm=sharp,count=3"} {
		for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=4,levels=3"} {
			if saved := both(spec, load, Options{}); saved <= 0 {
				t.Errorf("%s on %s: it saves %.1f %%", load, spec, 100*saved)
			}
		}
	}
	// Who is not to have the result does not get it by multicast either, which Packets would see.
	if saved := both("fat-tree:radix=8,levels=2", "reduce:algorithm=sharp,size=2K", Options{}); saved != 0 {
		t.Errorf("it saves %.1f %% of a result for one", 100*saved)
	}
}

// TestCopying: what processors take for a message and for each byte is the same by packets and by flows, for hosts that
// add and for switches that do.
func TestCopying(t *testing.T) {
	m := play.Model{Overhead: 270 * ib.Nanosecond, PerByte: 200, Eager: 16 << 10}
	for _, c := range []struct {
		load  string
		least float64 // picoseconds
	}{
		{"all-reduce:algorithm=recursive-doubling,size=4K,add=100", 5 * (2*200 + 100) * 4095}, // in five exchanges
		{"all-reduce:algorithm=sharp,size=4K", 2 * 16 * 200 * 255},                            // in 16 operations
	} {
		f, s := fabricFor(t, "fat-tree:radix=8,levels=2", c.load, Options{})
		p, err := f.Packets()
		if err != nil {
			t.Fatal(err)
		}
		var ends [2]float64
		for i, net := range []Network{p, f.Flows()} {
			r, err := Run(t.Context(), s, m, net, Watch{})
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = float64(r.End)
		}
		t.Logf("%-55s packets %.2f us, flows %.2f us", c.load, ends[0]/1e6, ends[1]/1e6)
		if math.Abs(ends[1]/ends[0]-1) > 0.02 || ends[0] < c.least {
			t.Errorf("%s: %v by packets and %v by flows: want them within 2 %%, and %v at least", c.load,
				ib.Time(ends[0]), ib.Time(ends[1]), ib.Time(c.least))
		}
	}
}

// TestSharedNodes: two jobs whose trees are over the same switches wait for each other there, by packets as by flows.
func TestSharedNodes(t *testing.T) {
	const spec, load = "fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=4K,count=2"
	opt := Options{Reduction: Reduction{PerMessage: 100 * ib.Nanosecond}} // so that nodes are what they wait for
	alone, _ := ends(t, spec, load, opt)
	f, s := fabricFor(t, spec, load, opt)
	opt.Place = slices.Concat(f.opt.Place, f.opt.Place)
	f, _ = fabricFor(t, spec, load, opt)
	p, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	var took [2]float64
	for i, net := range []Network{p, f.Flows()} {
		r, err := Run(t.Context(), job.Merge(s, s), play.Model{}, net, Watch{})
		if err != nil {
			t.Fatal(err)
		}
		took[i] = float64(r.End)
	}
	// A root takes in 8 messages for an operation, a leaf 5 for one of each job; the roots are not the same switch.
	t.Logf("alone %v, both %v, by flows %v", alone, ib.Time(took[0]), ib.Time(took[1]))
	if math.Abs(took[1]/took[0]-1) > 0.02 || took[0] < 1.15*float64(alone) {
		t.Errorf("both take %v and by flows %v: want them within 2 %%, and 1.15 times what one takes alone (%v)",
			ib.Time(took[0]), ib.Time(took[1]), alone)
	}
}
