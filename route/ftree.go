package route

import (
	"slices"

	"softib/ib"
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
	f := newTreeFill(n, t)
	f.number()
	f.mend()
	if err := f.fillAll(); err != nil {
		return nil, err
	}
	return &Tables{Engine: "ftree", LFT: f.lft, VLs: 1}, nil
}

// treeFill is the work on one network.
type treeFill struct {
	*tree
	n      *Network
	lft    [][]ib.PortNum
	groups []group
	// index of each destination, which says its way; changed where its own is broken.
	index []uint64

	// Mending.
	load    []int32  // destinations that come down the cable of a switch's port
	through []int32  // destinations whose chain passes a switch
	stamp   []uint32 // by column and place in it: when it was last taken in place of another
	now     uint32

	// The destination switch at hand.
	dist   []uint8
	cone   []int32
	below  [][]slot // by switch that can go down: the cables for it
	digits [][]uint16
	lids   []ib.LID
	spare  []uint32 // by slot: destinations that took it for want of their own
}

func newTreeFill(n *Network, t *tree) *treeFill {
	count := len(n.Switches)
	f := &treeFill{
		tree: t, n: n, lft: newLFT(n), groups: groups(n), index: make([]uint64, len(n.Dests)),
		load: make([]int32, count*t.w.stride), through: make([]int32, count), stamp: make([]uint32, t.places),
		dist: make([]uint8, count), below: make([][]slot, count), digits: make([][]uint16, len(t.classes)), spare: make([]uint32, len(t.slots)),
	}
	place := make([]int32, count)
	for i, s := range t.order {
		place[s] = int32(i)
	}
	slices.SortFunc(f.groups, func(a, b group) int { return int(place[a.sw]) - int(place[b.sw]) })
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
func (f *treeFill) fillAll() error {
	part := components(f.w)
	for i := range f.groups {
		g := &f.groups[i]
		f.aim(g.sw)
		if len(g.ends) > 0 {
			for s := range f.dist {
				if f.dist[s] == farTree && f.w.ends[s] > 0 && part[s] == part[g.sw] {
					return unfitTree("no way from switch %d to switch %d goes up and then down", s, g.sw)
				}
			}
			f.fill(g.sw, g.ends)
		}
		if len(g.self) > 0 {
			f.fill(g.sw, g.self)
		}
		f.fillStrays(g)
	}
	return nil
}

// aim measures the ways to a switch and lists the cables downwards.
func (f *treeFill) aim(d int32) {
	f.cone = measureTree(f.dir, d, f.dist, f.cone)
	for _, s := range f.cone {
		f.below[s] = f.below[s][:0]
	}
	for _, s := range f.cone {
		for _, e := range f.dir.up[s] {
			if f.dist[e.to] == f.dist[s]+1 {
				f.below[e.to] = append(f.below[e.to], slot{s, e.peer, e.port})
			}
		}
	}
}

// fill writes the ways to destinations of the switch aimed at.
func (f *treeFill) fill(d int32, dests []int32) {
	f.lids = f.lids[:0]
	for _, i := range dests {
		f.lids = append(f.lids, f.n.Dests[i].LID)
	}
	for k, c := range f.classes {
		row := slices.Grow(f.digits[k][:0], len(dests))
		for _, i := range dests {
			row = append(row, uint16(c.digit(f.index[i])))
		}
		f.digits[k] = row
	}
	for i, lid := range f.lids {
		f.lft[d][lid] = f.n.Dests[dests[i]].Port
	}
	for _, s := range f.cone[1:] {
		f.fillDown(s, dests)
		f.dist[s] |= inCone
	}
	f.dist[d] |= inCone
	for s, dist := range f.dist {
		if dist&inCone == 0 {
			f.fillUp(int32(s), dist, dests)
		}
	}
	for _, s := range f.cone {
		f.dist[s] &^= inCone
	}
}

// inCone marks the distance of switches that go down. No way is that long.
const inCone = 0x40

// fillDown writes the entries of a switch that can go down all the way.
func (f *treeFill) fillDown(s int32, dests []int32) {
	row, ways := f.lft[s], f.below[s]
	if len(ways) == 1 {
		for _, lid := range f.lids {
			row[lid] = ways[0].port
		}
		return
	}
	for i, lid := range f.lids {
		row[lid] = f.downPort(s, ways, f.index[dests[i]])
	}
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

// fillUp writes the entries of a switch that has to go up.
func (f *treeFill) fillUp(s int32, dist uint8, dests []int32) {
	k := f.class[s]
	if k < 0 || dist == farTree {
		return
	}
	row, slots, digits := f.lft[s], f.slots[f.first[s]:f.first[s+1]], f.digits[k]
	for i, lid := range f.lids {
		at := slots[digits[i]]
		if at.to >= 0 && f.dist[at.to]&^inCone == dist-1 {
			row[lid] = at.port
			continue
		}
		row[lid] = f.instead(s, dist, uint64(digits[i])).port
	}
}

// instead chooses a cable for a switch that lacks the one that a digit asks for, or whose
// cable does not lead there: of those that do, the one that stood in least often; half a turn away first,
// because the destinations that it serves anyway are then the farthest from this one.
func (f *treeFill) instead(s int32, dist uint8, digit uint64) slot {
	slots, spare := f.slots[f.first[s]:f.first[s+1]], f.spare[f.first[s]:f.first[s+1]]
	best, at := -1, int(digit)+len(slots)/2+int(s)
	for range slots {
		at++
		k := at % len(slots)
		if to := slots[k].to; to < 0 || f.dist[to]&^inCone != dist-1 {
			continue
		}
		if best < 0 || spare[k] < spare[best] {
			best = k
		}
	}
	spare[best]++
	return slots[best]
}

// strayMax is how many switches without a way may follow each other.
const strayMax = 64

// fillStrays writes entries of switches that have no way up and down to the switch aimed at, which in a complete tree are
// those on and above its own level beside it. Only management comes from
// there: it takes the nearest neighbour that has a way.
func (f *treeFill) fillStrays(g *group) {
	strays := f.cone[:0]
	for s, dist := range f.dist {
		if dist == farTree {
			strays = append(strays, int32(s))
		}
	}
	f.cone = strays
	for step := uint8(1); len(strays) > 0; step++ {
		left := strays[:0]
		for _, s := range strays {
			out := f.w.out[s]
			found := NoPort
			for i := range out {
				e := out[(i+int(g.sw))%len(out)]
				// Strays of this step don't follow each other.
				if at := f.dist[e.to]; at < farTree-strayMax || at > farTree-step && at != farTree {
					found = e.port
					break
				}
			}
			if found == NoPort {
				left = append(left, s)
				continue
			}
			f.dist[s] = farTree - step
			for _, set := range [...][]int32{g.ends, g.self} {
				for _, d := range set {
					f.lft[s][f.n.Dests[d].LID] = found
				}
			}
		}
		if len(left) == len(strays) || step == strayMax {
			return
		}
		strays = left
	}
}
