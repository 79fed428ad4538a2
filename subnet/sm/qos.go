package sm

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
)

// QoS is how the lanes of links are shared out, and which paths get which service level.
type QoS struct {
	// Enabled makes the manager write mappings and arbitration. Without it service levels are routing's alone.
	Enabled bool
	// Ports are the tables of each kind of port.
	Ports [policy.NumPortKind]policy.PortQoS
	// Policy has levels and rules for paths; nil if there are none.
	Policy *policy.QoSPolicy
}

// QoSOf is what an opensm.conf says about quality of service, with a policy for paths if there is one.
func QoSOf(c *policy.Config, p *policy.QoSPolicy) QoS {
	q := QoS{Enabled: c.QoS, Policy: p}
	for k := range q.Ports {
		q.Ports[k] = c.PortQoS(policy.PortKind(k))
	}
	return q
}

// sayLanes says, once, what of an operator's wishes routing leaves undone.
func (s *sweep) sayLanes() {
	if engine := s.tables.Engine; s.lanes.routed && s.m.cfg.QoS.Enabled && s.m.qosSaid != engine {
		s.m.qosSaid = engine
		s.m.event(EventPolicy, "%s routing needs service levels of its own against deadlocks: they go before "+
			"those of the QoS options and policy; arbitration is as configured", engine)
	}
}

// qosMapping is an operator's mapping for ports of a shape. Lanes that the link does not have are folded onto those
// that it has; VL15 drops (IBA 7.6.6).
func (s *sweep) qosMapping(shape *laneShape) mad.SLtoVL {
	if !s.m.cfg.QoS.Enabled {
		return plainMapping(shape.vls)
	}
	t := mad.SLtoVL(s.m.cfg.QoS.Ports[shape.kind].SL2VL)
	for sl, vl := range t {
		if vl != ib.VLMgmt {
			t[sl] = vl % ib.VL(shape.vls)
		}
	}
	return t
}

// arbitration is the low-priority and the high-priority table of ports of a shape: an operator's, or turns of equal
// weight for the lanes that routing uses. A table that stays as it is is nil.
func (s *sweep) arbitration(shape *laneShape) (arb [2][]mad.VLArbEntry) {
	equal := func() {
		arb = [2][]mad.VLArbEntry{}
		if shape.low == 0 {
			return
		}
		arb[0] = make([]mad.VLArbEntry, shape.low)
		for vl := range min(shape.vls, int(shape.low)) {
			arb[0][vl] = mad.VLArbEntry{VL: ib.VL(vl), Weight: arbWeight}
		}
	}
	q := &s.m.cfg.QoS
	if !q.Enabled {
		equal()
		if s.m.plainLanes && shape.high > 0 {
			arb[1] = make([]mad.VLArbEntry, shape.high) // no lane goes before others
		}
		return arb
	}
	served := make([]bool, ib.VLMgmt)
	fill := func(list []policy.VLWeight, size uint8) []mad.VLArbEntry {
		if size == 0 {
			return nil
		}
		out := make([]mad.VLArbEntry, size)
		for i := range min(len(list), int(size)) {
			out[i] = mad.VLArbEntry{VL: list[i].VL % ib.VL(shape.vls), Weight: list[i].Weight}
			served[out[i].VL] = served[out[i].VL] || out[i].Weight > 0
		}
		return out
	}
	o := &q.Ports[shape.kind]
	arb[0], arb[1] = fill(o.VLArbLow, shape.low), fill(o.VLArbHigh, shape.high)
	if shape.low == 0 || shape.vls == 1 {
		return arb
	}
	if s.lanes.routed {
		for vl := range min(s.tables.VLs, shape.vls) {
			if !served[vl] {
				s.problem("QoS options of %v ports give lane %d no weight, but %s routing uses it: lanes take "+
					"turns of equal weight there", shape.kind, vl, s.tables.Engine)
				equal()
				break
			}
		}
		return arb
	}
	for sl, vl := range s.qosMapping(shape) {
		if vl != ib.VLMgmt && !served[vl] {
			s.problem("QoS options of %v ports give lane %d no weight in either table, but service level %d "+
				"takes it: its packets would wait for ever", shape.kind, vl, sl)
			break
		}
	}
	return arb
}

// wantedLimit sets how long high-priority lanes may go before others (IBA 14.2.5.6, VLHighLimit).
func (s *sweep) wantedLimit(ref subnet.Ref, pi *mad.PortInfo) {
	if q := &s.m.cfg.QoS; s.m.writesLanes() && pi.VLCap.IsValid() && pi.VLCap.VLs() > 1 {
		if pi.VLHighLimit = 0; q.Enabled {
			pi.VLHighLimit = q.Ports[s.kindOf(ref)].HighLimit
		}
	}
}

// SetQoSPolicy replaces the levels and rules for paths; nil takes them away. Where it has an error, the old ones stay
// in force.
func (m *Manager) SetQoSPolicy(now ib.Time, p *policy.QoSPolicy) error {
	m.now = max(m.now, now)
	if err := m.usePolicy(p); err != nil {
		return fmt.Errorf("sm: QoS policy: %w", err)
	}
	if m.sub != nil {
		m.admin.SetQoS(m.pathPolicy())
	}
	return nil
}

// usePolicy looks the names of a policy up.
func (m *Manager) usePolicy(p *policy.QoSPolicy) error {
	if p == nil {
		m.cfg.QoS.Policy, m.matcher = nil, nil
		return nil
	}
	matcher, err := policy.NewQoSMatcher(p)
	if err != nil {
		return err
	}
	m.cfg.QoS.Policy, m.matcher = p, matcher
	m.event(EventPolicy, "QoS policy: %d levels, %d rules", len(p.Levels), len(p.Rules)+len(p.ULPs))
	if len(p.VLArb)+len(p.SL2VL) > 0 {
		m.event(EventPolicy,
			"QoS policy: its qos-setup has no effect, as with OpenSM; say the same with qos_* options of opensm.conf")
	}
	if !m.cfg.QoS.Enabled {
		m.event(EventPolicy, "QoS policy: it has no effect without the option qos TRUE in opensm.conf")
	}
	return nil
}
