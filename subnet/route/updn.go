package route

// upDown routes any network by ways that go up, towards a root, and then down, and
// so cannot wait for each other in a circle. They are the shortest of that kind, not always the shortest of all.
type upDown struct{}

func (upDown) Name() string { return "updn" }

func (upDown) Compute(n *Network, o Options) (*Tables, error) {
	if t, err := newTree(n, o); err == nil {
		if tab, err := treeTables("updn", n, t, o); err == nil && (tab.Rank != nil || !o.Adaptive) {
			return tab, nil
		}
	}
	w := newAdjacency(n)
	dir, err := orient(w, o.Roots)
	if err != nil {
		return nil, err
	}
	r := newSpreader(n, w, dir)
	r.all()
	return &Tables{Engine: "updn", LFT: r.lft, VLs: 1, Rank: dir.ranks(), made: n}, nil
}

// orient finds the direction of all cables: below the roots that are named if that gives legal ways between all end
// ports, else by distance from the end ports, else from one root in the middle of each part of the network, which
// always does.
func orient(w *adjacency, roots []int32) (*direction, error) {
	if len(roots) > 0 {
		level, err := levelsBelow(w, "updn", roots)
		if err != nil {
			return nil, err
		}
		if dir := newDirection(w, level); isLegal(w, dir) {
			return dir, nil
		}
		return newDirection(w, rootLevels(w, roots)), nil
	}
	if level, ok := tierLevels(w); ok {
		if dir := newDirection(w, level); isLegal(w, dir) {
			return dir, nil
		}
	}
	return newDirection(w, rootLevels(w, nil)), nil
}

func isLegal(w *adjacency, dir *direction) bool {
	legal, _ := newSpreaderShape(w, dir).legal()
	return legal
}

// tierLevels ranks switches by their distance from the end ports, as the tiers of
// a tree are; false if two of one tier are cabled together, which no tree has.
func tierLevels(w *adjacency) ([]int32, bool) {
	var edgeTier []int32
	for s, n := range w.ends {
		if n > 0 {
			edgeTier = append(edgeTier, int32(s))
		}
	}
	level := make([]int32, len(w.out))
	search(w.out, edgeTier, level, nil)
	settle(level) // no end port near: no way to one goes through it
	for s := range w.out {
		for _, e := range w.out[s] {
			if level[e.to] == level[s] {
				return nil, false
			}
		}
	}
	return level, true
}

// rootLevels ranks switches by their distance from one root of each part of the network: the first that is named, else
// one in the middle. Every other switch then has a cable that goes up, and the root's ways go down to all.
func rootLevels(w *adjacency, named []int32) []int32 {
	n := len(w.out)
	level, dist, queue := make([]int32, n), make([]int32, n), make([]int32, 0, n)
	part := components(w)
	rootOf := make([]int32, n)
	for s := range rootOf {
		rootOf[s] = NoSwitch
	}
	for _, r := range named {
		if rootOf[part[r]] == NoSwitch {
			rootOf[part[r]] = r
		}
	}
	for s := range n {
		if part[s] != int32(s) {
			continue
		}
		root := rootOf[s]
		if root == NoSwitch {
			root, queue = middle(w, int32(s), dist, queue)
		}
		queue = search(w.out, []int32{root}, dist, queue)
		deepest := dist[queue[len(queue)-1]]
		for _, t := range queue {
			level[t] = deepest - dist[t]
		}
	}
	return level
}

// middle finds a switch half-way between two that are far apart: of those, the one from which the farthest is nearest,
// then that with most cables.
func middle(w *adjacency, s int32, dist, queue []int32) (int32, []int32) {
	queue = search(w.out, []int32{s}, dist, queue)
	a := queue[len(queue)-1]
	queue = search(w.out, []int32{a}, dist, queue)
	b := queue[len(queue)-1]
	fromA, apart := make([]int32, len(dist)), dist[b]
	copy(fromA, dist)
	queue = search(w.out, []int32{b}, dist, queue)
	root, best := a, -1
	for _, t := range queue {
		if fromA[t] == apart/2 && dist[t] == apart-apart/2 && len(w.out[t]) > best {
			root, best = t, len(w.out[t])
		}
	}
	return root, queue
}
