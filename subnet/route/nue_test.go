package route

import "testing"

func TestNue(t *testing.T) {
	for i, spec := range smallSpecs() {
		for name, n := range damaged(t, spec, uint64(i)) {
			for _, vls := range []int{1, 2, 3, 8} {
				tab, err := nue{}.Compute(n, Options{VLs: vls})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				soundTables(t, name, n, tab, vls)
				again, _ := nue{}.Compute(n, Options{VLs: vls})
				if d := Diff(tab, again); d.Entries+d.Levels > 0 {
					t.Errorf("%s: a second run differs: %+v", name, d)
				}
			}
		}
	}
}

// Where much is refused, ways bend and fall back to the escape tree, and are as sound as others.
func TestNueTightLanes(t *testing.T) {
	bent, escaped := 0, 0
	for _, spec := range []string{"torus:8x8", "random:switches=60,hosts=120,links=120,seed=2",
		"random:switches=40,hosts=80,links=60,seed=3", "random:switches=32,hosts=64,links=128,seed=3"} {
		n := netOf(t, spec)
		for _, lanes := range []int{1, 2, 4} {
			e := newNueRun(newChart(n), lanes)
			e.penalty = uint64(e.meanLoad() / 2)
			if !e.routeAll() {
				t.Errorf("%s: routeAll gave up", spec)
			}
			soundTables(t, spec, n, e.t, lanes)
			bent += e.bent
			escaped += e.escaped
		}
	}
	if bent == 0 || escaped == 0 {
		t.Errorf("%d trees bent, %d escaped: want some of both, or they are not tested", bent, escaped)
	}
}

// In a whole tree nothing is refused, and one lane is enough however many there are.
func TestNueTree(t *testing.T) {
	n := netOf(t, "fat-tree:radix=6,levels=3")
	tab, err := nue{}.Compute(n, Options{})
	if err != nil || tab.VLs != 1 || tab.SL != nil {
		t.Errorf("%v: %d lanes", err, tab.VLs)
	}
}

func BenchmarkNue(b *testing.B)      { benchEngine(b, nue{}, bigNet()) }
func BenchmarkNueTorus(b *testing.B) { benchEngine(b, nue{}, bigTorus()) }
