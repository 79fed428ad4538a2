package topo

import "softib/proto/ib"

// Subnets says which subnet each port of a fabric is in. Switches join what is cabled to them; hosts and routers are
// ends, so that each of their ports may be in another subnet (IBA 3.2).
type Subnets struct {
	// Count is how many there are, numbered from 0 in the order of their first nodes.
	Count int
	// Ends counts the end ports of each: each needs a LID.
	Ends []int

	first []int32 // by node: where its ports begin in of
	of    []int32
}

// Of is the subnet of a port, -1 if the port has no cable; that of a switch is its port 0's too.
func (s *Subnets) Of(ref PortRef) int { return int(s.of[s.first[ref.Node]+int32(ref.Port)]) }

// Subnets finds the subnets of a fabric.
func (g *Graph) Subnets() *Subnets {
	s := &Subnets{first: make([]int32, len(g.Nodes)+1)}
	for i, n := range g.Nodes {
		s.first[i+1] = s.first[i] + int32(len(n.Ports))
	}
	s.of = make([]int32, s.first[len(g.Nodes)])
	for i := range s.of {
		s.of[i] = -1
	}
	var queue []int // switches whose ports are to be looked at
	enter := func(ref PortRef, k int32) {
		n := g.Nodes[ref.Node]
		if at := s.first[ref.Node] + int32(ref.Port); !n.IsSwitch() && s.of[at] < 0 {
			s.of[at] = k
			s.Ends[k]++
		}
		if n.IsSwitch() && s.of[s.first[ref.Node]] < 0 {
			s.of[s.first[ref.Node]] = k
			s.Ends[k]++
			queue = append(queue, ref.Node)
		}
	}
	for i, n := range g.Nodes {
		for p := range n.Ports {
			if s.of[s.first[i]+int32(p)] >= 0 || !n.Ports[p].Connected() && (p > 0 || !n.IsSwitch()) {
				continue
			}
			k := int32(s.Count)
			s.Count++
			s.Ends = append(s.Ends, 0)
			enter(PortRef{i, ib.PortNum(p)}, k)
			if !n.IsSwitch() {
				enter(PortRef{n.Ports[p].Peer, n.Ports[p].PeerPort}, k)
			}
			for at := 0; at < len(queue); at++ {
				sw := g.Nodes[queue[at]]
				for q := 1; q < len(sw.Ports); q++ {
					if x := &sw.Ports[q]; x.Connected() {
						s.of[s.first[sw.Index]+int32(q)] = k
						enter(PortRef{x.Peer, x.PeerPort}, k)
					}
				}
			}
			queue = queue[:0]
		}
	}
	return s
}

// Prefix is the upper half of the GIDs of subnet k, counted from 0. A fabric that has no router needs no other than the
// default; those of subnets that routers join are site-local and end in its number, as Mellanox' routers want it.
func (g *Graph) Prefix(k int) uint64 {
	if len(g.routers) == 0 {
		return ib.DefaultGIDPrefix
	}
	return ib.SiteLocalPrefix | uint64(k+1)
}

// lidsMost is how many LIDs the largest subnet needs. Where no router joins them, managers share the addresses out
// among all parts of a fabric.
func (g *Graph) lidsMost() (most int) {
	if len(g.routers) == 0 {
		return g.NumLIDs()
	}
	for _, n := range g.Subnets().Ends {
		most = max(most, n)
	}
	return most
}
