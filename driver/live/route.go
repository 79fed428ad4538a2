package live

import (
	"softib/node/ibswitch"
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
	// Where and why packets vanish, for those that do; the first of losses, of which a group may have several.
	lost   *portState
	reason link.Reason
	losses []loss
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

// loss is a port that counts packets of a route which go no further.
type loss struct {
	p      *portState
	reason link.Reason
}

// lose notes where packets of the route end.
func (rt *route) lose(p *portState, r link.Reason) {
	if rt.losses = append(rt.losses, loss{p, r}); len(rt.losses) == 1 {
		rt.lost, rt.reason = p, r
	}
}

// countLost counts n packets wherever they end.
func (rt *route) countLost(n uint64) {
	for _, l := range rt.losses {
		l.p.link.CountMany(l.reason, n)
	}
}

// walker follows the tables from a source port. What a switch does with a packet it asks the switch.
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
		rt.lose(from, link.NoMember)
	}
	return rt, w.found
}

// depart leaves an adapter by its port.
func (w *walker) depart(from *portState) {
	vl, why := from.link.Depart(w.key.sl)
	if why != link.OK {
		w.route.lose(from, why)
		return
	}
	w.route.hops = append(w.route.hops, hop{from, true, vl})
	w.cross(from, vl)
}

// cross goes over the cable of a port on lane vl, and on from its far end.
func (w *walker) cross(out *portState, vl ib.VL) {
	in := out.peer
	if in == nil {
		w.route.lose(out, link.Inactive)
		return
	}
	if why := in.link.Admits(vl); why != link.OK {
		w.route.lose(in, why)
		return
	}
	w.seen++
	if w.seen > 4*len(w.f.switches)+4 {
		w.route.lose(in, link.Looping) // the tables run in a circle; a packet would die of age
		return
	}
	w.route.hops = append(w.route.hops, hop{in, false, vl})
	if in.host == nil {
		w.relay(in)
		return
	}
	w.found = append(w.found, wayEnd{in, vl})
}

// relay goes on from the switch that a packet has come to by port in; port 0 is the switch itself.
func (w *walker) relay(in *portState) {
	sw := in.sw.engine
	w.out = sw.Route(w.key.dlid)
	d := sw.Decide(in.num, &w.probe)
	switch {
	case d.Fan:
		ports, why := sw.Fan(in.num, w.key.dlid)
		if why != link.OK {
			w.route.lose(in, why)
		}
		for out, ok := ports.Pop(); ok; out, ok = ports.Pop() {
			if out != 0 { // no program is at the switch itself
				w.leave(in, sw.Leave(in.num, out, &w.probe))
			}
		}
	case d.Reason == link.OK && d.Out == 0 && w.dry && in.num != 0:
		return // whoever looks may be after the switch itself
	case d.Reason == link.OK && d.Out == 0:
		w.route.lose(in, link.UnknownDLID) // data for the switch: it has no queue pairs but QP0 and QP1
	default:
		w.leave(in, d)
	}
}

// leave does what the switch behind port in has decided.
func (w *walker) leave(in *portState, d ibswitch.Decision) {
	if d.Reason != link.OK {
		w.route.lose(in.sw.ports[d.At], d.Reason)
		return
	}
	out := in.sw.ports[d.Out]
	w.route.hops = append(w.route.hops, hop{out, true, d.VL})
	w.cross(out, d.VL)
}
