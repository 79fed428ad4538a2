package sm

import (
	"bytes"

	"softib/proto/ib"
	"softib/proto/mad"
)

// light is the light sweep: between full sweeps every switch is asked whether a port has changed and who its manager
// is, and one block of its forwarding table, another one each time, is compared with what it should be. The other
// managers are asked whether they still stand by, and the manager's own port whether its link is still as it was. Where
// partitions keep anybody apart, so are the partition tables of some hosts and of the ports in front of them.
//
// Nothing else finds a switch that holds other tables than it was given. So sweeps may hold a light sweep up, but none
// puts it off or cuts it short: a trap that is repeated because its answer is lost in that very switch would make
// sweeps without end.
type light struct {
	next   ib.Time
	at     int // the next question
	active bool
	round  int
	pass   int // of the subnet that the questions are about, see resumeLight
	open   int // answers under way
	keys   []keyBlock
}

// restLight sets the time of the next light sweep.
func (m *Manager) restLight() {
	m.light.active = false
	if m.cfg.SweepInterval <= 0 || m.state != mad.SMMaster {
		m.light.next = ib.Never
	} else if m.light.next <= m.now || m.light.next == ib.Never {
		m.light.next = m.now + m.cfg.SweepInterval
	}
}

// resumeLight lets a light sweep go on in the subnet that a sweep has left, where nodes may have other numbers: answers
// that are under way do not count.
func (m *Manager) resumeLight() {
	m.light.pass++
	m.light.open = 0
	m.light.keys = nil // which may be of nodes with other numbers
	if !m.light.active {
		m.restLight()
	}
}

// startLight begins a light sweep. It asks its first question when no sweep is in its way.
func (m *Manager) startLight() {
	m.light.next = ib.Never
	if m.state != mad.SMMaster || m.sub == nil {
		m.restLight()
		return
	}
	m.light = light{next: ib.Never, active: true, round: m.light.round + 1, pass: m.light.pass + 1}
	m.light.keys = m.someKeys(m.light.round)
	m.counters.LightSweeps++
}

// lightMay reports whether no sweep is in the way of a light one.
func (m *Manager) lightMay() bool { return m.sweep == nil || phases[m.sweep.phase].spare && !m.due() }

// lightAsks is how many questions a switch is asked.
const lightAsks = 3

// nextLight asks the next question.
func (m *Manager) nextLight(r *request) bool {
	l := &m.light
	if !l.active {
		return false
	}
	at := l.at - lightAsks*len(m.sub.Switches)
	l.at++
	others := m.sub.Managers[1:]
	own := 0
	if m.sub.Self.Port != 0 {
		own = 1
	}
	switch {
	case at < 0:
		m.lightSwitch(r, m.sub.Switches[(l.at-1)/lightAsks], (l.at-1)%lightAsks)
	case at < len(others):
		ref, ok := m.sub.ByPortGUID(others[at].Port)
		if !ok {
			return m.nextLight(r)
		}
		*r = request{what: askManager, node: ref.Node, port: ref.Port, attr: mad.AttrSMInfo}
		s := sweep{m: m, nodes: m.sub.Nodes, self: m.sub.Self, paths: m.lightPathsNow()}
		m.directed(r, s.pathTo(ref.Node, ref.Port), m.mkey(others[at].Port))
	case at < len(others)+own:
		self := m.sub.Self
		*r = request{what: askPort, node: self.Node, port: self.Port, attr: mad.AttrPortInfo, mod: uint32(self.Port)}
		m.directed(r, nil, m.mkey(m.guid))
	case at < len(others)+own+len(l.keys):
		m.lightKeys(r, l.keys[at-len(others)-own])
	default:
		l.at--
		if l.open == 0 {
			m.restLight()
		}
		return false
	}
	r.extra = int32(l.pass)
	l.open++
	return true
}

// lightSwitch asks a switch one of its questions.
func (m *Manager) lightSwitch(r *request, i int32, ask int) {
	n := m.sub.Nodes[i]
	switch ask {
	case 0:
		*r = request{what: askSwitch, node: i, attr: mad.AttrSwitchInfo}
	case 1:
		*r = request{what: askPort, node: i, attr: mad.AttrPortInfo}
	default:
		blocks := (len(n.LFT) + mad.LFTPerBlock - 1) / mad.LFTPerBlock
		*r = request{what: askTable, node: i, attr: mad.AttrLFT, mod: uint32(m.light.round % max(blocks, 1))}
	}
	m.directed(r, m.lightPathsNow()[i], m.mkey(n.Ports[0].GUID))
}

// lightPathsNow are the directed routes to the switches of the last subnet.
func (m *Manager) lightPathsNow() [][]ib.PortNum {
	if m.pathsOf != m.sub {
		s := sweep{m: m, nodes: m.sub.Nodes, self: m.sub.Self}
		s.repath()
		m.pathsOf, m.lightPaths = m.sub, s.paths
	}
	return m.lightPaths
}

// lightReply takes an answer. Whatever is not as it should be gets a closer look.
func (m *Manager) lightReply(r *request, v mad.View) {
	if !m.light.active || r.extra != int32(m.light.pass) || m.sub == nil || m.state != mad.SMMaster {
		return // a question about another subnet: the node may have another number now
	}
	m.light.open--
	n := m.sub.Nodes[r.node]
	switch {
	case v == nil && (r.attr == mad.AttrSMInfo || r.attr == mad.AttrPKeyTable): // it is missed otherwise if it is gone
	case v == nil:
		m.want(m.now, nodeName(n)+" does not answer")
	case v.Status() != mad.StatusOK:
	case r.attr == mad.AttrPKeyTable:
		m.lightKeysReply(r, v)
	case r.attr == mad.AttrSMInfo:
		var info mad.SMInfo
		if _, err := info.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil && info.SMState == mad.SMMaster {
			m.want(m.now, "the manager at "+nodeName(n)+" is a master too")
		}
	case r.attr == mad.AttrPortInfo:
		var pi mad.PortInfo
		if _, err := pi.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
			return
		}
		was := &n.Ports[r.port].Info
		switch {
		case pi.LID != was.LID || pi.MasterSMLID != was.MasterSMLID:
			m.usurped(n)
		case r.port != 0 && pi.PortState != was.PortState:
			m.want(m.now, "the manager's own link has changed")
		}
	case r.attr == mad.AttrSwitchInfo:
		var si mad.SwitchInfo
		if _, err := si.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
			return
		}
		if si.PortStateChange {
			m.wantLook(m.now, n.Info.NodeGUID, "a port of "+nodeName(n)+" has changed")
		} else if si.LinearFDBTop != lastLID(n.LFT) && !m.doubt[n.Info.NodeGUID] {
			m.wantLook(m.now, n.Info.NodeGUID, nodeName(n)+" has forgotten its tables")
		}
	case r.attr == mad.AttrLFT && m.actual[n.Info.NodeGUID] == nil && !plantForget:
		from := min(int(r.mod)*mad.LFTPerBlock, len(n.LFT))
		row := n.LFT[from:min(from+mad.LFTPerBlock, len(n.LFT))]
		want := make([]byte, len(row))
		for k, p := range row {
			want[k] = byte(p)
		}
		if !bytes.Equal(want, v[mad.SMPDataOff:][:len(row)]) {
			m.doubt[n.Info.NodeGUID] = true
			m.wantLook(m.now, n.Info.NodeGUID, nodeName(n)+" holds other tables than it was given")
		}
	}
}
