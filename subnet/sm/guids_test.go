package sm

import (
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestGUIDs: what hosts ask the administrator for comes into their ports' tables, and stays there.
func TestGUIDs(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{})
	n.up(h)
	c, other := n.client(3), n.client(6)
	node := c.ref.Node
	own := n.g.Nodes[node].PortGUID(1)
	change := func(method mad.Method, block uint8, guids mad.GUIDInfo, entries ...int) {
		t.Helper()
		mask := comps(mad.GUIDInfoRecordTable, "LID", "BlockNum")
		for _, i := range entries {
			mask |= comps(mad.GUIDInfoRecordTable, "GUID") << i
		}
		c.must(method, mad.AttrGUIDInfoRecord, mask, &mad.GUIDInfoRecord{LID: n.lid(c.ref), BlockNum: block,
			GUID: guids})
	}
	table := func() (list []ib.GUID) {
		for _, g := range n.hcas[node].Port(1).GIDs {
			list = append(list, g.GUID())
		}
		return list
	}
	wants := func(writes int, want ...ib.GUID) {
		t.Helper()
		n.must(ib.Second, "the table of GUIDs", func() bool { return slices.Equal(table(), want) && h.m.sweep == nil })
		if n.sets[mad.AttrGUIDInfo] != writes {
			t.Errorf("%d blocks were written, want %d", n.sets[mad.AttrGUIDInfo], writes)
		}
		clear(n.sets)
	}
	clear(n.sets)
	change(mad.MethodSet, 0, mad.GUIDInfo{1: 0xA1, 2: 0xA2}, 1, 2)
	wants(1, own, 0xA1, 0xA2)
	// Another block; the first one stays as it is and is not written again.
	change(mad.MethodSet, 1, mad.GUIDInfo{3: 0xB3}, 3)
	wants(1, own, 0xA1, 0xA2, 0, 0, 0, 0, 0, 0, 0, 0, 0xB3)
	// An alias is a member like any other.
	rec := mad.MCMemberRecord{MGID: mgid(1), PortGID: ib.MakeGID(ib.DefaultGIDPrefix, 0xA2), JoinState: mad.JoinFull,
		QKey: 0x1234, PKey: 0xFFFF}
	b := c.must(mad.MethodSet, mad.AttrMCMemberRecord,
		comps(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState", "Q_Key", "P_Key", "SL", "TClass", "FlowLabel"),
		&rec)
	if _, err := rec.Parse(b[mad.SADataOff:]); err != nil {
		t.Fatal(err)
	}
	other.join(mgid(1), mad.JoinFull)
	n.mustReach(ib.Second, rec.MLID, []topo.PortRef{c.ref, other.ref}, nil)
	// A port that has lost its table, and its link for a moment, gets it back. Had it been away for longer, its host
	// would register anew.
	p := *n.hcas[node].Port(1)
	p.GIDs = p.GIDs[:1]
	n.hcas[node].SetPort(1, p)
	clear(n.sets)
	n.flap(c.ref)
	n.must(10*ib.Second, "the port to be back", func() bool {
		return h.m.sweep == nil &&
			n.hcas[node].Port(1).State == ib.PortActive
	})
	wants(2, own, 0xA1, 0xA2, 0, 0, 0, 0, 0, 0, 0, 0, 0xB3)
	// Taken back.
	change(mad.MethodDelete, 1, mad.GUIDInfo{}, 3)
	wants(1, own, 0xA1, 0xA2)
	change(mad.MethodDelete, 0, mad.GUIDInfo{}, 1)
	wants(1, own, 0, 0xA2)
	// The next life of the manager knows them.
	m, _ := h.m.TakeMemory()
	if len(m.Admin.GUIDs) != 1 || !slices.Equal(m.Admin.GUIDs[0].GUIDs, []ib.GUID{own, 0, 0xA2}) {
		t.Errorf("remembered: %v", m.Admin.GUIDs)
	}
}
