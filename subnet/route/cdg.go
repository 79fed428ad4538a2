package route

import (
	"fmt"
	"math/bits"

	"softib/proto/ib"
)

// lanesMax is how many data lanes and service levels there are at most (IBA 7.6.3 and 7.6.5: VL 15 is for management).
const lanesMax = 16

// Channel is one lane of one direction of a cable: what a packet holds while it waits for the next.
type Channel struct {
	Switch int32      `json:"switch"`
	Port   ib.PortNum `json:"port"`
	VL     ib.VL      `json:"vl"`
}

func (c Channel) String() string {
	return fmt.Sprintf("switch %d port %d VL %d", c.Switch, c.Port, c.VL)
}

// CDG is the channel dependency graph of ways through a network: an edge says that some
// packet may hold the first channel while it waits for the second. Ways cannot
// deadlock if the graph has no cycle (Dally and Seitz 1987). Channels to and from
// end ports are left out, because nothing waits behind the former and the latter wait for
// nothing in turn: no cycle has one.
//
// Tables may be added more than once; the graph is then that of packets under all of them at the same time.
type CDG struct {
	*chart
	// planes hold, by lane of the first and of the second channel and by first channel, a bit
	// for each port that the second may leave by. Those that no packet needs are nil.
	planes [lanesMax][lanesMax][]uint64
	// load's scratch: the service levels that pass a switch, and with a lane map the lanes of each.
	levels []uint16
	lanes  [][lanesMax]uint16
	// ends are the ports of each switch that end ports hang on; from remembers the lanes that their packets enter on.
	ends [][]ib.PortNum
	from map[laneKey]uint16
}

// laneKey names the packets of one level that leave a switch by one port.
type laneKey struct {
	sw  int32
	out uint8
	sl  ib.SL
}

// NewCDG gives the empty graph of a network.
func NewCDG(n *Network) *CDG { return newCDG(newChart(n)) }

func newCDG(c *chart) *CDG {
	g := &CDG{chart: c, levels: make([]uint16, c.switches()), ends: make([][]ib.PortNum, c.switches()),
		from: map[laneKey]uint16{}}
	for _, d := range c.n.Dests {
		if d.IsEnd() && d.PathBits == 0 {
			g.ends[d.Switch] = append(g.ends[d.Switch], d.Port)
		}
	}
	return g
}

// Traffic says whose packets count.
type Traffic uint8

const (
	// EndTraffic is what end ports send to end ports.
	EndTraffic Traffic = iota
	// AllTraffic is also what switches send and receive.
	AllTraffic
)

// Add adds the dependencies of all ways that tables give.
func (g *CDG) Add(t *Tables, of Traffic) {
	w := newWalker(g.chart, t)
	clear(g.from)
	for _, d := range w.byLID {
		if of == AllTraffic || g.n.Dests[d].IsEnd() {
			w.load(int(d))
			g.addDest(w, int(d), of)
		}
	}
}

func (g *CDG) plane(a, b ib.VL) []uint64 {
	p := &g.planes[a][b]
	if *p == nil {
		*p = make([]uint64, g.channels()*g.words)
	}
	return *p
}

// addDest adds the ways to the destination that the walker has loaded.
func (g *CDG) addDest(w *walker, dest int, of Traffic) {
	if w.t.SLtoVL != nil {
		g.addMapped(w, dest, of)
		return
	}
	levels := g.levels
	for s := range levels {
		levels[s] = 0
		if of == AllTraffic || g.n.Switches[s].Ends > 0 {
			levels[s] = 1 << (w.t.Level(int32(s), dest) & (lanesMax - 1))
		}
	}
	words := int32(g.words)
	for i := len(w.order) - 1; i > 0; i-- {
		u := w.order[i]
		m := levels[u]
		if m == 0 {
			continue
		}
		ch := w.via[u]
		v := w.to[ch]
		levels[v] |= m
		next := w.via[v]
		if next < 0 {
			continue
		}
		out := int32(w.port[next])
		at, bit := ch*words+out>>6, uint64(1)<<(out&63)
		for ; m != 0; m &= m - 1 {
			l := ib.VL(bits.TrailingZeros16(m))
			p := g.planes[l][l]
			if p == nil {
				p = g.plane(l, l)
			}
			p[at] |= bit
		}
	}
}

// addMapped is addDest for tables whose lanes depend on where a packet turns: for each
// level it follows which lanes the packets hold on each channel.
func (g *CDG) addMapped(w *walker, dest int, of Traffic) {
	if g.lanes == nil {
		g.lanes = make([][lanesMax]uint16, g.switches())
	}
	clear(g.lanes)
	for i := len(w.order) - 1; i > 0; i-- {
		u := w.order[i]
		ch := w.via[u]
		held := &g.lanes[u]
		if of == AllTraffic || g.n.Switches[u].Ends > 0 {
			sl := w.t.Level(u, dest) & (lanesMax - 1)
			held[sl] |= g.entry(w.t, u, w.port[ch], sl, of)
		}
		v := w.to[ch]
		next := w.via[v]
		in := ib.PortNum(w.port[w.back[ch]])
		for sl, m := range held {
			if m == 0 || next < 0 {
				continue
			}
			out := w.port[next]
			for ; m != 0; m &= m - 1 {
				a := ib.VL(bits.TrailingZeros16(m))
				b := w.t.turn(v, in, ib.PortNum(out), ib.SL(sl), a)
				g.lanes[v][sl] |= 1 << b
				p := g.plane(a, b)
				p[int(ch)*g.words+int(out>>6)] |= 1 << (out & 63)
			}
		}
	}
}

// turn is the lane of a packet of a level that came to a switch on a lane.
func (t *Tables) turn(sw int32, in, out ib.PortNum, sl ib.SL, came ib.VL) ib.VL {
	if t.ByLane {
		sl = ib.SL(came)
	}
	return t.Lane(sw, in, out, sl) & (lanesMax - 1)
}

// entry is the set of lanes on which packets of a switch's end ports, or its own, leave it.
func (g *CDG) entry(t *Tables, sw int32, out uint8, sl ib.SL, of Traffic) uint16 {
	key := laneKey{sw, out, sl}
	if m, ok := g.from[key]; ok {
		return m
	}
	m := uint16(0)
	for _, in := range g.ends[sw] {
		m |= 1 << (t.Lane(sw, in, ib.PortNum(out), sl) & (lanesMax - 1))
	}
	if of == AllTraffic || m == 0 {
		m |= 1 << (t.Lane(sw, 0, ib.PortNum(out), sl) & (lanesMax - 1))
	}
	g.from[key] = m
	return m
}

// Size counts the dependencies.
func (g *CDG) Size() int {
	count := 0
	for a := range g.planes {
		for _, p := range g.planes[a] {
			for _, w := range p {
				count += bits.OnesCount64(w)
			}
		}
	}
	return count
}

// Lanes counts the lanes that packets use: one more than the highest that a dependency has, at least 1.
func (g *CDG) Lanes() int {
	count := 1
	for a := range g.planes {
		for b, p := range g.planes[a] {
			if p != nil {
				count = max(count, a+1, b+1)
			}
		}
	}
	return count
}

// Cycle is a cycle of the graph, each channel waiting for the one after it and the last for
// the first; nil if there is none, and the ways are free of deadlock.
func (g *CDG) Cycle() []Channel {
	const (
		fresh = iota
		open
		done
	)
	lanes := int32(g.Lanes())
	count := int32(g.channels()) * lanes
	state := make([]uint8, count)
	// A place is where the search of a node goes on: the lane and the word of successors, and its bits that are left.
	type place struct {
		node int32
		step int32
		rest uint64
	}
	var stack []place
	for root := range count {
		if state[root] != fresh || g.to[root/lanes] < 0 {
			continue
		}
		state[root] = open
		stack = append(stack[:0], place{node: root, step: -1})
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			ch, lane := top.node/lanes, top.node%lanes
			for top.rest == 0 && top.step+1 < lanes*int32(g.words) {
				top.step++
				if p := g.planes[lane][top.step/int32(g.words)]; p != nil {
					top.rest = p[ch*int32(g.words)+top.step%int32(g.words)]
				}
			}
			if top.rest == 0 {
				state[top.node] = done
				stack = stack[:len(stack)-1]
				continue
			}
			out := top.step%int32(g.words)*64 + int32(bits.TrailingZeros64(top.rest))
			top.rest &= top.rest - 1
			next := (g.base[g.to[ch]]+out)*lanes + top.step/int32(g.words)
			switch state[next] {
			case fresh:
				state[next] = open
				stack = append(stack, place{node: next, step: -1})
			case open:
				var cycle []Channel
				i := len(stack) - 1
				for stack[i].node != next {
					i--
				}
				for _, p := range stack[i:] {
					ch := p.node / lanes
					cycle = append(cycle, Channel{Switch: g.tail[ch], Port: ib.PortNum(g.port[ch]),
						VL: ib.VL(p.node % lanes)})
				}
				return cycle
			}
		}
	}
	return nil
}
