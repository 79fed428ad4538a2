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

// Probe sends one packet from a host's port to an address with a partition key, whether the port's adapter has that key
// or not, and says what becomes of it. It goes from node to node as datagrams of management do, is checked wherever
// packets are checked, the receiver's table included, and can be lost like any other. Error counters do not count it,
// so that who proves that partitions hold leaves no trace of an attack.
func (f *Fabric) Probe(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey) (out inspect.Probed, err error) {
	if err := checkUnicast(dlid); err != nil {
		return out, err
	}
	f.lock(f.Now())
	defer f.unlock()
	at := f.port(from)
	if at == nil || at.host == nil {
		return out, fmt.Errorf("live: %s is no host's port: want one to send from", f.graph.PortName(from))
	}
	out.At, out.Reason = from, link.Inactive
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodGet,
		AttributeID: mad.AttrClassPortInfo}
	p := packet{probe: &out}
	agent.NewPacket(&p.Packet, &mad.Envelope{LID: dlid, SL: sl, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, mad.ClassPerf,
		at.lid(from.Port), []ib.PKey{key}, nil)
	h.Append(p.data[:0])
	f.carry(place{at.node, from.Port, true}, &p, nil)
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
