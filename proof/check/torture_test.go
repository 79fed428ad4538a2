package check

import (
	"context"
	"os"
	"strconv"
	"testing"
)

// TestTorture runs some seeds. SOFTIB_SEEDS and SOFTIB_SEED choose more, or one, and SOFTIB_KIND a kind of history.
func TestTorture(t *testing.T) {
	opt := Options{First: 1, Seeds: 60}
	if k, err := ParseKind(os.Getenv("SOFTIB_KIND")); err == nil {
		opt.Kind = k
	}
	if n, err := strconv.Atoi(os.Getenv("SOFTIB_SEEDS")); err == nil {
		opt.Seeds = n
	}
	if n, err := strconv.Atoi(os.Getenv("SOFTIB_SEED")); err == nil {
		opt.First, opt.Seeds = uint64(n), 1
	}
	r := Torture(context.Background(), opt, nil)
	t.Logf("%d seeds, %d runs, %d ops, %d hops, %d faults, %v drops in %v", r.Done, r.Runs, r.Ops, r.Hops, r.Faults(),
		r.Tally.Drops, r.Elapsed)
	t.Logf("management: %+v", r.Tally.Mgmt)
	if h := r.Histories; opt.Kind == Both && h[DataKind]+h[ManagementKind] != r.Done || r.Direct > h[DataKind] {
		t.Errorf("histories by kind are %v, and %d with ways from ring to ring, of %d seeds", h, r.Direct, r.Done)
	}
	for i := range r.Failures {
		t.Fail()
		r.Failures[i].Write(os.Stdout)
	}
}
