package route

import (
	"slices"

	"softib/proto/ib"
)

// dimOrder routes tori and meshes: a packet goes along the first dimension until it has the destination's place there,
// then along the second, and so on, around each ring the shorter way. Turns lead to later dimensions only, so a circle
// of packets that wait for each other can only be within one ring. There each packet keeps one of two lanes: 1 if its
// way crosses the ring's seam, between the last place and the first, else 0. No packet on lane 0 crosses the seam, and
// those on lane 1 never get to the side of the ring that is opposite to it, so neither lane is a circle (Dally and
// Seitz 1987). The service level has a bit for each ring dimension, and the map of lanes picks that of the dimension
// that the port leads along.
//
// A ring that lost a cable is routed as the line that it has become. Where two places of a ring or a line are apart,
// the order of dimensions has no way, and the engine refuses.
type dimOrder struct{}

func (dimOrder) Name() string { return "dor" }

func unfitGrid(format string, v ...any) error {
	return unfit("dor", format, v...)
}

func (dimOrder) Compute(n *Network, o Options) (*Tables, error) {
	if len(n.Switches) == 0 {
		return nil, unfitGrid("there are no switches")
	}
	g, err := findGrid(n, o)
	if err != nil {
		return nil, err
	}
	if err := g.checkLines(); err != nil {
		return nil, err
	}
	return g.tables(o)
}

// whole is Compute for grids that miss no cable, where all ways are shortest.
func (dimOrder) whole(n *Network, o Options) (*Tables, error) {
	if len(n.Switches) == 0 {
		return nil, unfitGrid("there are no switches")
	}
	g, err := findGrid(n, Options{})
	if err != nil {
		return nil, err
	}
	if slices.Contains(g.torn, true) {
		return nil, unfitGrid("cables are missing")
	}
	return g.tables(o)
}

// tables routes a grid.
func (g *grid) tables(o Options) (*Tables, error) {
	n := g.n
	bits := 0
	for k := range g.size {
		g.bit[k] = -1
		if g.ring[k] && g.size[k] > 3 { // in a ring of three every way is one hop
			g.bit[k] = bits
			bits++
		}
	}
	switch {
	case bits > 4:
		return nil, unfitGrid("%d dimensions are rings of four switches or more: want at most 4, which is as "+
			"many as service levels tell apart", bits)
	case bits > 0 && o.VLs == 1:
		return nil, unfitGrid("rings of four switches or more need 2 lanes: the links have 1")
	}
	tab := &Tables{Engine: "dor", LFT: newLFT(n), VLs: 1, made: n}
	if bits > 0 {
		tab.VLs, tab.SLtoVL, tab.SL = 2, g.lanes(), make([][]ib.SL, len(n.Switches))
	}
	g.fill(tab)
	return tab, nil
}

// grid is a torus or mesh: places of switches in dimensions.
type grid struct {
	n    *Network
	size []int
	ring []bool // the dimension closes into rings
	bit  []int  // of the service level, -1 for none
	// at is the place of a switch: at[s*dims+k] in dimension k.
	at []int32
	// dim is the dimension that each port of a switch leads along, noDim for none.
	dim [][]uint8
	// ports lead one step forward (0) or back (1) in a dimension: ports[(s*dims+k)*2+way].
	ports [][]ib.PortNum
	// torn, by switch, dimension and way, says that the cable to the next one is missing.
	torn []bool
	// broken marks, by switch and dimension, that the ring has a torn cable.
	broken []bool
}

const noDim = 0xFF

func (g *grid) dims() int { return len(g.size) }

// place is a switch's place in a dimension.
func (g *grid) place(s int32, k int) int { return int(g.at[int(s)*g.dims()+k]) }

// lay lists the ports by direction and finds what is missing. It wants that every cable leads one step along its own
// dimension.
func (g *grid) lay() error {
	dims := g.dims()
	count := 1
	for _, size := range g.size {
		count *= size
	}
	if count != len(g.n.Switches) {
		return unfitGrid("a grid of %s has %d places for %d switches", dimsText(g.size), count, len(g.n.Switches))
	}
	seen := make([]bool, count)
	for s := range g.n.Switches {
		at := 0
		for k := dims - 1; k >= 0; k-- {
			at = at*g.size[k] + g.place(int32(s), k)
		}
		if seen[at] {
			return unfitGrid("two switches, one of them %v, have the same place in a grid of %s", aSwitch(s),
				dimsText(g.size))
		}
		seen[at] = true
	}
	g.ports = make([][]ib.PortNum, len(g.n.Switches)*dims*2)
	for s := range g.n.Switches {
		for p, h := range g.n.Switches[s].Ports {
			if h.To == NoSwitch || h.To == int32(s) {
				continue
			}
			k, way := g.step(int32(s), h.To)
			if k < 0 {
				return unfitGrid("the cable from %v port %d to %v is not one step along a dimension of a grid of %s",
					aSwitch(s), p, aSwitch(h.To), dimsText(g.size))
			}
			g.dim[s][p] = uint8(k)
			to := &g.ports[(s*dims+k)*2+way]
			*to = append(*to, ib.PortNum(p))
		}
	}
	g.torn, g.broken = make([]bool, len(g.ports)), make([]bool, len(g.n.Switches)*dims)
	for s := range g.n.Switches {
		for k := range dims {
			for way := range 2 {
				i := (s*dims+k)*2 + way
				edge := !g.ring[k] && g.place(int32(s), k) == []int{g.size[k] - 1, 0}[way]
				g.torn[i] = len(g.ports[i]) == 0 && !edge && !(g.size[k] == 2 && len(g.ports[i^1]) > 0)
			}
		}
	}
	return nil
}

// step is the dimension and direction (0 forward, 1 back) of a neighbour; -1 if it is none.
func (g *grid) step(s, to int32) (dim, way int) {
	dim = -1
	for k := range g.size {
		a, b := g.place(s, k), g.place(to, k)
		if a == b {
			continue
		}
		if dim >= 0 {
			return -1, 0
		}
		dim = k
		switch {
		case b == a+1:
			way = 0
		case b == a-1:
			way = 1
		case g.ring[k] && a == g.size[k]-1 && b == 0:
			way = 0
		case g.ring[k] && a == 0 && b == g.size[k]-1:
			way = 1
		default:
			return -1, 0
		}
	}
	return dim, way
}

// checkLines wants that every line and ring holds together.
func (g *grid) checkLines() error {
	dims := g.dims()
	lines := make(map[[2]int][]int32) // torn cables, by dimension and place of the line
	for s := range g.n.Switches {
		for k := range dims {
			if g.torn[(s*dims+k)*2] {
				line := [2]int{k, g.lineOf(int32(s), k)}
				lines[line] = append(lines[line], int32(s))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	for s := range g.n.Switches {
		for k := range dims {
			torn := lines[[2]int{k, g.lineOf(int32(s), k)}]
			switch {
			case len(torn) > 0 && !g.ring[k]:
				return unfitGrid("the cable onwards from %v is missing, and its line in dimension %d of a grid "+
					"of %s is in two parts", aSwitch(torn[0]), k+1, dimsText(g.size))
			case len(torn) > 1:
				return unfitGrid("the cables onwards from %v and %v are missing, and their ring in dimension "+
					"%d of a torus of %s is in two parts", aSwitch(torn[0]), aSwitch(torn[1]), k+1, dimsText(g.size))
			}
			g.broken[s*dims+k] = len(torn) > 0
		}
	}
	return nil
}

// lineOf numbers the line of a switch along a dimension: its place in the others.
func (g *grid) lineOf(s int32, k int) int {
	line := 0
	for i := g.dims() - 1; i >= 0; i-- {
		if i != k {
			line = line*g.size[i] + g.place(s, i)
		}
	}
	return line
}

// around is the shorter way (0 forward, 1 back) between places of a ring, and whether it crosses the seam. Of two
// equally long ways the turn decides.
func (g *grid) around(k, from, to, turn int) (way int, seam bool) {
	ahead := to - from
	if ahead < 0 {
		ahead += g.size[k]
	}
	switch {
	case 2*ahead > g.size[k]:
		way = 1
	case 2*ahead == g.size[k]:
		way = (from + turn) & 1
	}
	return way, crosses(from, to, way)
}

func crosses(from, to, way int) bool { return way == 0 && to < from || way == 1 && to > from }

// direction is the way from a switch to a place in a dimension, and whether it crosses the seam.
func (g *grid) direction(s int32, k, to, turn int) (way int, seam bool) {
	from := g.place(s, k)
	if !g.ring[k] {
		if to > from {
			return 0, false
		}
		return 1, false
	}
	way, seam = g.around(k, from, to, turn)
	if g.broken[int(s)*g.dims()+k] && g.isTorn(s, k, to, way) {
		way = 1 - way
		seam = crosses(from, to, way)
	}
	return way, seam
}

// isTorn reports whether a cable is missing on the way around a ring.
func (g *grid) isTorn(s int32, k, to, way int) bool {
	for g.place(s, k) != to {
		i := (int(s)*g.dims()+k)*2 + way
		if g.torn[i] {
			return true
		}
		s = g.n.Switches[s].Ports[g.ports[i][0]].To
	}
	return false
}

// onward is the port towards a switch.
func (g *grid) onward(s, to int32, turn int) ib.PortNum {
	for k := range g.size {
		if want := g.place(to, k); want != g.place(s, k) {
			way, _ := g.direction(s, k, want, turn)
			i := (int(s)*g.dims()+k)*2 + way
			if len(g.ports[i]) == 0 {
				i ^= 1 // in a line of two, forward and back is one cable
			}
			return g.ports[i][(turn>>1)%len(g.ports[i])]
		}
	}
	return 0
}

// level is the service level from a switch to another: the seams that the way crosses.
func (g *grid) level(s, to int32, turn int) ib.SL {
	var sl ib.SL
	for k := range g.size {
		want := g.place(to, k)
		if want == g.place(s, k) {
			continue
		}
		way, seam := g.direction(s, k, want, turn)
		if seam && g.bit[k] >= 0 {
			sl |= 1 << g.bit[k]
		}
		// On to where the next dimension starts.
		for g.place(s, k) != want {
			i := (int(s)*g.dims()+k)*2 + way
			if len(g.ports[i]) == 0 {
				i ^= 1
			}
			s = g.n.Switches[s].Ports[g.ports[i][0]].To
		}
	}
	return sl
}

// fill writes entries and levels. Destinations of one switch take turns: at equally long ways, and at parallel cables.
func (g *grid) fill(tab *Tables) {
	whole := !slices.Contains(g.broken, true)
	seams := g.seams()
	dims := g.dims()
	for s := range int32(len(g.n.Switches)) {
		row := tab.LFT[s]
		var levels []ib.SL
		if tab.SL != nil {
			levels = make([]ib.SL, len(g.n.Dests))
			tab.SL[s] = levels
		}
		from := g.at[int(s)*dims:][:dims]
		var level [2]ib.SL
		turn, last := 0, NoSwitch
		for i := range g.n.Dests {
			d := &g.n.Dests[i]
			turn++
			if d.Switch != last {
				turn, last = int(d.Switch), d.Switch
				to := g.at[int(last)*dims:][:dims]
				level = [2]ib.SL{}
				for k, at := range from {
					if seam := seams[k]; seam != nil {
						cross := seam[int(at)*g.size[k]+int(to[k])]
						level[0] |= cross[0]
						level[1] |= cross[1]
					}
				}
			}
			if d.Switch == s {
				row[d.LID] = d.Port
				continue
			}
			row[d.LID] = g.onward(s, d.Switch, turn)
			switch {
			case levels == nil:
			case whole:
				levels[i] = level[turn&1]
			default:
				levels[i] = g.level(s, d.Switch, turn)
			}
		}
	}
}

// seams are, by dimension and pair of places, the levels of ways around whole rings, for even and odd turns; nil for
// dimensions without a bit.
func (g *grid) seams() [][][2]ib.SL {
	all := make([][][2]ib.SL, g.dims())
	for k, size := range g.size {
		if g.bit[k] < 0 {
			continue
		}
		all[k] = make([][2]ib.SL, size*size)
		for from := range size {
			for to := range size {
				for turn := range 2 {
					if _, seam := g.around(k, from, to, turn); seam {
						all[k][from*size+to][turn] = 1 << g.bit[k]
					}
				}
			}
		}
	}
	return all
}

// gridLanes is the map of lanes.
type gridLanes struct {
	dim [][]uint8
	bit []int
}

func (g *grid) lanes() *gridLanes { return &gridLanes{g.dim, g.bit} }

// VL is the bit of the level that belongs to the dimension of the port.
func (l *gridLanes) VL(sw int32, _, out ib.PortNum, sl ib.SL) ib.VL {
	if sw < 0 || int(sw) >= len(l.dim) || int(out) >= len(l.dim[sw]) {
		return 0
	}
	k := l.dim[sw][out]
	if k == noDim || l.bit[k] < 0 {
		return 0
	}
	return ib.VL(sl >> l.bit[k] & 1)
}

// SameLanes reports whether another map is the same on the ports that both know: a port that has no cable in one of
// them has no packets there.
func (l *gridLanes) SameLanes(other LaneMap) bool {
	o, ok := other.(*gridLanes)
	if !ok || !slices.Equal(l.bit, o.bit) || len(l.dim) != len(o.dim) {
		return false
	}
	for s := range l.dim {
		for p := range min(len(l.dim[s]), len(o.dim[s])) {
			if a, b := l.dim[s][p], o.dim[s][p]; a != b && a != noDim && b != noDim {
				return false
			}
		}
	}
	return true
}
