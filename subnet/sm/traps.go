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
	if last, ok := m.trapSeen[key]; ok && m.now < last.at+ib.Second {
		last.more++
		m.trapSeen[key] = last
		if n.TrapNumberDeviceID != mad.TrapLinkStateChange && n.TrapNumberDeviceID != mad.TrapCapabilityChange {
			return
		}
	} else {
		if len(m.trapSeen) >= maxTrapKeys {
			clear(m.trapSeen)
		}
		m.trapSeen[key] = trapSeen{at: m.now}
		m.event(EventTrap, "%s (%d) from LID %v%s%s", mad.TrapName(n.TrapNumberDeviceID), n.TrapNumberDeviceID, env.LID,
			m.whose(env.LID), more(last.more))
	}
	m.act(&n, env.LID)
	m.forwardNotice(&n)
}

type trapKey struct {
	number uint16
	lid    ib.LID
}

type trapSeen struct {
	at   ib.Time
	more int
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

// act does what a trap calls for.
func (m *Manager) act(n *mad.Notice, from ib.LID) {
	lid := ib.LID(binary.BigEndian.Uint16(n.DataDetails[:]))
	switch n.TrapNumberDeviceID {
	case mad.TrapLinkStateChange:
		// The details name the switch; a look at its ports is enough.
		m.look(lid, from, "link state change")
	case mad.TrapCapabilityChange, mad.TrapSystemImageGUID:
		lid = ib.LID(binary.BigEndian.Uint16(n.DataDetails[2:]))
		if n.TrapNumberDeviceID == mad.TrapCapabilityChange &&
			binary.BigEndian.Uint32(n.DataDetails[6:])&uint32(mad.CapIsSM) != 0 {
			// A manager came or went: all of them have to be seen.
			m.want(m.now, "a manager has appeared")
			return
		}
		m.look(lid, from, "capabilities or description changed")
	case mad.TrapBadPKey, mad.TrapBadQKey, mad.TrapBadPKeySwitch, mad.TrapBadMKey:
		// Somebody tries what he may not. What he has done that he could is found by a look; one in a while, as he may
		// try again and again.
		if m.now >= m.calm {
			m.calm = m.now + alertPause
			m.look(from, from, "a key was refused")
		}
	}
}

// alertPause is how often a refused key leads to a look.
const alertPause = 10 * ib.Second

// look asks for a look at the node of a LID, or for a full sweep if nobody is known by it.
func (m *Manager) look(lid, from ib.LID, why string) {
	if m.sub == nil {
		m.want(m.now, why)
		return
	}
	for _, l := range [...]ib.LID{lid, from} {
		if r, ok := m.sub.ByLID(l); ok {
			n := m.sub.Nodes[r.Node]
			m.wantLook(m.now, n.Info.NodeGUID, why+" at "+nodeName(n))
			return
		}
	}
	m.want(m.now, why)
}
