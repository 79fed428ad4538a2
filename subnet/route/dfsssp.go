package route

import (
	"fmt"
	"math"

	"softib/proto/ib"
)

// dfsssp routes on shortest ways that avoid the links which other ways use already, and keeps the ways apart on
// as many lanes as it takes to be free of deadlock (Domke, Hoefler and Nagel, IPDPS 2011). It fits any network.
type dfsssp struct{}

// Name is what an operator types.
func (dfsssp) Name() string { return "dfsssp" }

// Compute gives the tables, or ErrUnfit if there are too few lanes. Ways to the end ports of one switch go apart; where
// that takes more lanes than there are, they go together.
func (dfsssp) Compute(n *Network, o Options) (*Tables, error) {
	c := newChart(n)
	var fewest error
	for _, together := range []bool{false, true} {
		t := &Tables{Engine: "dfsssp", VLs: 1}
		s := newSpread(c, t)
		s.together = together
		s.routeAll(false)
		if !s.even() {
			for c := s.newContest(); c.another(); {
				s.routeAll(true)
			}
		}
		most := lanesOf(o)
		if together {
			most = lanesMax - 1
		}
		err := assignLanes(c, t, lanesOf(o), most)
		if err == nil {
			return t, nil
		}
		fewest = err
	}
	return nil, fewest
}

// routeAll routes every destination. The second time, each one is taken off the links and put back where it is
// better: the first ones did not know of the ways after them.
func (s *spread) routeAll(again bool) {
	for sw, dests := range s.bySwitch {
		if len(dests) == 0 {
			continue
		}
		s.aim(int32(sw))
		if again {
			s.fetch(dests)
		}
		for i, size := 0, 0; i < len(dests); i += size {
			size = s.bundle(dests[i:])
			ends := 0
			if s.n.Dests[dests[i]].IsEnd() {
				ends = size
			}
			if again && ends > 0 {
				s.recall(i)
				s.charge(-ends)
			}
			s.pick(again && ends > 0)
			s.charge(ends)
			for j := i; j < i+size; j++ {
				s.keep(j, dests[j])
			}
		}
		s.flush(dests)
	}
}

// bundle is how many of a switch's destinations, from the first on, share their ways.
func (s *spread) bundle(dests []int32) int {
	size := 1
	for s.together && size < len(dests) && s.n.Dests[dests[size]].IsEnd() == s.n.Dests[dests[0]].IsEnd() {
		size++
	}
	return size
}

// even reports whether the links are used so evenly that nothing is to be gained.
func (s *spread) even() bool {
	most, total, count := uint32(0), uint64(0), uint64(0)
	for ch, load := range s.load {
		if s.to[ch] >= 0 {
			most = max(most, load)
			total += uint64(load)
			count++
		}
	}
	return uint64(most)*count*100 <= total*105
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
	// all is all rows of the tables.
	all []ib.PortNum
	// together makes the ways to all end ports of a switch the same.
	together bool
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

	// After pick: the channel that each switch forwards to, the load on the way from there, and the switches with each
	// one behind the one that it forwards to. through is charge's scratch.
	via     []int32
	cost    []uint64
	tree    []int32
	through []uint32

	// cols are the ports by which switches lead to the destinations of the switch aimed at, until flush writes them:
	// rows of tables are long, and one visit for all destinations of a switch is cheaper than one for each.
	cols [][]uint8
}

// way is a channel and the switch it leads to.
type way struct{ ch, to int32 }

// pathless is the cost of a switch without a way; costs can be added to it.
const pathless = math.MaxUint64 / 2

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
	s.all = make([]ib.PortNum, width*count)
	for i := range s.all {
		s.all[i] = NoPort
	}
	t.LFT = make([][]ib.PortNum, count)
	for sw := range t.LFT {
		t.LFT[sw] = s.all[sw*width : (sw+1)*width : (sw+1)*width]
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

// pick chooses for each switch the shortest way that has the least load. With stay, one that is as good as another
// stays.
func (s *spread) pick(stay bool) {
	via, cost, load := s.via, s.cost, s.load
	via[s.target], cost[s.target] = -1, 0
	s.tree = s.order
	for i := 1; i < len(s.order); i++ {
		best, by := uint64(pathless), int32(-1)
		if stay {
			by = via[s.order[i]]
			best = cost[s.to[by]] + uint64(load[by])
		}
		for _, w := range s.ways[s.first[i]:s.first[i+1]] {
			if c := cost[w.to] + uint64(load[w.ch]); c < best {
				best, by = c, w.ch
			}
		}
		u := s.order[i]
		via[u], cost[u] = by, best
	}
}

// charge adds the ways from all end ports to the load of the links that they take, or takes them off, for as many
// destinations.
func (s *spread) charge(dests int) {
	if dests == 0 {
		return
	}
	for _, u := range s.tree {
		s.through[u] = uint32(s.n.Switches[u].Ends)
	}
	for i := len(s.tree) - 1; i > 0; i-- {
		u := s.tree[i]
		if k := s.through[u]; k > 0 {
			ch := s.via[u]
			s.load[ch] += uint32(dests) * k
			s.through[s.to[ch]] += k
		}
	}
}

// keep notes the ports that lead to the i-th destination of the switch aimed at.
func (s *spread) keep(i int, dest int32) {
	col := s.col(i)
	for _, u := range s.order[1:] {
		col[u] = s.port[s.via[u]]
	}
	col[s.target] = uint8(s.n.Dests[dest].Port)
}

// col is where the ports for the i-th destination of a switch are kept.
func (s *spread) col(i int) []uint8 {
	for i >= len(s.cols) {
		s.cols = append(s.cols, make([]uint8, s.switches()))
	}
	return s.cols[i]
}

// recall makes kept ports the ways that were picked. They are shortest ways.
func (s *spread) recall(i int) {
	col := s.cols[i]
	s.tree = s.order
	for _, u := range s.order[1:] {
		s.via[u] = s.base[u] + int32(col[u])
	}
}

// flush writes what was kept into the tables, and fetch reads it back.
func (s *spread) flush(dests []int32) {
	for _, u := range s.order {
		row := s.t.LFT[u]
		for i, d := range dests {
			row[s.n.Dests[d].LID] = ib.PortNum(s.cols[i][u])
		}
	}
}

func (s *spread) fetch(dests []int32) {
	s.col(len(dests) - 1)
	for _, u := range s.order {
		row := s.t.LFT[u]
		for i, d := range dests {
			s.cols[i][u] = uint8(row[s.n.Dests[d].LID])
		}
	}
}

// tooFewLanes says how many lanes an engine would have needed.
func tooFewLanes(engine string, have, need int) error {
	want := fmt.Sprintf("needs %d", need)
	if need >= lanesMax {
		want = fmt.Sprintf("needs more than the %d that InfiniBand has", lanesMax-1)
	}
	return unfit(engine, "%d lanes are too few to be free of deadlock here: it %s; allow more lanes or use "+
		"nue, which makes do with any number", have, want)
}
