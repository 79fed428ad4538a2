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
	count := max(3*window, 24_000)
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
	// Between the first third and the last of them all queue pairs have something to do.
	var ends []ib.Time
	for _, m := range r.Messages {
		ends = append(ends, m.Arrived)
	}
	slices.Sort(ends)
	from, to := count/3, count-window
	if to <= from+count/4 {
		to = 2 * count / 3
	}
	stats, _ := n.AdapterStats()
	return float64(to-from) / (float64(ends[to]-ends[from]) / float64(ib.Second)) / 1e6, stats
}

func TestAdapterRates(t *testing.T) {
	m, _ := nic.Find("cx6")
	for _, c := range []struct {
		qps         int
		read, write float64 // millions a second, as published
	}{{32, 83, 123}, {64, 55, 121}, {512, 42, 122}, {4096, 21, 111}} {
		r, s := rate(t, m.Config, c.qps, true)
		w, ws := rate(t, m.Config, c.qps, false)
		t.Logf("%5d: READ %.1f (%v) WRITE %.1f (%v)\n%+v\n%+v", c.qps, r, c.read, w, c.write, s, ws)
	}
}
