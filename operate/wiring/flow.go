package wiring

import (
	"slices"

	"softib/proto/topo"
)

// Bisection is how much two halves of the hosts can send to each other.
type Bisection struct {
	// Hosts is in each half, by ports. FullMbps is what the hosts' own links carry, in one direction: the smaller
	// half's. WiredMbps is what the cables between carry, however packets are routed.
	Hosts     int     `json:"hosts_each"`
	FullMbps  int64   `json:"full_mbps"`
	WiredMbps int64   `json:"wired_mbps"`
	Wired     float64 `json:"wired"`
	// Routed is the share that is left with forwarding tables: the mean over random permutations and flows of 1 / the
	// flows on the fullest link of the way. Shift is the same under shifts, Engine what made the tables. RoutedBad is
	// why there are none, or that they are not good.
	Routed    *float64 `json:"routed,omitempty"`
	Shift     *float64 `json:"routed_shift,omitempty"`
	Engine    string   `json:"engine,omitempty"`
	RoutedBad string   `json:"routed_bad,omitempty"`
}

// bisect is the largest flow between two halves of the hosts. Hosts are taken in the order of the tree, so that a half
// is as few whole subtrees as can be: everything between the halves has to cross the top of the tree, which makes it
// the narrowest of the even cuts of a fat tree. The value is exact for that cut (largest flow is smallest cut), also
// where cables are missing, and no routing can do better. For what is no tree the order is the graph's, which cuts a
// torus across its slowest dimension; there it is one cut, not the worst.
func bisect(x *shape) *Bisection {
	type end struct {
		sw   int32
		mbps int64
	}
	var ends []end
	for _, s := range x.order() {
		n := x.g.Switches()[s]
		for p := 1; p < len(n.Ports); p++ {
			at := &n.Ports[p]
			if at.Connected() && !x.g.Nodes[at.Peer].IsSwitch() && !topo.IsPart(x.g.Nodes[at.Peer], n) {
				ends = append(ends, end{s, x.g.LinkRate(topo.PortRef{Node: at.Peer, Port: at.PeerPort}).Mbps()})
			}
		}
	}
	half := len(ends) / 2
	if half == 0 {
		return nil
	}
	n := len(x.out)
	f := newFlow(n + 2)
	source, sink := int32(n), int32(n+1)
	var sums [2]int64
	for i := 0; i < len(ends); {
		side, limit := 0, half
		if i >= half {
			side, limit = 1, len(ends)
		}
		j, mbps := i, int64(0)
		for ; j < limit && ends[j].sw == ends[i].sw; j++ {
			mbps += ends[j].mbps
		}
		sums[side] += mbps
		if side == 0 {
			f.add(source, ends[i].sw, mbps, 0)
		} else {
			f.add(ends[i].sw, sink, mbps, 0)
		}
		i = j
	}
	for s := range n {
		// All cables to one neighbour are one edge.
		up := slices.Clone(x.out[s])
		slices.SortFunc(up, func(a, b edge) int { return int(a.to - b.to) })
		for i := 0; i < len(up); {
			j, mbps := i, int64(0)
			for ; j < len(up) && up[j].to == up[i].to; j++ {
				mbps += x.g.LinkRate(topo.PortRef{Node: x.g.Switches()[s].Index, Port: up[j].port}).Mbps()
			}
			if int(up[i].to) > s {
				f.add(int32(s), up[i].to, mbps, mbps)
			}
			i = j
		}
	}
	b := &Bisection{Hosts: half, FullMbps: min(sums[0], sums[1]), WiredMbps: f.most(source, sink)}
	if b.FullMbps > 0 {
		b.Wired = float64(b.WiredMbps) / float64(b.FullMbps)
	}
	return b
}

// flow is a network of capacities, for the largest flow by Dinic's algorithm.
type flow struct {
	arcs  [][]int32 // by node, into the lists below
	to    []int32
	room  []int64
	depth []int32
	next  []int32
}

func newFlow(n int) *flow {
	return &flow{arcs: make([][]int32, n), depth: make([]int32, n), next: make([]int32, n)}
}

// add joins two nodes with a capacity each way. The arcs of a pair are neighbours, so that one's reverse is arc^1.
func (f *flow) add(a, b int32, there, back int64) {
	f.arcs[a] = append(f.arcs[a], int32(len(f.to)))
	f.to, f.room = append(f.to, b), append(f.room, there)
	f.arcs[b] = append(f.arcs[b], int32(len(f.to)))
	f.to, f.room = append(f.to, a), append(f.room, back)
}

func (f *flow) most(from, to int32) int64 {
	total := int64(0)
	for f.layer(from, to) {
		clear(f.next)
		for {
			got := f.push(from, to, 1<<62)
			if got == 0 {
				break
			}
			total += got
		}
	}
	return total
}

// layer measures depths along arcs with room; it is false if the sink is out of reach.
func (f *flow) layer(from, to int32) bool {
	for i := range f.depth {
		f.depth[i] = -1
	}
	f.depth[from] = 0
	queue := []int32{from}
	for at := 0; at < len(queue); at++ {
		n := queue[at]
		for _, a := range f.arcs[n] {
			if f.room[a] > 0 && f.depth[f.to[a]] < 0 {
				f.depth[f.to[a]] = f.depth[n] + 1
				queue = append(queue, f.to[a])
			}
		}
	}
	return f.depth[to] >= 0
}

// push sends what it can along one path of rising depth.
func (f *flow) push(at, to int32, most int64) int64 {
	if at == to {
		return most
	}
	for ; int(f.next[at]) < len(f.arcs[at]); f.next[at]++ {
		a := f.arcs[at][f.next[at]]
		if f.room[a] == 0 || f.depth[f.to[a]] != f.depth[at]+1 {
			continue
		}
		if got := f.push(f.to[a], to, min(most, f.room[a])); got > 0 {
			f.room[a] -= got
			f.room[a^1] += got
			return got
		}
	}
	return 0
}
