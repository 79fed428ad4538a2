package check

import (
	"context"
	"testing"
)

// TestReductions: histories in which switches add, under faults; enough of them that trees are lost and replaced.
func TestReductions(t *testing.T) {
	r := Torture(context.Background(), Options{First: 1, Seeds: 40, Kind: ReductionKind, Hosts: 8, Parallel: 2}, nil)
	for i := range r.Failures {
		t.Errorf("seed %d: %v", r.Failures[i].Seed, r.Failures[i].Found[0])
	}
	t.Logf("%d operations, %d hops, %d faults, %d trees replaced", r.Ops, r.Hops, r.Faults(), r.Tally.TreesLost)
	if r.Ops < 3000 || r.Faults() == 0 || r.Tally.TreesLost < 20 {
		t.Errorf("%d operations, %d faults, %d trees replaced: not much of a test", r.Ops, r.Faults(),
			r.Tally.TreesLost)
	}
}

// TestReductionsOnceFailed runs the seeds by which torture has found bugs of reductions.
func TestReductionsOnceFailed(t *testing.T) {
	for _, seed := range []uint64{
		11013045, // a job waited for another's places, and when they were free there was no way: nobody tried again
	} {
		r := Torture(context.Background(), Options{First: seed, Seeds: 1, Kind: ReductionKind}, nil)
		for i := range r.Failures {
			t.Errorf("seed %d: %v", seed, r.Failures[i].Found[0])
		}
		if r.Ops == 0 {
			t.Errorf("seed %d does nothing", seed)
		}
	}
}
