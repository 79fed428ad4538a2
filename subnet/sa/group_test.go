package sa

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

func parseMember(t testing.TB, b []byte) mad.MCMemberRecord {
	t.Helper()
	var r mad.MCMemberRecord
	if _, err := r.Parse(b); err != nil {
		t.Fatal(err)
	}
	return r
}

var testMGID = ib.GID{0xFF, 0x12, 0x11, 0x22, 15: 0x07}

// creating is a join that has all it takes to make a group.
func creating(port ib.GID) *mad.MCMemberRecord {
	return &mad.MCMemberRecord{MGID: testMGID, PortGID: port, JoinState: mad.JoinFull, QKey: 0x1234, PKey: 0xFFFF,
		SL: 2, TClass: 3, FlowLabel: 4}
}

const join, leave = mad.MethodSet, mad.MethodDelete

// heard is an event and what there is to see after it.
type heard struct {
	Event
	Members, Senders []subnet.Ref
}

// events drains what the manager would hear.
func events(a *Admin) (list []heard) {
	for {
		e, ok := a.PollEvent()
		if !ok {
			return list
		}
		h := heard{Event: e}
		h.Members, h.Senders = a.Members(e.MLID)
		h.Members, h.Senders = slices.Clone(h.Members), slices.Clone(h.Senders)
		list = append(list, h)
	}
}

func TestJoinCreates(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 1)
	rec := creating(hostGID(s, 1))
	c.ask(join, mad.AttrMCMemberRecord, joinNeeds, rec).want(t, mad.StatusSAInsufComponents, -1)
	c.ask(join, mad.AttrMCMemberRecord, joinNeeds&^mcJoin, rec).want(t, mad.StatusSAInsufComponents, -1)
	an := c.ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, rec).want(t, mad.StatusOK, 1)
	if an.Method != mad.MethodGetResp {
		t.Errorf("%v", an.Header)
	}
	got := parseMember(t, an.records[0])
	want := *rec
	want.MLID, want.Scope = 0xC000, mad.ScopeLinkLocal
	want.MTUSelector, want.MTU, want.RateSelector, want.Rate, want.PacketLifeTimeSelector, want.PacketLifeTime = 2,
		ib.MTU4096, 2, 21, 2, 18
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	ev := events(a)
	if len(ev) != 1 || ev[0].Kind != GroupCreated || ev[0].MLID != 0xC000 || ev[0].MGID != testMGID ||
		!slices.Equal(ev[0].Members, []subnet.Ref{hosts(s)[1]}) {
		t.Errorf("events %+v", ev)
	}
	// Another joins with nothing but the MGID.
	d := clientAt(t, a, 2)
	an = d.ask(join, mad.AttrMCMemberRecord, joinNeeds,
		&mad.MCMemberRecord{MGID: testMGID, PortGID: hostGID(s, 2), JoinState: mad.JoinSendOnlyNon}).want(t,
		mad.StatusOK, 1)
	if r := parseMember(t, an.records[0]); r.QKey != 0x1234 || r.MLID != 0xC000 || r.JoinState != mad.JoinSendOnlyNon {
		t.Errorf("%+v", r)
	}
	ev = events(a)
	if len(ev) != 1 || ev[0].Kind != GroupChanged || len(ev[0].Members) != 1 ||
		!slices.Equal(ev[0].Senders, []subnet.Ref{hosts(s)[2]}) {
		t.Errorf("events %+v", ev)
	}
	// Asking again changes nothing, and so does a new sweep.
	rev := a.Revision()
	a.SetSubnet(s)
	events(a)
	d.ask(join, mad.AttrMCMemberRecord, joinNeeds,
		&mad.MCMemberRecord{MGID: testMGID, PortGID: hostGID(s, 2), JoinState: mad.JoinSendOnlyNon}).want(t,
		mad.StatusOK, 1)
	if ev := events(a); len(ev) != 0 || a.Revision() != rev {
		t.Errorf("events %+v, revision %d, was %d", ev, a.Revision(), rev)
	}
	a.EachGroup(func(info *GroupInfo, members []Member) {
		if info.MGID != testMGID || len(members) != 2 {
			t.Errorf("%+v %+v", info, members)
		}
	})
	// The last full member takes the group with it.
	an = c.ask(leave, mad.AttrMCMemberRecord, joinNeeds, rec).want(t, mad.StatusOK, 1)
	var left mad.MCMemberRecord
	if _, err := left.Parse(an.records[0]); err != nil || left.JoinState != 0 {
		t.Errorf("join state %v is left, %v", left.JoinState, err)
	}
	if an.Method != mad.MethodDeleteResp {
		t.Errorf("%v", an.Header)
	}
	if a.Revision() == rev {
		t.Error("a member left and the revision is the same")
	}
	ev = events(a)
	if len(ev) != 1 || ev[0].Kind != GroupDeleted || ev[0].MLID != 0xC000 || ev[0].MGID != testMGID {
		t.Errorf("events %+v", ev)
	}
	if len(a.Groups()) != 0 {
		t.Errorf("groups %+v", a.Groups())
	}
}

func TestJoinRefusals(t *testing.T) {
	s := world(t, "star:4", 0)
	slow := s.Port(hosts(s)[3])
	slow.Info.SetSpeeds(ib.SDR, ib.SDR, ib.SDR)
	slow.Info.MTUCap = ib.MTU1024
	s.Port(hosts(s)[2]).Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8005}}
	a := newAdmin(s)
	me, other := hostGID(s, 1), hostGID(s, 0)
	all := joinNeeds | createNeeds
	with := func(f func(*mad.MCMemberRecord)) *mad.MCMemberRecord { r := creating(me); f(r); return r }
	for _, tc := range []struct {
		name   string
		comps  uint64
		rec    *mad.MCMemberRecord
		status mad.Status
	}{
		{"no such port", all, with(func(r *mad.MCMemberRecord) { r.PortGID[15] ^= 0x77 }), mad.StatusSAReqInvalid},
		{"no join state", all, with(func(r *mad.MCMemberRecord) { r.JoinState = 0 }), mad.StatusSAReqInvalid},
		{"not a full member", all, with(func(r *mad.MCMemberRecord) { r.JoinState = mad.JoinNon }),
			mad.StatusSAReqInvalid},
		{"a unicast GID", all, with(func(r *mad.MCMemberRecord) { r.MGID = other }), mad.StatusSAReqInvalid},
		{"reserved flags", all, with(func(r *mad.MCMemberRecord) { r.MGID[1] = 0x42 }), mad.StatusSAReqInvalid},
		{"the administrator's own signature", all, with(func(r *mad.MCMemberRecord) {
			r.MGID[2], r.MGID[3] = 0xA0,
				0x1B
		}), mad.StatusSAReqInvalid},
		{"a partition of others", all, with(func(r *mad.MCMemberRecord) { r.PKey = 0x8005 }), mad.StatusSAReqInvalid},
		{"no partition", all, with(func(r *mad.MCMemberRecord) { r.PKey = 0x8000 }), mad.StatusSAReqInvalid},
		{"MTU too large", all | mcMTU | mcMTUSel, with(func(r *mad.MCMemberRecord) {
			r.MTUSelector,
				r.MTU = mad.SelectExactly, 6
		}), mad.StatusSAReqInvalid},
		{"rate too large", all | mcRate | mcRateS, with(func(r *mad.MCMemberRecord) {
			r.RateSelector,
				r.Rate = mad.SelectExactly, 23
		}), mad.StatusSAReqInvalid},
		{"a port of another partition", all, with(func(r *mad.MCMemberRecord) { r.PortGID = hostGID(s, 2) }),
			mad.StatusSAReqInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clientAt(t, a, 1).ask(join, mad.AttrMCMemberRecord, tc.comps, tc.rec).want(t, tc.status, -1)
			if len(a.Groups()) != 0 {
				t.Fatal("a group was made")
			}
		})
	}
	// A scope beside the MGID's own says nothing.
	clientAt(t, a, 1).ask(join, mad.AttrMCMemberRecord, all|mcScope,
		with(func(r *mad.MCMemberRecord) { r.Scope = mad.ScopeGlobal })).want(t, mad.StatusOK, 1)
	for _, tc := range []struct {
		name  string
		host  int
		comps uint64
		rec   *mad.MCMemberRecord
	}{
		{"too slow a port", 3, joinNeeds, &mad.MCMemberRecord{MGID: testMGID, PortGID: hostGID(s, 3),
			JoinState: mad.JoinFull}},
		{"not in the partition", 2, joinNeeds, &mad.MCMemberRecord{MGID: testMGID, PortGID: hostGID(s, 2),
			JoinState: mad.JoinFull}},
		{"another Q_Key", 1, joinNeeds | mcQKey, with(func(r *mad.MCMemberRecord) { r.QKey++ })},
		{"another SL", 1, joinNeeds | mcSL, with(func(r *mad.MCMemberRecord) { r.SL++ })},
		{"another MLID", 1, joinNeeds | mcMLID, with(func(r *mad.MCMemberRecord) { r.MLID = 0xC005 })},
		{"a smaller MTU", 1, joinNeeds | mcMTU | mcMTUSel,
			with(func(r *mad.MCMemberRecord) { r.MTUSelector, r.MTU = mad.SelectLess, ib.MTU4096 })},
		{"a larger rate", 1, joinNeeds | mcRate | mcRateS,
			with(func(r *mad.MCMemberRecord) { r.RateSelector, r.Rate = mad.SelectGreater, 21 })},
		{"another's membership", 0, joinNeeds, with(func(r *mad.MCMemberRecord) { r.JoinState = mad.JoinNon })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clientAt(t, a, tc.host).ask(join, mad.AttrMCMemberRecord, tc.comps, tc.rec).want(t, mad.StatusSAReqInvalid,
				-1)
		})
	}
	for _, tc := range []struct {
		name string
		host int
		rec  *mad.MCMemberRecord
	}{
		{"leave by another", 0, creating(me)},
		{"leave what is not joined", 1, with(func(r *mad.MCMemberRecord) { r.JoinState = mad.JoinFull | mad.JoinNon })},
		{"leave nothing", 1, with(func(r *mad.MCMemberRecord) { r.JoinState = 0 })},
		{"leave without being in", 0, with(func(r *mad.MCMemberRecord) { r.PortGID = other })},
		{"leave no group", 1, with(func(r *mad.MCMemberRecord) { r.MGID[15]++ })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clientAt(t, a, tc.host).ask(leave, mad.AttrMCMemberRecord, joinNeeds, tc.rec).want(t,
				mad.StatusSAReqInvalid, -1)
		})
	}
	// A trusted one may end what is another's.
	clientAt(t, a, 0).trusted().ask(leave, mad.AttrMCMemberRecord, joinNeeds, creating(me)).want(t, mad.StatusOK, 1)
}

func TestProxyJoin(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	rec := creating(hostGID(s, 2))
	an := clientAt(t, a, 1).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, rec).want(t, mad.StatusOK, 1)
	if r := parseMember(t, an.records[0]); !r.ProxyJoin || r.PortGID != hostGID(s, 2) {
		t.Errorf("%+v", r)
	}
	clientAt(t, a, 3).ask(leave, mad.AttrMCMemberRecord, joinNeeds, rec).want(t, mad.StatusOK, 1)
}

func TestNewMGIDs(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	seen := map[ib.GID]bool{}
	for i := range 5 {
		rec := creating(hostGID(s, 1))
		rec.MGID, rec.Scope = ib.GID{}, mad.ScopeSiteLocal
		an := clientAt(t, a, 1).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds|mcScope, rec).want(t,
			mad.StatusOK, 1)
		r := parseMember(t, an.records[0])
		if r.MGID[0] != 0xFF || r.MGID[1] != 0x15 || r.MGID[2] != 0xA0 || r.MGID[3] != 0x1B || r.MLID != 0xC000+
			ib.LID(i) {
			t.Errorf("%v at MLID %#x", r.MGID, uint16(r.MLID))
		}
		seen[r.MGID] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d MGIDs of 5", len(seen))
	}
}

func TestMLIDs(t *testing.T) {
	s := world(t, "star:2", 0)
	s.Nodes[s.Switches[0]].Switch.MulticastFDBCap = 3
	a := newAdmin(s)
	make1 := func(n byte, mlid ib.LID) answer {
		rec := creating(hostGID(s, 0))
		rec.MGID[15], rec.MLID = n, mlid
		return clientAt(t, a, 0).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds|mcMLID, rec)
	}
	for _, tc := range []struct {
		n         byte
		wish, got ib.LID
	}{{1, 0, 0xC000}, {2, 0xC002, 0xC002}, {3, 0xC002, 0xC001}} {
		if r := parseMember(t, make1(tc.n, tc.wish).want(t, mad.StatusOK, 1).records[0]); r.MLID != tc.got {
			t.Errorf("wished %#x, got %#x, want %#x", uint16(tc.wish), uint16(r.MLID), uint16(tc.got))
		}
	}
	make1(4, 0).want(t, mad.StatusSANoResources, -1)
	if _, err := a.Precreate(broadcast(0xFFFF)); !errors.Is(err, ErrGroup) {
		t.Errorf("a group without a LID: %v", err)
	}
}

// TestJoinLeaveModel drives joins and leaves at random against a model of the standard's rules.
func TestJoinLeaveModel(t *testing.T) {
	s := world(t, "star:6", 0)
	a := newAdmin(s)
	rng := rand.New(rand.NewPCG(7, 8))
	mgids := []ib.GID{testMGID, {0xFF, 0x12, 15: 1}, broadcast(0xFFFF).MGID}
	if _, err := a.Precreate(broadcast(0xFFFF)); err != nil {
		t.Fatal(err)
	}
	model := map[ib.GID]map[int]mad.JoinState{mgids[2]: {}}
	told := map[ib.GID]map[int]mad.JoinState{}
	accepted := 0
	for step := range 5000 {
		mgid, host, state := mgids[rng.IntN(len(mgids))], rng.IntN(6), mad.JoinState(rng.IntN(16))
		rec := creating(hostGID(s, host))
		rec.MGID, rec.JoinState = mgid, state
		members, exists := model[mgid]
		if rng.IntN(2) == 0 {
			comps := joinNeeds
			if !exists {
				comps |= createNeeds
			}
			an := clientAt(t, a, host).ask(join, mad.AttrMCMemberRecord, comps, rec)
			ok := state != 0 && (exists || state&(mad.JoinFull|mad.JoinSendOnlyFull) != 0)
			if ok != (an.Status == mad.StatusOK) {
				t.Fatalf("step %d: join %v by %d: %v, want success %v", step, state, host, an.Status, ok)
			}
			if ok {
				accepted++
				if !exists {
					members = map[int]mad.JoinState{}
					model[mgid] = members
				}
				members[host] |= state
				if r := parseMember(t, an.records[0]); r.JoinState != members[host] {
					t.Fatalf("step %d: joined as %v, want %v", step, r.JoinState, members[host])
				}
			}
		} else {
			an := clientAt(t, a, host).ask(leave, mad.AttrMCMemberRecord, joinNeeds, rec)
			ok := exists && members[host] != 0 && state != 0 && state&^members[host] == 0
			if ok != (an.Status == mad.StatusOK) {
				t.Fatalf("step %d: leave %v by %d of %v: %v, want success %v", step, state, host, members, an.Status,
					ok)
			}
			if ok {
				accepted++
				members[host] &^= state
				if members[host] == 0 {
					delete(members, host)
				}
				alive := mgid == mgids[2]
				for _, st := range members {
					alive = alive || st&(mad.JoinFull|mad.JoinSendOnlyFull) != 0
				}
				if !alive {
					delete(model, mgid)
				}
			}
		}
		if rng.IntN(10) > 0 {
			continue
		}
		// What the manager is told, event by event, is what is so.
		for _, e := range events(a) {
			if e.Kind == GroupDeleted {
				delete(told, e.MGID)
				continue
			}
			told[e.MGID] = map[int]mad.JoinState{}
			for i, r := range hosts(s) {
				if slices.Contains(e.Members, r) {
					told[e.MGID][i] = mad.JoinReceives
				}
				if slices.Contains(e.Senders, r) {
					told[e.MGID][i] = mad.JoinSendOnlyNon
				}
			}
		}
		groups := a.Groups()
		if len(groups) != len(model) || len(told) != len(model) {
			t.Fatalf("step %d: %d groups, told of %d, want %d", step, len(groups), len(told), len(model))
		}
		for _, g := range groups {
			if len(g.Members) != len(model[g.MGID]) || len(told[g.MGID]) != len(g.Members) {
				t.Fatalf("step %d: group %v has %d members, told of %d, want %d", step, g.MGID, len(g.Members),
					len(told[g.MGID]), len(model[g.MGID]))
			}
			for _, m := range g.Members {
				i := slices.IndexFunc(hosts(s), func(r subnet.Ref) bool { return s.Port(r).GUID == m.PortGID.GUID() })
				want := model[g.MGID][i]
				if m.JoinState != want || (told[g.MGID][i] == mad.JoinReceives) != (want&mad.JoinReceives != 0) {
					t.Fatalf("step %d: host %d is %v, want %v", step, i, m.JoinState, want)
				}
			}
		}
	}
	if accepted < 500 {
		t.Errorf("only %d requests were accepted", accepted)
	}
}

func TestListMembers(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	if _, err := a.Precreate(broadcast(0xFFFF)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		clientAt(t, a, i).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, creating(hostGID(s, i))).want(t,
			mad.StatusOK, 1)
	}
	c := clientAt(t, a, 3)
	for _, b := range c.ask(mad.MethodGetTable, mad.AttrMCMemberRecord, 0, nil).want(t, mad.StatusOK, 2).records {
		if r := parseMember(t, b); !r.PortGID.IsZero() || r.JoinState != 0 || r.ProxyJoin {
			t.Errorf("an untrusted asker sees %+v", r)
		}
	}
	// three members and an empty group
	c.trusted().ask(mad.MethodGetTable, mad.AttrMCMemberRecord, 0, nil).want(t, mad.StatusOK, 4)
	c.ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcPort, &mad.MCMemberRecord{PortGID: hostGID(s, 1)}).want(t,
		mad.StatusOK, 0)
	an := clientAt(t, a, 1).ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcPort,
		&mad.MCMemberRecord{PortGID: hostGID(s, 1)}).want(t, mad.StatusOK, 1)
	if r := parseMember(t, an.records[0]); r.PortGID != hostGID(s, 1) || r.JoinState != mad.JoinFull {
		t.Errorf("a member sees of itself %+v", r)
	}
	c.trusted().ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcPort,
		&mad.MCMemberRecord{PortGID: hostGID(s, 1)}).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodGet, mad.AttrMCMemberRecord, mcMGID, &mad.MCMemberRecord{MGID: testMGID}).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcMLID, &mad.MCMemberRecord{MLID: 0xC001}).want(t, mad.StatusOK,
		1)
	c.ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcMTU|mcMTUSel,
		&mad.MCMemberRecord{MTUSelector: mad.SelectGreater, MTU: ib.MTU2048}).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodGetTable, mad.AttrMCMemberRecord, mcPKey, &mad.MCMemberRecord{PKey: 0x8001}).want(t, mad.StatusOK,
		0)
}

func TestPrecreate(t *testing.T) {
	s := world(t, "star:2", 0)
	a := newAdmin(s)
	g, err := a.Precreate(broadcast(0xFFFF))
	if err != nil || g.MLID != 0xC000 || !g.Permanent || g.Scope != 2 || g.PacketLifeTime != 18 {
		t.Fatalf("%+v, %v", g, err)
	}
	join1 := &mad.MCMemberRecord{MGID: g.MGID, PortGID: hostGID(s, 0), JoinState: mad.JoinFull}
	clientAt(t, a, 0).ask(join, mad.AttrMCMemberRecord, joinNeeds, join1).want(t, mad.StatusOK, 1)
	again := broadcast(0xFFFF)
	again.MTU = ib.MTU4096
	if h, err := a.Precreate(again); err != nil || h.MLID != g.MLID || len(a.Groups()[0].Members) != 1 ||
		a.Groups()[0].MTU != ib.MTU4096 {
		t.Errorf("%+v, %v", h, err)
	}
	clientAt(t, a, 0).ask(leave, mad.AttrMCMemberRecord, joinNeeds, join1).want(t, mad.StatusOK, 1)
	if len(a.Groups()) != 1 {
		t.Error("a permanent group went")
	}
	if !a.Withdraw(g.MGID) || len(a.Groups()) != 0 || a.Withdraw(g.MGID) {
		t.Error("a withdrawn group stays")
	}
	for _, bad := range []func(*GroupInfo){
		func(g *GroupInfo) { g.MGID = ib.GID{} }, func(g *GroupInfo) { g.PKey = 0 }, func(g *GroupInfo) { g.MTU = 0 },
		func(g *GroupInfo) { g.Rate = 1 },
	} {
		g := broadcast(0xFFFF)
		bad(&g)
		var ge *GroupError
		if _, err := a.Precreate(g); !errors.As(err, &ge) || !errors.Is(err, ErrGroup) {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

// without is the subnet after a host was unplugged.
func without(t testing.TB, s *subnet.Subnet, host int) *subnet.Subnet {
	t.Helper()
	d := &subnet.Subnet{Prefix: s.Prefix, Self: s.Self, Managers: s.Managers, Switches: s.Switches}
	r := hosts(s)[host]
	for _, n := range s.Nodes {
		m := *n
		m.Ports = slices.Clone(n.Ports)
		d.Nodes = append(d.Nodes, &m)
	}
	p := d.Port(r)
	d.Nodes[p.Peer].Ports[p.PeerPort].Peer = subnet.None
	p.Peer = subnet.None
	d.Index()
	return d
}

func TestPortLeaves(t *testing.T) {
	s := world(t, "star:4", 0)
	a := newAdmin(s)
	for i := 1; i < 4; i++ {
		clientAt(t, a, i).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, creating(hostGID(s, i))).want(t,
			mad.StatusOK, 1)
	}
	c := clientAt(t, a, 2)
	c.ask(mad.MethodSet, mad.AttrServiceRecord, svID|svGID,
		&mad.ServiceRecord{ServiceID: 1, ServiceGID: hostGID(s, 2)}).want(t, mad.StatusOK, 1)
	c.ask(mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: 0xFFFF, IsGeneric: 1, Subscribe: 1,
		Type: 0xFFFF, TrapNumberDeviceID: 0xFFFF, ProducerTypeVendorID: 0xFFFFFF}).want(t, mad.StatusOK, 1)
	events(a)
	a.SetSubnet(without(t, s, 2))
	ev := events(a)
	if len(ev) != 1 || ev[0].Kind != GroupChanged || len(ev[0].Members) != 2 {
		t.Errorf("events %+v", ev)
	}
	if len(a.Services(0)) != 0 || len(a.Subscriptions()) != 0 {
		t.Errorf("left behind: %+v %+v", a.Services(0), a.Subscriptions())
	}
	if _, _, _, ok := a.PollSend(); ok {
		t.Error("a report to a port that left")
	}
	// A member that leaves the partition leaves the group.
	d := without(t, s, 2)
	d.Port(hosts(s)[3]).Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8009}}
	a.SetSubnet(d)
	if g := a.Groups(); len(g) != 1 || len(g[0].Members) != 1 {
		t.Errorf("groups %+v", g)
	}
}
