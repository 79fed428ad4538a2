package sa

import (
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// guidWorld is a star whose hosts can have 12 GUIDs each.
func guidWorld(t testing.TB) *subnet.Subnet {
	s := world(t, "star:4", 0)
	for _, r := range hosts(s) {
		s.Port(r).Info.GUIDCap = 12
	}
	return s
}

// guidComps are the components of a request that names these entries of a block.
func guidComps(entries ...int) uint64 {
	c := guidLID | guidBlock
	for _, i := range entries {
		c |= guidFirst << i
	}
	return c
}

// askGUIDs changes a block of a host's GUIDs and returns it.
func askGUIDs(t testing.TB, c *client, method mad.Method, host, block int, want mad.Status, entries []int,
	guids ...ib.GUID) (g mad.GUIDInfo) {
	t.Helper()
	rec := mad.GUIDInfoRecord{LID: c.a.net.Port(hosts(c.a.net)[host]).Info.LID, BlockNum: uint8(block)}
	for k, i := range entries {
		if k < len(guids) {
			rec.GUID[i] = guids[k]
		}
	}
	an := c.ask(method, mad.AttrGUIDInfoRecord, guidComps(entries...), &rec).want(t, want, -1)
	if want != mad.StatusOK {
		return g
	}
	var r mad.GUIDInfoRecord
	if _, err := r.Parse(an.records[0]); err != nil || r.LID != rec.LID || r.BlockNum != rec.BlockNum {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.GUID
}

func TestSetGUIDs(t *testing.T) {
	s := guidWorld(t)
	a := newAdmin(s)
	c := clientAt(t, a, 1)
	own := s.Port(hosts(s)[1]).GUID
	const set, del = mad.MethodSet, mad.MethodDelete
	wantEvent := func(want bool) {
		t.Helper()
		e, ok := a.PollEvent()
		if ok != want || ok && (e.Kind != GUIDsChanged || e.Port != own) {
			t.Fatalf("event %+v, %v", e, ok)
		}
		if _, more := a.PollEvent(); more {
			t.Fatal("one event too many")
		}
	}
	if g := askGUIDs(t, c, set, 1, 0, mad.StatusOK, []int{1, 3}, 0xA1, 0xA3); g != (mad.GUIDInfo{own, 0xA1, 0, 0xA3}) {
		t.Errorf("%v", g)
	}
	wantEvent(true)
	// Asked again, nothing changes; 0 leaves what is there.
	if g := askGUIDs(t, c, set, 1, 0, mad.StatusOK, []int{1, 3}, 0xA1, 0); g != (mad.GUIDInfo{own, 0xA1, 0, 0xA3}) {
		t.Errorf("%v", g)
	}
	wantEvent(false)
	// 0 where nothing is gets one of our own making, each another.
	g := askGUIDs(t, c, set, 1, 0, mad.StatusOK, []int{4, 5})
	if g[4] == 0 || g[5] == 0 || g[4] == g[5] || g[4]>>24 != guidMade>>24 {
		t.Errorf("%v", g)
	}
	made := g[4]
	// What others have is not given: another's own, another's alias, one's own at another place.
	askGUIDs(t, clientAt(t, a, 2), set, 2, 0, mad.StatusOK, []int{1}, 0xB1)
	g = askGUIDs(t, c, set, 1, 1, mad.StatusOK, []int{0, 1, 2, 3}, s.Port(hosts(s)[0]).GUID, 0xB1, 0xA1, 0xAB)
	if g != (mad.GUIDInfo{3: 0xAB}) {
		t.Errorf("%v", g)
	}
	// Twice in one request, once it is given; beyond the end of the table nothing is.
	if g = askGUIDs(t, c, set, 1, 1, mad.StatusOK, []int{0, 1, 4, 7}, 0xAC, 0xAC, 0xAD,
		0xAE); g != (mad.GUIDInfo{0: 0xAC, 3: 0xAB}) {
		t.Errorf("%v", g)
	}
	// Aliases are addresses.
	if r, ok := a.port(ib.MakeGID(s.Prefix, 0xAC)); !ok || r != hosts(s)[1] || a.BaseGUID(0xAC) != own ||
		a.BaseGUID(own) != own {
		t.Errorf("0xAC is at %v, %v", r, ok)
	}
	c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 2), DGID: ib.MakeGID(s.Prefix, 0xA3)}).want(t, mad.StatusOK, 1)
	var blocks []mad.GUIDInfo
	for _, b := range c.ask(mad.MethodGetTable, mad.AttrGUIDInfoRecord, guidLID,
		&mad.GUIDInfoRecord{LID: c.env.LID}).want(t, mad.StatusOK, 2).records {
		var r mad.GUIDInfoRecord
		if _, err := r.Parse(b); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, r.GUID)
	}
	if blocks[0][1] != 0xA1 || blocks[0][4] != made || blocks[1] != (mad.GUIDInfo{0: 0xAC, 3: 0xAB}) {
		t.Errorf("%v", blocks)
	}
	// They outlive a sweep, and the port that holds something else is told so by the manager, not us.
	a.SetSubnet(s)
	if _, ok := a.port(ib.MakeGID(s.Prefix, 0xA3)); !ok {
		t.Error("an alias is gone after a sweep")
	}
	// Taken back, it is free for others; what we made up comes back to its place.
	if g = askGUIDs(t, c, del, 1, 0, mad.StatusOK, []int{1, 4}); g[1] != 0 || g[3] != 0xA3 || g[4] != 0 {
		t.Errorf("%v", g)
	}
	if _, ok := a.port(ib.MakeGID(s.Prefix, 0xA1)); ok {
		t.Error("an alias that was taken back is still an address")
	}
	if g = askGUIDs(t, c, set, 1, 0, mad.StatusOK, []int{4}); g[4] != made {
		t.Errorf("made %v, had %v", g[4], made)
	}
	askGUIDs(t, clientAt(t, a, 2), set, 2, 0, mad.StatusOK, []int{1}, 0xA1)
	if r, _ := a.port(ib.MakeGID(s.Prefix, 0xA1)); r != hosts(s)[2] {
		t.Errorf("0xA1 is at %v", r)
	}
	if _, ok := a.port(ib.MakeGID(s.Prefix, 0xB1)); ok {
		t.Error("an alias that was replaced is still an address")
	}
	var all []PortGUIDs
	a.EachGUIDs(func(w PortGUIDs) { all = append(all, w) })
	if len(all) != 2 || all[0].Port != own || all[0].GUIDs[3] != 0xA3 || all[1].GUIDs[1] != 0xA1 {
		t.Errorf("%v", all)
	}
}

func TestGUIDRefusals(t *testing.T) {
	s := guidWorld(t)
	a := newAdmin(s)
	c, d := clientAt(t, a, 1), clientAt(t, a, 2)
	const set, del = mad.MethodSet, mad.MethodDelete
	rec := &mad.GUIDInfoRecord{LID: c.env.LID}
	for _, m := range []mad.Method{set, del} {
		c.ask(m, mad.AttrGUIDInfoRecord, guidLID|guidFirst<<1, rec).want(t, mad.StatusSAInsufComponents, -1)
		c.ask(m, mad.AttrGUIDInfoRecord, guidBlock|guidFirst<<1, rec).want(t, mad.StatusSAInsufComponents, -1)
		askGUIDs(t, c, m, 1, 0, mad.StatusSAReqInvalid, []int{0, 1}, 0xA0, 0xA1) // the port's own
		askGUIDs(t, c, m, 1, 2, mad.StatusSANoRecords, []int{1}, 0xA1)           // no such block
		askGUIDs(t, d, m, 1, 0, mad.StatusSADenied, []int{1}, 0xA1)              // another node's
		c.ask(m, mad.AttrGUIDInfoRecord, guidComps(1), &mad.GUIDInfoRecord{LID: 0xBEEF}).want(t, mad.StatusSANoRecords,
			-1)
	}
	askGUIDs(t, d.trusted(), set, 1, 0, mad.StatusOK, []int{1}, 0xA1)
	// A member of a group stays one.
	join := joinNeeds | createNeeds
	member := &mad.MCMemberRecord{MGID: ib.GID{0xFF, 0x12, 0xA0, 0x1C, 15: 1}, PortGID: ib.MakeGID(s.Prefix, 0xA1),
		JoinState: mad.JoinFull, PKey: 0xFFFF}
	c.ask(mad.MethodSet, mad.AttrMCMemberRecord, join, member).want(t, mad.StatusOK, 1)
	askGUIDs(t, c, del, 1, 0, mad.StatusSADenied, []int{1})
	askGUIDs(t, c, set, 1, 0, mad.StatusSADenied, []int{1}, 0xA2)
	c.ask(mad.MethodDelete, mad.AttrMCMemberRecord, joinNeeds, member).want(t, mad.StatusOK, 1)
	askGUIDs(t, c, del, 1, 0, mad.StatusOK, []int{1})
}

// Wishes go from life to life, and with the port.
func TestGUIDsKept(t *testing.T) {
	s := guidWorld(t)
	a := newAdmin(s)
	askGUIDs(t, clientAt(t, a, 1), mad.MethodSet, 1, 0, mad.StatusOK, []int{1, 2}, 0xA1, 0xA2)
	askGUIDs(t, clientAt(t, a, 2), mad.MethodSet, 2, 1, mad.StatusOK, []int{1}, 0xB1)
	db := a.Export(0)
	if len(db.GUIDs) != 2 {
		t.Fatalf("%v", db.GUIDs)
	}
	thief := PortGUIDs{Port: s.Port(hosts(s)[3]).GUID, GUIDs: []ib.GUID{9, 0xB1, 0xC1}}
	db.GUIDs = append(db.GUIDs, thief, PortGUIDs{}, PortGUIDs{Port: 5}, PortGUIDs{Port: 6, GUIDs: make([]ib.GUID, 256)})
	b := New(Config{})
	if n := b.Import(0, db); n != 3 {
		t.Errorf("%d entries make no sense", n)
	}
	events := 0
	for e, ok := b.PollEvent(); ok; e, ok = b.PollEvent() {
		if e.Kind == GUIDsChanged {
			events++
		}
	}
	b.SetSubnet(s)
	for g, host := range map[ib.GUID]int{0xA1: 1, 0xA2: 1, 0xB1: 2, 0xC1: 3} {
		if r, ok := b.port(ib.MakeGID(s.Prefix, g)); !ok || r != hosts(s)[host] {
			t.Errorf("%v is at %v, %v", g, r, ok)
		}
	}
	if w := b.Export(0).GUIDs; events != 3 || len(w) != 3 || w[2].GUIDs[0] != thief.Port || w[2].GUIDs[1] != 0 {
		t.Errorf("%d events, %v", events, w)
	}
	// A port that leaves takes its wishes with it.
	cut := guidWorld(t)
	r := hosts(cut)[2]
	far := &cut.Nodes[cut.Port(r).Peer].Ports[cut.Port(r).PeerPort]
	far.Peer, cut.Port(r).Peer = subnet.None, subnet.None
	cut.Port(r).Info.LID = 0
	cut.Nodes = slices.Delete(cut.Nodes, int(r.Node), int(r.Node)+1)
	for _, n := range cut.Nodes {
		for p := range n.Ports {
			if n.Ports[p].Peer > r.Node {
				n.Ports[p].Peer--
			}
		}
	}
	for i := range cut.Switches {
		cut.Switches[i]--
	}
	cut.Index()
	b.SetSubnet(cut)
	if _, ok := b.port(ib.MakeGID(s.Prefix, 0xB1)); ok || len(b.Export(0).GUIDs) != 2 {
		t.Errorf("%v", b.Export(0).GUIDs)
	}
}
