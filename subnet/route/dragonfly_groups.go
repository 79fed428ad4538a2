package route

import "softib/proto/ib"

// groups finds what switches may choose from: for destinations of other clusters, of all ports on minimal ways one with
// little to wait for, and, while a packet is in its first cluster, another that leads to a third one (Valiant), if
// there is much less to wait for (ibswitch). Detours are the switch's own global links, and local links to switches
// that have some; there the packet takes one at once, since the order of lanes has no second local link. They lead to
// clusters that have a link to the destination's: from there ways are minimal.
func (x *dragon) groups(n *Network) *Groups {
	g := newGroups(n)
	g.Detours = 1<<(x.phases.slack+1) - 1 // lanes of packets from adapters, and in the first part
	for _, dests := range groups(n) {
		if len(dests.ends) == 0 {
			continue
		}
		x.aim(dests.sw)
		for s := range x.of {
			if x.of[s] == x.home {
				continue
			}
			m := x.minimal(int32(s))
			d := x.detours(int32(s))
			d.Remove(&m)
			if d.Empty() && !several(&m) {
				continue
			}
			at := g.place(s, m, d)
			for _, i := range dests.ends {
				g.Of[s][i] = at
			}
		}
	}
	return g
}

// detours is the ports of switch s that lead to a third cluster, with one local link before the global one at most.
func (x *dragon) detours(s int32) (m ib.PortMask) {
	for _, e := range x.w.out[s] {
		if x.of[e.to] == x.of[s] {
			// Where a packet may take two local links, it may go on to the nearest gate from there.
			if x.toGate[e.to] <= 1 && x.hasDetour(e.to) {
				m.Set(e.port)
			}
		} else if x.isDetour(e) {
			m.Set(e.port)
		}
	}
	return m
}

// hasDetour reports whether a packet that has come to a switch by a detour can leave the cluster there.
func (x *dragon) hasDetour(s int32) bool {
	for _, e := range x.w.out[s] {
		if x.of[e.to] != x.of[s] && (x.isDetour(e) || x.isGate(s, e, x.home)) {
			return true
		}
	}
	return false
}

// isDetour reports whether a global link leads to a cluster with a way to the destination.
func (x *dragon) isDetour(e edge) bool { return x.of[e.to] != x.home && x.direct[x.of[e.to]][x.home] }
