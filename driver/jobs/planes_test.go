package jobs

import (
	"testing"

	"softib/proto/ib"
)

// TestPlanes: messages take the planes in turn, so that with two and four of them a load takes a half and a quarter of
// the time, by packets and by flows.
func TestPlanes(t *testing.T) {
	long(t)
	const text = "permutation:size=256K,count=8,window=4"
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "star:8"} {
		packets, flows := ends(t, spec, text, Options{})
		for planes, suffix := range map[ib.Time]string{2: ",planes=2", 4: ",planes=4"} { // tidy: order-free
			p, f := ends(t, spec+suffix, text, Options{})
			for _, c := range []struct {
				level     string
				one, many ib.Time
			}{{"packets", packets, p}, {"flows", flows, f}} {
				if got := float64(c.one) / float64(c.many); got < 0.9*float64(planes) || got > 1.05*float64(planes) {
					t.Errorf("%s by %s: %d planes are %.2f times as fast", spec, c.level, planes, got)
				}
			}
		}
	}
}
