package topo

import "softib/proto/ib"

// Unreachable is the distance to a node that no cable path leads to.
const Unreachable = -1

// Distances counts the cables between one node and every other, by node index. Paths
// run through switches only: hosts don't forward, and routers lead out of the subnet.
func (g *Graph) Distances(from int) []int {
	dist := make([]int, len(g.Nodes))
	g.DistancesInto(from, dist, make([]int, 0, len(g.Nodes)))
	return dist
}

// DistancesInto is Distances for a caller that asks often: dist is as long as
// Nodes and is overwritten, queue is scratch space of any length, and is given
// back as it has grown.
func (g *Graph) DistancesInto(from int, dist, queue []int) []int {
	for i := range dist {
		dist[i] = Unreachable
	}
	queue = append(queue[:0], from)
	dist[from] = 0
	for at := 0; at < len(queue); at++ {
		i := queue[at]
		n := g.Nodes[i]
		if i != from && !n.IsSwitch() {
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if x.Connected() && dist[x.Peer] == Unreachable {
				dist[x.Peer] = dist[i] + 1
				queue = append(queue, x.Peer)
			}
		}
	}
	return queue
}

// Closer appends to dst the ports of a node that lead one cable closer to the
// node that dist was computed from, in the order of their numbers. It is what a
// minimum-hop table is made of.
func (g *Graph) Closer(node int, dist []int, dst []ib.PortNum) []ib.PortNum {
	n := g.Nodes[node]
	for p := 1; p < len(n.Ports); p++ {
		x := &n.Ports[p]
		// A host in the way is an end, unless it is the node itself.
		if x.Connected() && dist[x.Peer] == dist[node]-1 && dist[node] > 0 &&
			(dist[x.Peer] == 0 || g.Nodes[x.Peer].IsSwitch()) {
			dst = append(dst, ib.PortNum(p))
		}
	}
	return dst
}

// Diameter is the largest number of cables between two hosts that reach each
// other, 0 when there are none.
func (g *Graph) Diameter() int {
	widest := 0
	dist, queue := make([]int, len(g.Nodes)), make([]int, 0, len(g.Nodes))
	for _, start := range g.attachments() {
		queue = g.DistancesInto(start.node, dist, queue)
		for _, h := range g.hosts {
			if h.Index == start.only {
				continue
			}
			if d := dist[h.Index]; d != Unreachable {
				widest = max(widest, d+start.extra)
			}
		}
	}
	return widest
}

// attachment is a place from which all the hosts behind it see the others: a switch
// with hosts, or a host that is cabled to no switch.
type attachment struct {
	node, extra int
	// only is the one host behind it, whose distance to itself doesn't count.
	only int
}

func (g *Graph) attachments() []attachment {
	var out []attachment
	for _, n := range g.Nodes {
		hosts, only := 0, -1
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Connected() || g.Nodes[x.Peer].Type != ib.NodeCA || only == x.Peer {
				continue
			}
			hosts, only = hosts+1, x.Peer
		}
		switch {
		case n.IsSwitch() && hosts == 1:
			out = append(out, attachment{n.Index, 1, only})
		case n.IsSwitch() && hosts > 1:
			out = append(out, attachment{n.Index, 1, -1})
		case n.Type == ib.NodeCA && hosts > 0:
			out = append(out, attachment{n.Index, 0, n.Index})
		}
	}
	return out
}
