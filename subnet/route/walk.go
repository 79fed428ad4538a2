package route

import (
	"slices"

	"softib/proto/ib"
)

// chart is a network laid out flat, so that engines and the judge walk arrays
// rather than slices of slices. A channel is one direction of a cable, numbered by
// the switch and the port that it leaves by.
type chart struct {
	n *Network
	// base is the number of a switch's port 0; base[s+1]-base[s] counts its ports, port 0 included.
	base []int32
	// to is the switch that a channel leads to, NoSwitch for none; back is the channel of the other direction.
	to, back []int32
	// tail is the switch that a channel leaves, and port the port.
	tail []int32
	port []uint8
	// words is how many 64-bit words hold one bit for each port of any switch.
	words int
	// part numbers the connected parts of the network, by switch.
	part []int32
}

func newChart(n *Network) *chart {
	c := &chart{n: n, base: make([]int32, len(n.Switches)+1), words: 1}
	total := int32(0)
	for s := range n.Switches {
		c.base[s] = total
		total += int32(len(n.Switches[s].Ports))
		c.words = max(c.words, (len(n.Switches[s].Ports)+63)/64)
	}
	c.base[len(n.Switches)] = total
	c.to = make([]int32, total)
	c.back = make([]int32, total)
	c.tail = make([]int32, total)
	c.port = make([]uint8, total)
	for s := range n.Switches {
		for p, hop := range n.Switches[s].Ports {
			ch := c.base[s] + int32(p)
			c.tail[ch], c.port[ch] = int32(s), uint8(p)
			c.to[ch], c.back[ch] = NoSwitch, -1
			// A cable counts only if both ends agree on it: tables are judged by where packets really get to.
			if p == 0 || hop.To < 0 || int(hop.To) >= len(n.Switches) {
				continue
			}
			far := n.Switches[hop.To].Ports
			if int(hop.Port) < len(far) && far[hop.Port] == (Hop{To: int32(s), Port: ib.PortNum(p)}) {
				c.to[ch], c.back[ch] = hop.To, c.base[hop.To]+int32(hop.Port)
			}
		}
	}
	c.findParts()
	return c
}

// channels counts all channel numbers, those of ports without a cable included.
func (c *chart) channels() int { return len(c.to) }

func (c *chart) switches() int { return len(c.base) - 1 }

// out are the channels that leave a switch, as a range of numbers without port 0.
func (c *chart) out(s int32) (first, end int32) {
	return min(c.base[s]+1, c.base[s+1]), c.base[s+1]
}

// hop is the channel that a forwarding entry means, -1 for one that leads to no other switch.
func (c *chart) hop(s int32, p uint8) int32 {
	ch := c.base[s] + int32(p)
	if ch >= c.base[s+1] || c.to[ch] < 0 {
		return -1
	}
	return ch
}

func (c *chart) findParts() {
	c.part = make([]int32, c.switches())
	for s := range c.part {
		c.part[s] = -1
	}
	var queue []int32
	parts := int32(0)
	for s := range c.part {
		if c.part[s] >= 0 {
			continue
		}
		c.part[s] = parts
		queue = append(queue[:0], int32(s))
		for len(queue) > 0 {
			u := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			for ch, end := c.out(u); ch < end; ch++ {
				if v := c.to[ch]; v >= 0 && c.part[v] < 0 {
					c.part[v] = parts
					queue = append(queue, v)
				}
			}
		}
		parts++
	}
}

// Depths of a way that does not arrive.
const (
	depthUnknown int32 = -1 - iota
	depthOnWay
	depthLost
	depthLoops
)

// walker follows forwarding tables towards one destination after the other. Each
// switch is visited once per destination, whatever the number of ways through it.
type walker struct {
	*chart
	t *Tables
	// byLID are the destinations' indices in the order of their LIDs: neighbours share cache lines of the tables.
	byLID []int32
	// cols are the entries of one block of LIDs, turned so that those of one LID lie together.
	cols      []uint8
	colsFirst int

	// After load: how many links each switch is away from the destination (or one of the
	// negative depths), the channel by which it gets there, and the switches that do arrive, each one behind the
	// switch that it forwards to.
	depth, via, order []int32
	// loop is a switch of the last loop that was found, -1 if there was none.
	loop  int32
	stack []int32
}

const walkBlock = 64

func newWalker(c *chart, t *Tables) *walker {
	s := c.switches()
	w := &walker{
		chart: c, t: t, byLID: make([]int32, len(c.n.Dests)),
		cols: make([]uint8, walkBlock*s), colsFirst: -1,
		depth: make([]int32, s), via: make([]int32, s), order: make([]int32, 0, s), stack: make([]int32, 0, s),
	}
	for i := range w.byLID {
		w.byLID[i] = int32(i)
	}
	slices.SortStableFunc(w.byLID, func(a, b int32) int { return int(c.n.Dests[a].LID) - int(c.n.Dests[b].LID) })
	return w
}

// turn reads the block of tables that holds a LID.
func (w *walker) turn(lid int) {
	first := lid &^ (walkBlock - 1)
	if first == w.colsFirst {
		return
	}
	w.colsFirst = first
	count := w.switches()
	for s := range count {
		var row []ib.PortNum
		if s < len(w.t.LFT) && first < len(w.t.LFT[s]) {
			row = w.t.LFT[s][first:min(first+walkBlock, len(w.t.LFT[s]))]
		}
		for j := range walkBlock {
			p := NoPort
			if j < len(row) {
				p = row[j]
			}
			w.cols[j*count+s] = uint8(p)
		}
	}
}

// load walks from every switch to one destination.
func (w *walker) load(dest int) {
	d := &w.n.Dests[dest]
	w.turn(int(d.LID))
	count := w.switches()
	at := (int(d.LID) - w.colsFirst) * count
	col := w.cols[at : at+count]
	depth, via := w.depth[:count], w.via[:count]
	for s := range depth {
		depth[s] = depthUnknown
	}
	w.order, w.loop = w.order[:0], -1
	if int(d.Switch) < count && col[d.Switch] == uint8(d.Port) {
		depth[d.Switch], via[d.Switch] = 0, -1
		w.order = append(w.order, d.Switch)
	}
	for s := range depth {
		if depth[s] != depthUnknown {
			continue
		}
		stack := w.stack[:0]
		x := int32(s)
		for depth[x] == depthUnknown {
			depth[x] = depthOnWay
			stack = append(stack, x)
			ch := w.hop(x, col[x])
			via[x] = ch
			if ch < 0 {
				depth[x] = depthLost
				break
			}
			x = w.to[ch]
		}
		end := depth[x]
		if end == depthOnWay {
			end, w.loop = depthLoops, x
		}
		for i := len(stack) - 1; i >= 0; i-- {
			u := stack[i]
			if end >= 0 {
				end++
				w.order = append(w.order, u)
			}
			depth[u] = end
		}
	}
}
