package sim

import (
	"slices"

	"softib/proto/topo"
)

// noPart is the part of a node that has none yet.
const noPart = ^uint8(0)

// divide says which of n parts each node is of: as many hosts in each, with the switches that they are at, and the
// switches above where many of their neighbours are, and few others. Groups are those of Split.
func divide(g *topo.Graph, n int, groups []int32) []uint8 {
	of := make([]uint8, len(g.Nodes))
	for i := range of {
		of[i] = noPart
	}
	members := map[int32][]int{}
	for node, group := range groups {
		if group >= 0 {
			members[group] = append(members[group], node)
		}
	}
	hosts, given := g.Hosts(), 0
	for _, h := range hosts {
		if of[h.Index] != noPart {
			continue
		}
		part := uint8(given * n / len(hosts))
		for _, node := range with(g, h, groups, members) {
			if of[node] == noPart && !g.Nodes[node].IsSwitch() {
				given++
			}
			of[node] = part
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

// with is all that has to be where a host is: its leaf and the other hosts there, its group, and what these bring with
// them.
func with(g *topo.Graph, h *topo.Node, groups []int32, members map[int32][]int) []int {
	list, seen := []int{h.Index}, map[int]bool{h.Index: true}
	add := func(node int) {
		if !seen[node] {
			seen[node] = true
			list = append(list, node)
		}
	}
	for i := 0; i < len(list); i++ {
		node := g.Nodes[list[i]]
		if !node.IsSwitch() {
			if leaf := leafOf(g, node); leaf != nil {
				add(leaf.Index)
			}
			if groups != nil && groups[node.Index] >= 0 {
				for _, other := range members[groups[node.Index]] {
					add(other)
				}
			}
			continue
		}
		for k := range node.Ports {
			if p := &node.Ports[k]; p.Connected() && leafOf(g, g.Nodes[p.Peer]) == node {
				add(p.Peer)
			}
		}
	}
	return list
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
