package webui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// placeMesh lays out what is no tree: every switch gets a place near its neighbours, first from its distances to some
// far-apart switches (pivot MDS), then by springs, and at last each block goes to the nearest free cell of a grid, so
// that nothing overlaps. Switches that are nearly all cabled to each other (a dragonfly's groups) are placed together
// and drawn as one from afar.
func (l *layer) placeMesh(switches []int) extent {
	if len(switches) == 0 {
		return extent{}
	}
	l.sortByName(switches)
	clusters := l.clusters(switches)
	if clusters == nil {
		px, py := l.embed(switches, l.near)
		return l.snap(switches, px, py, 0, 0)
	}
	// The clusters are laid out like switches, by their cables to each other.
	of := map[int]int{}
	for c, members := range clusters {
		for _, s := range members {
			of[s] = c
		}
	}
	near := make([][]int, len(clusters))
	ids := make([]int, len(clusters))
	for c, members := range clusters {
		ids[c] = c
		for _, s := range members {
			for _, far := range l.near[s] {
				if of[far] != c {
					near[c] = append(near[c], of[far])
				}
			}
		}
		slices.Sort(near[c])
		near[c] = slices.Compact(near[c])
	}
	px, py := l.embed(ids, near)
	if everyone(near) { // nothing is closer than anything else: in the order of names
		px, py = rowByRow(len(clusters))
	}
	// Sizes of clusters, from a first try.
	var one extent
	for _, members := range clusters {
		s := l.placeCluster(members, 0, 0)
		one = extent{max(one.w, s.w), max(one.h, s.h)}
	}
	gap := int32(3 * unit)
	cells := gridCells(px, py, float64(one.w+gap)/float64(one.h+gap))
	var size extent
	for c, members := range clusters {
		x, y := int32(cells[c][0])*(one.w+gap), int32(cells[c][1])*(one.h+gap)
		s := l.placeCluster(members, x, y)
		g := group{Name: fmt.Sprintf("group %d", c+1), X: x, Y: y, W: s.w, H: s.h, Switches: len(members)}
		for _, sw := range members {
			l.Group[sw] = int32(len(l.Groups))
			for _, h := range l.hosts[sw] {
				l.Group[h] = int32(len(l.Groups))
				g.Hosts++
			}
		}
		l.Groups = append(l.Groups, g)
		size = extent{max(size.w, x+s.w), max(size.h, y+s.h)}
	}
	return size
}

// everyone reports whether nearly all are neighbours of all.
func everyone(near [][]int) bool {
	sum := 0
	for _, n := range near {
		sum += len(n)
	}
	return sum*10 >= len(near)*(len(near)-1)*7
}

// rowByRow is points in rows, as one reads.
func rowByRow(n int) (px, py []float64) {
	cols := int(math.Ceil(math.Sqrt(float64(n) * 1.3)))
	for i := range n {
		px, py = append(px, float64(i%cols)), append(py, float64(i/cols))
	}
	return px, py
}

// placeCluster places the blocks of a cluster row by row.
func (l *layer) placeCluster(members []int, x, y int32) extent {
	cols := int(math.Ceil(math.Sqrt(float64(len(members)))))
	one := l.blockExtent(members)
	for i, s := range members {
		l.block(s, x+int32(i%cols)*(one.w+unit), y+int32(i/cols)*(one.h+unit))
	}
	rows := (len(members) + cols - 1) / cols
	return extent{int32(min(cols, len(members)))*(one.w+unit) - unit, int32(rows)*(one.h+unit) - unit}
}

func (l *layer) blockExtent(members []int) extent {
	var one extent
	for _, s := range members {
		b := l.block(s, 0, 0)
		one = extent{max(one.w, b.w), max(one.h, b.h)}
	}
	return one
}

// clusters finds sets of switches that are cabled to nearly all of their own set; nil where the fabric does not fall
// into such sets.
func (l *layer) clusters(switches []int) [][]int {
	taken := map[int]bool{}
	var list [][]int
	inSets := 0
	for _, s := range switches {
		if taken[s] {
			continue
		}
		// A neighbour belongs to s if it shares most of the neighbours that s has.
		set := []int{s}
		for _, far := range l.near[s] {
			if !taken[far] && shared(l.near[s], l.near[far])*2 >= min(len(l.near[s]), len(l.near[far]))-1 &&
				shared(l.near[s], l.near[far]) > 0 {
				set = append(set, far)
			}
		}
		for _, m := range set {
			taken[m] = true
		}
		if len(set) >= 3 {
			inSets += len(set)
		}
		l.sortByName(set)
		list = append(list, set)
	}
	if inSets*10 < len(switches)*8 || len(list) < 3 {
		return nil
	}
	return list
}

// shared counts what two sorted lists have in common.
func shared(a, b []int) int {
	n, i, j := 0, 0, 0
	for i < len(a) && j < len(b) {
		switch cmp.Compare(a[i], b[j]) {
		case -1:
			i++
		case 1:
			j++
		default:
			n, i, j = n+1, i+1, j+1
		}
	}
	return n
}

// embed gives each item a point, close to those of its neighbours. Near is indexed by item.
func (l *layer) embed(items []int, near [][]int) (px, py []float64) {
	n := len(items)
	at := make(map[int]int, n)
	for i, s := range items {
		at[s] = i
	}
	adj := make([][]int, n)
	for i, s := range items {
		for _, far := range near[s] {
			if j, ok := at[far]; ok {
				adj[i] = append(adj[i], j)
			}
		}
	}
	px, py = pivotMDS(adj)
	springs(px, py, adj)
	return px, py
}

// pivotMDS places points by their distances to a few far-apart ones, projected on the two directions in which they
// differ most.
func pivotMDS(adj [][]int) (px, py []float64) {
	n := len(adj)
	pivots := min(n, 24)
	dist := make([][]float64, pivots)
	nearest := make([]float64, n)
	for i := range nearest {
		nearest[i] = math.Inf(1)
	}
	from := 0
	for p := range pivots {
		dist[p] = distances(adj, from)
		far := 0.0
		for i, d := range dist[p] {
			nearest[i] = min(nearest[i], d)
			if nearest[i] > far {
				from, far = i, nearest[i]
			}
		}
	}
	// Double centring of the squared distances.
	colMean := make([]float64, n)
	total := 0.0
	for p := range dist {
		mean := 0.0
		for i, d := range dist[p] {
			dist[p][i] = d * d
			mean += d * d / float64(n)
		}
		for i := range dist[p] {
			dist[p][i] -= mean
			colMean[i] += (dist[p][i]) / float64(pivots)
		}
		total += mean
	}
	for p := range dist {
		for i := range dist[p] {
			dist[p][i] = -(dist[p][i] - colMean[i]) / 2
		}
	}
	// The two main directions among the pivots, by power iteration.
	first := mainDirection(dist, nil)
	second := mainDirection(dist, first)
	px, py = make([]float64, n), make([]float64, n)
	for p := range dist {
		for i, d := range dist[p] {
			px[i] += d * first[p]
			py[i] += d * second[p]
		}
	}
	return normalise(px), normalise(py)
}

// normalise scales to the order of one cell per item, with a nudge that keeps equal points apart.
func normalise(v []float64) []float64 {
	spread := 1e-9
	for _, x := range v {
		spread = max(spread, math.Abs(x))
	}
	side := math.Sqrt(float64(len(v)))
	for i := range v {
		// The golden ratio's multiples are spread evenly and the same every time.
		_, nudge := math.Modf(float64(i+1) * math.Phi)
		v[i] = v[i]/spread*side + (nudge-0.5)*0.3
	}
	return v
}

func mainDirection(rows [][]float64, not []float64) []float64 {
	k := len(rows)
	v := make([]float64, k)
	for i := range v {
		_, v[i] = math.Modf(float64(i+1) * math.Sqrt2)
		v[i] -= 0.4
	}
	for range 40 {
		if not != nil {
			dot := 0.0
			for i := range v {
				dot += v[i] * not[i]
			}
			for i := range v {
				v[i] -= dot * not[i]
			}
		}
		next := make([]float64, k)
		for i := range rows[0] {
			sum := 0.0
			for p := range rows {
				sum += rows[p][i] * v[p]
			}
			for p := range rows {
				next[p] += rows[p][i] * sum
			}
		}
		norm := 0.0
		for _, x := range next {
			norm += x * x
		}
		if norm = math.Sqrt(norm); norm < 1e-12 {
			return v
		}
		for i := range next {
			v[i] = next[i] / norm
		}
	}
	return v
}

func distances(adj [][]int, from int) []float64 {
	d := make([]float64, len(adj))
	for i := range d {
		d[i] = -1
	}
	d[from] = 0
	queue := []int{from}
	last := 0.0
	for i := 0; i < len(queue); i++ {
		last = d[queue[i]]
		for _, far := range adj[queue[i]] {
			if d[far] < 0 {
				d[far] = last + 1
				queue = append(queue, far)
			}
		}
	}
	for i := range d { // what cannot be reached stands beyond all else
		if d[i] < 0 {
			d[i] = last + 2
		}
	}
	return d
}

// springs pulls neighbours together and pushes what is too close apart, looking only around each point.
func springs(px, py []float64, adj [][]int) {
	n := len(adj)
	rounds := min(120, 400000/max(n, 1)+10)
	dx, dy := make([]float64, n), make([]float64, n)
	for round := range rounds {
		step := 0.6 * (1 - float64(round)/float64(rounds))
		clear(dx)
		clear(dy)
		cells := map[[2]int][]int{}
		key := func(i int) [2]int { return [2]int{int(math.Floor(px[i] / 2)), int(math.Floor(py[i] / 2))} }
		for i := range n {
			cells[key(i)] = append(cells[key(i)], i)
		}
		for i := range n {
			at := key(i)
			for cx := at[0] - 1; cx <= at[0]+1; cx++ {
				for cy := at[1] - 1; cy <= at[1]+1; cy++ {
					for _, j := range cells[[2]int{cx, cy}] {
						x, y := px[i]-px[j], py[i]-py[j]
						if d := x*x + y*y + 0.01; i != j && d < 4 {
							dx[i] += x / d
							dy[i] += y / d
						}
					}
				}
			}
			for _, j := range adj[i] {
				x, y := px[j]-px[i], py[j]-py[i]
				d := math.Sqrt(x*x+y*y) + 0.01
				dx[i] += x * (d - 1) / d * 0.3
				dy[i] += y * (d - 1) / d * 0.3
			}
		}
		for i := range n {
			if d := math.Hypot(dx[i], dy[i]); d > 0 {
				move := min(d, step) / d
				px[i] += dx[i] * move
				py[i] += dy[i] * move
			}
		}
	}
}

// snap puts every block on the grid cell that is nearest to its point and free.
func (l *layer) snap(switches []int, px, py []float64, x, y int32) extent {
	one := l.blockExtent(switches)
	gapX, gapY := max(one.w, one.h)*6/10, max(one.w, one.h)*6/10
	cells := gridCells(px, py, float64(one.w+gapX)/float64(one.h+gapY))
	var size extent
	for i, s := range switches {
		bx, by := x+int32(cells[i][0])*(one.w+gapX), y+int32(cells[i][1])*(one.h+gapY)
		l.block(s, bx, by)
		size = extent{max(size.w, bx+one.w), max(size.h, by+one.h)}
	}
	return size
}

// gridCells gives each point a cell of its own, from 0, 0. Shape is how much wider than high a cell is.
func gridCells(px, py []float64, shape float64) [][2]int {
	n := len(px)
	cells := make([][2]int, n)
	if n == 0 {
		return cells
	}
	minX, maxX, minY, maxY := slices.Min(px), slices.Max(px), slices.Min(py), slices.Max(py)
	const roomy = 1.1 // some more cells than points, so that the shape stays
	rows := max(1, math.Ceil(math.Sqrt(float64(n)*roomy*shape/screenShape)))
	cols := max(1, math.Ceil(float64(n)*roomy/rows))
	sx, sy := (cols-1)/max(maxX-minX, 1e-9), (rows-1)/max(maxY-minY, 1e-9)
	if maxY-minY < 1e-3*(maxX-minX) {
		sy = 0
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	midX, midY := (minX+maxX)/2, (minY+maxY)/2
	slices.SortStableFunc(order, func(a, b int) int { // from the middle outwards
		return cmp.Compare(math.Hypot(px[a]-midX, py[a]-midY), math.Hypot(px[b]-midX, py[b]-midY))
	})
	taken := make(map[[2]int]bool, n)
	for _, i := range order {
		wx, wy := (px[i]-minX)*sx, (py[i]-minY)*sy
		cells[i] = freeCell(taken, wx, wy)
		taken[cells[i]] = true
	}
	lowX, lowY := math.MaxInt, math.MaxInt
	for _, c := range cells {
		lowX, lowY = min(lowX, c[0]), min(lowY, c[1])
	}
	for i := range cells {
		cells[i][0] -= lowX
		cells[i][1] -= lowY
	}
	return cells
}

// freeCell looks in growing squares around a point.
func freeCell(taken map[[2]int]bool, x, y float64) [2]int {
	cx, cy := int(math.Round(x)), int(math.Round(y))
	for r := 0; ; r++ {
		best, bestD := [2]int{}, math.Inf(1)
		for dx := -r; dx <= r; dx++ {
			for dy := -r; dy <= r; dy++ {
				if max(dx, -dx) != r && max(dy, -dy) != r {
					continue
				}
				c := [2]int{cx + dx, cy + dy}
				if d := math.Hypot(float64(c[0])-x, float64(c[1])-y); d < bestD && !taken[c] {
					best, bestD = c, d
				}
			}
		}
		if !math.IsInf(bestD, 1) {
			return best
		}
	}
}
