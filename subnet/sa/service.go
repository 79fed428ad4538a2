package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	svID    = comp(mad.ServiceRecordTable, "ServiceID")
	svGID   = comp(mad.ServiceRecordTable, "ServiceGID")
	svPKey  = comp(mad.ServiceRecordTable, "ServiceP_Key")
	svLease = comp(mad.ServiceRecordTable, "ServiceLease")
	svKey   = comp(mad.ServiceRecordTable, "ServiceKey")
)

// Service is a service that a port offers.
type Service struct {
	// Record is what was registered; its lease is what was asked for.
	Record mad.ServiceRecord
	// Until is when the lease ends, ib.Never if it does not.
	Until ib.Time
}

// serviceKey is what makes a service the same (IBA 15.2.5.14, the record's identifier).
type serviceKey struct {
	id   uint64
	gid  ib.GID
	pkey ib.PKey
}

func keyOf(r *mad.ServiceRecord) serviceKey {
	return serviceKey{r.ServiceID, r.ServiceGID, r.ServicePKey}
}

// serviceTable is all services, in the order in which they came.
type serviceTable struct {
	all []Service
	at  map[serviceKey]int
	// soonest is no later than the first end of a lease.
	soonest ib.Time
}

func (t *serviceTable) init() {
	t.at = map[serviceKey]int{}
	t.soonest = ib.Never
}

func (t *serviceTable) put(s Service) {
	k := keyOf(&s.Record)
	if i, ok := t.at[k]; ok {
		t.all[i] = s
	} else {
		t.at[k] = len(t.all)
		t.all = append(t.all, s)
	}
	t.soonest = min(t.soonest, s.Until)
}

// keep drops all services that are not wanted.
func (t *serviceTable) keep(wanted func(*Service) bool) {
	n := 0
	t.soonest = ib.Never
	for i := range t.all {
		s := &t.all[i]
		if !wanted(s) {
			delete(t.at, keyOf(&s.Record))
			continue
		}
		t.soonest = min(t.soonest, s.Until)
		t.at[keyOf(&s.Record)] = n
		t.all[n] = *s
		n++
	}
	clear(t.all[n:])
	t.all = t.all[:n]
}

func (t *serviceTable) next() ib.Time { return t.soonest }

func (t *serviceTable) expire(now ib.Time) {
	if now >= t.soonest {
		t.keep(func(s *Service) bool { return s.Until > now })
	}
}

// leaseEnd is when a lease ends. Time counts picoseconds, so that a lease of months is as good as none.
func leaseEnd(now ib.Time, seconds uint32) ib.Time {
	if seconds == mad.ServiceLeaseForever || ib.Time(seconds) > (ib.Never-max(now, 0))/ib.Second {
		return ib.Never
	}
	return now + ib.Time(seconds)*ib.Second
}

// leaseLeft is what is left of a lease in seconds, rounded up.
func (s *Service) leaseLeft(now ib.Time) uint32 {
	if s.Until == ib.Never {
		return s.Record.ServiceLease
	}
	return uint32((max(s.Until-now, 0) + ib.Second - 1) / ib.Second)
}

// Services are all services whose lease has not ended.
func (a *Admin) Services(now ib.Time) []Service {
	a.services.expire(now)
	return append([]Service(nil), a.services.all...)
}

// servicePort is the port that offers a service. It goes by the GUID where the prefix is of no subnet: clients leave it
// out or swap its bytes, as osmtest does, and OpenSM lets them.
func (a *Admin) servicePort(r *mad.ServiceRecord) (subnet.Ref, bool) {
	if port, ok := a.port(r.ServiceGID); ok {
		return port, true
	}
	return a.port(ib.MakeGID(a.net.Prefix, r.ServiceGID.GUID()))
}

// setService registers a service or renews it.
func (a *Admin) setService(q *query) mad.Status {
	var s Service
	if !q.has(svID | svGID) {
		return mad.StatusSAInsufComponents
	}
	if _, err := s.Record.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	a.services.expire(q.now)
	port, ok := a.servicePort(&s.Record)
	if !ok {
		return mad.StatusSAInvalidGID
	}
	if !q.has(svPKey) {
		s.Record.ServicePKey = 0
	}
	if key := s.Record.ServicePKey; key.IsValid() {
		// The service is offered in a partition in which both the one that registers it and the one that offers it are.
		if !a.hasKey(port, key) || !q.trusted && !a.hasKey(q.from, key) {
			return mad.StatusSAReqInvalid
		}
	} else if !a.may(q, port) {
		return mad.StatusSAReqInvalid
	}
	if !q.has(svLease) {
		s.Record.ServiceLease = mad.ServiceLeaseForever
	}
	s.Until = leaseEnd(q.now, s.Record.ServiceLease)
	if status := a.mayReplace(q, &s.Record); status != mad.StatusOK {
		return status
	}
	if _, known := a.services.at[keyOf(&s.Record)]; !known && len(a.services.all) >= a.cfg.ServicesMax {
		return mad.StatusSANoResources
	}
	a.services.put(s)
	if s.Record.ServicePKey == 0 {
		s.Record.ServicePKey = ib.PKeyDefault
	}
	a.respondService(q, &s)
	return mad.StatusOK
}

// mayReplace guards a service by its key: the port that offers it may change it, and so may who knows the key. An owner
// is not asked for it, since clients take back what a query told them about, and a query tells nobody a key.
func (a *Admin) mayReplace(q *query, r *mad.ServiceRecord) mad.Status {
	i, known := a.services.at[keyOf(r)]
	if !known || q.trusted {
		return mad.StatusOK
	}
	if owner, ok := a.servicePort(r); ok && owner == q.from {
		return mad.StatusOK
	}
	if key := a.services.all[i].Record.ServiceKey; key != [16]byte{} && key != r.ServiceKey {
		return mad.StatusSADenied
	}
	return mad.StatusOK
}

// deleteService takes back a service by its record's identifier. That has to be there whether or not the mask says so:
// osmtest's does not, and OpenSM does not look.
func (a *Admin) deleteService(q *query) mad.Status {
	var want mad.ServiceRecord
	if len(q.data) < mad.ServiceRecordTable.Size {
		return mad.StatusSAInsufComponents
	}
	if _, err := want.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	if q.comps&(svID|svGID) != 0 && !q.has(svID|svGID) {
		return mad.StatusSAInsufComponents
	}
	a.services.expire(q.now)
	i, ok := a.services.at[keyOf(&want)]
	if !ok && !q.has(svPKey) {
		// It was registered without a partition; what the answer to that called the default one is told back.
		want.ServicePKey = 0
		i, ok = a.services.at[keyOf(&want)]
	}
	if !ok {
		return mad.StatusSANoRecords
	}
	s := a.services.all[i]
	port, ok := a.servicePort(&s.Record)
	if key := s.Record.ServicePKey; !q.trusted &&
		(!ok || key.IsValid() && !a.hasKey(q.from, key) || !key.IsValid() && !a.may(q, port)) {
		return mad.StatusSANoRecords
	}
	if status := a.mayReplace(q, &want); status != mad.StatusOK {
		return status
	}
	k := keyOf(&want)
	a.services.keep(func(s *Service) bool { return keyOf(&s.Record) != k })
	a.respondService(q, &s)
	return mad.StatusOK
}

func (a *Admin) respondService(q *query, s *Service) {
	rec := s.Record
	rec.ServiceLease = s.leaseLeft(q.now)
	if !q.trusted {
		rec.ServiceKey = [16]byte{}
	}
	start := len(a.out)
	a.out = rec.Append(a.out)
	a.keep(q, start)
}

func (a *Admin) listServices(q *query) mad.Status {
	a.services.expire(q.now)
	a.aim(q, svLease|svKey)
	var rec, want mad.ServiceRecord
	if q.has(svKey) {
		if _, err := want.Parse(q.data); err != nil {
			return mad.StatusSAReqInvalid
		}
	}
	for i := range a.services.all {
		s := &a.services.all[i]
		if key := s.Record.ServicePKey; !q.trusted && key.IsValid() && !a.hasKey(q.from, key) {
			continue
		}
		// Who knows a key may look for it; nobody is told one.
		if q.has(svKey) && want.ServiceKey != s.Record.ServiceKey {
			continue
		}
		rec = s.Record
		rec.ServiceLease = s.leaseLeft(q.now)
		if !q.trusted {
			rec.ServiceKey = [16]byte{}
		}
		if !a.add(q, &rec) {
			break
		}
	}
	return mad.StatusOK
}
