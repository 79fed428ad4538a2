//go:build plant

package tunnel

import "testing"

// TestPlantedBugs switches bugs on, one by one, and wants torture to find each.
func TestPlantedBugs(t *testing.T) {
	for _, p := range []struct {
		name string
		on   *bool
	}{
		{"numbers of datagrams are not checked", &plantReplay},
		{"seals are not checked", &plantForged},
		{"a datagram that did not come is acknowledged", &plantGap},
		{"what is lost is not sent again", &plantForget},
		{"a piece that comes early is taken for the next", &plantHole},
	} {
		t.Run(p.name, func(t *testing.T) {
			*p.on = true
			defer func() { *p.on = false }()
			const seeds = 100
			for seed := range uint64(seeds) {
				if _, err := torture(seed); err != nil {
					t.Logf("found by seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("%d seeds have not found it", seeds)
		})
	}
}
