package live

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// routeKey is what the way of a packet depends on.
type routeKey struct {
	port ib.PortNum
	dlid ib.LID
	sl   ib.SL
	pkey ib.PKey
}

// hop is a port that packets of a route pass, and in which direction.
type hop struct {
	p   *portState
	out bool
	vl  ib.VL
}

// route is the way to one destination, or to the members of a group, as the
// tables had it when its epoch was current. It belongs to its source.
type route struct {
	key   routeKey
	epoch uint64
	hops  []hop
	// Where and why packets vanish, for those that do.
	lost   *portState
	reason link.Reason
	// switched: the plane takes its packets through the switches, one by one.
	switched bool

	// Not yet attributed to the hops.
	pkts, words uint64
}

// attribute adds the route's traffic to the ports on its way. The fabric's
// lock is held.
func (rt *route) attribute() {
	for _, hp := range rt.hops {
		c := hp.p.counters()
		pkts, data, uni, multi := ib.PortRcvPkts, ib.PortRcvData, ib.PortUnicastRcvPkts, ib.PortMulticastRcvPkts
		if hp.out {
			pkts, data, uni, multi = ib.PortXmitPkts, ib.PortXmitData, ib.PortUnicastXmitPkts, ib.PortMulticastXmitPkts
		}
		c[pkts] += rt.pkts
		c[data] += rt.words
		hp.p.countLane(hp.out, hp.vl, rt.key.sl, rt.pkts, rt.words)
		if rt.key.dlid.IsMulticast() {
			c[multi] += rt.pkts
		} else {
			c[uni] += rt.pkts
		}
	}
	rt.pkts, rt.words = 0, 0
}

// walker follows the tables from a source port.
type walker struct {
	f     *Fabric
	key   routeKey
	route *route
	probe link.Frame
	pkt   wire.Packet
	seen  int
	dry   bool       // who looks may be after a switch itself
	found []wayEnd   // where it came to adapters
	out   ib.PortNum // the last entry that was looked up
}

// resolve walks the tables for a key, from an adapter's port, and says where it came to adapters. The fabric's lock is
// held.
func (f *Fabric) resolve(from *portState, key routeKey) (*route, []wayEnd) {
	rt := &route{key: key, epoch: f.epoch.Load()}
	w := walker{f: f, key: key, route: rt}
	w.aim()
	w.depart(from)
	if len(w.found) == 0 && rt.lost == nil {
		rt.lost, rt.reason = from, link.NoMember
	}
	return rt, w.found
}

// depart leaves an adapter by its port.
func (w *walker) depart(from *portState) {
	rt := w.route
	if from.link.State() != ib.PortActive {
		rt.lost, rt.reason = from, link.Inactive
		return
	}
	vl := from.link.SL2VL(w.key.sl)
	if vl >= ib.VLMgmt || !from.link.IsOperVL(vl) {
		rt.lost, rt.reason = from, link.BadVLMap
		return
	}
	rt.hops = append(rt.hops, hop{from, true, vl})
	w.cross(from, vl)
}

// lose notes where packets of the route end, unless some branch of a multicast
// goes on.
func (w *walker) lose(p *portState, r link.Reason) {
	if w.route.lost == nil {
		w.route.lost, w.route.reason = p, r
	}
}

// cross goes over the cable of a port on lane vl, and on from its far end.
func (w *walker) cross(out *portState, vl ib.VL) {
	in := out.peer
	if in == nil || in.link.State() != ib.PortActive {
		w.lose(out, link.Inactive)
		return
	}
	w.seen++
	if w.seen > 4*len(w.f.switches)+4 {
		w.lose(in, link.Looping) // the tables run in a circle; a packet would die of age
		return
	}
	if in.host != nil {
		w.route.hops = append(w.route.hops, hop{in, false, vl})
		w.found = append(w.found, wayEnd{in, vl})
		return
	}
	w.route.hops = append(w.route.hops, hop{in, false, vl})
	if r := in.link.RefusesIn(&w.probe); r != link.OK {
		w.lose(in, r)
		return
	}
	sw := in.sw
	if w.key.dlid.IsMulticast() {
		m := sw.engine.MulticastPorts(w.key.dlid)
		m.Clear(in.num)
		m.Clear(0)
		for out, ok := m.Pop(); ok; out, ok = m.Pop() {
			w.leave(in, out)
		}
		return
	}
	w.relay(in)
}

// relay goes on by the forwarding entry of the switch that a packet has come to by port in; port 0 is the switch
// itself.
func (w *walker) relay(in *portState) {
	sw := in.sw
	o := sw.engine.Route(w.key.dlid)
	w.out = o
	switch {
	case int(o) > sw.engine.NumPorts() || w.key.dlid > sw.engine.Info().LinearFDBTop:
		w.lose(in, link.UnknownDLID)
	case o == 0 && w.dry && in.num != 0:
		return // whoever looks may be after the switch itself
	case o == 0:
		w.lose(in, link.UnknownDLID) // data for the switch itself: it has no queue pairs but QP0 and QP1
	case o == in.num:
		w.lose(in, link.Looping)
	default:
		w.leave(in, o)
	}
}

// leave passes from port in to port out of one switch.
func (w *walker) leave(in *portState, num ib.PortNum) {
	sw := in.sw
	out := sw.ports[num]
	if out == nil {
		w.lose(in, link.UnknownDLID)
		return
	}
	if out.link.State() != ib.PortActive {
		w.lose(out, link.Inactive) // discards count where the packet would have left (IBA 16.1.3.5)
		return
	}
	vl := sw.engine.SL2VL(in.num, num)[w.key.sl&15]
	if vl >= ib.VLMgmt || !out.link.IsOperVL(vl) {
		w.lose(in, link.BadVLMap)
		return
	}
	if r := out.link.RefusesOut(&w.probe); r != link.OK {
		w.lose(out, r)
		return
	}
	w.route.hops = append(w.route.hops, hop{out, true, vl})
	w.cross(out, vl)
}
