package route

import "testing"

func TestNue(t *testing.T) {
	bent, escaped := 0, 0
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
			e := newNueRun(newChart(n), 1)
			e.routeAll()
			bent += e.bent
			escaped += e.escaped
		}
	}
	if bent == 0 {
		t.Errorf("no tree bent: nothing was refused")
	}
	t.Logf("on one lane %d trees bent, %d escaped", bent, escaped)
}

// In a whole tree nothing is refused, and one lane is enough however many there are.
func TestNueTree(t *testing.T) {
	n := netOf(t, "fat-tree:radix=6,levels=3")
	tab, err := nue{}.Compute(n, Options{})
	if err != nil || tab.VLs != 1 || tab.SL != nil {
		t.Errorf("%v: %d lanes", err, tab.VLs)
	}
}

func BenchmarkNue(b *testing.B)      { benchEngine(b, nue{}, bigNet) }
func BenchmarkNueTorus(b *testing.B) { benchEngine(b, nue{}, "torus:8x8x8,hosts=4") }
