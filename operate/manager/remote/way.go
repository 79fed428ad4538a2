package remote

import (
	"context"
	"fmt"
	"time"

	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Way follows packets from an end port to an address by the tables that were last read. Lanes are asked for: there are
// too many to keep.
func (f *Fabric) Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (inspect.Way, error) {
	w := walk{g: f.Graph(), v: f.view.Load(), dlid: dlid, sl: sl, pkey: pkey}
	if !dlid.IsUnicast() {
		return inspect.Way{}, fmt.Errorf("remote: LID %v is no unicast address: want 1 to 0x%x", dlid,
			int(ib.LIDUnicastMax))
	}
	p := w.v.port(from)
	if p == nil || (from.Port == 0) != w.g.Nodes[from.Node].IsSwitch() {
		return inspect.Way{}, fmt.Errorf("remote: %s is no end port: want a host's port, or port 0 of a switch",
			w.g.PortName(from))
	}
	w.way.Out = mad.LFTNone
	in := from
	if from.Port != 0 {
		if !w.cross(from, &in) {
			return w.way, w.err
		}
	}
	for w.g.Nodes[in.Node].IsSwitch() && w.relay(&in) {
	}
	if w.err == nil {
		f.lanes(&w)
	}
	return w.way, w.err
}

// walk is a packet on its way.
type walk struct {
	g    *topo.Graph
	v    *view
	dlid ib.LID
	sl   ib.SL
	pkey ib.PKey
	way  inspect.Way
	err  error
}

func (w *walk) lose(at topo.PortRef, why link.Reason) bool {
	w.way.Lost, w.way.Reason = at, why
	return false
}

// cross leaves by a port and comes in at the far end of its cable.
func (w *walk) cross(out topo.PortRef, in *topo.PortRef) bool {
	p := w.g.Port(out)
	if !p.Connected() || w.v.state(out) != ib.PortActive {
		return w.lose(out, link.Inactive)
	}
	far := topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	if w.v.state(far) != ib.PortActive {
		return w.lose(out, link.Inactive)
	}
	for _, h := range w.way.Hops {
		if h.Out == out {
			return w.lose(*in, link.Looping) // from here on it goes round
		}
	}
	pi := &w.v.port(out).info
	w.way.Hops = append(w.way.Hops, inspect.WayHop{Out: out, In: far, Rate: pi.Rate(), MTU: pi.NeighborMTU})
	*in = far
	return true
}

// relay goes on from the switch that the packet has come to by port in, 0 for the switch's own. It is false where the
// way ends.
func (w *walk) relay(in *topo.PortRef) bool {
	n := &w.v.nodes[in.Node]
	if n.lft == nil {
		w.err = fmt.Errorf("remote: the forwarding table of %s cannot be read: it does not answer, or wants "+
			"another M_Key", w.g.Nodes[in.Node].Name)
		return false
	}
	if p := w.v.port(*in); in.Port != 0 && p.info.PartitionEnforcementInbound && !admits(p.keys, w.pkey, true) {
		return w.lose(*in, link.PKeyIn)
	}
	if int(w.dlid) >= len(n.lft) {
		return w.lose(*in, link.UnknownDLID)
	}
	num := n.lft[w.dlid]
	w.way.Out = num
	switch {
	case num == 0 && in.Port != 0:
		return false // it is for the switch itself
	case num == 0 || int(num) >= len(n.ports):
		return w.lose(*in, link.UnknownDLID)
	case num == in.Port:
		return w.lose(*in, link.Looping)
	}
	out := topo.PortRef{Node: in.Node, Port: num}
	if w.v.state(out) != ib.PortActive {
		return w.lose(out, link.Inactive)
	}
	if p := w.v.port(out); p.info.PartitionEnforcementOutbound && !admits(p.keys, w.pkey, false) {
		return w.lose(out, link.PKeyOut)
	}
	return w.cross(out, in)
}

// admits reports whether a switch's port lets packets of a partition pass (IBA 10.9.3): on the way in limited members
// too. A table that could not be read is taken to let them.
func admits(keys []ib.PKey, k ib.PKey, inbound bool) bool {
	for _, have := range keys {
		if have.Matches(k) || inbound && k.IsValid() && have.Base() == k.Base() {
			return true
		}
	}
	return keys == nil
}

// lanesPatience is how long somebody who looks at a way waits for its lanes.
const lanesPatience = 2 * time.Second

// lanes asks which lane each hop of a way is on, where there is a choice. A way ends where its level has no lane.
func (f *Fabric) lanes(w *walk) {
	var list []query
	var hop []int
	hops := w.way.Hops
	for i := range hops {
		out := hops[i].Out
		if w.v.port(out).info.OperationalVLs.VLs() < 2 {
			continue
		}
		n := &w.v.nodes[out.Node]
		mod := uint32(0)
		if w.g.Nodes[out.Node].IsSwitch() {
			in := ib.PortNum(0)
			if i > 0 {
				in = hops[i-1].In.Port
			}
			mod = mad.SLtoVLModifier(in, out.Port)
		}
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrSLtoVL, Modifier: mod, Directed: true, Path: n.route,
			MKey: f.opts.MKey}).Append(nil)
		if err != nil {
			continue
		}
		list = append(list, query{mad.ClassSMDirect, mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, b})
		hop = append(hop, i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lanesPatience)
	defer cancel()
	answers, err := f.ask(ctx, list)
	if err != nil {
		return
	}
	for k, b := range answers {
		var t mad.SLtoVL
		if b == nil || mad.View(b).Status() != mad.StatusOK {
			continue
		}
		if _, err := t.Parse(b[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
			continue
		}
		h := &hops[hop[k]]
		h.VL = t[w.sl&15]
		if int(h.VL) < w.v.port(h.Out).info.OperationalVLs.VLs() {
			continue
		}
		at := h.Out
		if i := hop[k]; i > 0 {
			at = hops[i-1].In
		}
		w.way.Hops = hops[:hop[k]]
		w.lose(at, link.BadVLMap)
		return
	}
}
