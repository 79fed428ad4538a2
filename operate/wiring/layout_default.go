package wiring

import (
	"fmt"
	"math"

	"softib/proto/topo"
)

// Units of a rack that are kept free for power and patching in a layout that is made up.
const spareUnits = 2

// DefaultLayout makes a layout up: each leaf at the top of a rack with its hosts below, as many leaves to a rack as
// fit; rows of racks on a floor that is about square; the switches above the leaves in racks in the middle of the row
// of most of what they serve, the roots in the middle row.
func DefaultLayout(g *topo.Graph) *Layout {
	l := newLayout()
	l.Made = true
	x := newShape(g)
	racks := l.fillRacks(x)
	// Racks are 0.6 m apart and rows 3 m: that many rows make a square.
	rows := max(1, int(math.Round(math.Sqrt(float64(len(racks))*defaultPitchMM/defaultAisleMM))))
	perRow := max(1, (len(racks)+rows-1)/rows)
	rows = max(1, (len(racks)+perRow-1)/perRow)
	rowOf := make([]int, len(g.Nodes))
	for i := range rowOf {
		rowOf[i] = -1
	}
	for r, nodes := range racks {
		for _, n := range nodes {
			rowOf[n.node] = r / perRow
		}
	}
	net := x.upperByRow(rowOf, rows)
	most := l.Units - spareUnits
	for row := range rows {
		hosts := racks[min(row*perRow, len(racks)):min((row+1)*perRow, len(racks))]
		middle := (len(hosts) + 1) / 2
		position := 0
		next := func() Rack {
			position++
			r := Rack{Name: fmt.Sprintf("r%dp%d", row+1, position), Row: row + 1, Position: position}
			l.addRack(r)
			return r
		}
		for i := 0; i <= len(hosts); i++ {
			if i == middle {
				for at := 0; at < len(net[row]); at += most {
					r := next()
					for u, n := range net[row][at:min(at+most, len(net[row]))] {
						l.place[g.Nodes[n].Name] = Place{r.Name, l.Units - u}
					}
				}
			}
			if i < len(hosts) {
				r := next()
				for _, n := range hosts[i] {
					l.place[g.Nodes[n.node].Name] = Place{r.Name, n.unit}
				}
			}
		}
	}
	return l
}

// placed is a node in a rack.
type placed struct{ node, unit int }

// fillRacks puts leaves and hosts into racks, in the order of the tree. Nodes that hang on no leaf come last.
func (l *Layout) fillRacks(x *shape) [][]placed {
	var racks [][]placed
	var cur []placed
	top, bottom := l.Units, 1
	flush := func() {
		if len(cur) > 0 {
			racks = append(racks, cur)
		}
		cur, top, bottom = nil, l.Units, 1
	}
	done := make([]bool, len(x.g.Nodes))
	for _, s := range x.order() {
		n := x.g.Switches()[s]
		var hosts []int
		for p := 1; p < len(n.Ports); p++ {
			at := &n.Ports[p]
			if at.Connected() && x.number[at.Peer] < 0 && !done[at.Peer] {
				done[at.Peer] = true
				hosts = append(hosts, at.Peer)
			}
		}
		if len(cur) > 0 && bottom+len(hosts) > top-spareUnits {
			flush()
		}
		cur = append(cur, placed{n.Index, top})
		done[n.Index] = true
		top--
		for _, h := range hosts {
			if bottom >= top {
				flush()
			}
			cur = append(cur, placed{h, bottom})
			bottom++
		}
	}
	flush()
	for _, n := range x.g.Nodes {
		if done[n.Index] || n.IsSwitch() {
			continue
		}
		if bottom > l.Units-spareUnits {
			flush()
		}
		cur = append(cur, placed{n.Index, bottom})
		bottom++
	}
	flush()
	return racks
}

// upperByRow gives each switch without hosts a row: the roots the middle one, others that of most of their neighbours
// below.
func (x *shape) upperByRow(rowOf []int, rows int) [][]int {
	list := make([][]int, rows)
	for l := 0; l < max(x.levels, 1); l++ {
		for s, n := range x.g.Switches() {
			if rowOf[n.Index] >= 0 || x.level[s] != l && !(l == max(x.levels, 1)-1) {
				continue
			}
			row := rows / 2
			if l < x.levels-1 {
				var count tally
				for _, e := range x.out[s] {
					if r := rowOf[x.g.Switches()[e.to].Index]; r >= 0 {
						count.add(r)
					}
				}
				if count.total > 0 {
					row, _ = count.most()
				}
			}
			rowOf[n.Index] = row
			list[row] = append(list[row], n.Index)
		}
	}
	return list
}
