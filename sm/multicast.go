package sm

import (
	"errors"
	"fmt"

	"softib/ib"
	"softib/mad"
	"softib/topo"
)

// ErrGroup is matched when a multicast group cannot be made as asked.
var ErrGroup = errors.New("multicast group")

// ProgramMulticast makes mlid reach exactly the given ports of adapters, from any of
// them: a tree of links in the multicast tables. Members that are not connected
// now are left out.
func ProgramMulticast(g *topo.Graph, f Fabric, mlid ib.LID, members []topo.PortRef) error {
	if !mlid.IsMulticast() {
		return fmt.Errorf("sm: multicast LID %v: want 0x%x to 0x%x: %w", mlid, int(ib.LIDMulticastMin), int(ib.LIDMulticastMax), ErrGroup)
	}
	for _, m := range members {
		if p := g.Port(m); p == nil || m.Port == 0 || g.Nodes[m.Node].IsSwitch() {
			return fmt.Errorf("sm: group %v: member %s: want a port of a host: %w", mlid, g.PortName(m), ErrGroup)
		}
	}
	s, err := discover(g, f)
	if err != nil {
		return err
	}
	w := s.wiring()
	return s.writeGroup(w, orient(w), mlid, members)
}

// portSet is a set of ports as multicast tables hold it, 16 to a position.
type portSet [16]uint16

func (p *portSet) add(n ib.PortNum) { p[n/mad.MFTPortMask] |= 1 << (n % mad.MFTPortMask) }

// writeGroup writes a group's entry at every switch, also where it becomes empty.
func (s *subnet) writeGroup(w *wiring, dir *direction, mlid ib.LID, members []topo.PortRef) error {
	member := make([]bool, len(w.out))
	sets := make([]portSet, len(w.out))
	for _, m := range sortedPorts(members) {
		if !s.up(m.Node, m.Port) {
			continue
		}
		x := &s.g.Nodes[m.Node].Ports[m.Port]
		if sw := s.swOf[x.Peer]; sw >= 0 {
			member[sw] = true
			sets[sw].add(x.PeerPort)
		}
	}
	for _, l := range tree(w, dir, member, int(mlid-ib.LIDMulticastMin)) {
		sets[l.from].add(l.port)
	}
	index := int(mlid - ib.LIDMulticastMin)
	for at, i := range s.swNodes {
		if err := s.writeEntry(int(i), index, &sets[at]); err != nil {
			return err
		}
	}
	return nil
}

// writeEntry writes one entry of a switch's multicast table, where it differs.
func (s *subnet) writeEntry(node, index int, set *portSet) error {
	if limit := int(s.switches[node].MulticastFDBCap); index >= limit {
		return fmt.Errorf("sm: %s: multicast LID 0x%x: want at most 0x%x, its MulticastFDBCap: %w",
			s.g.Nodes[node].Name, int(ib.LIDMulticastMin)+index, int(ib.LIDMulticastMin)+limit-1, ErrGroup)
	}
	for position := 0; position*mad.MFTPortMask <= s.g.Nodes[node].NumPorts(); position++ {
		mod := mad.MFTModifier(index/mad.MFTPerBlock, position)
		var block mad.MFT
		if err := s.get(node, 0, mad.AttrMFT, mod, &block); err != nil {
			return err
		}
		entry := &block[index%mad.MFTPerBlock]
		if *entry == set[position] {
			continue
		}
		*entry = set[position]
		if err := s.set(node, 0, mad.AttrMFT, mod, &block); err != nil {
			return err
		}
	}
	return nil
}

// branch is one end of a link of a multicast tree.
type branch struct {
	from int32
	port ib.PortNum
}

// tree joins the member switches of each part of the fabric by links, both ends of
// which it lists. Ways in it go up to a top switch and down again, as
// unicast does, so that the two cannot lock each other. Groups differ in the
// top switch by their number.
func tree(w *wiring, dir *direction, member []bool, number int) []branch {
	var links []branch
	part := components(w)
	dist, queue := make([]int32, len(w.out)), make([]int32, 0, len(w.out))
	for p := range w.out {
		if part[p] != int32(p) {
			continue
		}
		var tops, members []int32
		for _, s := range dir.topmost {
			if part[s] != int32(p) {
				continue
			}
			if len(dir.up[s]) == 0 {
				tops = append(tops, s)
			}
			if member[s] {
				members = append(members, s)
			}
		}
		if len(members) < 2 {
			continue
		}
		reached := func() bool {
			for _, m := range members {
				if dist[m] == far {
					return false
				}
			}
			return true
		}
		out := dir.down
		found := false
		for k := 0; k < len(tops) && !found; k++ {
			queue = search(out, tops[(number+k)%len(tops):][:1], dist, queue)
			found = reached()
		}
		if !found { // no switch is above all members: any tree will do
			out = w.out
			queue = search(out, tops[:1], dist, queue)
		}
		links = append(links, prune(out, queue, dist, member)...)
	}
	return links
}

// prune keeps of a search's tree what joins the members. The search has visited
// visited in that order, the root first.
func prune(out [][]edge, visited, dist []int32, member []bool) []branch {
	type parentLink struct {
		from int32
		edge
	}
	parent := make([]parentLink, len(out))
	seen := make([]bool, len(out))
	for _, s := range visited {
		for _, e := range out[s] {
			if dist[e.to] == dist[s]+1 && !seen[e.to] {
				seen[e.to] = true
				parent[e.to] = parentLink{s, e}
			}
		}
	}
	// below counts the children of each switch that lead to members.
	below := make([]int, len(out))
	keep := make([]bool, len(out))
	for i := len(visited) - 1; i >= 0; i-- {
		s := visited[i]
		keep[s] = member[s] || below[s] > 0
		if keep[s] && i > 0 {
			below[parent[s].from]++
		}
	}
	// The stem from the root to where the tree first forks carries nothing.
	for _, s := range visited {
		if member[s] || below[s] > 1 {
			break
		}
		keep[s] = false
	}
	var links []branch
	for _, s := range visited[1:] {
		up := parent[s]
		if keep[s] && keep[up.from] {
			links = append(links, branch{up.from, up.port}, branch{s, up.peer})
		}
	}
	return links
}
