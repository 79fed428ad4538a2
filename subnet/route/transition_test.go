package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
)

// moments plays a plan in some order of its writes and keeps the tables after each, until packets are drained.
type moments struct {
	n        *Network
	old, new *Tables
	states   [][][]ib.PortNum
	// asked says that end ports use the new levels towards drained destinations.
	drained map[int32]bool
	asked   bool
}

func cloneLFT(lft [][]ib.PortNum) [][]ib.PortNum {
	c := make([][]ib.PortNum, len(lft))
	for s := range lft {
		c[s] = slices.Clone(lft[s])
	}
	return c
}

func (m *moments) play(t *testing.T, p Plan, rng *rand.Rand) {
	t.Helper()
	now := cloneLFT(m.old.LFT)
	m.drained, m.asked = map[int32]bool{}, false
	for _, d := range p.Drained {
		m.drained[d] = true
	}
	m.states = [][][]ib.PortNum{cloneLFT(now)}
	for _, r := range p.Rounds {
		for _, i := range rng.Perm(len(r.Writes)) {
			w := r.Writes[i]
			for k, port := range w.Entries {
				if lid := w.Block*BlockLIDs + k; lid < len(now[w.Switch]) {
					now[w.Switch][lid] = port
				}
			}
			m.states = append(m.states, cloneLFT(now))
			m.noLoop(t, now)
		}
		if r.Drain {
			m.noCircle(t)
			m.states = m.states[len(m.states)-1:]
			m.asked = true
		}
	}
	m.noCircle(t)
	for s := range now {
		if !slices.Equal(now[s], m.new.LFT[s]) {
			t.Fatalf("switch %d does not end with its new entries", s)
		}
	}
}

// noLoop wants that no packet goes round with the tables of a moment.
func (m *moments) noLoop(t *testing.T, lft [][]ib.PortNum) {
	t.Helper()
	for _, d := range m.n.Dests {
		for s := range m.n.Switches {
			at := int32(s)
			for step := 0; at != d.Switch; step++ {
				p := lft[at][d.LID]
				if p == NoPort || m.n.Switches[at].Ports[p].To == NoSwitch {
					break
				}
				if at = m.n.Switches[at].Ports[p].To; step > len(lft) {
					t.Fatalf("a packet from switch %d to LID %d goes round", s, d.LID)
				}
			}
		}
	}
}

// heldLane is a channel and its lane.
type heldLane struct {
	Link
	vl ib.VL
}

// noCircle wants that packets which move at any pace through the moments since the last drain never wait for each other
// in a circle.
func (m *moments) noCircle(t *testing.T) {
	t.Helper()
	deps := map[heldLane]map[heldLane]bool{}
	for i, d := range m.n.Dests {
		if !d.IsEnd() {
			continue
		}
		for s := range m.n.Switches {
			if m.n.Switches[s].Ends == 0 {
				continue
			}
			was, will := m.old.Level(int32(s), i), m.new.Level(int32(s), i)
			levels := []ib.SL{was, will}
			switch {
			case m.drained[int32(i)] && m.asked:
				levels = levels[1:]
			case was == will || len(m.drained) > 0 && !m.asked:
				levels = levels[:1]
			}
			for _, sl := range levels {
				m.flow(int32(s), d, sl, deps)
			}
		}
	}
	state := map[heldLane]int{}
	var visit func(h heldLane) bool
	visit = func(h heldLane) bool {
		state[h] = 1
		for next := range deps[h] {
			if state[next] == 1 || state[next] == 0 && visit(next) {
				return true
			}
		}
		state[h] = 2
		return false
	}
	for h := range deps {
		if state[h] == 0 && visit(h) {
			t.Fatalf("%s to %s: packets can wait for each other in a circle at %+v", m.old.Engine, m.new.Engine, h)
		}
	}
}

// flow adds what packets of one switch to one destination can hold and wait for. A packet that is at a switch at some
// moment can be there at any later one.
func (m *moments) flow(from int32, d Dest, sl ib.SL, deps map[heldLane]map[heldLane]bool) {
	type place struct {
		via  Link // NoSwitch at the source
		lane ib.VL
	}
	first := map[place]int{{via: Link{Switch: NoSwitch}}: 0}
	work := []place{{via: Link{Switch: NoSwitch}}}
	for len(work) > 0 {
		at := work[0]
		work = work[1:]
		sw, in := from, ib.PortNum(0)
		if at.via.Switch != NoSwitch {
			hop := m.n.Switches[at.via.Switch].Ports[at.via.Port]
			sw, in = hop.To, hop.Port
		} else {
			for _, e := range m.n.Dests {
				if e.Switch == from && e.IsEnd() {
					in = e.Port
				}
			}
		}
		if sw == d.Switch {
			continue
		}
		for moment := first[at]; moment < len(m.states); moment++ {
			p := m.states[moment][sw][d.LID]
			if p == NoPort || m.n.Switches[sw].Ports[p].To == NoSwitch {
				continue
			}
			to := place{Link{sw, p}, m.lane(sw, in, p, sl)}
			if at.via.Switch != NoSwitch {
				h := heldLane{at.via, at.lane}
				if deps[h] == nil {
					deps[h] = map[heldLane]bool{}
				}
				deps[h][heldLane{to.via, to.lane}] = true
			}
			if was, seen := first[to]; !seen || moment < was {
				first[to] = moment
				work = append(work, to)
			}
		}
	}
}

// lane is that of the maps in force: the new ones once all is drained for them.
func (m *moments) lane(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	lanes := m.old.SLtoVL
	if m.asked {
		lanes = m.new.SLtoVL
	}
	if lanes == nil {
		return ib.VL(sl)
	}
	return lanes.VL(sw, in, out, sl)
}

// TestTransition goes from table set to table set as cables are lost and returned, and from engine to engine.
func TestTransition(t *testing.T) {
	shapes := []string{"fat-tree:radix=4,levels=2", "fat-tree:radix=4,levels=3,hosts=12", "fat-tree:radix=6,levels=2",
		"ring:5", "mesh:3x3", "random:switches=8,hosts=10,seed=3", "torus:3x3", "torus:4x3", "ring:6"}
	engines := [][2]Engine{{fatTree{}, fatTree{}}, {upDown{}, upDown{}}, {fatTree{}, upDown{}}, {upDown{}, dfsssp{}},
		{dfsssp{}, upDown{}}, {dfsssp{}, dfsssp{}}, {dimOrder{}, dimOrder{}}, {upDown{}, dimOrder{}}, {nue{}, nue{}}}
	drained, plans := 0, 0
	for seed := range uint64(160) {
		rng := rand.New(rand.NewPCG(seed, 21))
		full := netOf(t, shapes[rng.IntN(len(shapes))])
		pair := engines[rng.IntN(len(engines))]
		before := RemoveLinks(full, float64(rng.IntN(4))*0.06, rng)
		after := RemoveLinks(full, float64(rng.IntN(4))*0.06, rng)
		old, err := pair[0].Compute(before, Options{})
		if err != nil {
			continue
		}
		new, err := pair[1].Compute(after, Options{})
		if err != nil {
			continue
		}
		if Judge(after, new, JudgeOptions{Shifts: 1, Randoms: -1}).Cycle != nil {
			continue
		}
		t.Run(fmt.Sprintf("%s-%s/%d", old.Engine, new.Engine, seed), func(t *testing.T) {
			p := Transition(after, old, new)
			plans++
			drained += len(p.Drained)
			(&moments{n: after, old: old, new: new}).play(t, p, rng)
		})
	}
	if plans < 60 {
		t.Errorf("only %d plans were played", plans)
	}
	t.Logf("%d plans, %d destinations drained", plans, drained)
}

// TestTransitionRepair plays what a manager does after a lost cable: no destination has to be drained.
func TestTransitionRepair(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=4,levels=3", "fat-tree:radix=6,levels=2"} {
		n := netOf(t, spec)
		old := ftreeOf(t, n)
		for i, l := range n.Links() {
			next := n.Clone()
			next.Cut(l)
			rep, err := Repair(next, old, Options{})
			if err != nil {
				t.Fatal(err)
			}
			p := Transition(next, old, rep.Tables)
			if len(p.Drained) > 0 || len(p.Rounds) == 0 {
				t.Errorf("%s: link %v: %d rounds, drained %v", spec, l, len(p.Rounds), p.Drained)
			}
			(&moments{n: next, old: old, new: rep.Tables}).play(t, p, rand.New(rand.NewPCG(uint64(i), 1)))
			// And back, when the cable returns.
			p = Transition(n, rep.Tables, old)
			(&moments{n: n, old: rep.Tables, new: old}).play(t, p, rand.New(rand.NewPCG(uint64(i), 2)))
		}
	}
}

func TestTransitionCold(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=2")
	tab := ftreeOf(t, n)
	p := Transition(n, nil, tab)
	if len(p.Rounds) != 1 || p.Writes() != len(n.Switches)*(int(n.Top)/BlockLIDs+1) {
		t.Errorf("%d rounds, %d writes", len(p.Rounds), p.Writes())
	}
	if p := Transition(n, tab, tab); len(p.Rounds) != 0 {
		t.Errorf("from tables to themselves: %d rounds", len(p.Rounds))
	}
}

// TestTransitionReversedRing drains where it must: all ways of a ring turn round.
func TestTransitionReversedRing(t *testing.T) {
	n := netOf(t, "ring:6")
	tables := func(roots int32) *Tables {
		tab, err := upDown{}.Compute(n, Options{Roots: []int32{roots}})
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	old, new := tables(0), tables(3)
	p := Transition(n, old, new)
	if len(p.Drained) == 0 {
		t.Error("nothing was drained, yet both roots' ways together close the ring")
	}
	for seed := range uint64(20) {
		(&moments{n: n, old: old, new: new}).play(t, p, rand.New(rand.NewPCG(seed, 3)))
	}
}

// TestTransitionOpensSoon wants that what is drained is open again one round after the wait: in a ring that has lost a
// cable the ways to switches take a round for every other hop.
func TestTransitionOpensSoon(t *testing.T) {
	ring := netOf(t, "ring:12")
	line := ring.Clone()
	line.Cut(ring.Links()[0])
	var tabs [2]*Tables
	for i, n := range []*Network{ring, line} {
		var err error
		if tabs[i], err = (minHop{}).Compute(n, Options{VLs: 8}); err != nil {
			t.Fatal(err)
		}
	}
	p := Transition(line, tabs[0], tabs[1])
	if len(p.Drained) == 0 || len(p.Rounds) < 3 || !p.Rounds[0].Drain {
		t.Fatalf("%d rounds, drained %v: want some of both", len(p.Rounds), p.Drained)
	}
	now := cloneLFT(tabs[0].LFT)
	for _, r := range p.Rounds[:2] {
		for _, w := range r.Writes {
			copy(now[w.Switch][w.Block*BlockLIDs:], w.Entries[:])
		}
	}
	for _, d := range p.Drained {
		lid := line.Dests[d].LID
		for s := range now {
			if now[s][lid] != tabs[1].LFT[s][lid] {
				t.Fatalf("switch %d: LID %d is still closed, or has its old way", s, lid)
			}
		}
	}
	(&moments{n: line, old: tabs[0], new: tabs[1]}).play(t, p, rand.New(rand.NewPCG(1, 4)))
}

func BenchmarkTransition(b *testing.B) {
	n := netOf(b, bigNet())
	old := ftreeOf(b, n)
	next := n.Clone()
	next.Cut(n.Links()[0])
	rep, err := Repair(next, old, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("repair", func(b *testing.B) {
		var p Plan
		for b.Loop() {
			p = Transition(next, old, rep.Tables)
		}
		b.ReportMetric(float64(len(p.Rounds)), "rounds")
		b.ReportMetric(float64(p.Writes()), "writes")
	})
	b.Run("full", func(b *testing.B) {
		damaged := RemoveLinks(n, 0.05, rand.New(rand.NewPCG(1, 1)))
		tab := ftreeOf(b, damaged)
		var p Plan
		for b.Loop() {
			p = Transition(n, tab, old)
		}
		b.ReportMetric(float64(len(p.Rounds)), "rounds")
		b.ReportMetric(float64(p.Writes()), "writes")
	})
}
