package route

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// oracle is the deadlock check as slow and as plain as it can be: it walks every way on its own, keeps dependencies in
// maps, and peels off channels that wait for nothing until none are left. It shares no code with CDG.
type oracle struct {
	waits map[Channel]map[Channel]bool
	// lost are the ways that do not arrive.
	lost []string
}

func newOracle(n *Network, t *Tables, of Traffic) *oracle {
	o := &oracle{waits: map[Channel]map[Channel]bool{}}
	for i, d := range n.Dests {
		for s := range n.Switches {
			if n.Switches[s].Ends == 0 && of == EndTraffic || !d.IsEnd() && of == EndTraffic {
				continue
			}
			ports := []ib.PortNum{}
			for _, e := range n.Dests {
				if e.Switch == int32(s) && (e.IsEnd() || of == AllTraffic) && e.PathBits == 0 {
					ports = append(ports, e.Port)
				}
			}
			for _, in := range ports {
				o.follow(n, t, int32(s), in, i)
			}
		}
	}
	return o
}

func (o *oracle) follow(n *Network, t *Tables, s int32, in ib.PortNum, dest int) {
	d := n.Dests[dest]
	sl := t.Level(s, dest)
	var last *Channel
	for range len(n.Switches) + 1 {
		out := t.LFT[s][d.LID]
		if s == d.Switch && out == d.Port {
			return
		}
		if out == 0 || int(out) >= len(n.Switches[s].Ports) || n.Switches[s].Ports[out].To < 0 {
			break
		}
		c := Channel{s, out, t.Lane(s, in, out, sl)}
		if last != nil {
			if o.waits[*last] == nil {
				o.waits[*last] = map[Channel]bool{}
			}
			o.waits[*last][c] = true
		}
		last = &c
		h := n.Switches[s].Ports[out]
		s, in = h.To, h.Port
	}
	o.lost = append(o.lost, fmt.Sprintf("LID %d at switch %d", d.LID, s))
}

// size counts the dependencies.
func (o *oracle) size() int {
	count := 0
	for _, to := range o.waits {
		count += len(to)
	}
	return count
}

// acyclic peels.
func (o *oracle) acyclic() bool {
	left := map[Channel]map[Channel]bool{}
	for c, to := range o.waits {
		left[c] = to
	}
	for {
		peeled := false
		for c, to := range left {
			waits := false
			for x := range to {
				if left[x] != nil {
					waits = true
				}
			}
			if !waits {
				delete(left, c)
				peeled = true
			}
		}
		if !peeled {
			return len(left) == 0
		}
	}
}

// randomTables gives tables that follow shortest ways, sometimes with broken entries, to judge.
func randomTables(n *Network, r *rand.Rand, breaks int, lanes int) *Tables {
	t := &Tables{Engine: "drawn", VLs: lanes}
	c := newChart(n)
	for range n.Switches {
		row := make([]ib.PortNum, int(n.Top)+1)
		for i := range row {
			row[i] = NoPort
		}
		t.LFT = append(t.LFT, row)
	}
	for _, d := range n.Dests {
		dist := make([]int, len(n.Switches))
		for i := range dist {
			dist[i] = -1
		}
		dist[d.Switch] = 0
		t.LFT[d.Switch][d.LID] = d.Port
		queue := []int32{d.Switch}
		for len(queue) > 0 {
			v := queue[0]
			queue = queue[1:]
			first, end := c.out(v)
			for _, i := range r.Perm(int(end - first)) {
				ch := first + int32(i)
				if u := c.to[ch]; u >= 0 && dist[u] < 0 {
					dist[u] = dist[v] + 1
					t.LFT[u][d.LID] = ib.PortNum(c.port[c.back[ch]])
					queue = append(queue, u)
				}
			}
		}
	}
	for range breaks {
		s := r.IntN(len(n.Switches))
		t.LFT[s][n.Dests[r.IntN(len(n.Dests))].LID] = ib.PortNum(r.IntN(len(n.Switches[s].Ports) + 1))
	}
	if lanes > 1 {
		for range n.Switches {
			row := make([]ib.SL, len(n.Dests))
			for i := range row {
				row[i] = ib.SL(r.IntN(lanes))
			}
			t.SL = append(t.SL, row)
		}
	}
	return t
}

// turnLanes is a lane map that depends on everything it may.
type turnLanes struct{ lanes int }

func (m turnLanes) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	return ib.VL((int(sw)*7 + int(in)*3 + int(out)*5 + int(sl)) % m.lanes)
}

// smallSpecs are networks of many shapes that the slow oracle can do.
func smallSpecs() []string {
	specs := []string{
		"star:4", "fat-tree:radix=4,levels=2", "fat-tree:radix=4,levels=3", "fat-tree:radix=6,levels=3,pods=3",
		"torus:3x3", "torus:4x3x2,hosts=2", "torus:5x5",
		"mesh:4x3", "ring:5", "ring:8,hosts=2", "line:4", "dragonfly:a=3,h=1,p=1,g=4", "dragonfly:a=4,h=2,p=1,g=5",
	}
	for seed := range 10 {
		specs = append(specs, fmt.Sprintf("random:switches=%d,hosts=%d,links=%d,seed=%d", 4+seed*2, 8+seed*2, 6+seed*4,
			seed))
	}
	return specs
}

// damaged are the network and what is left of it after cables are cut.
func damaged(t testing.TB, spec string, seed uint64) map[string]*Network {
	n := netOf(t, spec)
	r := rand.New(rand.NewPCG(seed, 1))
	return map[string]*Network{spec: n, spec + " -5%": RemoveLinks(n, 0.05, r), spec + " -30%": RemoveLinks(n, 0.3, r)}
}

func TestCDGAgainstOracle(t *testing.T) {
	cyclic, free := 0, 0
	for i, spec := range smallSpecs() {
		for name, n := range damaged(t, spec, uint64(i)) {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for _, lanes := range []int{1, 3, 8} {
				for _, of := range []Traffic{EndTraffic, AllTraffic} {
					for _, mapped := range []bool{false, true} {
						tab := randomTables(n, r, 0, lanes)
						if mapped {
							tab.SLtoVL = turnLanes{lanes}
						}
						g := NewCDG(n)
						g.Add(tab, of)
						o := newOracle(n, tab, of)
						if g.Size() != o.size() {
							t.Errorf("%s, %d lanes, mapped %v: %d dependencies: want %d", name, lanes, mapped, g.Size(),
								o.size())
						}
						cycle := g.Cycle()
						if (cycle == nil) != o.acyclic() {
							t.Errorf("%s, %d lanes, mapped %v: cycle %v, the oracle says acyclic is %v", name, lanes,
								mapped, cycle, o.acyclic())
						}
						for k, c := range cycle {
							if !o.waits[c][cycle[(k+1)%len(cycle)]] {
								t.Errorf("%s: %v does not wait for %v", name, c, cycle[(k+1)%len(cycle)])
							}
						}
						if cycle == nil {
							free++
						} else {
							cyclic++
						}
					}
				}
			}
		}
	}
	if cyclic < 50 || free < 50 {
		t.Errorf("%d cyclic and %d free graphs: want many of both", cyclic, free)
	}
}

// Ways round a ring, all in one direction, are the textbook deadlock.
func TestCDGRing(t *testing.T) {
	n := netOf(t, "ring:5")
	tab := &Tables{VLs: 1}
	for s := range n.Switches {
		row := make([]ib.PortNum, int(n.Top)+1)
		for _, d := range n.Dests {
			row[d.LID] = 1 // the next switch
			if d.Switch == int32(s) {
				row[d.LID] = d.Port
			}
		}
		tab.LFT = append(tab.LFT, row)
	}
	g := NewCDG(n)
	g.Add(tab, EndTraffic)
	if c := g.Cycle(); len(c) != 5 {
		t.Errorf("cycle %v: want all five switches", c)
	}
	// Shortest ways both ways round are no better.
	for s := range n.Switches {
		for _, d := range n.Dests {
			if (int(d.Switch)-s+5)%5 > 2 {
				tab.LFT[s][d.LID] = 2
			}
		}
	}
	g = NewCDG(n)
	g.Add(tab, EndTraffic)
	if c := g.Cycle(); len(c) != 5 {
		t.Errorf("cycle %v: want one direction of the ring", c)
	}
}

// shortest gives tables of shortest ways.
func shortest(n *Network) *Tables { return randomTables(n, rand.New(rand.NewPCG(1, 1)), 0, 1) }
