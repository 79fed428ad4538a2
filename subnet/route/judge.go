package route

import (
	"slices"

	"softib/proto/ib"
)

// JudgeOptions says how thoroughly to judge. The zero value is right for an operator.
type JudgeOptions struct {
	// Shifts is how many shift permutations to send; 0: all of a small network, a sample of a large one; negative: all.
	Shifts int
	// Randoms is how many random permutations to send; 0: 64 of a small network, 16 of a large one; negative: none.
	Randoms int
	// Seed chooses the sample of shifts and the random permutations.
	Seed uint64
	// Faults looks only for what is wrong, and not for how well links are used: no LinkUse, no permutations.
	Faults bool
	// Traffic says whose packets the deadlock check follows.
	Traffic Traffic
	// Versus, where there is one, is the table set that changed entries are counted against.
	Versus *Tables
}

// Miss is a pair that the tables do not join.
type Miss struct {
	// From is the switch that the source's end ports hang on.
	From int32  `json:"from"`
	To   ib.LID `json:"to"`
	// Why is "no way" where packets end at a switch that has no good entry, or "loop".
	Why string `json:"why"`
	// At is the switch that drops the packets, or one switch of the loop.
	At int32 `json:"at"`
}

// Step is a switch and the port by which packets leave it.
type Step struct {
	Switch int32      `json:"switch"`
	Port   ib.PortNum `json:"port"`
}

// LinkUse is how the ways between all pairs of end ports share the links between switches, in ways per direction of a
// link.
type LinkUse struct {
	Max     int64   `json:"max"`
	Min     int64   `json:"min"`
	Average float64 `json:"average"`
	// Busiest is a direction of a link that has Max.
	Busiest Step `json:"busiest"`
}

// Report is what a table set is worth.
type Report struct {
	Engine string `json:"engine"`
	// Switches, EndPorts, Links between switches, and LIDs of the network.
	Switches int `json:"switches"`
	EndPorts int `json:"end_ports"`
	Links    int `json:"links"`
	LIDs     int `json:"lids"`

	// Pairs counts end ports times the LIDs of others that cables join them to. Apart counts those that no cable joins.
	Pairs int64 `json:"pairs"`
	Apart int64 `json:"apart"`
	// Unreached counts the Pairs whose packets do not arrive, those that loop included, and Misses are a few of them.
	Unreached int64  `json:"unreached"`
	Misses    []Miss `json:"misses,omitempty"`
	// Looping counts the switches times LIDs from where packets never end, and Loop is one such round.
	Looping int64  `json:"looping"`
	Loop    []Step `json:"loop,omitempty"`
	LoopLID ib.LID `json:"loop_lid,omitempty"`
	// BareUnreached counts switches without end ports times LIDs that they cannot send to: only the switches' own
	// packets suffer.
	BareUnreached int64 `json:"bare_unreached"`

	// Hops counts pairs of end ports by the number of links between switches on the way.
	Hops        []int64 `json:"hops"`
	HopsMax     int     `json:"hops_max"`
	HopsAverage float64 `json:"hops_average"`
	LinkUse     LinkUse `json:"link_use"`

	// VLs is how many lanes packets use. Cycle is a cycle of channel dependencies, nil if the tables are free of
	// deadlock.
	VLs          int       `json:"vls"`
	Dependencies int       `json:"dependencies"`
	Cycle        []Channel `json:"cycle,omitempty"`

	// Shift and Random are the congestion under permutations, and Bisection the effective bisection bandwidth.
	Shift     Congestion `json:"shift"`
	Random    Congestion `json:"random"`
	Bisection float64    `json:"effective_bisection_bandwidth"`

	// Changed is what differs from JudgeOptions.Versus.
	Changed *Change `json:"changed,omitempty"`

	guids []ib.GUID
}

// OK reports whether the tables may carry traffic: all pairs that cables join are joined, nothing loops, nothing can
// deadlock.
func (r *Report) OK() bool { return r.Unreached == 0 && r.Looping == 0 && r.Cycle == nil }

// missesKept is how many unreached pairs a report names.
const missesKept = 8

// Judge says what tables are worth, whoever made them.
func Judge(n *Network, t *Tables, o JudgeOptions) Report {
	c := newChart(n)
	j := newJudge(c, n, t)
	j.g, j.ways, j.through = newCDG(c), make([]int64, c.channels()), make([]int64, c.switches())
	for _, d := range j.w.byLID {
		j.w.load(int(d))
		j.reach(int(d))
		if n.Dests[d].IsEnd() && !o.Faults {
			j.count(int(d))
		}
		if n.Dests[d].IsEnd() || o.Traffic == AllTraffic {
			j.g.addDest(j.w, int(d), o.Traffic)
		}
	}
	j.sum()
	j.VLs, j.Dependencies, j.Cycle = j.g.Lanes(), j.g.Size(), j.g.Cycle()
	if o.Faults {
		j.LinkUse = LinkUse{}
	} else {
		j.permute(o)
	}
	if o.Versus != nil {
		diff := Diff(o.Versus, t)
		j.Changed = &diff
	}
	return j.Report
}

// Arrivals says of tables only whether packets arrive: the figures up to Hops. That takes half of the time of Judge,
// and little room.
func Arrivals(n *Network, t *Tables) Report {
	j := newJudge(newChart(n), n, t)
	for _, d := range j.w.byLID {
		j.w.load(int(d))
		j.reach(int(d))
	}
	return j.Report
}

func newJudge(c *chart, n *Network, t *Tables) *judge {
	j := &judge{Report: Report{Engine: t.Engine, Switches: len(n.Switches), LIDs: len(n.Dests)}, w: newWalker(c, t)}
	for i := range n.Switches {
		j.guids = append(j.guids, n.Switches[i].GUID)
		j.EndPorts += n.Switches[i].Ends
	}
	for _, v := range c.to {
		if v >= 0 {
			j.Links++
		}
	}
	j.Links /= 2
	return j
}

type judge struct {
	Report
	w *walker
	g *CDG
	// ways counts the ways between end ports over each channel; through is those of one destination, by switch.
	ways, through []int64
}

// reach checks from where the loaded destination is reached.
func (j *judge) reach(dest int) {
	w, d := j.w, &j.w.n.Dests[dest]
	for s, depth := range w.depth {
		ends := int64(w.n.Switches[s].Ends)
		if int32(s) == d.Switch && d.IsEnd() {
			ends-- // the end port itself
		}
		if w.part[s] != w.part[d.Switch] {
			j.Apart += max(ends, 0)
			continue
		}
		j.Pairs += max(ends, 0)
		if depth == depthLoops {
			j.Looping++
		}
		switch {
		case depth >= 0:
			if d.IsEnd() && ends > 0 {
				for len(j.Hops) <= int(depth) {
					j.Hops = append(j.Hops, 0)
				}
				j.Hops[depth] += ends
			}
		case w.n.Switches[s].Ends == 0:
			j.BareUnreached++
		default:
			j.Unreached += ends
			if ends > 0 && len(j.Misses) < missesKept {
				j.Misses = append(j.Misses, j.miss(int32(s), d.LID))
			}
		}
	}
	if w.loop >= 0 && j.Loop == nil {
		j.LoopLID = d.LID
		for s := w.loop; ; {
			ch := w.via[s]
			j.Loop = append(j.Loop, Step{Switch: s, Port: ib.PortNum(w.port[ch])})
			if s = w.to[ch]; s == w.loop {
				break
			}
		}
	}
}

// miss says where the packets from a switch end.
func (j *judge) miss(from int32, lid ib.LID) Miss {
	w := j.w
	m := Miss{From: from, To: lid, Why: "no way", At: from}
	if w.depth[from] == depthLoops {
		m.Why = "loop"
		// After as many steps as there are switches a way that loops is in its loop.
		for range w.switches() {
			m.At = w.to[w.via[m.At]]
		}
		return m
	}
	for w.via[m.At] >= 0 {
		m.At = w.to[w.via[m.At]]
	}
	return m
}

// count adds the ways to the loaded destination to the links that they take.
func (j *judge) count(dest int) {
	w := j.w
	for s := range j.through {
		j.through[s] = int64(w.n.Switches[s].Ends)
	}
	for i := len(w.order) - 1; i > 0; i-- {
		u := w.order[i]
		ch := w.via[u]
		j.ways[ch] += j.through[u]
		j.through[w.to[ch]] += j.through[u]
	}
}

// sum closes the figures that all destinations went into.
func (j *judge) sum() {
	pairs, hops := int64(0), int64(0)
	for h, count := range j.Hops {
		pairs += count
		hops += count * int64(h)
	}
	j.HopsMax = max(len(j.Hops)-1, 0)
	if pairs > 0 {
		j.HopsAverage = float64(hops) / float64(pairs)
	}
	total, first := int64(0), true
	for ch, ways := range j.ways {
		if j.w.to[ch] < 0 {
			continue
		}
		total += ways
		if first || ways > j.LinkUse.Max {
			j.LinkUse.Max = ways
			j.LinkUse.Busiest = Step{Switch: j.w.tail[ch], Port: ib.PortNum(j.w.port[ch])}
		}
		if first || ways < j.LinkUse.Min {
			j.LinkUse.Min = ways
		}
		first = false
	}
	if j.Links > 0 {
		j.LinkUse.Average = float64(total) / float64(2*j.Links)
	}
}

// Change is what differs between two table sets.
type Change struct {
	// Entries counts the forwarding entries that differ, Switches the switches that have some, and
	// Blocks the blocks of 64 entries that a manager has to write.
	Entries  int `json:"entries"`
	Switches int `json:"switches"`
	Blocks   int `json:"blocks"`
	// Levels counts the ways whose service level differs.
	Levels int `json:"levels"`
	// BySwitch is Entries of each switch.
	BySwitch []int `json:"by_switch,omitempty"`
}

// Diff counts what changes from one table set to another. Entries that one of them does not have count as NoPort.
func Diff(a, b *Tables) Change {
	c := Change{BySwitch: make([]int, max(len(a.LFT), len(b.LFT)))}
	for s := range c.BySwitch {
		x, y := rowOf(a.LFT, s), rowOf(b.LFT, s)
		if slices.Equal(x, y) {
			continue
		}
		block := -1
		for lid := range max(len(x), len(y)) {
			if entry(x, lid) == entry(y, lid) {
				continue
			}
			c.BySwitch[s]++
			if lid/64 != block {
				block = lid / 64
				c.Blocks++
			}
		}
		c.Entries += c.BySwitch[s]
		if c.BySwitch[s] > 0 {
			c.Switches++
		}
	}
	for s := range max(len(a.SL), len(b.SL)) {
		x, y := rowOf(a.SL, s), rowOf(b.SL, s)
		for d := range max(len(x), len(y)) {
			if level(x, d) != level(y, d) {
				c.Levels++
			}
		}
	}
	return c
}

func rowOf[T any](rows [][]T, s int) []T {
	if s < len(rows) {
		return rows[s]
	}
	return nil
}

func entry(row []ib.PortNum, lid int) ib.PortNum {
	if lid < len(row) {
		return row[lid]
	}
	return NoPort
}

func level(row []ib.SL, dest int) ib.SL {
	if dest < len(row) {
		return row[dest]
	}
	return 0
}
