package check

import (
	"context"
	"testing"
)

// TestCluster: histories of machines that agree by a store, under faults; enough of them that everything has happened.
func TestCluster(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 40
	}
	r := Torture(context.Background(), Options{First: 1, Seeds: seeds, Kind: ClusterKind, Parallel: 2}, nil)
	for i := range r.Failures {
		t.Errorf("seed %d: %v", r.Failures[i].Seed, r.Failures[i].Found[0])
	}
	c := &r.Tally.Cluster
	t.Logf("%d seeds in %v: %d operations, %+v", r.Done, r.Elapsed, r.Hops, *c)
	if n := uint64(seeds); c.Changes < 10*n || c.Rejected < n/20 || c.Masters < n || c.Lost < n/5 || c.Refused < n/20 {
		t.Errorf("%+v in %d seeds: not much of a test", *c, seeds)
	}
}
