package sm

import (
	"bytes"

	"softib/ib"
	"softib/mad"
)

// light is the light sweep: between full sweeps every switch is asked whether a port has changed, and one block of its
// forwarding table, another one each time, is compared with what it should be.
type light struct {
	next   ib.Time
	at     int // the next switch to ask
	active bool
	round  int
	open   int // answers under way
}

// restLight sets the time of the next light sweep.
func (m *Manager) restLight() {
	m.light.active = false
	m.light.next = ib.Never
	if m.cfg.SweepInterval > 0 && m.state == mad.SMMaster {
		m.light.next = m.now + m.cfg.SweepInterval
	}
}

// startLight begins a light sweep, unless a real one is about to come.
func (m *Manager) startLight() {
	m.light.next = ib.Never
	if m.state != mad.SMMaster || m.sub == nil || m.Sweeping() {
		m.restLight()
		return
	}
	m.light = light{next: ib.Never, active: true, round: m.light.round + 1}
	m.counters.LightSweeps++
}

// nextLight asks the next switch. Each is asked twice: for its SwitchInfo and for a block of its table.
func (m *Manager) nextLight(r *request) bool {
	l := &m.light
	if !l.active {
		return false
	}
	if l.at >= 2*len(m.sub.Switches) {
		if l.open == 0 {
			m.restLight()
		}
		return false
	}
	i := m.sub.Switches[l.at/2]
	n := m.sub.Nodes[i]
	*r = request{what: askSwitch, node: i, attr: mad.AttrSwitchInfo}
	if l.at%2 == 1 {
		blocks := (len(n.LFT) + mad.LFTPerBlock - 1) / mad.LFTPerBlock
		*r = request{what: askTable, node: i, attr: mad.AttrLFT, mod: uint32(l.round % max(blocks, 1))}
	}
	l.at++
	l.open++
	m.directed(r, m.lightPath(i), m.cfg.MKey)
	return true
}

// lightPath is the directed route to a switch in the last subnet.
func (m *Manager) lightPath(i int32) []ib.PortNum {
	if m.pathsOf != m.sub {
		s := sweep{m: m, nodes: m.sub.Nodes, self: m.sub.Self}
		s.repath()
		m.pathsOf, m.lightPaths = m.sub, s.paths
	}
	return m.lightPaths[i]
}

// lightReply takes an answer. Whatever is not as it should be gets a closer look.
func (m *Manager) lightReply(r *request, v mad.View) {
	m.light.open--
	if m.sub == nil || int(r.node) >= len(m.sub.Nodes) || m.state != mad.SMMaster {
		return
	}
	n := m.sub.Nodes[r.node]
	switch {
	case v == nil:
		m.want(m.now, "switch "+nodeName(n)+" does not answer")
	case v.Status() != mad.StatusOK:
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
	case r.attr == mad.AttrLFT && m.actual[n.Info.NodeGUID] == nil:
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
