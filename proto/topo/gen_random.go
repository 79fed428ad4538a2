package topo

import (
	"math"
	"math/rand/v2"
)

var randomGenerator = Generator{
	Name: "random", Example: "random:switches=8,hosts=16,seed=1",
	Help: "a connected random graph, the same for the same seed",
	Options: []Option{
		{"switches", "number of switches (8)"},
		{"hosts", "number of hosts, spread at random (16)"},
		{"links", "cables between switches, parallel ones included (2 per switch)"},
		{"seed", "which graph (1)"},
	},
	build: buildRandom,
}

// buildRandom draws a random spanning tree, so that the graph is connected,
// then the other cables and the hosts, and gives each switch as many ports as
// it then needs. Parallel cables happen and are wanted; a switch is not cabled to
// itself.
func buildRandom(a *args) *Graph {
	switches := a.int("switches", 8, 1, maxGrid)
	hosts := a.int("hosts", 16, 0, maxGrid)
	def, low := 2*switches, switches-1
	if switches == 1 {
		def = 0
	}
	links := a.int("links", def, low, max(low, switches*MaxPorts/4))
	if switches == 1 && links > 0 {
		a.fail("links", "is %d: one switch has nothing to be cabled to: want switches=2 or more", links)
	}
	seed := a.int("seed", 1, 0, math.MaxInt)
	if a.err != nil {
		return nil
	}
	if hosts+2*links > switches*MaxPorts/2 {
		a.fail("", "%d hosts and %d links crowd %d switches: want at most %d cable ends on a switch, on average", hosts,
			links, switches, MaxPorts/2)
		return nil
	}
	b := newBuilder(a, "random graph", hosts, switches)
	if b == nil {
		return nil
	}
	r := rand.New(rand.NewPCG(uint64(seed), 0x50f71b))
	degree := make([]int, switches)
	// draw picks a switch with a free port; on average half are free.
	draw := func(except int) int {
		for {
			if s := r.IntN(switches); s != except && degree[s] < MaxPorts {
				degree[s]++
				return s
			}
		}
	}
	ends := make([][2]int, 0, links)
	order := r.Perm(switches)
	for i := 1; i < switches; i++ {
		// A tree node hangs off any earlier one that has room.
		up := order[r.IntN(i)]
		for degree[up] >= MaxPorts {
			up = order[r.IntN(i)]
		}
		degree[up]++
		degree[order[i]]++
		ends = append(ends, [2]int{up, order[i]})
	}
	for len(ends) < links {
		x := draw(-1)
		ends = append(ends, [2]int{x, draw(x)})
	}
	at := make([]int, hosts)
	for i := range at {
		at[i] = draw(-1)
	}
	next := make([]int, switches)
	for i := range switches {
		b.sw("sw", i+1, max(degree[i], 1))
		next[i] = 1
	}
	plug := func(s int) (*Node, int) {
		next[s]++
		return b.g.switches[s], next[s] - 1
	}
	for i, s := range at {
		sw, p := plug(s)
		b.attach(i, sw, p)
	}
	for _, e := range ends {
		x, px := plug(e[0])
		y, py := plug(e[1])
		b.cable(x, px, y, py)
	}
	return b.g
}
