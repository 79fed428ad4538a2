package collective

// ringReduceScatter sends each piece once around, everybody adding to it: n-1 steps of an n-th of the bytes. Member i
// ends with piece i.
func ringReduceScatter(g *Group, bytes uint64) {
	n := g.Size()
	for s := range n - 1 {
		for m := range n {
			piece := (m - s - 1 + 2*n) % n
			g.message(m, (m+1)%n, share(bytes, piece, n), true, pieces(piece, piece+1))
		}
		g.next()
	}
}

// ringAllGather sends each piece once around; member i begins with piece i.
func ringAllGather(g *Group, bytes uint64) {
	n := g.Size()
	for s := range n - 1 {
		for m := range n {
			piece := (m - s + n) % n
			g.message(m, (m+1)%n, share(bytes, piece, n), false, pieces(piece, piece+1))
		}
		g.next()
	}
}

// ringAllReduce is both: every link of the ring carries 2(n-1)/n of the bytes.
func ringAllReduce(g *Group, bytes uint64) {
	ringReduceScatter(g, bytes)
	ringAllGather(g, bytes)
}

// core is the largest power of two that is no larger than the number of members. The members beyond it give theirs to
// one of the core before, and get the result after.
func (g *Group) core() int {
	p := 1
	for 2*p <= g.Size() {
		p *= 2
	}
	return p
}

// fold takes the members beyond the core in.
func (g *Group) fold(bytes uint64, all func() []int32) {
	p := g.core()
	for m := p; m < g.Size(); m++ {
		g.message(m, m-p, bytes, true, all)
	}
	g.next()
}

// unfold gives the members beyond the core the result.
func (g *Group) unfold(bytes uint64, all func() []int32) {
	p := g.core()
	for m := p; m < g.Size(); m++ {
		g.message(m-p, m, bytes, false, all)
	}
	g.next()
}

// doublingAllReduce exchanges everything with a partner twice as far away each time: log n steps of all bytes.
func doublingAllReduce(g *Group, bytes uint64) {
	all := pieces(0, g.Size())
	g.fold(bytes, all)
	for d := 1; d < g.core(); d *= 2 {
		for m := range g.core() {
			g.message(m, m^d, bytes, true, all)
		}
		g.next()
	}
	g.unfold(bytes, all)
}

// halvingDoubling is Rabenseifner's: a reduce-scatter that halves what is exchanged each time, then an all-gather that
// doubles it: 2 log n steps, and twice the bytes in all.
func halvingDoubling(g *Group, bytes uint64) {
	all := pieces(0, g.core())
	g.fold(bytes, all)
	g.halve(bytes, g.core())
	p := g.core()
	for d := 1; d < p; d *= 2 {
		for m := range p {
			lo := m / d * d // what m has by now: d pieces
			g.message(m, m^d, span(bytes, lo, lo+d, p), false, pieces(lo, lo+d))
		}
		g.next()
	}
	g.unfold(bytes, all)
}

// halve is the reduce-scatter among the first p members; member i ends with piece i of p.
func (g *Group) halve(bytes uint64, p int) {
	for d := p / 2; d >= 1; d /= 2 {
		for m := range p {
			// Of the 2d pieces that m still works on the partner keeps the half that it is in.
			lo := (m ^ d) / d * d
			g.message(m, m^d, span(bytes, lo, lo+d, p), true, pieces(lo, lo+d))
		}
		g.next()
	}
}

// halvingReduceScatter halves what is exchanged each time. Members beyond the core, and who then has two pieces, cost a
// step before and one after.
func halvingReduceScatter(g *Group, bytes uint64) {
	n, p := g.Size(), g.core()
	if n == p {
		g.halve(bytes, p)
		return
	}
	// Pieces are n; member m of the core works for pieces of itself and of the member beyond it.
	g.fold(bytes, pieces(0, n))
	own := func(m int) []int32 {
		if m+p < n {
			return []int32{int32(m), int32(m + p)}
		}
		return []int32{int32(m)}
	}
	for d := p / 2; d >= 1; d /= 2 {
		for m := range p {
			var list []int32
			sum := uint64(0)
			lo := (m ^ d) / d * d
			for k := lo; k < lo+d; k++ {
				for _, piece := range own(k) {
					list = append(list, piece)
					sum += share(bytes, int(piece), n)
				}
			}
			g.message(m, m^d, sum, true, func() []int32 { return list })
		}
		g.next()
	}
	for m := p; m < n; m++ {
		g.message(m-p, m, share(bytes, m, n), false, pieces(m, m+1))
	}
	g.next()
}

// binomialReduce sums up a tree towards member 0.
func binomialReduce(g *Group, bytes uint64) {
	for d := 1; d < g.Size(); d *= 2 {
		for m := d; m < g.Size(); m += 2 * d {
			g.message(m, m-d, bytes, true, pieces(0, 1))
		}
		g.next()
	}
}

// doubleTree lets two trees carry half of the bytes each, piece by piece, up and down. Who is an inner member of one is
// a leaf of the other, as far as numbers let it, so that every member sends and receives about as much as any other;
// the depth is log n (Sanders, Speck, Träff 2009; NCCL's "tree").
func doubleTree(g *Group, bytes uint64) {
	n := g.Size()
	chunks := treeChunks(bytes)
	total := 2 * chunks
	parents := [2][]int{inOrder(n), make([]int, n)}
	for m := range n { // the second is the first, shifted by one place: leaves become inner members
		parents[1][m] = -1
		if up := parents[0][(m+n-1)%n]; up >= 0 {
			parents[1][m] = (up + 1) % n
		}
	}
	start := make([][]uint32, n)
	copy(start, g.front)
	done := make([][]uint32, n)
	var busy [2][2][]chain // by tree, up or down, by member
	for t := range busy {
		busy[t] = [2][]chain{make([]chain, n), make([]chain, n)}
	}
	for c := range chunks {
		for t, up := range parents {
			piece := 2*c + t
			size := share(bytes, piece, total)
			ups, downs := order(up)
			// A piece goes up when all children's sums are there, and when the one before it has gone.
			got := make([][]uint32, n)
			for _, m := range ups {
				if up[m] < 0 {
					continue
				}
				s, r := g.pipe(m, up[m], size, piece, true, append(got[m], start[m]...), &busy[t][0][m],
					start[up[m]])
				got[up[m]] = append(got[up[m]], r)
				done[m] = append(done[m], s)
			}
			for _, m := range downs {
				if up[m] < 0 {
					continue
				}
				s, r := g.pipe(up[m], m, size, piece, false, append(got[up[m]], start[up[m]]...), &busy[t][1][m],
					start[m])
				got[m] = []uint32{r}
				done[m] = append(done[m], r)
				done[up[m]] = append(done[up[m]], s)
			}
		}
	}
	for m := range n {
		g.front[m] = done[m]
	}
}

// chain is the last message between two members in one direction, at its sender and at its receiver.
type chain struct {
	sent, got uint32
	any       bool
}

// pipe is a message of a pipeline: after what it carries is there, and after the one before it on the same way.
func (g *Group) pipe(from, to int, bytes uint64, piece int, add bool, after []uint32, last *chain,
	ready []uint32) (sent, got uint32) {
	saved, there := g.front[from], g.front[to]
	g.front[from], g.front[to] = after, ready
	if last.any {
		g.front[from] = append(append([]uint32(nil), after...), last.sent)
		g.front[to] = append(append([]uint32(nil), ready...), last.got)
	}
	g.message(from, to, bytes, add, pieces(piece, piece+1))
	if g.b == nil {
		return 0, 0
	}
	sent = g.step[from][len(g.step[from])-1]
	got = g.sum(to, []uint32{g.step[to][len(g.step[to])-1]})[0]
	g.step[from], g.step[to] = nil, nil
	g.front[from], g.front[to] = saved, there
	*last = chain{sent: sent, got: got, any: true}
	return sent, got
}

// treeChunks is into how many pieces each tree cuts its half: of 512 KiB as NCCL does, no more than 64.
func treeChunks(bytes uint64) int {
	const chunk = 512 << 10
	return int(min(max(bytes/2/chunk, 1), 64))
}

// inOrder is a binary tree over 0 to n-1 whose order from left to right is that of the numbers, so that every second
// number is a leaf, or nearly; -1 is the root's parent.
func inOrder(n int) []int {
	up := make([]int, n)
	var build func(lo, hi, parent int)
	build = func(lo, hi, parent int) {
		if lo >= hi {
			return
		}
		root := (lo + hi) / 2
		up[root] = parent
		build(lo, root, root)
		build(root+1, hi, root)
	}
	build(0, n, -1)
	return up
}

// order lists members so that children come before their parents, and the other way round.
func order(up []int) (ups, downs []int) {
	children := make([][]int, len(up))
	root := 0
	for m, p := range up {
		if p < 0 {
			root = m
		} else {
			children[p] = append(children[p], m)
		}
	}
	downs = append(downs, root)
	for i := 0; i < len(downs); i++ {
		downs = append(downs, children[downs[i]]...)
	}
	for i := len(downs) - 1; i >= 0; i-- {
		ups = append(ups, downs[i])
	}
	return ups, downs
}
