package route

import (
	"cmp"
	"slices"
)

// findClusters finds the groups of a dragonfly: a number for each switch, or nil. They are the largest sets of switches
// of one size, each cabled to all others of its set, where any two sets are joined. Where cables are missing there is
// no such size, and they are what hangs together by cables whose ends have many neighbours in common, as local ones do.
func findClusters(w *adjacency) []int32 {
	beside := newNeighbours(w)
	most := 0
	for s := range w.out {
		most = max(most, len(beside.list[s])+1)
	}
	for size := most; size > 0; size-- {
		if len(w.out)%size != 0 {
			continue
		}
		if of := beside.cliques(size); of != nil && isJoined(w, of) {
			if size < len(of) {
				return of
			}
			size = 2 // a full mesh: groups of one have the most ways
		}
	}
	if of := beside.dense(); isJoined(w, of) {
		return of
	}
	return nil
}

// isJoined reports whether from any cluster global links lead to any other, or to one from which they do, and
// most of them at once.
func isJoined(w *adjacency, of []int32) bool {
	count := int(slices.Max(of)) + 1
	direct := make([]bool, count*count)
	for s := range w.out {
		for _, e := range w.out[s] {
			direct[int(of[s])*count+int(of[e.to])] = true
		}
	}
	at := func(a, b int) bool { return direct[a*count+b] }
	joined, pairs := 0, 0
	for a := range count {
		for b := range a {
			pairs++
			if at(a, b) {
				joined++
				continue
			}
			by := 0
			for by < count && (by == a || by == b || !at(a, by) || !at(by, b)) {
				by++
			}
			if by == count {
				return false
			}
		}
	}
	return 2*joined >= pairs
}

// neighbours is who is cabled to whom.
type neighbours struct {
	list [][]int32 // by switch, each once, in the order of ports
	set  [][]uint64
}

func newNeighbours(w *adjacency) *neighbours {
	b := &neighbours{list: make([][]int32, len(w.out)), set: make([][]uint64, len(w.out))}
	for s := range w.out {
		b.set[s] = make([]uint64, (len(w.out)+63)/64)
		for _, e := range w.out[s] {
			if !b.has(int32(s), e.to) {
				b.set[s][e.to/64] |= 1 << (e.to % 64)
				b.list[s] = append(b.list[s], e.to)
			}
		}
	}
	return b
}

func (b *neighbours) has(s, t int32) bool { return b.set[s][t/64]>>(t%64)&1 != 0 }

// common counts what is cabled to both.
func (b *neighbours) common(s, t int32) int {
	n := 0
	for _, u := range b.list[s] {
		if b.has(t, u) {
			n++
		}
	}
	return n
}

// cliques cuts the switches into sets of one size, all of a set cabled to each other; nil if that is not found. Those
// with the most neighbours in common come together first.
func (b *neighbours) cliques(size int) []int32 {
	of := make([]int32, len(b.list))
	for s := range of {
		of[s] = -1
	}
	next := int32(0)
	for s := range of {
		if of[s] >= 0 {
			continue
		}
		var free []int32
		for _, t := range b.list[s] {
			if of[t] < 0 {
				free = append(free, t)
			}
		}
		slices.SortStableFunc(free, func(x, y int32) int {
			return cmp.Compare(b.common(int32(s), y), b.common(int32(s), x))
		})
		set := b.grow(int32(s), free, size)
		if set == nil {
			return nil
		}
		for _, t := range set {
			of[t] = next
		}
		next++
	}
	return of
}

// grow is a clique of switch s with some of the others, the first ones if they fit.
func (b *neighbours) grow(s int32, others []int32, size int) []int32 {
	for first := 0; first == 0 || len(others)-first >= size-1; first++ {
		set := []int32{s}
		for _, t := range others[min(first, len(others)):] {
			if len(set) < size && !slices.ContainsFunc(set, func(u int32) bool { return !b.has(t, u) }) {
				set = append(set, t)
			}
		}
		if len(set) == size {
			return set
		}
	}
	return nil
}

// dense joins the ends of cables that have more than half as many neighbours in common as any.
func (b *neighbours) dense() []int32 {
	most := 0
	for s, list := range b.list {
		for _, t := range list {
			most = max(most, b.common(int32(s), t))
		}
	}
	of := make([]int32, len(b.list))
	for s := range of {
		of[s] = -1
	}
	next := int32(0)
	for s := range of {
		if of[s] >= 0 {
			continue
		}
		of[s] = next
		queue := []int32{int32(s)}
		for len(queue) > 0 {
			u := queue[0]
			queue = queue[1:]
			for _, t := range b.list[u] {
				if of[t] < 0 && 2*b.common(u, t) > most {
					of[t] = next
					queue = append(queue, t)
				}
			}
		}
		next++
	}
	return of
}
