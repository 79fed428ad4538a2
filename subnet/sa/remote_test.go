package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// TestRemotePaths: a path to another subnet ends at the nearest router that reaches it, and may pass others.
func TestRemotePaths(t *testing.T) {
	const here, next, far = ib.SiteLocalPrefix | 1, ib.SiteLocalPrefix | 2, ib.SiteLocalPrefix | 3
	s := world(t, "star:5", 0)
	s.Prefix = here
	ends := hosts(s)
	rt1, rt2, rt3 := ends[2], ends[3], ends[4]
	lid := func(r subnet.Ref) ib.LID { return s.Port(r).Info.LID }
	s.Routers = []subnet.Router{
		{Port: rt1, Hops: []mad.NextHop{{Prefix: next, Weight: 1}, {Prefix: far, Weight: 2}}},
		{Port: rt2, Hops: []mad.NextHop{{Prefix: next, Weight: 1}}},
		{Port: rt3, Hops: []mad.NextHop{{Prefix: far, Weight: 1}}},
	}
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	sgid := ib.MakeGID(here, s.Port(ends[0]).GUID)
	ask := func(dgid ib.GID) mad.PathRecord {
		t.Helper()
		an := c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, &mad.PathRecord{SGID: sgid, DGID: dgid})
		r := parsePath(t, an.want(t, mad.StatusOK, 1).records[0])
		if r.SGID != sgid || r.DGID != dgid || r.SLID != lid(ends[0]) || !r.Reversible || r.MTU != ib.MTU4096 ||
			r.PKey != ib.PKeyDefault {
			t.Errorf("%+v", r)
		}
		return r
	}
	by := map[ib.LID]int{}
	for g := range ib.GUID(64) {
		r := ask(ib.MakeGID(next, 0x1000+g))
		if r.HopLimit != hopLimitMax {
			t.Fatalf("hop limit %d", r.HopLimit)
		}
		if again := ask(ib.MakeGID(next, 0x1000+g)); again.DLID != r.DLID {
			t.Error("a pair has another way when it asks again")
		}
		by[r.DLID]++
	}
	if len(by) != 2 || by[lid(rt1)] < 16 || by[lid(rt2)] < 16 {
		t.Errorf("64 paths go by routers %v: want two, with a share each", by)
	}
	if r := ask(ib.MakeGID(far, 7)); r.DLID != lid(rt3) {
		t.Errorf("a path to the far subnet ends at %v: want the nearest router, %v", r.DLID, lid(rt3))
	}
	if r := ask(ib.MakeGID(here, s.Port(ends[1]).GUID)); r.HopLimit != 0 || r.DLID != lid(ends[1]) {
		t.Errorf("within the subnet: %+v", r)
	}
	refused := func(dgid ib.GID) {
		t.Helper()
		c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, &mad.PathRecord{SGID: sgid, DGID: dgid}).
			want(t, mad.StatusSAInvalidGID, 0)
	}
	refused(ib.MakeGID(far+1, 7))
	refused(ib.MakeGID(ib.DefaultGIDPrefix, 7))
	// With a LID it has to be a router's that will do.
	want := mad.PathRecord{SGID: sgid, DGID: ib.MakeGID(next, 5), DLID: lid(rt2)}
	r := parsePath(t, c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prDLID, &want).
		want(t, mad.StatusOK, 1).records[0])
	if r.DLID != lid(rt2) {
		t.Errorf("by a router that was named: %+v", r)
	}
	want.DLID = lid(rt3)
	c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prDLID, &want).want(t, mad.StatusSANoRecords, 0)
}

// TestRemoteAsker: nobody asks by way of a router, which is a member of all partitions that go over it.
func TestRemoteAsker(t *testing.T) {
	s := world(t, "star:3", 0)
	rt := hosts(s)[2]
	a := newAdmin(s)
	c := clientAt(t, a, 2)
	ask := request(mad.MethodGetTable, mad.AttrNodeRecord, 0, 0, 0, nil)
	if _, ok := a.Handle(0, c.env, ask); !ok {
		t.Fatal("a host is not answered")
	}
	s.Nodes[rt.Node].Info.NodeType = ib.NodeRouter
	before := a.Counters().Strangers
	if _, ok := a.Handle(0, c.env, ask); ok || a.Counters().Strangers != before+1 {
		t.Error("a question that came by a router is answered")
	}
}
