package route

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// dragonOf is a dragonfly's tables and groups.
func dragonOf(t *testing.T, n *Network) (*Tables, *Groups) {
	t.Helper()
	tab, err := ByName("dragonfly").Compute(n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Adaptive(n, tab)
	if err != nil {
		t.Fatal(err)
	}
	return tab, g
}

// TestDragonfly: groups are found, all ways are minimal, and whatever switches choose arrives and waits in no circle.
func TestDragonfly(t *testing.T) {
	for _, c := range []struct {
		spec              string
		lanes, hops       int
		detours           float64 // of all pairs of a switch and an end port elsewhere, how many have one
		clusters, members int
	}{
		{"dragonfly:a=4,h=2,p=2", 4, 3, 32. / 35, 9, 4},
		{"dragonfly:a=4,h=2,p=2,g=5", 4, 3, 16. / 19, 5, 4},
		{"dragonfly:a=4,h=2,p=1,g=3", 4, 3, 8. / 11, 3, 4},
		{"dragonfly:a=6,h=3,p=1,g=4", 4, 3, 18. / 23, 4, 6},
		{"dragonfly:a=2,h=1,p=1", 4, 3, 4. / 5, 3, 2},
		{"dragonfly:a=8,h=4,p=1,g=9", 4, 3, 64. / 71, 9, 8},
		{"dragonfly:a=1,h=4,p=2", 4, 1, 1, 5, 1}, // a full mesh
	} {
		n := netOf(t, c.spec)
		tab, g := dragonOf(t, n)
		x := tab.dragon
		if len(x.members) != c.clusters || len(x.members[0]) != c.members {
			t.Errorf("%s: %d groups, the first of %d, want %d of %d", c.spec, len(x.members), len(x.members[0]),
				c.clusters, c.members)
		}
		r := Judge(n, tab, JudgeOptions{Randoms: -1, Shifts: 1})
		if !r.OK() || r.HopsMax > c.hops || tab.VLs != c.lanes {
			t.Errorf("%s: %d unreached, cycle %v, %d hops, %d lanes", c.spec, r.Unreached, r.Cycle, r.HopsMax, tab.VLs)
		}
		got := JudgeGroups(n, tab, g)
		if !got.OK() {
			t.Errorf("%s: %d unreached, such as %+v; cycle %v", c.spec, got.Unreached, got.Misses, got.Cycle)
		}
		if share := float64(got.Detours) / float64(got.All); math.Abs(share-c.detours) > 1e-9 {
			t.Errorf("%s: %.3f of the pairs have a detour, want %.3f", c.spec, share, c.detours)
		}
	}
}

// TestDragonflyDamage: what is lost is gone around, with more lanes where local links are, or the engine refuses.
func TestDragonflyDamage(t *testing.T) {
	fits, wide := 0, 0
	for seed := range uint64(12) {
		n := RemoveLinks(netOf(t, "dragonfly:a=8,h=4,p=1,g=9"), 0.02, rand.New(rand.NewPCG(seed, 1)))
		tab, err := ByName("dragonfly").Compute(n, Options{})
		if errors.Is(err, ErrUnfit) {
			t.Log(err)
			continue
		}
		fits++
		if tab.VLs > 4 {
			wide++
		}
		g, err := Adaptive(n, tab)
		if err != nil {
			t.Fatal(err)
		}
		if r := Judge(n, tab, JudgeOptions{Randoms: -1, Shifts: 1}); !r.OK() {
			t.Errorf("seed %d: tables: %d unreached, cycle %v", seed, r.Unreached, r.Cycle)
		}
		if got := JudgeGroups(n, tab, g); !got.OK() {
			t.Errorf("seed %d: %d unreached, such as %+v; cycle %v", seed, got.Unreached, got.Misses, got.Cycle)
		}
	}
	if fits < 8 || wide == 0 {
		t.Errorf("%d of 12 damaged dragonflies fit, %d with more lanes", fits, wide)
	}
}

// flat is a map whose lanes do not rise where packets come from some kind of port.
type flat struct {
	*phases
	from portKind
}

func (l flat) VL(sw int32, in, out ib.PortNum, v ib.SL) ib.VL {
	if sw != NoSwitch && l.at(sw, in) == l.from && l.at(sw, out) != endPort {
		return max(ib.VL(v), 1)
	}
	return l.phases.VL(sw, in, out, v)
}

// TestDragonflyLanes: without the rise of the lanes the judge finds a circle.
func TestDragonflyLanes(t *testing.T) {
	n := netOf(t, "dragonfly:a=4,h=2,p=1")
	for _, from := range []portKind{localPort, globalPort} {
		tab, g := dragonOf(t, n)
		tab.SLtoVL = flat{tab.dragon.phases, from}
		if got := JudgeGroups(n, tab, g); got.OK() {
			t.Errorf("lanes that do not rise after ports of kind %d: not found", from)
		}
	}
	tab, g := dragonOf(t, n)
	g.Detours = 0xFFFF // also in the group between
	if got := JudgeGroups(n, tab, g); got.OK() {
		t.Error("detours of detours: not found")
	}
	for _, spec := range []string{"torus:4x4", "fat-tree:radix=6,levels=3", "line:5"} {
		if _, err := ByName("dragonfly").Compute(netOf(t, spec), Options{}); !errors.Is(err, ErrUnfit) {
			t.Errorf("%s: %v, want %v", spec, err, ErrUnfit)
		}
	}
	if _, err := ByName("dragonfly").Compute(n, Options{VLs: 2}); !errors.Is(err, ErrUnfit) {
		t.Errorf("two lanes: %v, want %v", err, ErrUnfit)
	}
}
