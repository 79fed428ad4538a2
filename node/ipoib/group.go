package ipoib

import (
	"net/netip"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// group is a multicast group that the interface is in, or sends to.
type group struct {
	mgid     ib.GID
	full     bool // the host listens
	way      *Way // nil until joined
	asked    bool
	refused  bool // the administrator has said no
	again    ib.Time
	deadline ib.Time
	used     ib.Time
	queue    queue
}

func (i *Interface) newGroup(mgid ib.GID, full bool) *group {
	g := &group{mgid: mgid, full: full, deadline: ib.Never}
	i.groups[mgid] = g
	i.groupOrder = append(i.groupOrder, g)
	return g
}

// group finds the group of a multicast address, or begins to send to it. It is nil if there are too many.
func (i *Interface) group(now ib.Time, a netip.Addr) *group {
	mgid := GroupOf(a, i.cfg.PKey, i.scope)
	if g := i.groups[mgid]; g != nil {
		return g
	}
	if len(i.groupOrder) >= groupsMax {
		i.Stats.Overflow++
		return nil
	}
	g := i.newGroup(mgid, false)
	g.used = now
	i.join(now, g)
	return g
}

// join asks the administrator.
func (i *Interface) join(now ib.Time, g *group) {
	if g.asked || g != i.broadcast && !i.IsUp() {
		return // what is asked is the same, or has to wait for the broadcast group, whose parameters others take
	}
	g.asked = true
	g.deadline = i.wake(now + joinPatience)
	i.out.Push(Action{Kind: Join, GID: g.mgid, SendOnly: !g.full})
}

// HandleJoined takes the administrator's answer; ok is false if the port is not a member.
func (i *Interface) HandleJoined(now ib.Time, mgid ib.GID, rec mad.MCMemberRecord, ok bool) {
	g := i.groups[mgid]
	if g == nil || !g.asked {
		return
	}
	g.asked = false
	if !ok || rec.MTU.Bytes() <= HeaderSize {
		g.refused = true
		g.again = min(max(2*g.again, joinAgain), joinAgainMax)
		if !g.full {
			g.again = joinAgain // somebody may listen any time
		}
		for range i.take(&g.queue) {
			i.Stats.NoGroup++
		}
		g.deadline = i.wake(now + g.again)
		return
	}
	first := g == i.broadcast && g.way == nil
	g.refused, g.again, g.deadline = false, 0, ib.Never
	w := Way{Multicast: true, QPN: ib.QPNMulticast, QKey: rec.QKey, MTU: rec.MTU.Bytes() - HeaderSize, DLID: rec.MLID,
		SL: rec.SL, Rate: rec.Rate, IsGlobal: true, DGID: rec.MGID, FlowLabel: rec.FlowLabel, HopLimit: rec.HopLimit,
		TClass: rec.TClass}
	if g.way == nil || *g.way != w {
		i.closeWay(&g.way)
		g.way = &w
	}
	if !g.full {
		i.wake(now + sendOnlyAfter)
	}
	i.flush(&g.queue, g.way)
	if first {
		i.scope = mgid[1] & 0xF
		i.wanted(now)
		for _, o := range i.groupOrder {
			if o != g && o.way == nil {
				i.join(now, o)
			}
		}
		for _, a := range i.addrs {
			i.announce(now, a)
		}
	}
}

// useGroup is the way to a group, or the queue for it; neither if the administrator has said that nobody listens.
func (i *Interface) useGroup(now ib.Time, g *group) (*Way, *queue) {
	g.used = now
	switch {
	case g.way != nil:
		return g.way, nil
	case g.refused:
		return nil, nil
	}
	return nil, &g.queue
}

// toGroup sends to a group.
func (i *Interface) toGroup(now ib.Time, g *group, p packet) {
	if g == nil {
		return
	}
	way, wait := i.useGroup(now, g)
	switch {
	case way != nil:
		i.out.Push(Action{Kind: Send, Way: way, Protocol: p.proto, Packet: p.data})
	case wait != nil:
		i.put(wait, p)
	default:
		i.Stats.NoGroup++
	}
}

// SetGroups says which multicast groups the host's programs listen to.
func (i *Interface) SetGroups(now ib.Time, listens []netip.Addr) {
	i.listens = append(i.listens[:0], listens...)
	i.wanted(now)
}

// wanted joins and leaves what the host wants: what its programs listen to, and what every host does.
func (i *Interface) wanted(now ib.Time) {
	want := map[ib.GID]bool{i.broadcast.mgid: true}
	listen := func(a netip.Addr) {
		if !a.IsMulticast() || isInterfaceLocal(a) {
			return
		}
		mgid := GroupOf(a, i.cfg.PKey, i.scope)
		if want[mgid] {
			return
		}
		want[mgid] = true
		g := i.groups[mgid]
		switch {
		case g == nil && len(i.groupOrder) >= groupsMax:
			i.Stats.Overflow++
		case g == nil:
			i.join(now, i.newGroup(mgid, true))
		case !g.full:
			i.dropGroup(g)
			i.join(now, i.newGroup(mgid, true))
		}
	}
	for _, a := range i.addrs {
		if a.Is4() {
			listen(allHosts)
		} else {
			listen(allNodes)
			listen(solicitedNode(a))
		}
	}
	for _, a := range i.listens {
		listen(a)
	}
	for _, g := range slices.Clone(i.groupOrder) {
		if g.full && !want[g.mgid] {
			i.dropGroup(g)
		}
	}
}

// dropGroup leaves a group.
func (i *Interface) dropGroup(g *group) {
	delete(i.groups, g.mgid)
	i.groupOrder = slices.DeleteFunc(i.groupOrder, func(o *group) bool { return o == g })
	i.take(&g.queue)
	i.closeWay(&g.way)
	i.out.Push(Action{Kind: Leave, GID: g.mgid, SendOnly: !g.full})
}

func (i *Interface) groupTimer(now ib.Time, g *group) {
	if !g.full && now-g.used >= sendOnlyAfter {
		i.dropGroup(g)
		return
	}
	if g.deadline <= now {
		if g.refused && !g.full {
			i.dropGroup(g) // the next packet asks again
			return
		}
		g.asked = false
		i.join(now, g)
	}
	i.wake(g.deadline)
	if !g.full {
		i.wake(g.used + sendOnlyAfter)
	}
}
