package route

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

func dimsText(size []int) string {
	var w []string
	for _, n := range size {
		w = append(w, strconv.Itoa(n))
	}
	return strings.Join(w, "x")
}

// gridDimsMax is how many dimensions a grid may have: a hypercube of 65,536 switches.
const gridDimsMax = 16

// findGrid finds the places of the switches. Three hints are tried: the sizes that an operator named, with
// switches numbered along the first dimension first; port numbers, where all switches use the same port for
// the same direction; and the squares of four cables that two dimensions span, which any complete grid shows.
func findGrid(n *Network, o Options) (*grid, error) {
	w := newAdjacency(n)
	part := components(w)
	for s := range part {
		if part[s] != 0 {
			return nil, unfitGrid("%v and %v are not joined by cables", aSwitch(0), aSwitch(s))
		}
	}
	var first error
	for _, hint := range []func(*adjacency, Options) (*edgeLabels, []int){bySizes, byPorts, bySquares} {
		labels, size := hint(w, o)
		var g *grid
		var err error
		switch {
		case size != nil:
			g, err = gridBySizes(n, size)
		case labels != nil:
			g, err = gridByLabels(n, w, labels)
		default:
			continue
		}
		if err == nil && len(o.Dims) > 0 && !sameSizes(g.size, o.Dims) {
			err = unfitGrid("the grid is %s: the sizes named are %s", dimsText(g.size), dimsText(o.Dims))
		}
		if err == nil {
			return g, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = unfitGrid("the cables form no grid")
	}
	return nil, first
}

func sameSizes(a, b []int) bool {
	keep := func(list []int) []int {
		list = slices.DeleteFunc(slices.Clone(list), func(n int) bool { return n == 1 })
		slices.Sort(list)
		return list
	}
	return slices.Equal(keep(a), keep(b))
}

func newGrid(n *Network, dims int) *grid {
	g := &grid{n: n, size: make([]int, dims), ring: make([]bool, dims), bit: make([]int, dims),
		at: make([]int32, len(n.Switches)*dims)}
	for s := range n.Switches {
		row := make([]uint8, len(n.Switches[s].Ports))
		for p := range row {
			row[p] = noDim
		}
		g.dim = append(g.dim, row)
	}
	return g
}

// bySizes takes the sizes that an operator named.
func bySizes(w *adjacency, o Options) (*edgeLabels, []int) {
	count := 1
	for _, n := range o.Dims {
		if n < 1 || count > len(w.out) {
			return nil, nil
		}
		count *= n
	}
	if len(o.Dims) == 0 || len(o.Dims) > gridDimsMax || count != len(w.out) {
		return nil, nil
	}
	return nil, o.Dims
}

// gridBySizes counts places through.
func gridBySizes(n *Network, size []int) (*grid, error) {
	g := newGrid(n, len(size))
	copy(g.size, size)
	for s := range n.Switches {
		rest := s
		for k, count := range size {
			g.at[s*len(size)+k] = int32(rest % count)
			rest /= count
		}
	}
	// A dimension is a ring where some cable joins its ends.
	for s := range n.Switches {
		for _, h := range n.Switches[s].Ports {
			if h.To == NoSwitch {
				continue
			}
			for k, count := range size {
				if a, b := g.place(int32(s), k), g.place(h.To, k); count > 2 && a == 0 && b == count-1 {
					g.ring[k] = true
				}
			}
		}
	}
	return g, g.lay()
}

// edgeLabels number the cables of each switch by dimension: of[s][i] belongs to adjacency.out[s][i].
type edgeLabels struct {
	of    [][]int32
	count int
}

// byPorts takes ports for dimensions: those that are joined by some cable belong together.
func byPorts(w *adjacency, _ Options) (*edgeLabels, []int) {
	sets := newUnions(w.stride)
	for s := range w.out {
		for _, e := range w.out[s] {
			sets.join(int32(e.port), int32(e.peer))
		}
	}
	return labelsOf(w, func(_ int32, e edge) int32 { return sets.find(int32(e.port)) }), nil
}

// labelsOf numbers names of sets from 0, in ascending order.
func labelsOf(w *adjacency, name func(s int32, e edge) int32) *edgeLabels {
	l := &edgeLabels{of: make([][]int32, len(w.out))}
	var names []int32
	for s := range w.out {
		for _, e := range w.out[s] {
			names = append(names, name(int32(s), e))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	l.count = len(names)
	if l.count > gridDimsMax {
		return nil
	}
	for s := range w.out {
		for _, e := range w.out[s] {
			k, _ := slices.BinarySearch(names, name(int32(s), e))
			l.of[s] = append(l.of[s], int32(k))
		}
	}
	return l
}

// bySquares puts cables together that are opposite sides of a square, and those of a switch that are in no square
// together: these follow each other along one dimension. A ring of four is a square itself, and comes out as two
// dimensions of two, which is just as good.
func bySquares(w *adjacency, _ Options) (*edgeLabels, []int) {
	// Cables get numbers; parallel ones share that of the first.
	number := make([][]int32, len(w.out))
	count := int32(0)
	// A grid of n switches has at most log2(n) dimensions, and a switch two neighbours along each.
	neighboursMax := 2 * bits.Len(uint(len(w.out)))
	find := func(a, b int32) int32 {
		for i, e := range w.out[a] {
			if e.to == b {
				return number[a][i]
			}
		}
		return -1
	}
	for s := range w.out {
		number[s] = make([]int32, len(w.out[s]))
		for i, e := range w.out[s] {
			if e.to < int32(s) {
				number[s][i] = find(e.to, int32(s))
				continue
			}
			number[s][i] = count
			for j := range i {
				if w.out[s][j].to == e.to {
					number[s][i] = number[s][j]
				}
			}
			count++
		}
		around := make([]int32, 0, len(w.out[s]))
		for _, e := range w.out[s] {
			around = append(around, e.to)
		}
		slices.Sort(around)
		if len(slices.Compact(around)) > neighboursMax {
			return nil, nil
		}
	}
	sets := newUnions(int(count))
	for s := range w.out {
		for i, a := range w.out[s] {
			for j, b := range w.out[s][:i] {
				if a.to == b.to {
					continue
				}
				square := false
				for _, c := range w.out[a.to] {
					if c.to == int32(s) {
						continue
					}
					if other := find(c.to, b.to); other >= 0 {
						square = true
						sets.join(number[s][i], other)
						sets.join(number[s][j], find(a.to, c.to))
					}
				}
				if !square {
					sets.join(number[s][i], number[s][j])
				}
			}
		}
	}
	return labelsOf(w, func(s int32, e edge) int32 { return sets.find(find(s, e.to)) }), nil
}

// gridByLabels finds places: without the cables of a dimension the grid falls into slices, one for each place along it,
// and those cables join the slices into a line or a ring.
func gridByLabels(n *Network, w *adjacency, l *edgeLabels) (*grid, error) {
	g := newGrid(n, l.count)
	for k := range l.count {
		if err := g.order(w, l, k); err != nil {
			return nil, err
		}
	}
	return g, g.lay()
}

// order numbers the slices along one dimension.
func (g *grid) order(w *adjacency, l *edgeLabels, k int) error {
	sets := newUnions(len(w.out))
	for s := range w.out {
		for i, e := range w.out[s] {
			if l.of[s][i] != int32(k) {
				sets.join(int32(s), e.to)
			}
		}
	}
	near := make(map[int32][]int32)
	var slicesOf []int32
	for s := range w.out {
		a := sets.find(int32(s))
		if a == int32(s) {
			slicesOf = append(slicesOf, a)
		}
		for i, e := range w.out[s] {
			b := sets.find(e.to)
			if l.of[s][i] != int32(k) || slices.Contains(near[a], b) {
				continue
			}
			if a == b {
				return unfitGrid("the cables from %v to %v and around it form no grid", aSwitch(s), aSwitch(e.to))
			}
			near[a] = append(near[a], b)
		}
	}
	start, ends := slicesOf[0], 0
	for _, a := range slicesOf {
		switch len(near[a]) {
		case 0:
			return unfitGrid("%v has no neighbour along dimension %d", aSwitch(a), k+1)
		case 1:
			if ends == 0 {
				start = a
			}
			ends++
		case 2:
		default:
			return unfitGrid("the switches around %v have more than two neighbours along dimension %d", aSwitch(a), k+1)
		}
	}
	place := map[int32]int32{start: 0}
	for at, count := start, int32(1); ; count++ {
		next := NoSwitch
		for _, b := range near[at] {
			if _, seen := place[b]; !seen && (next == NoSwitch || b < next) {
				next = b
			}
		}
		if next == NoSwitch {
			break
		}
		place[next], at = count, next
	}
	if len(place) != len(slicesOf) {
		return unfitGrid("the switches along dimension %d form neither a line nor a ring", k+1)
	}
	g.size[k], g.ring[k] = len(slicesOf), ends == 0
	for s := range w.out {
		g.at[s*g.dims()+k] = place[sets.find(int32(s))]
	}
	return nil
}
