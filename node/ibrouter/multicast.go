package ibrouter

import (
	"cmp"
	"slices"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Multicast between subnets. The manager of each subnet tells the router's port there which groups have members who
// receive, in its own subnet or beyond other routers of it, each with the prefix of the subnet that has them. From that
// follows what each port wants: the groups that others of its ports were told of. News of a subnet's members is passed
// on only from where the best way to that subnet is, and managers listen only to the routers that are nearest to it. So
// it travels away from there, and nothing is wanted for ever because routers have told each other.
//
// A packet is taken on from where the best way back to its sender is, and of several routers that could take it into a
// subnet the one does that is nearest to the sender, with the lowest LID where they are alike: all of them know what
// the others reach. So each subnet gets it once.

// tell writes an entry of the groups that a port's subnet has.
func (r *Router) tell(num ib.PortNum, index int, g mad.RouterGroup) {
	p := &r.ports[num]
	if index >= len(p.groups) {
		if g.MGID == (ib.GID{}) {
			return
		}
		p.groups = append(p.groups, make([]mad.RouterGroup, index+1-len(p.groups))...)
	}
	if p.groups[index] == g {
		return
	}
	p.groups[index] = g
	r.regroup()
}

// believes reports whether what a port was told of members in a subnet is passed on.
func (r *Router) believes(num ib.PortNum, origin uint64) bool {
	ways := r.ways(origin)
	return len(ways) > 0 && ways[0].out == num
}

// regroup finds what each port wants, and the LID that each group has there.
func (r *Router) regroup() {
	for i := 1; i < len(r.ports); i++ {
		r.ports[i].mlids = map[ib.GID]ib.LID{}
	}
	wants := make([][]mad.RouterGroup, len(r.ports))
	for i := 1; i < len(r.ports); i++ {
		p := &r.ports[i]
		for _, g := range p.groups {
			if g.MGID == (ib.GID{}) {
				continue
			}
			p.mlids[g.MGID] = g.MLID
			if !r.believes(ib.PortNum(i), g.Origin) {
				continue
			}
			g.MLID, g.Top = 0, 0
			for k := 1; k < len(r.ports); k++ {
				if k != i && r.ports[k].prefix != g.Origin {
					wants[k] = append(wants[k], g)
				}
			}
		}
	}
	for i := 1; i < len(r.ports); i++ {
		w := wants[i]
		slices.SortFunc(w, func(a, b mad.RouterGroup) int {
			return cmp.Or(slices.Compare(a.MGID[:], b.MGID[:]), cmp.Compare(a.Origin, b.Origin))
		})
		w = slices.CompactFunc(w, func(a, b mad.RouterGroup) bool { return a.MGID == b.MGID && a.Origin == b.Origin })
		w = w[:min(len(w), agent.RouterGroupCap)]
		if p := &r.ports[i]; !slices.Equal(p.wanted, w) {
			p.wanted = w
			r.changed.Set(ib.PortNum(i))
		}
	}
}

// Fan lists the ports by which a multicast packet that came in by a port leaves; none if that is another router's to
// do, or nobody's.
func (r *Router) Fan(in ib.PortNum, p *wire.Packet) (outs ib.PortMask) {
	g := &p.GRH
	from := g.SGID.Prefix()
	back := r.ways(from)
	if !mad.IsRouted(g.DGID) || g.HopLimit <= 1 || from == ib.DefaultGIDPrefix || len(back) == 0 || back[0].out != in {
		return outs
	}
	for i := 1; i < len(r.ports); i++ {
		q := &r.ports[i]
		if ib.PortNum(i) == in || q.prefix == from || q.prefix == r.ports[in].prefix || q.mlids[g.DGID] == 0 ||
			q.link.State() != ib.PortActive || !q.nearest(from, back[0].weight) || r.twin(q, g.DGID) {
			continue
		}
		outs.Set(ib.PortNum(i))
	}
	return outs
}

// twin reports whether another port of the router takes a group's packets into a port's subnet: the one with the lowest
// LID does.
func (r *Router) twin(p *port, mgid ib.GID) bool {
	return slices.ContainsFunc(r.ports[1:], func(o port) bool {
		return o.prefix == p.prefix && o.lid < p.lid && o.mlids[mgid] != 0 && o.link.State() == ib.PortActive
	})
}

// nearest reports whether no other router of a port's subnet is nearer to another subnet than so many routers, or as
// near with a lower LID.
func (p *port) nearest(prefix uint64, weight uint8) bool {
	return !slices.ContainsFunc(p.peers, func(h mad.NextHop) bool {
		return h.Prefix == prefix && h.Weight > 0 &&
			cmp.Or(cmp.Compare(h.Weight, weight), cmp.Compare(h.LID, p.lid)) < 0
	})
}

// Leave says how a multicast packet leaves by one of the ports that Fan lists.
func (r *Router) Leave(out ib.PortNum, lrh *wire.LRH, p *wire.Packet) Decision {
	q := &r.ports[out]
	d := Decision{Out: out, At: out, SLID: q.lid, DLID: q.mlids[p.GRH.DGID]}
	d.VL, d.Reason = q.link.Depart(lrh.SL)
	return d
}

// multicast queues a copy of a packet at each of its ways out. They hold its receive buffer until the last has left.
func (r *Router) multicast(now ib.Time, in ib.PortNum, f *link.Frame) Result {
	outs := r.Fan(in, f.Packet)
	id, ok := uint16(0), !outs.Empty()
	reason := link.NoMember
	if ok {
		if id, ok = r.copies.Begin(); !ok {
			reason = r.ports[in].link.Count(link.Overrun)
		}
	}
	if !ok {
		return Result{Reason: reason}
	}
	res := Result{}
	f.InPort = in
	for out, ok := outs.Pop(); ok; out, ok = outs.Pop() {
		d := r.Leave(out, &f.LRH, f.Packet)
		if d.Reason != link.OK {
			reason = r.ports[out].link.Count(d.Reason)
			continue
		}
		c := r.pool.Get()
		c.CopyFrom(f)
		c.Group = id
		d.Readdress(&c.LRH, c.Packet)
		if why := r.ports[out].link.Enqueue(now, c, d.VL); why.IsDrop() {
			reason = why
			r.pool.Put(c)
			continue
		}
		r.copies.Add(id)
		res.Outs.Set(out)
	}
	f.Group = id
	if r.copies.End(f) {
		return Result{Reason: reason}
	}
	r.pool.Put(f)
	return res
}
