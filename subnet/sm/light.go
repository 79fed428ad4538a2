package sm

import (
	"bytes"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// light is the light sweep: between full sweeps every switch is asked whether a port has changed and who its manager
// is, and one block of its forwarding table, another one each time, is compared with what it should be. The other
// managers are asked whether they still stand by, and the manager's own port whether its link is still as it was. Of
// the hosts some are asked for their address and their manager's, others each time, and those where managers run
// always: what another manager has written there no switch can tell, and a host with the wrong manager sends its traps
// to that one. Where partitions keep anybody apart, some of their tables are read too.
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
	// node and port are the next host to ask, once all other questions are asked.
	node int
	port int
	keys []keyBlock // to ask for after those
}

// lightShare is how many light sweeps it takes to ask all hosts.
const lightShare = 16

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
	m.light = light{next: ib.Never, active: true, round: m.light.round + 1, pass: m.light.pass + 1, port: 1}
	m.light.node, m.light.keys = m.light.round%lightShare, m.someKeys(m.light.round)
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
	switch others := m.sub.Managers[1:]; {
	case at < 0:
		m.lightSwitch(r, m.sub.Switches[(l.at-1)/lightAsks], (l.at-1)%lightAsks)
	case at < 2*len(others):
		ref, ok := m.sub.ByPortGUID(others[at/2].Port)
		if !ok {
			return m.nextLight(r)
		}
		if at%2 == 0 {
			m.lightAsk(r, ref, request{what: askManager, attr: mad.AttrSMInfo})
		} else {
			m.lightPort(r, ref)
		}
	case at == 2*len(others) && m.sub.Self.Port != 0:
		m.lightPort(r, m.sub.Self)
	default:
		l.at--
		if ref, ok := m.nextLightHost(); ok {
			m.lightPort(r, ref)
			break
		}
		if len(l.keys) > 0 {
			m.lightKeys(r, l.keys[0])
			l.keys = l.keys[1:]
			break
		}
		if l.open == 0 {
			m.restLight()
		}
		return false
	}
	r.extra = int32(l.pass)
	l.open++
	return true
}

// lightPort asks an end port for its address and its manager's.
func (m *Manager) lightPort(r *request, ref subnet.Ref) {
	m.lightAsk(r, ref, request{what: askPort, attr: mad.AttrPortInfo, mod: uint32(ref.Port)})
}

// lightAsk asks about a port.
func (m *Manager) lightAsk(r *request, ref subnet.Ref, question request) {
	*r = question
	r.node, r.port = ref.Node, ref.Port
	s := sweep{m: m, nodes: m.sub.Nodes, self: m.sub.Self, paths: m.lightPathsNow()}
	m.directed(r, s.pathTo(ref.Node, ref.Port), m.mkey(s.guidOf(ref.Node, ref.Port)))
}

// nextLightHost is the next port of the hosts that it is the turn of.
func (m *Manager) nextLightHost() (subnet.Ref, bool) {
	l := &m.light
	for ; l.node < len(m.sub.Nodes); l.node, l.port = l.node+lightShare, 1 {
		n := m.sub.Nodes[l.node]
		for !n.IsSwitch() && l.port < len(n.Ports) {
			ref := subnet.Ref{Node: int32(l.node), Port: ib.PortNum(l.port)}
			l.port++
			if n.Ports[ref.Port].Up() && ref != m.sub.Self {
				return ref, true
			}
		}
	}
	return subnet.Ref{}, false
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
		blocks := mad.LFTBlocks(len(n.LFT))
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
	self := m.sub.Self == subnet.Ref{Node: r.node, Port: r.port}
	switch {
	case v == nil && !n.IsSwitch() && !self: // it will be missed at its switch if it is gone
	case v == nil && (r.attr == mad.AttrSMInfo || r.attr == mad.AttrPKeyTable):
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
		switch same := pi.LID == was.LID && pi.MasterSMLID == was.MasterSMLID; {
		case !same && (n.IsSwitch() || self || m.regiven(&subnet.Port{Info: pi, GUID: n.Ports[r.port].GUID}, was)):
			m.usurped(n)
		case !same:
			m.wantLook(m.now, n.Info.NodeGUID, nodeName(n)+" has forgotten its address or its manager")
		case self && r.port != 0 && pi.PortState != was.PortState:
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
