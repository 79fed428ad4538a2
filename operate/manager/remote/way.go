package remote

import (
	"context"
	"fmt"
	"slices"
	"time"

	"softib/node/ibswitch"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/wire"
)

// Way follows packets from an end port to an address by what nodes said of themselves when they were last asked. What a
// node does with them ibswitch and link decide, on a node that is made of what it said. Lanes are asked for: there are
// too many to keep. A first walk, as if nobody had written any map, finds whose.
func (f *Fabric) Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (inspect.Way, error) {
	w := walk{g: f.Graph(), v: f.view.Load()}
	if !dlid.IsUnicast() {
		return inspect.Way{}, fmt.Errorf("remote: LID %v is no unicast address: want 1 to 0x%x", dlid,
			int(ib.LIDUnicastMax))
	}
	p := w.v.port(from)
	if p == nil || (from.Port == 0) != w.g.Nodes[from.Node].IsSwitch() {
		return inspect.Way{}, fmt.Errorf("remote: %s is no end port: want a host's port, or port 0 of a switch",
			w.g.PortName(from))
	}
	// Switches do not choose for datagrams, and which groups they have to choose from was not asked.
	w.pkt.LRH = wire.LRH{SL: sl, DLID: dlid, LNH: wire.LNHLocal}
	w.pkt.BTH = wire.BTH{PKey: pkey, Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly)}
	w.run(from)
	if w.err == nil {
		if w.maps = f.maps(&w); len(w.maps) > 0 {
			w.run(from)
		}
	}
	return w.way, w.err
}

// walk is a packet on its way.
type walk struct {
	g    *topo.Graph
	v    *view
	pkt  wire.Packet
	maps map[pair]mad.SLtoVL // those that were read
	way  inspect.Way
	err  error
}

// pair is a way through a node, from one of its ports to another; from port 0 for what the node itself sends.
type pair struct {
	in  ib.PortNum
	out topo.PortRef
}

func (w *walk) lose(at topo.PortRef, why link.Reason) { w.way.Lost, w.way.Reason = at, why }

// run walks to the end.
func (w *walk) run(from topo.PortRef) {
	w.way = inspect.Way{Out: mad.LFTNone}
	in, vl, on := from, ib.VL(0), true
	if from.Port != 0 {
		p := link.NewPort(asSaidConfig)
		asSaid(p, w.v.port(from))
		if m, ok := w.maps[pair{0, from}]; ok {
			p.SetSL2VL(m)
		}
		lane, why := p.Depart(w.pkt.LRH.SL)
		if why != link.OK {
			w.lose(from, why)
			return
		}
		in, vl, on = w.cross(from, lane)
	}
	for on && w.g.Nodes[in.Node].IsSwitch() {
		in, vl, on = w.relay(in, vl)
	}
}

// cross leaves by a port on lane vl and comes in at the far end of its cable. It is false where the way ends.
func (w *walk) cross(out topo.PortRef, vl ib.VL) (topo.PortRef, ib.VL, bool) {
	p := w.g.Port(out)
	if !p.Connected() {
		w.lose(out, link.Inactive)
		return out, vl, false
	}
	if slices.ContainsFunc(w.way.Hops, func(h inspect.WayHop) bool { return h.Out == out }) {
		w.lose(w.way.Hops[len(w.way.Hops)-1].In, link.Looping) // from here on it goes round
		return out, vl, false
	}
	pi := &w.v.port(out).info
	far := topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	w.way.Hops = append(w.way.Hops, inspect.WayHop{Out: out, In: far, VL: vl, Rate: pi.Rate(), MTU: pi.NeighborMTU})
	end := link.NewPort(asSaidConfig)
	asSaid(end, w.v.port(far))
	if why := end.Admits(vl); why != link.OK {
		w.lose(far, why)
		return far, vl, false
	}
	return far, vl, true
}

// relay goes on from the switch that the packet has come to by port in on lane vl; port 0 is the switch's own. It is
// false where the way ends.
func (w *walk) relay(in topo.PortRef, vl ib.VL) (topo.PortRef, ib.VL, bool) {
	lft, dlid := w.v.nodes[in.Node].lft, w.pkt.LRH.DLID
	if lft == nil {
		w.err = fmt.Errorf("remote: the forwarding table of %s cannot be read: it does not answer, or wants "+
			"another M_Key", w.g.Nodes[in.Node].Name)
		return in, vl, false
	}
	w.way.Out = mad.LFTNone
	if int(dlid) < len(lft) {
		w.way.Out = lft[dlid]
	}
	probe := link.Frame{Packet: &w.pkt, LRH: w.pkt.LRH}
	probe.LRH.VL = vl
	d := w.switchAsSaid(in).Decide(in.Port, &probe)
	switch at := (topo.PortRef{Node: in.Node, Port: d.At}); {
	case d.Reason != link.OK:
		w.lose(at, d.Reason)
	case d.Out == 0 && in.Port != 0: // it is for the switch itself
	case d.Out == 0:
		w.lose(in, link.UnknownDLID)
	default:
		return w.cross(topo.PortRef{Node: in.Node, Port: d.Out}, d.VL)
	}
	return in, vl, false
}

// switchAsSaid does with the packet at port in what the switch that it has come to does.
func (w *walk) switchAsSaid(in topo.PortRef) *ibswitch.Switch {
	n := &w.v.nodes[in.Node]
	s := ibswitch.New(ibswitch.Config{Ports: len(n.ports) - 1, Port: asSaidConfig}, nil)
	for p := 1; p < len(n.ports); p++ {
		asSaid(s.Port(ib.PortNum(p)), &n.ports[p])
	}
	if out := w.way.Out; out != mad.LFTNone {
		must(s.SetRoute(w.pkt.LRH.DLID, out))
		if m, ok := w.maps[pair{in.Port, topo.PortRef{Node: in.Node, Port: out}}]; ok {
			must(s.SetSL2VL(in.Port, out, m))
		}
	}
	return s
}

// asSaidConfig is a port that can do all that one may have been told to.
var asSaidConfig = link.Config{MTUCap: ib.MTU4096, VLCap: 15}

// asSaid brings a port that is down to where another one said that it was. Keys that could not be read are taken to
// let everything pass.
func asSaid(l *link.Port, p *portView) {
	if p == nil || !p.known || p.info.PortState < ib.PortInit {
		return
	}
	l.Train()
	l.LinkUp(0)
	for s := ib.PortArmed; s <= min(p.info.PortState, ib.PortActive); s++ {
		must(l.Command(0, s))
	}
	if p.info.OperationalVLs.IsValid() {
		must(l.SetOperVLs(0, uint8(p.info.OperationalVLs.VLs())))
	}
	if p.keys == nil {
		return
	}
	l.SetPKeys(p.keys)
	var e link.Enforce
	if p.info.PartitionEnforcementInbound {
		e |= link.EnforcePKeyIn
	}
	if p.info.PartitionEnforcementOutbound {
		e |= link.EnforcePKeyOut
	}
	l.SetEnforcement(e)
}

// must is for what is within the bounds of what it is told to.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// lanesPatience is how long somebody who looks at a way waits for its lanes.
const lanesPatience = 2 * time.Second

// maps asks for the maps of the nodes on a way, where there is a choice of lanes. Of those that do not answer there is
// none.
func (f *Fabric) maps(w *walk) map[pair]mad.SLtoVL {
	var list []query
	var of []pair
	ask := func(in ib.PortNum, out topo.PortRef) {
		if w.v.port(out).info.OperationalVLs.VLs() < 2 {
			return
		}
		mod := uint32(0)
		if w.g.Nodes[out.Node].IsSwitch() {
			mod = mad.SLtoVLModifier(in, out.Port)
		}
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrSLtoVL, Modifier: mod, Directed: true,
			Path: w.v.nodes[out.Node].route, MKey: f.opts.MKey}).Append(nil)
		if err != nil {
			return
		}
		list = append(list, query{mad.ClassSMDirect, mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, b})
		of = append(of, pair{in, out})
	}
	in := ib.PortNum(0)
	for _, h := range w.way.Hops {
		ask(in, h.Out)
		in = h.In.Port
	}
	ctx, cancel := context.WithTimeout(context.Background(), lanesPatience)
	defer cancel()
	answers, err := f.ask(ctx, list)
	if err != nil {
		return nil
	}
	maps := map[pair]mad.SLtoVL{}
	for k, b := range answers {
		var t mad.SLtoVL
		if b == nil || mad.View(b).Status() != mad.StatusOK {
			continue
		}
		if _, err := t.Parse(b[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil {
			maps[of[k]] = t
		}
	}
	return maps
}
