package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRepair loses and returns cables of trees one after the other and wants of every repaired table set what is wanted
// of a computed one.
func TestRepair(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=8,levels=3", "fat-tree:radix=4,levels=4",
		"fat-tree:radix=12,levels=2,oversub=2"} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", spec, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 11))
				full := netOf(t, spec)
				now, tab := full, ftreeOf(t, full)
				partial := 0
				for step := range 12 {
					next := now.Clone()
					links := next.Links()
					if step%4 == 3 {
						next = full.Clone()
						next.Cut(links[rng.IntN(len(links))])
					} else {
						next.Cut(links[rng.IntN(len(links))])
					}
					rep, err := Repair(next, tab, Options{})
					if err != nil {
						t.Fatal(err)
					}
					if !rep.Full {
						partial++
					}
					checkRepaired(t, next, tab, rep)
					now, tab = next, rep.Tables
				}
				if partial == 0 {
					t.Error("every repair was a full computation")
				}
			})
		}
	}
}

func checkRepaired(t *testing.T, n *Network, old *Tables, rep Repaired) {
	t.Helper()
	waysOf{n, rep.Tables}.check(t, 6)
	if r := Judge(n, rep.Tables, JudgeOptions{Shifts: 1, Randoms: -1}); !r.OK() {
		t.Fatalf("full %v %s: %v", rep.Full, rep.Why, r)
	}
	for s := range n.Switches {
		same := slices.Equal(old.LFT[s], rep.Tables.LFT[s])
		if same == slices.Contains(rep.Changed, int32(s)) {
			t.Fatalf("switch %d: same entries %v, yet listed %v", s, same, rep.Changed)
		}
	}
	if rep.Full {
		return
	}
	for s := range n.Switches {
		for p, h := range n.Switches[s].Ports {
			if h.To != NoSwitch && h != old.made.Switches[s].Ports[p] {
				return // a cable returned: other ways may change
			}
		}
	}
	dir := &direction{level: rep.Tables.Rank}
	waysOf{n, rep.Tables}.upDown(t, dir)
	// Ways stay that did not lead over a lost cable, unless their destination's switch was below one.
	below := map[int32]bool{}
	for s := range n.Switches {
		for p := range n.Switches[s].Ports {
			if was := old.made.Switches[s].Ports[p]; was != n.Switches[s].Ports[p] && old.Rank[was.To] < old.Rank[s] {
				for _, d := range n.Dests {
					if int(old.LFT[s][d.LID]) == p {
						below[d.Switch] = true
					}
				}
			}
		}
	}
	for _, d := range n.Dests {
		for s := range n.Switches {
			before, ok := waysOf{n, old}.walk(int32(s), d)
			if !ok || below[d.Switch] || !d.IsEnd() || n.Switches[s].Ends == 0 {
				continue
			}
			if after, _ := (waysOf{n, rep.Tables}).walk(int32(s), d); !slices.Equal(before, after) {
				t.Fatalf("switch %d to LID %d moved from %v to %v without need", s, d.LID, before, after)
			}
		}
	}
}

// TestRepairBack: when lost cables return, so do the ways.
func TestRepairBack(t *testing.T) {
	full := netOf(t, "fat-tree:radix=8,levels=3")
	first := ftreeOf(t, full)
	rng := rand.New(rand.NewPCG(3, 4))
	now, tab := full.Clone(), first
	for range 5 {
		links := now.Links()
		now = now.Clone()
		now.Cut(links[rng.IntN(len(links))])
		rep, err := Repair(now, tab, Options{})
		if err != nil {
			t.Fatal(err)
		}
		tab = rep.Tables
	}
	rep, err := Repair(full, tab, Options{})
	if err != nil || rep.Full {
		t.Fatal(rep.Why, err)
	}
	if d := Diff(first, rep.Tables); d.Entries != 0 {
		t.Errorf("%d entries are not as at first", d.Entries)
	}
}

func TestRepairNothing(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=2")
	tab := ftreeOf(t, n)
	rep, err := Repair(n.Clone(), tab, Options{})
	if err != nil || rep.Full || len(rep.Changed) != 0 || Diff(tab, rep.Tables).Entries != 0 {
		t.Errorf("%+v, %v: want the same tables", rep, err)
	}
}

// TestRepairHosts takes hosts away and brings them back: nothing else moves.
func TestRepairHosts(t *testing.T) {
	full := netOf(t, "fat-tree:radix=8,levels=3")
	tab := ftreeOf(t, full)
	rng := rand.New(rand.NewPCG(1, 2))
	without := func(count int) *Network {
		n := full.Clone()
		n.Dests = slices.Clone(full.Dests)
		for range count {
			i := rng.IntN(len(n.Dests))
			if n.Dests[i].IsEnd() {
				n.Switches[n.Dests[i].Switch].Ends--
				n.Dests = slices.Delete(n.Dests, i, i+1)
			}
		}
		return n
	}
	for range 10 {
		n := without(rng.IntN(6))
		rep, err := Repair(n, tab, Options{})
		if err != nil || rep.Full {
			t.Fatal(rep.Why, err)
		}
		if len(n.Dests) <= len(tab.made.Dests) && len(tab.made.Dests) == len(full.Dests) && len(rep.Changed) > 0 {
			t.Errorf("hosts left and switches %v changed", rep.Changed)
		}
		waysOf{n, rep.Tables}.check(t, 0)
		// Those that stayed kept their ways.
		for _, d := range n.Dests {
			if !slices.Contains(tab.made.Dests, d) {
				continue
			}
			for s := range n.Switches {
				if rep.Tables.LFT[s][d.LID] != tab.LFT[s][d.LID] {
					t.Fatalf("LID %d moved at switch %d", d.LID, s)
				}
			}
		}
		tab = rep.Tables
	}
	rep, err := Repair(full, tab, Options{})
	if err != nil || rep.Full {
		t.Fatal(rep.Why, err)
	}
	if most, mean := (waysOf{full, rep.Tables}).shifts(); most > 2 {
		t.Errorf("all hosts are back: %d flows on a cable in some shift, %.2f in the mean: want at most 2", most, mean)
	}
}

// TestRepairSwitch loses whole switches.
func TestRepairSwitch(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=3")
	tab := ftreeOf(t, n)
	for s := range int32(len(n.Switches)) {
		next := n.Clone()
		next.CutSwitch(s)
		rep, err := Repair(next, tab, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Full {
			t.Errorf("without %v: %s", aSwitch(s), rep.Why)
		}
		checkRepaired(t, next, tab, rep)
	}
}

func BenchmarkRepair(b *testing.B) {
	n := netOf(b, bigNet())
	tab := ftreeOf(b, n)
	links := n.Links()
	lost := n.Clone()
	lost.Cut(links[0])
	rep, err := Repair(lost, tab, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("back", func(b *testing.B) {
		for b.Loop() {
			if rep, err := Repair(n, rep.Tables, Options{}); err != nil || rep.Full {
				b.Fatal(rep.Why, err)
			}
		}
	})
	for _, c := range []struct {
		name string
		link Link
	}{{"leaf", links[0]}, {"core", links[len(links)-1]}} {
		next := n.Clone()
		next.Cut(c.link)
		b.Run(c.name, func(b *testing.B) {
			var last Repaired
			for b.Loop() {
				rep, err := Repair(next, tab, Options{})
				if err != nil || rep.Full {
					b.Fatal(rep.Why, err)
				}
				last = rep
			}
			b.ReportMetric(float64(Diff(tab, last.Tables).Entries), "entries")
			b.ReportMetric(float64(len(last.Changed)), "switches")
		})
	}
}
