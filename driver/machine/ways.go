package machine

import (
	"slices"

	"softib/driver/endpoint"
	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// Ways from ring to ring are walked along the cables, as a daemon walks them: the ports that packets would have passed
// count them, and where a cable is out or bad there is no such way.

// sent is what of a slot's packets has been counted.
type sent struct{ pkts, words uint64 }

// cut is a way that does not lead from ring to ring for now.
type cut struct {
	p   *process
	key endpoint.Key
}

// Counters reads a port's counters; what went from ring to ring is in them.
func (m *Machine) Counters(ref topo.PortRef) ib.Counters {
	m.settleAll()
	return m.Sim.Counters(ref)
}

// SetLink takes the cable at a port out, both ends, or puts it in again. It holds for the next packet on every way, as
// it does in a fabric in real time; of what is planned (PlanDown) ways from ring to ring know nothing. There should be
// nothing in the rings, which others may overtake.
func (m *Machine) SetLink(ref topo.PortRef, up bool) {
	m.settleAll()
	m.Pull(m.Place(ref.Node, ref.Port), !up)
	m.reroute()
}

// SetFault makes the cable at a port do this to packets in either direction, as SetLink takes it out.
func (m *Machine) SetFault(ref topo.PortRef, f fabric.Faults) {
	m.settleAll()
	at := m.Place(ref.Node, ref.Port)
	for _, end := range [2]uint32{at, m.PortAt(at).Site.Peer} {
		m.Sim.Engine.SetFaults(end, f)
		m.bad[end] = f != fabric.Faults{}
	}
	m.reroute()
}

// reroute has ways that lead over cables that are out, or bad, lead through them.
func (m *Machine) reroute() {
	for _, p := range m.procs {
		for _, k := range p.everyKey() {
			if direct, known := p.direct[k]; (direct || !known) && !m.isWhole(p, k) {
				m.cuts = append(m.cuts, cut{p, k})
				p.direct[k] = false
				p.askAgain(k)
			}
		}
	}
	m.restore()
}

// everyKey is all keys by which the process may ask for a way to another, now or later.
func (p *process) everyKey() (list []endpoint.Key) {
	for n := 1; n < len(p.m.HostNode(p.host).Ports); n++ {
		for _, q := range p.m.procs {
			for k := 1; q != p && k < len(p.m.HostNode(q.host).Ports); k++ {
				at := q.ep.Engine().Port(ib.PortNum(k))
				for _, key := range p.ep.Engine().Port(ib.PortNum(n)).PKeys {
					for i := range 16 << at.LMC {
						list = append(list, endpoint.Key{Port: ib.PortNum(n), DLID: at.LID + ib.LID(i>>4),
							SL: ib.SL(i & 15), PKey: key, Block: block})
					}
				}
			}
		}
	}
	return list
}

// askAgain ends a way, if there is one.
func (p *process) askAgain(k endpoint.Key) {
	if slot := slices.Index(p.keys, k); slot >= 0 {
		p.m.settle(p, slot)
		p.renew(slot)
	}
}

// restore makes ways direct again where they can be.
func (m *Machine) restore() {
	left := m.cuts[:0]
	for _, c := range m.cuts {
		if m.isWhole(c.p, c.key) {
			c.p.askAgain(c.key)
			delete(c.p.direct, c.key)
		} else {
			left = append(left, c)
		}
	}
	m.cuts = left
}

// isWhole reports whether a way leads to an adapter over good cables.
func (m *Machine) isWhole(p *process, k endpoint.Key) bool {
	whole := true
	end := m.walk(p, k, func(at uint32, _ bool, _ ib.VL) { whole = whole && !m.bad[at] })
	return end && whole
}

// settleAll adds what went from ring to ring to the counters of the ports on its way.
func (m *Machine) settleAll() {
	for _, p := range m.procs {
		for slot := range p.keys {
			m.settle(p, slot)
		}
	}
}

// settle does so for one way.
func (m *Machine) settle(p *process, slot int) {
	for len(m.settled[p.host]) <= slot {
		m.settled[p.host] = append(m.settled[p.host], sent{})
	}
	was, k := &m.settled[p.host][slot], p.keys[slot]
	is := sent{}
	is.pkts, is.words = p.slots.Sent(slot)
	pkts, words := is.pkts-was.pkts, is.words-was.words
	if *was = is; pkts == 0 || !p.direct[k] {
		return // the fabric has counted the packets itself
	}
	m.walk(p, k, func(at uint32, out bool, vl ib.VL) {
		m.PortAt(at).AddTraffic(out, vl, k.SL, false, pkts, words)
	})
}

// walk follows the tables for a key, asking links and switches as packets do, shows every port on the way, and reports
// whether it comes to an adapter.
func (m *Machine) walk(p *process, k endpoint.Key, pass func(at uint32, out bool, vl ib.VL)) bool {
	pkt := wire.Packet{LRH: wire.LRH{SL: k.SL, DLID: k.DLID, LNH: wire.LNHLocal}}
	pkt.BTH.PKey, pkt.BTH.Opcode = k.PKey, wire.MakeOpcode(wire.UD, wire.OpSendOnly) // for which nobody chooses
	probe := link.Frame{Packet: &pkt, LRH: pkt.LRH}
	at := m.Place(m.HostNode(p.host).Index, k.Port)
	vl, why := m.PortAt(at).Depart(k.SL)
	for range m.Places() {
		if why != link.OK {
			return false
		}
		pass(at, true, vl)
		if at = m.PortAt(at).Site.Peer; at == fabric.NoEnd || m.PortAt(at).Admits(vl) != link.OK {
			return false
		}
		pass(at, false, vl)
		in := &m.PortAt(at).Site
		sw := m.Switch(int(in.Node))
		if sw == nil {
			return true
		}
		probe.LRH.VL = vl
		d := sw.Decide(in.Num, &probe)
		if d.Out == 0 {
			return false
		}
		at, vl, why = m.Place(int(in.Node), d.Out), d.VL, d.Reason
	}
	return false
}
