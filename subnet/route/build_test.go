package route

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// netOf is the network of a generator.
func netOf(t testing.TB, spec string) *Network {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return FromGraph(g)
}

func TestFromGraph(t *testing.T) {
	n := netOf(t, "fat-tree:radix=4,levels=3")
	if len(n.Switches) != 20 || len(n.Dests) != 36 || n.Top != 36 {
		t.Fatalf("%d switches, %d destinations, top LID %d: want 20, 36, 36", len(n.Switches), len(n.Dests), n.Top)
	}
	seen := map[ib.LID]bool{}
	ends := 0
	for _, d := range n.Dests {
		if seen[d.LID] || d.LID == 0 || d.LID > n.Top {
			t.Errorf("LID %d twice or out of bounds", d.LID)
		}
		seen[d.LID] = true
		if d.IsEnd() {
			ends++
			if n.Switches[d.Switch].Ports[d.Port].To != NoSwitch {
				t.Errorf("LID %d hangs on a port that leads to a switch", d.LID)
			}
		}
	}
	if ends != 16 || len(n.Links()) != 32 {
		t.Errorf("%d end ports, %d links: want 16, 32", ends, len(n.Links()))
	}
	for s, sw := range n.Switches {
		for p, h := range sw.Ports {
			if h.To != NoSwitch && n.Switches[h.To].Ports[h.Port] != (Hop{int32(s), ib.PortNum(p)}) {
				t.Errorf("the far end of %d[%d] does not lead back", s, p)
			}
		}
	}
}

func TestFromGraphLMC(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	next := ib.LID(0)
	n := FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
		if r.Port == 0 {
			return 1, 0
		}
		next += 4
		return next, 2
	})
	if len(n.Dests) != 13 || n.Top != 15 || n.Dests[2].PathBits != 1 || n.Dests[2].LID != n.Dests[1].LID+1 {
		t.Errorf("got %+v", n)
	}
}

func TestRemoveLinks(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=3")
	all := len(n.Links())
	c := RemoveLinks(n, 0.05, rand.New(rand.NewPCG(1, 2)))
	if got := len(c.Links()); got != all-(all*5+50)/100 {
		t.Errorf("%d of %d links left", got, all)
	}
	if len(n.Links()) != all {
		t.Error("the original lost links")
	}
	c.CutSwitch(0)
	for _, h := range c.Switches[0].Ports {
		if h.To != NoSwitch {
			t.Error("a cut switch has a link")
		}
	}
}

// waysOf is a dumb oracle: it walks every way of some tables, hop by hop.
type waysOf struct {
	n *Network
	t *Tables
}

// walk follows a LID from a switch; it answers the switches and ports left by, and whether the LID's own port was
// reached.
func (o waysOf) walk(from int32, d Dest) (hops []Link, ok bool) {
	at := from
	for range len(o.n.Switches) + 1 {
		if at == d.Switch {
			return hops, o.t.LFT[at][d.LID] == d.Port
		}
		p := o.t.LFT[at][d.LID]
		if p == NoPort || int(p) >= len(o.n.Switches[at].Ports) || o.n.Switches[at].Ports[p].To == NoSwitch {
			return hops, false
		}
		hops = append(hops, Link{at, p})
		at = o.n.Switches[at].Ports[p].To
	}
	return hops, false
}

// check wants a way from every switch to every destination that cables join it with, and answers the most hops.
// Ways between end ports must not be longer than slack more than the shortest.
func (o waysOf) check(t testing.TB, slack int) (longest int) {
	t.Helper()
	w := newAdjacency(o.n)
	dist := make([]int32, len(o.n.Switches))
	for _, d := range o.n.Dests {
		search(w.out, []int32{d.Switch}, dist, nil)
		for s := range o.n.Switches {
			hops, ok := o.walk(int32(s), d)
			if ok != (dist[s] < far) {
				t.Fatalf("%s: switch %d to LID %d (switch %d): distance %d, arrived %v after %v", o.t.Engine, s, d.LID,
					d.Switch, dist[s], ok, hops)
			}
			if !ok {
				if p := o.t.LFT[s][d.LID]; p != NoPort {
					t.Fatalf("%s: switch %d has port %d for LID %d, which it cannot reach", o.t.Engine, s, p, d.LID)
				}
				continue
			}
			if d.IsEnd() && w.ends[s] > 0 && len(hops) > int(dist[s])+slack {
				t.Fatalf("%s: switch %d to LID %d takes %d hops, %d are possible", o.t.Engine, s, d.LID, len(hops),
					dist[s])
			}
			longest = max(longest, len(hops))
		}
	}
	return longest
}

// upDown wants that ways between end ports never go up after they went down.
func (o waysOf) upDown(t testing.TB, dir *direction) {
	t.Helper()
	for _, d := range o.n.Dests {
		for s := range o.n.Switches {
			if o.n.Switches[s].Ends == 0 || !d.IsEnd() {
				continue
			}
			hops, _ := o.walk(int32(s), d)
			down := false
			for _, h := range hops {
				up := dir.above(o.n.Switches[h.Switch].Ports[h.Port].To, h.Switch)
				if up && down {
					t.Fatalf("%s: switch %d to LID %d goes up after down: %v", o.t.Engine, s, d.LID, hops)
				}
				down = down || !up
			}
		}
	}
}

// shifts answers the most flows on a cable between switches in any shift permutation of the end ports, and the mean
// over shifts.
func (o waysOf) shifts() (most int, mean float64) {
	var ends []Dest
	for _, d := range o.n.Dests {
		if d.IsEnd() && d.PathBits == 0 {
			ends = append(ends, d)
		}
	}
	stride := 256
	load := make([]int, len(o.n.Switches)*stride)
	sum := 0
	for shift := 1; shift < len(ends); shift++ {
		clear(load)
		worst := 0
		for i, src := range ends {
			hops, _ := o.walk(src.Switch, ends[(i+shift)%len(ends)])
			for _, h := range hops {
				k := int(h.Switch)*stride + int(h.Port)
				load[k]++
				worst = max(worst, load[k])
			}
		}
		most = max(most, worst)
		sum += worst
	}
	return most, float64(sum) / float64(max(len(ends)-1, 1))
}

// permutations is shifts for random permutations.
func (o waysOf) permutations(count int, r *rand.Rand) (most int, mean float64) {
	var ends []Dest
	for _, d := range o.n.Dests {
		if d.IsEnd() && d.PathBits == 0 {
			ends = append(ends, d)
		}
	}
	stride := 256
	load := make([]int, len(o.n.Switches)*stride)
	sum := 0
	for range count {
		clear(load)
		worst := 0
		perm := r.Perm(len(ends))
		for i, src := range ends {
			hops, _ := o.walk(src.Switch, ends[perm[i]])
			for _, h := range hops {
				k := int(h.Switch)*stride + int(h.Port)
				load[k]++
				worst = max(worst, load[k])
			}
		}
		most = max(most, worst)
		sum += worst
	}
	return most, float64(sum) / float64(count)
}

// TestForest: the tree of a group joins all members, has no circle, and has no branch that leads to nobody.
func TestForest(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=4,levels=3", "torus:4x4", "dragonfly:a=4,p=2,h=2", "star:3"} {
		n := netOf(t, spec)
		f := NewForest(n)
		r := rand.New(rand.NewPCG(1, 2))
		for number := range 50 {
			member := make([]bool, len(n.Switches))
			members := 0
			for s := range member {
				if n.Switches[s].Ends > 0 && r.IntN(3) == 0 {
					member[s] = true
					members++
				}
			}
			joined := map[int32][]int32{}
			ends := f.Tree(member, number)
			for _, b := range ends {
				joined[b.Switch] = append(joined[b.Switch], n.Switches[b.Switch].Ports[b.Port].To)
			}
			if members < 2 {
				if len(ends) > 0 {
					t.Fatalf("%s: a tree of %d ends for %d members", spec, len(ends), members)
				}
				continue
			}
			seen := map[int32]bool{}
			var visit func(s int32)
			visit = func(s int32) {
				if !seen[s] {
					seen[s] = true
					for _, to := range joined[s] {
						visit(to)
					}
				}
			}
			for s := range member {
				if member[s] {
					visit(int32(s))
					break
				}
			}
			for s := range member {
				if member[s] && !seen[int32(s)] || len(joined[int32(s)]) == 1 && !member[s] {
					t.Errorf("%s, group %d: switch %d, member %v, has %v", spec, number, s, member[s], joined[int32(s)])
				}
			}
			if len(ends) != 2*(len(seen)-1) {
				t.Errorf("%s, group %d: %d ends of links join %d switches", spec, number, len(ends), len(seen))
			}
		}
	}
}
