package sm

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sa"
)

// Admin is the subnet administrator that answers beside this manager.
func (m *Manager) Admin() *sa.Admin { return m.admin }

func (m *Manager) newAdmin() *sa.Admin {
	return sa.New(sa.Config{SMKey: m.cfg.SMKey, PacketLifeTime: m.cfg.PacketLife})
}

// handleSA answers a client of administration. Only a master does, and one that has just handed over its successor.
func (m *Manager) handleSA(env mad.Envelope, data []byte) {
	successor := m.now < m.mayAskUntil && mad.Method(data[3]) == mad.MethodGetTable && env.LID == m.peers.lid
	if m.state != mad.SMMaster && !successor {
		return
	}
	resp, ok := m.admin.Handle(m.now, env, data)
	if method := mad.Method(data[3]); method == mad.MethodSet || method == mad.MethodDelete {
		m.registered = true
	}
	if ok {
		m.out = append(m.out, outgoing{env: env.Reply(), data: append([]byte(nil), resp...)})
	}
	m.afterAdmin()
}

// afterAdmin takes what the administrator has to say: reports to subscribers, and groups whose tables have to change.
func (m *Manager) afterAdmin() {
	for {
		env, msg, wish, ok := m.admin.PollSend()
		if !ok {
			break
		}
		r := request{what: tellReport, attr: mad.AttrNotice}
		m.out = append(m.out, outgoing{env: env, data: append([]byte(nil), msg...), timeout: wish.Timeout,
			retries: wish.Retries, req: r, tracked: true})
	}
	changed := false
	for {
		e, ok := m.admin.PollEvent()
		if !ok {
			break
		}
		if e.Kind == sa.GUIDsChanged {
			m.regroup("a host wants other GUIDs")
			continue
		}
		changed = true
		if e.Kind != sa.GroupChanged {
			m.event(EventSA, "multicast group %v (LID %#x) %s", e.MGID, int(e.MLID), e.Kind)
		}
	}
	if changed && m.admin.Revision() != m.grouped {
		m.regroup("multicast membership changed")
	}
}

// eachJoined visits the members that have joined groups, in the order of groups and members.
func (m *Manager) eachJoined(f func(mlid ib.LID, guid ib.GUID, receives bool)) {
	m.admin.EachGroup(func(info *sa.GroupInfo, members []sa.Member) {
		for i := range members {
			f(info.MLID, m.admin.BaseGUID(members[i].PortGID.GUID()), members[i].JoinState&mad.JoinReceives != 0)
		}
	})
}

// forwardNotice passes a trap on to those that have subscribed to it.
func (m *Manager) forwardNotice(n *mad.Notice) {
	m.admin.Report(m.now, *n)
	m.afterAdmin()
}

// published lets the administrator answer from the new subnet.
func (m *Manager) published() {
	m.admin.SetQoS(m.pathPolicy())
	if !m.keys.renewal.active && m.keys.renewal.next == ib.Never {
		m.restRenewal()
	}
	m.admin.SetSubnet(m.sub)
	m.afterAdmin()
	m.acknowledge()
}

// precreate makes the groups that are there without joining.
func (m *Manager) precreate() {
	for _, g := range m.groups {
		info := sa.GroupInfo{
			MGID: toldMGID(g.MLID), MLID: g.MLID, PKey: ib.PKeyDefault, QKey: broadcastQKey, MTU: ib.MTU2048,
			Rate: broadcastRate,
		}
		if g.MLID == BroadcastMLID {
			info.MGID = BroadcastMGID(ib.PKeyDefault)
		}
		if _, err := m.admin.Precreate(info); err != nil {
			m.event(EventProblem, "%v", err)
		}
	}
	m.precreatePartitions()
}

// broadcastQKey is the Q_Key of broadcast groups (RFC 4391 section 4).
const broadcastQKey ib.QKey = 0x0B1B

// BroadcastMGID is the broadcast group of IP over InfiniBand in a partition, link-local scope (RFC 4391 section 4).
func BroadcastMGID(key ib.PKey) ib.GID {
	g := ib.GID{0xFF, 0x12, 0x40, 0x1B, 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}
	binary.BigEndian.PutUint16(g[4:], uint16(key|ib.PKeyFull))
	return g
}

// toldMGID is the name of a group that has only a LID: transient, link-local, of our own making.
func toldMGID(l ib.LID) ib.GID {
	g := ib.GID{0xFF, 0x12, 0x5F, 0x1B}
	binary.BigEndian.PutUint16(g[14:], uint16(l))
	return g
}

// broadcastRate is what every link can do that is as fast as 4x SDR, as OpenSM assumes: 10 Gb/s.
const broadcastRate mad.Rate = 3
