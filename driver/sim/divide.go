package sim

import (
	"slices"

	"softib/proto/topo"
)

// noPart is the part of a node that has none yet.
const noPart = ^uint8(0)

// divide says which of n parts each node is of: as many hosts in each, with the switches that they are at, and the
// switches above where many of their neighbours are, and few others.
func divide(g *topo.Graph, n int) []uint8 {
	of := make([]uint8, len(g.Nodes))
	for i := range of {
		of[i] = noPart
	}
	hosts, given := g.Hosts(), 0
	for _, h := range hosts {
		if of[h.Index] != noPart {
			continue
		}
		part := uint8(given * n / len(hosts))
		leaf := leafOf(g, h)
		if leaf == nil {
			of[h.Index] = part
			given++
			continue
		}
		of[leaf.Index] = part
		for i := range leaf.Ports {
			if p := &leaf.Ports[i]; p.Connected() && leafOf(g, g.Nodes[p.Peer]) == leaf && of[p.Peer] == noPart {
				of[p.Peer] = part
				given++
			}
		}
	}
	sizes := make([]int, n)
	for rise(g, of, sizes) {
	}
	for i := range of {
		if of[i] == noPart { // joined to nothing
			of[i] = 0
		}
	}
	return of
}

// leafOf is the switch at a host's first cable; nil if there is none, or for a switch.
func leafOf(g *topo.Graph, n *topo.Node) *topo.Node {
	if n.IsSwitch() {
		return nil
	}
	for i := range n.Ports {
		if p := &n.Ports[i]; p.Connected() {
			if peer := g.Nodes[p.Peer]; peer.IsSwitch() {
				return peer
			}
			return nil
		}
	}
	return nil
}

// rise gives a part to the switches that have a neighbour with one. It reports whether there were any.
func rise(g *topo.Graph, of []uint8, sizes []int) bool {
	got := map[int]uint8{}
	near := make([]int, len(sizes))
	for _, sw := range g.Switches() {
		if of[sw.Index] != noPart {
			continue
		}
		clear(near)
		found := false
		for i := range sw.Ports {
			if p := &sw.Ports[i]; p.Connected() && of[p.Peer] != noPart {
				near[of[p.Peer]]++
				found = true
			}
		}
		if !found {
			continue
		}
		best := -1
		for i, most := 0, slices.Max(near); i < len(near); i++ {
			if near[i] > most/2 && (best < 0 || sizes[i] < sizes[best]) {
				best = i
			}
		}
		sizes[best]++
		got[sw.Index] = uint8(best)
	}
	for node, part := range got {
		of[node] = part
	}
	return len(got) > 0
}
