package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// TestSelectors holds the choices against all values that would do.
func TestSelectors(t *testing.T) {
	fits := func(s mad.Selector, want, v int) bool {
		return s == mad.SelectLargest || s == mad.SelectGreater && v > want || s == mad.SelectLess && v < want ||
			s == mad.SelectExactly && v == want
	}
	gbps := func(r mad.Rate) int { // rank of a rate among all
		n := 0
		for o := range mad.Rate(64) {
			if o.IsValid() && o.Less(r) {
				n++
			}
		}
		return n
	}
	for s := range mad.NumSelector {
		for have := ib.MTU256; have <= ib.MTU4096; have++ {
			for want := range ib.MTU(7) {
				best, ok := ib.MTU(0), false
				for v := ib.MTU256; v <= have; v++ { // a path can be used with any smaller MTU
					if fits(s, int(want), int(v)) {
						best, ok = v, true
					}
				}
				if got, gotOK := selectMTU(s, want, have); gotOK != ok || ok && got != best {
					t.Errorf("MTU %v %v of %v: %v %v, want %v %v", s, want, have, got, gotOK, best, ok)
				}
				if compares(s, int(want), int(have)) != fits(s, int(want), int(have)) {
					t.Errorf("MTU %v %v of exactly %v", s, want, have)
				}
			}
		}
		for have := range mad.Rate(25) {
			if !have.IsValid() {
				continue
			}
			for want := range mad.Rate(25) {
				if !want.IsValid() {
					continue
				}
				best, ok := mad.Rate(0), false
				for v := range mad.Rate(25) {
					if v.IsValid() && !have.Less(v) && fits(s, gbps(want), gbps(v)) && (!ok || best.Less(v)) {
						best, ok = v, true
					}
				}
				if got, gotOK := selectRate(s, want, have); gotOK != ok || ok && got != best {
					t.Errorf("rate %v %v of %v: %v %v, want %v %v", s, want, have, got, gotOK, best, ok)
				}
				if rateCompares(s, want, have) != fits(s, gbps(want), gbps(have)) {
					t.Errorf("rate %v %v of exactly %v", s, want, have)
				}
			}
		}
		for have := range uint8(64) {
			for want := range uint8(64) {
				best, ok := uint8(0), false
				for v := 63; v >= int(have); v-- { // a longer life always does
					if fits(s, int(want), v) {
						best, ok = uint8(v), true
					}
				}
				if got, gotOK := selectLife(s, want, have); gotOK != ok || ok && got != best {
					t.Errorf("life %v %v of %v: %v %v, want %v %v", s, want, have, got, gotOK, best, ok)
				}
			}
		}
	}
}

// TestAliases: a port answers to all of its GIDs.
func TestAliases(t *testing.T) {
	s := world(t, "star:3", 0)
	alias := ib.MakeGID(s.Prefix, 0x7777)
	p := s.Port(hosts(s)[1])
	tables := *p.Tables
	tables.GUIDs = []ib.GUID{p.GUID, 0, 0x7777}
	p.Tables = &tables
	a := newAdmin(s)
	an := clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 0), DGID: alias}).want(t, mad.StatusOK, 1)
	if r := parsePath(t, an.records[0]); r.DGID != alias || r.DLID != p.Info.LID {
		t.Errorf("%+v", r)
	}
	clientAt(t, a, 1).ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, creating(alias)).want(t, mad.StatusOK, 1)
	if members, _ := a.Members(0xC000); len(members) != 1 || members[0] != hosts(s)[1] {
		t.Errorf("members %v", members)
	}
}

func TestPolicyPartition(t *testing.T) {
	s := world(t, "star:2", 0)
	for _, r := range hosts(s) {
		s.Port(r).Tables = &subnet.PortTables{PKeys: []ib.PKey{0xFFFF, 0x8003}}
	}
	s.Partitions = []subnet.Partition{{Key: 0x8003, MTU: ib.MTU1024, Rate: 6}}
	q := &fixedQoS{choice: Choice{PKey: 0x8003}}
	a := newAdmin(s)
	a.SetQoS(q)
	rec := &mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 1), PKey: 0xFFFF}
	c := clientAt(t, a, 0)
	an := c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, rec).want(t, mad.StatusOK, 1)
	if r := parsePath(t, an.records[0]); r.PKey != 0x8003 {
		t.Errorf("%+v", r)
	}
	c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prPKey, rec).want(t, mad.StatusSANoRecords, -1)
	// A group in a partition has the partition's limits, unless it says otherwise.
	g := creating(hostGID(s, 0))
	g.PKey = 0x8003
	an = c.ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds, g).want(t, mad.StatusOK, 1)
	if r := parseMember(t, an.records[0]); r.MTU != ib.MTU1024 || r.Rate != 6 {
		t.Errorf("%+v", r)
	}
	g.MGID[15]++
	g.MTUSelector, g.MTU, g.RateSelector, g.Rate, g.PacketLifeTimeSelector, g.PacketLifeTime = mad.SelectExactly,
		ib.MTU2048, mad.SelectLess, 3, mad.SelectExactly, 20
	g.HopLimit = 9
	an = c.ask(join, mad.AttrMCMemberRecord, joinNeeds|createNeeds|mcMTU|mcMTUSel|mcRate|mcRateS|mcLife|mcLifeS|mcHop,
		g).want(t, mad.StatusOK, 1)
	if r := parseMember(t, an.records[0]); r.MTU != ib.MTU2048 || r.Rate != 5 || r.PacketLifeTime != 20 ||
		r.HopLimit != 9 {
		t.Errorf("%+v", r)
	}
}
