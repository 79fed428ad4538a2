package route

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
		e.escape(l, sw)
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

// escape makes the ways to a switch those of the lane's spanning tree.
func (e *nueRun) escape(l *nueLane, target int32) {
	for s, ch := range l.up {
		if e.part[s] == e.part[target] {
			e.via[s] = ch
		}
	}
	for x := target; l.up[x] >= 0; {
		p := e.to[l.up[x]]
		e.via[p] = e.back[l.up[x]]
		x = p
	}
	e.via[target] = -1
}

// centres is, for each part of the network, the switch that most shortest ways from end ports to a lane's destinations pass
// (Brandes 2001), judged by a sample of them.
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
