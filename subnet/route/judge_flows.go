package route

import (
	"math/rand/v2"
	"slices"
)

// Congestion is how many flows share links when all end ports send at once, each to another one.
type Congestion struct {
	// Permutations is how many traffic patterns were sent.
	Permutations int `json:"permutations"`
	// Max is the largest count of flows on any link under any of them, Average the mean over the patterns of the
	// largest count.
	Max     int     `json:"max"`
	Average float64 `json:"average"`
	// Bandwidth is the mean over patterns and flows of 1 / the largest count on the flow's way; a flow without a way
	// has 0.
	Bandwidth float64 `json:"bandwidth"`
}

// What is sent where the options leave it open.
const (
	smallNetwork  = 1024
	shiftsLarge   = 32
	randomsSmall  = 64
	randomsLarge  = 16
	judgeStream   = 0x9e3779b97f4a7c15
	congestionOne = 1 // on its end ports' own links a flow of a permutation is alone
)

// permute sends the permutations.
func (j *judge) permute(o JudgeOptions) {
	f := newFlows(j.w)
	count := len(f.at)
	if count < 2 {
		return
	}
	r := rand.New(rand.NewPCG(o.Seed, judgeStream))
	j.Shift = f.shift(o.Shifts, r)
	randoms := o.Randoms
	if randoms == 0 {
		randoms = randomsSmall
		if count > smallNetwork {
			randoms = randomsLarge
		}
	}
	target := make([]int32, count)
	for range randoms {
		for i := range target {
			target[i] = int32(i)
		}
		r.Shuffle(count, func(a, b int) { target[a], target[b] = target[b], target[a] })
		f.send(target, &j.Random)
	}
	j.Random.close()
	j.Bisection = j.Random.Bandwidth
}

// shift sends shift permutations, as many as JudgeOptions.Shifts says.
func (f *flows) shift(shifts int, r *rand.Rand) Congestion {
	count := len(f.at)
	if shifts == 0 && count > smallNetwork {
		shifts = shiftsLarge
	}
	if shifts <= 0 || shifts > count-1 {
		shifts = count - 1
	}
	var c Congestion
	target := make([]int32, count)
	for i := range shifts {
		// One from each of as many stretches, so that near and far shifts are in the sample.
		low, high := 1+i*(count-1)/shifts, 1+(i+1)*(count-1)/shifts
		k := low
		if high-low > 1 {
			k += r.IntN(high - low)
		}
		for i := range target {
			target[i] = int32((i + k) % count)
		}
		f.send(target, &c)
	}
	c.close()
	return c
}

// flows sends permutations over the ways of a table set.
type flows struct {
	*chart
	t *Tables
	// at are the destinations of the end ports' base LIDs, in the order of LIDs.
	at []int32
	// load counts flows by channel, path holds the channels of all flows one after the other, and ends where each
	// flow's end.
	load []int32
	path []int32
	ends []int
}

func newFlows(w *walker) *flows {
	f := &flows{chart: w.chart, t: w.t, load: make([]int32, w.channels())}
	for _, d := range w.byLID {
		if dest := &w.n.Dests[d]; dest.IsEnd() && dest.PathBits == 0 {
			f.at = append(f.at, d)
		}
	}
	return f
}

// walk appends the channels from a switch to a destination; it is false if packets do not arrive.
func (f *flows) walk(from int32, dest int32) bool {
	d := &f.n.Dests[dest]
	start := len(f.path)
	for s := from; ; {
		p := NoPort
		if int(s) < len(f.t.LFT) {
			p = entry(f.t.LFT[s], int(d.LID))
		}
		if s == d.Switch && p == d.Port {
			return true
		}
		ch := f.hop(s, uint8(p))
		if ch < 0 || len(f.path)-start > f.switches() {
			f.path = f.path[:start]
			return false
		}
		f.path = append(f.path, ch)
		s = f.to[ch]
	}
}

// send sends one permutation and adds what comes of it. Who is told to send to itself stays silent.
func (f *flows) send(target []int32, c *Congestion) {
	f.path, f.ends = f.path[:0], f.ends[:0]
	sent := 0
	for i, to := range target {
		if int32(i) == to {
			continue
		}
		sent++
		from := f.n.Dests[f.at[i]].Switch
		if f.walk(from, f.at[to]) {
			f.ends = append(f.ends, len(f.path))
		}
	}
	if sent == 0 {
		return
	}
	for _, ch := range f.path {
		f.load[ch]++
	}
	worst, total, at := int32(congestionOne), 0.0, 0
	for _, end := range f.ends {
		most := int32(congestionOne)
		for ; at < end; at++ {
			most = max(most, f.load[f.path[at]])
		}
		worst = max(worst, most)
		total += 1 / float64(most)
	}
	for _, ch := range f.path {
		f.load[ch] = 0
	}
	c.Permutations++
	c.Max = max(c.Max, int(worst))
	c.Average += float64(worst)
	c.Bandwidth += total / float64(sent)
}

// close turns sums into means.
func (c *Congestion) close() {
	if c.Permutations > 0 {
		c.Average /= float64(c.Permutations)
		c.Bandwidth /= float64(c.Permutations)
	}
}

// Walk is the way from a switch to a destination: each switch and the port by which packets leave it, the last
// with the destination's own port. It is false if packets do not arrive; the steps are then those up to
// where they end or come round.
func Walk(n *Network, t *Tables, from int32, d Dest) ([]Step, bool) {
	var steps []Step
	seen := make([]bool, len(n.Switches))
	for s := from; s >= 0 && int(s) < len(n.Switches); {
		p := NoPort
		if int(s) < len(t.LFT) {
			p = entry(t.LFT[s], int(d.LID))
		}
		steps = append(steps, Step{Switch: s, Port: p})
		if s == d.Switch && p == d.Port {
			return steps, true
		}
		if seen[s] || p == 0 || int(p) >= len(n.Switches[s].Ports) {
			return slices.Clip(steps), false
		}
		seen[s] = true
		s = n.Switches[s].Ports[p].To
	}
	return slices.Clip(steps), false
}
