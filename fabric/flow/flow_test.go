package flow

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
)

// fair computes max-min fair rates from scratch, one link at a time. A message whose path has a link twice sends two
// parts there.
func fair(caps []float64, paths [][]int32, part float64) []float64 {
	rates := make([]float64, len(paths))
	done := make([]bool, len(paths))
	for left := len(paths); left > 0; {
		best, share := -1, math.Inf(1)
		for l, c := range caps {
			room, open := c, 0.0
			for f, p := range paths {
				for _, on := range p {
					switch {
					case on != int32(l):
					case done[f]:
						room -= rates[f] * part
					default:
						open += part
					}
				}
			}
			if open > 0 && room/open < share {
				best, share = l, room/open
			}
		}
		for f, p := range paths {
			if !done[f] && slices.Contains(p, int32(best)) {
				rates[f], done[f] = share, true
				left--
			}
		}
	}
	return rates
}

// TestFair holds rates that were computed step by step against those from scratch, while messages come and go: on links
// in no order, or on stretches of a long row, where a change here may go on link by link, with all of a message on each
// link, or a third.
func TestFair(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		caps := make([]float64, 3+r.IntN(12))
		row := seed%2 == 1
		if row {
			caps = make([]float64, 20)
		}
		for i := range caps {
			caps[i] = float64(1+r.IntN(4)) / 100
		}
		part, parts := 1.0, []float64(nil)
		if seed%4 > 1 {
			part = 1.0 / 3
			parts = slices.Repeat([]float64{part}, 2*len(caps))
		}
		n := New(caps)
		alive := map[uint32][]int32{}
		now, next := ib.Time(0), uint32(0)
		for step := range 80 {
			for range r.IntN(4) {
				path := []int32{}
				first := r.IntN(len(caps))
				for l := range caps {
					if row && l >= first && l < first+1+r.IntN(4) || !row && r.IntN(3) == 0 {
						path = append(path, int32(l))
						if parts != nil && r.IntN(2) == 0 {
							path = append(path, int32(l))
						}
					}
				}
				r.Shuffle(len(path), func(a, b int) { path[a], path[b] = path[b], path[a] })
				if len(path) == 0 {
					continue
				}
				n.Start(now, next, path, parts, float64(1+r.IntN(5000)), ib.Time(r.IntN(500)))
				alive[next] = path
				next++
			}
			at := n.NextDeadline()
			if at == ib.Never {
				continue
			}
			check(t, n, caps, alive, part, seed, step)
			now = at
			n.HandleTimeout(now)
			for _, ok := n.Poll(); ok; _, ok = n.Poll() {
			}
			on := map[uint32]bool{}
			for _, f := range n.ends {
				on[n.flows[f].id] = true
			}
			for id := range alive {
				if !on[id] {
					delete(alive, id)
				}
			}
		}
	}
}

// TestLocal: who comes and goes is no matter of those whose rates stay what they are, though links join all of them.
func TestLocal(t *testing.T) {
	const links = 1000
	caps := make([]float64, links)
	for i := range caps {
		caps[i] = float64(1 + i%2)
	}
	n := New(caps)
	for i := range uint32(links - 1) {
		n.Start(0, i, []int32{int32(i), int32(i + 1)}, nil, 1e6, 0)
	}
	n.NextDeadline()
	before := n.Stats().Touched
	n.Start(5, links, []int32{500}, nil, 1e3, 0)
	n.NextDeadline()
	if got := n.Stats().Touched - before; got == 0 || got > 20 {
		t.Errorf("one more message and %d rates were computed", got)
	}
}

func check(t *testing.T, n *Net, caps []float64, alive map[uint32][]int32, part float64, seed uint64, step int) {
	t.Helper()
	var ids []uint32
	var paths [][]int32
	for id, p := range alive {
		ids, paths = append(ids, id), append(paths, p)
	}
	want := fair(caps, paths, part)
	got := map[uint32]float64{}
	for _, f := range n.ends {
		got[n.flows[f].id] = n.flows[f].rate
	}
	if len(got) != len(ids) {
		t.Fatalf("seed %d, step %d: %d messages on links, want %d", seed, step, len(got), len(ids))
	}
	for i, id := range ids {
		if math.Abs(got[id]-want[i]) > 1e-9*want[i] {
			t.Fatalf("seed %d, step %d: message %d has %v, fair is %v", seed, step, id, got[id], want[i])
		}
	}
}

// TestArrivals wants times that can be computed by hand.
func TestArrivals(t *testing.T) {
	n := New([]float64{0.1, 0.05}) // 100 and 50 GB/s
	n.Start(0, 1, []int32{0}, nil, 1000, 7)
	n.Start(0, 2, []int32{0, 1}, nil, 1000, 9)
	// Each gets half of the first link until both are through at 20,000 ps.
	got := map[uint32]ib.Time{}
	for at := n.NextDeadline(); at != ib.Never; at = n.NextDeadline() {
		n.HandleTimeout(at)
		for a, ok := n.Poll(); ok; a, ok = n.Poll() {
			if a.Step == Arrived {
				got[a.ID] = at
			}
		}
	}
	if got[1] != 20007 || got[2] != 20009 || n.Carried(0) != 2000 || n.Carried(1) != 1000 {
		t.Errorf("they arrive at %v, links carried %v and %v", got, n.Carried(0), n.Carried(1))
	}
	if !n.Idle() {
		t.Error("something is on its way")
	}
	n.Start(30000, 3, nil, nil, 0, 100)
	if a, ok := n.Poll(); !ok || a != (Arrival{3, Left}) {
		t.Errorf("a message without links: %+v", a)
	}
	if at := n.NextDeadline(); at != 30100 {
		t.Errorf("a message without links is there at %v", at)
	}
}
