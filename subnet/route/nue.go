package route

import (
	"slices"

	"softib/proto/ib"
)

// nue routes within the channel dependency graph itself: a way is only taken if the dependencies that it brings close
// no cycle (Domke, Hoefler and Matsuoka, HPDC 2016). It therefore fits any network with any number of lanes. The
// destinations are dealt out to the lanes, and each lane has its own graph. Where a destination cannot be reached from
// everywhere, the ways to it are first bent around the trouble, and if that does not help those that have to follow a
// spanning tree, whose dependencies are in the graph from the start.
//
// Two things differ from the paper. Only packets that end ports send count, so a switch without end ports brings no
// dependencies before such packets pass it. And all destinations stay on one lane if that lane refuses nothing, as in
// trees.
type nue struct{}

// Name is what an operator types.
func (nue) Name() string { return "nue" }

// Compute gives the tables; it never fails.
func (nue) Compute(n *Network, o Options) (*Tables, error) {
	c := newChart(n)
	e := newNueRun(c, 1)
	e.strict = true
	if !e.routeAll() {
		e = newNueRun(c, lanesOf(o))
		e.penalty = uint64(e.meanLoad() / 8)
		e.routeAll()
	}
	return e.t, nil
}

// nueRun is one computation.
type nueRun struct {
	*spread
	// strict gives up at the first dependency that is refused.
	strict bool
	// penalty is by how many ways of load a way has to be better to bring new dependencies: each one rules out others
	// later.
	penalty uint64
	// lanes are the graphs with their escape trees, and laneOf the lane of each destination.
	lanes  []*nueLane
	laneOf []int32

	// The tree that grows: whether end ports' packets pass a switch, so that all dependencies of its way are in the
	// graph; how long the way is; the switches without a way that is as short as can be.
	live []bool
	far  []int32
	late []int32
	// heap are the ways that late switches might take.
	heap []lateWay
	// sorted is the order of a tree that is not made of shortest ways, and tries is attachAny's scratch.
	sorted []int32
	tries  []way

	// fresh are the dependencies and marked the live switches since the last begin; grown and refused are the
	// dependencies that the whole tree has brought and those that it was refused for good.
	fresh, grown, refused [][2]int32
	marked                []int32

	// hung is set once the tree uses the escape tree; fixed are the ways of that, and isFixed the switches that take
	// them. path is hang's scratch.
	hung    bool
	fixed   []int32
	isFixed []bool
	path    []int32

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
	e := &nueRun{spread: newSpread(c, t), laneOf: make([]int32, len(c.n.Dests)), live: make([]bool, c.switches()),
		far:   make([]int32, c.switches()),
		fixed: make([]int32, c.switches()), isFixed: make([]bool, c.switches())}
	for i, dests := range e.deal(lanes) {
		e.lanes = append(e.lanes, e.newLane(dests))
		for _, sw := range dests {
			for _, d := range e.bySwitch[sw] {
				e.laneOf[d] = int32(i)
			}
		}
	}
	return e
}

// meanLoad is about how many ways each link will carry.
func (e *nueRun) meanLoad() float64 {
	ways, links, samples := 0.0, 0, 0
	ends := 0
	for s := range e.n.Switches {
		ends += e.ends(int32(s))
	}
	for _, v := range e.to {
		if v >= 0 {
			links++
		}
	}
	step := max(len(e.bySwitch)/centreSamples, 1)
	for s := 0; s < e.switches(); s += step {
		e.aim(int32(s))
		for _, u := range e.order {
			ways += float64(e.hops[u]) * float64(e.n.Switches[u].Ends)
		}
		samples++
	}
	return ways / float64(max(samples, 1)) * float64(ends) / float64(max(links, 1))
}

// deal cuts the switches that have end ports into as many sets of neighbours as there are lanes, with about as many
// destinations each: destinations near each other share dependencies.
func (e *nueRun) deal(lanes int) [][]int32 {
	var all []int32
	for s := range e.bySwitch {
		if e.ends(int32(s)) > 0 {
			all = append(all, int32(s))
		}
	}
	return e.halve(all, lanes)
}

// halve cuts a set in two between two switches of it that are far apart, and the halves in turn.
func (e *nueRun) halve(set []int32, lanes int) [][]int32 {
	if lanes < 2 || len(set) < 2 {
		return [][]int32{set}
	}
	farthest := func(from int32) (int32, []int32) {
		dist := e.distances([]int32{from})
		best := from
		for _, s := range set {
			if dist[s] > dist[best] {
				best = s
			}
		}
		return best, dist
	}
	a, _ := farthest(set[0])
	b, toA := farthest(a)
	_, toB := farthest(b)
	slices.SortStableFunc(set, func(x, y int32) int { return int(toA[x]-toB[x]) - int(toA[y]-toB[y]) })
	total := 0
	for _, s := range set {
		total += e.ends(s)
	}
	cut, done := 0, 0
	for cut < len(set)-1 && done*lanes < total*(lanes/2) {
		done += e.ends(set[cut])
		cut++
	}
	cut = max(cut, 1)
	return append(e.halve(set[:cut:cut], lanes/2), e.halve(set[cut:], lanes-lanes/2)...)
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

// routeAll routes all destinations: end ports lane by lane, once more where links are used unevenly, then the switches
// themselves. It is false if strict and something was refused.
func (e *nueRun) routeAll() bool {
	for _, l := range e.lanes {
		for _, sw := range l.dests {
			if !e.routeEnds(sw, false) {
				return false
			}
		}
	}
	if !e.even() {
		for c := e.newContest(); c.another(); {
			for _, l := range e.lanes {
				for _, sw := range l.dests {
					if !e.routeEnds(sw, true) {
						return false
					}
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
		for i := range row {
			row[i] = ib.SL(e.laneOf[i])
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
func (e *nueRun) routeEnds(sw int32, again bool) bool {
	e.aim(sw)
	dests := e.bySwitch[sw][:e.ends(sw)]
	if again {
		e.fetch(dests)
	}
	for i, d := range dests {
		l := e.lanes[e.laneOf[d]]
		switch {
		case again:
			e.recall(i)
			e.sortTree()
			e.charge(-1)
			if !e.grow(l, true) {
				e.undoTree(l)
				e.recall(i)
				e.sortTree()
			}
		case !e.grow(l, false):
			return false
		}
		e.charge(1)
		e.keep(i, d)
	}
	e.flush(dests)
	return true
}

// routeSwitch routes a switch's own LIDs. Those of a switch with end ports go where the last of them goes, which is
// free of deadlock for the packets of all end ports. Ways to other switches are the shortest, and keep to dependencies
// that are there already where they can: nobody sends data to them.
func (e *nueRun) routeSwitch(sw int32, dests []int32) {
	ends := e.ends(sw)
	if ends == len(dests) {
		return
	}
	e.aim(sw)
	if ends > 0 {
		e.fetch(dests[ends-1 : ends])
		e.recall(0)
	} else {
		e.follow(e.lanes[0])
	}
	own := dests[ends:]
	for i, d := range own {
		if ends > 0 {
			e.laneOf[d] = e.laneOf[dests[ends-1]]
		}
		e.keep(i, d)
	}
	e.flush(own)
}

// follow picks shortest ways that bring as few new dependencies as can be, without adding them to the graph.
func (e *nueRun) follow(l *nueLane) {
	e.via[e.target], e.cost[e.target] = -1, 0
	for i := 1; i < len(e.order); i++ {
		best, by := uint64(pathless), int32(-1)
		for _, w := range e.ways[e.first[i]:e.first[i+1]] {
			c := e.cost[w.to]
			if y := e.via[w.to]; y >= 0 && !l.has(w.ch, y) {
				c++
			}
			if c < best {
				best, by = c, w.ch
			}
		}
		u := e.order[i]
		e.via[u], e.cost[u] = by, best
	}
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
