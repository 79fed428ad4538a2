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
		near(t, c.spec, c.load, c.least, c.most)
	}
}
