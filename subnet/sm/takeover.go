package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/sa"
)

// takeover is the administrator's database of another manager, so that nothing that hosts have registered is lost when
// the subnet changes hands. It is asked for like any client would, by the SM_Key that both have: from the master that
// hands over, while it still answers, and now and then by a standby, for the day when the master is gone.
type takeover struct {
	from    ib.LID // whom it is asked from
	waiting int
	// got has the tables that came, empty ones too.
	got     [len(takeoverTables)]bool
	members []mad.MCMemberRecord
	service []mad.ServiceRecord
	informs []mad.InformInfoRecord
}

// takeoverTables are the tables that are asked for.
var takeoverTables = [...]mad.AttrID{mad.AttrMCMemberRecord, mad.AttrServiceRecord, mad.AttrInformInfoRecord}

// takeoverRetries is how often a table is asked for again. Each may take a bit longer than other answers.
const takeoverRetries = 2

// askRegistrations asks a master's administrator for its tables.
func (m *Manager) askRegistrations(from ib.LID) {
	if !from.IsUnicast() || m.takeover.waiting > 0 {
		return
	}
	m.takeover.from = from
	for _, attr := range takeoverTables {
		h := mad.Header{
			BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion,
			Method: mad.MethodGetTable, AttributeID: attr,
		}
		b := h.Append(make([]byte, 0, mad.Size))
		b = (&mad.RMPP{}).Append(b)
		b = (&mad.SAHeader{SMKey: m.cfg.SMKey}).Append(b)
		m.out = append(m.out, outgoing{
			env: mad.Envelope{LID: from, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, data: b[:mad.Size],
			timeout: 5 * m.cfg.Timeout / 2, retries: takeoverRetries, req: request{what: askRecords, attr: attr},
			tracked: true,
		})
		m.takeover.waiting++
	}
}

// tookRecords takes a table; nil if it did not come.
func (m *Manager) tookRecords(attr mad.AttrID, data []byte) {
	m.takeover.waiting--
	if len(data) < mad.SADataOff || mad.View(data).AttrID() != attr ||
		mad.View(data).Method() != mad.MethodGetTableResp {
		return
	}
	switch mad.View(data).Status() {
	case mad.StatusOK:
	case mad.StatusSANoRecords:
		data = data[:mad.SADataOff] // what follows is the question
	default:
		return
	}
	var sh mad.SAHeader
	if _, err := sh.Parse(data[mad.SAHeaderOff:]); err != nil {
		return
	}
	h := &m.takeover
	h.got[slices.Index(takeoverTables[:], attr)] = true
	switch stride := int(sh.AttributeOffset) * 8; attr {
	case mad.AttrMCMemberRecord:
		h.members = records[mad.MCMemberRecord](data[mad.SADataOff:], stride)
	case mad.AttrServiceRecord:
		h.service = records[mad.ServiceRecord](data[mad.SADataOff:], stride)
	case mad.AttrInformInfoRecord:
		h.informs = records[mad.InformInfoRecord](data[mad.SADataOff:], stride)
	}
}

// records cuts a table into its records.
func records[T any, P interface {
	*T
	Parse([]byte) (int, error)
}](b []byte, stride int) []T {
	var list []T
	for stride > 0 && len(b) >= stride {
		var r T
		if _, err := P(&r).Parse(b); err != nil {
			break
		}
		list = append(list, r)
		b = b[stride:]
	}
	return list
}

// beginTakeover asks the master that hands over. What it answers is there before multicast tables are written.
func (s *sweep) beginTakeover() {
	if !s.m.peers.owing {
		return
	}
	for k := range s.managers {
		if o := &s.managers[k]; o.Info.SMState == mad.SMMaster && o.Port != s.m.guid {
			s.m.askRegistrations(o.LID)
			return
		}
	}
}

// awaitsTakeover holds the sweep until the tables are there, or will not come.
func (s *sweep) awaitsTakeover() bool { return s.m.peers.owing && s.m.takeover.waiting > 0 }

// importRegistrations gives what was learned to our own administrator, in the place of what that one knew: from a file,
// or from a time when this manager was master before.
func (s *sweep) importRegistrations() {
	m := s.m
	h := &m.takeover
	if !m.tookOver && !m.peers.owing || h.got == [len(takeoverTables)]bool{} {
		return
	}
	lidOf := map[ib.GUID]ib.LID{}
	s.eachEnd(func(r subnet.Ref) {
		p := &s.nodes[r.Node].Ports[r.Port]
		lidOf[p.GUID] = p.Info.LID
	})
	db := h.database(lidOf)
	own := m.admin.Export(m.now)
	db.GUIDs = own.GUIDs // of the other's nothing is asked: hosts register again
	if !h.got[0] {
		db.Groups = own.Groups
	}
	if !h.got[1] {
		db.Services = own.Services
	}
	if !h.got[2] {
		db.Subscriptions = own.Subscriptions
	}
	m.admin, m.registered = m.newAdmin(), true
	m.grouped, m.groupsMade = 0, nil
	refused := m.admin.Import(m.now, db)
	m.event(EventSA, "taken over: %d groups, %d services, %d subscriptions; %d were of no use", len(db.Groups),
		len(db.Services), len(db.Subscriptions), refused)
	*h = takeover{from: h.from, waiting: h.waiting}
}

// database is the records as our own administrator keeps them.
func (h *takeover) database(lidOf map[ib.GUID]ib.LID) sa.Database {
	var db sa.Database
	at := map[ib.GID]int{}
	for i := range h.members {
		r := &h.members[i]
		k, ok := at[r.MGID]
		if !ok {
			k = len(db.Groups)
			at[r.MGID] = k
			db.Groups = append(db.Groups, sa.Group{GroupInfo: sa.GroupInfo{
				MGID: r.MGID, MLID: r.MLID, PKey: r.PKey, QKey: r.QKey, MTU: r.MTU, Rate: r.Rate,
				PacketLifeTime: r.PacketLifeTime,
				SL:             r.SL, TClass: r.TClass, FlowLabel: r.FlowLabel, HopLimit: r.HopLimit, Scope: r.Scope,
			}})
		}
		if !r.PortGID.IsZero() {
			db.Groups[k].Members = append(db.Groups[k].Members,
				sa.Member{PortGID: r.PortGID, JoinState: r.JoinState, Proxy: r.ProxyJoin})
		}
	}
	for _, r := range h.service {
		e := sa.ServiceEntry{Record: r, Forever: r.ServiceLease == 0xFFFFFFFF}
		e.LeaseLeft = ib.Time(r.ServiceLease) * ib.Second
		db.Services = append(db.Services, e)
	}
	for _, r := range h.informs {
		lid := lidOf[r.SubscriberGID.GUID()]
		db.Subscriptions = append(db.Subscriptions, sa.Subscription{
			SubscriberGID: r.SubscriberGID, Enum: r.Enum, Info: r.InformInfo,
			To: mad.Envelope{LID: lid, QPN: max(r.InformInfo.QPN, ib.QPNGSI), QKey: ib.QKeyGSI},
		})
	}
	return db
}
