package live

import (
	"fmt"
	"slices"

	"softib/node/agent"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Probed is what became of a probe.
type Probed = inspect.Probed

// Probe sends one packet from a host's port to an address with a partition key, whether the port's adapter has that key
// or not, and says what becomes of it. It goes from node to node as datagrams of management do, is checked wherever
// packets are checked, the receiver's table included, and can be lost like any other. Error counters do not count it,
// so that who proves that partitions hold leaves no trace of an attack.
func (f *Fabric) Probe(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey) (Probed, error) {
	if !dlid.IsUnicast() {
		return Probed{}, fmt.Errorf("live: LID %v is no unicast address: want 1 to 0x%x", dlid, int(ib.LIDUnicastMax))
	}
	f.lock(f.Now())
	defer f.unlock()
	if p := f.port(from); p == nil || p.host == nil {
		return Probed{}, fmt.Errorf("live: %s is no host's port: want one to send from", f.graph.PortName(from))
	}
	out := Probed{At: from, Reason: link.Inactive}
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodGet,
		AttributeID: mad.AttrClassPortInfo}
	p := packet{probe: &out}
	agent.NewPacket(&p.Packet, &mad.Envelope{LID: dlid, SL: sl, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, mad.ClassPerf,
		f.lidOf(from.Node, from.Port), []ib.PKey{key}, nil)
	h.Append(p.data[:0])
	f.carry(place{from.Node, from.Port, true}, &p, nil)
	return out, nil
}

// probed ends a probe that has come to its adapter, which takes it if it has a key that matches (IBA 10.9.3).
func (f *Fabric) probed(at place, p *packet) {
	p.probe.At, p.probe.Reason = f.serviceRef(at), link.OK
	if h, ok := f.nodes[at.node].(*Host); ok && !slices.ContainsFunc(h.eng.Port(at.port).PKeys, p.BTH.PKey.Matches) {
		p.probe.KeyRefused = true
		return
	}
	p.probe.Arrived = true
}

// drops counts a packet that a port does not let pass; of a probe it notes where that was.
func (p *portState) drops(m *packet, why link.Reason) {
	if m.probe != nil {
		m.probe.At, m.probe.Reason = p.ref(), why
		return
	}
	p.link.Count(why)
}

// RenewWays walks the ways of all attached programs again and returns when that is done: what has changed before the
// call holds for every packet that a program sends after it.
func (f *Fabric) RenewWays() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.procs {
		if !p.ended {
			p.walkAgain()
		}
	}
}
