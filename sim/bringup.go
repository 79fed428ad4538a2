package sim

import (
	"softib/hca"
	"softib/ib"
	"softib/topo"
)

// BringUp makes the fabric carry traffic at once: all links up, a LID for each
// cabled port of a host and for each switch, shortest paths in the forwarding
// tables, all ports Active. It stands in for a subnet manager where the
// management itself is not what is simulated.
func (s *Sim) BringUp() {
	s.autoActive = true
	s.LinksUp()
	s.assignLIDs()
	s.route()
}

// LinksUp trains every link at once, to Initialize, where a subnet manager begins.
func (s *Sim) LinksUp() {
	for at, p := range s.ports {
		if p.Site.Peer != noEnd && uint32(at) < p.Site.Peer {
			p.Train()
			s.ports[p.Site.Peer].Train()
			s.trained(uint32(at))
		}
	}
}

// assignLIDs gives hosts the first LIDs, in order, and switches the next.
func (s *Sim) assignLIDs() {
	lid := ib.LID(0)
	s.lids = make([]ib.LID, len(s.ports))
	for _, n := range s.graph.Nodes {
		if n.IsSwitch() {
			continue
		}
		for num := 1; num < len(n.Ports); num++ {
			if !n.Ports[num].Connected() {
				continue
			}
			lid++
			at := s.firstEnd[n.Index] + uint32(num)
			s.lids[at] = lid
			if a, ok := s.hosts[s.hostOf[n.Index]].eng.(*hca.HCA); ok {
				p := *a.Port(ib.PortNum(num))
				p.LID = lid
				p.State = s.ports[at].State()
				p.MTU = s.ports[at].NeighborMTU()
				a.SetPort(ib.PortNum(num), p)
			}
		}
	}
	for _, n := range s.graph.Switches() {
		lid++
		s.lids[s.firstEnd[n.Index]] = lid
		s.switches[n.Index].SetLID(lid, 0)
	}
}

// LID is the address that BringUp gave a port; a switch's is its port 0's.
func (s *Sim) LID(ref topo.PortRef) ib.LID {
	if s.lids == nil {
		return ib.LIDReserved
	}
	return s.lids[s.firstEnd[ref.Node]+uint32(ref.Port)]
}

// route writes shortest paths, spread over the ports that lie on one.
func (s *Sim) route() {
	for _, d := range s.graph.Nodes {
		if !d.IsSwitch() {
			continue
		}
		targets := s.lidsAt(d)
		dist := s.distances(d.Index)
		for _, n := range s.graph.Switches() {
			if n == d || dist[n.Index] < 0 {
				continue
			}
			var ways []ib.PortNum
			for num := 1; num < len(n.Ports); num++ {
				if p := &n.Ports[num]; p.Connected() && s.graph.Nodes[p.Peer].IsSwitch() && dist[p.Peer] == dist[n.Index]-1 {
					ways = append(ways, ib.PortNum(num))
				}
			}
			for _, lid := range targets {
				// Alternate digits of the destination choose on alternate hops, so
				// that the choices of two levels of a tree are independent.
				k := int(lid) - 1
				if dist[n.Index]%2 != 0 {
					k /= len(ways)
				}
				s.setRoute(n, lid, ways[k%len(ways)])
			}
		}
	}
}

// setRoute writes an entry for a LID that assignLIDs made, which fits any table.
func (s *Sim) setRoute(n *topo.Node, lid ib.LID, port ib.PortNum) {
	if err := s.switches[n.Index].SetRoute(lid, port); err != nil {
		panic(err)
	}
}

// lidsAt lists the LIDs that are reached by way of a switch, its own included,
// and writes that switch's routes to them.
func (s *Sim) lidsAt(d *topo.Node) []ib.LID {
	own := s.lids[s.firstEnd[d.Index]]
	s.setRoute(d, own, 0)
	list := []ib.LID{own}
	for num := 1; num < len(d.Ports); num++ {
		p := &d.Ports[num]
		if !p.Connected() || s.graph.Nodes[p.Peer].IsSwitch() {
			continue
		}
		lid := s.lids[s.firstEnd[p.Peer]+uint32(p.PeerPort)]
		s.setRoute(d, lid, ib.PortNum(num))
		list = append(list, lid)
	}
	return list
}

// distances counts the hops from each switch to one of them; -1 for none.
func (s *Sim) distances(to int) []int {
	dist := make([]int, len(s.graph.Nodes))
	for i := range dist {
		dist[i] = -1
	}
	dist[to] = 0
	queue := []int{to}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for num := 1; num < len(s.graph.Nodes[n].Ports); num++ {
			p := &s.graph.Nodes[n].Ports[num]
			if p.Connected() && s.graph.Nodes[p.Peer].IsSwitch() && dist[p.Peer] < 0 {
				dist[p.Peer] = dist[n] + 1
				queue = append(queue, p.Peer)
			}
		}
	}
	return dist
}
