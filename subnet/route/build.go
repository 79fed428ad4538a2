package route

import (
	"math/rand/v2"
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// FromGraph makes a network of a whole graph and numbers the LIDs itself: 1, 2, 3 and so on
// for the cabled ports of adapters and routers, in the order of the graph, then the switches.
func FromGraph(g *topo.Graph) *Network {
	lids := make(map[topo.PortRef]ib.LID)
	next := ib.LID(1)
	for _, n := range g.Nodes {
		for p := 1; p < len(n.Ports) && !n.IsSwitch(); p++ {
			if n.Ports[p].Connected() {
				lids[topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}] = next
				next++
			}
		}
	}
	for _, n := range g.Switches() {
		lids[topo.PortRef{Node: n.Index}] = next
		next++
	}
	return FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) { return lids[r], 0 })
}

// FromGraphLIDs makes a network of a graph whose end ports have addresses already: lids gives the base LID and LMC of
// a switch's port 0 or an adapter's port; LID 0 leaves the port out. Switches are
// numbered in the order of the graph. A cable from a switch to itself is none for routing.
func FromGraphLIDs(g *topo.Graph, lids func(topo.PortRef) (base ib.LID, lmc uint8)) *Network {
	number := make([]int32, len(g.Nodes))
	for i, n := range g.Switches() {
		number[n.Index] = int32(i)
	}
	n := &Network{Switches: make([]Switch, len(g.Switches()))}
	for i, node := range g.Switches() {
		sw := &n.Switches[i]
		sw.GUID = node.GUID
		sw.Ports = make([]Hop, len(node.Ports))
		n.addDests(int32(i), 0, topo.PortRef{Node: node.Index}, lids)
		for p := range node.Ports {
			sw.Ports[p].To = NoSwitch
			at := &node.Ports[p]
			if p == 0 || !at.Connected() || at.Peer == node.Index {
				continue
			}
			if g.Nodes[at.Peer].IsSwitch() {
				sw.Ports[p] = Hop{To: number[at.Peer], Port: at.PeerPort}
				continue
			}
			sw.Ends++
			n.addDests(int32(i), ib.PortNum(p), topo.PortRef{Node: at.Peer, Port: at.PeerPort}, lids)
		}
	}
	return n
}

func (n *Network) addDests(sw int32, port ib.PortNum, ref topo.PortRef, lids func(topo.PortRef) (ib.LID, uint8)) {
	base, lmc := lids(ref)
	if base == 0 {
		return
	}
	for bits := range 1 << lmc {
		d := Dest{LID: base + ib.LID(bits), Switch: sw, Port: port, PathBits: uint8(bits)}
		n.Dests = append(n.Dests, d)
		n.Top = max(n.Top, d.LID)
	}
}

// Link is a cable between two switches, seen from the end with the lower switch and port.
type Link struct {
	Switch int32
	Port   ib.PortNum
}

// Links lists every cable between switches once, by switch and port.
func (n *Network) Links() []Link {
	var list []Link
	for s := range n.Switches {
		for p, h := range n.Switches[s].Ports {
			if h.To > int32(s) || h.To == int32(s) && int(h.Port) > p {
				list = append(list, Link{int32(s), ib.PortNum(p)})
			}
		}
	}
	return list
}

// Clone is a copy that shares nothing with n but the destinations, which nobody changes.
func (n *Network) Clone() *Network {
	c := &Network{Switches: slices.Clone(n.Switches), Dests: n.Dests, Top: n.Top}
	for i := range c.Switches {
		c.Switches[i].Ports = slices.Clone(c.Switches[i].Ports)
	}
	return c
}

// Cut takes a cable between two switches out of the network, at both ends.
func (n *Network) Cut(l Link) {
	near := &n.Switches[l.Switch].Ports[l.Port]
	if near.To == NoSwitch {
		return
	}
	n.Switches[near.To].Ports[near.Port] = Hop{To: NoSwitch}
	*near = Hop{To: NoSwitch}
}

// CutSwitch takes all cables between a switch and others out of the network.
func (n *Network) CutSwitch(s int32) {
	for p := range n.Switches[s].Ports {
		n.Cut(Link{s, ib.PortNum(p)})
	}
}

// RemoveLinks is the network without a random fraction of the cables between switches, rounded to the nearest number of
// them.
func RemoveLinks(n *Network, fraction float64, r *rand.Rand) *Network {
	c := n.Clone()
	links := n.Links()
	count := min(int(fraction*float64(len(links))+0.5), len(links))
	for i := range count {
		j := i + r.IntN(len(links)-i)
		links[i], links[j] = links[j], links[i]
		c.Cut(links[i])
	}
	return c
}
