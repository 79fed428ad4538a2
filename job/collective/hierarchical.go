package collective

import (
	"errors"
	"fmt"
)

// Hierarchical is an all-reduce in three steps, as for hosts with several ranks or rails: members of the same host,
// those that follow each other, reduce-scatter; those with the same place in their hosts all-reduce their shares, by an
// algorithm of AllReduce; and the hosts' members all-gather. Between hosts each share goes on its own.
func (g *Group) Hierarchical(bytes uint64, perHost int, algorithm string) error {
	n := g.Size()
	if perHost < 1 || n%perHost != 0 {
		return fmt.Errorf("%w: %d ranks do not make hosts of %d", ErrCollective, n, perHost)
	}
	var err error
	limit := g.limited(func() { err = g.inHosts(bytes, perHost, algorithm) })
	return errors.Join(limit, err)
}

// inHosts does the three steps.
func (g *Group) inHosts(bytes uint64, perHost int, algorithm string) error {
	hosts := g.Size() / perHost
	inner := func(do func(*Group, uint64)) {
		for h := range hosts {
			members := make([]int, perHost)
			for k := range members {
				members[k] = h*perHost + k
			}
			g.part(members, func(p int32) []int32 { return pieces(int(p)*hosts, int(p+1)*hosts)() },
				func(s *Group) { do(s, bytes) })
		}
	}
	inner(ringReduceScatter)
	for k := range perHost {
		members := make([]int, hosts)
		for h := range members {
			members[h] = h*perHost + k
		}
		var err error
		g.part(members, func(p int32) []int32 { return []int32{int32(k*hosts) + p} },
			func(s *Group) { err = s.AllReduce(share(bytes, k, perHost), algorithm) })
		if err != nil {
			return err
		}
	}
	inner(ringAllGather)
	return nil
}

// part lets some members do something as a group of their own. What the messages carry is told in the pieces of the
// whole, by what of them one of the part's is.
func (g *Group) part(members []int, whole func(int32) []int32, do func(*Group)) {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = g.ranks[m]
	}
	s := NewGroup(g.b, ranks)
	s.Note, s.AddTime, s.CPU, s.NIC, s.most, s.tag = g.Note, g.AddTime, g.CPU, g.NIC, g.most, g.tag
	s.Payload = g.Payload
	for i, m := range members {
		s.front[i] = g.front[m]
	}
	if len(members) > 1 {
		do(s)
	}
	for i, m := range members {
		g.front[m] = s.front[i]
	}
	g.tag = s.tag
	for _, p := range s.Parts {
		var list []int32
		for _, piece := range p.Pieces {
			list = append(list, whole(piece)...)
		}
		p.From, p.To, p.Pieces = members[p.From], members[p.To], list
		g.Parts = append(g.Parts, p)
	}
}
