package live

import (
	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// packet is a management packet under way: what its headers say, and its datagram.
type packet struct {
	slid, dlid   ib.LID
	sl           ib.SL
	srcQP, dstQP ib.QPN
	qkey         ib.QKey
	pkey         ib.PKey
	hasGRH       bool
	hopLimit     uint8
	tclass       uint8
	flow         uint32
	sgid, dgid   ib.GID
	// Of the port where it has come to rest.
	pathBits  uint8
	pkeyIndex uint16
	probe     *Probed // it is one, and what becomes of it goes there
	data      [mad.Size]byte
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
		if p.dlid == ib.LIDPermissive && !at.fromHere {
			if out, ok := f.agents[at.node].Pass(at.port, p.data[:]); ok {
				if at, on = f.cross(at.node, out, p); !on {
					return false
				}
				continue
			}
		}
		if f.isHere(at, p) {
			if p.probe != nil {
				f.probed(at, p)
				return false
			}
			at, on, mine = f.arrive(at, p, back)
		} else {
			at, on = f.forward(at, p)
		}
		if mine || !on {
			return mine
		}
	}
	return false
}

// isHere reports whether a packet has come to the node that it is for, or is a directed one, which every node looks at.
func (f *Fabric) isHere(at place, p *packet) bool {
	if p.dlid == ib.LIDPermissive {
		return true
	}
	if s, ok := f.nodes[at.node].(*switchNode); ok {
		lid, lmc := s.engine.LID()
		return lid != 0 && p.dlid>>lmc == lid>>lmc || p.dstQP == ib.QPNSMI && at.fromHere &&
			mad.View(p.data[:]).Class() == mad.ClassSMDirect
	}
	if !at.fromHere {
		return true
	}
	if p.dstQP == ib.QPNSMI && mad.View(p.data[:]).Class() == mad.ClassSMDirect {
		return true // hop rules decide where it leaves
	}
	port := f.nodes[at.node].(*Host).eng.Port(at.port)
	return port.LID != 0 && p.dlid>>port.LMC == port.LID>>port.LMC
}

// arrive hands a packet to the agent or to the programs of a node.
func (f *Fabric) arrive(at place, p *packet, back *MgmtPort) (next place, on, mine bool) {
	v := mad.View(p.data[:])
	if p.dstQP != ib.QPNSMI {
		return f.arriveGMP(at, p, back)
	}
	if v.Method() == mad.MethodTrapRepress && v.Class() == mad.ClassSMLID && !at.fromHere && f.mgmtPort(at) != nil {
		return next, false, f.rest(at, p, back) // for a program that has sent the trap, else for the agent
	}
	wasResponse := v.Method().IsResponse()
	do := f.deliver(at, p)
	here := place{at.node, at.port, true}
	switch do.Do {
	case agent.SendPort:
		p.slid, p.dlid = ib.LIDPermissive, ib.LIDPermissive
		next, on = f.cross(at.node, do.Port, p)
	case agent.SendLID:
		p.slid, p.dlid = f.lidOf(at.node, at.port), do.DLID
		next, on = f.forward(here, p)
	case agent.AsAddressed:
		if !wasResponse && v.Method().IsResponse() {
			f.turn(at, p)
		}
		if p.dlid == f.lidOf(at.node, at.port) && p.dlid != 0 {
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
	f.turn(at, p)
	here := place{at.node, at.port, true}
	if f.isHere(here, p) {
		return next, false, f.rest(at, p, back)
	}
	next, on = f.forward(here, p)
	return next, on, false
}

// rest gives a packet to the management port that it has come to.
func (f *Fabric) rest(at place, p *packet, back *MgmtPort) bool {
	if back != nil && back.ref == f.serviceRef(at) {
		f.address(p, back)
		return true
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
	if q.host != nil {
		port := q.host.eng.Port(q.ref.Port)
		p.pathBits = uint8(p.dlid) & (1<<port.LMC - 1)
		for i, k := range port.PKeys {
			if k.Matches(p.pkey) {
				p.pkeyIndex = uint16(i)
				break
			}
		}
	}
}

// turn readdresses a request, which has become the response, to its sender (IBA 13.5.4).
func (f *Fabric) turn(at place, p *packet) {
	p.dlid, p.slid = p.slid, f.lidOf(at.node, at.port)
	p.srcQP, p.dstQP = p.dstQP, p.srcQP
	p.sgid, p.dgid = p.dgid, p.sgid
	if p.dstQP == ib.QPNGSI {
		p.qkey = ib.QKeyGSI
	}
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

// forward sends a packet on by its LID.
func (f *Fabric) forward(at place, p *packet) (place, bool) {
	switch n := f.nodes[at.node].(type) {
	case *Host:
		if !at.fromHere {
			return place{}, false
		}
		return f.cross(at.node, at.port, p)
	case *switchNode:
		out := n.engine.Route(p.dlid)
		why := link.OK
		switch {
		case int(out) > n.engine.NumPorts() || p.dlid > n.engine.Info().LinearFDBTop || out == 0:
			why = link.UnknownDLID
		case at.fromHere:
		case out == at.port:
			why = link.Looping
		case p.dstQP != ib.QPNSMI && n.engine.SL2VL(at.port, out)[p.sl&15] >= ib.VLMgmt:
			why = link.BadVLMap
		}
		if why != link.OK {
			if !at.fromHere {
				n.ports[at.port].drops(p, why)
			}
			return place{}, false
		}
		return f.cross(at.node, out, p)
	}
	return place{}, false
}

// cross takes a packet over the cable at a port.
func (f *Fabric) cross(node int, num ib.PortNum, p *packet) (place, bool) {
	out := f.portAt(node, num)
	if out == nil {
		return place{}, false
	}
	if why := f.refuses(out, p, false); why != link.OK {
		out.drops(p, why)
		return place{}, false
	}
	in := out.peer
	// Of subnet management, which is at level 0 but for oddities, there are hundreds of thousands of packets when a
	// subnet comes up.
	short := p.dstQP == ib.QPNSMI && p.sl == 0
	vl := ib.VLMgmt
	if short {
		out.smpsOut++
	} else {
		if p.dstQP != ib.QPNSMI {
			vl = out.link.SL2VL(p.sl)
		}
		out.countMgmt(true, vl, p.sl, 1)
	}
	if p.probe != nil {
		p.probe.At, p.probe.Reason = out.ref(), link.LinkDown // unless it gets further
	}
	if in == nil {
		return place{}, false
	}
	if out.cable != nil || len(out.taps) > 0 {
		if len(out.taps) > 0 {
			f.tapMgmt(out, trace.Out, p)
		}
		if f.harmsMgmt(out, in) {
			return place{}, false
		}
	}
	refused := f.refuses(in, p, true)
	if refused == link.NotReady {
		return place{}, false
	}
	if len(in.taps) > 0 {
		f.tapMgmt(in, trace.In, p)
	}
	if short {
		in.smpsIn++
	} else {
		in.countMgmt(false, vl, p.sl, 1)
	}
	if refused != link.OK {
		in.drops(p, refused)
		return place{}, false
	}
	return place{node: in.index(), port: in.num}, true
}

// refuses says why a port lets a management packet not pass: subnet management passes from Initialize on, all
// else when the link is Active and the partition is right.
func (f *Fabric) refuses(p *portState, m *packet, inbound bool) link.Reason {
	closed := link.Inactive
	if inbound {
		closed = link.NotReady
	}
	if m.dstQP == ib.QPNSMI {
		if p.link.Phys() == ib.PhysLinkUp && p.link.State() >= ib.PortInit {
			return link.OK
		}
		return closed
	}
	if p.link.State() != ib.PortActive {
		return closed
	}
	if p.sw == nil {
		return link.OK
	}
	f.probePkt.LRH = wire.LRH{DLID: m.dlid, SL: m.sl, LNH: wire.LNHLocal}
	f.probe.LRH = f.probePkt.LRH
	f.probePkt.BTH.PKey = m.pkey
	f.probe.Packet = &f.probePkt
	if inbound {
		return p.link.RefusesIn(&f.probe)
	}
	return p.link.RefusesOut(&f.probe)
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
	f.with(at, func() { _, ok = f.agents[at.node].HandleFrom(f.Now(), at.port, p.slid, p.data[:], p.data[:]) })
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
		return a.DeliverFrom(f.now, at.port, p.slid, at.fromHere, p.data[:])
	}
	verdict := f.deliverSet(at, p.slid, v)
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
