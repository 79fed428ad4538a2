package sm

import (
	"slices"

	"softib/ib"
	"softib/mad"
)

// wiring is what routing looks at: switches by number, the cables between them that
// are up, and how many end ports hang on each.
type wiring struct {
	out    [][]edge // by switch, in the order of the ports
	ends   []uint32 // by switch
	stride int      // the highest port number, plus one
}

// edge is a cable between two switches, from its near end.
type edge struct {
	port ib.PortNum
	peer ib.PortNum // the far end
	to   int32
}

// dest is a LID and where it is: at a port of a switch, or at the switch itself
// where the port is 0.
type dest struct {
	lid  ib.LID
	sw   int32
	port ib.PortNum
}

// Routing names how the ways were chosen.
type Routing string

// How ways were chosen.
const (
	MinHop Routing = "min-hop" // every way between hosts is a shortest one
	UpDown Routing = "up/down" // some are longer, so that no deadlock can be
)

// routes are the result: the port of each LID, by switch.
type routes struct {
	lft     [][]ib.PortNum
	routing Routing
	dir     *direction
}

// far is the distance of what cannot be reached.
const far = int32(1) << 30

// direction says of every cable which end is the upper one. The order of
// heights is total, so there is no cycle of cables that go up: ways that go up first
// and then only down cannot wait for each other in a circle.
type direction struct {
	height   []int64
	up, down [][]edge
	topmost  []int32 // all switches, highest first
}

func newDirection(w *wiring, level []int32) *direction {
	n := len(w.out)
	d := &direction{height: make([]int64, n), up: make([][]edge, n), down: make([][]edge, n), topmost: make([]int32, n)}
	for s := range n {
		d.height[s] = int64(level[s])*int64(n) + int64(n-1-s)
		d.topmost[s] = int32(s)
	}
	slices.SortFunc(d.topmost, func(a, b int32) int { return int(d.height[b] - d.height[a]) })
	for s := range n {
		for _, e := range w.out[s] {
			if d.height[e.to] > d.height[s] {
				d.up[s] = append(d.up[s], e)
			} else {
				d.down[s] = append(d.down[s], e)
			}
		}
	}
	return d
}

// search is a breadth-first search from some switches at once; cables from one
// switch to itself lead nowhere new.
func search(out [][]edge, from []int32, dist []int32, queue []int32) []int32 {
	for i := range dist {
		dist[i] = far
	}
	queue = append(queue[:0], from...)
	for _, s := range from {
		dist[s] = 0
	}
	for at := 0; at < len(queue); at++ {
		s := queue[at]
		for _, e := range out[s] {
			if dist[e.to] == far {
				dist[e.to] = dist[s] + 1
				queue = append(queue, e.to)
			}
		}
	}
	return queue
}

// tierLevels ranks switches by their distance from the hosts, as the tiers of
// a tree are; false if two of one tier are cabled together, which no tree has.
func tierLevels(w *wiring) ([]int32, bool) {
	var edgeTier []int32
	for s, n := range w.ends {
		if n > 0 {
			edgeTier = append(edgeTier, int32(s))
		}
	}
	level := make([]int32, len(w.out))
	search(w.out, edgeTier, level, nil)
	for s := range level {
		if level[s] == far {
			level[s] = 0 // no host near: no way to a host goes through it
		}
	}
	for s := range w.out {
		for _, e := range w.out[s] {
			if level[e.to] == level[s] {
				return nil, false
			}
		}
	}
	return level, true
}

// rootLevels ranks switches by their distance from a root in the middle of
// each part of the fabric: every other switch then has a cable that goes up, and
// the root's ways go down to all.
func rootLevels(w *wiring) []int32 {
	n := len(w.out)
	level, dist, queue := make([]int32, n), make([]int32, n), make([]int32, 0, n)
	done := make([]bool, n)
	for s := range n {
		if done[s] {
			continue
		}
		// The middle of a way between two switches that are far apart.
		queue = search(w.out, []int32{int32(s)}, dist, queue)
		a := queue[len(queue)-1]
		queue = search(w.out, []int32{a}, dist, queue)
		root := queue[len(queue)-1]
		for half := dist[root] / 2; dist[root] > half; {
			for _, e := range w.out[root] {
				if dist[e.to] == dist[root]-1 {
					root = e.to
					break
				}
			}
		}
		queue = search(w.out, []int32{root}, dist, queue)
		deepest := dist[queue[len(queue)-1]]
		for _, t := range queue {
			level[t], done[t] = deepest-dist[t], true
		}
	}
	return level
}

// orient finds the direction of all cables: by tiers where they give legal ways
// between all hosts, else from a root.
func orient(w *wiring) *direction {
	if level, ok := tierLevels(w); ok {
		r := newRouter(w, newDirection(w, level))
		if r.legal() {
			return r.dir
		}
	}
	return newDirection(w, rootLevels(w))
}

// computeRoutes gives each destination a port at each switch that can reach it; LFTNone
// elsewhere. The destinations of one switch should be neighbours in dests.
func computeRoutes(w *wiring, dir *direction, dests []dest, top ib.LID) *routes {
	r := newRouter(w, dir)
	res := &routes{lft: make([][]ib.PortNum, len(w.out)), routing: MinHop, dir: dir}
	all := make([]ib.PortNum, len(w.out)*(int(top)+1))
	for i := range all {
		all[i] = mad.LFTNone
	}
	for s := range res.lft {
		res.lft[s] = all[s*(int(top)+1):][:int(top)+1]
	}
	shortest, queue := make([]int32, len(w.out)), []int32(nil)
	aimed := int32(-1)
	// Hosts before switches: what is spread evenly is the programs' traffic.
	for _, hosts := range [...]bool{true, false} {
		for i, d := range dests {
			if (d.port != 0) != hosts {
				continue
			}
			if d.sw != aimed {
				aimed = d.sw
				r.aim(d.sw)
				if hosts {
					queue = search(w.out, []int32{d.sw}, shortest, queue)
					for s := range shortest {
						if w.ends[s] > 0 && r.dist[s] != shortest[s] {
							res.routing = UpDown
						}
					}
				}
			}
			r.spread(d, i, res.lft)
		}
	}
	return res
}

// wayKind is how the ways from a switch go.
type wayKind uint8

const (
	goesUp   wayKind = iota // first up, then down
	goesDown                // down all the way
	strays                  // any way, for want of a legal one
)

// router finds the ways to one switch after another.
type router struct {
	w   *wiring
	dir *direction

	// The ways to the switch aimed at.
	dist  []int32
	queue []int32
	kind  []wayKind
	ways  []edge // equally short first steps, by switch
	first []int32
	order []int32 // the switches that reach it, farthest first
	count []int32

	load []uint64 // flows out of each port of each switch
	flow []uint32 // of end ports, through each switch
}

func newRouter(w *wiring, dir *direction) *router {
	n := len(w.out)
	return &router{
		w: w, dir: dir, dist: make([]int32, n), kind: make([]wayKind, n), first: make([]int32, n+1),
		load: make([]uint64, n*w.stride), flow: make([]uint32, n),
	}
}

// measure computes how far each switch is from d. A switch that can go down all the way does
// so, even if going up were shorter, since a packet that came down to it may
// not go up again and the table does not tell them apart. All others go up.
func (r *router) measure(d int32) {
	r.queue = search(r.dir.up, []int32{d}, r.dist, r.queue)
	clear(r.kind)
	for _, s := range r.queue {
		r.kind[s] = goesDown
	}
	for _, s := range r.dir.topmost {
		if r.kind[s] == goesDown {
			continue
		}
		for _, e := range r.dir.up[s] {
			r.dist[s] = min(r.dist[s], r.dist[e.to]+1)
		}
	}
}

// legal reports whether hosts reach each other by ways that go up and then down,
// as far as they reach each other at all.
func (r *router) legal() bool {
	part := components(r.w)
	for d := range r.w.out {
		if r.w.ends[d] == 0 {
			continue
		}
		r.measure(int32(d))
		for s := range r.dist {
			if r.w.ends[s] > 0 && r.dist[s] >= far && part[s] == part[d] {
				return false
			}
		}
	}
	return true
}

// components numbers the parts of the fabric that no cable joins.
func components(w *wiring) []int32 {
	part, dist := make([]int32, len(w.out)), make([]int32, len(w.out))
	for i := range part {
		part[i] = -1
	}
	var queue []int32
	for s := range part {
		if part[s] < 0 {
			queue = search(w.out, []int32{int32(s)}, dist, queue)
			for _, t := range queue {
				part[t] = int32(s)
			}
		}
	}
	return part
}

// aim finds the ways to d: at each switch the cables that lead one step closer.
func (r *router) aim(d int32) {
	r.measure(d)
	// Top switches of a tree don't reach each other by going up and down. Only
	// management goes there, which has a lane of its own: by the nearest switch
	// that has a way.
	r.resolveStrays()
	r.ways = r.ways[:0]
	for s := range r.dist {
		r.first[s] = int32(len(r.ways))
		if r.dist[s] >= far || int32(s) == d {
			continue
		}
		from := r.dir.up[s]
		switch r.kind[s] {
		case goesDown:
			from = r.dir.down[s]
		case strays:
			from = r.w.out[s]
		}
		for _, e := range from {
			if r.dist[e.to] == r.dist[s]-1 && (r.kind[s] != goesDown || r.kind[e.to] == goesDown) {
				r.ways = append(r.ways, e)
			}
		}
	}
	r.first[len(r.dist)] = int32(len(r.ways))
	r.sort()
}

// resolveStrays gives a distance to switches that have no legal way.
func (r *router) resolveStrays() {
	r.queue = r.queue[:0]
	for s, d := range r.dist {
		if d >= far {
			r.kind[s] = strays
			r.queue = append(r.queue, int32(s))
		}
	}
	for again := len(r.queue) > 0; again; {
		again = false
		for _, s := range r.queue {
			for _, e := range r.w.out[s] {
				if d := r.dist[e.to] + 1; d < r.dist[s] {
					r.dist[s], again = d, true
				}
			}
		}
	}
}

// sort puts the switches that have a way in r.order, farthest first.
func (r *router) sort() {
	r.count = r.count[:0]
	for _, d := range r.dist {
		if d > 0 && d < far {
			for int(d) >= len(r.count) {
				r.count = append(r.count, 0)
			}
			r.count[d]++
		}
	}
	at := int32(0)
	for d := len(r.count) - 1; d >= 0; d-- {
		r.count[d], at = at, at+r.count[d]
	}
	r.order = slices.Grow(r.order[:0], int(at))[:at]
	for s, d := range r.dist {
		if d > 0 && d < far {
			r.order[r.count[d]] = int32(s)
			r.count[d]++
		}
	}
}

// spread writes the ways to one LID at the switch aimed at: of equally short ones
// that with the least traffic so far, counted in pairs of end ports. Flows that
// have come together stay together, so that what counts is where they
// really pass, not where tables could send them.
func (r *router) spread(d dest, ordinal int, lft [][]ib.PortNum) {
	lft[d.sw][d.lid] = d.port
	copy(r.flow, r.w.ends)
	for _, s := range r.order {
		ways := r.ways[r.first[s]:r.first[s+1]]
		flow := uint64(r.flow[s])
		if d.port == 0 || flow == 0 {
			lft[s][d.lid] = ways[ordinal%len(ways)].port
			continue
		}
		load := r.load[int(s)*r.w.stride:][:r.w.stride]
		best := ways[0]
		for _, e := range ways[1:] {
			if load[e.port] < load[best.port] {
				best = e
			}
		}
		lft[s][d.lid] = best.port
		load[best.port] += flow
		r.flow[best.to] += uint32(flow)
	}
}
