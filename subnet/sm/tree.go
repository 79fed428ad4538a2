package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/subnet/route"
)

// wiring is the switches and the cables between them, as multicast trees see them.
type wiring struct {
	out  [][]edge // by switch, in the order of the ports
	ends []bool   // switches that end ports hang on
}

// edge is a cable between two switches, from its near end.
type edge struct {
	port ib.PortNum
	peer ib.PortNum // the far end
	to   int32
}

func newWiring(n *route.Network) *wiring {
	w := &wiring{out: make([][]edge, len(n.Switches)), ends: make([]bool, len(n.Switches))}
	for s := range n.Switches {
		sw := &n.Switches[s]
		w.ends[s] = sw.Ends > 0
		for p, h := range sw.Ports {
			if h.To != route.NoSwitch && h.To != int32(s) {
				w.out[s] = append(w.out[s], edge{ib.PortNum(p), h.Port, h.To})
			}
		}
	}
	return w
}

// far is the distance of what cannot be reached.
const far = int32(1) << 30

// direction says of every cable which end is the upper one. The order of
// heights is total, so there is no cycle of cables that go up.
type direction struct {
	up, down [][]edge
	topmost  []int32 // all switches, highest first
}

func newDirection(w *wiring, level []int32) *direction {
	n := len(w.out)
	height := make([]int64, n)
	d := &direction{up: make([][]edge, n), down: make([][]edge, n), topmost: make([]int32, n)}
	for s := range n {
		height[s] = int64(level[s])*int64(n) + int64(n-1-s)
		d.topmost[s] = int32(s)
	}
	slices.SortFunc(d.topmost, func(a, b int32) int { return int(height[b] - height[a]) })
	for s := range n {
		for _, e := range w.out[s] {
			if height[e.to] > height[s] {
				d.up[s] = append(d.up[s], e)
			} else {
				d.down[s] = append(d.down[s], e)
			}
		}
	}
	return d
}

// orient ranks switches by their distance from the hosts, as the tiers of a tree are, or, if two of one
// tier are cabled together, by their distance from a root in the middle.
func orient(w *wiring) *direction {
	if level, ok := tierLevels(w); ok {
		return newDirection(w, level)
	}
	return newDirection(w, rootLevels(w))
}

// search is a breadth-first search from some switches at once.
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

func tierLevels(w *wiring) ([]int32, bool) {
	var edgeTier []int32
	for s, has := range w.ends {
		if has {
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
// each part of the fabric.
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

// branch is one end of a link of a multicast tree.
type branch struct {
	from int32
	port ib.PortNum
}

// tree joins the member switches of each part of the fabric by links, both ends of
// which it lists. Ways in it go up to a top switch and down again, as
// unicast does, so that the two cannot lock each other. Groups differ in the
// top switch by their number.
func tree(w *wiring, dir *direction, member []bool, number int) []branch {
	var links []branch
	part := components(w)
	dist, queue := make([]int32, len(w.out)), make([]int32, 0, len(w.out))
	for p := range w.out {
		if part[p] != int32(p) {
			continue
		}
		var tops, members []int32
		for _, s := range dir.topmost {
			if part[s] != int32(p) {
				continue
			}
			if len(dir.up[s]) == 0 {
				tops = append(tops, s)
			}
			if member[s] {
				members = append(members, s)
			}
		}
		if len(members) < 2 {
			continue
		}
		reached := func() bool {
			for _, m := range members {
				if dist[m] == far {
					return false
				}
			}
			return true
		}
		out := dir.down
		found := false
		for k := 0; k < len(tops) && !found; k++ {
			queue = search(out, tops[(number+k)%len(tops):][:1], dist, queue)
			found = reached()
		}
		if !found { // no switch is above all members: any tree will do
			out = w.out
			queue = search(out, tops[:1], dist, queue)
		}
		links = append(links, prune(out, queue, dist, member)...)
	}
	return links
}

// prune keeps of a search's tree what joins the members. The search has visited
// visited in that order, the root first.
func prune(out [][]edge, visited, dist []int32, member []bool) []branch {
	type parentLink struct {
		from int32
		edge
	}
	parent := make([]parentLink, len(out))
	seen := make([]bool, len(out))
	for _, s := range visited {
		for _, e := range out[s] {
			if dist[e.to] == dist[s]+1 && !seen[e.to] {
				seen[e.to] = true
				parent[e.to] = parentLink{s, e}
			}
		}
	}
	// below counts the children of each switch that lead to members.
	below := make([]int, len(out))
	keep := make([]bool, len(out))
	for i := len(visited) - 1; i >= 0; i-- {
		s := visited[i]
		keep[s] = member[s] || below[s] > 0
		if keep[s] && i > 0 {
			below[parent[s].from]++
		}
	}
	// The stem from the root to where the tree first forks carries nothing.
	for _, s := range visited {
		if member[s] || below[s] > 1 {
			break
		}
		keep[s] = false
	}
	var links []branch
	for _, s := range visited[1:] {
		up := parent[s]
		if keep[s] && keep[up.from] {
			links = append(links, branch{up.from, up.port}, branch{s, up.peer})
		}
	}
	return links
}
