package route

import "softib/proto/ib"

// Choices is what groups are worth, whatever the switches choose.
type Choices struct {
	// Pairs counts switches with end ports times end ports elsewhere that have several ways, of All.
	Pairs int64 `json:"pairs"`
	All   int64 `json:"all"`
	// Ports is the mean number of ports of a group where there is one.
	Ports float64 `json:"ports"`
	// Unreached counts the switches times destinations where some choice ends at a switch without an entry or in a
	// round, and Misses are a few of them.
	Unreached int64  `json:"unreached"`
	Misses    []Miss `json:"misses,omitempty"`
	// Cycle is a cycle of channel dependencies, those of packets that do not choose included; nil if there is none.
	Cycle []Channel `json:"cycle,omitempty"`
}

// OK reports whether switches may choose like that.
func (c *Choices) OK() bool { return c.Unreached == 0 && c.Cycle == nil }

// JudgeGroups follows every choice that the switches have. Packets that choose are to stay on one lane.
func JudgeGroups(n *Network, t *Tables, g *Groups) Choices {
	c := newChart(n)
	j := &groupJudge{chart: c, t: t, g: g, cdg: newCDG(c), state: make([]uint8, c.switches()),
		ports: make([]ib.PortMask, c.switches())}
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
			continue
		}
		before, last = n.Dests[d].Switch, j.Choices
		j.judge()
		last = Choices{Pairs: j.Pairs - last.Pairs, All: j.All - last.All, Unreached: j.Unreached - last.Unreached}
	}
	for _, sets := range g.Sets {
		for _, m := range sets {
			groups++
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
	t     *Tables
	g     *Groups
	cdg   *CDG
	dest  int
	state []uint8       // by switch, of what becomes of packets to dest
	ports []ib.PortMask // by switch: the choices for dest
	why   string
	at    int32
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
		var m ib.PortMask
		if at := j.g.Of[s][dest]; at != 0 {
			m = j.g.Sets[s][at-1]
		} else if p := j.t.LFT[s][j.n.Dests[dest].LID]; p != NoPort {
			m.Set(p)
		}
		if m != j.ports[s] {
			same = same && int32(s) == j.n.Dests[dest].Switch
			j.ports[s] = m
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
		if several(&j.ports[s]) {
			j.Pairs++
		}
		if j.follow(int32(s), -1) != arrives {
			j.Unreached++
			if len(j.Misses) < missesKept {
				j.Misses = append(j.Misses, Miss{From: int32(s), To: d.LID, Why: j.why, At: j.at})
			}
		}
	}
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
