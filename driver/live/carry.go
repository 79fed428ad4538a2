package live

import (
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// packet is a management packet under way: its headers, and its datagram.
type packet struct {
	wire.Packet
	env   mad.Envelope // what the port sees of it where it has come to rest
	probe *Probed      // it is one, and what becomes of it goes there
	away  bool         // it goes on by the engine, a cable of which it has come to
	data  [mad.Size]byte
}

// direct makes the packet one of subnet management that goes by a directed route. It is written in place: bringing a
// large subnet up takes hundreds of thousands.
func (p *packet) direct(data []byte) {
	agent.NewSMP(&p.Packet, ib.LIDPermissive, ib.LIDPermissive, 0)
	p.away = false
	copy(p.data[:], data)
}

// mgmtWords is how long a management packet is in the units of the data counters (IBA 16.1.3.5): LRH, BTH, DETH, the
// datagram and the ICRC, without the VCRC.
const mgmtWords = (8 + 12 + 8 + mad.Size + 4) / 4

// maxHops bounds how far a packet goes: tables may run in a circle while somebody writes them.
const maxHops = 256

// place is where a packet is: at a node, having come in by a port, or made there (by whoever is at the port).
type place struct {
	node     int
	port     ib.PortNum
	fromHere bool
}

// carry takes a packet from node to node until it comes to rest: at an agent, whose answer goes on in its place, at a
// program, or nowhere. The fabric's lock is held; it is given up for a moment where an adapter's agent has work. What
// comes to rest at back is not queued there but left in the packet, and carry reports it.
func (f *Fabric) carry(at place, p *packet, back *MgmtPort) bool {
	for range maxHops {
		var on bool
		var mine bool
		if p.LRH.DLID == ib.LIDPermissive && !at.fromHere {
			if out, ok := f.agents[at.node].Pass(at.port, p.data[:]); ok {
				if at, on = f.cross(at.node, out, ib.VLMgmt, p); !on {
					return false
				}
				continue
			}
		}
		if d := f.decide(at, p); d.isHere() {
			if p.probe != nil {
				f.probed(at, p)
				return false
			}
			at, on, mine = f.arrive(at, p, back)
		} else {
			at, on = f.follow(at, d, p)
		}
		if mine || !on {
			return mine
		}
	}
	return false
}

// decision is what a node does with a packet: what its switch says, or the same of an adapter.
type decision struct{ ibswitch.Decision }

// isHere reports whether the packet is for the node itself.
func (d decision) isHere() bool { return d.Reason == link.OK && d.Out == 0 }

// decide says where a packet goes on. Directed ones every node looks at itself, and its hop rules decide.
func (f *Fabric) decide(at place, p *packet) (d decision) {
	if p.LRH.DLID == ib.LIDPermissive ||
		at.fromHere && p.BTH.DestQP == ib.QPNSMI && mad.View(p.data[:]).Class() == mad.ClassSMDirect {
		return d
	}
	return f.decideByLID(at, p)
}

// decideByLID says where a packet goes on by its address.
func (f *Fabric) decideByLID(at place, p *packet) (d decision) {
	switch n := f.nodes[at.node].(type) {
	case *switchNode:
		in := at.port
		if at.fromHere {
			in = 0
		}
		f.probe.LRH, f.probe.Packet = p.LRH, &p.Packet
		d.Decision = n.engine.Decide(in, &f.probe)
	case *Host:
		port := n.eng.Port(at.port)
		if !at.fromHere || port.LID != 0 && p.LRH.DLID>>port.LMC == port.LID>>port.LMC {
			return d
		}
		d.Out, d.At, d.VL = at.port, at.port, ib.VLMgmt
		if p.BTH.DestQP != ib.QPNSMI {
			d.VL, d.Reason = n.ports[at.port].link.Depart(p.LRH.SL)
		}
	}
	return d
}

// follow does what a node has decided.
func (f *Fabric) follow(at place, d decision, p *packet) (place, bool) {
	if d.Reason != link.OK {
		f.portAt(at.node, d.At).drops(p, d.Reason)
		return place{}, false
	}
	return f.cross(at.node, d.Out, d.VL, p)
}

// forward sends a packet of a node's own on by its LID: so go directed ones too, before and behind the part of their
// way that is directed (IBA 14.2.2).
func (f *Fabric) forward(at place, p *packet) (next place, on bool) {
	if d := f.decideByLID(at, p); !d.isHere() {
		return f.follow(at, d, p)
	}
	return next, false
}

// arrive hands a packet to the agent or to the programs of a node.
func (f *Fabric) arrive(at place, p *packet, back *MgmtPort) (next place, on, mine bool) {
	v := mad.View(p.data[:])
	if p.BTH.DestQP != ib.QPNSMI {
		return f.arriveGMP(at, p, back)
	}
	if v.Method() == mad.MethodTrapRepress && v.Class() == mad.ClassSMLID && !at.fromHere && f.mgmtPort(at) != nil {
		return next, false, f.rest(at, p, back) // for a program that has sent the trap, else for the agent
	}
	wasResponse := v.Method().IsResponse()
	do := f.deliver(at, p)
	here := place{at.node, at.port, true}
	answered := !wasResponse && v.Method().IsResponse()
	do.Readdress(&p.Packet, f.lidOf(at.node, at.port), answered)
	switch do.Do {
	case agent.SendPort:
		next, on = f.cross(at.node, do.Port, ib.VLMgmt, p)
	case agent.SendLID:
		next, on = f.forward(here, p)
	case agent.AsAddressed:
		if p.LRH.DLID == f.lidOf(at.node, at.port) && p.LRH.DLID != 0 {
			return next, false, f.rest(at, p, back)
		}
		next, on = f.forward(here, p)
	case agent.ToManager:
		return next, false, f.rest(at, p, back)
	}
	return next, on, false
}

// arriveGMP offers a packet to the programs of a port first, then to the node's agent.
func (f *Fabric) arriveGMP(at place, p *packet, back *MgmtPort) (next place, on, mine bool) {
	if f.mgmtPort(at) != nil {
		return next, false, f.rest(at, p, back) // it knows whether a program wants it
	}
	if !f.handle(at, p) {
		return next, false, false
	}
	agent.Turn(&p.Packet, f.lidOf(at.node, at.port))
	here := place{at.node, at.port, true}
	d := f.decide(here, p)
	if d.isHere() {
		return next, false, f.rest(at, p, back)
	}
	next, on = f.follow(here, d, p)
	return next, on, false
}

// rest gives a packet to the management port that it has come to.
func (f *Fabric) rest(at place, p *packet, back *MgmtPort) bool {
	if back != nil && back.ref == f.serviceRef(at) {
		f.address(p, back)
		return true
	}
	if c := f.calls[f.serviceRef(at)]; c != nil && c.tid == mad.View(p.data[:]).TID() {
		select {
		case c.answer <- *p:
		default:
		}
		return false
	}
	q := f.mgmtPort(at)
	if q == nil {
		return false
	}
	f.address(p, q)
	q.drop(p)
	return false
}

// address notes what of its own the port sees in a packet that has come to it.
func (f *Fabric) address(p *packet, q *MgmtPort) {
	var port hca.Port
	if q.host != nil {
		port = *q.host.eng.Port(q.ref.Port)
	}
	p.env = agent.EnvelopeOf(&p.Packet, port.LMC, port.PKeys)
}

// lidOf is the address of a port; a switch's is its port 0's.
func (f *Fabric) lidOf(node int, port ib.PortNum) ib.LID {
	switch n := f.nodes[node].(type) {
	case *switchNode:
		lid, _ := n.engine.LID()
		return lid
	case *Host:
		return n.eng.Port(max(port, 1)).LID
	}
	return 0
}

// cross takes a packet over the cable at a port, on a lane.
func (f *Fabric) cross(node int, num ib.PortNum, vl ib.VL, p *packet) (place, bool) {
	out := f.portAt(node, num)
	if out == nil {
		return place{}, false
	}
	if why := out.link.Sends(vl); why != link.OK {
		out.drops(p, why)
		return place{}, false
	}
	in := out.peer
	if in != nil && (out.isSwitched() || len(in.taps) > 0) && !f.crossSwitched(out, vl, p) {
		return place{}, false
	}
	// Of subnet management, which is at level 0 but for oddities, there are hundreds of thousands of packets when a
	// subnet comes up.
	short := vl == ib.VLMgmt && p.LRH.SL == 0
	if short {
		out.smpsOut++
	} else {
		out.countMgmt(true, vl, p.LRH.SL, 1)
	}
	if p.probe != nil {
		p.probe.At, p.probe.Reason = out.ref(), link.LinkDown // unless it gets further
	}
	if in == nil {
		return place{}, false
	}
	if why := in.link.Admits(vl); why != link.OK {
		in.drops(p, why)
		return place{}, false
	}
	if short {
		in.smpsIn++
	} else {
		in.countMgmt(false, vl, p.LRH.SL, 1)
		if vl != ib.VLMgmt && in.link.State() == ib.PortArmed {
			f.activated(in)
		}
	}
	return place{node: in.index(), port: in.num}, true
}

// crossSwitched hands a packet to the engine, which takes it over a cable with a fault or a capture, and on from there
// until it comes to rest. Only a probe goes on here, as it counts nowhere, where the cable spares it.
func (f *Fabric) crossSwitched(out *portState, vl ib.VL, p *packet) bool {
	fr := f.pool.Get()
	*fr.Packet = p.Packet
	fr.Packet.LRH.VL = vl
	fr.Own(p.data[:])
	fr.Seal()
	fr.InPort = 0
	if p.probe == nil {
		p.away = true
		f.eng.Schedule(f.Now(), evDepart, out.place(), fr.Index())
		f.plane.knock()
		return false
	}
	for _, q := range [...]*portState{out, out.peer} {
		dir := trace.In
		if q == out {
			dir = trace.Out
		}
		f.plane.Write(&trace.Event{Time: f.Now(), Node: uint32(q.index()), Port: q.num, Kind: trace.Packet, Dir: dir,
			Packet: fr.Packet})
	}
	spared := f.eng.Strike(out.place(), int(fr.Bytes))
	f.pool.Put(fr)
	if !spared {
		p.probe.At, p.probe.Reason = out.ref(), link.LinkDown
	}
	return spared
}

// unpack reads a packet of management from the wire; false if it is none.
func unpack(w *wire.Packet) (p packet, ok bool) {
	if !agent.IsMAD(w) {
		return p, false
	}
	p = packet{Packet: *w, data: [mad.Size]byte(w.Payload)}
	p.Payload = nil
	return p, true
}

// activated is for a port that hears from an active neighbour: it is active itself then (IBA 7.2.7.3).
func (f *Fabric) activated(p *portState) {
	if p.link.Command(f.now, ib.PortActive) == nil {
		f.changed()
		f.stir(p.index())
		if p.host != nil {
			p.host.syncPorts()
		}
	}
}

// portAt is a port of a node.
func (f *Fabric) portAt(node int, num ib.PortNum) *portState {
	switch n := f.nodes[node].(type) {
	case *switchNode:
		if int(num) < len(n.ports) {
			return n.ports[num]
		}
	case *Host:
		if int(num) < len(n.ports) {
			return n.ports[num]
		}
	}
	return nil
}

// index is the node that a port belongs to.
func (p *portState) index() int {
	if p.host != nil {
		return p.host.node.Index
	}
	return p.sw.node.Index
}

// handle lets the agent of a node answer a datagram that is not of subnet management. Before it shows counters, what
// went by routes is added to them.
func (f *Fabric) handle(at place, p *packet) (ok bool) {
	if mad.View(p.data[:]).Class() == mad.ClassPerf {
		f.settleProcesses()
	}
	f.with(at, func() { _, ok = f.agents[at.node].HandleFrom(f.Now(), at.port, p.LRH.SLID, p.data[:], p.data[:]) })
	return ok
}

// with calls do, which has to do with the agent of a node.
func (f *Fabric) with(at place, do func()) {
	do()
	if h, ok := f.nodes[at.node].(*Host); ok {
		h.passOn()
	}
}

// deliver takes a subnet management packet through a node.
func (f *Fabric) deliver(at place, p *packet) agent.Verdict {
	v := mad.View(p.data[:])
	a := f.agents[at.node]
	if v.Method() != mad.MethodSet || inTransit(at, v) {
		return a.DeliverFrom(f.now, at.port, p.LRH.SLID, at.fromHere, p.data[:])
	}
	verdict := f.deliverSet(at, p.LRH.SLID, v)
	if h, ok := f.nodes[at.node].(*Host); ok {
		h.passOn()
	}
	return verdict
}

// inTransit reports whether a packet is a directed one that only passes here on its way out, or an answer that comes
// back: nothing of the node but its hop rules is concerned (IBA 14.2.2).
func inTransit(at place, v mad.View) bool {
	if v.Class() != mad.ClassSMDirect {
		return false
	}
	if v.Returning() {
		return !at.fromHere && v.Method().IsResponse()
	}
	return v.HopPointer() < v.HopCount()
}

// deliverSet is deliver for a request that may change the node. A link whose physical state it changes takes its far
// end with it.
func (f *Fabric) deliverSet(at place, from ib.LID, v mad.View) agent.Verdict {
	num := at.port
	ports := v.AttrID() == mad.AttrPortInfo
	if ports && v.AttrMod()&0xFF != 0 {
		num = ib.PortNum(v.AttrMod())
	}
	p := f.portAt(at.node, num)
	phys := ib.PhysNoChange
	if ports && p != nil {
		phys = p.link.Phys()
	}
	verdict := f.agents[at.node].DeliverFrom(f.now, at.port, from, at.fromHere, v)
	if verdict.Do == agent.SendPort && !v.Method().IsResponse() {
		return verdict // it only passes
	}
	if v.AttrID() != mad.AttrNotice {
		f.changed()
	}
	if !ports || p == nil || p.peer == nil || p.link.Phys() == phys {
		return verdict
	}
	if p.peer.link.Phys() == ib.PhysLinkUp {
		p.peer.link.Down(f.now)
	}
	f.stir(at.node)
	f.stir(p.peer.index())
	if f.train(p) && p.host != nil {
		p.host.mgmt.Sync(num)
	}
	if p.peer.host != nil {
		p.peer.host.syncPorts()
	}
	return verdict
}

// mgmtPort is the service of programs at a place, nil if no program has opened it.
func (f *Fabric) mgmtPort(at place) *MgmtPort { return f.services[f.serviceRef(at)] }

// serviceRef is the end port of a place: port 0 at a switch.
func (f *Fabric) serviceRef(at place) topo.PortRef {
	if _, ok := f.nodes[at.node].(*switchNode); ok {
		return topo.PortRef{Node: at.node}
	}
	return topo.PortRef{Node: at.node, Port: at.port}
}
