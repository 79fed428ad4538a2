package topo

import (
	"strings"

	"softib/proto/ib"
)

// partDesc is in the description of nodes that are part of a switch.
const partDesc = "Aggregation Node"

// IsPart reports whether an end node belongs to the switch that it hangs on, whichever of the two is named first: the
// node for reductions within a switch (SHARP) has the switch's own system image GUID, or says what it is.
func IsPart(end, sw *Node) bool {
	return end.SystemGUID == sw.SystemGUID || strings.Contains(end.Desc, partDesc) ||
		strings.Contains(sw.Desc, partDesc)
}

// IsPart reports whether a node is part of the switch that it hangs on: it is a node of the fabric, and no host that
// anybody has.
func (g *Graph) IsPart(n *Node) bool {
	if n.Type != ib.NodeCA || n.NumPorts() != 1 || !n.Ports[1].Connected() {
		return false
	}
	far := g.Nodes[n.Ports[1].Peer]
	return far.IsSwitch() && IsPart(n, far)
}

// HostsApart are the channel adapters that somebody has, and those that are part of switches and serve the fabric.
func (g *Graph) HostsApart() (hosts, service []*Node) {
	for _, h := range g.hosts {
		if g.IsPart(h) {
			service = append(service, h)
		} else {
			hosts = append(hosts, h)
		}
	}
	return hosts, service
}

// Servers finds the servers that have several adapters, one for each GPU: channel adapters with one system image GUID.
// It returns by node which server it is in, numbered in the order of the graph, or -1; and how many there are.
func (g *Graph) Servers() (of []int32, count int) {
	of = make([]int32, len(g.Nodes))
	members := map[ib.GUID]int{}
	for i, n := range g.Nodes {
		of[i] = -1
		if n.Type == ib.NodeCA {
			members[n.SystemGUID]++
		}
	}
	number := map[ib.GUID]int32{}
	for _, h := range g.hosts {
		if members[h.SystemGUID] < 2 {
			continue
		}
		k, ok := number[h.SystemGUID]
		if !ok {
			k = int32(count)
			number[h.SystemGUID] = k
			count++
		}
		of[h.Index] = k
	}
	return of, count
}
