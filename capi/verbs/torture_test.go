package verbs

import (
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestTorture calls verbs in random order with random arguments, on two hosts whose packets hit each other, some of
// them with several threads. A seed that fails is printed with the call that did.
func TestTorture(t *testing.T) {
	w := newWorld(t, "star:2")
	torture, check := compile(t, "torture.c"), compile(t, "extended.c")
	seeds, steps := 6, 10000
	if testing.Short() {
		seeds, steps = 2, 4000
	}
	var wg sync.WaitGroup
	for i, host := range []string{"h1", "h2"} {
		wg.Go(func() {
			for n := range seeds {
				seed, threads := 1000*i+10*n+1, n%3+1
				p := w.start(t, host, torture, strconv.Itoa(seed), strconv.Itoa(steps/threads), strconv.Itoa(threads))
				if err := <-p.done; err != nil || !strings.Contains(p.printed(), " good, ") {
					t.Errorf("torture %d %d %d on %s: %v\n%s", seed, steps/threads, threads, host, err, p.printed())
					return
				}
				t.Logf("seed %d, %d threads on %s: %s", seed, threads, host, p.printed())
			}
		})
	}
	wg.Wait()
	// The fabric and its hosts are as good as before.
	for _, host := range []string{"h1", "h2"} {
		w.run(t, host, check)
	}
}

// TestTortureMortal ends the fabric under programs that do anything: calls fail with EIO, an event says why, and
// everything can still be destroyed.
func TestTortureMortal(t *testing.T) {
	torture := compile(t, "torture.c")
	for n := range 3 {
		w := newWorld(t, "star:2")
		var ps []*program
		for i, host := range []string{"h1", "h2"} {
			ps = append(ps, w.start(t, host, torture, strconv.Itoa(10*n+i), "3000", "2", "mortal"))
		}
		for _, p := range ps {
			p.await("under way")
		}
		w.end()
		for _, p := range ps {
			p.finish()
		}
	}
}
