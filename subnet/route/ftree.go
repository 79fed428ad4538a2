package route

import (
	"slices"

	"softib/proto/ib"
)

// fatTree routes trees. Every destination has an index, its place among the
// end ports of the tree; the digits of the index, in the widths of the tree's levels, say
// which cable each switch takes upwards. All flows to a destination thus meet at one top switch and come down on
// one chain of cables that no neighbour of the destination shares: in a complete tree, every shift
// permutation, even of hosts that are missing here and there, loads no cable twice (Zahavi's D-mod-K).
//
// Ways go up and then down, never up again, so one lane is enough.
//
// Where cables are missing, a destination whose chain is broken gets another index, whose
// chain carries the least so far; a switch that lacks the cable for a digit spreads those destinations over its others.
type fatTree struct{}

func (fatTree) Name() string { return "ftree" }

func (fatTree) Compute(n *Network, o Options) (*Tables, error) {
	t, err := newTree(n, o)
	if err != nil {
		return nil, err
	}
	return treeTables("ftree", n, t, o)
}

// treeTables routes a tree whose shape is known.
func treeTables(engine string, n *Network, t *tree, o Options) (*Tables, error) {
	f := newTreeFill(n, t)
	f.number()
	own := slices.Clone(f.index)
	f.mend()
	f.fillAll()
	tab := &Tables{Engine: engine, LFT: f.lft, VLs: 1, made: n, whole: n, index: f.index, own: own}
	if len(f.detours) == 0 {
		tab.Rank = t.dir.ranks()
		return tab, nil
	}
	// Where so many cables are missing that two leaves have no way up and down, a way up again is taken after all,
	// on a lane of its own: there such ways meet only each other.
	first := f.detours[0]
	if o.VLs == 1 {
		return nil, unfit(engine, "no way from %v to %v goes up and then down, and another needs a second lane",
			aSwitch(first.from), aSwitch(first.to))
	}
	tab.VLs, tab.SL = 2, f.levels()
	g := NewCDG(n)
	g.Add(tab, EndTraffic)
	if cycle := g.Cycle(); cycle != nil {
		return nil, unfit(engine, "no way from %v to %v goes up and then down, and the others can wait for "+
			"each other: %v", aSwitch(first.from), aSwitch(first.to), cycle)
	}
	return tab, nil
}

// levels are the service levels: 1 for detours.
func (f *treeFill) levels() [][]ib.SL {
	sl := make([][]ib.SL, len(f.w.out))
	at := make(map[int32]*group)
	for i := range f.groups {
		at[f.groups[i].sw] = &f.groups[i]
	}
	for _, d := range f.detours {
		if sl[d.from] == nil {
			sl[d.from] = make([]ib.SL, len(f.n.Dests))
		}
		for _, set := range [...][]int32{at[d.to].ends, at[d.to].self} {
			for _, dest := range set {
				sl[d.from][dest] = 1
			}
		}
	}
	return sl
}

// treeFill is the work on one network.
type treeFill struct {
	*tree
	n      *Network
	lft    [][]ib.PortNum
	groups []group
	part   []int32
	// index of each destination, which says its way; changed where its own is broken.
	index []uint64

	// Mending.
	load    []int32  // destinations that come down the cable of a switch's port
	through []int32  // destinations whose chain passes a switch
	stamp   []uint32 // by column and place in it: when it was last taken in place of another
	now     uint32

	// The destination switch at hand.
	dist  []uint8
	down  []bool // can go down all the way
	cone  []int32
	below [][]slot // by switch that can go down: the cables for it
	runs  [][]run  // by class
	runOf []run    // of LIDs that follow each other
	lids  []ib.LID
	at    []int32 // destinations, as lids
	odd   *oddities

	detours []detour

	// Where tables are repaired: what they were, by LID of the old ones.
	old    [][]ib.PortNum
	oldLID []ib.LID
	fresh  []bool // destinations that have no index yet, nil for none
}

// detour is a pair of switches with end ports that have no way up and down between them.
type detour struct{ from, to int32 }

// run is destinations whose LIDs follow each other and whose digits either all are the same or follow each other too.
type run struct {
	lid   ib.LID
	count int32
	first int32 // the first one's place in the group
	digit int32
	step  bool
}

func newTreeFill(n *Network, t *tree) *treeFill {
	count := len(n.Switches)
	f := &treeFill{
		tree: t, n: n, lft: newLFT(n), groups: groups(n), index: make([]uint64, len(n.Dests)), part: components(t.w),
		load: make([]int32, count*t.w.stride), through: make([]int32, count), stamp: make([]uint32, t.places),
		dist: make([]uint8, count), down: make([]bool, count), below: make([][]slot, count),
		runs: make([][]run, len(t.classes)),
	}
	place := make([]int32, count)
	for i, s := range t.order {
		place[s] = int32(i)
	}
	slices.SortFunc(f.groups, func(a, b group) int { return int(place[a.sw]) - int(place[b.sw]) })
	f.odd = newOddities(t, f.groups)
	return f
}

// number gives the end ports their indices along the tree, and the switches theirs. Storage has a row of
// numbers of its own: where one port of every leaf is storage, all would else go through one top switch.
// The LIDs of one end port follow each other, so that each takes another way.
func (f *treeFill) number() {
	var next [2]uint64
	var self uint64
	for _, g := range f.groups {
		for i, d := range g.ends {
			dest := &f.n.Dests[d]
			row := 0
			if dest.IO {
				row = 1
			}
			if i > 0 && f.n.Dests[g.ends[i-1]].Port == dest.Port {
				f.index[d] = f.index[g.ends[i-1]] + 1
				continue
			}
			f.index[d] = next[row]
			next[row]++
		}
		for _, d := range g.self {
			f.index[d] = self
			self++
		}
	}
}

// slotAt is the number of the slot that a switch has for an index, -1 if it is a top switch.
func (t *tree) slotAt(s int32, index uint64) int32 {
	c := t.class[s]
	if c < 0 {
		return -1
	}
	return t.first[s] + int32(t.classes[c].digit(index))
}

// fillAll writes the tables, one destination switch after the other.
func (f *treeFill) fillAll() {
	for i := range f.groups {
		f.fillGroup(i)
	}
}

// fillGroup writes the ways to the destinations at one switch.
func (f *treeFill) fillGroup(i int) {
	g := &f.groups[i]
	strays, detoured := f.aim(g.sw), false
	if strays > 0 && len(g.ends) > 0 {
		for s := range f.dist {
			if f.dist[s] == farTree && f.w.ends[s] > 0 && f.part[s] == f.part[g.sw] {
				f.detours = append(f.detours, detour{int32(s), g.sw})
				detoured = true
			}
		}
	}
	if len(g.ends) > 0 {
		f.odd.reach(g.sw)
	}
	f.list(g)
	f.fill(g.sw)
	switch {
	case detoured:
		f.fillDetours(g.sw)
	case strays > 0:
		f.fillStrays(g.sw)
	}
	for _, s := range f.cone {
		f.down[s] = false
	}
}

// aim measures the ways to a switch and lists the cables downwards. It answers how many switches have no way.
func (f *treeFill) aim(d int32) (strays int) {
	for i := range f.dist {
		f.dist[i] = farTree
	}
	f.dist[d], f.down[d] = 0, true
	f.below[d] = f.below[d][:0]
	f.cone = append(f.cone[:0], d)
	for at := 0; at < len(f.cone); at++ {
		s := f.cone[at]
		next := f.dist[s] + 1
		for _, e := range f.dir.up[s] {
			if !f.down[e.to] {
				f.dist[e.to], f.down[e.to] = next, true
				f.below[e.to] = f.below[e.to][:0]
				f.cone = append(f.cone, e.to)
			}
			if f.dist[e.to] == next {
				f.below[e.to] = append(f.below[e.to], slot{s, e.peer, e.port})
			}
		}
	}
	strays = len(f.w.out) - len(f.cone)
	for i := range f.families {
		m := &f.families[i]
		least, most := uint8(farTree), uint8(0)
		for _, at := range m.slots {
			if at.to >= 0 {
				least, most = min(least, f.dist[at.to]), max(most, f.dist[at.to])
			}
		}
		m.dist, m.even = farTree, m.whole && least == most
		if least == farTree {
			continue
		}
		m.dist = least + 1
		for _, s := range m.members {
			if !f.down[s] {
				f.dist[s] = m.dist
				strays--
			}
		}
	}
	return strays
}

// list cuts the destinations of a group into runs.
func (f *treeFill) list(g *group) {
	f.lids, f.at, f.runOf = f.lids[:0], f.at[:0], f.runOf[:0]
	for _, set := range [...][]int32{g.ends, g.self} {
		for _, d := range set {
			lid := f.n.Dests[d].LID
			f.lids, f.at = append(f.lids, lid), append(f.at, d)
			if last := len(f.runOf) - 1; last >= 0 && f.runOf[last].lid+ib.LID(f.runOf[last].count) == lid {
				f.runOf[last].count++
			} else {
				f.runOf = append(f.runOf, run{lid: lid, count: 1, first: int32(len(f.lids) - 1)})
			}
		}
	}
	for k, c := range f.classes {
		runs := f.runs[k][:0]
		for _, r := range f.runOf {
			open := false
			for i := range r.count {
				at := r.first + i
				digit := int32(c.digit(f.index[f.at[at]]))
				if open {
					last := &runs[len(runs)-1]
					same, next := digit == last.digit, digit == last.digit+last.count
					if last.count == 1 && (same || next) || last.step && next || !last.step && same {
						last.step = next
						last.count++
						continue
					}
				}
				runs = append(runs, run{r.lid + ib.LID(i), 1, at, digit, false})
				open = true
			}
		}
		f.runs[k] = runs
	}
}

// fill writes the ways to the destinations listed, which are at the switch aimed at.
func (f *treeFill) fill(d int32) {
	for i, lid := range f.lids {
		f.lft[d][lid] = f.n.Dests[f.at[i]].Port
	}
	for _, s := range f.cone[1:] {
		f.fillDown(s)
	}
	for i := range f.families {
		m := &f.families[i]
		if m.dist == farTree {
			continue
		}
		for _, s := range m.members {
			switch {
			case f.down[s]:
			case m.even:
				f.fillEven(s, f.runs[m.class])
			default:
				f.fillUneven(s, m.dist, f.runs[m.class])
			}
		}
	}
}

// fillDown writes the entries of a switch that can go down all the way.
func (f *treeFill) fillDown(s int32) {
	row, ways := f.lft[s], f.below[s]
	if len(ways) > 1 {
		for i, lid := range f.lids {
			row[lid] = f.downPort(s, ways, f.index[f.at[i]])
		}
		return
	}
	port := ways[0].port
	for _, r := range f.runOf {
		to := row[r.lid:][:r.count]
		for i := range to {
			to[i] = port
		}
	}
}

// fillEven writes the entries of a switch that has to go up and can by every cable.
func (f *treeFill) fillEven(s int32, runs []run) {
	row, ports := f.lft[s], f.ports[f.first[s]:f.first[s+1]]
	for i := range runs {
		r := &runs[i]
		to := row[r.lid:][:r.count]
		if r.step {
			copy(to, ports[r.digit:])
			continue
		}
		port := ports[r.digit]
		for i := range to {
			to[i] = port
		}
	}
}

// fillUneven writes the entries of a switch that has to go up and lacks a cable, or has one that does not lead there.
func (f *treeFill) fillUneven(s int32, dist uint8, runs []run) {
	row, slots := f.lft[s], f.slots[f.first[s]:f.first[s+1]]
	for i := range runs {
		r := &runs[i]
		digit := r.digit
		for j := range r.count {
			at := slots[digit]
			if at.to < 0 || f.dist[at.to] != dist-1 {
				var ok bool
				if at, ok = f.asBefore(s, dist, r.lid+ib.LID(j)); !ok {
					at = f.instead(s, dist, int(digit), f.n.Dests[f.at[r.first+j]].IsEnd())
				}
			}
			row[r.lid+ib.LID(j)] = at.port
			if r.step {
				digit++
			}
		}
	}
}

// asBefore is the slot that a switch used in the tables that are being repaired, if it still leads there.
func (f *treeFill) asBefore(s int32, dist uint8, lid ib.LID) (slot, bool) {
	if f.old == nil {
		return slot{}, false
	}
	port := f.old[s][f.oldLID[lid]]
	for _, at := range f.slots[f.first[s]:f.first[s+1]] {
		if at.port == port && at.to >= 0 && f.dist[at.to] == dist-1 {
			return at, true
		}
	}
	return slot{}, false
}

// downPort chooses among several cables downwards: the one by which a switch below would come up for
// this index, else any by turns.
func (f *treeFill) downPort(s int32, ways []slot, index uint64) ib.PortNum {
	for i, way := range ways {
		if i > 0 && ways[i-1].to == way.to {
			continue
		}
		if at := f.slotAt(way.to, index); at >= 0 && f.slots[at].to == s {
			if at := f.slots[at].peer; f.onChain(way.to, index) {
				return at
			}
		}
	}
	return ways[index%uint64(len(ways))].port
}

// onChain reports whether a destination's own way up from the switch aimed at passes s.
func (f *treeFill) onChain(s int32, index uint64) bool {
	at := f.cone[0]
	for range treeRankMax {
		if at == s {
			return true
		}
		k := f.slotAt(at, index)
		if k < 0 || f.slots[k].to == NoSwitch {
			return false
		}
		at = f.slots[k].to
	}
	return false
}

// fillStrays writes entries of switches that have no way up and down to the switch aimed at, which in a complete tree
// are those on and above its own level beside it. Only management comes from there: it takes a neighbour that has a
// way, going down first.
func (f *treeFill) fillStrays(d int32) {
	for again := true; again; {
		again = false
		for i := len(f.dir.topmost) - 1; i >= 0; i-- {
			s := f.dir.topmost[i]
			if f.dist[s] != farTree {
				continue
			}
			port := f.anyWay(f.dir.down[s], int(d))
			if port == NoPort {
				port = f.anyWay(f.dir.up[s], int(d))
			}
			if port == NoPort {
				continue
			}
			// A switch that follows this one comes later, so none follow each other in a circle.
			f.dist[s], again = strayed, true
			for _, lid := range f.lids {
				f.lft[s][lid] = port
			}
		}
	}
}

// fillDetours is fillStrays where programs' packets go that way too: by the shortest of such ways.
func (f *treeFill) fillDetours(d int32) {
	var strays []int32
	for s, dist := range f.dist {
		if dist == farTree {
			strays = append(strays, int32(s))
		}
	}
	for again := true; again; {
		again = false
		for _, s := range strays {
			for _, e := range f.w.out[s] {
				if at := f.dist[e.to]; at < strayed && at+1 < f.dist[s] {
					f.dist[s], again = at+1, true
				}
			}
		}
	}
	for _, s := range strays {
		out := f.w.out[s]
		for i := range out {
			e := out[(i+int(d))%len(out)]
			if f.dist[s] != farTree && f.dist[e.to] == f.dist[s]-1 {
				for _, lid := range f.lids {
					f.lft[s][lid] = e.port
				}
				break
			}
		}
	}
}

// strayed is the distance of a switch whose way does not go up and then down.
const strayed = farTree - 1

// anyWay finds a cable to a switch that has a way, starting anywhere.
func (f *treeFill) anyWay(cables []edge, start int) ib.PortNum {
	for i := range cables {
		e := cables[(i+start)%len(cables)]
		if f.dist[e.to] != farTree {
			return e.port
		}
	}
	return NoPort
}
