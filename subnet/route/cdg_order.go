package route

import (
	"math/bits"
	"slices"
)

// depOrder is the dependency graph of one lane that is kept free of cycles while it grows. It
// holds a topological order of all channels; a new dependency that agrees with
// the order costs nothing, and one that does not moves only the channels between its two ends (Pearce and Kelly 2006).
type depOrder struct {
	*chart
	// ahead has for each channel a bit for every port that its packets leave the next switch by; behind has for each
	// channel a bit for every port that its packets come into its switch by. shut are the dependencies that are known
	// to close a cycle.
	ahead, behind, shut []uint64
	rank                []int32
	// Scratch of the search.
	seen     []bool
	fore     []int32
	aft      []int32
	stack    []int32
	ranks    []int32
	sorted   []uint64
	searches int
}

// newDepOrder starts empty, with the order of channels that heights give (see channelOrder).
func newDepOrder(c *chart, order []int32) *depOrder {
	size := c.channels() * c.words
	g := &depOrder{chart: c, ahead: make([]uint64, size), behind: make([]uint64, size), shut: make([]uint64, size)}
	g.rank = make([]int32, c.channels())
	g.seen = make([]bool, c.channels())
	g.restart(order)
	return g
}

// restart empties the graph.
func (g *depOrder) restart(order []int32) {
	clear(g.ahead)
	clear(g.behind)
	clear(g.shut)
	for i, ch := range order {
		g.rank[ch] = int32(i)
	}
}

// bit is where the dependency of x on y lies in ahead and shut.
func (g *depOrder) bit(x, y int32) (int, uint64) {
	p := g.port[y]
	return int(x)*g.words + int(p>>6), 1 << (p & 63)
}

func (g *depOrder) has(x, y int32) bool {
	i, b := g.bit(x, y)
	return g.ahead[i]&b != 0
}

// isShut reports whether a dependency is known to close a cycle.
func (g *depOrder) isShut(x, y int32) bool {
	i, b := g.bit(x, y)
	return g.shut[i]&b != 0
}

// closeOff remembers that a dependency closes a cycle.
func (g *depOrder) closeOff(x, y int32) {
	i, b := g.bit(x, y)
	g.shut[i] |= b
}

func (g *depOrder) open(x, y int32) {
	i, b := g.bit(x, y)
	g.shut[i] &^= b
}

// remove takes a dependency out. The order stays good.
func (g *depOrder) remove(x, y int32) {
	i, b := g.bit(x, y)
	g.ahead[i] &^= b
	p := g.port[g.back[x]]
	g.behind[int(y)*g.words+int(p>>6)] &^= 1 << (p & 63)
}

// add makes x wait for y, which leaves the switch that x leads to. It is false if that would close a cycle.
func (g *depOrder) add(x, y int32) bool {
	if g.rank[x] > g.rank[y] && !g.reorder(x, y) {
		return false
	}
	i, b := g.bit(x, y)
	g.ahead[i] |= b
	p := g.port[g.back[x]]
	g.behind[int(y)*g.words+int(p>>6)] |= 1 << (p & 63)
	return true
}

// reorder makes room for a dependency of x on y where y comes before x in the order.
func (g *depOrder) reorder(x, y int32) bool {
	g.searches++
	low, high := g.rank[y], g.rank[x]
	// What y leads to, up to x.
	g.fore = g.fore[:0]
	g.stack = append(g.stack[:0], y)
	g.seen[y] = true
	cyclic := false
search:
	for len(g.stack) > 0 {
		c := g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		g.fore = append(g.fore, c)
		base := g.base[g.to[c]]
		for w := range g.words {
			for m := g.ahead[int(c)*g.words+w]; m != 0; m &= m - 1 {
				next := base + int32(w*64+bits.TrailingZeros64(m))
				if next == x {
					cyclic = true
					break search
				}
				if !g.seen[next] && g.rank[next] < high {
					g.seen[next] = true
					g.stack = append(g.stack, next)
				}
			}
		}
	}
	for _, c := range g.fore {
		g.seen[c] = false
	}
	for _, c := range g.stack {
		g.seen[c] = false
	}
	if cyclic {
		return false
	}
	// What leads to x, down to y.
	g.aft = g.aft[:0]
	g.stack = append(g.stack[:0], x)
	g.seen[x] = true
	for len(g.stack) > 0 {
		c := g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		g.aft = append(g.aft, c)
		base := g.base[g.tail[c]]
		for w := range g.words {
			for m := g.behind[int(c)*g.words+w]; m != 0; m &= m - 1 {
				prev := g.back[base+int32(w*64+bits.TrailingZeros64(m))]
				if !g.seen[prev] && g.rank[prev] > low {
					g.seen[prev] = true
					g.stack = append(g.stack, prev)
				}
			}
		}
	}
	// Both sets keep their own order, and what leads to x now comes before what y leads to, on the places that they
	// had.
	g.sorted = g.sorted[:0]
	for _, c := range g.aft {
		g.seen[c] = false
		g.sorted = append(g.sorted, uint64(g.rank[c])<<32|uint64(c))
	}
	for _, c := range g.fore {
		g.sorted = append(g.sorted, uint64(g.rank[c])<<32|uint64(c))
	}
	aft, fore := g.sorted[:len(g.aft)], g.sorted[len(g.aft):]
	slices.Sort(aft)
	slices.Sort(fore)
	g.ranks = g.ranks[:0]
	for i, j := 0, 0; i < len(aft) || j < len(fore); {
		if j == len(fore) || i < len(aft) && aft[i] < fore[j] {
			g.ranks = append(g.ranks, int32(aft[i]>>32))
			i++
		} else {
			g.ranks = append(g.ranks, int32(fore[j]>>32))
			j++
		}
	}
	for i, key := range g.sorted {
		g.rank[uint32(key)] = g.ranks[i]
	}
	return true
}

// heights puts the switches into an order from the end ports upwards: first by how far
// the next end port is, then by how far a root is, the farthest first. In a tree that is the order of the levels.
func (c *chart) heights(roots []int32) []int32 {
	var ends []int32
	for s := range c.n.Switches {
		if c.n.Switches[s].Ends > 0 {
			ends = append(ends, int32(s))
		}
	}
	fromEnds, fromRoot := c.distances(ends), c.distances(roots)
	order := make([]int32, c.switches())
	for s := range order {
		order[s] = int32(s)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		if d := fromEnds[a] - fromEnds[b]; d != 0 {
			return int(d)
		}
		return int(fromRoot[b] - fromRoot[a])
	})
	height := make([]int32, c.switches())
	for i, s := range order {
		height[s] = int32(i)
	}
	return height
}

// distances is how many links each switch is away from the nearest of some; those that cannot get there are one beyond
// all.
func (c *chart) distances(from []int32) []int32 {
	dist := make([]int32, c.switches())
	for s := range dist {
		dist[s] = int32(c.switches())
	}
	queue := make([]int32, 0, c.switches())
	for _, s := range from {
		if dist[s] != 0 {
			dist[s] = 0
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		u := queue[i]
		for ch, end := c.out(u); ch < end; ch++ {
			if v := c.to[ch]; v >= 0 && dist[v] > dist[u]+1 {
				dist[v] = dist[u] + 1
				queue = append(queue, v)
			}
		}
	}
	return dist
}

// channelOrder sorts the channels so that all ways that first climb and then descend by height agree with the order.
func (c *chart) channelOrder(height []int32) []int32 {
	order := make([]int32, 0, c.channels())
	bySwitch := make([]int32, c.switches())
	for s, h := range height {
		bySwitch[h] = int32(s)
	}
	for _, s := range bySwitch {
		for ch, end := c.out(s); ch < end; ch++ {
			if v := c.to[ch]; v >= 0 && height[v] > height[s] {
				order = append(order, ch)
			}
		}
	}
	for _, s := range slices.Backward(bySwitch) {
		for ch, end := c.out(s); ch < end; ch++ {
			if v := c.to[ch]; v >= 0 && height[v] < height[s] {
				order = append(order, ch)
			}
		}
	}
	return order
}
