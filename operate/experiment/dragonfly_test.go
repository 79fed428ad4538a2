package experiment

import (
	"testing"

	"softib/subnet/route"
)

// TestDragonfly: what Kim, Dally, Scott and Abts say of a dragonfly (docs/VALIDATION.md). Where all hosts of a group
// send to the next group, minimal ways have one global link for them; with detours all of them, two for each packet but
// for those that go straight. Where destinations are by chance, detours cost nothing.
func TestDragonfly(t *testing.T) {
	const hosts, link = 72, 50e9
	share := func(text string, by route.Choice, bytes float64) float64 {
		t.Helper()
		s := spec(t, "dragonfly:a=4,h=2,p=2", text)
		s.Level, s.Options.Routing, s.Options.Adaptive = Packets, "dragonfly", by
		r, err := Run(t.Context(), s, nil)
		if err != nil || !r.Whole {
			t.Fatalf("%v, %s", err, r.Stopped)
		}
		return bytes / (hosts * link * r.End)
	}
	const adverse, bytes = "shift:by=8,size=64K,count=12,window=4", hosts * 12 << 16
	minimal := share(adverse, route.NoChoice, bytes)
	if minimal < 0.115 || minimal > 1./8 {
		t.Errorf("minimal ways carry %.1f %%, want nearly an eighth", 100*minimal)
	}
	for by, least := range map[route.Choice]float64{route.ByPacket: 0.5, route.ByMessage: 0.4} { // tidy: order-free
		if got := share(adverse, by, bytes); got < least || got > 9./16 {
			t.Errorf("by %v %.1f %%, want %.1f %% at least and 56.2 %% at most", by, 100*got, 100*least)
		}
	}
	const chance, total = "uniform:size=4K,count=150,window=16", hosts * 150 << 12
	still, chosen := share(chance, route.NoChoice, total), share(chance, route.ByPacket, total)
	if chosen < 0.97*still {
		t.Errorf("destinations by chance: %.1f %% with detours, %.1f %% without", 100*chosen, 100*still)
	}
}
