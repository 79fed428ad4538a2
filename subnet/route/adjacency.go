package route

import (
	"cmp"
	"slices"

	"softib/proto/ib"
)

// edge is a cable between two switches, from its near end.
type edge struct {
	to   int32
	port ib.PortNum
	peer ib.PortNum // the far end
}

// adjacency is what the engines look at: the cables between switches, and how many end ports hang on each.
type adjacency struct {
	out    [][]edge // by switch, in the order of the ports
	ends   []uint32 // by switch
	stride int      // the highest port number, plus one
}

// newAdjacency lists the cables of a network. A cable from a switch to itself leads nowhere.
func newAdjacency(n *Network) *adjacency {
	w := &adjacency{out: make([][]edge, len(n.Switches)), ends: make([]uint32, len(n.Switches))}
	count := 0
	for s := range n.Switches {
		for _, h := range n.Switches[s].Ports {
			if h.To != NoSwitch {
				count++
			}
		}
	}
	all := make([]edge, 0, count)
	for s := range n.Switches {
		sw := &n.Switches[s]
		first := len(all)
		for p, h := range sw.Ports {
			if h.To != NoSwitch && h.To != int32(s) {
				all = append(all, edge{h.To, ib.PortNum(p), h.Port})
			}
		}
		w.out[s] = all[first:len(all):len(all)]
		w.ends[s] = uint32(sw.Ends)
		w.stride = max(w.stride, len(sw.Ports))
	}
	return w
}

// far is the distance of what cannot be reached.
const far = int32(1) << 30

// search is a breadth-first search from some switches at once; it answers the switches in the order of their distance.
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

// components numbers the parts of the network that no cable joins by their lowest switch.
func components(w *adjacency) []int32 {
	part := make([]int32, len(w.out))
	for i := range part {
		part[i] = -1
	}
	var queue []int32
	for s := range part {
		if part[s] >= 0 {
			continue
		}
		part[s] = int32(s)
		queue = append(queue[:0], int32(s))
		for at := 0; at < len(queue); at++ {
			for _, e := range w.out[queue[at]] {
				if part[e.to] < 0 {
					part[e.to] = int32(s)
					queue = append(queue, e.to)
				}
			}
		}
	}
	return part
}

// direction says of every cable which end is the upper one. The order of
// heights is total, so no cables that go up form a cycle: ways that go up first
// and then only down cannot wait for each other in a circle.
type direction struct {
	level    []int32
	up, down [][]edge
	topmost  []int32 // all switches, highest first
}

func newDirection(w *adjacency, level []int32) *direction {
	n := len(w.out)
	d := &direction{level: level, up: make([][]edge, n), down: make([][]edge, n), topmost: make([]int32, n)}
	for s := range n {
		d.topmost[s] = int32(s)
	}
	slices.SortStableFunc(d.topmost, func(a, b int32) int { return cmp.Compare(level[b], level[a]) })
	count := 0
	for s := range n {
		count += len(w.out[s])
	}
	all := make([]edge, 0, count)
	for s := range n {
		first := len(all)
		for _, e := range w.out[s] {
			if d.above(e.to, int32(s)) {
				all = append(all, e)
			}
		}
		mid := len(all)
		for _, e := range w.out[s] {
			if !d.above(e.to, int32(s)) {
				all = append(all, e)
			}
		}
		d.up[s], d.down[s] = all[first:mid:mid], all[mid:len(all):len(all)]
	}
	return d
}

// above reports whether switch a is higher than b; of one level, the one with the lower number is.
func (d *direction) above(a, b int32) bool {
	return d.level[a] > d.level[b] || d.level[a] == d.level[b] && a < b
}

// ranks are heights of the switches, no two alike.
func (d *direction) ranks() []int32 {
	rank := make([]int32, len(d.topmost))
	for i, s := range d.topmost {
		rank[s] = int32(len(rank) - 1 - i)
	}
	return rank
}

// newLFT makes rows of NoPort for all LIDs of a network.
func newLFT(n *Network) [][]ib.PortNum {
	width := int(n.Top) + 1
	all := make([]ib.PortNum, len(n.Switches)*width)
	if len(all) > 0 {
		all[0] = NoPort
		for done := 1; done < len(all); done *= 2 {
			copy(all[done:], all[:done])
		}
	}
	lft := make([][]ib.PortNum, len(n.Switches))
	for s := range lft {
		lft[s] = all[s*width : (s+1)*width : (s+1)*width]
	}
	return lft
}

// group is the destinations at one switch, as indices into Network.Dests.
type group struct {
	sw   int32
	ends []int32 // end ports
	self []int32 // the switch's own
}

// groups gathers the destinations by switch, in the order of the switches.
func groups(n *Network) []group {
	count := make([]int32, len(n.Switches)+1)
	for _, d := range n.Dests {
		count[d.Switch+1]++
	}
	for s := range n.Switches {
		count[s+1] += count[s]
	}
	place := slices.Clone(count)
	all := make([]int32, len(n.Dests))
	for pass := range 2 {
		for i, d := range n.Dests {
			if d.IsEnd() == (pass == 0) {
				all[place[d.Switch]] = int32(i)
				place[d.Switch]++
			}
		}
	}
	var list []group
	for s := range n.Switches {
		of := all[count[s]:count[s+1]]
		if len(of) == 0 {
			continue
		}
		cut := 0
		for cut < len(of) && n.Dests[of[cut]].IsEnd() {
			cut++
		}
		list = append(list, group{int32(s), of[:cut], of[cut:]})
	}
	return list
}
