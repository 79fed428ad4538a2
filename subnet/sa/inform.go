package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// Subscription is a port's wish to hear of events.
type Subscription struct {
	SubscriberGID ib.GID
	Enum          uint16
	Info          mad.InformInfo
	// To is where reports go.
	To mad.Envelope
	// Trusted says that the subscription was made by a trusted request.
	Trusted bool
	// Unanswered counts the reports since the subscriber last answered one.
	Unanswered int
}

// informTable is all subscriptions, in the order in which they came.
type informTable struct {
	all []*Subscription
	// queue is the reports that wait to be sent.
	queue []report
	head  int
}

// report is a notice on its way to a subscriber.
type report struct {
	to     *Subscription
	notice *sealed
}

// sealed is a notice as it goes to all who want it.
type sealed struct {
	notice mad.Notice
	issuer ib.GID
}

func (t *informTable) keep(wanted func(*Subscription) bool) {
	n := 0
	for _, s := range t.all {
		if wanted(s) {
			t.all[n] = s
			n++
		} else {
			s.To.LID = 0 // reports that wait for it go nowhere
		}
	}
	clear(t.all[n:])
	t.all = t.all[:n]
}

// find looks a subscription up: the same subscriber and the same wish. The time in which it answers, and Subscribe, are
// no part of it.
func (t *informTable) find(gid ib.GID, want *mad.InformInfo, qpn ib.QPN) int {
	for i, s := range t.all {
		have := s.Info
		if s.SubscriberGID != gid || have.QPN != want.QPN && have.QPN != qpn {
			continue
		}
		have.Subscribe, have.RespTimeValue, have.QPN = want.Subscribe, want.RespTimeValue, want.QPN
		if have == *want {
			return i
		}
	}
	return -1
}

// subscribe begins or ends a subscription (IBA 13.4.11). The response repeats what was asked (o13-12.1.1).
func (a *Admin) subscribe(q *query) mad.Status {
	var want mad.InformInfo
	if _, err := want.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	asked := want
	gid := a.gid(q.from)
	switch want.Subscribe {
	case 1:
		if !a.mayHear(q, &want) {
			return mad.StatusSAReqInvalid
		}
		// Reports go where the request came from (C13-32.1.2).
		want.QPN = q.env.QPN
		if i := a.informs.find(gid, &want, want.QPN); i >= 0 {
			s := a.informs.all[i]
			s.Info, s.To, s.Trusted = want, q.env.Reply(), q.trusted
			break
		}
		if len(a.informs.all) >= a.cfg.SubscriptionsMax {
			return mad.StatusSANoResources
		}
		a.informs.all = append(a.informs.all, &Subscription{SubscriberGID: gid, Enum: a.enumOf(gid), Info: want,
			To: q.env.Reply(), Trusted: q.trusted})
	case 0:
		i := a.informs.find(gid, &want, q.env.QPN)
		if i < 0 {
			return mad.StatusSAReqInvalid
		}
		ended := a.informs.all[i]
		a.informs.keep(func(s *Subscription) bool { return s != ended })
	default:
		return mad.StatusSAReqInvalid
	}
	start := len(a.out)
	a.out = asked.Append(a.out)
	a.keep(q, start)
	return mad.StatusOK
}

// enumOf is a number that tells a subscriber's subscriptions apart.
func (a *Admin) enumOf(gid ib.GID) uint16 {
	next := uint16(0)
	for _, s := range a.informs.all {
		if s.SubscriberGID == gid && s.Enum >= next {
			next = s.Enum + 1
		}
	}
	return next
}

// mayHear reports whether all ports that a subscription names share a partition with the subscriber (o13-14.1.1).
func (a *Admin) mayHear(q *query, want *mad.InformInfo) bool {
	if !want.GID.IsZero() {
		r, ok := a.port(want.GID)
		return ok && a.may(q, r)
	}
	if want.LIDRangeBegin == mad.InformAllLIDs {
		return true
	}
	last := max(want.LIDRangeEnd, want.LIDRangeBegin)
	if last > a.net.TopLID() {
		return false
	}
	for l := want.LIDRangeBegin; l <= last; l++ {
		if r, ok := a.net.ByLID(l); ok && !a.may(q, r) {
			return false
		}
	}
	return true
}

// listInforms shows an asker its own subscriptions, and a trusted one all.
func (a *Admin) listInforms(q *query) mad.Status {
	a.aim(q, 0)
	var rec mad.InformInfoRecord
	own := a.gid(q.from)
	for _, s := range a.informs.all {
		if !q.trusted && s.SubscriberGID != own {
			continue
		}
		rec = mad.InformInfoRecord{SubscriberGID: s.SubscriberGID, Enum: s.Enum, InformInfo: s.Info}
		if !a.add(q, &rec) {
			break
		}
	}
	return mad.StatusOK
}

// Subscriptions are all subscriptions.
func (a *Admin) Subscriptions() []Subscription {
	var all []Subscription
	for _, s := range a.informs.all {
		all = append(all, *s)
	}
	return all
}

// wants reports whether a subscription covers a notice (IBA 13.4.11.2).
func (s *Subscription) wants(n *mad.Notice, issuer ib.GID) bool {
	i := &s.Info
	switch {
	case !i.GID.IsZero():
		if i.GID.GUID() != issuer.GUID() {
			return false
		}
	case i.LIDRangeBegin != mad.InformAllLIDs:
		if n.IssuerLID < i.LIDRangeBegin || n.IssuerLID > max(i.LIDRangeEnd, i.LIDRangeBegin) {
			return false
		}
	}
	return (i.IsGeneric != 0) == n.IsGeneric &&
		(i.Type == mad.InformAllTypes || i.Type == uint16(n.Type)) &&
		(i.TrapNumberDeviceID == mad.InformAllTraps || i.TrapNumberDeviceID == n.TrapNumberDeviceID) &&
		(i.ProducerTypeVendorID == mad.InformAllProducers || i.ProducerTypeVendorID == n.ProducerTypeVendorID)
}

// Report sends a notice to all who subscribed to such and may know of its source: a port shares a partition
// with who issued it (o13-17.1.1). The manager calls it with traps; ports and groups that come and go the administrator
// reports by itself.
func (a *Admin) Report(now ib.Time, n mad.Notice) {
	if a.net == nil {
		return
	}
	issuer, ok := a.net.ByLID(n.IssuerLID)
	if !ok {
		return
	}
	a.report(n, a.gid(issuer), func(sub subnet.Ref) bool {
		_, ok := a.share(issuer, sub)
		return ok || issuer == sub
	})
}

// report queues a notice for all subscribers who want it and may hear it.
func (a *Admin) report(n mad.Notice, issuer ib.GID, may func(subnet.Ref) bool) {
	var seals [2]*sealed // with keys and without
	for _, s := range a.informs.all {
		if !s.wants(&n, issuer) {
			continue
		}
		if r, ok := a.port(s.SubscriberGID); !ok || !may(r) {
			continue
		}
		if len(a.informs.queue)-a.informs.head >= a.cfg.ReportsMax {
			a.counters.ReportsDropped++
			continue
		}
		which := 0
		if !s.Trusted {
			which = 1
		}
		if seals[which] == nil {
			seals[which] = &sealed{n, issuer}
			if !s.Trusted {
				hideKey(&seals[which].notice)
			}
		}
		a.informs.queue = append(a.informs.queue, report{s, seals[which]})
	}
}

// hideKey blanks the M_Key that somebody tried, which may be another node's.
func hideKey(n *mad.Notice) {
	if !n.IsGeneric || n.TrapNumberDeviceID != mad.TrapBadMKey {
		return
	}
	var d mad.MKeyDetails
	if _, err := d.Parse(n.DataDetails[:]); err != nil {
		return // a notice always has room for them
	}
	d.MKey = 0
	copy(n.DataDetails[:], d.Append(nil))
}

// ownNotice is a notice that the administrator itself issues: traps 64 to 67.
func (a *Admin) ownNotice(trap uint16, about ib.GID) (mad.Notice, ib.GID) {
	n := mad.Notice{
		IsGeneric: true, Type: mad.NoticeManagement, ProducerTypeVendorID: mad.ProducerClassManager,
		TrapNumberDeviceID: trap,
		IssuerLID:          a.net.Port(a.net.Self).Info.LID,
	}
	const gidOff = 6 // table 131: the GID follows 6 reserved bytes
	copy(n.DataDetails[gidOff:], about[:])
	return n, a.gid(a.net.Self)
}

// reportMoves reports ports that came into the subnet or left it.
func (a *Admin) reportMoves(old, s *subnet.Subnet) {
	if len(a.informs.all) == 0 {
		return
	}
	s.EachEnd(func(r subnet.Ref, p *subnet.Port) {
		if _, there := old.ByPortGUID(p.GUID); there {
			return
		}
		n, issuer := a.ownNotice(mad.TrapInService, ib.MakeGID(s.Prefix, p.GUID))
		a.report(n, issuer, func(sub subnet.Ref) bool { _, ok := a.share(r, sub); return ok })
	})
	old.EachEnd(func(r subnet.Ref, p *subnet.Port) {
		if _, there := s.ByPortGUID(p.GUID); there {
			return
		}
		keys := defaultKeys
		if p.Tables != nil && len(p.Tables.PKeys) > 0 {
			keys = p.Tables.PKeys
		}
		n, issuer := a.ownNotice(mad.TrapOutOfService, ib.MakeGID(old.Prefix, p.GUID))
		a.report(n, issuer, func(sub subnet.Ref) bool {
			for _, k := range keys {
				for _, t := range a.keys(sub) {
					if k.Matches(t) {
						return true
					}
				}
			}
			return false
		})
	})
}

// reportGroup reports a group that was made or deleted to subscribers in its partition.
func (a *Admin) reportGroup(g *group, trap uint16) {
	if a.net == nil || len(a.informs.all) == 0 {
		return
	}
	n, issuer := a.ownNotice(trap, g.info.MGID)
	a.report(n, issuer, func(sub subnet.Ref) bool { return a.hasKey(sub, g.info.PKey) })
}

// Wish is how long to wait for the answer to a report, each time, and how often to send it again.
type Wish struct {
	Timeout ib.Time
	Retries int
}

// Bounds of how long an answer to a report is awaited.
const (
	reportTimeoutMin = 100 * ib.Millisecond
	reportTimeoutMax = 2 * ib.Second
	reportRetries    = 3
)

// PollSend is the next report to send; the bytes are the caller's.
func (a *Admin) PollSend() (env mad.Envelope, msg []byte, wish Wish, ok bool) {
	t := &a.informs
	for t.head < len(t.queue) {
		r := t.queue[t.head]
		t.queue[t.head] = report{}
		t.head++
		port, there := a.port(r.to.SubscriberGID)
		if r.to.To.LID == 0 || !there {
			continue // ended meanwhile
		}
		if now, _ := a.net.ByLID(r.to.To.LID); now != port {
			r.to.To.LID = a.net.Port(port).Info.LID // it moved
		}
		r.to.Unanswered++
		a.counters.Reports++
		timeout := reportTimeoutMin
		if v := r.to.Info.RespTimeValue; v != 0 {
			timeout = min(max(2*ib.AckTimeout(v), reportTimeoutMin), reportTimeoutMax)
		}
		return r.to.To, a.reportBytes(r.notice), Wish{Timeout: timeout, Retries: reportRetries}, true
	}
	t.queue, t.head = t.queue[:0], 0
	return mad.Envelope{}, nil, Wish{}, false
}

// reportBytes is the datagram of a report: a notice as in a trap, with the issuer's GID after it (IBA 13.4.8.2).
func (a *Admin) reportBytes(n *sealed) []byte {
	a.tid++
	h := mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: mad.MethodReport,
		TransactionID: uint64(a.tid), AttributeID: mad.AttrNotice,
	}
	b := make([]byte, 0, mad.Size)
	b = h.Append(b)
	b = (&mad.RMPP{}).Append(b)
	b = (&mad.SAHeader{}).Append(b)
	b = n.notice.Append(b)
	b = append(b, n.issuer[:]...)
	return b[:mad.Size]
}

// HandleReportResp notes that a subscriber answered.
func (a *Admin) HandleReportResp(now ib.Time, env mad.Envelope, resp []byte) {
	if a.net == nil {
		return
	}
	from, ok := a.net.ByLID(env.LID)
	if !ok {
		return
	}
	gid := a.gid(from)
	for _, s := range a.informs.all {
		if s.SubscriberGID == gid {
			s.Unanswered = 0
		}
	}
}
