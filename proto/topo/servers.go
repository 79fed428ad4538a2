package topo

import "softib/proto/ib"

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
