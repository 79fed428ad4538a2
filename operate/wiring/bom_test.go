package wiring

import (
	"errors"
	"math"
	"strings"
	"testing"

	"softib/proto/ib"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		speed  ib.Speed
		needMM int32
		medium Medium
		buyMM  int32
	}{
		{ib.QDR, 6500, DAC, 7000}, {ib.QDR, 7500, AOC, 10_000}, {ib.FDR, 2900, DAC, 3000}, {ib.EDR, 3100, AOC, 4000},
		{ib.HDR, 1900, DAC, 2000}, {ib.HDR, 2100, ACC, 2500},
		{ib.HDR, 4500, AOC, 5000}, {ib.HDR, 120_000, SingleMode, 150_000}, {ib.NDR, 400, DAC, 500},
		{ib.NDR, 2001, ACC, 2500}, {ib.NDR, 5001, Multimode, 7000},
		{ib.NDR, 50_001, SingleMode, 70_000}, {ib.XDR, 500, ACC, 500}, {ib.XDR, 2600, SingleMode, 3000},
		{ib.SDR, 15_000, DAC, 15_000},
	} {
		f, buy, ok := choose(media[c.speed], c.needMM)
		if !ok || f.medium != c.medium || buy != c.buyMM {
			t.Errorf("%v, %d mm: %v of %d, want %v of %d", c.speed, c.needMM, f.medium, buy, c.medium, c.buyMM)
		}
	}
	if _, _, ok := choose(media[ib.EDR], 200_000); ok {
		t.Error("EDR reaches 200 m")
	}
}

// TestFacts: the table is whole and in order, since the first medium that reaches is taken.
func TestFacts(t *testing.T) {
	for s := ib.SDR; s < ib.NumSpeed; s++ {
		if len(media[s]) == 0 || switches[s].ports == 0 || switches[s].lowUSD >= switches[s].highUSD ||
			switches[s].watts <= 0 {
			t.Errorf("%v: %v, %+v", s, media[s], switches[s])
		}
		for i, f := range media[s] {
			if f.lowUSD >= f.highUSD || f.lowUSDMetre >= f.highUSDMetre || f.watts <= 0 || f.reachMM < 500 {
				t.Errorf("%v %v: %+v", s, f.medium, f)
			}
			if i > 0 && (f.reachMM <= media[s][i-1].reachMM || f.medium <= media[s][i-1].medium) {
				t.Errorf("%v: %v is not beyond %v", s, f.medium, media[s][i-1].medium)
			}
		}
	}
}

func TestBillAddsUp(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2,speed=HDR",
		"torus:3x3,speed=EDR", "star:5,speed=XDR", "fat-tree:radix=16,levels=3,speed=QDR"} {
		g := gen(t, spec)
		b, err := NewBill(g, DefaultLayout(g))
		if err != nil {
			t.Fatal(err)
		}
		cables, atHosts, switchPorts, low, watts := 0, 0, 0, 0.0, 0.0
		for _, c := range b.Cables {
			cables += c.Count
			atHosts += c.AtHosts
			low += c.LowUSD
			watts += c.Watts
		}
		for _, s := range b.Switches {
			switchPorts += s.Used + s.Free
			low += s.LowUSD
			watts += s.Watts
			if s.Used+s.Free != s.Ports*s.Count {
				t.Errorf("%s: %+v", spec, s)
			}
		}
		for _, a := range b.AdapterLines {
			low += a.LowUSD
			watts += a.Watts
		}
		if cables != g.NumCables() || b.CableCount != cables || atHosts != len(g.Hosts()) ||
			b.Adapters != len(g.Hosts()) || b.SwitchCount != len(g.Switches()) ||
			b.PortsUsed != 2*g.NumCables()-b.Adapters || b.PortsUsed+b.PortsFree != switchPorts ||
			math.Abs(b.LowUSD-low) > 1 || math.Abs(b.Watts-watts) > 1 || b.HighUSD <= b.LowUSD || len(b.TooLong) > 0 {
			t.Errorf("%s: %+v", spec, b)
		}
		if !strings.Contains(b.Estimate, "estimates") {
			t.Errorf("%q", b.Estimate)
		}
	}
}

func TestBillByLengthsAndLayouts(t *testing.T) {
	g := gen(t, "star:4,speed=EDR,length=12m")
	if !HasLengths(g) || HasLengths(gen(t, "star:4")) {
		t.Error("lengths are not told")
	}
	b, err := NewBill(g, nil)
	if err != nil || len(b.Cables) != 1 || b.Cables[0].Medium != AOC || b.Cables[0].LengthMM != 15_000 ||
		b.Cables[0].Count != 4 || b.Cables[0].Length() != "15 m" || b.TotalMM != 60_000 {
		t.Errorf("%v %+v", err, b)
	}
	l, err := ParseLayout("f", "rack A row 1 position 1\nplace sw1 A 42\nplace h1..h3 A 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewBill(g, l); !errors.Is(err, ErrNotPlaced) || !strings.Contains(err.Error(), "h4") {
		t.Errorf("%v", err)
	}
	g = gen(t, "star:3")
	if err := errorOf(NewBill(g, l)); err != nil {
		t.Error(err)
	}
	far := gen(t, "star:2,speed=EDR,length=5000m")
	if b, err := NewBill(far, nil); err != nil || len(b.TooLong) != 2 || b.CableCount != 0 {
		t.Errorf("%v %+v", err, b)
	}
}

func errorOf(_ *Bill, err error) error { return err }

// TestBillOfAChassis: links between the parts of one box are nobody's cables.
func TestBillOfAChassis(t *testing.T) {
	g := gen(t, "fat-tree:radix=8,levels=2")
	for _, n := range g.Switches() {
		n.SystemGUID = 77
	}
	b, err := NewBill(g, DefaultLayout(g))
	if err != nil || b.Internal != 32 || b.CableCount != 32 {
		t.Errorf("%v %+v", err, b)
	}
	// The node for reductions is inside the switch, whatever system it says it is of.
	h := g.Hosts()[0]
	h.Desc = "Mellanox Technologies " + "Aggregation Node"
	if b, err = NewBill(g, DefaultLayout(g)); err != nil || b.Internal != 33 || b.CableCount != 31 || b.Hosts != 31 ||
		b.Adapters != 31 {
		t.Errorf("%v %+v", err, b)
	}
}
