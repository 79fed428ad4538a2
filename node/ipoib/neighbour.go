package ipoib

import (
	"net/netip"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// neighbour is somebody with an address of IP on this link. It is asked for (no link-layer address), or found (no path
// yet), or there (a way).
type neighbour struct {
	addr      netip.Addr
	link      LinkAddr
	isFound   bool
	way       *Way
	confirmed ib.Time // when it was heard last
	used      ib.Time // when something was last to be sent to it
	tries     int     // questions since then
	deadline  ib.Time // of the question under way
	queue     queue
	// again is when a connection may be tried anew, after one was refused.
	again ib.Time
}

// neighbour finds or makes the neighbour of an address, which is asked for. It is nil if there are too many that are in
// use.
func (i *Interface) neighbour(now ib.Time, a netip.Addr) *neighbour {
	if n := i.neighbours[a]; n != nil {
		return n
	}
	n := i.newNeighbour(now, a)
	if n != nil {
		i.probe(now, n)
	}
	return n
}

func (i *Interface) newNeighbour(now ib.Time, a netip.Addr) *neighbour {
	if len(i.order) >= neighboursMax {
		// The one that nothing was sent to for the longest time.
		oldest := i.order[0]
		for _, n := range i.order {
			if n.used < oldest.used {
				oldest = n
			}
		}
		if now-oldest.used < ib.Second {
			return nil
		}
		i.forget(oldest)
	}
	n := &neighbour{addr: a, deadline: ib.Never}
	i.neighbours[a] = n
	i.order = append(i.order, n)
	n.used = now
	i.wake(now + forgetAfter)
	return n
}

func (i *Interface) forget(n *neighbour) {
	delete(i.neighbours, n.addr)
	i.order = slices.DeleteFunc(i.order, func(o *neighbour) bool { return o == n })
	i.take(&n.queue)
	i.closeWay(&n.way)
	n.deadline = ib.Never
}

func (i *Interface) closeWay(w **Way) {
	if *w != nil {
		i.out.Push(Action{Kind: Close, Way: *w})
		*w = nil
	}
}

// probe asks a neighbour for its link-layer address: itself if it is there, everybody if not.
func (i *Interface) probe(now ib.Time, n *neighbour) {
	n.tries++
	n.deadline = i.wake(now + AskInterval)
	src := i.source(n.addr)
	if !src.IsValid() {
		return // without an address of one's own there is nobody to be answered
	}
	p := packet{proto: ARP}
	to := i.broadcast
	if n.addr.Is4() {
		q := arpPacket{op: arpRequestOp, sender: i.self, senderIP: src, target: n.link, targetIP: n.addr}
		p.data = q.append(nil)
	} else {
		m := ndMessage{typ: ndSolicitation, src: src, dst: n.addr, target: n.addr, link: i.self, hasLink: true}
		if n.way == nil {
			m.dst = solicitedNode(n.addr)
		}
		p.proto, p.data = IPv6, m.append(nil)
		if n.way == nil {
			to = i.group(now, m.dst)
		}
	}
	if n.way != nil {
		i.out.Push(Action{Kind: Send, Way: n.way, Protocol: p.proto, Packet: p.data})
		return
	}
	i.toGroup(now, to, p)
}

// source is the address of the host that another is asked from: one of the same prefix, else any of its family, and
// link-local ones among themselves.
func (i *Interface) source(to netip.Addr) (best netip.Addr) {
	for _, a := range i.addrs {
		if a.Is4() != to.Is4() {
			continue
		}
		if !best.IsValid() || a.IsLinkLocalUnicast() == to.IsLinkLocalUnicast() {
			best = a
		}
		if i.shares(a, to) {
			return a
		}
	}
	return best
}

func (i *Interface) shares(a, b netip.Addr) bool {
	for _, p := range i.prefixes {
		if p.Addr() == a && p.Contains(b) {
			return true
		}
	}
	return false
}

// learn takes what a neighbour says of itself. One that nobody here knows is noted only if it asks for us, and so will
// be answered.
func (i *Interface) learn(now ib.Time, a netip.Addr, link LinkAddr, asks bool) *neighbour {
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || slices.Contains(i.addrs, a) {
		return nil
	}
	n := i.neighbours[a]
	if n == nil {
		if !asks {
			return nil
		}
		if n = i.newNeighbour(now, a); n == nil {
			return nil
		}
	}
	n.confirmed, n.tries, n.deadline = now, 0, ib.Never
	if n.isFound && n.link == link && n.way != nil {
		return n
	}
	if n.isFound && n.link.GID != link.GID || n.link.Flags != link.Flags || n.link.QPN != link.QPN {
		i.closeWay(&n.way)
	}
	n.link, n.isFound = link, true
	p := i.path(now, link.GID)
	if p.known {
		i.found(now, n, p)
	}
	return n
}

// found gives a neighbour its way.
func (i *Interface) found(now ib.Time, n *neighbour, p *path) {
	connect := i.cfg.Connected && n.link.Flags&TakesRC != 0 && now >= n.again
	if w := n.way; w != nil && w.Path == p.rec && w.QPN == n.link.QPN && (w.Connect != nil) == connect {
		return
	}
	i.closeWay(&n.way)
	r := &p.rec
	n.way = &Way{QPN: n.link.QPN, DLID: r.DLID, SL: r.SL, Rate: r.Rate, DGID: n.link.GID, FlowLabel: r.FlowLabel,
		HopLimit: r.HopLimit, TClass: r.TClass, IsGlobal: r.HopLimit > 1, Path: *r}
	if b := i.broadcast.way; b != nil {
		n.way.QKey, n.way.MTU, n.way.Datagram = b.QKey, b.MTU, b.MTU
	}
	if connect {
		link := n.link
		n.way.Connect, n.way.MTU = &link, ConnectedMTU
	}
	i.flush(&n.queue, n.way)
}

// HandleRefused says that no connection can be made to where a way leads, or that the one that there was has ended. In
// the first case packets go as datagrams for a while; in the second the neighbour is asked whether it is still there.
func (i *Interface) HandleRefused(now ib.Time, w *Way, ended bool) {
	for _, n := range i.order {
		switch {
		case n.way != w:
		case ended && n.tries == 0:
			i.probe(now, n)
		case !ended:
			n.again = i.wake(now + connectAgain)
			i.found(now, n, i.paths[n.link.GID])
		}
	}
}

// ConnectedMTU is what a packet may have on a connection: as Linux has it.
const ConnectedMTU = 65520

func (i *Interface) neighbourTimer(now ib.Time, n *neighbour) {
	if i.neighbours[n.addr] != n {
		return
	}
	switch {
	case now-n.used >= forgetAfter && now-n.confirmed >= reachable:
		i.forget(n)
		return
	case n.deadline > now:
	case n.tries < i.tries:
		i.probe(now, n)
	case n.way != nil: // it does not answer any more: ask everybody
		i.closeWay(&n.way)
		n.isFound, n.link, n.tries = false, LinkAddr{}, 0
		i.probe(now, n)
	default:
		for _, p := range i.take(&n.queue) {
			i.Stats.Unreachable++
			i.complain(p.data, 0)
		}
		i.forget(n)
		return
	}
	if n.again > 0 && now >= n.again {
		n.again = 0
		if p := i.paths[n.link.GID]; n.way != nil && p != nil && p.known {
			i.found(now, n, p)
		}
	}
	if n.again > 0 {
		i.wake(n.again)
	}
	i.wake(min(n.deadline, max(n.used+forgetAfter, n.confirmed+reachable)))
}

// path is the way to a port, as the administrator says.
type path struct {
	gid      ib.GID
	rec      mad.PathRecord
	known    bool
	asked    bool
	deadline ib.Time // when to ask again
}

// path finds the path to a port, or asks for it.
func (i *Interface) path(now ib.Time, g ib.GID) *path {
	p := i.paths[g]
	if p == nil {
		p = &path{gid: g}
		i.paths[g] = p
		i.ask(now, p)
	}
	return p
}

func (i *Interface) ask(now ib.Time, p *path) {
	p.asked = true
	p.deadline = i.wake(now + pathPatience)
	i.out.Push(Action{Kind: AskPath, GID: p.gid})
}

// HandlePath takes the administrator's answer; ok is false if there is none.
func (i *Interface) HandlePath(now ib.Time, g ib.GID, rec mad.PathRecord, ok bool) {
	p := i.paths[g]
	if p == nil {
		return
	}
	p.asked = false
	if !ok {
		p.deadline = i.wake(now + pathAgain)
		return
	}
	p.rec, p.known, p.deadline = rec, true, ib.Never
	for _, n := range i.order {
		if n.isFound && n.link.GID == g {
			i.found(now, n, p)
		}
	}
}

// pathTimer asks again for paths that somebody wants, and forgets those that nobody does.
func (i *Interface) pathTimer(now ib.Time) {
	wanted := map[ib.GID]bool{}
	for _, n := range i.order {
		if !n.isFound || wanted[n.link.GID] {
			continue
		}
		wanted[n.link.GID] = true
		p := i.path(now, n.link.GID)
		if p.deadline <= now {
			i.ask(now, p)
		}
		i.wake(p.deadline)
	}
	for g := range i.paths { // tidy: order-free
		if !wanted[g] {
			delete(i.paths, g)
		}
	}
}
