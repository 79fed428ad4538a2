package wiring

import (
	"cmp"
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// noLevel is the level of a switch that no host reaches.
const noLevel = -2

// endLevel is the level of hosts and routers in words about cables: one below the leaves.
const endLevel = -1

// edge is a cable between two switches, from its near end.
type edge struct {
	to         int32
	port, peer ib.PortNum
}

// shape is a fabric seen as a tree: switches by number, and a level for each.
type shape struct {
	g      *topo.Graph
	number []int32 // of a node; -1 for one that is no switch
	out    [][]edge
	ends   []int // hosts and routers on a switch, without those that are part of it
	links  int   // cables between switches

	level  []int // 0 is a leaf
	levels int
	// stray counts the cables that do not lead one level up or down, and hosts that hang above the leaves.
	stray int
	// why is what about the fabric is no fat tree; empty if it is one.
	why string
}

func newShape(g *topo.Graph) *shape {
	x := &shape{g: g, number: make([]int32, len(g.Nodes))}
	for i := range x.number {
		x.number[i] = -1
	}
	sw := g.Switches()
	for i, n := range sw {
		x.number[n.Index] = int32(i)
	}
	x.out, x.ends, x.level = make([][]edge, len(sw)), make([]int, len(sw)), make([]int, len(sw))
	for i, n := range sw {
		for p := 1; p < len(n.Ports); p++ {
			at := &n.Ports[p]
			if !at.Connected() || at.Peer == n.Index {
				continue
			}
			if to := x.number[at.Peer]; to >= 0 {
				x.out[i] = append(x.out[i], edge{to, ib.PortNum(p), at.PeerPort})
				x.links++
			} else if !topo.IsPart(g.Nodes[at.Peer], n) {
				x.ends[i]++
			}
		}
	}
	x.links /= 2
	x.findLevels()
	return x
}

func (x *shape) name(s int32) string { return x.g.Switches()[s].Name }

// findLevels ranks the switches. Leaves are switches with hosts; where some hosts hang higher up, how many hosts make a
// leaf is chosen so that the fewest cables stray.
func (x *shape) findLevels() {
	most := 0
	for _, e := range x.ends {
		most = max(most, e)
	}
	switch {
	case len(x.out) == 0:
		x.why = "it has no switch"
		return
	case most == 0:
		x.why = "no switch has a host, so nothing says which switches are leaves"
		return
	}
	enough := []int{1, 2, most / 8, most / 4, most / 2, most/2 + 1, most - most/4, most}
	slices.Sort(enough)
	best := -1
	for _, least := range slices.Compact(enough) {
		if least < 1 || least > most {
			continue
		}
		level := x.levelsFrom(least)
		if stray := x.strays(level); best < 0 || stray < best {
			best = stray
			x.level = level
		}
		if best == 0 {
			break
		}
	}
	x.stray = best
	if !x.straysFew() {
		// Why it is no tree is said of all hosts.
		x.level = x.levelsFrom(1)
		x.stray = x.strays(x.level)
	}
	x.levels = slices.Max(x.level) + 1
	x.judgeLevels()
}

// levelsFrom counts levels from the switches that have so many hosts, less those that turn out to stand higher.
func (x *shape) levelsFrom(least int) []int {
	isLeaf := make([]bool, len(x.out))
	for s := range isLeaf {
		isLeaf[s] = x.ends[s] >= least
	}
	var level []int
	for range refineMost {
		level = x.distances(isLeaf)
		same := true
		for s := range isLeaf {
			if isLeaf[s] && x.isLifted(level, int32(s)) {
				isLeaf[s], same = false, false
			}
		}
		if same {
			break
		}
	}
	for range refineMost {
		if !x.refine(level, isLeaf) {
			break
		}
	}
	return level
}

// distances counts cables from the nearest leaf.
func (x *shape) distances(isLeaf []bool) []int {
	level := make([]int, len(x.out))
	var queue []int32
	for s := range level {
		level[s] = noLevel
		if isLeaf[s] {
			level[s] = 0
			queue = append(queue, int32(s))
		}
	}
	for at := 0; at < len(queue); at++ {
		s := queue[at]
		for _, e := range x.out[s] {
			if level[e.to] == noLevel {
				level[e.to] = level[s] + 1
				queue = append(queue, e.to)
			}
		}
	}
	return level
}

// refineMost bounds the rounds in which levels settle: as many as a tree has levels, and some.
const refineMost = 8

// refine corrects the levels of switches that one wrong cable pulled down or the lack of hosts lifted up; it is false
// when nothing changed.
func (x *shape) refine(level []int, isLeaf []bool) bool {
	changed := false
	var votes []int
	for s := range level {
		if level[s] == noLevel || isLeaf[s] {
			continue
		}
		if level[s] >= 2 && x.twins(level, int32(s), level[s]-1, level[s]-2) > 0 {
			level[s] -= 2
			changed = true
			continue
		}
		if level[s] == 0 {
			continue // a leaf without hosts, found by its brothers
		}
		votes = votes[:0]
		for _, e := range x.out[s] {
			l := level[e.to]
			for len(votes) <= l+1 {
				votes = append(votes, 0)
			}
			votes[l+1]++
			if l > 1 {
				votes[l-1]++
			}
		}
		want := level[s]
		// Of two that are equal the higher one: a wrong cable only ever pulls down.
		for l := len(votes) - 1; l > 0; l-- {
			if want >= len(votes) || votes[l] > votes[want] {
				want = l
			}
		}
		if want != level[s] {
			level[s] = want
			changed = true
		}
	}
	return changed
}

// isLifted reports of a switch with few hosts that it is no leaf but a switch above with a stray host: among the
// switches that real leaves hang on, it has the neighbours of switches without hosts, and those of no real leaf.
func (x *shape) isLifted(level []int, s int32) bool {
	most := slices.Max(x.ends)
	if 2*x.ends[s] > most {
		return false
	}
	isReal := func(t int32) bool { return 2*x.ends[t] > most }
	overLeaves := func(t int32) []int32 {
		return slices.DeleteFunc(x.neighbours(level, t, 1),
			func(n int32) bool { return !slices.ContainsFunc(x.neighbours(level, n, 0), isReal) })
	}
	own := overLeaves(s)
	bare := false
	for _, n := range own {
		for _, e := range x.out[n] {
			isLike := func() bool {
				both, theirs := 0, overLeaves(e.to)
				for _, m := range theirs {
					if _, found := slices.BinarySearch(own, m); found {
						both++
					}
				}
				return 2*both > max(len(own), len(theirs))
			}
			switch {
			case level[e.to] == 0 && isReal(e.to):
				if isLike() {
					return false
				}
			case level[e.to] == 2 && x.ends[e.to] == 0:
				bare = bare || isLike()
			}
		}
	}
	return bare
}

// twins counts the switches of level l that have the same neighbours of level via as a switch: more than half of both
// are the same. Where l is two levels below, the switch is a brother of theirs, and seems to be above only because
// nothing hangs on it.
func (x *shape) twins(level []int, s int32, via, l int) int {
	own := x.neighbours(level, s, via)
	met := map[int32]int{}
	count := 0
	for _, n := range own {
		for _, t := range x.neighbours(level, n, l) {
			if t == s {
				continue
			}
			// Looked at once, when it passes half of the switch's neighbours.
			if met[t]++; 2*met[t] > len(own) && 2*(met[t]-1) <= len(own) &&
				2*x.shared(level, own, t, via) > len(x.neighbours(level, t, via)) {
				count++
			}
		}
	}
	return count
}

// shared counts the neighbours of a switch on one level that are in a sorted list.
func (x *shape) shared(level []int, list []int32, t int32, via int) int {
	count := 0
	for _, n := range x.neighbours(level, t, via) {
		if _, found := slices.BinarySearch(list, n); found {
			count++
		}
	}
	return count
}

// neighbours are the switches of one level that a switch is cabled to, each once.
func (x *shape) neighbours(level []int, s int32, l int) []int32 {
	var list []int32
	for _, e := range x.out[s] {
		if level[e.to] == l {
			list = append(list, e.to)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// strays counts what no tree has.
func (x *shape) strays(level []int) int {
	count := 0
	for s := range x.out {
		for _, e := range x.out[s] {
			if d := level[s] - level[e.to]; d != 1 && d != -1 && level[s] != noLevel {
				count++
			}
		}
	}
	count /= 2
	for s, n := range x.ends {
		if level[s] > 0 {
			count += n
		}
	}
	return count
}

// A fabric is called a tree when at most this share of its cables between switches stray.
const strayShareMax = 0.2

func (x *shape) straysFew() bool { return float64(x.stray) <= strayShareMax*float64(x.links) }

// judgeLevels says why a shape is no tree, if it is none.
func (x *shape) judgeLevels() {
	if x.links == 0 {
		if len(x.out) > 1 {
			x.why = fmt.Sprintf("no cable joins its %d switches", len(x.out))
		}
		return
	}
	if x.straysFew() {
		return
	}
	flat := 0
	var example edge
	from := int32(-1)
	for s := range x.out {
		for _, e := range x.out[s] {
			if x.level[s] == x.level[e.to] {
				if from < 0 {
					from, example = int32(s), e
				}
				flat++
			}
		}
	}
	flat /= 2
	leaves := 0
	for _, n := range x.ends {
		if n > 0 {
			leaves++
		}
	}
	switch {
	case from < 0:
		x.why = fmt.Sprintf("%d of %s between switches or hosts skip a level", x.stray,
			numbered(x.links, "cable", "cables"))
	case leaves == len(x.out):
		x.why = fmt.Sprintf("all %d switches have hosts, and %s between them, such as %s[%d] %s[%d], lead neither "+
			"up nor down",
			len(x.out), numbered(flat, "cable", "cables"), x.name(from), example.port, x.name(example.to), example.peer)
	default:
		x.why = fmt.Sprintf("%d of %s between switches, such as %s[%d] %s[%d], join switches that are equally "+
			"far from the hosts",
			flat, numbered(x.links, "cable", "cables"), x.name(from), example.port, x.name(example.to), example.peer)
	}
}

// isTree reports whether the fabric is a fat tree, well or badly cabled.
func (x *shape) isTree() bool { return x.why == "" }

// nodeLevel is the level of any node: hosts and routers are one below the leaves.
func (x *shape) nodeLevel(node int) int {
	if s := x.number[node]; s >= 0 {
		return x.level[s]
	}
	return endLevel
}

// levelName says a level in words.
func (x *shape) levelName(l int) string {
	switch {
	case l == endLevel:
		return "hosts"
	case l == noLevel:
		return "no level"
	case l == 0:
		return "leaves"
	case l == x.levels-1:
		return "roots"
	}
	return fmt.Sprintf("level %d", l+1)
}

// linkName says between which levels a cable runs.
func (x *shape) linkName(l int) string {
	if !x.isTree() {
		if l == endLevel {
			return "cables at hosts"
		}
		return "cables between switches"
	}
	if l == endLevel {
		return "cables at hosts"
	}
	return fmt.Sprintf("cables between %s and %s", x.levelName(l), x.levelName(l+1))
}

// order lists the leaves so that those of one subtree are neighbours, smallest subtrees within larger ones.
func (x *shape) order() []int32 {
	leaves := make([]int32, 0, len(x.out))
	for s := range x.out {
		if x.ends[s] > 0 {
			leaves = append(leaves, int32(s))
		}
	}
	if !x.isTree() {
		return leaves
	}
	sets := newSets(len(x.out))
	var parts [][]int32
	for l := range x.levels - 1 {
		for s := range x.out {
			if x.level[s] == l {
				for _, e := range x.out[s] {
					if x.level[e.to] == l-1 {
						sets.join(int32(s), e.to)
					}
				}
			}
		}
		part := make([]int32, len(x.out))
		for s := range part {
			part[s] = sets.find(int32(s))
		}
		parts = append(parts, part)
	}
	slices.SortStableFunc(leaves, func(a, b int32) int {
		for l := len(parts) - 1; l >= 0; l-- {
			if c := cmp.Compare(parts[l][a], parts[l][b]); c != 0 {
				return c
			}
		}
		return 0
	})
	return leaves
}

// sets are switches that belong together; the lowest number names a set.
type sets []int32

func newSets(n int) sets {
	u := make(sets, n)
	for i := range u {
		u[i] = int32(i)
	}
	return u
}

func (u sets) find(s int32) int32 {
	for u[s] != s {
		u[s] = u[u[s]]
		s = u[s]
	}
	return s
}

func (u sets) join(a, b int32) {
	a, b = u.find(a), u.find(b)
	u[max(a, b)] = min(a, b)
}
