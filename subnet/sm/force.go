package sm

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
)

// What an operator decides while a manager runs, who may talk to whom and how lanes are shared out, has a ticket. The
// sweep that brings it to the nodes says, when it is published, which ticket is in force now and who did not take his
// part.

// Refusal is a port that did not take what it was told.
type Refusal struct {
	// Node and Port are its GUIDs; at a switch the port that is meant is Num.
	Node, Port ib.GUID
	Num        ib.PortNum
	// Behind is the end port that a switch's port is in front of; the port itself at an adapter.
	Behind ib.GUID
	// Why says what it was told and what it did.
	Why string
}

// Force is what is in force.
type Force struct {
	// Ticket is the last one whose sweep is done.
	Ticket uint64
	// Refusals are what the last sweep could not do.
	Refusals []Refusal
}

// Force says what is in force, and since which ticket.
func (m *Manager) Force() Force { return m.force }

// ticket numbers a decision.
func (m *Manager) ticket() uint64 {
	m.tickets++
	return m.tickets
}

// refuse notes that a port did not take what it was told. The sweep goes on: it says so in the end.
func (s *sweep) refuse(ref subnet.Ref, format string, args ...any) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	r := Refusal{Node: n.Info.NodeGUID, Port: n.Ports[n.EndPort(ref.Port)].GUID, Num: ref.Port,
		Why: fmt.Sprintf(format, args...)}
	r.Behind = r.Port
	if n.IsSwitch() && ref.Port != 0 && p.Up() {
		far := s.nodes[p.Peer]
		r.Behind = far.Ports[far.EndPort(p.PeerPort)].GUID
	}
	if !slices.Contains(s.refusals, r) {
		s.refusals = append(s.refusals, r)
	}
}

// refusal is what an answer says, in words.
func refusal(r *request, v mad.View) string {
	what := fmt.Sprintf("%s(%s)", verb(r.set), mad.AttrName(mad.ClassSMLID, r.attr))
	if v == nil {
		return "does not answer to " + what
	}
	return fmt.Sprintf("answers %s with %s", what, v.Status())
}

// enforces checks that a switch port in front of an end port checks partitions as it should.
func (s *sweep) enforces(ref subnet.Ref) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	if !n.IsSwitch() || ref.Port == 0 || !p.Up() {
		return
	}
	want := p.Info
	s.wantedEnforcement(ref, &want)
	if want.PartitionEnforcementInbound != p.Info.PartitionEnforcementInbound ||
		want.PartitionEnforcementOutbound != p.Info.PartitionEnforcementOutbound {
		s.refuse(ref, "was told to check partitions (in %t, out %t) and says that it does not do so (in %t, out %t)",
			want.PartitionEnforcementInbound, want.PartitionEnforcementOutbound, p.Info.PartitionEnforcementInbound,
			p.Info.PartitionEnforcementOutbound)
	}
}

// SetQoS replaces how lanes are shared out, and the levels and rules for paths. It takes force with the sweep that it
// asks for; Force tells when ticket has. Without Enabled, lanes become what ports have that nobody told anything:
// levels spread over the lanes, which take turns.
func (m *Manager) SetQoS(now ib.Time, q QoS) (ticket uint64, err error) {
	m.now = max(m.now, now)
	was := m.cfg.QoS
	m.cfg.QoS.Enabled = q.Enabled // the policy's events depend on it
	if err := m.usePolicy(q.Policy); err != nil {
		m.cfg.QoS = was
		return 0, fmt.Errorf("sm: QoS policy: %w", err)
	}
	m.plainLanes = m.plainLanes || was.Enabled
	m.cfg.QoS = q
	m.members = nil // service levels of partitions depend on it
	m.qosSaid = ""
	if q.Enabled {
		m.event(EventPolicy, "QoS: other mappings and arbitration are to take force")
	} else {
		m.event(EventPolicy, "QoS: it is to end, and lanes to take equal turns")
	}
	m.regroup("QoS changed")
	return m.ticket(), nil
}

// plainMapping spreads service levels over lanes, as ports do that nobody has told anything.
func plainMapping(vls int) (t mad.SLtoVL) {
	for sl := range t {
		t[sl] = ib.VL(sl % vls)
	}
	return t
}

// writesLanes reports whether mappings and arbitration are the manager's to write.
func (m *Manager) writesLanes() bool { return m.cfg.QoS.Enabled || m.plainLanes }

// QoSPortsOf are the tables of a template, the same for every kind of port.
func QoSPortsOf(q policy.PortQoS) (ports [policy.NumPortKind]policy.PortQoS) {
	for k := range ports {
		ports[k] = q
	}
	return ports
}
