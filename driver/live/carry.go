package live

import (
	"fmt"
	"slices"

	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/inspect"
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
	env   mad.Envelope    // what the port sees of it where it has come to rest
	probe *inspect.Probed // it is one, and what becomes of it goes there
	away  bool            // it goes on by the engine, a cable of which it has come to
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
	*node
	port     ib.PortNum
	fromHere bool
}

// end is the end port of a place: port 0 at a switch. It is nil for no port of a host.
func (at place) end() *portState {
	if at.sw != nil {
		return at.ports[0]
	}
	return at.node.port(at.port)
}

// carry takes a packet from node to node until it comes to rest: at an agent, whose answer goes on in its place, at a
// program, or nowhere. The fabric's lock is held. What comes to rest at back is not queued there but left in the
// packet, and carry reports it.
func (f *Fabric) carry(at place, p *packet, back *MgmtPort) (mine bool) {
	on := true
	for hops := 0; on && hops < maxHops; hops++ {
		if p.LRH.DLID == ib.LIDPermissive && !at.fromHere {
			if out, ok := at.agent.Pass(at.port, p.data[:]); ok {
				at, on = f.cross(at.node, out, ib.VLMgmt, p)
				continue
			}
		}
		switch d := f.decide(at, p); {
		case !isHere(d):
			at, on = f.follow(at, d, p)
		case p.probe != nil:
			f.probed(at, p)
			return false
		default:
			at, on, mine = f.arrive(at, p, back)
		}
	}
	return mine
}

// isHere reports whether a packet is for the node that has decided.
func isHere(d ibswitch.Decision) bool { return d.Reason == link.OK && d.Out == 0 }

// decide says where a packet goes on. Directed ones every node looks at itself, and its hop rules decide.
func (f *Fabric) decide(at place, p *packet) (d ibswitch.Decision) {
	if p.LRH.DLID == ib.LIDPermissive ||
		at.fromHere && p.BTH.DestQP == ib.QPNSMI && mad.View(p.data[:]).Class() == mad.ClassSMDirect {
		return d
	}
	return f.decideByLID(at, p)
}

// decideByLID says where a packet goes on by its address: what a switch says, or the same of an adapter.
func (f *Fabric) decideByLID(at place, p *packet) (d ibswitch.Decision) {
	if at.sw != nil {
		in := at.port
		if at.fromHere {
			in = 0
		}
		f.probe.LRH, f.probe.Packet = p.LRH, &p.Packet
		return at.sw.Decide(in, &f.probe)
	}
	if at.rt != nil && !at.fromHere {
		return f.decideRouter(at, p)
	}
	port := at.host.eng.Port(at.port)
	if !at.fromHere || port.LID != 0 && p.LRH.DLID>>port.LMC == port.LID>>port.LMC {
		return d
	}
	d.Out, d.At, d.VL = at.port, at.port, ib.VLMgmt
	if p.BTH.DestQP != ib.QPNSMI {
		d.VL, d.Reason = at.ports[at.port].link.Depart(p.LRH.SL)
	}
	return d
}

// decideRouter says where a router sends a packet, which it readdresses if it goes on.
func (f *Fabric) decideRouter(at place, p *packet) (d ibswitch.Decision) {
	r := at.rt.Decide(at.port, &p.LRH, &p.Packet)
	if r.Fan {
		return ibswitch.Decision{Reason: link.NoMember, At: at.port} // no program multicasts management packets
	}
	if !r.Here && r.Reason == link.OK {
		r.Readdress(&p.LRH, &p.Packet)
	}
	return ibswitch.Decision{Reason: r.Reason, At: r.At, Out: r.Out, VL: r.VL}
}

// follow does what a node has decided.
func (f *Fabric) follow(at place, d ibswitch.Decision, p *packet) (place, bool) {
	if d.Reason != link.OK {
		at.ports[d.At].drops(p, d.Reason)
		return place{}, false
	}
	return f.cross(at.node, d.Out, d.VL, p)
}

// arrive hands a packet to the agent or to the programs of a node.
func (f *Fabric) arrive(at place, p *packet, back *MgmtPort) (next place, on, mine bool) {
	v := mad.View(p.data[:])
	served := at.end() != nil && at.end().service != nil
	if p.BTH.DestQP != ib.QPNSMI {
		if served {
			return next, false, f.rest(at, p, back) // it knows whether a program wants it
		}
		next, on, here := f.answer(at, p)
		return next, on, here && f.rest(at, p, back)
	}
	if v.Method() == mad.MethodTrapRepress && v.Class() == mad.ClassSMLID && !at.fromHere && served {
		return next, false, f.rest(at, p, back) // for a program that has sent the trap, else for the agent
	}
	wasResponse := v.Method().IsResponse()
	do := f.deliver(at, p)
	lid := at.lid(at.port)
	do.Readdress(&p.Packet, lid, !wasResponse && v.Method().IsResponse())
	switch {
	case do.Do == agent.SendPort:
		next, on = f.cross(at.node, do.Port, ib.VLMgmt, p)
	case do.Do == agent.ToManager, do.Do == agent.AsAddressed && p.LRH.DLID == lid && lid != 0:
		return next, false, f.rest(at, p, back)
	case do.Do == agent.AsAddressed, do.Do == agent.SendLID:
		// By its LID: so go directed ones too, before and behind the part of their way that is directed (IBA 14.2.2).
		at.fromHere = true
		if d := f.decideByLID(at, p); !isHere(d) {
			next, on = f.follow(at, d, p)
		}
	}
	return next, on, false
}

// answer has the agent answer a datagram that no program wants, if it does, and sends that on. Here says that the
// answer is for the node itself.
func (f *Fabric) answer(at place, p *packet) (next place, on, here bool) {
	if !f.handle(at, p) {
		return next, false, false
	}
	agent.Turn(&p.Packet, at.lid(at.port))
	at.fromHere = true
	d := f.decide(at, p)
	if isHere(d) {
		return next, false, true
	}
	next, on = f.follow(at, d, p)
	return next, on, false
}

// rest gives a packet to the management port that it has come to.
func (f *Fabric) rest(at place, p *packet, back *MgmtPort) (mine bool) {
	e := at.end()
	if e == nil {
		return false
	}
	mine = back != nil && back.at == e
	if c := e.call; !mine && c != nil && c.tid == mad.View(p.data[:]).TID() {
		c.answer, c.answered = *p, true
		return false
	}
	port := e.onAdapter()
	p.env = agent.EnvelopeOf(&p.Packet, port.LMC, port.PKeys)
	if !mine && e.service != nil {
		e.service.drop(p)
	}
	return mine
}

// cross takes a packet over the cable at a port, on a lane.
func (f *Fabric) cross(n *node, num ib.PortNum, vl ib.VL, p *packet) (next place, on bool) {
	out := n.port(num)
	if out == nil {
		return next, false
	}
	if why := out.link.Sends(vl); why != link.OK {
		out.drops(p, why)
		return next, false
	}
	if p.probe != nil {
		p.probe.At, p.probe.Reason = out.ref(), link.LinkDown // unless it gets further
	}
	in := out.peer
	if (out.isSwitched() || in != nil && len(in.taps) > 0) && !f.crossSwitched(out, vl, p) {
		return next, false
	}
	// Of subnet management, which is at level 0 but for oddities, there are hundreds of thousands of packets when a
	// subnet comes up.
	if vl == ib.VLMgmt && p.LRH.SL == 0 {
		out.smpsOut++
	} else {
		out.countMgmt(true, vl, p.LRH.SL)
	}
	if in == nil {
		return next, false
	}
	return f.comeIn(in, vl, p)
}

// comeIn takes a packet in by a port, on a lane.
func (f *Fabric) comeIn(in *portState, vl ib.VL, p *packet) (next place, on bool) {
	if why := in.link.Admits(vl); why != link.OK {
		in.drops(p, why)
		return next, false
	}
	if vl == ib.VLMgmt {
		if why := in.link.RefusesSMP(p.data[:]); why != link.OK {
			in.drops(p, why)
			return next, false
		}
	}
	if vl == ib.VLMgmt && p.LRH.SL == 0 {
		in.smpsIn++
	} else {
		in.countMgmt(false, vl, p.LRH.SL)
		if vl != ib.VLMgmt {
			p.LRH.VL = vl
			if in.link.State() == ib.PortArmed {
				f.activated(in)
			}
		}
	}
	return place{node: in.node, port: in.num}, true
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
		at := f.now // the engine's time may be that of an event that waits to be handled
		if f.plane.turning {
			at = f.eng.Now() // an answer as its request came, maybe late
		}
		f.eng.Schedule(at, evDepart, out.place(), fr.Index())
		f.plane.knock()
		return false
	}
	out.show(&trace.Event{Time: f.Now(), Dir: trace.Out, Packet: fr.Packet})
	if out.peer != nil {
		out.peer.show(&trace.Event{Time: f.Now(), Dir: trace.In, Packet: fr.Packet})
	}
	spared := f.eng.Strike(out.place(), int(fr.Bytes))
	f.pool.Put(fr)
	if out.outside != nil && spared {
		p.probe.Leaves = &inspect.WayHop{Out: out.ref(), In: f.graph.Peer(out.ref()), VL: vl}
		return false
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
		f.moved(p)
	}
}

// SMP hands a management datagram to the agent of a node, as if it had come in by inPort (0: from the node itself).
// False means that there is no answer. Performance management goes the same way.
func (f *Fabric) SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) (ok bool) {
	n := f.node(node)
	if n == nil || f.closed.Load() {
		return false
	}
	var p packet
	p.direct(req[:])
	at := place{n, inPort, inPort == 0}
	f.lock(f.Now())
	if mad.View(req[:]).Class().IsSubnet() {
		ok = f.deliver(at, &p).Do != agent.Discard && mad.View(p.data[:]).Method().IsResponse()
	} else {
		ok = f.handle(at, &p)
	}
	f.mu.Unlock()
	*resp = p.data
	return ok
}

// handle lets the agent of a node answer a datagram that is not of subnet management. Before it shows counters, what
// went by routes is added to them.
func (f *Fabric) handle(at place, p *packet) bool {
	v := mad.View(p.data[:])
	if v.Class() == mad.ClassPerf {
		f.settleProcesses()
		at.fold()
		if at.host != nil {
			at.host.foldPrograms()
		}
	}
	end := at.end()
	slowed := end.congestion()
	_, ok := at.agent.HandleFrom(f.Now(), at.port, p.LRH.SLID, p.data[:], p.data[:])
	if end.congestion() != slowed {
		end.host.tellPort(end.num) // programs have no event for it
	}
	at.passOn()
	return ok
}

// congestion is how an adapter's port slows down in congestion; nil for any other.
func (p *portState) congestion() *hca.Congestion {
	if p == nil || p.host == nil {
		return nil
	}
	return p.host.eng.Port(p.num).Congestion
}

// deliver takes a subnet management packet through a node. A Set may change it; a link whose physical state that
// changes takes its far end with it.
func (f *Fabric) deliver(at place, p *packet) agent.Verdict {
	v := mad.View(p.data[:])
	isSet := v.Method() == mad.MethodSet
	var port *portState // that may change
	phys := ib.PhysNoChange
	if isSet && v.AttrID() == mad.AttrPortInfo {
		num := at.port
		if v.AttrMod()&0xFF != 0 {
			num = ib.PortNum(v.AttrMod())
		}
		if port = at.node.port(num); port != nil {
			phys = port.link.Phys()
		}
	}
	verdict := at.agent.DeliverFrom(f.now, at.port, p.LRH.SLID, at.fromHere, p.data[:])
	if !isSet || !v.Method().IsResponse() {
		return verdict // it only passes, or was refused without a word
	}
	if v.AttrID() != mad.AttrNotice {
		f.changed()
	}
	if at.rt != nil {
		f.stir(at.node) // what it reaches may be another now
	}
	if port != nil && port.isCabled() && port.link.Phys() != phys {
		if port.peer != nil && port.peer.link.Phys() == ib.PhysLinkUp {
			port.peer.link.Down(f.now)
		}
		f.train(port)
		for _, end := range port.ends() {
			f.moved(end)
		}
	}
	at.passOn()
	return verdict
}

// Probe sends one packet from a host's port to an address with a partition key, whether the port's adapter has that key
// or not, and says what becomes of it. It goes from node to node as datagrams of management do, is checked wherever
// packets are checked, the receiver's table included, and can be lost like any other. Error counters do not count it,
// so that who proves that partitions hold leaves no trace of an attack.
func (f *Fabric) Probe(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey) (out inspect.Probed, err error) {
	return f.probeFrom(from, dlid, sl, key, nil)
}

// ProbeBeyond is Probe for a packet to another subnet, which goes to a router first.
func (f *Fabric) ProbeBeyond(from topo.PortRef, router ib.LID, sgid, dgid ib.GID, key ib.PKey) (inspect.Probed, error) {
	return f.probeFrom(from, router, 0, key, &wire.GRH{IPVer: wire.GRHVersion, NxtHdr: wire.GRHNextIBA, HopLimit: 0xFF,
		SGID: sgid, DGID: dgid})
}

func (f *Fabric) probeFrom(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey, global *wire.GRH) (out inspect.Probed,
	err error) {
	if !dlid.IsUnicast() {
		return out, notUnicast(dlid)
	}
	f.lock(f.Now())
	defer f.mu.Unlock()
	at := f.port(from)
	if at == nil || at.host == nil {
		return out, fmt.Errorf("live: %s is no host's port: want one to send from", f.graph.PortName(from))
	}
	out.At, out.Reason = from, link.Inactive
	p := newProbe(&out, at.lid(from.Port), dlid, sl, key)
	if global != nil {
		p.LRH.LNH, p.GRH = wire.LNHGlobal, *global
	}
	f.carry(place{at.node, from.Port, true}, p, nil)
	return out, nil
}

// newProbe is the packet that is sent, and what becomes of it.
func newProbe(out *inspect.Probed, slid, dlid ib.LID, sl ib.SL, key ib.PKey) *packet {
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodGet,
		AttributeID: mad.AttrClassPortInfo}
	p := packet{probe: out}
	agent.NewPacket(&p.Packet, &mad.Envelope{LID: dlid, SL: sl, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, mad.ClassPerf,
		slid, []ib.PKey{key}, nil)
	h.Append(p.data[:0])
	return &p
}

// ProbeOn goes on with a probe that has come from another machine, by a port, on a lane.
func (f *Fabric) ProbeOn(in topo.PortRef, vl ib.VL, slid, dlid ib.LID, sl ib.SL, key ib.PKey) (out inspect.Probed,
	err error) {
	if !dlid.IsUnicast() {
		return out, notUnicast(dlid)
	}
	f.lock(f.Now())
	defer f.mu.Unlock()
	p, err := f.fromOutside(in)
	if err != nil {
		return out, err
	}
	out.At, out.Reason = in, link.Inactive
	m := newProbe(&out, slid, dlid, sl, key)
	if next, on := f.comeIn(p, vl, m); on {
		f.carry(next, m, nil)
	}
	return out, nil
}

// probed ends a probe that has come to its adapter, which takes it if it has a key that matches (IBA 10.9.3).
func (f *Fabric) probed(at place, p *packet) {
	end := at.end()
	p.probe.At, p.probe.Reason = end.ref(), link.OK
	p.probe.KeyRefused = end.host != nil && !slices.ContainsFunc(end.onAdapter().PKeys, p.BTH.PKey.Matches)
	p.probe.Arrived = !p.probe.KeyRefused
}

// drops counts a packet that a port does not let pass; of a probe it notes where that was.
func (p *portState) drops(m *packet, why link.Reason) {
	if m.probe != nil {
		m.probe.At, m.probe.Reason = p.ref(), why
		return
	}
	p.link.Count(why)
}
