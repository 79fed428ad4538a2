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
// tables had it when its epoch was current. It belongs to its source host.
type route struct {
	_     [64]byte // two hosts' routes must not share a cache line
	key   routeKey
	epoch uint64
	rings []*ring // one for unicast; none where packets vanish
	hops  []hop
	// Where and why packets vanish, for those that do; the first of losses, of which a group may have several.
	lost   *portState
	reason link.Reason
	losses []loss
	// switched: the plane takes its packets through the switches, one by one.
	switched bool

	// Not yet attributed to the hops.
	pkts, words uint64
	_           [64]byte
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
	dry   bool       // only looks: makes no rings
	found []wayEnd   // where it came to adapters
	out   ib.PortNum // the last entry that was looked up
}

// resolve walks the tables for a key. The fabric's lock is held by the caller.
func (f *Fabric) resolve(src *Host, key routeKey) *route {
	rt := &route{key: key, epoch: f.epoch.Load()}
	w := walker{f: f, key: key, route: rt}
	w.aim()
	from := src.ports[key.port]
	if from == nil {
		return rt
	}
	w.depart(src, from)
	if len(rt.rings) == 0 && rt.lost == nil {
		rt.lose(from, link.NoMember)
	}
	return rt
}

// depart leaves an adapter by its port.
func (w *walker) depart(src *Host, from *portState) {
	vl, why := from.link.Depart(w.key.sl)
	if why != link.OK {
		w.route.lose(from, why)
		return
	}
	w.route.hops = append(w.route.hops, hop{from, true, vl})
	w.cross(src, from, vl)
}

// cross goes over the cable of a port on lane vl, and on from its far end.
func (w *walker) cross(src *Host, out *portState, vl ib.VL) {
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
		w.relay(src, in)
		return
	}
	w.found = append(w.found, wayEnd{in, vl})
	if !w.dry {
		w.route.rings = append(w.route.rings, w.f.ringTo(src, in, vl))
	}
}

// relay goes on from the switch that a packet has come to by port in; port 0 is the switch itself.
func (w *walker) relay(src *Host, in *portState) {
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
				w.leave(src, in, sw.Leave(in.num, out, &w.probe))
			}
		}
	case d.Reason == link.OK && d.Out == 0 && w.dry && in.num != 0:
		return // whoever looks may be after the switch itself
	case d.Reason == link.OK && d.Out == 0:
		w.route.lose(in, link.UnknownDLID) // data for the switch: it has no queue pairs but QP0 and QP1
	default:
		w.leave(src, in, d)
	}
}

// leave does what the switch behind port in has decided.
func (w *walker) leave(src *Host, in *portState, d ibswitch.Decision) {
	if d.Reason != link.OK {
		w.route.lose(in.sw.ports[d.At], d.Reason)
		return
	}
	out := in.sw.ports[d.Out]
	w.route.hops = append(w.route.hops, hop{out, true, d.VL})
	w.cross(src, out, d.VL)
}

// ringTo is the ring from a host to a port on a lane, made when first needed.
func (f *Fabric) ringTo(src *Host, dst *portState, vl ib.VL) *ring {
	k := ringKey{dst.host.index, dst.num, vl}
	if r := src.outgoing[k]; r != nil {
		return r
	}
	r := newRing(src, dst.host, uint8(dst.num))
	src.outgoing[k] = r
	src.outRings = append(src.outRings, r)
	dst.host.addIncoming(r)
	return r
}

type ringKey struct {
	host int
	port ib.PortNum
	vl   ib.VL
}
