package route

import (
	"fmt"
	"math"

	"softib/ib"
)

// dfsssp routes on shortest ways that avoid the links which other ways use already, and keeps the ways apart on
// as many lanes as it takes to be free of deadlock (Domke, Hoefler and Nagel, IPDPS 2011). It fits any network.
type dfsssp struct{}

// Name is what an operator types.
func (dfsssp) Name() string { return "dfsssp" }

// Compute gives the tables, or ErrUnfit if there are too few lanes.
func (dfsssp) Compute(n *Network, o Options) (*Tables, error) {
	c := newChart(n)
	t := &Tables{Engine: "dfsssp", VLs: 1}
	s := newSpread(c, t)
	for sw, dests := range s.bySwitch {
		if len(dests) == 0 {
			continue
		}
		s.aim(int32(sw))
		for _, d := range dests {
			s.pick()
			if n.Dests[d].IsEnd() {
				s.charge()
			}
			s.keep(d)
		}
		s.flush()
	}
	if err := assignLanes(c, t, lanesOf(o)); err != nil {
		return nil, err
	}
	return t, nil
}

// lanesOf is how many lanes an engine may use.
func lanesOf(o Options) int {
	if o.VLs <= 0 {
		return 8
	}
	return min(o.VLs, lanesMax-1)
}

// spread grows trees of shortest ways to one destination after the other, each on the links that
// are least used by the ways before. Distances are the same for all destinations of a switch and are found once.
type spread struct {
	*chart
	t *Tables
	// bySwitch are the indices of the destinations of each switch, the end ports first.
	bySwitch [][]int32
	// load counts the ways between end ports over each channel.
	load []uint32

	// After aim: the switch; the switches that reach it, nearest first; their distance; and for the i-th of them the
	// channels ways[first[i]:first[i+1]] that lead nearer.
	target int32
	order  []int32
	hops   []int32
	first  []int32
	ways   []way

	// After pick: the channel that each switch forwards to and the load on the way from there. through is charge's scratch.
	via     []int32
	cost    []uint64
	through []uint32

	// kept are destinations whose ports wait in cols to be written by flush: rows of tables are long, and one
	// visit for all destinations of a switch is cheaper than one for each.
	kept []int32
	cols [][]uint8
}

// way is a channel and the switch it leads to.
type way struct{ ch, to int32 }

// pathless is the cost of a switch without a way.
const pathless = math.MaxUint64

func newSpread(c *chart, t *Tables) *spread {
	count := c.switches()
	s := &spread{
		chart: c, t: t, bySwitch: make([][]int32, count), load: make([]uint32, c.channels()),
		order: make([]int32, 0, count), hops: make([]int32, count), first: make([]int32, 0, count+1),
		via: make([]int32, count), cost: make([]uint64, count), through: make([]uint32, count),
	}
	for _, ends := range []bool{true, false} {
		for i, d := range c.n.Dests {
			if d.IsEnd() == ends {
				s.bySwitch[d.Switch] = append(s.bySwitch[d.Switch], int32(i))
			}
		}
	}
	width := int(c.n.Top) + 1
	all := make([]ib.PortNum, width*count)
	for i := range all {
		all[i] = NoPort
	}
	t.LFT = make([][]ib.PortNum, count)
	for sw := range t.LFT {
		t.LFT[sw] = all[sw*width : (sw+1)*width : (sw+1)*width]
	}
	return s
}

// aim finds the shortest ways to a switch.
func (s *spread) aim(sw int32) {
	s.target = sw
	for i := range s.hops {
		s.hops[i] = -1
	}
	s.hops[sw] = 0
	s.order = append(s.order[:0], sw)
	s.first = append(s.first[:0], 0)
	s.ways = s.ways[:0]
	for i := 0; i < len(s.order); i++ {
		u := s.order[i]
		near := s.hops[u] - 1
		for ch, end := s.out(u); ch < end; ch++ {
			v := s.to[ch]
			if v < 0 {
				continue
			}
			switch s.hops[v] {
			case -1:
				s.hops[v] = near + 2
				s.order = append(s.order, v)
			case near:
				s.ways = append(s.ways, way{ch, v})
			}
		}
		s.first = append(s.first, int32(len(s.ways)))
	}
}

// pick chooses for each switch the shortest way that has the least load.
func (s *spread) pick() {
	via, cost, load := s.via, s.cost, s.load
	via[s.target], cost[s.target] = -1, 0
	for i := 1; i < len(s.order); i++ {
		best, by := uint64(pathless), int32(-1)
		for _, w := range s.ways[s.first[i]:s.first[i+1]] {
			if c := cost[w.to] + uint64(load[w.ch]); c < best {
				best, by = c, w.ch
			}
		}
		u := s.order[i]
		via[u], cost[u] = by, best
	}
}

// charge adds the ways of all end ports to the load of the links that they take.
func (s *spread) charge() {
	for _, u := range s.order {
		s.through[u] = uint32(s.n.Switches[u].Ends)
	}
	for i := len(s.order) - 1; i > 0; i-- {
		u := s.order[i]
		if k := s.through[u]; k > 0 {
			ch := s.via[u]
			s.load[ch] += k
			s.through[s.to[ch]] += k
		}
	}
}

// keep notes the ports that lead to a destination of the switch aimed at.
func (s *spread) keep(dest int32) {
	i := len(s.kept)
	s.kept = append(s.kept, dest)
	if i == len(s.cols) {
		s.cols = append(s.cols, make([]uint8, s.switches()))
	}
	col := s.cols[i]
	for _, u := range s.order[1:] {
		col[u] = s.port[s.via[u]]
	}
	col[s.target] = uint8(s.n.Dests[dest].Port)
}

// flush writes what was kept into the tables.
func (s *spread) flush() {
	for _, u := range s.order {
		row := s.t.LFT[u]
		for i, d := range s.kept {
			row[s.n.Dests[d].LID] = ib.PortNum(s.cols[i][u])
		}
	}
	s.kept = s.kept[:0]
}

// tooFewLanes says how many lanes an engine would have needed.
func tooFewLanes(engine string, have, need int) error {
	want := fmt.Sprintf("needs %d", need)
	if need >= lanesMax {
		want = fmt.Sprintf("needs more than the %d that InfiniBand has", lanesMax-1)
	}
	return &UnfitError{Engine: engine, Why: fmt.Sprintf("%d lanes are too few to be free of deadlock here: it %s; allow more lanes or use nue, which makes do with any number", have, want)}
}
