package route

import (
	"cmp"
	"slices"

	"softib/proto/ib"
)

// treeRankMax is the highest tree that the engine takes: three times what LIDs allow at a useful radix.
const treeRankMax = 8

// slot is one place of a switch for a cable upwards; to is NoSwitch where the cable is missing.
type slot struct {
	to         int32
	port, peer ib.PortNum
}

// column is a part of the tree cut off below some level: switches of it that
// are neighbours' neighbours upwards. In a complete k-ary tree the columns above the
// leaves are what remains when all leaves are taken away; every leaf has
// one cable into each. The columns within a column are numbered, which gives
// the switches of one level a common order of their cables, whatever ports they use and whichever are missing.
type column struct {
	div     uint64 // how many steps of a destination's index pass before the place changes
	inside  uint64 // columns that a level below joined to make this one
	parents uint64 // of a switch of that level, in one of those columns
	outer   int32  // the column that a lower level makes of this and others, -1 for none
	rank    uint64 // place in the outer column
	name    int32  // the lowest switch of it
	first   uint64 // the number of its first place among those of all columns
}

func (c *column) width() uint64 { return max(c.inside*c.parents, 1) }

// tree is the shape of a fat tree.
type tree struct {
	w     *adjacency
	dir   *direction
	order []int32 // switches, so that those of a subtree are neighbours

	col    []int32 // by switch
	cols   []column
	places uint64  // of all columns
	class  []int32 // by switch: the div and number of slots, as index into classes
	// Slots of switch s are slots[first[s]:first[s+1]].
	first   []int32
	slots   []slot
	ports   []ib.PortNum // of the slots
	classes []digitClass
	// families are the switches that go up, by parents; those of one come after their parents' families.
	families []family
	climb    []int32 // the highest level that can be reached from a switch by going up
}

// family is switches that have the same parents in the same slots, so that most of what is true of one is true of all.
type family struct {
	class   int32
	whole   bool   // no slot is empty
	slots   []slot // of one of them; the ports may differ
	members []int32

	// The ways to the destination at hand.
	dist uint8
	even bool // every slot leads there
}

// digitClass is what turns the index of a destination into a slot: index / div mod count.
type digitClass struct{ div, count uint64 }

func (c digitClass) digit(index uint64) uint64 { return index / c.div % c.count }

// newTree finds the shape, or says what about the network is no tree.
func newTree(n *Network, o Options) (*tree, error) { return newTreeWithin(n, n, o) }

// newTreeWithin finds the shape of a network of which some cables are missing, or whole switches.
func newTreeWithin(whole, n *Network, o Options) (*tree, error) {
	w := newAdjacency(whole)
	level, err := treeLevels(w, o)
	if err != nil {
		return nil, err
	}
	t := &tree{w: w, dir: newDirection(w, level)}
	t.findColumns()
	t.findOrder()
	if n != whole {
		t.lose(n)
	}
	t.findFamilies()
	t.findClimbs()
	return t, nil
}

// lose takes the cables out that a network does not have. Their places stay empty, or are another cable's of the same
// column.
func (t *tree) lose(n *Network) {
	t.w = newAdjacency(n)
	isGone := func(s int32, port ib.PortNum) bool { return n.Switches[s].Ports[port].To == NoSwitch }
	for s := range n.Switches {
		gone := func(e edge) bool { return isGone(int32(s), e.port) }
		t.dir.up[s] = slices.DeleteFunc(slices.Clone(t.dir.up[s]), gone)
		t.dir.down[s] = slices.DeleteFunc(slices.Clone(t.dir.down[s]), gone)
		slots := t.slots[t.first[s]:t.first[s+1]]
		width := int(t.cols[t.col[s]].inside)
		was := slices.Clone(slots)
		for k, at := range was {
			if at.to == NoSwitch || !isGone(int32(s), at.port) {
				continue
			}
			slots[k] = slot{to: NoSwitch}
			for i := k % width; i < len(was); i += width {
				if was[i].to != NoSwitch && !isGone(int32(s), was[i].port) {
					slots[k] = was[i]
					break
				}
			}
		}
	}
}

// findClimbs finds how high one can go up from each switch.
func (t *tree) findClimbs() {
	t.climb = make([]int32, len(t.w.out))
	for _, s := range t.dir.topmost {
		t.climb[s] = t.dir.level[s]
		for _, e := range t.dir.up[s] {
			t.climb[s] = max(t.climb[s], t.climb[e.to])
		}
	}
}

func unfitTree(format string, v ...any) error {
	return unfit("ftree", format, v...)
}

// treeLevels ranks the switches. Tiers are distances from the leaves: the switches with hosts. Where some hosts
// hang higher up, those switches don't count as leaves that have fewer hosts than others; and where
// leaves hang at different heights, tiers are counted from the middle of the tree instead.
func treeLevels(w *adjacency, o Options) ([]int32, error) {
	if len(o.Roots) > 0 {
		level, err := levelsBelow(w, "ftree", o.Roots)
		if err != nil {
			return nil, err
		}
		return level, checkLevels(w, level)
	}
	var most uint32
	for _, e := range w.ends {
		most = max(most, e)
	}
	if most == 0 {
		return nil, unfitTree("no switch has an end port, so nothing says which switches are leaves")
	}
	var first error
	level, dist := make([]int32, len(w.out)), []int32(nil)
	for _, least := range [...]uint32{1, most / 8, most / 4, most / 2, most/2 + most/4} {
		var leaves []int32
		for s, n := range w.ends {
			if n >= max(least, 1) {
				leaves = append(leaves, int32(s))
			}
		}
		search(w.out, leaves, level, nil)
		settle(level)
		err := checkLevels(w, level)
		if err == nil {
			return level, nil
		}
		if first == nil {
			first = err
		}
	}
	// Leaves at different heights: count from the switches that are nearest to the farthest leaf.
	dist = make([]int32, len(w.out))
	var queue []int32
	reach := make([]int32, len(w.out))
	for s, n := range w.ends {
		if n == 0 {
			continue
		}
		queue = search(w.out, []int32{int32(s)}, dist, queue)
		for _, at := range queue {
			reach[at] = max(reach[at], dist[at])
		}
	}
	part := components(w)
	nearest := make([]int32, len(w.out))
	for s := range nearest {
		nearest[s] = far
	}
	for s := range reach {
		if w.ends[s] == 0 {
			nearest[part[s]] = min(nearest[part[s]], reach[s])
		}
	}
	var roots []int32
	for s := range reach {
		if w.ends[s] == 0 && reach[s] == nearest[part[s]] {
			roots = append(roots, int32(s))
		}
	}
	if len(roots) == 0 {
		return nil, first
	}
	if level, err := levelsBelow(w, "ftree", roots); err == nil && checkLevels(w, level) == nil {
		return level, nil
	}
	return nil, first
}

// settle gives switches that no leaf reaches a level that harms nobody.
func settle(level []int32) {
	for s := range level {
		if level[s] == far {
			level[s] = 0
		}
	}
}

// levelsBelow ranks switches by their distance from roots, the lowest being 0.
func levelsBelow(w *adjacency, engine string, roots []int32) ([]int32, error) {
	for _, r := range roots {
		if r < 0 || int(r) >= len(w.out) {
			return nil, unfit(engine, "root %d is no switch: want 0 to %d", r, len(w.out)-1)
		}
	}
	level := make([]int32, len(w.out))
	queue := search(w.out, roots, level, nil)
	deepest := level[queue[len(queue)-1]]
	for s := range level {
		level[s] = max(deepest-level[s], 0)
	}
	return level, nil
}

// checkLevels wants what a tree has: every cable goes up or down, and there are not too many levels.
func checkLevels(w *adjacency, level []int32) error {
	for s := range w.out {
		for _, e := range w.out[s] {
			if level[e.to] == level[s] && (w.ends[s] > 0 || w.ends[e.to] > 0 || level[s] > 0) {
				return unfitTree("%v and %v are on one level of %d and cabled to each other (ports %d and %d), "+
					"which no tree has", aSwitch(s), aSwitch(e.to), level[s], e.port, e.peer)
			}
		}
	}
	if top := slices.Max(level); top >= treeRankMax {
		return unfitTree("the tree has %d levels: want at most %d", top+1, treeRankMax)
	}
	return nil
}

// farTree is the distance of a switch that has no way up and down.
const farTree = 0xFF

// unions are sets of switches that grow together; the lowest switch names the set.
type unions []int32

func newUnions(n int) unions {
	u := make(unions, n)
	for i := range u {
		u[i] = int32(i)
	}
	return u
}

func (u unions) find(s int32) int32 {
	for u[s] != s {
		u[s] = u[u[s]]
		s = u[s]
	}
	return s
}

func (u unions) join(a, b int32) {
	a, b = u.find(a), u.find(b)
	u[max(a, b)] = min(a, b)
}

// findColumns cuts the tree from the top downwards: adding the switches of one level joins columns into wider ones.
func (t *tree) findColumns() {
	n := len(t.w.out)
	sets := newUnions(n)
	at := make([]int32, n)      // the column of a set so far, by the switch that names the set
	inner := make([][]int32, n) // for each cable upwards, the column of its far end without this level
	t.col = make([]int32, n)
	for rest := t.dir.topmost; len(rest) > 0; {
		level := t.dir.level[rest[0]]
		count := 0
		for count < len(rest) && t.dir.level[rest[count]] == level {
			count++
		}
		tier := rest[:count]
		rest = rest[count:]
		for _, s := range tier {
			for _, e := range t.dir.up[s] {
				inner[s] = append(inner[s], at[sets.find(e.to)])
			}
		}
		for _, s := range tier {
			for _, e := range t.dir.up[s] {
				sets.join(s, e.to)
			}
		}
		t.joinTier(tier, inner, sets, at)
	}
	// Widths multiply from the leaves upwards; an outer column comes later in the list than what is inside it.
	for c := len(t.cols) - 1; c >= 0; c-- {
		t.cols[c].div = 1
		if out := t.cols[c].outer; out >= 0 {
			t.cols[c].div = t.cols[out].div * t.cols[out].width()
		}
		t.cols[c].first = t.places
		t.places += t.cols[c].width()
	}
	t.findSlots(inner)
}

// joinTier makes the columns that the switches of one tier close.
func (t *tree) joinTier(tier []int32, inner [][]int32, sets unions, at []int32) {
	first := int32(len(t.cols))
	made := make(map[int32]int32) // by the switch that names the set
	var joined []int32
	for _, s := range tier {
		name := sets.find(s)
		c, ok := made[name]
		if !ok {
			c = int32(len(t.cols))
			made[name] = c
			t.cols = append(t.cols, column{outer: -1, name: name, parents: 1})
		}
		t.col[s] = c
		t.cols[c].parents = max(t.cols[c].parents, mostParents(t.dir.up[s], inner[s]))
		for _, in := range inner[s] {
			if t.cols[in].outer < 0 {
				t.cols[in].outer = c
				joined = append(joined, in)
			}
		}
	}
	for c := first; c < int32(len(t.cols)); c++ {
		at[t.cols[c].name] = c
	}
	slices.SortFunc(joined, func(a, b int32) int { return cmp.Compare(t.cols[a].name, t.cols[b].name) })
	for _, in := range joined {
		out := &t.cols[t.cols[in].outer]
		t.cols[in].rank = out.inside
		out.inside++
	}
}

// mostParents counts the parents that a switch has in one column, where it has most of them.
func mostParents(up []edge, inner []int32) uint64 {
	if len(up) < 2 {
		return 1
	}
	type pair struct{ in, to int32 }
	pairs := make([]pair, len(up))
	for i := range up {
		pairs[i] = pair{inner[i], up[i].to}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.in, b.in), cmp.Compare(a.to, b.to)) })
	pairs = slices.Compact(pairs) // parallel cables to one parent count once
	most, run := uint64(1), uint64(1)
	for i := 1; i < len(pairs); i++ {
		run++
		if pairs[i].in != pairs[i-1].in {
			run = 1
		}
		most = max(most, run)
	}
	return most
}

// findSlots lays out every switch's cables upwards: by column, and among those into one column by parent first and
// parallel cable last. All slots of a switch are of one number of layers; a column with fewer cables repeats them.
func (t *tree) findSlots(inner [][]int32) {
	n := len(t.w.out)
	t.first, t.class = make([]int32, n+1), make([]int32, n)
	classOf := make(map[digitClass]int32)
	for s := range n {
		t.first[s] = int32(len(t.slots))
		t.class[s] = -1
		col := &t.cols[t.col[s]]
		width := int(col.inside)
		if width == 0 {
			continue
		}
		cables := make([][]slot, width)
		for i, e := range t.dir.up[s] {
			r := t.cols[inner[s][i]].rank
			cables[r] = append(cables[r], slot(e))
		}
		layers := 1
		for r := range cables {
			cables[r] = parentsFirst(cables[r])
			layers = max(layers, len(cables[r]))
		}
		for layer := range layers {
			for r := range width {
				at := slot{to: NoSwitch}
				if len(cables[r]) > 0 {
					at = cables[r][layer%len(cables[r])]
				}
				t.slots = append(t.slots, at)
			}
		}
		c := digitClass{col.div, uint64(width * layers)}
		k, ok := classOf[c]
		if !ok {
			k = int32(len(t.classes))
			classOf[c] = k
			t.classes = append(t.classes, c)
		}
		t.class[s] = k
	}
	t.first[n] = int32(len(t.slots))
	for s := range n {
		// Searches upwards meet the columns in their order.
		up := t.dir.up[s]
		seen := 0
		for _, at := range t.slots[t.first[s]:t.first[s+1]] {
			for i := seen; i < len(up); i++ {
				if up[i].port == at.port {
					up[seen], up[i] = up[i], up[seen]
					seen++
					break
				}
			}
		}
	}
}

// findFamilies sorts the switches that go up by their parents.
func (t *tree) findFamilies() {
	t.ports = make([]ib.PortNum, len(t.slots))
	for i, at := range t.slots {
		t.ports[i] = at.port
	}
	byHash := make(map[uint64][]int32)
	for _, s := range t.dir.topmost {
		if len(t.dir.up[s]) == 0 {
			continue
		}
		slots := t.slots[t.first[s]:t.first[s+1]]
		h, whole := uint64(t.class[s]), true
		for _, at := range slots {
			h = (h ^ uint64(uint32(at.to))) * 0x9E3779B97F4A7C15
			whole = whole && at.to != NoSwitch
		}
		k := int32(-1)
		for _, i := range byHash[h] {
			m := &t.families[i]
			if m.class == t.class[s] && slices.EqualFunc(m.slots, slots, func(a, b slot) bool { return a.to == b.to }) {
				k = i
			}
		}
		if k < 0 {
			k = int32(len(t.families))
			byHash[h] = append(byHash[h], k)
			t.families = append(t.families, family{class: t.class[s], whole: whole, slots: slots})
		}
		t.families[k].members = append(t.families[k].members, s)
	}
}

// parentsFirst orders cables into one column so that each parent comes once before any comes again.
func parentsFirst(cables []slot) []slot {
	slices.SortFunc(cables, func(a, b slot) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.port, b.port)) })
	type place struct {
		turn int
		slot
	}
	places := make([]place, len(cables))
	for i, c := range cables {
		places[i].slot = c
		if i > 0 && cables[i-1].to == c.to {
			places[i].turn = places[i-1].turn + 1
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.turn, b.turn) })
	for i, p := range places {
		cables[i] = p.slot
	}
	return cables
}

// findOrder lists the switches so that those of any subtree are neighbours: by the part of the tree below each level,
// highest level first.
func (t *tree) findOrder() {
	n := len(t.w.out)
	t.order = make([]int32, n)
	for s := range n {
		t.order[s] = int32(s)
	}
	sets := newUnions(n)
	parts := make([][]int32, 0, treeRankMax)
	top := slices.Max(t.dir.level)
	for l := int32(0); l < top; l++ {
		for s := range n {
			if t.dir.level[s] == l {
				for _, e := range t.dir.down[s] {
					sets.join(int32(s), e.to)
				}
			}
		}
		part := make([]int32, n)
		for s := range part {
			part[s] = sets.find(int32(s))
		}
		parts = append(parts, part)
	}
	slices.SortStableFunc(t.order, func(a, b int32) int {
		for l := len(parts) - 1; l >= 0; l-- {
			if c := cmp.Compare(parts[l][a], parts[l][b]); c != 0 {
				return c
			}
		}
		return 0
	})
}
