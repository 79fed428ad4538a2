package sm

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// A manager whose own link has been down does not know what happened meanwhile: another one may rule by now, and what
// was planned before makes circles with the tables that it has written. So the manager asks its own port before it
// begins to write tables, before each round that had to wait, and before it repeats a block that was not answered. That
// takes no cable: a directed route without hops ends where it begins (IBA 14.2.2). A link that was down is not Active
// before a manager has made it so (IBA 7.2.7), and one that rules writes its own address there.

// nextOwn asks the manager's own port.
func (s *sweep) nextOwn(r *request) bool {
	if s.asking {
		return false
	}
	s.asking = true
	*r = request{what: askPort, node: s.self.Node, port: s.self.Port, attr: mad.AttrPortInfo, mod: uint32(s.self.Port)}
	s.smp(r)
	return true
}

// sawOwn gives the sweep up, to be started over, if the manager was cut off since the sweep saw its port, unless that
// was done too often: a port that never says the same twice does not keep all switches from their tables.
func (s *sweep) sawOwn(v mad.View) {
	s.asking, s.blind = false, false
	m, was := s.m, &s.nodes[s.self.Node].Ports[s.self.Port].Info
	var is mad.PortInfo
	if v == nil || v.Status() != mad.StatusOK || m.cutOffs >= setbacksMax {
		return
	}
	if _, err := is.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil ||
		is.PortState >= s.ownState && is.LID == was.LID && is.MasterSMLID == was.MasterSMLID {
		return
	}
	m.cutOffs++
	m.doubtAll()
	s.abandon = true
	at := m.now
	if is.PortState < ib.PortInit {
		at += m.cfg.Timeout // now it would find nobody but itself
	}
	m.want(at, "the manager was cut off")
}

// wasCut reports whether the manager's own link has been down and has not been made Active again since.
func (s *sweep) wasCut() bool {
	return s.self.Port != 0 && s.nodes[s.self.Node].Ports[s.self.Port].Info.PortState < ib.PortActive
}
