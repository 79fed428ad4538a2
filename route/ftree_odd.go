package route

// oddities are the destinations and switches that could not have the place that an index asks for, while the
// tables are written. In a shift permutation the end ports below a switch send to as many
// destinations that follow each other; a place is loaded twice as soon as one odd destination among them has it, and three
// times where two have. So odd ones near each other get different places, as far as there are any.
type oddities struct {
	*tree
	// first and span are, by switch, the groups of destinations below it: how near is near.
	first, span []int32
	// moved counts, by place of a column, destinations near the one at hand that got the place for want of their own.
	moved []uint32
	// enter and leave are the places whose counts change when a group is reached.
	enter, leave [][]uint64
	turn         int32 // the group at hand
	// The last switch of a column that took a place for want of its own.
	taken []taken
	// By slot: how often it was taken so, and for which group last.
	count []uint32
	last  []int32
	floor []uint32 // by switch: about the least of its counts, where a search may end
}

type taken struct{ seat, turn int32 }

// never is the turn of what has not happened, far from all others.
const never = -1 << 20

func newOddities(t *tree, groups []group) *oddities {
	n := len(t.w.out)
	o := &oddities{
		tree: t, turn: -1, first: make([]int32, n), span: make([]int32, n), moved: make([]uint32, t.places),
		enter: make([][]uint64, len(groups)), leave: make([][]uint64, len(groups)), taken: make([]taken, t.places),
		count: make([]uint32, len(t.slots)), last: make([]int32, len(t.slots)), floor: make([]uint32, n),
	}
	for i := range o.last {
		o.last[i] = never
	}
	for i := range o.taken {
		o.taken[i] = taken{never, never}
	}
	end := make([]int32, n)
	for s := range n {
		o.first[s], end[s] = int32(len(groups)), 0
	}
	for i, g := range groups {
		if len(g.ends) > 0 {
			o.first[g.sw], end[g.sw] = int32(i), int32(i)+1
		}
	}
	for i := n - 1; i >= 0; i-- {
		s := t.dir.topmost[i]
		for _, e := range t.dir.down[s] {
			o.first[s], end[s] = min(o.first[s], o.first[e.to]), max(end[s], end[e.to])
		}
		o.span[s] = max(end[s]-o.first[s], 1)
	}
	return o
}

// place is the number of the place in its column that a switch's slot stands for. Slots of parallel cables stand for the same place.
func (o *oddities) place(s int32, k int) uint64 {
	c := &o.cols[o.col[s]]
	if w := c.width(); uint64(k) >= w {
		return c.first + uint64(k)%w
	}
	return c.first + uint64(k)
}

// move notes a destination, of the group at a switch, that has another index than its own.
func (o *oddities) move(s, at int32, index uint64) {
	for {
		k := o.slotAt(s, index)
		if k < 0 || o.slots[k].to == NoSwitch {
			return
		}
		place := o.place(s, int(k-o.tree.first[s]))
		from, to := max(at-o.span[s], 0), at+o.span[s]+1
		o.enter[from] = append(o.enter[from], place)
		if int(to) < len(o.leave) {
			o.leave[to] = append(o.leave[to], place)
		}
		s = o.slots[k].to
	}
}

// reach goes on to a later group.
func (o *oddities) reach(group int32) {
	for o.turn < group {
		o.turn++
		for _, place := range o.enter[o.turn] {
			o.moved[place]++
		}
		for _, place := range o.leave[o.turn] {
			o.moved[place]--
		}
	}
}

// instead chooses a cable for a switch that lacks the one that a digit asks for, or whose
// cable does not lead there: of those that do, one where nothing odd is near, then the one that stood in least often. It looks half
// a turn away first, where the destinations that the cable serves anyway are the farthest from this one.
func (f *treeFill) instead(s int32, dist uint8, digit int) slot {
	o := f.odd
	from, to := f.first[s], f.first[s+1]
	slots, count, last := f.slots[from:to], o.count[from:to], o.last[from:to]
	span, seat := o.span[s], o.first[s]
	// place(s, k), with what does not depend on k taken out of the loop.
	col := &o.cols[o.col[s]]
	width := int(col.width())
	moved, seats := o.moved[col.first:][:width], o.taken[col.first:][:width]
	k := (digit + len(slots)/2 + int(s)) % len(slots)
	best, least, low := 0, ^uint64(0), ^uint32(0)
	for range slots {
		if to := slots[k].to; to >= 0 && f.dist[to] == dist-1 {
			place := k
			if place >= width {
				place %= width
			}
			near := uint64(moved[place])
			if o.turn-last[k] <= span {
				near++
			}
			if t := &seats[place]; within(t.turn, o.turn, span) && within(t.seat, seat, span) {
				near++
			}
			low = min(low, count[k])
			if score := near<<32 | uint64(count[k]); score < least {
				best, least = k, score
				if score <= uint64(o.floor[s]) {
					low = o.floor[s]
					break
				}
			}
		}
		if k++; k == len(slots) {
			k = 0
		}
	}
	o.floor[s] = low
	count[best]++
	last[best] = o.turn
	o.taken[o.place(s, best)] = taken{seat, o.turn}
	return slots[best]
}

func within(a, b, span int32) bool { return a-b <= span && b-a <= span }
