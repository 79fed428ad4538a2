package jobs

import (
	"testing"
)

// TestReductions: what switches do by packets and by flows takes about the same time, and the sums are right: Packets
// looks at every element that a rank gets.
func TestReductions(t *testing.T) {
	for _, c := range []struct {
		spec, load  string
		least, most float64 // of what flows take, by what packets take
	}{
		{"star:2", "all-reduce:algorithm=sharp,size=8", 0.98, 1.02},
		{"star:5", "all-reduce:algorithm=sharp,size=7", 0.98, 1.02},
		{"star:8", "all-reduce:algorithm=sharp,size=1M", 0.98, 1.02},
		{"star:8", "barrier:algorithm=sharp", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=8", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=4K", 0.9, 1.1},
		{"fat-tree:radix=8,levels=2", "all-reduce:algorithm=sharp,size=1M,count=2", 0.98, 1.02},
		{"fat-tree:radix=8,levels=2", "reduce:algorithm=sharp,size=100001", 0.95, 1.05},
		{"fat-tree:radix=8,levels=2", "broadcast:algorithm=sharp,size=64K", 0.95, 1.05},
		{"fat-tree:radix=4,levels=3", "all-reduce:algorithm=sharp,size=256K", 0.97, 1.03},
		{"torus:4x4,hosts=1", "all-reduce:algorithm=sharp,size=8", 0.97, 1.03},
	} {
		p, f := ends(t, c.spec, c.load, Options{})
		ratio := float64(f) / float64(p)
		t.Logf("%-26s %-42s packets %v, flows %v: %+.2f %%", c.spec, c.load, p, f, 100*(ratio-1))
		if ratio < c.least || ratio > c.most {
			t.Errorf("%s on %s: by flows it takes %.4f of what it takes by packets, want %v to %v", c.load, c.spec,
				ratio, c.least, c.most)
		}
	}
}
