package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// spreadOf is the distribution of values.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	vs := slices.Sorted(slices.Values(values))
	at := func(p float64) float64 { return vs[min(int(p*float64(len(vs))), len(vs)-1)] }
	s := Spread{Count: len(vs), Min: vs[0], P1: at(.01), P10: at(.1), P50: at(.5), P90: at(.9), P99: at(.99),
		P999: at(.999), Max: vs[len(vs)-1]}
	for i, v := range vs {
		s.Mean += v / float64(len(vs))
		if len(vs) <= 256 || i*255/len(vs) != (i+1)*255/len(vs) {
			s.Curve = append(s.Curve, [2]float64{v, float64(i+1) / float64(len(vs))})
		}
	}
	return s
}

// sample is a report such as an all-to-all of 128 hosts gives, made by hand. Slow stretches its times, as a worse
// routing would.
func sample(slow float64) *Report {
	rnd := rand.New(rand.NewPCG(7, 7))
	r := &Report{
		Command: "softib sim fat-tree:radix=16,levels=2 --load all-to-all:size=storage --routing ftree --seed 1234567",
		Seed:    math.MaxUint64 - 1, Hash: "9f2c71d0a4b8e35566f01c7be29d8412c05be7aa",
		Fabric: Fabric{Topology: "fat-tree:radix=16,levels=2", Text: "fat tree, 128 hosts, 24 switches, 256 cables, " +
			"4x NDR", Hosts: 128, Switches: 24, Cables: 256, Rate: "4x NDR (400 Gb/s)", Routing: "ftree"},
		Load: Load{Name: "all-to-all:size=storage", Ranks: 128, Operations: 48768, Messages: 16256,
			Bytes: 9_387_245_568},
		Level: "packets", Why: "under 200 million packet hops are expected",
		Whole: true, End: 2.4137e-3 * slow, Wall: 41.7, Hops: 18_493_221, Fairness: 0.937 / slow,
		Cost: &Cost{1.2e6, 2.5e6, 31_000, 27_000, "rough estimates"}, Energy: &Energy{PerByte: 7e-9},
		Adapters: &Adapters{QueuePairs: 254, Contexts: Cache{900, 100}},
	}
	r.Energy.Idle, r.Energy.Total = 60, 66
	r.Load.Says = []string{"compute: 1.2 ms a step without communication"}
	r.Step = &Step{Alone: 1.2e-3, Exposed: 1.2e-3 * slow, Utilisation: 0.5 / slow}
	r.Ethernet = &Ethernet{Network: "roce", PausesSent: 5484, Paused: 0.0157, Marked: 18180, Storms: 1}
	took := spreadOf([]float64{1e-6, 2e-6, 3e-6 * slow})
	r.Jobs = []Job{{Name: "ping-pong", Ranks: 64, End: 1e-3 * slow, Took: took, Alone: &Alone{End: 1e-3, Took: took}},
		{Name: "permutation", Ranks: 64, End: 2e-3 * slow, Took: took}}
	var all, ranks, speed []float64
	classes := []struct {
		name  string
		n     int
		size  float64
		extra float64
	}{{"up to 4 KiB", 7200, 4096, 1.1e-6}, {"to 64 KiB", 5400, 65536, 2.4e-6}, {"to 1 MiB", 2700, 1 << 20, 5e-6},
		{"over 1 MiB", 956, 4 << 20, 12e-6}}
	r.Messages = []Class{{Name: "all"}}
	for _, c := range classes {
		var took []float64
		for range c.n {
			best := c.size * (0.3 + 0.7*rnd.Float64()) / 50e9
			t := (best + c.extra*math.Exp(0.9*rnd.NormFloat64()))
			t = best + (t-best)*slow
			took, speed = append(took, t), append(speed, min(1, best/t))
		}
		all = append(all, took...)
		r.Messages = append(r.Messages, Class{c.name, uint64(c.size * float64(c.n)), spreadOf(took)})
	}
	r.Messages[0] = Class{"all", r.Load.Bytes, spreadOf(all)}
	for range 128 {
		ranks = append(ranks, r.End*(1-0.06*math.Pow(rnd.Float64(), 2)))
	}
	r.Ranks, r.Speed = spreadOf(append(ranks, r.End)), spreadOf(speed)
	const intervals = 60
	shape := func(i int) float64 {
		x := float64(i) / intervals
		return min(1, 8*x+0.2) * (0.78 + 0.16*math.Sin(9*x)) * min(1, 9*(1-x)+0.05) / slow
	}
	for i := range intervals {
		r.Times = append(r.Times, r.End*float64(i+1)/intervals)
		r.Sent = append(r.Sent, 128*50e9*shape(i)*(0.95+0.05*rnd.Float64()))
	}
	for k, name := range []string{"host to leaf", "leaf to spine", "spine to leaf"} {
		tier := Tier{Name: name, Links: 128}
		var uses []float64
		from, to, _ := strings.Cut(name, " to ")
		for j := range 64/3 + 1 {
			row := Row{Name: fmt.Sprintf("%s%d[%d] → %s%d[%d]", from, j+1, k+1, to, j%8+1, j+1), Tier: name}
			skew := 0.6 + 0.5*rnd.Float64()
			for i := range intervals {
				row.Use = append(row.Use, math.Min(1, shape(i)*skew*(0.85+0.3*rnd.Float64())))
			}
			use := mean(row.Use)
			uses = append(uses, use)
			r.Heat = append(r.Heat, row)
			r.Links = append(r.Links, Link{row.Name, name, use, slices.Max(row.Use), use * r.End * 50e9})
		}
		for i := range intervals {
			var column []float64
			for _, row := range r.Heat[len(r.Heat)-len(uses):] {
				column = append(column, row.Use[i])
			}
			tier.Mean, tier.Max = append(tier.Mean, mean(column)), append(tier.Max, slices.Max(column))
		}
		tier.Use = spreadOf(uses)
		r.Tiers = append(r.Tiers, tier)
	}
	slices.SortFunc(r.Links, func(a, b Link) int {
		if a.Use > b.Use {
			return -1
		}
		return 1
	})
	r.Links = r.Links[:32]
	return r
}

func mean(vs []float64) (m float64) {
	for _, v := range vs {
		m += v / float64(len(vs))
	}
	return m
}

// hostile is a name that would be a script of its own, were it ever taken for markup.
const hostile = `</script><script>window.owned = 1; alert(1)</script><img src=x onerror="window.owned = 1"><!--`

// hostileSample has that name wherever a report has a text.
func hostileSample() *Report {
	r := sample(1)
	r.Command, r.Hash, r.Why, r.Level, r.Stopped = hostile, hostile, hostile, hostile, hostile
	r.Whole = false
	r.Fabric = Fabric{Topology: hostile, Text: hostile, Hosts: 1, Switches: 1, Cables: 1, Rate: hostile,
		Routing: hostile}
	r.Load.Name = hostile
	for i := range r.Messages {
		r.Messages[i].Name = hostile
	}
	for i := range r.Tiers {
		r.Tiers[i].Name = hostile
	}
	for i := range r.Links {
		r.Links[i].Name, r.Links[i].Tier = hostile, hostile
	}
	for i := range r.Heat {
		r.Heat[i].Name, r.Heat[i].Tier = hostile, hostile
	}
	return r
}

// degenerate are reports that have little in them, or much of one thing.
func degenerate() map[string]*Report {
	stopped := sample(1)
	stopped.Whole, stopped.Stopped = false, "the limit of 60 s of wall time was reached"
	one := &Report{Command: "softib sim star:2", Fabric: Fabric{Topology: "star:2", Hosts: 2, Switches: 1, Cables: 2},
		Load:  Load{Name: "shift", Ranks: 2, Operations: 2, Messages: 1, Bytes: 64},
		Level: "flows", Whole: true, End: 3e-7, Fairness: 1,
		Ranks: spreadOf([]float64{3e-7}), Messages: []Class{{"all", 64, spreadOf([]float64{3e-7})}},
		Speed: spreadOf([]float64{1}), Times: []float64{3e-7}, Sent: []float64{2e8},
		Tiers: []Tier{{"host to switch", 2, []float64{0.004}, []float64{0.004}, spreadOf([]float64{0.004})}},
		Links: []Link{{"h1[1] → sw1[1]", "host to switch", 0.004, 0.004, 64}},
		Heat:  []Row{{"h1[1] → sw1[1]", "host to switch", []float64{0.004}}}}
	equal := sample(1)
	same := slices.Repeat([]float64{5e-6}, 1000)
	equal.Messages = []Class{{"all", 1 << 30, spreadOf(same)}, {"over 1 MiB", 1 << 30, spreadOf(same)}}
	equal.Ranks, equal.Speed = spreadOf(same), spreadOf(slices.Repeat([]float64{0.5}, 1000))
	for i := range equal.Sent {
		equal.Sent[i] = 0
	}
	large := sample(1)
	large.Fabric.Hosts, large.Load.Ranks, large.Load.Messages = 65536, 65536, math.MaxInt32
	large.Load.Bytes = math.MaxUint64
	large.Ranks.Count = 65536
	for i := range 2000 {
		name := fmt.Sprintf("host-%d[1] → leaf-%d[17]", i, i/32)
		large.Links = append(large.Links, Link{name, "host to leaf", 1, 1, 1e12})
	}
	for len(large.Heat) < 256 {
		large.Heat = append(large.Heat, large.Heat[:64]...)
	}
	zeros := sample(1)
	zeros.Messages = []Class{{"all", 0, spreadOf([]float64{0, 0, 0})}}
	zeros.Ranks, zeros.End, zeros.Times, zeros.Sent = spreadOf([]float64{0, 0}), 0, []float64{0}, []float64{0}
	return map[string]*Report{"nothing": {Whole: true}, "stopped at once": {Stopped: "interrupted"}, "stopped": stopped,
		"one message": one, "all equal": equal, "large": large, "no time at all": zeros}
}
