package route

import (
	"slices"

	"softib/ib"
)

// nue routes within the channel dependency graph itself: a way is only taken if the dependencies that it brings close no cycle (Domke,
// Hoefler and Matsuoka, HPDC 2016). It therefore fits any network with any number of lanes. The destinations are dealt out to the
// lanes, and each lane has its own graph. Where a destination cannot be reached from everywhere, the ways to it
// are first bent around the trouble, and if that does not help they follow a spanning tree, whose dependencies are in the graph from the start.
//
// Two things differ from the paper. Only packets that end ports send count, so a switch without end ports brings no
// dependencies before such packets pass it. And all destinations stay on one lane if that lane refuses nothing, as in trees.
type nue struct{}

// Name is what an operator types.
func (nue) Name() string { return "nue" }

// Compute gives the tables; it never fails.
func (nue) Compute(n *Network, o Options) (*Tables, error) {
	c := newChart(n)
	lanes := lanesOf(o)
	if lanes > 1 {
		e := newNueRun(c, 1)
		e.strict = true
		if e.routeAll() {
			return e.t, nil
		}
	}
	e := newNueRun(c, lanes)
	e.routeAll()
	return e.t, nil
}

// nueRun is one computation.
type nueRun struct {
	*spread
	// strict gives up at the first dependency that is refused.
	strict bool
	// lanes are the graphs with their escape trees, and laneOf the lane of each switch's destinations.
	lanes  []*nueLane
	laneOf []int32

	// The tree that grows: whether end ports' packets pass a switch, so that all dependencies of its way are in the graph; how
	// long the way is; the switches without a way that is as short as can be.
	live []bool
	far  []int32
	late []int32
	// heap are the ways that late switches might take.
	heap []lateWay
	// behind is the order of a tree that is not made of shortest ways.
	sorted []int32
	tries  []way

	// fresh are the dependencies, shut the refusals and marked the live switches since the last begin; grown and refused are those of
	// the whole tree.
	fresh, grown, refused [][2]int32
	marked                []int32

	// What became of trees, for tests and reports: how many bent, how many fell back to the escape tree.
	bent, escaped int
}

// nueLane is the dependency graph of a lane, and the spanning tree that its ways can always fall back to.
type nueLane struct {
	*depOrder
	// dests are the switches whose end ports the lane leads to.
	dests []int32
	// up is the channel towards the root of the switch's part of the network, -1 at a root.
	up []int32
}

func newNueRun(c *chart, lanes int) *nueRun {
	t := &Tables{Engine: "nue", VLs: 1}
	e := &nueRun{spread: newSpread(c, t), laneOf: make([]int32, c.switches()), live: make([]bool, c.switches()), far: make([]int32, c.switches())}
	for i, dests := range e.deal(lanes) {
		e.lanes = append(e.lanes, e.newLane(dests))
		for _, sw := range dests {
			e.laneOf[sw] = int32(i)
		}
	}
	return e
}

// deal cuts the switches that have end ports into as many sets of neighbours as there are lanes, with about as many destinations each.
func (e *nueRun) deal(lanes int) [][]int32 {
	total := 0
	var order []int32
	seen := make([]bool, e.switches())
	for s := range seen {
		if seen[s] {
			continue
		}
		// A walk in width from a rim of the part keeps neighbours together.
		reach := e.reachFrom(e.reachFrom(int32(s))[0])
		slices.Reverse(reach)
		for _, u := range reach {
			seen[u] = true
			if k := e.ends(u); k > 0 {
				order = append(order, u)
				total += k
			}
		}
	}
	sets := make([][]int32, 1, lanes)
	done := 0
	for _, u := range order {
		if last := len(sets); last < lanes && len(sets[last-1]) > 0 && done*lanes >= total*last {
			sets = append(sets, nil)
		}
		sets[len(sets)-1] = append(sets[len(sets)-1], u)
		done += e.ends(u)
	}
	return sets
}

// ends counts the destinations of a switch that are end ports.
func (e *nueRun) ends(s int32) int {
	count := 0
	for _, d := range e.bySwitch[s] {
		if e.n.Dests[d].IsEnd() {
			count++
		}
	}
	return count
}

// reachFrom lists the switches that a switch reaches, the farthest first.
func (e *nueRun) reachFrom(s int32) []int32 {
	e.aim(s)
	list := slices.Clone(e.order)
	slices.Reverse(list)
	return list
}

// routeAll routes all destinations: end ports lane by lane, once more where links are used unevenly, then the switches
// themselves. It is false if strict and something was refused.
func (e *nueRun) routeAll() bool {
	for _, l := range e.lanes {
		for _, sw := range l.dests {
			if !e.routeEnds(l, sw, false) {
				return false
			}
		}
	}
	if !e.even() {
		for _, l := range e.lanes {
			for _, sw := range l.dests {
				if !e.routeEnds(l, sw, true) {
					return false
				}
			}
		}
	}
	e.strict = false
	for sw, dests := range e.bySwitch {
		e.routeSwitch(int32(sw), dests)
	}
	if len(e.lanes) > 1 {
		e.t.VLs = len(e.lanes)
		row := make([]ib.SL, len(e.n.Dests))
		for i, d := range e.n.Dests {
			row[i] = ib.SL(e.laneOf[d.Switch])
		}
		// The level depends on the destination alone: all switches share the row.
		e.t.SL = make([][]ib.SL, e.switches())
		for s := range e.t.SL {
			e.t.SL[s] = row
		}
	}
	return true
}

// routeEnds routes the end ports of a switch; again, if they have ways already.
func (e *nueRun) routeEnds(l *nueLane, sw int32, again bool) bool {
	e.aim(sw)
	dests := e.bySwitch[sw][:e.ends(sw)]
	if again {
		e.fetch(dests)
	}
	for i, d := range dests {
		if again {
			e.recall(i)
			e.sortTree()
			e.charge(-1)
		}
		switch {
		case e.grow(l, again):
		case e.strict:
			return false
		case again:
			e.undoTree(l)
			e.recall(i)
			e.sortTree()
		default:
			e.undoTree(l)
			e.escape(l, sw)
			e.sortTree()
			e.escaped++
		}
		e.charge(1)
		e.keep(i, d)
	}
	e.flush(dests)
	return true
}

// routeSwitch routes a switch's own LIDs. Those of a switch with end ports go where the last of them goes, which is free of
// deadlock for the packets of all end ports. For other switches it is tried; if it fails the
// ways are the shortest, because nobody sends data to them.
func (e *nueRun) routeSwitch(sw int32, dests []int32) {
	ends := e.ends(sw)
	if ends == len(dests) {
		return
	}
	e.aim(sw)
	l := e.lanes[e.laneOf[sw]]
	if ends > 0 {
		e.fetch(dests[ends-1 : ends])
		e.recall(0)
	} else if !e.grow(l, false) {
		e.undoTree(l)
		e.pick(false)
	}
	own := dests[ends:]
	for i, d := range own {
		e.keep(i, d)
	}
	e.flush(own)
}

// sortTree puts the switches into an order in which each one is behind the one that it forwards to.
func (e *nueRun) sortTree() {
	e.sorted = append(e.sorted[:0], e.target)
	for _, u := range e.order {
		e.far[u] = -1
	}
	e.far[e.target] = 0
	for _, u := range e.order {
		start := len(e.sorted)
		for x := u; e.far[x] < 0; x = e.to[e.via[x]] {
			e.far[x] = 0
			e.sorted = append(e.sorted, x)
		}
		slices.Reverse(e.sorted[start:])
	}
	e.tree = e.sorted
}
