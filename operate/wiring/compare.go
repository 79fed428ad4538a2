package wiring

import (
	"fmt"

	"softib/proto/topo"
)

// cable is a cable of the fabric in a comparison.
type cable struct {
	a, b topo.PortRef
	done bool
}

// comparison holds what is left of the expected links and of the cables as they are matched with each other, the surest
// matches first.
type comparison struct {
	g     *topo.Graph
	links []link
	gone  []bool // links that were matched or reported
	cab   []cable

	linkAt  map[topo.PortRef]int // by a port that an expected link names
	cableAt map[topo.PortRef]int
	byPair  map[[2]int][]int // cables by their nodes, the lower first

	// free reports of a port that no link names whether a cable of an end node may be there: the down ports of leaves.
	free func(topo.PortRef) bool
	// strayEnd reports of a port that it is an end node's, which should be at a leaf.
	strayEnd func(topo.PortRef) bool
	// portSeverity is what a wrong port of the right nodes is.
	portSeverity Severity
	matched      []int // for each link the cable that is where it should be, or at least between the right nodes; -1
	findings     []Finding
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// newComparison lays out expected links beside cables; run finds what differs.
func newComparison(g *topo.Graph, links []link, cables []topo.Cable) *comparison {
	c := &comparison{g: g, links: links, gone: make([]bool, len(links)), cab: make([]cable, len(cables)),
		matched: make([]int, len(links)),
		linkAt:  make(map[topo.PortRef]int, 2*len(links)), cableAt: make(map[topo.PortRef]int, 2*len(cables)),
		byPair: make(map[[2]int][]int, len(cables)),
		free:   func(topo.PortRef) bool { return false }, strayEnd: func(topo.PortRef) bool { return false },
		portSeverity: Warning}
	for i, l := range links {
		c.matched[i] = -1
		for _, end := range [2]topo.PortRef{l.a, l.b} {
			if end.Port != 0 {
				c.linkAt[end] = i
			}
		}
	}
	for i, w := range cables {
		c.cab[i] = cable{a: w.A, b: w.B}
		c.cableAt[w.A], c.cableAt[w.B] = i, i
		pair := pairOf(w.A.Node, w.B.Node)
		c.byPair[pair] = append(c.byPair[pair], i)
	}
	return c
}

func (c *comparison) run() []Finding {
	c.matchExact()
	c.matchSwaps()
	c.matchLoose()
	c.matchWrongPorts(false)
	c.matchLooseSwaps()
	c.reportMiswired()
	c.matchWrongPorts(true)
	c.reportLooseMiswired()
	c.reportRest()
	return c.findings
}

// settle takes a link and its cable out of what is left.
func (c *comparison) settle(l, w int) {
	c.gone[l], c.matched[l] = true, w
	c.cab[w].done = true
}

// far is the other end of an open cable at a port.
func (c *comparison) far(at topo.PortRef) (topo.PortRef, int, bool) {
	w, ok := c.cableAt[at]
	if !ok || c.cab[w].done || at.Port == 0 {
		return topo.PortRef{}, 0, false
	}
	if c.cab[w].a == at {
		return c.cab[w].b, w, true
	}
	return c.cab[w].a, w, true
}

// want is where an open link says that a port should lead.
func (c *comparison) want(at topo.PortRef) (topo.PortRef, int, bool) {
	l, ok := c.linkAt[at]
	if !ok || c.gone[l] || at.Port == 0 {
		return topo.PortRef{}, 0, false
	}
	if c.links[l].a == at {
		return c.links[l].b, l, true
	}
	return c.links[l].a, l, true
}

// matchExact settles what is as it should be.
func (c *comparison) matchExact() {
	for i, l := range c.links {
		if l.a.Port == 0 || l.b.Port == 0 {
			continue
		}
		if to, w, ok := c.far(l.a); ok && to == l.b {
			c.settle(i, w)
		}
	}
}

// matchSwaps finds two cables that have each other's ends: a should lead to b, and c to d, but a leads to d and c to b.
func (c *comparison) matchSwaps() {
	for i := range c.links {
		if c.gone[i] {
			continue
		}
		// A link that names only one of its ports starts from that one.
		a, b := c.links[i].a, c.links[i].b
		if a.Port == 0 {
			a, b = b, a
		}
		if a.Port == 0 || b.Port == 0 {
			continue
		}
		d, w1, ok1 := c.far(a)
		x, w2, ok2 := c.far(b)
		if !ok1 || !ok2 || w1 == w2 {
			continue
		}
		want, j, ok := c.want(d)
		switch {
		case ok && j != i && c.fits(want, x):
			c.swapped(i, j, w1, w2, a, b, x, d)
		case !ok && c.strayEnd(x) && c.free(d):
			c.gone[i], c.matched[i] = true, -1
			c.cab[w1].done, c.cab[w2].done = true, true
			c.addSwap(Warning, a, d, x, b)
		case !ok && c.strayEnd(d) && c.free(x):
			c.gone[i] = true
			c.cab[w1].done, c.cab[w2].done = true, true
			c.addSwap(Warning, b, x, d, a)
		}
	}
}

// fits reports whether a port is one that a link's end allows.
func (c *comparison) fits(end, at topo.PortRef) bool {
	return end == at || end.Port == 0 && end.Node == at.Node
}

// swapped reports links i and j, whose cables w1 (a to d) and w2 (x to b) have each other's ends.
func (c *comparison) swapped(i, j, w1, w2 int, a, b, x, d topo.PortRef) {
	c.gone[i], c.gone[j] = true, true
	c.cab[w1].done, c.cab[w2].done = true, true
	s := Warning
	if a.Node == x.Node || b.Node == d.Node {
		// They lead to the right nodes, only in each other's port.
		s = c.portSeverity
	}
	c.matched[i], c.matched[j] = w1, w2
	c.addSwap(s, a, d, x, b)
}

// addSwap reports cables a–d and x–b that should be a–b and x–d.
func (c *comparison) addSwap(s Severity, a, d, x, b topo.PortRef) {
	wired := []Wire{c.wire(a, d), c.wire(x, b)}
	wanted := []Wire{c.wire(a, b), c.wire(x, d)}
	c.findings = append(c.findings, Finding{Kind: Swapped, Severity: s, Wired: wired, Wanted: wanted, at: a,
		Text: fmt.Sprintf("%v and %v have each other's ends", wired[0], wired[1]),
		Do:   fmt.Sprintf("exchange the plugs in %s and %s", c.name(d), c.name(b))})
}

// matchLoose settles links that leave a port open with any cable between their nodes.
func (c *comparison) matchLoose() {
	for i, l := range c.links {
		if c.gone[i] || l.a.Port != 0 && l.b.Port != 0 {
			continue
		}
		if w, ok := c.between(l, func(near, far topo.PortRef) bool {
			return c.fits(l.a, near) &&
				c.fits(l.b, far)
		}); ok {
			c.settle(i, w)
		}
	}
	// A port that the rules give and the cable doesn't use is no matter as long as the nodes are right.
	for i, l := range c.links {
		if c.gone[i] || l.a.Port != 0 && l.b.Port != 0 {
			continue
		}
		if w, ok := c.between(l, func(near, far topo.PortRef) bool { return !c.named(near) && !c.named(far) }); ok {
			c.settle(i, w)
		}
	}
}

// named reports whether an open link names the port.
func (c *comparison) named(at topo.PortRef) bool {
	_, _, ok := c.want(at)
	return ok
}

// between finds an open cable between a link's nodes that suits; near is its end at the link's a.
func (c *comparison) between(l link, suits func(near, far topo.PortRef) bool) (int, bool) {
	for _, w := range c.byPair[pairOf(l.a.Node, l.b.Node)] {
		if c.cab[w].done {
			continue
		}
		near, far := c.cab[w].a, c.cab[w].b
		if near.Node != l.a.Node {
			near, far = far, near
		}
		if suits(near, far) || l.a.Node == l.b.Node && suits(far, near) {
			return w, true
		}
	}
	return 0, false
}

// matchWrongPorts settles cables between the right nodes in wrong ports: first those of which one end is right; and,
// when nothing better was found for them, those of which neither is.
func (c *comparison) matchWrongPorts(both bool) {
	for i, l := range c.links {
		if c.gone[i] {
			continue
		}
		w, ok := c.between(l, func(near, far topo.PortRef) bool {
			if both {
				return !c.named(near) && !c.named(far)
			}
			return near == l.a && !c.named(far) || far == l.b && !c.named(near)
		})
		if !ok {
			continue
		}
		c.settle(i, w)
		near, far := c.cab[w].a, c.cab[w].b
		if near.Node != l.a.Node {
			near, far = far, near
		}
		f := Finding{Kind: WrongPort, Severity: c.portSeverity, Wired: []Wire{c.wire(near, far)},
			Wanted: []Wire{c.wire(l.a, l.b)}, at: l.a,
			Text: fmt.Sprintf("%v should be %v", c.wire(near, far), c.wire(l.a, l.b))}
		switch {
		case near != l.a && far != l.b:
			f.Do = fmt.Sprintf("move the plugs from %s to %s and from %s to %s", c.name(near), c.name(l.a), c.name(far),
				c.name(l.b))
		case near != l.a:
			f.Do = fmt.Sprintf("move the plug from %s to %s", c.name(near), c.name(l.a))
		default:
			f.Do = fmt.Sprintf("move the plug from %s to %s", c.name(far), c.name(l.b))
		}
		c.findings = append(c.findings, f)
	}
}

// matchLooseSwaps finds swapped pairs by nodes alone, where links leave ports open.
func (c *comparison) matchLooseSwaps() {
	open := map[[2]int][]int{}
	for i, l := range c.links {
		if !c.gone[i] {
			pair := pairOf(l.a.Node, l.b.Node)
			open[pair] = append(open[pair], i)
		}
	}
	take := func(a, b int) (int, bool) {
		for _, i := range open[pairOf(a, b)] {
			if !c.gone[i] {
				return i, true
			}
		}
		return 0, false
	}
	// Only cables that have no place can be swapped.
	at := map[int][]int{}
	for w := range c.cab {
		if !c.cab[w].done {
			at[c.cab[w].a.Node] = append(at[c.cab[w].a.Node], w)
			at[c.cab[w].b.Node] = append(at[c.cab[w].b.Node], w)
		}
	}
	for i := range c.links {
		l := c.links[i]
		if c.gone[i] || l.a.Port != 0 && l.b.Port != 0 {
			continue
		}
		for _, w1 := range at[l.a.Node] {
			if c.gone[i] {
				break
			}
			a, d := c.ends(w1, l.a.Node)
			if c.cab[w1].done || d.Node == l.b.Node {
				continue
			}
			for _, w2 := range at[l.b.Node] {
				b, x := c.ends(w2, l.b.Node)
				if c.cab[w2].done || w1 == w2 || x.Node == l.a.Node || c.cab[w1].done || c.gone[i] {
					continue
				}
				if j, ok := take(x.Node, d.Node); ok && j != i {
					c.swapped(i, j, w1, w2, a, b, x, d)
				}
			}
		}
	}
}

// ends are a cable's ports, the one at a node first.
func (c *comparison) ends(w, node int) (near, far topo.PortRef) {
	if c.cab[w].a.Node == node {
		return c.cab[w].a, c.cab[w].b
	}
	return c.cab[w].b, c.cab[w].a
}

// reportMiswired reports cables of which one end is in the port of a link, and the other at another node.
func (c *comparison) reportMiswired() {
	for w := range c.cab {
		if c.cab[w].done {
			continue
		}
		a, d := c.cab[w].a, c.cab[w].b
		b, i, okA := c.want(a)
		x, j, okD := c.want(d)
		switch {
		case okA && okD:
			// Either end may be the wrong one. It is the one whose place is empty; of two, the cable's second end.
			if c.isEmpty(x) && !c.isEmpty(b) {
				c.miswired(j, w, d, a, x)
			} else {
				c.miswired(i, w, a, d, b)
			}
		case okA:
			c.miswired(i, w, a, d, b)
		case okD:
			c.miswired(j, w, d, a, x)
		}
	}
}

// reportLooseMiswired reports cables of which one end is at the node of a link that leaves the port open.
func (c *comparison) reportLooseMiswired() {
	open := map[int][]int{} // links, by the node
	for i, l := range c.links {
		if c.gone[i] {
			continue
		}
		if l.a.Port == 0 {
			open[l.a.Node] = append(open[l.a.Node], i)
		}
		if l.b.Port == 0 {
			open[l.b.Node] = append(open[l.b.Node], i)
		}
	}
	for w := range c.cab {
		for _, node := range [2]int{c.cab[w].a.Node, c.cab[w].b.Node} {
			if c.cab[w].done {
				break
			}
			near, far := c.ends(w, node)
			for _, i := range open[node] {
				if c.gone[i] {
					continue
				}
				b := c.links[i].b
				if b.Node == node {
					b = c.links[i].a
				}
				c.miswired(i, w, near, far, b)
				break
			}
		}
	}
}

func (c *comparison) isEmpty(at topo.PortRef) bool {
	_, used := c.cableAt[at]
	return at.Port == 0 || !used
}

// miswired reports cable w from near to far, which should lead to b.
func (c *comparison) miswired(i, w int, near, far, b topo.PortRef) {
	c.gone[i] = true
	c.cab[w].done = true
	c.findings = append(c.findings, Finding{Kind: Miswired, Severity: Warning, Wired: []Wire{c.wire(near, far)},
		Wanted: []Wire{c.wire(near, b)}, at: near,
		Text: fmt.Sprintf("%v should be %v", c.wire(near, far), c.wire(near, b)),
		Do:   fmt.Sprintf("move the plug from %s to %s", c.name(far), c.name(b))})
}

// reportRest reports links without cables and cables without links.
func (c *comparison) reportRest() {
	for i, l := range c.links {
		if c.gone[i] {
			continue
		}
		c.findings = append(c.findings, Finding{Kind: Missing, Severity: Warning, Wanted: []Wire{c.wire(l.a, l.b)},
			at: l.a, to: l.b,
			Text: fmt.Sprintf("there is no cable %v", c.wire(l.a, l.b)),
			Do:   "plug one in, or see why the link is down"})
	}
	for w := range c.cab {
		if a, b := c.cab[w].a, c.cab[w].b; !c.cab[w].done {
			c.findings = append(c.findings, Finding{Kind: Extra, Severity: Warning, Wired: []Wire{c.wire(a, b)}, at: a,
				Text: fmt.Sprintf("%v should not be there", c.wire(a, b)), Do: "take it out"})
		}
	}
}

func (c *comparison) name(at topo.PortRef) string { return portName(c.g, at) }

func (c *comparison) wire(a, b topo.PortRef) Wire { return Wire{portName(c.g, a), portName(c.g, b)} }

// portName writes a port; one that nothing determines has a question mark.
func portName(g *topo.Graph, at topo.PortRef) string {
	if at.Port == 0 {
		return g.Nodes[at.Node].Name + "[?]"
	}
	return g.PortName(at)
}
