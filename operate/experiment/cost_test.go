package experiment

import (
	"errors"
	"math"
	"testing"

	"softib/driver/jobs"
	"softib/job/load"
	"softib/node/nic"
	"softib/operate/wiring"
	"softib/proto/topo"
)

// runOn runs a load by a level.
func runOn(t *testing.T, spec, text, level string, change func(*Spec)) *Report {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s := Spec{Topology: spec, Load: text, Graph: g, Schedule: l.Schedule, Level: level, Seed: 1}
	if change != nil {
		change(&s)
	}
	r, err := Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCosts: what a run costs is what the bill has, and what its links have carried.
func TestCosts(t *testing.T) {
	const spec = "fat-tree:radix=4,levels=2"
	for _, level := range []string{Packets, Flows} {
		r := runOn(t, spec, "permutation:size=1M", level, nil)
		g, _ := topo.ParseSpec(spec)
		p := wiring.DefaultPrices()
		b, err := wiring.EstimateBill(g, p)
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Cost; c.LowUSD != b.LowUSD || c.HighUSD != b.HighUSD || c.Watts != b.Watts ||
			c.IdleWatts != b.IdleWatts || c.Note != wiring.Estimate {
			t.Errorf("%s: %+v, want those of %+v", level, r.Cost, b)
		}
		// All links are of one speed, and each bit is paid for where it leaves and, at the end, where it arrives.
		speed := topo.DefaultLink.Speed
		traffic := 0.0
		for _, l := range r.Links {
			switch l.Tier {
			case "hosts → leafs":
				traffic += 8 * l.Bytes * p.AdapterBit(speed)
			case "leafs → hosts":
				traffic += 8 * l.Bytes * (p.SwitchBit(speed) + p.AdapterBit(speed))
			default:
				traffic += 8 * l.Bytes * p.SwitchBit(speed)
			}
		}
		e := r.Energy
		if math.Abs(e.Traffic/traffic-1) > 1e-9 || math.Abs(e.Idle/(b.IdleWatts*r.Times[len(r.Times)-1])-1) > 1e-9 ||
			e.Total != e.Idle+e.Traffic || math.Abs(e.PerByte*float64(r.Load.Bytes)/e.Total-1) > 1e-9 {
			t.Errorf("%s: %+v, want %v J for what %d links carried", level, e, traffic, len(r.Links))
		}
	}
	if r := runOn(t, spec, "permutation:size=1M", IdealNet, nil); r.Cost != nil || r.Energy != nil {
		t.Errorf("an ideal network costs %+v", r.Cost)
	}
}

// TestAdapters: a report says what adapters did, where they cost something, and that needs packets.
func TestAdapters(t *testing.T) {
	m, _ := nic.Find("cx6")
	plain := runOn(t, "star:4", "permutation:size=4K", Auto, nil)
	costly := runOn(t, "star:4", "permutation:size=4K", Auto, func(s *Spec) { s.Options.Adapter = m.Config })
	a := costly.Adapters
	if plain.Adapters != nil || a == nil || costly.Level != Packets || costly.End <= plain.End || a.QueuePairs != 2 ||
		a.Contexts.Misses == 0 || a.FromHost == 0 || a.ToHost == 0 {
		t.Errorf("%v and %v, %+v", plain.End, costly.End, a)
	}
	read := runOn(t, "star:4", "permutation:size=4K", Auto, func(s *Spec) { s.Options.Read = true })
	if r, w := read.Messages[0].Took.Min, plain.Messages[0].Took.Min; r <= w {
		t.Errorf("a message by READ takes %v, by WRITE %v: a request has to go first", r, w)
	}
	g, _ := topo.ParseSpec("star:4")
	l, _ := load.Parse("permutation")
	if _, err := Run(t.Context(), Spec{Graph: g, Schedule: l.Schedule, Level: Flows, Seed: 1,
		Options: jobs.Options{Adapter: m.Config}}, nil); !errors.Is(err, ErrSpec) {
		t.Error("flows have adapters that cost something")
	}
}
