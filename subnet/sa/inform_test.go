package sa

import (
	"encoding/json"
	"reflect"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// everything subscribes to all generic notices.
func everything() *mad.InformInfo {
	return &mad.InformInfo{LIDRangeBegin: mad.InformAllLIDs, IsGeneric: 1, Subscribe: 1, Type: mad.InformAllTypes,
		TrapNumberDeviceID: mad.InformAllTraps, RespTimeValue: 18, ProducerTypeVendorID: mad.InformAllProducers}
}

// sent is a report taken apart.
type sent struct {
	env    mad.Envelope
	notice mad.Notice
	issuer ib.GID
	tid    uint64
}

func reports(t testing.TB, a *Admin) (list []sent) {
	t.Helper()
	for {
		env, b, wish, ok := a.PollSend()
		if !ok {
			return list
		}
		if len(b) != mad.Size || wish.Timeout < 100*ib.Millisecond || wish.Retries == 0 {
			t.Fatalf("%d bytes, wish %+v", len(b), wish)
		}
		var h mad.Header
		if _, err := h.Parse(b); err != nil || h.MgmtClass != mad.ClassSA || h.ClassVersion != 2 ||
			h.Method != mad.MethodReport || h.AttributeID != mad.AttrNotice {
			t.Fatalf("%v, %v", h, err)
		}
		r := sent{env: env, tid: h.TransactionID}
		n, err := r.notice.Parse(b[mad.SADataOff:])
		if err != nil {
			t.Fatal(err)
		}
		r.issuer = ib.GID(b[mad.SADataOff+n:])
		list = append(list, r)
	}
}

func TestSubscribe(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 2)
	c.env.QPN, c.env.SL = 77, 3
	an := c.ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	var back mad.InformInfo
	if _, err := back.Parse(an.records[0]); err != nil || back != *everything() {
		t.Errorf("%+v, %v", back, err)
	}
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	if n := len(a.Subscriptions()); n != 1 {
		t.Fatalf("asked twice: %d subscriptions", n)
	}
	notice := mad.Notice{IsGeneric: true, Type: mad.NoticeUrgent, ProducerTypeVendorID: 2, TrapNumberDeviceID: 128,
		IssuerLID: s.Nodes[s.Switches[0]].Ports[0].Info.LID}
	a.Report(0, notice)
	got := reports(t, a)
	if len(got) != 1 || got[0].notice != notice || got[0].env.QPN != 77 || got[0].env.LID != c.env.LID ||
		got[0].env.SL != 3 ||
		got[0].issuer.GUID() != s.Nodes[s.Switches[0]].Ports[0].GUID {
		t.Fatalf("%+v", got)
	}
	if a.Subscriptions()[0].Unanswered != 1 {
		t.Error("the report is not counted")
	}
	a.Handle(0, c.env, request(mad.MethodReportResp, mad.AttrNotice, 0, 0, 0, nil))
	if a.Subscriptions()[0].Unanswered != 0 {
		t.Error("the answer is not counted")
	}
	// Its own subscriptions are all that an untrusted asker sees.
	clientAt(t, a, 1).ask(mad.MethodGetTable, mad.AttrInformInfoRecord, 0, nil).want(t, mad.StatusOK, 0)
	clientAt(t, a, 1).trusted().ask(mad.MethodGetTable, mad.AttrInformInfoRecord,
		comp(mad.InformInfoRecordTable, "SubscriberGID"),
		&mad.InformInfoRecord{SubscriberGID: hostGID(s, 2)}).want(t, mad.StatusOK, 1)
	an = c.ask(mad.MethodGetTable, mad.AttrInformInfoRecord, 0, nil).want(t, mad.StatusOK, 1)
	var r mad.InformInfoRecord
	if _, err := r.Parse(an.records[0]); err != nil || r.SubscriberGID != hostGID(s, 2) || r.InformInfo.QPN != 77 ||
		r.Enum != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// And the end.
	end := everything()
	end.Subscribe, end.QPN = 0, 77
	clientAt(t, a, 1).ask(mad.MethodSet, mad.AttrInformInfo, 0, end).want(t, mad.StatusSAReqInvalid, -1)
	a.Report(0, notice)
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, end).want(t, mad.StatusOK, 1)
	if len(a.Subscriptions()) != 0 || len(reports(t, a)) != 0 {
		t.Error("reports go on after the end")
	}
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, end).want(t, mad.StatusSAReqInvalid, -1)
	end.Subscribe = 2
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, end).want(t, mad.StatusSAReqInvalid, -1)
	c.ask(mad.MethodGet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusUnsupMethodAttr, -1)
}

func TestSubscriptionMatches(t *testing.T) {
	s := world(t, "star:4", 0)
	lid := s.Port(hosts(s)[1]).Info.LID
	notice := mad.Notice{IsGeneric: true, Type: mad.NoticeUrgent, ProducerTypeVendorID: 1, TrapNumberDeviceID: 144,
		IssuerLID: lid}
	with := func(f func(*mad.InformInfo)) *mad.InformInfo { i := everything(); f(i); return i }
	for _, tc := range []struct {
		name string
		info *mad.InformInfo
		want bool
	}{
		{"everything", everything(), true},
		{"this trap", with(func(i *mad.InformInfo) { i.TrapNumberDeviceID = 144 }), true},
		{"another trap", with(func(i *mad.InformInfo) { i.TrapNumberDeviceID = 128 }), false},
		{"this type", with(func(i *mad.InformInfo) { i.Type = uint16(mad.NoticeUrgent) }), true},
		{"another type", with(func(i *mad.InformInfo) { i.Type = uint16(mad.NoticeFatal) }), false},
		{"this producer", with(func(i *mad.InformInfo) { i.ProducerTypeVendorID = mad.ProducerCA }), true},
		{"another producer", with(func(i *mad.InformInfo) { i.ProducerTypeVendorID = mad.ProducerSwitch }), false},
		{"vendors' notices", with(func(i *mad.InformInfo) { i.IsGeneric = 0 }), false},
		{"this LID", with(func(i *mad.InformInfo) { i.LIDRangeBegin = lid }), true},
		{"a range of LIDs", with(func(i *mad.InformInfo) { i.LIDRangeBegin, i.LIDRangeEnd = 1, lid }), true},
		{"another LID", with(func(i *mad.InformInfo) { i.LIDRangeBegin, i.LIDRangeEnd = lid+1, lid+1 }), false},
		{"this GID", with(func(i *mad.InformInfo) { i.GID = hostGID(s, 1) }), true},
		{"another GID", with(func(i *mad.InformInfo) { i.GID = hostGID(s, 2) }), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAdmin(s)
			clientAt(t, a, 0).ask(mad.MethodSet, mad.AttrInformInfo, 0, tc.info).want(t, mad.StatusOK, 1)
			a.Report(0, notice)
			if got := len(reports(t, a)) == 1; got != tc.want {
				t.Errorf("reported: %v, want %v", got, tc.want)
			}
		})
	}
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, with(func(i *mad.InformInfo) { i.GID = ib.GID{1} })).want(t,
		mad.StatusSAReqInvalid, -1)
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, with(func(i *mad.InformInfo) { i.LIDRangeBegin = 5000 })).want(t,
		mad.StatusSAReqInvalid, -1)
}

func TestOwnReports(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	clientAt(t, a, 1).ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	expect := func(trap uint16, about ib.GID) {
		t.Helper()
		got := reports(t, a)
		if len(got) != 1 {
			t.Fatalf("%d reports, want trap %d", len(got), trap)
		}
		n := got[0].notice
		if n.TrapNumberDeviceID != trap || n.Type != mad.NoticeManagement ||
			n.ProducerTypeVendorID != mad.ProducerClassManager || !n.IsGeneric ||
			n.IssuerLID != s.Port(s.Self).Info.LID || ib.GID(n.DataDetails[6:22]) != about ||
			got[0].issuer != hostGID(s, 0) {
			t.Errorf("%+v", got[0])
		}
	}
	clientAt(t, a, 2).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, creating(hostGID(s, 2))).want(t,
		mad.StatusOK, 1)
	expect(mad.TrapMulticastCreated, testMGID)
	clientAt(t, a, 2).ask(leave, mad.AttrMCMemberRecord, joinNeeds, creating(hostGID(s, 2))).want(t, mad.StatusOK, 1)
	expect(mad.TrapMulticastDeleted, testMGID)
	small := without(t, s, 3)
	a.SetSubnet(small)
	expect(mad.TrapOutOfService, hostGID(s, 3))
	a.SetSubnet(s)
	expect(mad.TrapInService, hostGID(s, 3))
	// A port of another partition is not heard of.
	far := world(t, "star:4", 0)
	far.Port(hosts(far)[3]).Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8009}}
	a.SetSubnet(far)
	a.SetSubnet(without(t, far, 3))
	a.SetSubnet(far)
	if got := reports(t, a); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	a.Report(0, mad.Notice{IsGeneric: true, TrapNumberDeviceID: 144, IssuerLID: far.Port(hosts(far)[3]).Info.LID})
	a.Report(0, mad.Notice{IsGeneric: true, TrapNumberDeviceID: 144, IssuerLID: 4000})
	if got := reports(t, a); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestTriedKeys: the M_Key of trap 256 goes to trusted subscribers only.
func TestTriedKeys(t *testing.T) {
	s := world(t, "star:3", 0)
	a := newAdmin(s)
	clientAt(t, a, 1).ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	clientAt(t, a, 2).trusted().ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	n := mad.Notice{IsGeneric: true, Type: mad.NoticeSecurity, TrapNumberDeviceID: mad.TrapBadMKey, IssuerLID: 1}
	copy(n.DataDetails[:], (&mad.MKeyDetails{LID: 1, MKey: 0x1234, AttributeID: mad.AttrPortInfo}).Append(nil))
	a.Report(0, n)
	got := reports(t, a)
	if len(got) != 2 || got[1].notice != n {
		t.Fatalf("%+v", got)
	}
	var d mad.MKeyDetails
	if _, err := d.Parse(got[0].notice.DataDetails[:]); err != nil || d.MKey != 0 || d.AttributeID != mad.AttrPortInfo {
		t.Errorf("an untrusted subscriber hears %+v, %v", d, err)
	}
}

func TestReportFollowsLID(t *testing.T) {
	s := world(t, "star:3", 0)
	a := newAdmin(s)
	clientAt(t, a, 1).ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	moved := without(t, s, 2)
	moved.Port(hosts(s)[1]).Info.LID = 40
	moved.Index()
	a.SetSubnet(moved)
	if got := reports(t, a); len(got) != 1 || got[0].env.LID != 40 {
		t.Errorf("%+v", got)
	}
}

func TestReportsMax(t *testing.T) {
	s := world(t, "star:3", 0)
	a := New(Config{ReportsMax: 2})
	a.SetSubnet(s)
	clientAt(t, a, 1).ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	for range 5 {
		a.Report(0, mad.Notice{IsGeneric: true, TrapNumberDeviceID: 128, IssuerLID: 1})
	}
	if n := len(reports(t, a)); n != 2 || a.Counters().ReportsDropped != 3 {
		t.Errorf("%d reports, %+v", n, a.Counters())
	}
	a.Report(0, mad.Notice{IsGeneric: true, TrapNumberDeviceID: 128, IssuerLID: 1})
	if n := len(reports(t, a)); n != 1 {
		t.Errorf("%d reports after the queue was drained", n)
	}
}

func TestDatabase(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	if _, err := a.Precreate(broadcast(0xFFFF)); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 4; i++ {
		clientAt(t, a, i).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, creating(hostGID(s, i))).want(t,
			mad.StatusOK, 1)
		clientAt(t, a, i).ask(mad.MethodSet, mad.AttrInformInfo, 0, everything()).want(t, mad.StatusOK, 1)
	}
	c := clientAt(t, a, 2)
	c.now = 5 * ib.Second
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID|svLease,
		&mad.ServiceRecord{ServiceID: 1, ServiceGID: hostGID(s, 2), ServiceLease: 100}).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID,
		&mad.ServiceRecord{ServiceID: 2, ServiceGID: hostGID(s, 2)}).want(t, mad.StatusOK, 1)
	reports(t, a)
	text, err := json.Marshal(a.Export(25 * ib.Second))
	if err != nil {
		t.Fatal(err)
	}
	var db Database
	if err := json.Unmarshal(text, &db); err != nil {
		t.Fatal(err)
	}
	b := New(Config{SMKey: testKey})
	if n := b.Import(ib.Second, db); n != 0 {
		t.Errorf("%d entries refused", n)
	}
	b.SetSubnet(s)
	if !reflect.DeepEqual(a.Groups(), b.Groups()) {
		t.Errorf("groups\n%+v\n%+v", a.Groups(), b.Groups())
	}
	if b.NextDeadline() != 81*ib.Second || len(b.Services(ib.Second)) != 2 {
		t.Errorf("deadline %v, %d services", b.NextDeadline(), len(b.Services(ib.Second)))
	}
	if len(b.Subscriptions()) != 3 || b.Subscriptions()[0].To.LID != s.Port(hosts(s)[1]).Info.LID {
		t.Errorf("%+v", b.Subscriptions())
	}
	ev := events(b)
	if len(ev) != 2 || ev[0].Kind != GroupCreated || len(ev[1].Members) != 3 {
		t.Errorf("%+v", ev)
	}
	if len(reports(t, b)) != 0 {
		t.Error("the first subnet after a restart is reported as new")
	}
	// Twice is once, and members that left meanwhile go.
	b.Import(ib.Second, db)
	if !reflect.DeepEqual(a.Groups(), b.Groups()) || len(b.Subscriptions()) != 3 || len(b.Services(ib.Second)) != 2 {
		t.Error("a second import changes something")
	}
	d := New(Config{})
	d.Import(0, db)
	d.SetSubnet(without(t, s, 3))
	if g := d.Groups(); len(g[1].Members) != 2 || len(d.Subscriptions()) != 2 {
		t.Errorf("%+v", g)
	}
	// What makes no sense is left out.
	bad := Database{Groups: []Group{{}, {GroupInfo: GroupInfo{MGID: testMGID, PKey: 1, MTU: 1, Rate: 2}}},
		Subscriptions: []Subscription{{}}, Services: []ServiceEntry{{}}}
	if n := New(Config{}).Import(0, bad); n != 4 {
		t.Errorf("%d of 4 bad entries refused", n)
	}
}
