package route

import "slices"

// lateWay is a way that a switch might take which has none of the shortest.
type lateWay struct {
	hops int32
	cost uint64
	ch   int32
}

func (a lateWay) before(b lateWay) bool {
	if a.hops != b.hops {
		return a.hops < b.hops
	}
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return a.ch < b.ch
}

// begin starts a step that rollback can undo.
func (e *nueRun) begin() {
	e.fresh, e.marked = e.fresh[:0], e.marked[:0]
}

func (e *nueRun) rollback(l *nueLane) {
	for _, d := range e.fresh {
		l.remove(d[0], d[1])
	}
	for _, s := range e.marked {
		e.live[s] = false
	}
	e.begin()
}

func (e *nueRun) commit() {
	e.grown = append(e.grown, e.fresh...)
	e.begin()
}

// undoTree takes back all that the tree at hand has brought into the graph.
func (e *nueRun) undoTree(l *nueLane) {
	for _, d := range e.grown {
		l.remove(d[0], d[1])
	}
	for _, d := range e.refused {
		l.open(d[0], d[1])
	}
}

// depend makes one channel wait for another, unless that closes a cycle.
func (e *nueRun) depend(l *nueLane, x, y int32) bool {
	switch {
	case l.has(x, y):
		return true
	case l.isShut(x, y):
		return false
	case l.add(x, y):
		e.fresh = append(e.fresh, [2]int32{x, y})
		return true
	}
	// What this step itself has brought in may be taken back; only without it the refusal is for good.
	if len(e.fresh) == 0 {
		l.closeOff(x, y)
		e.refused = append(e.refused, [2]int32{x, y})
	}
	return false
}

// enliven brings the dependencies of a switch's way into the graph, as far as other packets have not done so before.
func (e *nueRun) enliven(l *nueLane, u int32) bool {
	for x := u; !e.live[x]; {
		ch := e.via[x]
		v := e.to[ch]
		if y := e.via[v]; y >= 0 && !e.depend(l, ch, y) {
			return false
		}
		e.live[x] = true
		e.marked = append(e.marked, x)
		x = v
	}
	return true
}

// attach gives a switch a way, if the graph takes it.
func (e *nueRun) attach(l *nueLane, u, ch int32) bool {
	v := e.to[ch]
	if e.n.Switches[u].Ends == 0 {
		if y := e.via[v]; y >= 0 && l.isShut(ch, y) {
			return false
		}
		e.via[u] = ch
	} else {
		old := e.via[u]
		e.via[u] = ch
		e.begin()
		if !e.enliven(l, u) {
			e.rollback(l)
			e.via[u] = old
			return false
		}
		e.commit()
	}
	e.cost[u] = e.cost[v] + uint64(e.load[ch])
	e.far[u] = e.far[v] + 1
	return true
}

// grow makes the tree of ways to the switch that was aimed at. With stay, ways that are as good as others stay, and the
// tree that there was is better than one that needs the escape tree: it is then false, as it is in strict mode if
// anything was refused. The caller then takes back the tree.
func (e *nueRun) grow(l *nueLane, stay bool) bool {
	e.grown, e.refused, e.late = e.grown[:0], e.refused[:0], e.late[:0]
	e.hung = false
	for _, u := range e.order {
		e.live[u] = false
	}
	e.live[e.target], e.far[e.target] = true, 0
	e.via[e.target], e.cost[e.target] = -1, 0
	e.tree = e.order
	for i := 1; i < len(e.order); i++ {
		u := e.order[i]
		ways := e.ways[e.first[i]:e.first[i+1]]
		best, by := uint64(pathless), int32(-1)
		if stay {
			if ch := e.via[u]; e.hops[e.to[ch]] < e.hops[u] && e.cost[e.to[ch]] < pathless {
				best, by = e.cost[e.to[ch]]+uint64(e.load[ch]), ch
			}
		}
		for _, w := range ways {
			if c := e.cost[w.to] + uint64(e.load[w.ch]); c < best {
				if y := e.via[w.to]; e.penalty > 0 && y >= 0 && !l.has(w.ch, y) {
					if c += e.penalty; c >= best {
						continue
					}
				}
				best, by = c, w.ch
			}
		}
		if by >= 0 && e.attach(l, u, by) {
			continue
		}
		if e.strict {
			return false
		}
		if !e.attachAny(l, u, ways, by) {
			e.late = append(e.late, u)
			e.via[u], e.cost[u], e.far[u] = -1, pathless, -1
		}
	}
	if len(e.late) == 0 {
		return true
	}
	return e.growLate(l, stay)
}

// attachAny tries the other shortest ways of a switch, the least used first.
func (e *nueRun) attachAny(l *nueLane, u int32, ways []way, not int32) bool {
	e.tries = e.tries[:0]
	for _, w := range ways {
		if w.ch != not && e.cost[w.to] < pathless {
			e.tries = append(e.tries, w)
		}
	}
	slices.SortStableFunc(e.tries, func(a, b way) int {
		x, y := e.cost[a.to]+uint64(e.load[a.ch]), e.cost[b.to]+uint64(e.load[b.ch])
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	for _, w := range e.tries {
		if e.attach(l, u, w.ch) {
			return true
		}
	}
	return false
}

// growLate finds longer ways for the switches that got none of the shortest. It is false, with stay, if some of them
// would need the escape tree.
func (e *nueRun) growLate(l *nueLane, stay bool) bool {
	e.bent++
	e.heap = e.heap[:0]
	for _, u := range e.late {
		e.offer(u)
	}
	for i := 0; ; {
		e.drain(l)
		for i < len(e.late) && (e.via[e.late[i]] >= 0 || e.n.Switches[e.late[i]].Ends == 0) {
			i++
		}
		if i == len(e.late) {
			break
		}
		x := e.late[i]
		switch {
		case e.detour(l, x):
			e.offerTo(x)
		case stay:
			return false
		default:
			e.hang(l, x)
			i = 0
		}
	}
	// Switches that nobody's packets pass take any way, for their own.
	for left := true; left; {
		left = false
		for _, u := range e.late {
			for ch, end := e.out(u); ch < end && e.via[u] < 0; ch++ {
				if v := e.to[ch]; v >= 0 && (v == e.target || e.via[v] >= 0) {
					e.via[u] = ch
					left = true
				}
			}
		}
	}
	e.sortTree()
	return true
}

// drain gives ways to late switches as long as the graph takes some.
func (e *nueRun) drain(l *nueLane) {
	for {
		w, ok := e.pop()
		if !ok {
			return
		}
		if u := e.tail[w.ch]; e.via[u] < 0 && u != e.target && e.far[e.to[w.ch]] >= 0 && e.attach(l, u, w.ch) {
			e.offerTo(u)
		}
	}
}

// offer puts all ways of a late switch on the heap, and offerTo those of late switches to a switch that has a way now.
func (e *nueRun) offer(u int32) {
	for ch, end := e.out(u); ch < end; ch++ {
		if v := e.to[ch]; v >= 0 && e.far[v] >= 0 {
			e.push(lateWay{e.far[v] + 1, e.cost[v] + uint64(e.load[ch]), ch})
		}
	}
}

func (e *nueRun) offerTo(v int32) {
	for ch, end := e.out(v); ch < end; ch++ {
		if u := e.to[ch]; u >= 0 && e.far[u] < 0 {
			back := e.back[ch]
			e.push(lateWay{e.far[v] + 1, e.cost[v] + uint64(e.load[back]), back})
		}
	}
}

// detour gives a switch a way through a neighbour whose own way is bent so that the graph takes both.
func (e *nueRun) detour(l *nueLane, x int32) bool {
	for ch, end := e.out(x); ch < end; ch++ {
		u := e.to[ch]
		if u < 0 || u == e.target || e.via[u] < 0 {
			continue
		}
		old := e.via[u]
		for alt, end := e.out(u); alt < end; alt++ {
			v := e.to[alt]
			if v < 0 || alt == old || v == x || v != e.target && e.via[v] < 0 || e.passes(v, u) {
				continue
			}
			if e.bend(l, x, ch, alt) {
				return true
			}
		}
	}
	return false
}

// passes reports whether the way from a switch leads through another.
func (e *nueRun) passes(from, by int32) bool {
	for x := from; ; x = e.to[e.via[x]] {
		if x == by {
			return true
		}
		if x == e.target {
			return false
		}
	}
}

// bend moves the switch that ch leads to onto another way and attaches x behind it, or does nothing.
func (e *nueRun) bend(l *nueLane, x, ch, alt int32) bool {
	u := e.to[ch]
	old, was := e.via[u], e.live[u]
	e.begin()
	e.via[u], e.live[u] = alt, false
	ok := true
	for c, end := e.out(u); c < end && ok; c++ {
		if y := e.to[c]; y >= 0 && e.via[y] == e.back[c] && e.live[y] {
			ok = e.depend(l, e.back[c], alt)
		}
	}
	e.via[x] = ch
	if ok && e.enliven(l, x) {
		e.commit()
		e.cost[u], e.far[u] = e.cost[e.to[alt]]+uint64(e.load[alt]), e.far[e.to[alt]]+1
		e.cost[x], e.far[x] = e.cost[u]+uint64(e.load[ch]), e.far[u]+1
		return true
	}
	e.rollback(l)
	e.via[u], e.live[u], e.via[x] = old, was, -1
	return false
}

// push and pop keep the heap of late ways.
func (e *nueRun) push(w lateWay) {
	e.heap = append(e.heap, w)
	i := len(e.heap) - 1
	for i > 0 && e.heap[i].before(e.heap[(i-1)/2]) {
		e.heap[i], e.heap[(i-1)/2] = e.heap[(i-1)/2], e.heap[i]
		i = (i - 1) / 2
	}
}

func (e *nueRun) pop() (lateWay, bool) {
	if len(e.heap) == 0 {
		return lateWay{}, false
	}
	top := e.heap[0]
	last := len(e.heap) - 1
	e.heap[0] = e.heap[last]
	e.heap = e.heap[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if e.heap[c].before(e.heap[least]) {
				least = c
			}
		}
		if least == i {
			return top, true
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}
