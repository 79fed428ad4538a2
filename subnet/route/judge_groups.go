package route

import "softib/proto/ib"

// Choices is what groups are worth, whatever the switches choose.
type Choices struct {
	// Pairs counts switches with end ports times end ports elsewhere that have several ways, of All.
	Pairs int64 `json:"pairs"`
	All   int64 `json:"all"`
	// Ports is the mean number of ports of a group where there is one, those of detours included.
	Ports float64 `json:"ports"`
	// Detours counts those Pairs that have ways which are not the shortest.
	Detours int64 `json:"detours,omitempty"`
	// Unreached counts the switches times destinations where some choice ends at a switch without an entry or in a
	// round, and Misses are a few of them.
	Unreached int64  `json:"unreached"`
	Misses    []Miss `json:"misses,omitempty"`
	// Cycle is a cycle of channel dependencies, those of packets that do not choose included; nil if there is none.
	Cycle []Channel `json:"cycle,omitempty"`
}

// OK reports whether switches may choose like that.
func (c *Choices) OK() bool { return c.Unreached == 0 && c.Cycle == nil }

// JudgeGroups follows every choice that the switches have. Packets that choose are to stay on one lane, or on those of
// tables that are ByLane.
func JudgeGroups(n *Network, t *Tables, g *Groups) Choices {
	c := newChart(n)
	j := &groupJudge{chart: c, t: t, g: g, cdg: newCDG(c), state: make([]uint8, c.switches()),
		ports: make([]ib.PortMask, c.switches()), detours: make([]ib.PortMask, c.switches()),
		chosen: make([]bool, c.switches())}
	if t.ByLane {
		j.state = make([]uint8, c.channels()*lanesMax)
	}
	j.cdg.Add(t, EndTraffic)
	ports, groups := 0, 0
	before, last := int32(NoSwitch), Choices{}
	for d := range n.Dests {
		if !n.Dests[d].IsEnd() {
			continue
		}
		// The end ports of one switch have the same ways but for the last step, as a rule.
		if j.aim(d) && n.Dests[d].Switch == before {
			j.Pairs, j.All, j.Unreached = j.Pairs+last.Pairs, j.All+last.All, j.Unreached+last.Unreached
			j.Detours += last.Detours
			continue
		}
		before, last = n.Dests[d].Switch, j.Choices
		j.judge()
		last = Choices{Pairs: j.Pairs - last.Pairs, All: j.All - last.All, Unreached: j.Unreached - last.Unreached,
			Detours: j.Detours - last.Detours}
	}
	for _, sets := range g.Sets {
		for i, m := range sets {
			if g.Detours == 0 || i%2 == 0 {
				groups++
			}
			for _, ok := m.Pop(); ok; _, ok = m.Pop() {
				ports++
			}
		}
	}
	if groups > 0 {
		j.Ports = float64(ports) / float64(groups)
	}
	j.Cycle = j.cdg.Cycle()
	return j.Choices
}

type groupJudge struct {
	Choices
	*chart
	t    *Tables
	g    *Groups
	cdg  *CDG
	dest int
	// state is what becomes of packets to dest, by switch, or by the channel and the lane that they came on.
	state []uint8
	// By switch: the choices for dest, and whether they come from a group.
	ports, detours []ib.PortMask
	chosen         []bool
	why            string
	at             int32
}

// What becomes of packets at a switch.
const (
	unknown uint8 = iota
	underWay
	arrives
	fails
)

// aim looks up the choices of all switches for a destination. It reports whether they are what they were, but for the
// switch where the destination is.
func (j *groupJudge) aim(dest int) (same bool) {
	j.dest, same = dest, true
	for s := range j.ports {
		m, far, chosen := j.g.ways(j.t, j.n, s, dest)
		if m != j.ports[s] || far != j.detours[s] || chosen != j.chosen[s] {
			same = same && int32(s) == j.n.Dests[dest].Switch
			j.ports[s], j.detours[s], j.chosen[s] = m, far, chosen
		}
	}
	return same
}

// judge follows the ways to the destination from all switches with end ports.
func (j *groupJudge) judge() {
	clear(j.state)
	d := &j.n.Dests[j.dest]
	for s := range j.n.Switches {
		if j.n.Switches[s].Ends == 0 || int32(s) == d.Switch || j.part[s] != j.part[d.Switch] {
			continue
		}
		j.All++
		all := j.ports[s]
		if all.Add(&j.detours[s]); several(&all) {
			j.Pairs++
		}
		if !j.detours[s].Empty() {
			j.Detours++
		}
		if j.enter(int32(s)) != arrives {
			j.Unreached++
			if len(j.Misses) < missesKept {
				j.Misses = append(j.Misses, Miss{From: int32(s), To: d.LID, Why: j.why, At: j.at})
			}
		}
	}
}

// enter follows what the end ports of a switch send.
func (j *groupJudge) enter(s int32) uint8 {
	if !j.t.ByLane {
		return j.follow(s, -1)
	}
	end := arrives
	for _, in := range j.cdg.ends[s] {
		if j.turn(s, in, -1, 0) != arrives {
			end = fails
		}
	}
	return end
}

// followLane is follow for tables that are ByLane: what becomes of packets depends on the lane that they come on.
func (j *groupJudge) followLane(ch int32, lane ib.VL) uint8 {
	s := j.to[ch]
	if s == j.n.Dests[j.dest].Switch {
		return arrives
	}
	state := &j.state[int(ch)*lanesMax+int(lane)]
	switch *state {
	case underWay:
		j.why, j.at = "loop", s
		return fails
	case unknown:
		*state = underWay
		*state = j.turn(s, ib.PortNum(j.port[j.back[ch]]), ch, lane)
	}
	return *state
}

// turn follows what a switch may do with packets that came by a port on a lane. As switches do, it passes over choices
// that lead to a lower lane.
func (j *groupJudge) turn(s int32, in ib.PortNum, came int32, lane ib.VL) uint8 {
	m := j.ports[s]
	if j.g.Detours>>lane&1 != 0 {
		m.Add(&j.detours[s])
	}
	end := unknown
	for p, ok := m.Pop(); ok; p, ok = m.Pop() {
		next := j.t.turn(s, in, p, 0, lane)
		if p == in || j.chosen[s] && next < lane {
			continue
		}
		ch := j.hop(s, uint8(p))
		if ch < 0 {
			end = unknown
			break
		}
		if came >= 0 {
			j.cdg.plane(lane, next)[int(came)*j.words+int(p>>6)] |= 1 << (p & 63)
		}
		if got := j.followLane(ch, next); got == fails || end == unknown {
			end = max(end, got)
		}
	}
	if end == unknown {
		j.why, j.at, end = "no way", s, fails
	}
	return end
}

// follow says what becomes of packets at switch s, and notes what they wait for who came by a channel. A switch that
// was looked at before is only noted.
func (j *groupJudge) follow(s, came int32) uint8 {
	if s == j.n.Dests[j.dest].Switch {
		return arrives
	}
	m := j.ports[s]
	if came >= 0 {
		lane := j.t.Lane(s, 0, 0, 0)
		plane := j.cdg.plane(lane, lane)
		for i := range j.words {
			plane[int(came)*j.words+i] |= m[i]
		}
	}
	switch j.state[s] {
	case underWay:
		j.why, j.at = "loop", s
		return fails
	case unknown:
	default:
		return j.state[s]
	}
	j.state[s] = underWay
	end := arrives
	if m.Empty() {
		j.why, j.at, end = "no way", s, fails
	}
	for p, ok := m.Pop(); ok; p, ok = m.Pop() {
		ch := j.hop(s, uint8(p))
		if ch < 0 {
			j.why, j.at, end = "no way", s, fails
			continue
		}
		if j.follow(j.to[ch], ch) != arrives {
			end = fails
		}
	}
	j.state[s] = end
	return end
}
