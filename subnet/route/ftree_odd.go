package route

// oddities are the destinations and switches that could not have the place that an index asks for, while the tables are
// written. In a shift permutation the end ports below a switch send to as many destinations that follow each other; a
// place is loaded twice as soon as one odd destination among them has it, and three times where two have. So odd ones
// near each other get different places, as far as there are any.
type oddities struct {
	*tree
	// seats counts the groups of end ports. Shifts wrap around, so the last is beside the first.
	seats int32
	// first and span are, by switch, the groups below it: how near is near.
	first, span []int32
	// moved counts, by place of a column, destinations near the one at hand that got the place for want of their own,
	// and movedAt is the last group of those.
	moved   []uint32
	movedAt []int32
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
		movedAt: make([]int32, t.places), taken: make([]taken, t.places),
		count: make([]uint32, len(t.slots)), last: make([]int32, len(t.slots)), floor: make([]uint32, n),
	}
	for i := range o.last {
		o.last[i] = never
	}
	for i := range o.taken {
		o.taken[i] = taken{never, never}
	}
	for i := range o.movedAt {
		o.movedAt[i] = never
	}
	end := make([]int32, n)
	for _, g := range groups {
		if len(g.ends) > 0 {
			o.seats++
			end[g.sw] = o.seats
		}
	}
	for s := range n {
		o.first[s] = o.seats
		if end[s] > 0 {
			o.first[s] = end[s] - 1
		}
	}
	for i := n - 1; i >= 0; i-- {
		s := t.dir.topmost[i]
		for _, e := range t.dir.down[s] {
			o.first[s], end[s] = min(o.first[s], o.first[e.to]), max(end[s], end[e.to])
		}
		o.span[s] = max(end[s]-o.first[s], 1)
	}
	o.enter, o.leave = make([][]uint64, o.seats), make([][]uint64, o.seats)
	return o
}

// place is the number of the place in its column that a switch's slot stands for. Slots of parallel cables stand for
// the same place.
func (o *oddities) place(s int32, k int) uint64 {
	c := &o.cols[o.col[s]]
	if w := c.width(); uint64(k) >= w {
		return c.first + uint64(k)%w
	}
	return c.first + uint64(k)
}

// move notes a destination at a switch that has another index than its own.
func (o *oddities) move(s int32, index uint64) {
	at := o.first[s]
	for {
		k := o.slotAt(s, index)
		if k < 0 || o.slots[k].to == NoSwitch {
			return
		}
		place := o.place(s, int(k-o.tree.first[s]))
		o.movedAt[place] = at
		if span := o.span[s]; 2*span+1 >= o.seats {
			o.moved[place]++
		} else {
			from, to := (at-span+o.seats)%o.seats, (at+span+1)%o.seats
			o.enter[from] = append(o.enter[from], place)
			o.leave[to] = append(o.leave[to], place)
			if from > to {
				o.moved[place]++ // near the first group too
			}
		}
		s = o.slots[k].to
	}
}

// movedNear reports whether a destination beside the one at a group got a place of a switch's column.
func (o *oddities) movedNear(s int32, place uint64, at int32) bool {
	return o.within(o.movedAt[place], at, o.span[s])
}

// reach goes on to the group of a switch, which is later than those before.
func (o *oddities) reach(sw int32) {
	for o.turn < o.first[sw] {
		o.turn++
		for _, place := range o.enter[o.turn] {
			o.moved[place]++
		}
		for _, place := range o.leave[o.turn] {
			if o.moved[place] > 0 {
				o.moved[place]--
			}
		}
	}
}

// instead chooses a cable for a switch that lacks the one that a digit asks for, or whose cable does not lead there: of
// those that do, one where nothing odd is near, then the one that stood in least often. It looks half a turn away
// first, where the destinations that the cable serves anyway are the farthest from this one.
func (f *treeFill) instead(s int32, dist uint8, digit int, end bool) slot {
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
			if o.within(last[k], o.turn, span) {
				near++
			}
			if t := &seats[place]; o.within(t.turn, o.turn, span) && o.within(t.seat, seat, span) {
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
	if !end {
		return slots[best] // a switch's own LID weighs nothing
	}
	o.floor[s] = low
	count[best]++
	last[best] = o.turn
	o.taken[o.place(s, best)] = taken{seat, o.turn}
	return slots[best]
}

// within reports whether two groups are at most span apart, around the end.
func (o *oddities) within(a, b, span int32) bool {
	if a < 0 {
		return false
	}
	apart := max(a-b, b-a)
	return min(apart, o.seats-apart) <= span
}
