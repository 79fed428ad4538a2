package collective

// doublingAllGather exchanges all that one has with a partner twice as far away each time. Beyond a power of two
// Bruck's does the same with no partner left over.
func doublingAllGather(g *Group, bytes uint64) {
	n := g.Size()
	if g.core() != n {
		bruckAllGather(g, bytes)
		return
	}
	for d := 1; d < n; d *= 2 {
		for m := range n {
			lo := m / d * d
			g.message(m, m^d, span(bytes, lo, lo+d, n), false, pieces(lo, lo+d))
		}
		g.next()
	}
}

// bruckAllGather sends all that one has to the member d before, d doubling: ceil(log n) steps for any n.
func bruckAllGather(g *Group, bytes uint64) {
	n := g.Size()
	for d := 1; d < n; d *= 2 {
		count := min(d, n-d)
		for m := range n {
			list, sum := make([]int32, count), uint64(0)
			for k := range count {
				list[k] = int32((m + k) % n)
				sum += share(bytes, int(list[k]), n)
			}
			g.message(m, (m-d+n)%n, sum, false, func() []int32 { return list })
		}
		g.next()
	}
}

// binomialBroadcast doubles the members that have it with each step.
func binomialBroadcast(g *Group, bytes uint64) {
	for d := 1; d < g.Size(); d *= 2 {
		for m := range min(d, g.Size()-d) {
			g.message(m, m+d, bytes, false, pieces(0, g.Size()))
		}
		g.next()
	}
}

// scatterAllGather gives each member a share, and lets them pass the shares around: twice the bytes of one message for
// all of them, however many they are.
func scatterAllGather(g *Group, bytes uint64) {
	binomialScatter(g, bytes)
	ringAllGather(g, bytes)
}

// chainBroadcast passes pieces from member to member.
func chainBroadcast(g *Group, bytes uint64) {
	n, chunks := g.Size(), treeChunks(2*bytes)
	last := make([]chain, n)
	start := make([][]uint32, n)
	copy(start, g.front)
	have := make([][]uint32, n) // what the next message of a member waits for
	done := make([][]uint32, n)
	for c := range chunks {
		for m := range n - 1 {
			// Pieces of the chain are counted as those of the other algorithms are, by members.
			s, r := g.pipeSpan(m, m+1, span(bytes, c, c+1, chunks), c, chunks, append(have[m], start[m]...), &last[m],
				start[m+1])
			have[m+1] = []uint32{r}
			done[m], done[m+1] = append(done[m], s), append(done[m+1], r)
		}
	}
	for m := range n {
		g.front[m] = done[m]
	}
}

// pipeSpan is pipe for piece c of several, told as those of n that fall into it.
func (g *Group) pipeSpan(from, to int, bytes uint64, c, chunks int, after []uint32, last *chain,
	ready []uint32) (sent, got uint32) {
	sent, got = g.pipe(from, to, bytes, c, false, after, last, ready)
	if n := g.Size(); g.Note {
		g.Parts[len(g.Parts)-1].Pieces = pieces(c*n/chunks, (c+1)*n/chunks)()
	}
	return sent, got
}

// binomialScatter sends halves of what is left down a tree.
func binomialScatter(g *Group, bytes uint64) {
	n := g.Size()
	top := 1
	for top < n {
		top *= 2
	}
	for d := top / 2; d >= 1; d /= 2 {
		for m := 0; m+d < n; m += 2 * d {
			lo, hi := m+d, min(m+2*d, n)
			g.message(m, m+d, span(bytes, lo, hi, n), false, pieces(lo, hi))
		}
		g.next()
	}
}

// linearScatter sends each share from member 0 itself.
func linearScatter(g *Group, bytes uint64) {
	for m := 1; m < g.Size(); m++ {
		g.message(0, m, share(bytes, m, g.Size()), false, pieces(m, m+1))
	}
	g.next()
}

// binomialGather collects up a tree.
func binomialGather(g *Group, bytes uint64) {
	n := g.Size()
	for d := 1; d < n; d *= 2 {
		for m := d; m < n; m += 2 * d {
			hi := min(m+d, n)
			g.message(m, m-d, span(bytes, m, hi, n), false, pieces(m, hi))
		}
		g.next()
	}
}

// linearGather has each member send its share to member 0 itself.
func linearGather(g *Group, bytes uint64) {
	for m := 1; m < g.Size(); m++ {
		g.message(m, 0, share(bytes, m, g.Size()), false, pieces(m, m+1))
	}
	g.next()
}

// item is the piece of an all-to-all that goes from one member to another.
func (g *Group) item(from, to int) int32 { return int32(from*g.Size() + to) }

// pairwise sends to the member k ahead in step k, for all k: each step is a permutation.
func pairwise(g *Group, bytes uint64) { g.each(bytes, g.next) }

// direct sends everything at once.
func direct(g *Group, bytes uint64) {
	g.each(bytes, func() {})
	g.next()
}

// each sends to the member k ahead, for all k, and does something after each k.
func (g *Group) each(bytes uint64, after func()) {
	n := g.Size()
	for k := 1; k < n; k++ {
		for m := range n {
			to := (m + k) % n
			g.message(m, to, share(bytes, to, n), false, func() []int32 { return []int32{g.item(m, to)} })
		}
		after()
	}
}

// bruckAllToAll sends, in step d, everything whose way still has bit d in it: log n steps of half of the bytes.
func bruckAllToAll(g *Group, bytes uint64) {
	n := g.Size()
	for d := 1; d < n; d *= 2 {
		for m := range n {
			var list []int32
			sum := uint64(0)
			for far := 1; far < n; far++ {
				if far&d == 0 {
					continue
				}
				// What m holds that has far to go in all, and has gone the bits below d already.
				from := (m - far&(d-1) + n) % n
				list = append(list, g.item(from, (from+far)%n))
				sum += share(bytes, (from+far)%n, n)
			}
			g.message(m, (m+d)%n, sum, false, func() []int32 { return list })
		}
		g.next()
	}
}

// dissemination has everybody hear, by way of others, of everybody: log n steps of nothing.
func dissemination(g *Group, _ uint64) {
	n := g.Size()
	for d := 1; d < n; d *= 2 {
		for m := range n {
			lo := m
			count := min(d, n)
			g.message(m, (m+d)%n, 0, false, func() []int32 {
				list := make([]int32, count)
				for k := range list {
					list[k] = int32((lo - k + n) % n)
				}
				return list
			})
		}
		g.next()
	}
}
