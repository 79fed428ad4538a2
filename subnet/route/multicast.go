package route

import "softib/proto/ib"

// Forest grows the trees of multicast groups in a network. Ways in a tree go up to a top switch and down again, as
// unicast's do by updn, so that the two cannot wait for each other in a circle.
type Forest struct {
	w    *adjacency
	dir  *direction
	part []int32
	// Used again for each tree.
	dist, queue []int32
}

// Branch is one end of a link of a tree.
type Branch struct {
	Switch int32
	Port   ib.PortNum
}

// NewForest looks at a network, which must not change as long as trees are grown in it.
func NewForest(n *Network) *Forest {
	w := newAdjacency(n)
	// Whether ways between all end ports are legal, which orient finds out at some cost, is seen tree by tree.
	level, ok := tierLevels(w)
	if !ok {
		level = rootLevels(w, nil)
	}
	return &Forest{w: w, dir: newDirection(w, level), part: components(w), dist: make([]int32, len(w.out)),
		queue: make([]int32, 0, len(w.out))}
}

// Tree joins the member switches of each part of the network by links, and lists both ends of each: the port by which
// copies leave. Groups differ in the top switch by their number.
func (f *Forest) Tree(member []bool, number int) (links []Branch) {
	for p := range f.part {
		if f.part[p] != int32(p) {
			continue
		}
		var tops, members []int32
		for _, s := range f.dir.topmost {
			if f.part[s] != int32(p) {
				continue
			}
			if len(f.dir.up[s]) == 0 {
				tops = append(tops, s)
			}
			if member[s] {
				members = append(members, s)
			}
		}
		if len(members) < 2 {
			continue
		}
		out := f.dir.down
		found := false
		for k := 0; k < len(tops) && !found; k++ {
			f.queue = search(out, tops[(number+k)%len(tops):][:1], f.dist, f.queue)
			found = f.reached(members)
		}
		if !found { // no switch is above all members: any tree will do
			out = f.w.out
			f.queue = search(out, tops[:1], f.dist, f.queue)
		}
		links = append(links, f.prune(out, member)...)
	}
	return links
}

// reached reports whether the last search came to all members.
func (f *Forest) reached(members []int32) bool {
	for _, m := range members {
		if f.dist[m] == far {
			return false
		}
	}
	return true
}

// prune keeps of the last search's tree what joins the members.
func (f *Forest) prune(out [][]edge, member []bool) (links []Branch) {
	type parentLink struct {
		from int32
		edge
	}
	visited := f.queue // the root first
	parent := make([]parentLink, len(out))
	seen := make([]bool, len(out))
	for _, s := range visited {
		for _, e := range out[s] {
			if f.dist[e.to] == f.dist[s]+1 && !seen[e.to] {
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
	for _, s := range visited[1:] {
		up := parent[s]
		if keep[s] && keep[up.from] {
			links = append(links, Branch{up.from, up.port}, Branch{s, up.peer})
		}
	}
	return links
}
