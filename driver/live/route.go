package live

import (
	"fmt"

	"softib/driver/endpoint"
	"softib/node/ibswitch"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// hop is a port that packets of a route pass, and in which direction.
type hop struct {
	p   *portState
	out bool
	vl  ib.VL
}

// route is the way to one destination, or to the members of a group, as the tables had it when its epoch was current.
type route struct {
	key   endpoint.Key
	epoch uint64
	hops  []hop
	// Where and why packets vanish, for those that do; of a group there may be several.
	losses []loss
	// switched: the plane takes its packets through the switches, one by one.
	switched bool
	// routed: it ends at a router, which looks at more of a packet than its LIDs.
	routed bool
	// left is where it goes on to another machine, and line what leads from there to the process that it is for.
	left []hop
	line *Line
}

// loss is a port that counts packets of a route which go no further.
type loss struct {
	p      *portState
	reason link.Reason
}

// count adds traffic of the route to the ports on its way, and wherever packets end. The fabric's lock is held.
func (rt *route) count(pkts, words uint64) {
	for _, h := range rt.hops {
		h.p.link.AddTraffic(h.out, h.vl, rt.key.SL, rt.key.DLID.IsMulticast(), pkts, words)
	}
	for _, l := range rt.losses {
		l.p.link.CountMany(l.reason, pkts)
	}
}

// end is the adapter that the last hop is at, nil if that is a switch or there is none.
func (rt *route) end() *Host {
	if n := len(rt.hops); n > 0 {
		return rt.hops[n-1].p.host
	}
	return nil
}

// lose notes where packets of the route end.
func (rt *route) lose(p *portState, why link.Reason) { rt.losses = append(rt.losses, loss{p, why}) }

// walker follows the tables from a source port. What a switch does with a packet it asks the switch.
type walker struct {
	f     *Fabric
	route *route
	probe link.Frame
	pkt   wire.Packet
	seen  int
	dry   bool       // who looks may be after a switch itself
	found []hop      // where it came to adapters
	left  []hop      // where it went on to another machine
	out   ib.PortNum // the last entry that was looked up
}

// newWalker makes the probe that links and switches are asked about.
func (f *Fabric) newWalker(key endpoint.Key) *walker {
	w := &walker{f: f, route: &route{key: key, epoch: f.epoch.Load()}}
	w.pkt.LRH = wire.LRH{SL: key.SL, DLID: key.DLID, LNH: wire.LNHLocal}
	w.pkt.BTH.PKey = key.PKey
	// Switches do not choose for datagrams. A path that is not switched has no queues to choose by.
	w.pkt.BTH.Opcode = wire.MakeOpcode(wire.UD, wire.OpSendOnly)
	w.probe.Packet, w.probe.LRH = &w.pkt, w.pkt.LRH
	return w
}

// resolve walks the tables for a key, from an adapter's port, and says where it came to adapters. The fabric's lock is
// held.
func (f *Fabric) resolve(from *portState, key endpoint.Key) (*route, []hop) {
	w := f.newWalker(key)
	w.depart(from)
	if len(w.found) == 0 && len(w.route.losses) == 0 && len(w.left) == 0 && !w.route.routed {
		w.route.lose(from, link.NoMember)
	}
	w.route.left = w.left
	return w.route, w.found
}

// depart leaves an adapter by its port.
func (w *walker) depart(from *portState) {
	vl, why := from.link.Depart(w.route.key.SL)
	if why != link.OK {
		w.route.lose(from, why)
		return
	}
	w.cross(from, vl)
}

// cross leaves by a port on lane vl, and goes on from the far end of its cable.
func (w *walker) cross(out *portState, vl ib.VL) {
	w.route.hops = append(w.route.hops, hop{out, true, vl})
	in := out.peer
	if out.outside != nil {
		w.left = append(w.left, hop{out, true, vl}) // where it goes from there the other machine knows
		return
	}
	if in == nil {
		w.route.lose(out, link.Inactive)
		return
	}
	w.enter(in, vl)
}

// enter comes in by a port on lane vl.
func (w *walker) enter(in *portState, vl ib.VL) {
	if why := in.link.Admits(vl); why != link.OK {
		w.route.lose(in, why)
		return
	}
	if in.host == nil { // of those a multicast comes to as many as there are
		w.seen++
	}
	if w.seen > 4*len(w.f.switches)+4 {
		w.route.lose(in, link.Looping) // the tables run in a circle; a packet would die of age
		return
	}
	here := hop{in, false, vl}
	w.route.hops = append(w.route.hops, here)
	switch {
	case in.rt != nil:
		w.route.routed = true
		return
	case in.host != nil:
		w.found = append(w.found, here)
		return
	}
	w.relay(in, vl)
}

// relay goes on from the switch that a packet has come to by port in on lane vl; port 0 is the switch itself.
func (w *walker) relay(in *portState, vl ib.VL) {
	w.probe.LRH.VL = vl
	w.out = in.sw.Route(w.pkt.LRH.DLID)
	d := in.sw.Decide(in.num, &w.probe)
	switch {
	case d.Fan:
		ports, why := in.sw.Fan(in.num, w.pkt.LRH.DLID)
		if why != link.OK {
			w.route.lose(in, why)
		}
		for out, ok := ports.Pop(); ok; out, ok = ports.Pop() {
			if out != 0 { // no program is at the switch itself
				w.probe.LRH.VL = vl
				w.leave(in, in.sw.Leave(in.num, out, &w.probe))
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
		w.route.lose(in.ports[d.At], d.Reason)
		return
	}
	w.cross(in.ports[d.Out], d.VL)
}

// Way follows packets from an end port (port 0 of a switch for the switch's own) to an address, without sending any. It
// asks the tables in the same way as packets do.
func (f *Fabric) Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (way inspect.Way, err error) {
	if !dlid.IsUnicast() {
		return way, notUnicast(dlid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.endPort(from)
	if p == nil {
		return way, fmt.Errorf("live: %s is no end port: want a host's port, or port 0 of a switch",
			f.graph.PortName(from))
	}
	w := f.newWalker(endpoint.Key{Port: from.Port, DLID: dlid, SL: sl, PKey: pkey})
	w.dry = true
	if p.sw != nil {
		w.relay(p, 0)
	} else {
		w.depart(p)
	}
	return w.way(), nil
}

// WayOn goes on with a way that has come from another machine, by a port, on a lane.
func (f *Fabric) WayOn(in topo.PortRef, vl ib.VL, dlid ib.LID, sl ib.SL, pkey ib.PKey) (way inspect.Way, err error) {
	if !dlid.IsUnicast() {
		return way, notUnicast(dlid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.fromOutside(in)
	if err != nil {
		return way, err
	}
	w := f.newWalker(endpoint.Key{DLID: dlid, SL: sl, PKey: pkey})
	w.dry = true
	w.route.hops = append(w.route.hops, hop{p, true, vl}) // in place of the far end
	w.enter(p, vl)
	way = w.way()
	if len(way.Hops) > 0 {
		way.Hops = way.Hops[1:]
	}
	return way, nil
}

func notUnicast(dlid ib.LID) error {
	return fmt.Errorf("live: LID %v is no unicast address: want 1 to 0x%x", dlid, int(ib.LIDUnicastMax))
}

// endPort finds a host's port, or port 0 of a switch; nil if the graph has no such.
func (f *Fabric) endPort(r topo.PortRef) *portState {
	if p := f.port(r); p != nil && (p.num == 0) == (p.sw != nil) {
		return p
	}
	return nil
}

// way tells where a dry walk went.
func (w *walker) way() inspect.Way {
	way := inspect.Way{Out: w.out}
	if l := w.route.losses; len(l) > 0 {
		way.Lost, way.Reason = l[0].p.ref(), l[0].reason
	}
	if len(w.left) > 0 {
		out := w.left[0].p
		way.Leaves = &inspect.WayHop{Out: out.ref(), In: w.f.graph.Peer(out.ref()), VL: w.left[0].vl,
			Rate: out.link.Rate(), MTU: out.link.NeighborMTU()}
	}
	seen := map[*portState]bool{}
	hops := w.route.hops
	for i := 0; i+1 < len(hops); i += 2 {
		out, in := hops[i].p, hops[i+1].p
		if seen[out] {
			// From here on it goes round.
			way.Lost, way.Reason, way.Out = hops[i-1].p.ref(), link.Looping, out.num
			break
		}
		seen[out] = true
		way.Hops = append(way.Hops, inspect.WayHop{Out: out.ref(), In: in.ref(), VL: hops[i].vl, Rate: out.link.Rate(),
			MTU: out.link.NeighborMTU()})
	}
	return way
}

// Relay is what a router does with a packet between two GIDs that comes in by one of its ports: by which it leaves, and
// to which LID; or why it does not.
func (f *Fabric) Relay(in topo.PortRef, from, to ib.GID, hops uint8) (topo.PortRef, ib.LID, link.Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.port(in)
	if p == nil || p.rt == nil {
		return in, 0, link.NoRoute
	}
	w := wire.Packet{LRH: wire.LRH{LNH: wire.LNHGlobal}, GRH: wire.GRH{SGID: from, DGID: to, HopLimit: hops}}
	d := p.rt.Decide(p.num, &w.LRH, &w)
	return topo.PortRef{Node: in.Node, Port: d.Out}, d.DLID, d.Reason
}
