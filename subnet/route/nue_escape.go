package route

import "slices"

// centreSamples is how many destinations the search for the most central switch follows.
const centreSamples = 32

// newLane makes the graph of a lane with the dependencies of its escape tree.
func (e *nueRun) newLane(dests []int32) *nueLane {
	roots := e.centres(dests)
	l := &nueLane{
		depOrder: newDepOrder(e.chart, e.channelOrder(e.heights(roots))),
		dests:    dests, up: make([]int32, e.switches()),
	}
	var queue []int32
	seen := make([]bool, e.switches())
	for _, r := range roots {
		queue = append(queue, r)
		seen[r] = true
		l.up[r] = -1
	}
	for i := 0; i < len(queue); i++ {
		u := queue[i]
		for ch, end := e.out(u); ch < end; ch++ {
			if v := e.to[ch]; v >= 0 && !seen[v] {
				seen[v] = true
				l.up[v] = e.back[ch]
				queue = append(queue, v)
			}
		}
	}
	for _, sw := range dests {
		e.escape(l, sw, e.via)
		clear(e.live)
		e.live[sw] = true
		for s := range e.n.Switches {
			if e.n.Switches[s].Ends > 0 && e.part[s] == e.part[sw] {
				e.begin()
				if !e.enliven(l, int32(s)) {
					panic("route: nue: the dependencies of a spanning tree closed a cycle")
				}
			}
		}
	}
	return l
}

// escape makes ways to a switch those of the lane's spanning tree.
func (e *nueRun) escape(l *nueLane, target int32, via []int32) {
	for s, ch := range l.up {
		if e.part[s] == e.part[target] {
			via[s] = ch
		}
	}
	for x := target; l.up[x] >= 0; {
		p := e.to[l.up[x]]
		via[p] = e.back[l.up[x]]
		x = p
	}
	via[target] = -1
}

// hang gives a switch that no other way is left for the way along the escape tree, and moves the switches on it there,
// for good. The graph has its dependencies since the start. Switches that cannot follow the moved ones become late
// again, with all that is behind them; in the end everything may hang on the escape tree, so that the tree is always
// whole.
func (e *nueRun) hang(l *nueLane, x int32) {
	if !e.hung {
		e.hung = true
		e.escaped++
		e.escape(l, e.target, e.fixed)
		clear(e.isFixed)
		e.isFixed[e.target] = true
	}
	e.path = e.path[:0]
	for u := x; !e.isFixed[u]; u = e.to[e.fixed[u]] {
		e.path = append(e.path, u)
	}
	for _, u := range slices.Backward(e.path) {
		ch := e.fixed[u]
		v := e.to[ch]
		moved := e.via[u] != ch
		e.isFixed[u], e.live[u] = true, true
		e.via[u], e.cost[u], e.far[u] = ch, e.cost[v]+uint64(e.load[ch]), e.far[v]+1
		for c, end := e.out(u); moved && c < end; c++ {
			y := e.to[c]
			if y < 0 || e.via[y] != e.back[c] || !e.live[y] || e.isFixed[y] {
				continue
			}
			e.begin()
			if e.depend(l, e.back[c], ch) {
				e.commit()
			} else {
				e.cutOff(y)
			}
		}
	}
	for _, u := range e.path {
		e.offerTo(u)
	}
	for _, u := range e.late {
		if e.via[u] < 0 {
			e.offer(u)
		}
	}
}

// cutOff makes a switch and all that forward to it late.
func (e *nueRun) cutOff(y int32) {
	start := len(e.late)
	e.late = append(e.late, y)
	for i := start; i < len(e.late); i++ {
		u := e.late[i]
		for c, end := e.out(u); c < end; c++ {
			if z := e.to[c]; z >= 0 && e.via[z] == e.back[c] {
				e.late = append(e.late, z)
			}
		}
	}
	for _, u := range e.late[start:] {
		e.via[u], e.cost[u], e.far[u], e.live[u] = -1, pathless, -1, false
	}
}

// centres is, for each part of the network, the switch that most shortest ways from end ports to a lane's destinations
// pass (Brandes 2001), judged by a sample of them.
func (e *nueRun) centres(dests []int32) []int32 {
	between := make([]float64, e.switches())
	ways := make([]float64, e.switches())
	flow := make([]float64, e.switches())
	step := max(len(dests)/centreSamples, 1)
	for i := 0; i < len(dests); i += step {
		e.aim(dests[i])
		ways[e.target] = 1
		for j := 1; j < len(e.order); j++ {
			u := e.order[j]
			ways[u] = 0
			for _, w := range e.spread.ways[e.first[j]:e.first[j+1]] {
				ways[u] += ways[w.to]
			}
		}
		for _, u := range e.order {
			flow[u] = float64(e.n.Switches[u].Ends)
		}
		for j := len(e.order) - 1; j > 0; j-- {
			u := e.order[j]
			between[u] += flow[u]
			for _, w := range e.spread.ways[e.first[j]:e.first[j+1]] {
				flow[w.to] += flow[u] * ways[w.to] / ways[u]
			}
		}
	}
	var best []int32
	for s := range between {
		for len(best) <= int(e.part[s]) {
			best = append(best, int32(s))
		}
		if b := &best[e.part[s]]; between[s] > between[*b] {
			*b = int32(s)
		}
	}
	return best
}
