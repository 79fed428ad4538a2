package sm

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
)

// HandleRequest takes a datagram that nobody asked for: traps, other managers, clients of administration.
func (m *Manager) HandleRequest(now ib.Time, env mad.Envelope, data []byte) {
	m.now = max(m.now, now)
	if len(data) < mad.HeaderSize {
		return
	}
	switch mad.Class(data[1]) {
	case mad.ClassSMLID, mad.ClassSMDirect:
		if len(data) < mad.Size {
			return
		}
		v := mad.View(data[:mad.Size:mad.Size])
		switch {
		case v.Method() == mad.MethodTrap && v.AttrID() == mad.AttrNotice:
			m.handleTrap(env, v)
		case (v.Method() == mad.MethodGet || v.Method() == mad.MethodSet) && v.AttrID() == mad.AttrSMInfo:
			m.handleSMInfo(env, v)
		}
	case mad.ClassSA:
		m.handleSA(env, data)
	}
}

// handleTrap takes a notice of a node: it is acknowledged, so that the node stops repeating it, logged, acted on, and
// passed on to subscribers.
func (m *Manager) handleTrap(env mad.Envelope, v mad.View) {
	if m.state != mad.SMMaster {
		return // not ours to repress: the master gets its own
	}
	var n mad.Notice
	if _, err := n.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
		return
	}
	m.counters.Traps++
	rep := append(mad.View(nil), v...)
	rep.SetMethod(mad.MethodTrapRepress)
	rep.SetStatus(mad.StatusOK)
	if key := m.mkeyAt(env.LID); key != 0 {
		rep.SetMKey(key)
	}
	if v.Class() == mad.ClassSMDirect {
		rep.SetReturning(true)
	}
	m.out = append(m.out, outgoing{env: env.Reply(), data: rep})
	if !n.IsGeneric {
		return
	}
	// One node may say the same thing many times a second; a line a second is enough for people and for sweeps.
	key := trapKey{n.TrapNumberDeviceID, env.LID}
	due := m.now
	if last, ok := m.trapSeen[key]; ok && m.now < last.at+ib.Second {
		last.more++
		if !m.isSwitch(env.LID) && !m.isRouter(env.LID) {
			due = last.acted // it will see that this has changed too
			if due < m.now {
				due = max(m.now, last.acted+m.trapPause())
			}
		}
		last.acted = due
		m.trapSeen[key] = last
		if n.TrapNumberDeviceID != mad.TrapLinkStateChange && n.TrapNumberDeviceID != mad.TrapCapabilityChange {
			return
		}
	} else {
		if len(m.trapSeen) >= maxTrapKeys {
			clear(m.trapSeen)
		}
		m.trapSeen[key] = trapSeen{at: m.now, acted: m.now}
		m.event(EventTrap, "%s (%d) from LID %v%s%s", mad.TrapName(n.TrapNumberDeviceID), n.TrapNumberDeviceID, env.LID,
			m.whose(env.LID), more(last.more))
	}
	m.act(due, &n, env.LID)
	m.forwardNotice(&n)
}

// trapPause is how often what a host tells leads to a sweep: it has one port, and who has it tell the same thing again
// and again wants the manager to be busy.
func (m *Manager) trapPause() ib.Time {
	if m.cfg.SweepInterval > 0 {
		return min(ib.Second, m.cfg.SweepInterval/10)
	}
	return ib.Second
}

// isSwitch reports whether an address is a switch's.
func (m *Manager) isSwitch(l ib.LID) bool {
	if m.sub == nil {
		return false
	}
	r, ok := m.sub.ByLID(l)
	return ok && m.sub.Nodes[r.Node].IsSwitch()
}

// isRouter reports whether an address is a router's.
func (m *Manager) isRouter(l ib.LID) bool {
	if m.sub == nil {
		return false
	}
	r, ok := m.sub.ByLID(l)
	return ok && m.sub.Nodes[r.Node].Info.NodeType == ib.NodeRouter
}

type trapKey struct {
	number uint16
	lid    ib.LID
}

type trapSeen struct {
	at    ib.Time
	acted ib.Time // when it leads, or led, to something
	more  int
}

// maxTrapKeys bounds the memory of traps seen.
const maxTrapKeys = 65536

func more(n int) string {
	if n == 0 {
		return ""
	}
	return ", and the same " + itoa(n) + " times before"
}

func itoa(n int) string {
	var b [20]byte
	at := len(b)
	for {
		at--
		b[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[at:])
		}
	}
}

// whose names the node of a LID.
func (m *Manager) whose(l ib.LID) string {
	if m.sub == nil {
		return ""
	}
	if r, ok := m.sub.ByLID(l); ok {
		return ", " + nodeName(m.sub.Nodes[r.Node])
	}
	return ""
}

// act does what a trap calls for, when it is due.
func (m *Manager) act(due ib.Time, n *mad.Notice, from ib.LID) {
	lid := ib.LID(binary.BigEndian.Uint16(n.DataDetails[:]))
	switch n.TrapNumberDeviceID {
	case mad.TrapLinkStateChange:
		if m.sub != nil && !m.isSwitch(from) {
			if _, known := m.sub.ByLID(from); known {
				return // only switches have such news (IBA 14.2.5.1, table of traps)
			}
		}
		// The details name the switch; a look at its ports is enough.
		m.look(due, lid, from, "link state change")
	case mad.TrapCapabilityChange, mad.TrapSystemImageGUID:
		lid = ib.LID(binary.BigEndian.Uint16(n.DataDetails[2:]))
		if n.TrapNumberDeviceID == mad.TrapCapabilityChange &&
			binary.BigEndian.Uint32(n.DataDetails[6:])&uint32(mad.CapIsSM) != 0 {
			// A manager came or went: all of them have to be seen.
			m.want(due, "a manager has appeared")
			return
		}
		m.look(due, lid, from, "capabilities or description changed")
	case mad.TrapBadPKey, mad.TrapBadQKey, mad.TrapBadPKeySwitch, mad.TrapBadMKey:
		// Somebody tries what he may not. What he has done that he could is found by a look; one in a while, as he may
		// try again and again.
		if m.now >= m.calm {
			m.calm = m.now + alertPause
			m.look(due, from, from, "a key was refused")
		}
	}
}

// alertPause is how often a refused key leads to a look.
const alertPause = 10 * ib.Second

// look asks for a look at the node of a LID, or for a full sweep if nobody is known by it.
func (m *Manager) look(at ib.Time, lid, from ib.LID, why string) {
	if m.sub == nil {
		m.want(at, why)
		return
	}
	for _, l := range [...]ib.LID{lid, from} {
		if r, ok := m.sub.ByLID(l); ok {
			n := m.sub.Nodes[r.Node]
			m.wantLook(at, n.Info.NodeGUID, why+" at "+nodeName(n))
			return
		}
	}
	m.want(at, why)
}
