package machine

import (
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
	p    *process
	slot int
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
		for slot, k := range p.keys {
			if p.direct[k] && !m.isWhole(p, k) {
				m.cuts = append(m.cuts, cut{p, slot})
				p.direct[k] = false
				p.renew(slot)
			}
		}
	}
	m.restore()
}

// restore makes ways direct again where they can be.
func (m *Machine) restore() {
	left := m.cuts[:0]
	for _, c := range m.cuts {
		if k := c.p.keys[c.slot]; m.isWhole(c.p, k) {
			m.settle(c.p, c.slot)
			delete(c.p.direct, k)
			c.p.renew(c.slot)
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
