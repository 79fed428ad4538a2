package flow

import (
	"fmt"
	"math"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Timing is what a path's latency is made of.
type Timing struct {
	// Switch is how long a switch takes to let a packet go on.
	Switch ib.Time
	// PerMM is the delay of a millimetre of cable.
	PerMM ib.Time
}

// Ways finds paths between end ports. A link, here, is one direction of a cable: it has the number of the port that
// sends into it.
type Ways struct {
	g      *topo.Graph
	t      *route.Tables
	base   []int32 // by node: the number of its port 0
	row    []int32 // by node: its row of the tables; -1 for one that is no switch
	groups *route.Groups
	lid    []ib.LID // by link: of the end port that has it
	dest   []int32  // and its place in route.Network.Dests
	next   []int32  // by link: the first port of the node that it leads to, -1 for no cable
	into   []int32  // and the port that it leads to
	delay  []ib.Time
	rates  []float64
	timing Timing
	spread
}

// NewWays lays out a graph whose tables were computed for route.FromGraph of it, and the groups that go with them, if
// switches may choose.
func NewWays(g *topo.Graph, n *route.Network, t *route.Tables, groups *route.Groups, timing Timing) *Ways {
	w := &Ways{g: g, t: t, groups: groups, timing: timing, base: make([]int32, len(g.Nodes)+1),
		row: make([]int32, len(g.Nodes))}
	ports := int32(0)
	for i, node := range g.Nodes {
		w.base[i], w.row[i] = ports, -1
		ports += int32(len(node.Ports))
	}
	w.base[len(g.Nodes)] = ports
	w.lid, w.dest, w.delay = make([]ib.LID, ports), make([]int32, ports), make([]ib.Time, ports)
	w.next, w.into, w.rates = make([]int32, ports), make([]int32, ports), make([]float64, ports)
	for i, node := range g.Nodes {
		for p := range node.Ports {
			at, port := w.base[i]+int32(p), &node.Ports[p]
			w.next[at] = -1
			if p == 0 || !port.Connected() {
				continue
			}
			w.next[at], w.into[at] = int32(port.Peer), w.base[port.Peer]+int32(port.PeerPort)
			w.delay[at] = ib.Time(port.LengthMM) * timing.PerMM
			rate := port.Rate().Lesser(g.Nodes[port.Peer].Ports[port.PeerPort].Rate())
			w.rates[at] = float64(rate.Mbps()) / 8e6 // bytes a picosecond
		}
	}
	switches := g.Switches()
	for s, node := range switches {
		w.row[node.Index] = int32(s)
	}
	for i, d := range n.Dests {
		if d.IsEnd() && d.PathBits == 0 {
			at := w.into[w.base[switches[d.Switch].Index]+int32(d.Port)]
			w.lid[at], w.dest[at] = d.LID, int32(i)
		}
	}
	return w
}

// Rates are what the links carry, in bytes a picosecond, 0 for those of ports without a cable. Read them only.
func (w *Ways) Rates() []float64 { return w.rates }

// LID is the address of an end port.
func (w *Ways) LID(r topo.PortRef) ib.LID { return w.lid[w.Link(r)] }

// Link is the number of a port's link.
func (w *Ways) Link(r topo.PortRef) int32 { return w.base[r.Node] + int32(r.Port) }

// Choice is what a switch may choose from: the links from First on that have a port's number in Ports. Home is the one
// that the forwarding table has.
type Choice struct {
	Switch int // its place among the graph's
	First  int32
	Ports  ib.PortMask
	Home   ib.PortNum
}

// Path appends the links from one end port to another to dst, and adds up their latency. Pick says which port a switch
// takes that has several; with nil it is that of the forwarding table. The error says where packets do not go on.
func (w *Ways) Path(dst []int32, from, to topo.PortRef, pick func(Choice) ib.PortNum) ([]int32, ib.Time, error) {
	if from == to {
		return dst, 0, nil
	}
	at, goal := w.Link(from), w.Link(to)
	latency := ib.Time(0)
	for hops := 0; ; hops++ {
		if err := w.passable(at, hops, from, to); err != nil {
			return dst, 0, err
		}
		dst = append(dst, at)
		latency += w.delay[at]
		if w.into[at] == goal {
			return dst, latency, nil
		}
		c, err := w.choice(w.next[at], goal, from, to)
		if err != nil {
			return dst, 0, err
		}
		if pick != nil && !c.Ports.Empty() {
			c.Home = pick(c)
		}
		at = c.First + int32(c.Home)
		latency += w.timing.Switch
	}
}

// passable says why a link is none to go by, after so many.
func (w *Ways) passable(at int32, hops int, from, to topo.PortRef) error {
	if hops > len(w.t.LFT)+1 {
		return fmt.Errorf("from %s to %s: packets go in a circle", w.g.PortName(from), w.g.PortName(to))
	}
	if w.next[at] < 0 {
		return fmt.Errorf("from %s to %s: there is no cable at %s", w.g.PortName(from), w.g.PortName(to),
			w.g.PortName(w.Port(at)))
	}
	return nil
}

// choice is what a node may do with packets to the port with link goal.
func (w *Ways) choice(node, goal int32, from, to topo.PortRef) (Choice, error) {
	row, lid := w.row[node], w.lid[goal]
	if row < 0 || int(lid) >= len(w.t.LFT[row]) || w.t.LFT[row][lid] == route.NoPort ||
		int32(w.t.LFT[row][lid]) >= w.base[node+1]-w.base[node] {
		return Choice{}, fmt.Errorf("from %s to %s: %s knows no way on", w.g.PortName(from), w.g.PortName(to),
			w.g.Nodes[node].Name)
	}
	c := Choice{Switch: int(row), First: w.base[node], Home: w.t.LFT[row][lid]}
	if w.groups != nil {
		if k := w.groups.Of[row][w.dest[goal]]; k > 0 {
			c.Ports = w.groups.Sets[row][k-1]
		}
	}
	return c, nil
}

// Port is whose number a link has.
func (w *Ways) Port(link int32) topo.PortRef {
	lo, hi := 0, len(w.base)-1
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; w.base[mid] <= link {
			lo = mid
		} else {
			hi = mid
		}
	}
	return topo.PortRef{Node: lo, Port: ib.PortNum(link - w.base[lo])}
}

// Packets' own bytes: local header, transport header, both checks (IBA 7.7, 9.2, 7.8), and what a WRITE's first packet
// has besides (IBA 9.3.3).
const (
	packetBytes = 8 + 12 + 4 + 2
	writeBytes  = 16
)

// OnWire is how many bytes a message is on a link, cut into packets of a path's MTU; extra is what each packet has
// besides InfiniBand's headers.
func OnWire(bytes uint64, mtu, extra int) float64 {
	packets := max(math.Ceil(float64(bytes)/float64(mtu)), 1)
	return float64(bytes) + packets*float64(packetBytes+extra) + writeBytes
}
