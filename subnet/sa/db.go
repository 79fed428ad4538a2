package sa

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Database is all that an administrator keeps beside the subnet, as plain values: it survives restarts and goes to
// the next master on a handover.
type Database struct {
	Groups        []Group
	Services      []ServiceEntry
	Subscriptions []Subscription
	GUIDs         []PortGUIDs
}

// ServiceEntry is a service with what is left of its lease: clocks of two lives have nothing in common.
type ServiceEntry struct {
	Record mad.ServiceRecord
	// LeaseLeft is in picoseconds; Forever says that there is no end.
	LeaseLeft ib.Time
	Forever   bool
}

// Export is the administrator's database.
func (a *Admin) Export(now ib.Time) Database {
	a.services.expire(now)
	d := Database{Groups: a.Groups(), Subscriptions: a.Subscriptions(), GUIDs: a.exportGUIDs()}
	for _, s := range a.services.all {
		e := ServiceEntry{Record: s.Record, Forever: s.Until == ib.Never}
		if !e.Forever {
			e.LeaseLeft = s.Until - now
		}
		d.Services = append(d.Services, e)
	}
	return d
}

// Import adds a database to what the administrator has; what it has already stays as it is. A group whose multicast LID
// is taken gets another, and the manager hears of all groups. Entries that make no sense are left out, and counted in
// the result. What belongs to ports that are not in the subnet goes with the next SetSubnet.
func (a *Admin) Import(now ib.Time, d Database) (refused int) {
	for i := range d.Groups {
		if !a.importGroup(&d.Groups[i]) {
			refused++
		}
	}
	for _, e := range d.Services {
		s := Service{Record: e.Record, Until: ib.Never}
		if !e.Forever {
			s.Until = now + min(max(e.LeaseLeft, 0), ib.Never-max(now, 0))
		}
		if _, known := a.services.at[keyOf(&s.Record)]; known {
			continue
		}
		if len(a.services.all) >= a.cfg.ServicesMax || s.Until <= now {
			refused++
			continue
		}
		a.services.put(s)
	}
	for _, s := range d.Subscriptions {
		if a.informs.find(s.SubscriberGID, &s.Info, s.Info.QPN) >= 0 {
			continue
		}
		if len(a.informs.all) >= a.cfg.SubscriptionsMax || !s.To.LID.IsUnicast() {
			refused++
			continue
		}
		s.Unanswered = 0
		a.informs.all = append(a.informs.all, &s)
	}
	return refused + a.importGUIDs(d.GUIDs)
}

func (a *Admin) importGroup(from *Group) bool {
	i := from.GroupInfo
	if !i.MGID.IsMulticast() || !i.PKey.IsValid() || !i.MTU.IsValid() || !i.Rate.IsValid() {
		return false
	}
	g := a.groups.byMGID[i.MGID]
	if g == nil {
		if !i.Permanent && !slices.ContainsFunc(from.Members,
			func(m Member) bool { return m.JoinState&mad.JoinKeepsGroup != 0 }) {
			return false
		}
		var ok bool
		if g, ok = a.create(i); !ok {
			return false
		}
	}
	for _, m := range from.Members {
		if m.JoinState &= mad.JoinAll; m.JoinState != 0 && g.find(m.PortGID.GUID()) < 0 {
			g.setMember(m)
			a.changed(g, GroupChanged)
		}
	}
	return true
}
