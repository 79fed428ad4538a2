package route

import (
	"math/bits"
	"slices"

	"softib/proto/ib"
)

// drainTries is how often a set of destinations that close a cycle is cut in half before all of the rest is drained:
// each try looks at the whole graph.
const drainTries = 200

// drainCycles puts the channel dependencies together that packets can have during the transition, and drains
// destinations until there is no cycle.
func (t *transition) drainCycles() {
	g := NewCDG(t.n)
	// Destinations that don't change, in either way, have the ways of the old tables.
	mixed := make([]bool, len(t.n.Dests))
	for first := 0; first < len(t.destOf); first += BlockLIDs {
		t.find(first)
		for _, c := range t.changes {
			if d := t.destOf[c.lid]; d >= 0 {
				mixed[d] = true
			}
		}
	}
	for _, d := range t.levels {
		mixed[d] = true
	}
	w := newWalker(g.chart, t.old)
	var list []int32
	for _, d := range w.byLID {
		switch {
		case !t.n.Dests[d].IsEnd() || t.drained[t.n.Dests[d].LID]:
		case mixed[d]:
			list = append(list, d)
		default:
			w.load(int(d))
			g.addDest(w, int(d), EndTraffic)
		}
	}
	if !sameLanes(t.old.SLtoVL, t.new.SLtoVL) {
		for i := range t.n.Dests {
			t.drained[t.n.Dests[i].LID] = t.drained[t.n.Dests[i].LID] || t.n.Dests[i].IsEnd()
		}
		return
	}
	tries := 0
	t.admit(g, list, &tries)
	t.settleLevels()
}

// settleLevels wants that once all is done, packets that still have their old level do no harm; else destinations whose
// levels change are all drained, so that end ports ask again.
func (t *transition) settleLevels() {
	if len(t.levels) == 0 {
		return
	}
	g := NewCDG(t.n)
	g.Add(t.new, EndTraffic)
	for _, i := range t.levels {
		d := &t.n.Dests[i]
		if !d.IsEnd() || t.drained[d.LID] {
			continue
		}
		for s := range t.n.Switches {
			if t.n.Switches[s].Ends > 0 {
				t.addWay(g, t.new, int32(s), d, t.old.Level(int32(s), int(i)), -1, 0, 0)
			}
		}
	}
	if g.Cycle() == nil {
		return
	}
	for _, i := range t.levels {
		t.drained[t.n.Dests[i].LID] = t.drained[t.n.Dests[i].LID] || t.n.Dests[i].IsEnd()
	}
}

// sameLanes reports whether two maps give the same lanes. A map that can tell has a method for it.
func sameLanes(a, b LaneMap) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	same, ok := a.(interface{ SameLanes(LaneMap) bool })
	return ok && same.SameLanes(b)
}

// lane is the lane of a packet during the transition, which came on another.
func (t *transition) lane(x int32, in, out ib.PortNum, sl ib.SL, came ib.VL) ib.VL {
	if t.old.SLtoVL == nil {
		return ib.VL(sl) & (lanesMax - 1)
	}
	return t.old.turn(x, in, out, sl, came)
}

// admit adds destinations to a graph that has no cycle, as many as leave it without one, and drains the others.
func (t *transition) admit(g *CDG, list []int32, tries *int) {
	if len(list) == 0 {
		return
	}
	*tries++
	before := g.save()
	if *tries <= drainTries {
		for _, d := range list {
			t.addMixed(g, d)
		}
		if g.Cycle() == nil {
			return
		}
	}
	if len(list) > 1 && *tries <= drainTries {
		g.planes = before
		t.admit(g, list[:len(list)/2], tries)
		t.admit(g, list[len(list)/2:], tries)
		return
	}
	g.planes = before
	for _, d := range list {
		t.drained[t.n.Dests[d].LID] = true
	}
}

// save copies the dependencies.
func (g *CDG) save() (planes [lanesMax][lanesMax][]uint64) {
	for a := range g.planes {
		for b := range g.planes[a] {
			planes[a][b] = slices.Clone(g.planes[a][b])
		}
	}
	return planes
}

// addMixed adds the dependencies of packets to one destination: on old entries up to any switch that changes and on new
// entries from there on, with the old service level or the new one.
func (t *transition) addMixed(g *CDG, dest int32) {
	clear(t.usedNew)
	t.mark(t.new, t.n.Dests[dest].LID, t.usedNew)
	defer clear(t.usedNew)
	for s := range t.n.Switches {
		if t.n.Switches[s].Ends == 0 {
			continue
		}
		a, b := t.old.Level(int32(s), int(dest)), t.new.Level(int32(s), int(dest))
		t.addFlow(g, int32(s), dest, a)
		if b != a {
			t.addFlow(g, int32(s), dest, b)
		}
	}
}

func (t *transition) addFlow(g *CDG, from, dest int32, sl ib.SL) {
	d := &t.n.Dests[dest]
	t.addWay(g, t.new, from, d, sl, -1, 0, 0)
	x, ch, in, lanes := from, int32(-1), ib.PortNum(0), uint16(0)
	for range len(t.n.Switches) {
		if x == d.Switch {
			return
		}
		p := t.entry(t.old, x, d.LID)
		if t.entry(t.new, x, d.LID) != p && ch >= 0 && t.usedNew[x] {
			t.addWay(g, t.new, x, d, sl, ch, in, lanes)
		}
		to := t.next(x, p)
		if to == NoSwitch {
			return
		}
		ch, in, lanes = t.addHop(g, x, p, sl, ch, in, lanes)
		x = to
	}
}

// addWay adds the way by some tables from a switch, where the packet holds a channel already unless ch is -1.
func (t *transition) addWay(g *CDG, of *Tables, x int32, d *Dest, sl ib.SL, ch int32, in ib.PortNum, lanes uint16) {
	for range len(t.n.Switches) {
		if x == d.Switch {
			return
		}
		p := t.entry(of, x, d.LID)
		to := t.next(x, p)
		if to == NoSwitch {
			return
		}
		ch, in, lanes = t.addHop(g, x, p, sl, ch, in, lanes)
		x = to
	}
}

// addHop adds the dependency of the channel held on the one that leaves x by port p.
func (t *transition) addHop(g *CDG, x int32, p ib.PortNum, sl ib.SL, ch int32, in ib.PortNum, lanes uint16) (int32,
	ib.PortNum, uint16) {
	var next uint16
	if ch >= 0 {
		for ; lanes != 0; lanes &= lanes - 1 {
			a := ib.VL(bits.TrailingZeros16(lanes))
			b := t.lane(x, in, p, sl, a)
			next |= 1 << b
			g.plane(a, b)[int(ch)*g.words+int(p>>6)] |= 1 << (p & 63)
		}
	} else {
		for _, end := range g.ends[x] {
			next |= 1 << t.lane(x, end, p, sl, 0)
		}
	}
	return g.base[x] + int32(p), t.n.Switches[x].Ports[p].Port, next
}
