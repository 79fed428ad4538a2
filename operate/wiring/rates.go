package wiring

import (
	"cmp"
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// mixedShare is the share of slower cables from which on they are a choice rather than faults: then one note says that
// there are two kinds.
const mixedShare = 0.1

// rateClass is cables that should run alike: those between the same two levels.
type rateClass struct {
	level  int // of the lower end
	cables []topo.Cable
}

// rateClasses sorts the cables by the levels that they join; a cable that strays goes with those of its lower end.
func rateClasses(x *shape) []rateClass {
	by := map[int]int{}
	var list []rateClass
	for _, c := range x.g.Cables() {
		a, b := x.g.Nodes[c.A.Node], x.g.Nodes[c.B.Node]
		if a.IsSwitch() != b.IsSwitch() {
			end, sw := a, b
			if a.IsSwitch() {
				end, sw = b, a
			}
			if topo.IsPart(end, sw) {
				continue
			}
		}
		l := min(x.nodeLevel(c.A.Node), x.nodeLevel(c.B.Node))
		if !x.isTree() && l != endLevel {
			l = 0
		}
		i, ok := by[l]
		if !ok {
			i = len(list)
			by[l] = i
			list = append(list, rateClass{level: l})
		}
		list[i].cables = append(list[i].cables, c)
	}
	slices.SortFunc(list, func(a, b rateClass) int { return cmp.Compare(a.level, b.level) })
	return list
}

// usual is the rate of more than half of the cables, zero if there is none, and how many run at it.
func (k rateClass) usual(g *topo.Graph) (ib.LinkRate, int) {
	count := map[ib.LinkRate]int{}
	for _, c := range k.cables {
		r := g.LinkRate(c.A)
		if count[r]++; 2*count[r] > len(k.cables) {
			return r, k.count(g, r)
		}
	}
	return ib.LinkRate{}, 0
}

func (k rateClass) count(g *topo.Graph, r ib.LinkRate) int {
	n := 0
	for _, c := range k.cables {
		if g.LinkRate(c.A) == r {
			n++
		}
	}
	return n
}

// checkRates finds cables whose ends disagree, such as run below what both ends can do, and such as are slower than
// most of their class.
func checkRates(x *shape) []Finding {
	var list []Finding
	for _, k := range rateClasses(x) {
		list = append(list, k.check(x)...)
	}
	return list
}

func (k rateClass) check(x *shape) []Finding {
	g := x.g
	usual, count := k.usual(g)
	slower := 0
	for _, c := range k.cables {
		if r := g.LinkRate(c.A); usual.Mbps() > r.Mbps() && r.Width == usual.Width {
			slower++
		}
	}
	mixed := float64(slower) > max(mixedShare*float64(len(k.cables)), 1)
	var list []Finding
	if mixed {
		list = append(list, Finding{Kind: Degraded, Severity: Note, at: topo.PortRef{Node: -1},
			Text: fmt.Sprintf("%d of %d %s run slower than %v, so many that it looks like a choice", slower,
				len(k.cables), x.linkName(k.level), usual),
			Do: "nothing, if these are older devices"})
	}
	for _, c := range k.cables {
		near, far := g.Port(c.A), g.Port(c.B)
		r := g.LinkRate(c.A)
		isSlow := r.Mbps() < usual.Mbps() && !(mixed && r.Width == usual.Width)
		could := g.CapableLink(c.A)
		if near.Rate() == far.Rate() && !isSlow && could.Mbps() <= r.Mbps() {
			continue // as nearly all are: names are for findings
		}
		w := Wire{g.PortName(c.A), g.PortName(c.B)}
		f := Finding{Kind: Degraded, Severity: Warning, Wired: []Wire{w}, at: c.A}
		if near.Rate() != far.Rate() {
			f.Text = fmt.Sprintf("%v: the near end is set to %v, the far end to %v; it runs at %v", w, near.Rate(),
				far.Rate(), r)
			f.Do = "set both ends alike"
		} else if could.Mbps() > r.Mbps() {
			f.Text = fmt.Sprintf("%v runs at %v, and both ends can do %v", w, r, could)
			f.Do = degradedAdvice(r, could)
		} else {
			f.Text = fmt.Sprintf("%v runs at %v, %d of %d %s run at %v", w, r, count, len(k.cables),
				x.linkName(k.level), usual)
			f.Do = degradedAdvice(r, usual)
		}
		list = append(list, f)
	}
	return list
}

// degradedAdvice says what to do about a cable that is slower than it should be.
func degradedAdvice(is, should ib.LinkRate) string {
	if is.Width != should.Width {
		return "reseat both plugs, or replace the cable: a lane is dead"
	}
	return "reseat both plugs, or replace the cable or the adapter"
}
