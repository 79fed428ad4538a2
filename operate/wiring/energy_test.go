package wiring

import (
	"errors"
	"math"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

// TestBillByHand counts a fabric that is small enough for it: a switch of four ports, four adapters, and four passive
// copper cables of 1 m, at NDR.
func TestBillByHand(t *testing.T) {
	g := gen(t, "star:4,speed=NDR,length=1m")
	b, err := EstimateBill(g, DefaultPrices())
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Switches) != 1 || b.Switches[0].Ports != 4 {
		t.Fatalf("%+v", b.Switches)
	}
	const share = 4.0 / 64
	low, high := share*22000+4*1300+4*(120+30), share*45000+4*2600+4*(300+70)
	watts, idle := share*747+4*25+4*2*0.1, 0.85*share*747+0.8*4*25+4*2*0.1
	if !near(b.LowUSD, low, 1e-4) || !near(b.HighUSD, high, 1e-4) || !near(b.Watts, watts, 1e-3) ||
		!near(b.IdleWatts, idle, 1e-3) {
		t.Errorf("$%v to %v, %v and %v W; want $%v to %v, %v and %v W", b.LowUSD, b.HighUSD, b.Watts, b.IdleWatts, low,
			high, watts, idle)
	}
	// A gigabyte from one host to another for a tenth of a second: an adapter, the switch, an adapter.
	h := g.Hosts()
	to := g.Port(topo.PortRef{Node: h[1].Index, Port: 1})
	sent := []Sent{{topo.PortRef{Node: h[0].Index, Port: 1}, 1e9},
		{topo.PortRef{Node: to.Peer, Port: to.PeerPort}, 1e9}}
	e := b.Energy(g, DefaultPrices(), 0.1, sent)
	traffic := 8e9 * (2*0.2*25/(2*400e9) + 0.15*747/(64*400e9))
	if !near(e.Idle, 0.1*b.IdleWatts, 1e-9) || !near(e.Traffic, traffic, 1e-9) || e.Total != e.Idle+e.Traffic {
		t.Errorf("%+v, want %v J without traffic and %v for it", e, 0.1*b.IdleWatts, traffic)
	}
}

// TestEnergyOfABusyFabric: where all ports send all the time, power is what the bill has.
func TestEnergyOfABusyFabric(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2,speed=NDR", "fat-tree:radix=4,levels=3,speed=HDR"} {
		g := gen(t, spec)
		b, err := EstimateBill(g, DefaultPrices())
		if err != nil || b.PortsFree != 0 {
			t.Fatalf("%v %+v", err, b)
		}
		var sent []Sent
		for i, n := range g.Nodes {
			for p := 1; p < len(n.Ports); p++ {
				ref := topo.PortRef{Node: i, Port: ib.PortNum(p)}
				sent = append(sent, Sent{ref, 2 * 1e6 / 8 * float64(g.LinkRate(ref).Mbps())})
			}
		}
		if e := b.Energy(g, DefaultPrices(), 2, sent); !near(e.Total, 2*b.Watts, 1e-3) {
			t.Errorf("%s: %v J in two seconds, want those of %v W", spec, e.Total, b.Watts)
		}
	}
}

func TestPrices(t *testing.T) {
	p, err := ParsePrices("f", `
# ours
switch NDR usd 30000 watts 1000 idle 50 ports 100
adapter NDR watts 30   # each
cable NDR dac usd 10 20 metre 1 2 reach 3
`)
	if err != nil {
		t.Fatal(err)
	}
	if f := p.switches[ib.NDR]; f != (switchFact{100, 30000, 30000, 1000}) || p.switchIdle[ib.NDR] != 50 {
		t.Errorf("%+v", f)
	}
	if a := p.adapters[ib.NDR]; a != (adapterFact{1300, 2600, 30}) {
		t.Errorf("%+v", a)
	}
	if f, buy, ok := choose(p.media[ib.NDR], 2600); !ok || buy != 3000 || f.lowUSD != 10 || f.highUSDMetre != 2 ||
		f.watts != 0.1 {
		t.Errorf("%+v of %d", f, buy)
	}
	if !strings.Contains(p.Origin, "those of f") || p.adapters[ib.HDR] != adapters[ib.HDR] ||
		media[ib.NDR][0].lowUSD != 120 {
		t.Error("what was not said has changed")
	}
	if q, err := ParsePrices("g", p.String()); err != nil || q.String() != p.String() {
		t.Errorf("%v: what is written is not what is read", err)
	}
	for text, want := range map[string]string{
		"switch":                      `want switch, adapter or cable`,
		"router NDR usd 1":            `found "router"`,
		"switch ADR usd 1":            `speed is "ADR"`,
		"\nswitch NDR usd":            `f:2: usd has no value`,
		"switch NDR usd -1":           `want a number from 0 to 1e+09`,
		"switch NDR usd NaN":          `usd is "NaN"`,
		"switch NDR usd 5 4":          `want a number from 5 to 1e+09`,
		"switch NDR idle 101":         `want a number from 0 to 100`,
		"switch NDR ports 0":          `want a whole number`,
		"adapter NDR ports 4":         `want usd, watts, idle`,
		"cable XDR dac usd 1":         `want one of acc, single-mode`,
		"cable NDR":                   `want one of dac, acc, multimode, single-mode`,
		"cable NDR dac usd 1 2 3":     `found "3"`,
		"cable NDR dac reach 1000000": `want a number from 0 to 100000`,
	} {
		if _, err := ParsePrices("f", text); !errors.Is(err, ErrPrices) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzPrices(f *testing.F) {
	f.Add(DefaultPrices().String())
	f.Add("switch NDR usd 1 2 watts 3 idle 4 ports 5 # six\ncable HDR aoc metre 1e-3")
	f.Add("cable EDR dac usd 1 1 usd 0x1p-3 reach .5")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePrices("f", text)
		if err != nil {
			if !errors.Is(err, ErrPrices) {
				t.Fatal(err)
			}
			return
		}
		q, err := ParsePrices("f", p.String())
		if err != nil || q.String() != p.String() {
			t.Fatalf("%v\n%s\n%s", err, p, q)
		}
		g := gen(t, "star:2,speed=NDR,length=2m")
		b, err := EstimateBill(g, p)
		if err != nil || b.LowUSD > b.HighUSD || math.IsNaN(b.Watts) || b.IdleWatts > b.Watts+1 {
			t.Fatalf("%v %+v", err, b)
		}
	})
}
