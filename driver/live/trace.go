package live

import (
	"fmt"

	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// The way that packets take, in the terms of those who ask.
type (
	Way    = inspect.Way
	WayHop = inspect.WayHop
)

// Way follows packets from an end port (port 0 of a switch for the switch's own) to an address, without sending any. It
// asks the tables in the same way as packets do.
func (f *Fabric) Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (Way, error) {
	if !dlid.IsUnicast() {
		return Way{}, fmt.Errorf("live: LID %v is no unicast address: want 1 to 0x%x", dlid, int(ib.LIDUnicastMax))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.port(from)
	if p == nil || from.Port == 0 != f.graph.Nodes[from.Node].IsSwitch() {
		return Way{}, fmt.Errorf("live: %s is no end port: want a host's port, or port 0 of a switch",
			f.graph.PortName(from))
	}
	rt := &route{key: routeKey{port: from.Port, dlid: dlid, sl: sl, pkey: pkey}}
	w := walker{f: f, key: rt.key, route: rt, dry: true}
	w.aim()
	if p.sw != nil {
		w.relay(p)
	} else {
		w.depart(p)
	}
	return w.way(), nil
}

// way tells where a dry walk went.
func (w *walker) way() Way {
	way := Way{Out: w.out, Reason: w.route.reason}
	if p := w.route.lost; p != nil {
		way.Lost = p.ref()
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
		way.Hops = append(way.Hops, WayHop{Out: out.ref(), In: in.ref(), VL: hops[i].vl, Rate: out.link.Rate(),
			MTU: out.link.NeighborMTU()})
	}
	return way
}

// ref names the port in the graph.
func (p *portState) ref() topo.PortRef { return topo.PortRef{Node: p.index(), Port: p.num} }

// aim makes the probe that the links are asked about.
func (w *walker) aim() {
	w.probe.Packet = &w.pkt
	w.pkt.LRH = wire.LRH{SL: w.key.sl, DLID: w.key.dlid, LNH: wire.LNHLocal}
	w.pkt.BTH.PKey = w.key.pkey
	w.probe.LRH = w.pkt.LRH
}
