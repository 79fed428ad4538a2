package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

func parseService(t testing.TB, b []byte) mad.ServiceRecord {
	t.Helper()
	var r mad.ServiceRecord
	if _, err := r.Parse(b); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestServiceLease(t *testing.T) {
	s := world(t, "star:3", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 1)
	c.now = 10 * ib.Second
	rec := &mad.ServiceRecord{ServiceID: 0x10, ServiceGID: hostGID(s, 1), ServiceLease: 60, ServicePKey: 0xFFFF,
		ServiceKey: [16]byte{7}}
	copy(rec.ServiceName[:], "store")
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svGID, rec).want(t, mad.StatusSAInsufComponents, -1)
	an := c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, rec).want(t, mad.StatusOK, 1)
	if r := parseService(t, an.records[0]); r.ServiceLease != 60 || r.ServiceKey != [16]byte{} || r.Name() != "store" {
		t.Errorf("%+v", r)
	}
	if a.NextDeadline() != 70*ib.Second {
		t.Errorf("deadline %v", a.NextDeadline())
	}
	forever := &mad.ServiceRecord{ServiceID: 0x11, ServiceGID: hostGID(s, 1)}
	an = c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID, forever).want(t, mad.StatusOK, 1)
	if r := parseService(t, an.records[0]); r.ServiceLease != mad.ServiceLeaseForever ||
		r.ServicePKey != ib.PKeyDefault {
		t.Errorf("%+v", r)
	}
	d := clientAt(t, a, 2)
	d.now = 30*ib.Second + 1
	an = d.ask(mad.MethodGet, mad.AttrServiceRecord, comp(mad.ServiceRecordTable, "ServiceName"), rec).want(t,
		mad.StatusOK, 1)
	if r := parseService(t, an.records[0]); r.ServiceLease != 40 || r.ServiceKey != [16]byte{} {
		t.Errorf("after 20 s: lease %d, key %x", r.ServiceLease, r.ServiceKey)
	}
	an = d.trusted().ask(mad.MethodGet, mad.AttrServiceRecord, svID, rec).want(t, mad.StatusOK, 1)
	if r := parseService(t, an.records[0]); r.ServiceKey != [16]byte{7} {
		t.Error("a trusted asker gets no key")
	}
	// Who knows the key may look for it, and is not told it.
	an = d.ask(mad.MethodGetTable, mad.AttrServiceRecord, svKey, rec).want(t, mad.StatusOK, 1)
	if r := parseService(t, an.records[0]); r.ServiceID != 0x10 || r.ServiceKey != [16]byte{} {
		t.Errorf("by key: %+v", r)
	}
	d.ask(mad.MethodGetTable, mad.AttrServiceRecord, svKey, &mad.ServiceRecord{ServiceKey: [16]byte{8}}).want(t,
		mad.StatusOK, 0)
	// Renewed by its own port, which need not tell the key; by others only with it.
	c.now, d.now = 60*ib.Second, 60*ib.Second
	keyless := *rec
	keyless.ServiceKey = [16]byte{}
	d.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, &keyless).want(t, mad.StatusSADenied, -1)
	d.ask(mad.MethodDelete, mad.AttrServiceRecord, svID|svGID|svPKey, &keyless).want(t, mad.StatusSADenied, -1)
	d.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, rec).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, &keyless).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, rec).want(t, mad.StatusOK, 1)
	a.HandleTimer(119 * ib.Second)
	if n := len(a.Services(119 * ib.Second)); n != 2 {
		t.Fatalf("%d services at 119 s", n)
	}
	if a.NextDeadline() != 120*ib.Second {
		t.Errorf("deadline %v", a.NextDeadline())
	}
	a.HandleTimer(120 * ib.Second)
	if all := a.Services(120 * ib.Second); len(all) != 1 || all[0].Record.ServiceID != 0x11 ||
		a.NextDeadline() != ib.Never {
		t.Errorf("at 120 s: %+v, deadline %v", all, a.NextDeadline())
	}
	// A query also finds nothing that has ended, timer or not.
	c.now = 200 * ib.Second
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, rec).want(t, mad.StatusOK, 1)
	c.now = 260 * ib.Second
	c.ask(mad.MethodGetTable, mad.AttrServiceRecord, 0, nil).want(t, mad.StatusOK, 1)
	// The longest lease does not overflow.
	rec.ServiceLease = 0xFFFFFFFE
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease|svPKey, rec).want(t, mad.StatusOK, 1)
	if a.NextDeadline() != ib.Never {
		t.Errorf("deadline %v", a.NextDeadline())
	}
}

func TestServiceRights(t *testing.T) {
	s := world(t, "star:4", 0)
	for i, r := range hosts(s) {
		s.Port(r).Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8001 + ib.PKey(i/2)}}
	}
	a := newAdmin(s)
	all := svID | svGID | svPKey
	rec := func(id uint64, host int, key ib.PKey) *mad.ServiceRecord {
		return &mad.ServiceRecord{ServiceID: id, ServiceGID: hostGID(s, host), ServicePKey: key}
	}
	c := clientAt(t, a, 0)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, all, rec(1, 0, 0x8001)).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, all, rec(2, 0, 0x8002)).want(t, mad.StatusSAReqInvalid, -1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, all, rec(3, 2, 0x8002)).want(t, mad.StatusSAReqInvalid, -1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID, rec(4, 2, 0)).want(t, mad.StatusSAReqInvalid, -1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, all, &mad.ServiceRecord{ServiceID: 5, ServiceGID: ib.GID{1}}).want(t,
		mad.StatusSAInvalidGID, -1)
	// A record is deleted by its identifier, which the mask need not name.
	plain := rec(7, 0, 0)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID, plain).want(t, mad.StatusOK, 1)
	plain.ServicePKey = ib.PKeyDefault
	c.ask(mad.MethodDelete, mad.AttrServiceRecord, svLease, plain).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodDelete, mad.AttrServiceRecord, 0, nil).want(t, mad.StatusSANoRecords, -1)
	// A GID without its prefix names the port too.
	bare := &mad.ServiceRecord{ServiceID: 6, ServiceGID: ib.MakeGID(0, hostGID(s, 0).GUID()), ServicePKey: 0x8001}
	c.ask(mad.MethodSet, mad.AttrServiceRecord, all, bare).want(t, mad.StatusOK, 1)
	a.SetSubnet(s)
	c.ask(mad.MethodDelete, mad.AttrServiceRecord, all, bare).want(t, mad.StatusOK, 1)
	clientAt(t, a, 1).ask(mad.MethodGetTable, mad.AttrServiceRecord, 0, nil).want(t, mad.StatusOK, 1)
	clientAt(t, a, 2).ask(mad.MethodGetTable, mad.AttrServiceRecord, 0, nil).want(t, mad.StatusOK, 0)
	clientAt(t, a, 2).trusted().ask(mad.MethodGetTable, mad.AttrServiceRecord, 0, nil).want(t, mad.StatusOK, 1)
	clientAt(t, a, 2).ask(mad.MethodDelete, mad.AttrServiceRecord, all, rec(1, 0, 0x8001)).want(t,
		mad.StatusSANoRecords, -1)
	an := c.ask(mad.MethodDelete, mad.AttrServiceRecord, all, rec(1, 0, 0x8001)).want(t, mad.StatusOK, 1)
	if an.Method != mad.MethodDeleteResp || len(a.Services(0)) != 0 {
		t.Errorf("%v, %+v", an.Header, a.Services(0))
	}
	c.ask(mad.MethodDelete, mad.AttrServiceRecord, all, rec(1, 0, 0x8001)).want(t, mad.StatusSANoRecords, -1)
}

func TestServicesMax(t *testing.T) {
	s := world(t, "star:2", 0)
	a := New(Config{ServicesMax: 2})
	a.SetSubnet(s)
	c := clientAt(t, a, 0)
	for i := range 3 {
		want := mad.StatusOK
		if i == 2 {
			want = mad.StatusSANoResources
		}
		c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID,
			&mad.ServiceRecord{ServiceID: uint64(i), ServiceGID: hostGID(s, 0)}).want(t, want, -1)
	}
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID,
		&mad.ServiceRecord{ServiceID: 1, ServiceGID: hostGID(s, 0)}).want(t, mad.StatusOK, 1)
}
