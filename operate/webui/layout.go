package webui

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Sizes of the map, in hundredths of a unit. A unit is the width of a column of hosts.
const (
	unit = 100
	// rowPitch and cellH: hosts under a leaf stand in columns; cellX is the margin that their cables run down in.
	rowPitch, cellH = 55, 44
	cellX, cellW    = 16, 78
	switchH         = 50
	// stem is the room between a leaf and its first row of hosts.
	stem = 70
	// switchWMax keeps the few switches of a small fabric from looking like walls.
	switchWMax = 400
)

// A layout says where everything stands on the map: the switches of a tree level by level with the hosts under their
// leafs, and what is no tree as blocks (a switch over its hosts) on a grid where neighbours are close.
//
// It is computed once for a topology, here and not in the page, so that it can be tested and every page shows the same
// map.
type layout struct {
	// Tree is set where levels mean something; Levels counts those of the switches.
	Tree   bool
	Levels int
	// By node. X and Y are the upper left corner. Level is 0 for a host, 1 for a leaf; Group is -1 for a node in none.
	X, Y, W, H []int32
	Level      []uint8
	Group      []int32
	Groups     []group
	// Width and Height are those of the whole; it starts at 0, 0.
	Width, Height int32
}

// A group is what the map draws as one from afar: a pod, or top switches that lead to the same places.
type group struct {
	Name       string
	Top        bool
	X, Y, W, H int32
	Hosts      int
	Switches   int
}

// layer holds what is known while a layout is made.
type layer struct {
	*layout
	g *topo.Graph
	// near has the switches that a switch is cabled to, once each.
	near [][]int
	// hosts are those that stand under each switch.
	hosts [][]int
	// columns is how many hosts stand side by side under a leaf.
	columns int
	rank    []int // by node: its place in the order of names
}

// arrange makes the layout of a topology. Equal graphs have equal layouts.
func arrange(g *topo.Graph) *layout {
	n := len(g.Nodes)
	l := &layer{layout: &layout{
		X: make([]int32, n), Y: make([]int32, n), W: make([]int32, n), H: make([]int32, n),
		Level: make([]uint8, n), Group: make([]int32, n),
	}, g: g, near: make([][]int, n), hosts: make([][]int, n)}
	for i := range l.Group {
		l.Group[i] = -1
	}
	l.rank = nameRanks(g)
	alone := l.readCables()
	l.setLevels()
	switches := make([]int, 0, len(g.Switches()))
	for _, s := range g.Switches() {
		switches = append(switches, s.Index)
	}
	l.setColumns(switches)
	var size extent
	if l.Tree {
		size = l.placeTree(switches)
	} else {
		size = l.placeMesh(switches)
	}
	// What is plugged in nowhere, and pairs without a switch, stand in a row below.
	for i, h := range alone {
		l.box(h, int32(i)*unit+cellX, size.h, cellW, cellH)
	}
	if len(alone) > 0 {
		size = extent{max(size.w, int32(len(alone))*unit), size.h + rowPitch}
	}
	l.Width, l.Height = max(size.w, unit), max(size.h, unit)
	return l.layout
}

type extent struct{ w, h int32 }

func (l *layer) box(node int, x, y, w, h int32) {
	l.X[node], l.Y[node], l.W[node], l.H[node] = x, y, w, h
}

// readCables fills near and hosts, and returns the nodes that stand under no switch. A host of several rails stands
// under the switch of its first.
func (l *layer) readCables() (alone []int) {
	for _, n := range l.g.Nodes {
		if n.IsSwitch() {
			for p := 1; p < len(n.Ports); p++ {
				if far := n.Ports[p].Peer; n.Ports[p].Connected() && far != n.Index && l.g.Nodes[far].IsSwitch() {
					l.near[n.Index] = append(l.near[n.Index], far)
				}
			}
			slices.Sort(l.near[n.Index])
			l.near[n.Index] = slices.Compact(l.near[n.Index])
			continue
		}
		home := -1
		for p := 1; p < len(n.Ports) && home < 0; p++ {
			if n.Ports[p].Connected() && l.g.Nodes[n.Ports[p].Peer].IsSwitch() {
				home = n.Ports[p].Peer
			}
		}
		if home < 0 {
			alone = append(alone, n.Index)
		} else {
			l.hosts[home] = append(l.hosts[home], n.Index)
		}
	}
	for _, h := range l.hosts {
		l.sortByName(h)
	}
	return alone
}

// setLevels counts each switch's distance from the leafs, and decides whether that makes a tree. A switch with few
// hosts beside those of others (a management node on a spine) is no leaf.
func (l *layer) setLevels() {
	var counts []int
	for _, s := range l.g.Switches() {
		if c := len(l.hosts[s.Index]); c > 0 {
			counts = append(counts, c)
		}
	}
	if len(counts) == 0 {
		return
	}
	slices.Sort(counts)
	few := counts[len(counts)/2] / 4
	var queue []int
	for _, s := range l.g.Switches() {
		if len(l.hosts[s.Index]) > few {
			l.Level[s.Index] = 1
			queue = append(queue, s.Index)
		}
	}
	for i := 0; i < len(queue); i++ {
		for _, far := range l.near[queue[i]] {
			if l.Level[far] == 0 {
				l.Level[far] = l.Level[queue[i]] + 1
				queue = append(queue, far)
			}
		}
	}
	level, along, total := 1, 0, 0
	for _, s := range l.g.Switches() {
		if l.Level[s.Index] == 0 { // an island of switches
			l.Level[s.Index] = 1
		}
		level = max(level, int(l.Level[s.Index]))
		for _, far := range l.near[s.Index] {
			total++
			if l.Level[far] == l.Level[s.Index] {
				along++
			}
		}
	}
	l.Levels = level
	// A few cables within a level are wiring mistakes; many are another topology.
	l.Tree = along*20 <= total && level <= 6
	if l.Tree {
		l.lowerEmptyLeafs()
	} else {
		l.Levels = 1
		for _, s := range l.g.Switches() {
			l.Level[s.Index] = 1
		}
	}
}

// lowerEmptyLeafs finds leafs without hosts: counted from the hosts they seem to be at the top, but they lead into one
// pod only.
func (l *layer) lowerEmptyLeafs() {
	if l.Levels < 3 {
		return
	}
	var switches []int
	for _, s := range l.g.Switches() {
		switches = append(switches, s.Index)
	}
	pod := map[int]int{}
	for p, members := range l.parts(switches, l.Levels) {
		for _, s := range members {
			pod[s] = p
		}
	}
	var within []int
	tops := 0
	for _, s := range switches {
		if int(l.Level[s]) != l.Levels {
			continue
		}
		tops++
		if !slices.ContainsFunc(l.near[s], func(far int) bool { return pod[far] != pod[l.near[s][0]] }) {
			within = append(within, s)
		}
	}
	if len(within) < tops { // with one pod alone nothing can be told
		for _, s := range within {
			l.Level[s] -= 2
		}
	}
}

// setColumns puts the hosts of a leaf side by side in a small fabric and in columns in a large one.
func (l *layer) setColumns(switches []int) {
	leafs, most := 0, 1
	for _, s := range switches {
		if c := len(l.hosts[s]); c > 0 {
			leafs++
			most = max(most, c)
		}
	}
	l.columns = min(most, max(1, 60/max(leafs, 1)))
	if leafs == 1 { // a star: as a block of the shape of a screen
		l.columns = min(most, max(8, int(math.Ceil(math.Sqrt(float64(most))))))
	}
	if !l.Tree && leafs > 1 {
		l.columns = min(most, max(2, int(math.Ceil(math.Sqrt(float64(most)/2)))))
	}
}

// block places a switch and the hosts under it.
func (l *layer) block(s int, x, y int32) extent {
	cols := int32(min(l.columns, max(1, len(l.hosts[s]))))
	w := cols * unit
	sw := min(w*86/100, switchWMax)
	l.box(s, x+(w-sw)/2, y, sw, switchH)
	if len(l.hosts[s]) == 0 {
		return extent{w, switchH}
	}
	top := y + switchH + stem
	for i, h := range l.hosts[s] {
		l.box(h, x+int32(i)%cols*unit+cellX, top+int32(i)/cols*rowPitch, cellW, cellH)
	}
	rows := (int32(len(l.hosts[s])) + cols - 1) / cols
	return extent{w, top - y + rows*rowPitch}
}

// sortByName orders nodes as people count: leaf2 before leaf10.
func (l *layer) sortByName(nodes []int) {
	slices.SortFunc(nodes, func(a, b int) int { return cmp.Compare(l.rank[a], l.rank[b]) })
}

func nameRanks(g *topo.Graph) []int {
	order := make([]int, len(g.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return naturalCompare(g.Nodes[a].Name, g.Nodes[b].Name) })
	rank := make([]int, len(order))
	for place, node := range order {
		rank[node] = place
	}
	return rank
}

// naturalCompare orders names with their numbers read as numbers.
func naturalCompare(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// isHost reports whether a node is drawn as an end of the fabric.
func isHost(n *topo.Node) bool { return n.Type != ib.NodeSwitch }
