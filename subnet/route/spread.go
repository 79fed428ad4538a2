package route

import (
	"slices"

	"softib/proto/ib"
)

// wayKind is how the ways from a switch go.
type wayKind uint8

const (
	goesUp   wayKind = iota // first up, then down
	goesDown                // down all the way
	strays                  // any way, for want of a legal one
)

// spreader finds the ways to one switch after another and shares them out: of equally short ones
// a destination gets that with the least traffic so far. Traffic is counted in pairs of end ports
// where they really pass: flows to one destination that have come together stay
// together, so that a table entry that nobody uses weighs nothing.
type spreader struct {
	n *Network
	w *adjacency
	// dir limits ways to those that go up and then down; nil: all shortest ways.
	dir *direction
	lft [][]ib.PortNum

	// The ways to the switch aimed at.
	dist  []int32
	queue []int32
	kind  []wayKind
	ways  []edge // equally short first steps, by switch
	first []int32
	order []int32 // the switches that reach it, farthest first
	count []int32

	load []uint64 // flows out of each port of each switch
	flow []uint32 // of end ports, through each switch to each destination of a group
	turn int
}

func newSpreader(n *Network, w *adjacency, dir *direction) *spreader {
	r := newSpreaderShape(w, dir)
	r.n, r.lft, r.load = n, newLFT(n), make([]uint64, len(w.out)*w.stride)
	return r
}

// newSpreaderShape makes one that only measures.
func newSpreaderShape(w *adjacency, dir *direction) *spreader {
	count := len(w.out)
	return &spreader{w: w, dir: dir, dist: make([]int32, count), kind: make([]wayKind, count),
		first: make([]int32, count+1)}
}

// all writes the ways to all destinations. End ports come before switches: what is spread evenly is the programs'
// traffic.
func (r *spreader) all() {
	list := groups(r.n)
	for pass := range spreadPasses {
		for _, g := range list {
			if len(g.ends) == 0 {
				continue
			}
			r.aim(g.sw)
			if pass > 0 {
				r.lift(g.ends)
			}
			r.spread(g.sw, g.ends)
			if pass == 0 {
				r.follow(g.sw, g.self)
			}
		}
	}
	for _, g := range list {
		if len(g.ends) == 0 {
			r.aim(g.sw)
			r.follow(g.sw, g.self)
		}
	}
}

// spreadPasses is how often the ways are chosen: at first each destination knows only those before it; then each is
// taken out and put in again where it is best among all others.
const spreadPasses = 3

// lift takes the ways to the end ports of the switch aimed at out of the loads.
func (r *spreader) lift(dests []int32) {
	k := len(dests)
	r.fillFlow(k)
	for _, s := range r.order {
		load := r.load[int(s)*r.w.stride:][:r.w.stride]
		flows, row := r.flow[int(s)*k:][:k], r.lft[s]
		for j, i := range dests {
			port := row[r.n.Dests[i].LID]
			load[port] -= uint64(flows[j])
			r.flow[int(r.n.Switches[s].Ports[port].To)*k+j] += flows[j]
		}
	}
}

// fillFlow starts the flows to k destinations at the switches that have end ports.
func (r *spreader) fillFlow(k int) {
	r.flow = slices.Grow(r.flow[:0], k*len(r.dist))[:k*len(r.dist)]
	for s, ends := range r.w.ends {
		row := r.flow[s*k:][:k]
		for i := range row {
			row[i] = ends
		}
	}
}

// measure computes how far each switch is from d. Where ways go up and down, a switch that can go down all the way does
// so, even if going up were shorter, since a packet that came down to it may
// not go up again and the table does not tell them apart. All others go up.
func (r *spreader) measure(d int32) {
	if r.dir == nil {
		r.queue = search(r.w.out, []int32{d}, r.dist, r.queue)
		return
	}
	r.queue = search(r.dir.up, []int32{d}, r.dist, r.queue)
	clear(r.kind)
	for _, s := range r.queue {
		r.kind[s] = goesDown
	}
	for _, s := range r.dir.topmost {
		if r.kind[s] == goesDown {
			continue
		}
		best := far
		for _, e := range r.dir.up[s] {
			best = min(best, r.dist[e.to])
		}
		if best < far {
			r.dist[s] = best + 1
		}
	}
}

// aim finds the ways to d: at each switch the cables that lead one step closer.
func (r *spreader) aim(d int32) {
	r.measure(d)
	if r.dir != nil {
		r.resolveStrays()
	}
	r.ways = r.ways[:0]
	for s := range r.dist {
		r.first[s] = int32(len(r.ways))
		if r.dist[s] >= far || int32(s) == d {
			continue
		}
		from := r.w.out[s]
		if r.dir != nil {
			switch r.kind[s] {
			case goesDown:
				from = r.dir.down[s]
			case goesUp:
				from = r.dir.up[s]
			}
		}
		for _, e := range from {
			if r.dist[e.to] == r.dist[s]-1 && (r.dir == nil || r.kind[s] != goesDown || r.kind[e.to] == goesDown) {
				r.ways = append(r.ways, e)
			}
		}
	}
	r.first[len(r.dist)] = int32(len(r.ways))
	r.sort()
}

// resolveStrays gives a distance to switches that have no legal way: top switches of a tree don't reach each other by
// going up and down. Only management goes there: by the nearest switch that has a way.
func (r *spreader) resolveStrays() {
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
func (r *spreader) sort() {
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

// spread writes the ways to the end ports of the switch aimed at. One
// switch after the other, so that the entries of a table are written together.
func (r *spreader) spread(d int32, dests []int32) {
	k := len(dests)
	r.fillFlow(k)
	for _, i := range dests {
		r.lft[d][r.n.Dests[i].LID] = r.n.Dests[i].Port
	}
	for _, s := range r.order {
		ways := r.ways[r.first[s]:r.first[s+1]]
		load := r.load[int(s)*r.w.stride:][:r.w.stride]
		flows, row := r.flow[int(s)*k:][:k], r.lft[s]
		for j, i := range dests {
			flow := uint64(flows[j])
			if flow == 0 || len(ways) == 1 {
				e := ways[0]
				if len(ways) > 1 {
					e = ways[(int(i)+int(s))%len(ways)]
				}
				row[r.n.Dests[i].LID] = e.port
				load[e.port] += flow
				r.flow[int(e.to)*k+j] += uint32(flow)
				continue
			}
			best := ways[0]
			least := load[best.port]
			for _, e := range ways[1:] {
				if l := load[e.port]; l <= least {
					// Of ways with the same load, that on which more of the same flows already are.
					if l < least || r.flow[int(e.to)*k+j] > r.flow[int(best.to)*k+j] {
						best, least = e, l
					}
				}
			}
			row[r.n.Dests[i].LID] = best.port
			load[best.port] += flow
			r.flow[int(best.to)*k+j] += uint32(flow)
		}
	}
}

// follow writes the ways to the LIDs of the switch aimed at itself, which carry little: by turns.
func (r *spreader) follow(d int32, dests []int32) {
	for _, i := range dests {
		lid := r.n.Dests[i].LID
		r.lft[d][lid] = 0
		r.turn++
		for _, s := range r.order {
			ways := r.ways[r.first[s]:r.first[s+1]]
			r.lft[s][lid] = ways[r.turn%len(ways)].port
		}
	}
}

// legal reports whether end ports reach each other by ways that go up and then down,
// as far as they reach each other at all; shortest, whether these ways are also the shortest there are.
func (r *spreader) legal() (legal, shortest bool) {
	part := components(r.w)
	shortest = true
	direct, queue := make([]int32, len(r.dist)), []int32(nil)
	for d := range r.w.out {
		if r.w.ends[d] == 0 {
			continue
		}
		r.measure(int32(d))
		queue = search(r.w.out, []int32{int32(d)}, direct, queue)
		for s := range r.dist {
			if r.w.ends[s] == 0 || part[s] != part[d] {
				continue
			}
			if r.dist[s] >= far {
				return false, false
			}
			shortest = shortest && r.dist[s] == direct[s]
		}
	}
	return true, shortest
}
