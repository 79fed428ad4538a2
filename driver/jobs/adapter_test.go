package jobs

import (
	"fmt"
	"slices"
	"testing"

	"softib/job/load"
	"softib/job/play"
	"softib/node/nic"
	"softib/proto/ib"
	"softib/proto/topo"
)

// rate is how many messages of 64 bytes a second one host gets to or from another on so many queue pairs, 16 under way
// on each, when it has gone on for a while.
func rate(t *testing.T, cfg nic.Config, qps int, read bool) (float64, nic.Stats) {
	t.Helper()
	g, err := topo.ParseSpec("star:2,speed=HDR")
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFabric(g, Options{Adapter: cfg, Connections: Connections{QPs: qps, Batch: depth, Read: read}})
	if err != nil {
		t.Fatal(err)
	}
	window := depth * qps
	count := max(2*window, 16_000)
	l, err := load.Parse(fmt.Sprintf("outcast:receivers=1,size=64,count=%d,window=%d", count, window))
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), s, play.Model{}, n, Watch{})
	if err != nil {
		t.Fatal(err)
	}
	var ends []ib.Time
	for _, m := range r.Messages {
		ends = append(ends, m.Arrived)
	}
	slices.Sort(ends)
	// In the second quarter all queue pairs have something to do, and the caches have been filled.
	from, to := count/4, count/2
	stats, _ := n.AdapterStats()
	return float64(to-from) / (float64(ends[to]-ends[from]) / float64(ib.Second)) / 1e6, stats
}

// TestAdapterRates holds an adapter against what somebody has measured of two of the kind: see docs/VALIDATION.md.
func TestAdapterRates(t *testing.T) {
	long(t)
	m, _ := nic.Find("cx6")
	for _, c := range []struct {
		qps         int
		read, write float64 // millions a second, as measured
	}{{32, 83, 123}, {64, 55, 121}, {512, 42, 122}, {4096, 21, 111}} {
		t.Run(fmt.Sprint(c.qps), func(t *testing.T) {
			r, rs := rate(t, m.Config, c.qps, true)
			w, ws := rate(t, m.Config, c.qps, false)
			t.Logf("READ %.1f M/s (%v), WRITE %.1f (%v)", r, c.read, w, c.write)
			t.Logf("%+v", rs)
			t.Logf("%+v", ws)
			if r < 0.85*c.read || r > 1.15*c.read || w < 0.85*c.write || w > 1.15*c.write {
				t.Error("want 15 % at most between them")
			}
		})
	}
}

// TestSharedContexts reads on more queue pairs than an adapter has contexts for, and with the few contexts of dynamic
// connections.
func TestSharedContexts(t *testing.T) {
	long(t)
	m, _ := nic.Find("cx6")
	own, _ := rate(t, m.Config, 2048, true)
	m.Config.Shared = 64
	shared, s := rate(t, m.Config, 2048, true)
	t.Logf("READ %.1f M/s on contexts of their own, %.1f on 64 shared ones", own, shared)
	if shared < 1.4*own || s.ContextMisses > 1000 || s.Connects == 0 {
		t.Errorf("want 1.4 times as many at least: %+v", s)
	}
}
