package check

import (
	"strings"
	"testing"

	"softib/fabric"
	"softib/proto/ib"
)

// TestShrink gives a scenario that breaks a rule for sure, one that says that
// it has no faults and has, and wants it small and explained.
func TestShrink(t *testing.T) {
	sc := Draw(3, 3)
	// Its ways lead over the cables.
	for seed := uint64(3); !sc.Calm || len(sc.Work.Conns) < 4 || sc.Machine.Direct > 0; seed++ {
		sc = Draw(seed, 3)
	}
	for i := range sc.graph().NumCables() {
		sc.Faults = append(sc.Faults, Fault{Cable: i, For: ib.Millisecond, Harm: fabric.Faults{Drop: 0.03}})
	}
	res := Run(&sc)
	if !res.Failed() {
		t.Fatal("nothing found")
	}
	f := Failure{Seed: sc.Seed, Found: res.Violations, Small: sc, Result: res}
	f.shrink()
	before, _ := sc.Work.Totals()
	after, _ := f.Small.Work.Totals()
	if len(f.Small.Work.Conns) > 2 || len(f.Small.Faults) > 2 || after >= before/2 {
		t.Errorf("%d conns, %d ops (of %d), %d faults are left", len(f.Small.Work.Conns), after, before,
			len(f.Small.Faults))
	}
	if !f.Result.Failed() || f.Result.Violations[0].Checker != res.Violations[0].Checker {
		t.Errorf("the small scenario finds %v: want the same as %v", f.Result.Violations, res.Violations[0])
	}
	var b strings.Builder
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED", "smallest scenario", "fault: at", "last packets:", " > ", f.Command()} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}
