package check

import (
	"context"
	"runtime"
	"testing"
)

// TestOneSeedOneHistory runs seeds on one core and on two, some at once, and as
// bytes at each hop: the trace hash is the same.
func TestOneSeedOneHistory(t *testing.T) {
	const first, count = 500, 12
	hashes := func(cores int) [count]uint64 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		var out [count]uint64
		done := make(chan struct{})
		for i := range out {
			go func() {
				sc := Draw(first+uint64(i), 0)
				out[i] = Run(&sc).Hash
				done <- struct{}{}
			}()
		}
		for range out {
			<-done
		}
		return out
	}
	one, two := hashes(1), hashes(2)
	seen := map[uint64]bool{}
	for i := range one {
		if one[i] != two[i] {
			t.Errorf("seed %d: hash %016x on one core, %016x on two", first+i, one[i], two[i])
		}
		if one[i] == 0 || seen[one[i]] {
			t.Errorf("seed %d: hash %016x is that of another seed, or of nothing", first+i, one[i])
		}
		seen[one[i]] = true
		sc := Draw(first+uint64(i), 0)
		if v, differs := rerun(func(opt runOptions) Result { return run(&sc, opt) },
			&Result{Hash: one[i], Hops: Run(&sc).Hops}); differs {
			t.Errorf("seed %d: %v", first+i, v)
		}
	}
}

// TestDrawIsPure draws the same scenario from the same seed.
func TestDrawIsPure(t *testing.T) {
	for seed := range uint64(50) {
		a, b := Draw(seed, 0), Draw(seed, 0)
		if a.Topo != b.Topo || len(a.Faults) != len(b.Faults) || len(a.Work.Conns) != len(b.Work.Conns) ||
			a.Work.Seed != b.Work.Seed {
			t.Fatalf("seed %d draws two scenarios", seed)
		}
		if n := len(a.graph().Hosts()); n < 2 {
			t.Errorf("seed %d: %s has %d hosts", seed, a.Topo, n)
		}
	}
	for _, hosts := range []int{2, 7, 24, HostsMax} {
		for seed := range uint64(30) {
			sc := Draw(seed, hosts)
			if n := len(sc.graph().Hosts()); n < hosts/2 || n > hosts*2+2 {
				t.Errorf("seed %d: %s has %d hosts: asked for about %d", seed, sc.Topo, n, hosts)
			}
		}
	}
}

// TestTortureStops ends early when it is told to.
func TestTortureStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	r := Torture(ctx, Options{First: 1, Seeds: 1000, Parallel: 2}, func(p Progress) {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if r.Done < 3 || r.Done > 5 || calls != r.Done {
		t.Errorf("%d seeds done, %d calls of progress: want 3 to 5, and as many", r.Done, calls)
	}
}
