package sa

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	mcMGID   = comp(mad.MCMemberRecordTable, "MGID")
	mcPort   = comp(mad.MCMemberRecordTable, "PortGID")
	mcQKey   = comp(mad.MCMemberRecordTable, "Q_Key")
	mcMLID   = comp(mad.MCMemberRecordTable, "MLID")
	mcMTU    = comp(mad.MCMemberRecordTable, "MTU")
	mcMTUSel = comp(mad.MCMemberRecordTable, "MTUSelector")
	mcTClass = comp(mad.MCMemberRecordTable, "TClass")
	mcPKey   = comp(mad.MCMemberRecordTable, "P_Key")
	mcRate   = comp(mad.MCMemberRecordTable, "Rate")
	mcRateS  = comp(mad.MCMemberRecordTable, "RateSelector")
	mcLife   = comp(mad.MCMemberRecordTable, "PacketLifeTime")
	mcLifeS  = comp(mad.MCMemberRecordTable, "PacketLifeTimeSelector")
	mcSL     = comp(mad.MCMemberRecordTable, "SL")
	mcFlow   = comp(mad.MCMemberRecordTable, "FlowLabel")
	mcHop    = comp(mad.MCMemberRecordTable, "HopLimit")
	mcScope  = comp(mad.MCMemberRecordTable, "Scope")
	mcJoin   = comp(mad.MCMemberRecordTable, "JoinState")

	// joinNeeds is what joining and leaving takes, and createNeeds what making a group takes beside (o15-0.2.3).
	joinNeeds   = mcMGID | mcPort | mcJoin
	createNeeds = mcQKey | mcTClass | mcPKey | mcFlow | mcSL
)

// Signatures that MGIDs carry in their third and fourth byte.
const (
	signatureIPv4 = 0x401B // RFC 4391
	signatureIPv6 = 0x601B // RFC 4391
	signatureSA   = 0xA01B // made by an administrator (o15-0.1.5)
)

// validMGID is the check of IBA 4.1.1 and o15-0.1.5.
func validMGID(g ib.GID) bool {
	if !g.IsMulticast() {
		return false
	}
	switch binary.BigEndian.Uint16(g[2:]) {
	case signatureIPv4, signatureIPv6:
		return true
	case signatureSA:
		if g[1]&0xF == mad.ScopeLinkLocal {
			return false
		}
	}
	return g[1]&0xE0 == 0
}

// newMGID makes up an MGID that nobody has.
func (a *Admin) newMGID(scope uint8) ib.GID {
	g := ib.GID{0xFF, 0x10 | scope, signatureSA >> 8, signatureSA & 0xFF}
	binary.BigEndian.PutUint64(g[4:], a.net.Prefix)
	for {
		a.groups.unique++
		binary.BigEndian.PutUint32(g[12:], a.groups.unique)
		if a.groups.byMGID[g] == nil {
			return g
		}
	}
}

// join makes a port a member of a group, and makes the group if there is none (o15-0.2.3, o15-0.2.4).
func (a *Admin) join(q *query) mad.Status {
	var want mad.MCMemberRecord
	if !q.has(joinNeeds) {
		return mad.StatusSAInsufComponents
	}
	if _, err := want.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	port, ok := a.port(want.PortGID)
	if !ok || want.JoinState == 0 {
		return mad.StatusSAReqInvalid
	}
	proxy := port != q.from
	if proxy && !a.may(q, port) {
		return mad.StatusSAReqInvalid
	}
	g := a.groups.byMGID[want.MGID]
	if g != nil {
		if !a.agrees(q, &want, g) || !a.realizable(port, &g.info) || !a.mayModify(q, g, want.PortGID) {
			return mad.StatusSAReqInvalid
		}
	} else {
		info, status := a.newGroup(q, &want, port)
		if status != mad.StatusOK {
			return status
		}
		if g, ok = a.create(info); !ok {
			return mad.StatusSANoResources
		}
	}
	m := Member{PortGID: a.gidOf(want.PortGID), JoinState: want.JoinState, Proxy: proxy}
	if i := g.find(m.PortGID.GUID()); i >= 0 {
		m.JoinState |= g.members[i].JoinState
		m.Proxy = g.members[i].Proxy
		if m == g.members[i] {
			a.respondMember(q, g, m) // asked again: nothing changes
			return mad.StatusOK
		}
	}
	g.setMember(m)
	a.changed(g, GroupChanged)
	a.respondMember(q, g, m)
	return mad.StatusOK
}

// gidOf is a port's GID as groups keep it, whatever prefix it was called by.
func (a *Admin) gidOf(g ib.GID) ib.GID { return ib.MakeGID(a.net.Prefix, g.GUID()) }

// newGroup is the group that a join asks for that does not exist yet.
func (a *Admin) newGroup(q *query, want *mad.MCMemberRecord, port subnet.Ref) (info GroupInfo, status mad.Status) {
	if want.JoinState&mad.JoinKeepsGroup == 0 {
		return info, mad.StatusSAReqInvalid // o15-0.1.9
	}
	if !q.has(createNeeds) {
		return info, mad.StatusSAInsufComponents
	}
	info = GroupInfo{
		MGID: want.MGID, PKey: want.PKey | ib.PKeyFull, QKey: want.QKey, SL: want.SL, TClass: want.TClass,
		FlowLabel:      want.FlowLabel,
		PacketLifeTime: a.cfg.PacketLifeTime,
	}
	if q.has(mcMLID) {
		info.MLID = want.MLID
	}
	if info.MGID.IsZero() {
		scope := mad.ScopeLinkLocal
		if q.has(mcScope) {
			scope = want.Scope
		}
		info.MGID = a.newMGID(scope)
	} else if !validMGID(info.MGID) {
		return info, mad.StatusSAReqInvalid
	}
	// Scope says something only where the MGID is still to be made; clients give another than the MGID's, and OpenSM
	// lets them.
	info.Scope = info.MGID[1] & 0xF
	if q.has(mcHop) {
		info.HopLimit = want.HopLimit
	} else if mad.IsRouted(info.MGID) && len(a.net.Routers) > 0 {
		info.HopLimit = hopLimitMax // or its packets would end at the first router
	}
	if !info.PKey.IsValid() || !a.hasKey(port, info.PKey) || !q.trusted && !a.hasKey(q.from, info.PKey) {
		return info, mad.StatusSAReqInvalid
	}
	p := a.net.Port(port)
	ok := true
	rate := a.portRate(port)
	info.MTU, info.Rate = p.Info.MTUCap, rate
	if part := a.partition(info.PKey); part != nil {
		// A partition may have limits of its own, which fit all of its ports.
		if part.MTU.IsValid() {
			info.MTU = min(info.MTU, part.MTU)
		}
		if r := mad.Rate(part.Rate); r.IsValid() && r.Less(info.Rate) {
			info.Rate = r
		}
	}
	if q.has(mcMTU | mcMTUSel) {
		if info.MTU, ok = selectMTU(want.MTUSelector, want.MTU, p.Info.MTUCap); !ok {
			return info, mad.StatusSAReqInvalid
		}
	}
	if q.has(mcRate | mcRateS) {
		if info.Rate, ok = selectRate(want.RateSelector, want.Rate, rate); !ok {
			return info, mad.StatusSAReqInvalid
		}
	}
	if q.has(mcLife | mcLifeS) {
		if info.PacketLifeTime, ok = selectLife(want.PacketLifeTimeSelector, want.PacketLifeTime,
			a.cfg.PacketLifeTime); !ok {
			return info, mad.StatusSAReqInvalid
		}
	}
	return info, mad.StatusOK
}

func (a *Admin) partition(key ib.PKey) *subnet.Partition {
	for i := range a.net.Partitions {
		if p := &a.net.Partitions[i]; p.Key.Base() == key.Base() {
			return p
		}
	}
	return nil
}

// agrees reports whether all components that were given are what the group has (o15-0.2.4).
func (a *Admin) agrees(q *query, want *mad.MCMemberRecord, g *group) bool {
	i := &g.info
	for _, c := range []struct {
		comp uint64
		same bool
	}{
		{mcQKey, want.QKey == i.QKey}, {mcMLID, want.MLID == i.MLID}, {mcTClass, want.TClass == i.TClass},
		{mcPKey, want.PKey.Base() == i.PKey.Base()}, {mcSL, want.SL == i.SL}, {mcFlow, want.FlowLabel == i.FlowLabel},
		{mcHop, want.HopLimit == i.HopLimit}, {mcScope, want.Scope == i.Scope},
	} {
		if q.has(c.comp) && !c.same {
			return false
		}
	}
	return measures(q, want, i)
}

// measures compares MTU, rate and life time by their selectors. A value without selector has to be met exactly.
func measures(q *query, want *mad.MCMemberRecord, i *GroupInfo) bool {
	pick := func(comp uint64, s mad.Selector) mad.Selector {
		if q.has(comp) {
			return s
		}
		return mad.SelectExactly
	}
	return (!q.has(mcMTU) || compares(pick(mcMTUSel, want.MTUSelector), int(want.MTU), int(i.MTU))) &&
		(!q.has(mcRate) || rateCompares(pick(mcRateS, want.RateSelector), want.Rate, i.Rate)) &&
		(!q.has(mcLife) || compares(pick(mcLifeS, want.PacketLifeTimeSelector), int(want.PacketLifeTime),
			int(i.PacketLifeTime)))
}

// realizable reports whether a port can keep up with a group and is in its partition.
func (a *Admin) realizable(port subnet.Ref, i *GroupInfo) bool {
	return a.net.Port(port).Info.MTUCap >= i.MTU && !a.portRate(port).Less(i.Rate) && a.hasKey(port, i.PKey)
}

// portRate is what an end port can send and receive. A switch's own port is as fast as the fastest of the others.
func (a *Admin) portRate(r subnet.Ref) mad.Rate {
	n := a.net.Nodes[r.Node]
	if !n.IsSwitch() {
		return mad.RateOf(n.Ports[r.Port].Rate())
	}
	best := mad.Rate(0)
	for i := range n.Ports[1:] {
		if p := &n.Ports[1+i]; p.Up() && best.Less(mad.RateOf(p.Rate())) {
			best = mad.RateOf(p.Rate())
		}
	}
	return best
}

// mayModify is o15-0.2.1: a membership is the port's own affair, or if it came through another that of the group's
// partition.
func (a *Admin) mayModify(q *query, g *group, port ib.GID) bool {
	i := g.find(port.GUID())
	if i < 0 || q.trusted {
		return true
	}
	if g.members[i].Proxy {
		return a.hasKey(q.from, g.info.PKey)
	}
	own, _ := a.port(port)
	return own == q.from
}

// leave takes bits off a membership (o15-0.1.14).
func (a *Admin) leave(q *query) mad.Status {
	var want mad.MCMemberRecord
	if !q.has(joinNeeds) {
		return mad.StatusSAInsufComponents
	}
	if _, err := want.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	g := a.groups.byMGID[want.MGID]
	if g == nil {
		return mad.StatusSAReqInvalid
	}
	i := g.find(want.PortGID.GUID())
	if _, ok := a.port(want.PortGID); !ok || i < 0 {
		return mad.StatusSAReqInvalid
	}
	m := g.members[i]
	if want.JoinState == 0 || want.JoinState&^m.JoinState != 0 || !a.mayModify(q, g, want.PortGID) {
		return mad.StatusSAReqInvalid
	}
	// The answer has what is left of the membership, be it nothing.
	if m.JoinState &^= want.JoinState; m.JoinState != 0 {
		g.setMember(m)
		a.changed(g, GroupChanged)
	} else {
		a.removeMember(g, i)
	}
	a.respondMember(q, g, m)
	a.buryIfDead(g)
	return mad.StatusOK
}

// record is a group as a record.
func (i *GroupInfo) record() mad.MCMemberRecord {
	return mad.MCMemberRecord{
		MGID: i.MGID, QKey: i.QKey, MLID: i.MLID, MTUSelector: mad.SelectExactly, MTU: i.MTU, TClass: i.TClass,
		PKey:         i.PKey,
		RateSelector: mad.SelectExactly, Rate: i.Rate, PacketLifeTimeSelector: mad.SelectExactly,
		PacketLifeTime: i.PacketLifeTime,
		SL:             i.SL, FlowLabel: i.FlowLabel, HopLimit: i.HopLimit, Scope: i.Scope,
	}
}

func (a *Admin) respondMember(q *query, g *group, m Member) {
	rec := g.info.record()
	rec.PortGID, rec.JoinState, rec.ProxyJoin = m.PortGID, m.JoinState, m.Proxy
	start := len(a.out)
	a.out = rec.Append(a.out)
	a.keep(q, start)
}

// listMembers gives a record for each member to a trusted asker, and one for each group, without members, to others
// (IBA 15.4.1.2): of members they see only themselves, if they ask.
func (a *Admin) listMembers(q *query) mad.Status {
	var want mad.MCMemberRecord
	if q.comps != 0 {
		if _, err := want.Parse(q.data); err != nil {
			return mad.StatusSAReqInvalid
		}
	}
	a.aim(q, mcPort|mcPKey|mcMTU|mcMTUSel|mcRate|mcRateS|mcLife|mcLifeS)
	self := false
	if q.has(mcPort) {
		r, ok := a.port(want.PortGID)
		if !ok {
			return mad.StatusOK
		}
		self = r == q.from
		if !q.trusted && !self {
			return mad.StatusOK
		}
	}
	var rec mad.MCMemberRecord
	one := func(g *group) bool {
		if !q.trusted && !a.hasKey(q.from, g.info.PKey) || q.has(mcPKey) && want.PKey.Base() != g.info.PKey.Base() ||
			!measures(q, &want, &g.info) {
			return true
		}
		if q.has(mcPort) {
			i := g.find(want.PortGID.GUID())
			return i < 0 || a.addMember(q, &rec, g, g.members[i])
		}
		if !q.trusted {
			return a.addMember(q, &rec, g, Member{})
		}
		for i := range g.members {
			if !a.addMember(q, &rec, g, g.members[i]) {
				return false
			}
		}
		if len(g.members) == 0 {
			return a.addMember(q, &rec, g, Member{})
		}
		return true
	}
	if q.has(mcMGID) {
		if g := a.groups.byMGID[want.MGID]; g != nil {
			one(g)
		}
		return mad.StatusOK
	}
	for _, g := range a.groups.list() {
		if !one(g) {
			break
		}
	}
	return mad.StatusOK
}

func (a *Admin) addMember(q *query, rec *mad.MCMemberRecord, g *group, m Member) bool {
	*rec = g.info.record()
	rec.PortGID, rec.JoinState, rec.ProxyJoin = m.PortGID, m.JoinState, m.Proxy
	return a.add(q, rec)
}
