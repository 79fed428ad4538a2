package wiring

import (
	"cmp"
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// link is an expected cable between two nodes of the fabric; port 0 stands for any port. The A end is the lower one in
// a tree.
type link struct {
	a, b topo.PortRef
	rate ib.LinkRate // zero if nothing is said about it
}

// pattern is what most switches of a tree do, as the links that all should have.
type pattern struct {
	x     *shape
	links []link
	// exact counts the expected links whose ports both follow a rule.
	exact int
	// family of a switch by its neighbours above, and by those below; -1 for none.
	up, down []int32
}

// What share of brothers has to agree before the others are called wrong.
const (
	agreeCount = 2.0 / 3 // about the number of cables
	agreePort  = 0.5     // about the port: more than half, since only one node can be right
	// explainedMin is the share of cables between levels that the pattern has to explain in a fat tree.
	explainedMin = 0.6
)

// pairCount is how many cables go from a switch to one above it.
type pairCount struct {
	to    int32
	count int
}

// findPattern infers the links of a tree. A shape whose cables follow no pattern is told why it is no fat tree.
func findPattern(x *shape) *pattern {
	n := len(x.out)
	p := &pattern{x: x, up: make([]int32, n), down: make([]int32, n)}
	for s := range n {
		p.up[s], p.down[s] = -1, -1
	}
	above, below := make([][]pairCount, n), make([][]pairCount, n)
	for s := range n {
		above[s] = x.count(int32(s), 1)
		below[s] = x.count(int32(s), -1)
	}
	explained, total := 0, 0
	for l := range x.levels - 1 {
		var lower, upper []int32
		for s := range n {
			switch x.level[s] {
			case l:
				lower = append(lower, int32(s))
			case l + 1:
				upper = append(upper, int32(s))
			}
		}
		ups := families(lower, above, below, p.up)
		downs := families(upper, below, above, p.down)
		b := block{p: p, above: above, ups: ups, downs: downs}
		b.findPorts()
		for i := range ups {
			e, t := b.expect(int32(i))
			explained += e
			total += t
		}
	}
	if total > 0 && float64(explained) < explainedMin*float64(total) {
		x.why = fmt.Sprintf("its switches stand on %d levels, but only %d of the %d cables between them follow "+
			"a pattern", x.levels, explained, total)
		p.links = nil
	}
	return p
}

// count lists the neighbours one level up (1) or down (-1) with the number of cables to each.
func (x *shape) count(s int32, step int) []pairCount {
	var list []pairCount
	for _, e := range x.out[s] {
		if x.level[e.to] != x.level[s]+step {
			continue
		}
		i, found := slices.BinarySearchFunc(list, e.to,
			func(c pairCount, to int32) int { return cmp.Compare(c.to, to) })
		if !found {
			list = slices.Insert(list, i, pairCount{e.to, 0})
		}
		list[i].count++
	}
	return list
}

func countOf(list []pairCount, to int32) int {
	if i, found := slices.BinarySearchFunc(list, to,
		func(c pairCount, to int32) int { return cmp.Compare(c.to, to) }); found {
		return list[i].count
	}
	return 0
}

// families sorts switches of one level into brothers: those that have more than half of their neighbours (there) in
// common. A switch without brothers, where others have some, joins the family that it shares most with; of two that are
// equal, the smaller.
func families(level []int32, there, back [][]pairCount, family []int32) [][]int32 {
	set := newSets(len(there))
	shared := map[int32]int{}
	var seen []int32
	for _, s := range level {
		clear(shared)
		seen = seen[:0]
		for _, c := range there[s] {
			for _, t := range back[c.to] {
				if t.to <= s {
					continue
				}
				if shared[t.to]++; shared[t.to] == 1 {
					seen = append(seen, t.to)
				}
			}
		}
		for _, t := range seen {
			if 2*shared[t] > max(len(there[s]), len(there[t])) {
				set.join(s, t)
			}
		}
	}
	var list [][]int32
	for _, s := range level {
		f := set.find(s)
		if family[f] < 0 {
			family[f] = int32(len(list))
			list = append(list, nil)
		}
		family[s] = family[f]
		list[family[f]] = append(list[family[f]], s)
	}
	adoptOrphans(list, there, back, family)
	return list
}

// adoptOrphans gives single switches to the family that they share most neighbours with.
func adoptOrphans(list [][]int32, there, back [][]pairCount, family []int32) {
	usual := 0
	size := map[int]int{}
	for _, f := range list {
		size[len(f)] += len(f)
		if n := size[len(f)]; n > size[usual] || n == size[usual] && len(f) > usual {
			usual = len(f)
		}
	}
	if usual < 2 {
		return
	}
	for i := range list {
		if len(list[i]) != 1 {
			continue
		}
		s := list[i][0]
		shared := make([]int, len(list))
		for _, c := range there[s] {
			for _, t := range back[c.to] {
				if t.to != s {
					shared[family[t.to]]++
				}
			}
		}
		best := -1
		for f := range list {
			if f == i || len(list[f]) == 0 || shared[f] == 0 {
				continue
			}
			// By neighbours shared with a member on average; a family that lacks a member comes first among equals.
			if best < 0 {
				best = f
				continue
			}
			c := cmp.Compare(shared[f]*len(list[best]), shared[best]*len(list[f]))
			if c > 0 || c == 0 && len(list[f]) < len(list[best]) {
				best = f
			}
		}
		// It has to have about half of what its new brothers have.
		if best >= 0 && 2*shared[best] >= len(list[best])*min(len(there[s]), len(there[list[best][0]])) {
			list[best] = append(list[best], s)
			family[s] = int32(best)
			list[i] = nil
		}
	}
}

// block is one pair of neighbouring levels.
type block struct {
	p     *pattern
	above [][]pairCount
	// ups are the families of the lower level, downs those of the upper.
	ups, downs [][]int32
	// upPort[f][port] is where the port leads from members of family f, and downPort the same from above; -1 where they
	// don't agree.
	upPort, downPort [][]int32
}

// findPorts finds the rule that the ports of each family follow.
func (b *block) findPorts() {
	b.upPort = make([][]int32, len(b.ups))
	for f, members := range b.ups {
		b.upPort[f] = b.p.x.portRule(members, 1)
	}
	b.downPort = make([][]int32, len(b.downs))
	for f, members := range b.downs {
		b.downPort[f] = b.p.x.portRule(members, -1)
	}
}

// portRule is the switch that most members reach by each port, going up or down; -1 where no switch stands out.
func (x *shape) portRule(members []int32, step int) []int32 {
	var votes [][]int32
	for _, s := range members {
		for _, e := range x.out[s] {
			if x.level[e.to] != x.level[s]+step {
				continue
			}
			for len(votes) <= int(e.port) {
				votes = append(votes, nil)
			}
			votes[e.port] = append(votes[e.port], e.to)
		}
	}
	rule := make([]int32, len(votes))
	for port, v := range votes {
		rule[port] = -1
		slices.Sort(v)
		most, second := 0, 0
		for i := 0; i < len(v); {
			j := i
			for j < len(v) && v[j] == v[i] {
				j++
			}
			if j-i > most {
				rule[port], most, second = v[i], j-i, most
			} else {
				second = max(second, j-i)
			}
			i = j
		}
		half := most >= 2 && float64(most) > agreePort*float64(len(members))
		// Where many cables are wrong, they are wrong in many ways.
		alone := most >= 3 && most >= 3*second && float64(most) >= agreePort/2*float64(len(members))
		if !half && !alone {
			rule[port] = -1
		}
	}
	return rule
}

// ports are those that a rule gives to one neighbour.
func ports(rule []int32, to int32) []ib.PortNum {
	var list []ib.PortNum
	for p, t := range rule {
		if t == to {
			list = append(list, ib.PortNum(p))
		}
	}
	return list
}

// tally counts equal values.
type tally struct {
	value, votes []int
	total        int
}

func (t *tally) add(v int) {
	t.total++
	if i := slices.Index(t.value, v); i >= 0 {
		t.votes[i]++
		return
	}
	t.value, t.votes = append(t.value, v), append(t.votes, 1)
}

// most is the commonest value, the larger of two that are equally common, and its share.
func (t *tally) most() (value int, share float64) {
	best := -1
	for i := range t.value {
		if best < 0 || t.votes[i] > t.votes[best] || t.votes[i] == t.votes[best] && t.value[i] > t.value[best] {
			best = i
		}
	}
	if best < 0 {
		return 0, 0
	}
	return t.value[best], float64(t.votes[best]) / float64(t.total)
}

// expect adds the links that the members of a family should have. It counts the cables that do as expected, and all of
// them.
func (b *block) expect(f int32) (explained, total int) {
	members := b.ups[f]
	if len(members) == 0 {
		return 0, 0
	}
	// Whom any of them is cabled to, and the upper families that these belong to.
	var met, groups []int32
	for _, s := range members {
		for _, c := range b.above[s] {
			met = append(met, c.to)
			groups = append(groups, b.p.down[c.to])
			total += c.count
		}
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		met = append(met, b.downs[g]...)
	}
	slices.Sort(met)
	met = slices.Compact(met)
	whole := map[int32]*tally{} // by upper family
	for _, u := range met {
		w := whole[b.p.down[u]]
		if w == nil {
			w = &tally{}
			whole[b.p.down[u]] = w
		}
		for _, s := range members {
			w.add(countOf(b.above[s], u))
		}
	}
	for _, u := range met {
		low, high := b.quota(members, u, whole[b.p.down[u]])
		for _, s := range members {
			have := countOf(b.above[s], u)
			want := min(max(have, low), high)
			explained += min(have, want)
			b.addLinks(s, u, want)
		}
	}
	return explained, total
}

// quota is how many cables each of the brothers should have to a switch above: as most have to it, or as most pairs of
// the two families have, or, where cables don't divide evenly, the average rounded either way.
func (b *block) quota(members []int32, u int32, whole *tally) (low, high int) {
	var own tally
	sum := 0
	for _, s := range members {
		c := countOf(b.above[s], u)
		own.add(c)
		sum += c
	}
	if v, share := own.most(); len(members) >= 3 && share >= agreeCount {
		return v, v
	}
	if v, share := whole.most(); share >= agreeCount {
		return v, v
	}
	low, high = sum/len(members), (sum+len(members)-1)/len(members)
	return low, high
}

// addLinks expects so many cables between two switches, at the ports that the rules give.
func (b *block) addLinks(s, u int32, want int) {
	if want == 0 {
		return
	}
	p := b.p
	x := p.x
	a, c := x.g.Switches()[s].Index, x.g.Switches()[u].Index
	var near, far []ib.PortNum
	if near = ports(b.upPort[p.up[s]], u); len(near) != want {
		near = nil
	}
	if far = ports(b.downPort[p.down[u]], s); len(far) != want {
		far = nil
	}
	if near == nil && far == nil {
		for range want {
			p.links = append(p.links, link{a: topo.PortRef{Node: a}, b: topo.PortRef{Node: c}})
		}
		return
	}
	if near == nil || far == nil {
		for i := range want {
			l := link{a: topo.PortRef{Node: a}, b: topo.PortRef{Node: c}}
			if near != nil {
				l.a.Port = near[i]
			} else {
				l.b.Port = far[i]
			}
			p.links = append(p.links, l)
		}
		return
	}
	// Which of several parallel cables is which is as they are plugged; the rest goes in order.
	for i := 0; i < len(near); {
		at := &x.g.Nodes[a].Ports[near[i]]
		j := slices.Index(far, at.PeerPort)
		if !at.Connected() || at.Peer != c || j < 0 {
			i++
			continue
		}
		p.addExact(a, near[i], c, far[j])
		near, far = slices.Delete(near, i, i+1), slices.Delete(far, j, j+1)
	}
	for i := range near {
		p.addExact(a, near[i], c, far[i])
	}
}

func (p *pattern) addExact(a int, pa ib.PortNum, b int, pb ib.PortNum) {
	p.links = append(p.links, link{a: topo.PortRef{Node: a, Port: pa}, b: topo.PortRef{Node: b, Port: pb}})
	p.exact++
}
