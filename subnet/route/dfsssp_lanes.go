package route

import (
	"math/bits"

	"softib/proto/ib"
)

// assignLanes gives every way between end ports a lane such that no lane has a cycle of dependencies. If one lane is
// enough all ways stay on it. Otherwise each way goes to the first lane that it closes no cycle on, and lanes that are
// left over take a share of the fullest ones: a part of a set of ways without a cycle has none either. Lanes are
// counted on up to most, so that the error can say how many it takes.
func assignLanes(c *chart, t *Tables, lanes, most int) error {
	g := newCDG(c)
	g.Add(t, EndTraffic)
	if g.Cycle() == nil {
		return nil
	}
	a := &laneAssigner{chart: c, t: t, w: newWalker(c, t), order: c.channelOrder(c.heights(nil)),
		in: make([]uint16, c.switches()), most: most}
	t.SL = make([][]ib.SL, c.switches())
	for s := range t.SL {
		t.SL[s] = make([]ib.SL, len(c.n.Dests))
	}
	for _, d := range a.w.byLID {
		if c.n.Dests[d].IsEnd() && !a.place(int(d), true) {
			return tooFewLanes(t.Engine, lanes, most+1)
		}
	}
	if len(a.graphs) > lanes {
		return tooFewLanes(t.Engine, lanes, len(a.graphs))
	}
	a.share(lanes)
	for _, d := range a.w.byLID {
		if !c.n.Dests[d].IsEnd() {
			a.place(int(d), false)
		}
	}
	return nil
}

// laneAssigner puts ways on lanes, one graph for each.
type laneAssigner struct {
	*chart
	t      *Tables
	w      *walker
	order  []int32
	most   int
	graphs []*depOrder
	// ways counts the ways between end ports on each lane.
	ways [lanesMax]int64
	// in has for each switch a bit for every lane that holds its whole way to the loaded destination.
	in []uint16
	// added are the dependencies that the way at hand has brought in so far.
	added [][2]int32
}

// place chooses lanes for the ways to a destination from all switches that have end ports. With grow it may use
// another lane and fails if there are none left; without, ways that fit nowhere go to lane 0.
func (a *laneAssigner) place(dest int, grow bool) bool {
	w := a.w
	w.load(dest)
	for _, u := range w.order {
		v := u
		if w.via[u] >= 0 {
			v = w.to[w.via[u]]
		}
		if u == v || w.via[v] < 0 {
			a.in[u] = 1<<lanesMax - 1 // at most one link: nothing waits
		} else {
			a.in[u] = 0
			for l, g := range a.graphs {
				if a.in[v]&(1<<l) != 0 && g.has(w.via[u], w.via[v]) {
					a.in[u] |= 1 << l
				}
			}
		}
		if a.n.Switches[u].Ends == 0 {
			continue
		}
		if a.in[u] == 0 && !a.fit(u, grow) && grow {
			return false
		}
		l := 0
		if a.in[u] != 0 {
			l = bits.TrailingZeros16(a.in[u])
		}
		a.t.SL[u][dest] = ib.SL(l)
		if grow {
			a.ways[l] += int64(a.n.Switches[u].Ends)
		}
	}
	return true
}

// fit brings the way from a switch into the first lane that takes it.
func (a *laneAssigner) fit(u int32, grow bool) bool {
	for l := range a.most {
		if l == len(a.graphs) {
			if !grow {
				return false
			}
			a.graphs = append(a.graphs, newDepOrder(a.chart, a.order))
		}
		if a.try(a.graphs[l], u) {
			for x := u; a.w.via[x] >= 0; x = a.w.to[a.w.via[x]] {
				a.in[x] |= 1 << l
			}
			return true
		}
	}
	return false
}

// try adds the dependencies of a way to a graph, all of them or none.
func (a *laneAssigner) try(g *depOrder, u int32) bool {
	w := a.w
	a.added = a.added[:0]
	for x := w.via[u]; ; {
		y := w.via[w.to[x]]
		if y < 0 {
			return true
		}
		if !g.has(x, y) {
			if g.isShut(x, y) || !g.add(x, y) {
				for _, dep := range a.added {
					g.remove(dep[0], dep[1])
				}
				// If it closes a cycle without those before it too, it does so for good.
				if len(a.added) > 0 && !g.isShut(x, y) && g.add(x, y) {
					g.remove(x, y)
				} else {
					g.closeOff(x, y)
				}
				return false
			}
			a.added = append(a.added, [2]int32{x, y})
		}
		x = y
	}
}

// share gives the lanes that are left over to those that have most ways, which then split by destination.
func (a *laneAssigner) share(lanes int) {
	used := len(a.graphs)
	var parts [lanesMax][]ib.SL
	for l := range used {
		parts[l] = []ib.SL{ib.SL(l)}
	}
	for l := used; l < lanes; l++ {
		fullest := 0
		for m := range used {
			if a.ways[m]*int64(len(parts[fullest])) > a.ways[fullest]*int64(len(parts[m])) {
				fullest = m
			}
		}
		parts[fullest] = append(parts[fullest], ib.SL(l))
	}
	a.t.VLs = max(lanes, used)
	for s, row := range a.t.SL {
		if a.n.Switches[s].Ends == 0 {
			a.t.SL[s] = nil
			continue
		}
		ends := 0
		for d, sl := range row {
			if a.n.Dests[d].IsEnd() {
				row[d] = parts[sl][ends%len(parts[sl])]
				ends++
			}
		}
	}
}
