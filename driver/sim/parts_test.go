package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// TestParts: what happens does not depend on how many processors work on it.
func TestParts(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "torus:4x4", "dragonfly:p=2,a=4,h=2"} {
		t.Run(spec, func(t *testing.T) {
			var want string
			for cores := 1; cores <= 3; cores++ {
				l := newRCLoad(t, spec, cores)
				l.run(5 * ib.Microsecond)
				l.run(10 * ib.Microsecond)
				got := fmt.Sprintf("%x after %d hops", l.s.TraceHash(), l.s.Hops())
				if cores == 1 {
					want = got
				} else if got != want {
					t.Errorf("%d cores: %s; one: %s", cores, got, want)
				}
				if l.s.Hops() < 1000 {
					t.Errorf("%d hops: too little to tell", l.s.Hops())
				}
			}
		})
	}
}

// TestDivide: parts have as many hosts as each other, and each host is with its switch.
func TestDivide(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=16,levels=3", "torus:8x8", "dragonfly:p=4,a=8,h=4"} {
		g, err := topo.ParseSpec(spec)
		check(t, err)
		for n := 2; n <= 5; n++ {
			of := divide(g, n, nil)
			hosts := make([]int, n)
			switches := make([]int, n)
			for _, h := range g.Hosts() {
				hosts[of[h.Index]]++
				if of[h.Index] != of[leafOf(g, h).Index] {
					t.Errorf("%s: a host is in part %d, its switch in %d", spec, of[h.Index], of[leafOf(g, h).Index])
				}
			}
			for _, sw := range g.Switches() {
				switches[of[sw.Index]]++
			}
			for i := range n {
				if all := len(g.Hosts()); hosts[i] < all/n*8/10 || hosts[i] > all/n*12/10 {
					t.Errorf("%s in %d parts: %d hosts", spec, n, hosts)
				}
				if all := len(g.Switches()); switches[i] < all/n*7/10 || switches[i] > all/n*14/10 {
					t.Errorf("%s in %d parts: %d switches", spec, n, switches)
				}
			}
		}
	}
}

// TestSplitRefuses: what cannot be divided says so.
func TestSplitRefuses(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=2")
	check(t, err)
	s, err := New(g, Config{Seed: 1})
	check(t, err)
	if _, err := s.Split(2, nil); err == nil || !strings.Contains(err.Error(), "ByPlace") {
		t.Errorf("without ByPlace: %v", err)
	}
	l := newRCLoad(t, "fat-tree:radix=8,levels=2", 1)
	if _, err := l.s.Split(2, nil); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("with packets under way: %v", err)
	}
	l = newRCLoad(t, "fat-tree:radix=8,levels=2", 2)
	if _, err := l.s.Split(2, nil); err == nil {
		t.Error("a part was divided again")
	}
}

// TestPace: the quicker way is found, kept, and left when it is no more.
func TestPace(t *testing.T) {
	var c pace
	slices, tries := [2]int{}, 0
	run := func(alone, together time.Duration, n int) {
		slices, tries = [2]int{}, 0
		for range n {
			way, windows := c.choose()
			took := alone
			if way {
				took = together
			}
			if windows == try {
				tries++
			} else if way {
				slices[1]++
			} else {
				slices[0]++
			}
			c.note(way, took*time.Duration(windows), uint64(windows))
		}
	}
	run(200, 110, 1000)
	if slices[0] != 0 || tries > 20 {
		t.Errorf("on an idle machine %d slices alone, %d together, %d tries", slices[0], slices[1], tries)
	}
	run(200, 90000, 1000) // others want the processors
	if slices[1] > 2 || tries > 20 {
		t.Errorf("on a busy machine %d slices alone, %d together, %d tries", slices[0], slices[1], tries)
	}
	run(200, 110, 10000)
	if slices[0] > 5000 {
		t.Errorf("on one that is idle again %d slices alone, %d together", slices[0], slices[1])
	}
}
