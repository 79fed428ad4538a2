package route

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

// Reach, hops, link use and loops, each way walked on its own.
func TestJudgeAgainstWalks(t *testing.T) {
	for i, spec := range smallSpecs() {
		for name, n := range damaged(t, spec, uint64(i)) {
			for _, breaks := range []int{0, 20} {
				r := rand.New(rand.NewPCG(uint64(i), 3))
				tab := randomTables(n, r, breaks, 1)
				rep := Judge(n, tab, JudgeOptions{})
				faults := rep
				faults.LinkUse, faults.Shift, faults.Random, faults.Bisection = LinkUse{}, Congestion{}, Congestion{}, 0
				if got := Judge(n, tab, JudgeOptions{Faults: true}); !reflect.DeepEqual(got, faults) {
					t.Errorf("%s: the faults alone are\n%+v\nand with the rest\n%+v", name, got, faults)
				}
				c := newChart(n)
				var pairs, apart, unreached, looping int64
				hops := map[int]int64{}
				use := map[Step]int64{}
				for _, d := range n.Dests {
					for s, sw := range n.Switches {
						ends := int64(sw.Ends)
						if d.IsEnd() && d.Switch == int32(s) {
							ends--
						}
						if c.part[s] != c.part[d.Switch] {
							apart += max(ends, 0)
							continue
						}
						pairs += max(ends, 0)
						steps, ok := Walk(n, tab, int32(s), d)
						last := steps[len(steps)-1]
						switch {
						case ok && d.IsEnd():
							hops[len(steps)-1] += ends
							for _, st := range steps[:len(steps)-1] {
								use[st] += int64(sw.Ends)
							}
						case !ok:
							unreached += max(ends, 0)
							if slices.ContainsFunc(steps[:len(steps)-1],
								func(st Step) bool { return st.Switch == last.Switch }) {
								looping++
							}
						}
					}
				}
				if rep.Pairs != pairs || rep.Apart != apart || rep.Unreached != unreached || rep.Looping != looping {
					t.Errorf("%s: pairs %d, apart %d, unreached %d, looping %d: want %d, %d, %d, %d", name, rep.Pairs,
						rep.Apart, rep.Unreached, rep.Looping, pairs, apart, unreached, looping)
				}
				if a := Arrivals(n, tab); a.Pairs != pairs || a.Apart != apart || a.Unreached != unreached ||
					a.Looping != looping || a.LoopLID != rep.LoopLID || !slices.Equal(a.Loop, rep.Loop) ||
					!slices.Equal(a.Misses, rep.Misses) {
					t.Errorf("%s: arrivals are %+v", name, a)
				}
				for h, count := range rep.Hops {
					if hops[h] != max(count, 0) {
						t.Errorf("%s: %d ways of %d hops: want %d", name, count, h, hops[h])
					}
				}
				most := int64(0)
				for _, u := range use {
					most = max(most, u)
				}
				if rep.LinkUse.Max != most {
					t.Errorf("%s: %d ways on the busiest link: want %d", name, rep.LinkUse.Max, most)
				}
				if (rep.Loop != nil) != (looping > 0) {
					t.Errorf("%s: loop %v: %d entries loop", name, rep.Loop, looping)
				}
				for k, st := range rep.Loop {
					next := rep.Loop[(k+1)%len(rep.Loop)]
					if tab.LFT[st.Switch][rep.LoopLID] != st.Port ||
						n.Switches[st.Switch].Ports[st.Port].To != next.Switch {
						t.Errorf("%s: %v does not lead to %v", name, st, next)
					}
				}
				if breaks == 0 && unreached+looping > 0 {
					t.Errorf("%s: whole tables with %d unreached, %d looping", name, unreached, looping)
				}
				for _, m := range rep.Misses {
					d := n.Dests[slices.IndexFunc(n.Dests, func(d Dest) bool { return d.LID == m.To })]
					if _, ok := Walk(n, tab, m.From, d); ok {
						t.Errorf("%s: %+v arrives", name, m)
					}
				}
			}
		}
	}
}

// Two leaves with two cables between them: what congestion is can be said by hand.
func TestJudgeCongestion(t *testing.T) {
	n := &Network{Switches: make([]Switch, 2), Top: 8}
	for s := range n.Switches {
		sw := &n.Switches[s]
		sw.GUID, sw.Ends = ib.GUID(s+1), 4
		sw.Ports = make([]Hop, 7)
		for p := range sw.Ports {
			sw.Ports[p].To = NoSwitch
		}
		for p := 5; p < 7; p++ {
			sw.Ports[p] = Hop{To: int32(1 - s), Port: ib.PortNum(p)}
		}
		for p := range 4 {
			n.Dests = append(n.Dests, Dest{LID: ib.LID(s*4 + p + 1), Switch: int32(s), Port: ib.PortNum(p + 1)})
		}
	}
	tables := func(port func(lid ib.LID) ib.PortNum) *Tables {
		tab := &Tables{VLs: 1, LFT: make([][]ib.PortNum, 2)}
		for s := range tab.LFT {
			tab.LFT[s] = make([]ib.PortNum, 9)
			for _, d := range n.Dests {
				tab.LFT[s][d.LID] = port(d.LID)
				if d.Switch == int32(s) {
					tab.LFT[s][d.LID] = d.Port
				}
			}
		}
		return tab
	}
	one := tables(func(ib.LID) ib.PortNum { return 5 })
	rep := Judge(n, one, JudgeOptions{Seed: 1})
	// Shift by 4 sends all four over one cable; by 1, one.
	if rep.Shift.Max != 4 || rep.Shift.Permutations != 7 || !rep.OK() {
		t.Errorf("one cable: %+v", rep)
	}
	if want := (1.0 + 2 + 3 + 4 + 3 + 2 + 1) / 7; math.Abs(rep.Shift.Average-want) > 1e-9 {
		t.Errorf("average %v: want %v", rep.Shift.Average, want)
	}
	// By a shift of k or 8-k, k flows of each side cross at 1/k each: 1 of bandwidth a side.
	if want := (2*(2+6.0)/8 + 2*(2+4.0)/8 + 2*(2+2.0)/8 + 2.0/8) / 7; math.Abs(rep.Shift.Bandwidth-want) > 1e-9 {
		t.Errorf("bandwidth %v: want %v", rep.Shift.Bandwidth, want)
	}
	both := tables(func(l ib.LID) ib.PortNum { return ib.PortNum(5 + l%2) })
	two := Judge(n, both, JudgeOptions{Seed: 1, Versus: one})
	if two.Shift.Max != 2 || two.Bisection <= rep.Bisection || two.Random.Permutations != 64 {
		t.Errorf("two cables: %+v", two)
	}
	if two.LinkUse.Max != 8 || two.LinkUse.Min != 8 || two.LinkUse.Average != 8 || two.HopsMax != 1 ||
		rep.LinkUse.Min != 0 {
		t.Errorf("two cables: %+v", two.LinkUse)
	}
	if c := two.Changed; c.Entries != 4 || c.Switches != 2 || c.Blocks != 2 || !slices.Equal(c.BySwitch, []int{2, 2}) {
		t.Errorf("changed: %+v", c)
	}
	if again := Judge(n, both, JudgeOptions{Seed: 1, Versus: one}); again.String() != two.String() {
		t.Error("the same seed gave another report")
	}
}

func TestReportText(t *testing.T) {
	n := netOf(t, "ring:5")
	tab := randomTables(n, rand.New(rand.NewPCG(1, 1)), 0, 1)
	rep := Judge(n, tab, JudgeOptions{})
	text := rep.String()
	for _, want := range []string{"NOT GOOD", "all 45 pairs", "POSSIBLE: these 5 channels", "port 1 VL 0",
		"1.50 on average, 2 at most", "permutations)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	tab.LFT[0][1], tab.LFT[1][1], tab.LFT[1][2] = 1, 2, NoPort
	rep = Judge(n, tab, JudgeOptions{})
	text = rep.String()
	for _, want := range []string{"pairs are NOT", "entries lead into one; LID 1 goes round", "no way at switch 1 (",
		"LID 1: loop at"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	blob, err := json.Marshal(rep)
	if err != nil || !strings.Contains(string(blob), `"loop_lid":1`) {
		t.Errorf("%v: %s", err, blob)
	}
}

// Tables of others may be short, long or empty: they are judged, not trusted.
func TestJudgeOddTables(t *testing.T) {
	n := netOf(t, "fat-tree:radix=4,levels=2")
	for _, tab := range []*Tables{{}, {LFT: make([][]ib.PortNum, 3)},
		{LFT: [][]ib.PortNum{{0, 1, 200}, make([]ib.PortNum, 500)}, SL: make([][]ib.SL, 1)}} {
		rep := Judge(n, tab, JudgeOptions{Traffic: AllTraffic, Versus: &Tables{LFT: [][]ib.PortNum{{3}}}})
		if rep.OK() || rep.Unreached == 0 || rep.String() == "" {
			t.Errorf("%+v", rep)
		}
	}
	if rep := Judge(&Network{}, &Tables{}, JudgeOptions{}); !rep.OK() || rep.String() == "" {
		t.Errorf("an empty network: %+v", rep)
	}
}
