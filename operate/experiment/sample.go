package experiment

import (
	"fmt"
	"slices"

	"softib/driver/jobs"
	"softib/fabric/flow"
	"softib/proto/ib"
	"softib/proto/topo"
)

// How much is kept of links over time.
const (
	firstInterval = ib.Microsecond
	maxSamples    = 120
	maxRows       = 240
)

// sampler looks at all links now and then. It does not know how long the run will be: when it has too many samples, two
// become one, and it looks half as often.
type sampler struct {
	net      jobs.Network
	ways     *flow.Ways
	graph    *topo.Graph
	interval ib.Time
	last     ib.Time
	links    []watched
	tiers    []string
	rows     []Row
	rowOf    []int32 // by watched link

	times []ib.Time
	sent  []float64   // bytes a picosecond of all hosts
	mean  [][]float64 // by tier
	most  [][]float64
}

// watched is one direction of a cable.
type watched struct {
	link    int32
	tier    int32
	host    bool // it leaves a host
	rate    float64
	carried float64 // when it was looked at last
	peak    float64
}

func newSampler(f *jobs.Fabric, net jobs.Network) *sampler {
	s := &sampler{net: net, ways: f.Ways, graph: f.Graph, interval: firstInterval}
	level := levelNames(f.Graph)
	index := map[string]int32{}
	var names []string
	for i, n := range f.Graph.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			if !n.Ports[p].Connected() {
				continue
			}
			name := level[i] + " → " + level[n.Ports[p].Peer]
			if _, ok := index[name]; !ok {
				index[name] = -1
				names = append(names, name)
			}
			link := s.ways.Link(topo.PortRef{Node: i, Port: ib.PortNum(p)})
			s.links = append(s.links, watched{link: link, rate: s.ways.Rates()[link], host: !n.IsSwitch()})
		}
	}
	for i, name := range names {
		index[name] = int32(i)
	}
	s.tiers, s.mean, s.most = names, make([][]float64, len(names)), make([][]float64, len(names))
	k := 0
	for i, n := range f.Graph.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() {
				s.links[k].tier = index[level[i]+" → "+level[n.Ports[p].Peer]]
				k++
			}
		}
	}
	s.layRows()
	return s
}

// layRows gives every link a row of the heat map; neighbours of a tier share one where there are too many.
func (s *sampler) layRows() {
	count := make([]int, len(s.tiers))
	for i := range s.links {
		count[s.links[i].tier]++
	}
	share := (len(s.links) + maxRows - 1) / maxRows
	first := make([]int, len(s.tiers))
	for t := range s.tiers {
		first[t] = len(s.rows)
		for i := 0; i < count[t]; i += max(share, 1) {
			s.rows = append(s.rows, Row{Tier: s.tiers[t]})
		}
	}
	s.rowOf = make([]int32, len(s.links))
	at := make([]int, len(s.tiers))
	for i := range s.links {
		t := s.links[i].tier
		row := first[t] + at[t]/max(share, 1)
		at[t]++
		s.rowOf[i] = int32(row)
		name := s.graph.PortName(s.ways.Port(s.links[i].link))
		switch r := &s.rows[row]; {
		case r.Name == "":
			r.Name = name
		case at[t]%max(share, 1) == 0 || at[t] == count[t]:
			r.Name += " to " + name
		}
	}
}

func (s *sampler) every() ib.Time { return s.interval }

// sample looks at all links.
func (s *sampler) sample(now ib.Time) {
	span := float64(now - s.last)
	if span <= 0 {
		return
	}
	n := len(s.times)
	s.times = append(s.times, now)
	s.sent = append(s.sent, 0)
	sums, counts := make([]float64, len(s.tiers)), make([]int, len(s.tiers))
	for t := range s.tiers {
		s.mean[t], s.most[t] = append(s.mean[t], 0), append(s.most[t], 0)
	}
	for i := range s.rows {
		s.rows[i].Use = append(s.rows[i].Use, 0)
	}
	for i := range s.links {
		l := &s.links[i]
		carried := s.net.Carried(l.link)
		bytes := carried - l.carried
		use := bytes / span / l.rate
		l.carried, l.peak = carried, max(l.peak, use)
		if l.host {
			s.sent[n] += bytes / span
		}
		sums[l.tier] += use
		counts[l.tier]++
		s.most[l.tier][n] = max(s.most[l.tier][n], use)
		row := &s.rows[s.rowOf[i]]
		row.Use[n] = max(row.Use[n], use)
	}
	for t := range s.tiers {
		s.mean[t][n] = sums[t] / float64(max(counts[t], 1))
	}
	s.last = now
	if len(s.times) >= maxSamples {
		s.halve()
	}
}

// halve makes one of every two samples.
func (s *sampler) halve() {
	span := make([]float64, len(s.times))
	before := ib.Time(0)
	for i, t := range s.times {
		span[i], before = float64(t-before), t
	}
	join := func(v []float64) []float64 {
		out := v[:0]
		for i := 0; i+1 < len(v); i += 2 {
			out = append(out, (v[i]*span[i]+v[i+1]*span[i+1])/(span[i]+span[i+1]))
		}
		return out
	}
	s.sent = join(s.sent)
	for t := range s.tiers {
		s.mean[t], s.most[t] = join(s.mean[t]), join(s.most[t])
	}
	for i := range s.rows {
		s.rows[i].Use = join(s.rows[i].Use)
	}
	times := s.times[:0]
	for i := 1; i < len(s.times); i += 2 {
		times = append(times, s.times[i])
	}
	s.times = times
	s.interval *= 2
}

// levels are how far nodes are from the nearest host.
func levels(g *topo.Graph) []int {
	level := make([]int, len(g.Nodes))
	var queue []int
	for i, n := range g.Nodes {
		if level[i] = -1; !n.IsSwitch() {
			level[i] = 0
			queue = append(queue, i)
		}
	}
	for k := 0; k < len(queue); k++ {
		n := g.Nodes[queue[k]]
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() && level[n.Ports[p].Peer] < 0 {
				level[n.Ports[p].Peer] = level[n.Index] + 1
				queue = append(queue, n.Ports[p].Peer)
			}
		}
	}
	return level
}

// depth is how many levels of switches there are.
func depth(g *topo.Graph) int { return slices.Max(levels(g)) }

// levelNames are what nodes of their levels are called.
func levelNames(g *topo.Graph) []string {
	level := levels(g)
	top := slices.Max(level)
	names := make([]string, len(level))
	for i, l := range level {
		switch {
		case l == 0:
			names[i] = "hosts"
		case l < 0:
			names[i] = "unreached"
		case top == 1:
			names[i] = "switches"
		case l <= 3:
			names[i] = [...]string{"leafs", "spines", "cores"}[l-1]
		default:
			names[i] = fmt.Sprintf("level %d", l)
		}
	}
	return names
}
