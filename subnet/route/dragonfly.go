package route

import "softib/proto/ib"

// dragonfly routes groups of switches that are cabled to each other within a group (local links), and every group to
// every other (global links): Kim, Dally, Scott and Abts, ISCA 2008. The tables have the minimal ways: a local link to
// a switch with a global link to the destination's group, that link, and a local link there. Switches that choose may
// go by way of a third group as well (dragonfly_groups.go).
//
// Ways are free of deadlock because lanes rise along them (phases), whatever a switch chooses. What is lost is gone
// around within the same order: a missing local link by two others, a missing global link by a third group.
type dragonfly struct{}

func (dragonfly) Name() string { return "dragonfly" }

func (dragonfly) Compute(n *Network, o Options) (*Tables, error) {
	w := newAdjacency(n)
	of := findClusters(w)
	if of == nil {
		return nil, unfit("dragonfly", "the switches do not fall into groups that are cabled within, and each to the "+
			"others")
	}
	var why error
	for slack := 1; slack <= slackMax; slack++ {
		x := newDragon(n, w, of, slack)
		if lanes := x.phases.lanes(); o.VLs > 0 && lanes > o.VLs {
			why = unfit("dragonfly", "ways need %d lanes: the links have %d", lanes, o.VLs)
			break
		}
		t := &Tables{Engine: "dragonfly", LFT: newLFT(n), VLs: x.phases.lanes(), SLtoVL: x.phases, ByLane: true,
			made: n, dragon: x}
		if why = x.fill(t); why == nil {
			return t, nil
		}
	}
	return nil, why
}

// slackMax is how many local links a way has at most between two global ones, one more than where none is missing.
const slackMax = 2

// dragon is a dragonfly: its groups, and how they are joined.
type dragon struct {
	n       *Network
	w       *adjacency
	phases  *phases
	of      []int32   // the cluster of a switch
	members [][]int32 // the switches of a cluster
	direct  [][]bool  // by two clusters: a global link joins them

	// Of one destination's switch.
	home   int32   // its cluster
	local  []int32 // local links to it, from switches of its own cluster
	toGate []int32 // local links to a switch with a global link that leads on, from others
	rest   []int32 // and those behind that link
}

func newDragon(n *Network, w *adjacency, of []int32, slack int) *dragon {
	x := &dragon{n: n, w: w, of: of, phases: &phases{slack: ib.VL(slack), kind: make([][]portKind, len(of))},
		local: make([]int32, len(of)), toGate: make([]int32, len(of)), rest: make([]int32, len(of))}
	for s, c := range of {
		for len(x.members) <= int(c) {
			x.members = append(x.members, nil)
		}
		x.members[c] = append(x.members[c], int32(s))
	}
	x.direct = make([][]bool, len(x.members))
	for c := range x.direct {
		x.direct[c] = make([]bool, len(x.members))
	}
	for s := range w.out {
		x.phases.kind[s] = make([]portKind, len(n.Switches[s].Ports))
		for _, e := range w.out[s] {
			if of[s] == of[e.to] {
				x.phases.kind[s][e.port] = localPort
			} else {
				x.phases.kind[s][e.port] = globalPort
				x.direct[of[s]][of[e.to]] = true
			}
		}
	}
	return x
}

// fill makes the tables, or says what is not reached by ways of this kind.
func (x *dragon) fill(t *Tables) error {
	for _, g := range groups(x.n) {
		x.aim(g.sw)
		for s := range x.of {
			m := x.minimal(int32(s))
			if m.Empty() && int32(s) != g.sw {
				return unfit("dragonfly", "no way from %v to %v of at most %d local links in each group", aSwitch(s),
					aSwitch(g.sw), x.phases.slack)
			}
			var ports []ib.PortNum
			for p, ok := m.Pop(); ok; p, ok = m.Pop() {
				ports = append(ports, p)
			}
			for _, list := range [...][]int32{g.ends, g.self} {
				for k, i := range list {
					d := &x.n.Dests[i]
					if t.LFT[s][d.LID] = d.Port; int32(s) != g.sw {
						t.LFT[s][d.LID] = ports[k%len(ports)]
					}
				}
			}
		}
	}
	return nil
}

// aim finds how far all switches are from switch d.
func (x *dragon) aim(d int32) {
	home := x.of[d]
	x.home = home
	for s := range x.local {
		x.local[s], x.toGate[s], x.rest[s] = far, far, far
	}
	x.local[d] = 0
	x.spread(home, x.local, nil)
	for c, list := range x.members {
		if int32(c) == home {
			continue
		}
		for _, s := range list {
			for _, e := range x.w.out[s] {
				if x.isGate(s, e, home) {
					x.toGate[s] = 0
					x.rest[s] = min(x.rest[s], x.behind(e, home))
				}
			}
		}
		x.spread(int32(c), x.toGate, x.rest)
	}
}

// isGate reports whether a link leads on to a cluster from another: there, or, where no link does, to one from where
// one does.
func (x *dragon) isGate(s int32, e edge, home int32) bool {
	from, to := x.of[s], x.of[e.to]
	if from == to {
		return false
	}
	if to == home {
		return x.local[e.to] <= int32(x.phases.slack)
	}
	return !x.direct[from][home] && x.direct[to][home]
}

// behind is how many local links follow a gate.
func (x *dragon) behind(e edge, home int32) int32 {
	if x.of[e.to] == home {
		return x.local[e.to]
	}
	return 0
}

// spread counts the local links of a cluster from the switches that have 0, as far as slack goes. Of those that are
// equally far, rest is the least.
func (x *dragon) spread(c int32, dist, rest []int32) {
	for hop := range int32(x.phases.slack) {
		for _, s := range x.members[c] {
			if dist[s] <= hop {
				continue
			}
			for _, e := range x.w.out[s] {
				if x.of[e.to] == c && dist[e.to] == hop {
					dist[s] = hop + 1
					if rest != nil {
						rest[s] = min(rest[s], rest[e.to])
					}
				}
			}
		}
	}
}

// minimal is the ports of switch s on minimal ways to where aim looked; none if there is no way, or it is there.
func (x *dragon) minimal(s int32) (m ib.PortMask) {
	inside := x.toGate[s] == far // or lost
	for _, e := range x.w.out[s] {
		near := false
		switch isLocal := x.of[e.to] == x.of[s]; {
		case inside:
			near = isLocal && x.local[s] < far && x.local[e.to] == x.local[s]-1
		case x.toGate[s] > 0:
			near = isLocal && x.toGate[e.to] == x.toGate[s]-1 && x.rest[e.to] == x.rest[s]
		default:
			near = x.isGate(s, e, x.home) && x.behind(e, x.home) == x.rest[s]
		}
		if near {
			m.Set(e.port)
		}
	}
	return m
}

// portKind is where a port of a switch leads.
type portKind uint8

const (
	endPort portKind = iota // to an end port, or nowhere
	localPort
	globalPort
)

// phases is the lanes of a dragonfly. Between end ports a way has up to three parts of local links, slack links each,
// with a global link between them. In that order lanes rise: those of the first part are 1 and, with a slack of 2, 2;
// the global link after it and the local one that follows have the next lane, and so on. Since a packet on a lane
// waits only for higher ones, or, from a global link on to a local one, for the same, there is no circle.
//
// Which part a packet is in can be seen from the lane that it comes on, but not from where it comes and goes: a packet
// from a local link to a global one may be in its first group or in the one between. So the map goes by that lane
// (Tables.ByLane), and not by the service level, which is the same all the way.
//
// Lane 0 has what comes from adapters, what goes to them, and what is on no such way: multicast, on its tree. A packet
// that would come to it from a higher lane takes a turn that the order does not have, and no switch chooses that.
type phases struct {
	slack ib.VL
	kind  [][]portKind // by switch and port
}

// lanes is how many there are.
func (l *phases) lanes() int { return 3*int(l.slack) + 1 }

// VL is the lane of a packet that came on lane v.
func (l *phases) VL(sw int32, in, out ib.PortNum, v ib.SL) ib.VL {
	if sw == NoSwitch || l.at(sw, out) == endPort {
		return 0
	}
	from, to := l.at(sw, in), l.at(sw, out)
	first := func(part ib.VL) ib.VL { return 1 + part*l.slack }
	if from == endPort {
		if to == localPort {
			return first(0)
		}
		return first(1)
	}
	if v == 0 || int(v) >= l.lanes() {
		return 0
	}
	part, link := (ib.VL(v)-1)/l.slack, (ib.VL(v)-1)%l.slack
	switch {
	case to == globalPort && part < 2:
		return first(part + 1)
	case to == localPort && from == globalPort:
		return first(part)
	case to == localPort && link+1 < l.slack:
		return ib.VL(v) + 1
	}
	return 0
}

func (l *phases) at(sw int32, p ib.PortNum) portKind {
	if int(p) >= len(l.kind[sw]) {
		return endPort
	}
	return l.kind[sw][p]
}

// SameLanes reports whether another map gives the same lanes, but for ports without a cable.
func (l *phases) SameLanes(other LaneMap) bool {
	o, ok := other.(*phases)
	if !ok || o.slack != l.slack || len(o.kind) != len(l.kind) {
		return false
	}
	for s := range l.kind {
		for p, k := range l.kind[s] {
			if is := o.at(int32(s), ib.PortNum(p)); k != is && k != endPort && is != endPort {
				return false
			}
		}
	}
	return true
}
