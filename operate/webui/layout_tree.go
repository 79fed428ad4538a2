package webui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// screenShape is how much wider than high a map should be.
const screenShape = 1.8

// placeTree lays out a tree: the parts that stay connected without the top switches stand side by side (in rows, where
// they are many) with the top switches in a row above, and each part is laid out in the same way.
func (l *layer) placeTree(switches []int) extent {
	parts := l.parts(switches, l.Levels+1)
	if len(parts) == 1 {
		return l.placePart(parts[0], l.Levels, 0, 0, true)
	}
	var size extent
	for _, p := range parts { // islands
		s := l.placePart(p, l.Levels, size.w, 0, true)
		size = extent{size.w + s.w + 2*unit, max(size.h, s.h)}
	}
	size.w -= 2 * unit
	return size
}

// parts splits switches into those that are connected by switches below a level, in the order of their names.
func (l *layer) parts(switches []int, below int) [][]int {
	part := map[int]int{}
	for _, s := range switches {
		if int(l.Level[s]) < below {
			part[s] = -1
		}
	}
	var list [][]int
	for _, s := range switches {
		if at, ok := part[s]; !ok || at >= 0 {
			continue
		}
		part[s] = len(list)
		members := []int{s}
		for i := 0; i < len(members); i++ {
			for _, far := range l.near[members[i]] {
				if at, ok := part[far]; ok && at < 0 {
					part[far] = len(list)
					members = append(members, far)
				}
			}
		}
		list = append(list, members)
	}
	first := func(members []int) int {
		best := math.MaxInt
		for _, s := range members {
			// Leafs decide: their names follow the hosts'.
			best = min(best, int(l.Level[s])*len(l.rank)+l.rank[s])
		}
		return best
	}
	slices.SortFunc(list, func(a, b []int) int { return cmp.Compare(first(a), first(b)) })
	return list
}

// placePart places a connected part whose top switches are at a level, or below it.
func (l *layer) placePart(members []int, level int, x, y int32, root bool) extent {
	var tops []int
	for level > 1 {
		for _, s := range members {
			if int(l.Level[s]) == level {
				tops = append(tops, s)
			}
		}
		if len(tops) > 0 {
			break
		}
		level--
	}
	if len(tops) == 0 {
		return l.placeLeafs(members, x, y)
	}
	children := l.parts(members, level)
	if len(children) == 0 { // only switches of one level: nothing hangs below
		return l.placeLeafs(members, x, y)
	}
	pods := level >= 3 && len(children) > 1
	gap := int32(unit / 4)
	if pods {
		gap = 2 * unit
	}
	rows := l.rows(children, level, gap)
	// A first try at the origin finds out how large the children are.
	inner := l.placeChildren(children, level, x, y, gap, rows, nil)
	drop := min(max(inner.w*22/100, 3*unit), 40*unit)
	l.hangHosts(tops, &drop)
	top := y + switchH + drop
	var boxes []extent
	size := l.placeChildren(children, level, x, top, gap, rows, &boxes)
	width := l.placeTops(tops, children, x, y, size.w, root && pods)
	if width > size.w { // more tops than there is room for: the children stand in the middle
		size = l.placeChildren(children, level, x+(width-size.w)/2, top, gap, rows, &boxes)
		size.w = width
	}
	if root && pods {
		l.addPods(children, boxes)
	}
	return extent{size.w, size.h + switchH + drop}
}

// hangHosts makes room for the few hosts that are plugged into switches above the leafs: they stand right under those.
func (l *layer) hangHosts(tops []int, drop *int32) {
	for _, s := range tops {
		if c := len(l.hosts[s]); c > 0 {
			*drop = max(*drop, 2*unit+int32(c)*rowPitch)
		}
	}
}

// rows is how many rows of children come closest to the shape of a screen.
func (l *layer) rows(children [][]int, level int, gap int32) int {
	if level == 2 && len(children) <= 100 {
		return 1
	}
	var one extent
	for _, c := range children {
		s := l.placePart(c, level-1, 0, 0, false)
		one = extent{max(one.w, s.w), max(one.h, s.h)}
	}
	best, bestOff := 1, math.Inf(1)
	for rows := 1; rows <= len(children); rows++ {
		w := (one.w + gap) * int32((len(children)+rows-1)/rows)
		h := (one.h+gap+2*unit)*int32(rows) + w*22/100
		if off := math.Abs(math.Log(float64(w) / float64(h) / screenShape)); off < bestOff {
			best, bestOff = rows, off
		}
	}
	return best
}

// placeChildren places parts in rows and notes where each is.
func (l *layer) placeChildren(children [][]int, level int, x, y, gap int32, rows int, boxes *[]extent) extent {
	perRow := (len(children) + rows - 1) / rows
	var size extent
	at, rowH := x, int32(0)
	if boxes != nil {
		*boxes = (*boxes)[:0]
	}
	for i, c := range children {
		if i > 0 && i%perRow == 0 {
			at, y = x, y+rowH+gap+2*unit
			size.h += rowH + gap + 2*unit
			rowH = 0
		}
		s := l.placePart(c, level-1, at, y, false)
		if boxes != nil {
			*boxes = append(*boxes, extent{at, y}, s)
		}
		at += s.w + gap
		rowH = max(rowH, s.h)
		size.w = max(size.w, at-gap-x)
	}
	size.h += rowH
	return size
}

// placeLeafs places blocks side by side.
func (l *layer) placeLeafs(members []int, x, y int32) extent {
	l.sortByName(members)
	var size extent
	for _, s := range members {
		b := l.block(s, x+size.w, y)
		size = extent{size.w + b.w, max(size.h, b.h)}
	}
	return size
}

// placeTops places the switches of the top level over the width of what is below. Those that lead to the same switches
// stand together, and are a group where pods are.
func (l *layer) placeTops(tops []int, children [][]int, x, y, width int32, grouped bool) int32 {
	l.sortByName(tops)
	sets := l.topSets(tops, children, grouped)
	slots := int32(len(tops))
	if len(sets) > 1 {
		slots += int32(len(sets)) // half a slot on either side of a set
	}
	slot := width / slots
	if slot < unit/2 {
		slot = unit / 2
		width = slot * slots
	}
	sw := min(slot*86/100, switchWMax)
	at := x + (width-slot*slots)/2
	for i, set := range sets {
		if len(sets) > 1 {
			at += slot / 2
		}
		from := at
		for _, s := range set {
			l.box(s, at+(slot-sw)/2, y, sw, switchH)
			for j, h := range l.hosts[s] {
				l.box(h, at+(slot-sw)/2, y+switchH+stem+int32(j)*rowPitch, min(sw, cellW), cellH)
			}
			at += slot
		}
		if grouped {
			for _, s := range set {
				l.Group[s] = int32(len(l.Groups))
			}
			l.Groups = append(l.Groups, group{Name: fmt.Sprintf("top %d", i+1), Top: true, X: from, Y: y, W: at - from,
				H: switchH, Switches: len(set)})
		}
		if len(sets) > 1 {
			at += slot / 2
		}
	}
	return width
}

// topSets collects top switches with the same neighbours.
func (l *layer) topSets(tops []int, children [][]int, grouped bool) [][]int {
	if !grouped {
		return [][]int{tops}
	}
	index := map[string]int{}
	var sets [][]int
	for _, s := range tops {
		key := fmt.Sprint(l.near[s])
		at, ok := index[key]
		if !ok {
			at = len(sets)
			index[key] = at
			sets = append(sets, nil)
		}
		sets[at] = append(sets[at], s)
	}
	if len(sets) > 4*len(children)+32 { // nothing is alike: names keep the order
		return [][]int{tops}
	}
	return sets
}

// addPods makes a group of every part below the top.
func (l *layer) addPods(children [][]int, boxes []extent) {
	for i, members := range children {
		pos, size := boxes[2*i], boxes[2*i+1]
		g := group{Name: fmt.Sprintf("pod %d", i+1), X: pos.w, Y: pos.h, W: size.w, H: size.h, Switches: len(members)}
		for _, s := range members {
			l.Group[s] = int32(len(l.Groups))
			for _, h := range l.hosts[s] {
				l.Group[h] = int32(len(l.Groups))
				g.Hosts++
			}
		}
		l.Groups = append(l.Groups, g)
	}
}
