package fieldtest

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// A host gives its port aliases, as drivers do for virtual functions: the port has them, and other hosts find the way
// to them.
func TestAliasGUIDs(t *testing.T) {
	t.Parallel()
	w := up(t, "star:4")
	c := w.client("h3")
	host := c.node
	lid := w.lid(host, 1)
	ask := func(m mad.Method, entries []int, guids mad.GUIDInfo) mad.GUIDInfo {
		t.Helper()
		comps := mask(mad.GUIDInfoRecordTable, "LID", "BlockNum")
		for _, i := range entries {
			comps |= mask(mad.GUIDInfoRecordTable, "GUID") << i
		}
		st, data := c.ask(t, m, mad.AttrGUIDInfoRecord, comps, &mad.GUIDInfoRecord{LID: lid, GUID: guids})
		if st != mad.StatusOK {
			t.Fatalf("%v: %v", m, st)
		}
		var r mad.GUIDInfoRecord
		_, err := r.Parse(data)
		w.check(err)
		return r.GUID
	}
	const alias = ib.GUID(0x0250f11b01ff0003)
	got := ask(mad.MethodSet, []int{1, 2}, mad.GUIDInfo{1: alias})
	if got[0] != host.PortGUID(1) || got[1] != alias || got[2] == 0 {
		t.Fatalf("GUIDs %v", got)
	}
	holds := func(want mad.GUIDInfo) {
		t.Helper()
		w.eventually("the port to have its GUIDs", func() bool {
			return attr[mad.GUIDInfo](w, host, mad.AttrGUIDInfo,
				0) == want
		})
		list := keyed(t, records(w.run("h1", "saquery", "GIR", fmt.Sprintf("%d/0", lid))), "LID", "Block")
		r := list[fmt.Sprintf("%d/0", lid)]
		for i, g := range want {
			same(t, fmt.Sprintf("GUID %d", i), r.sheet[fmt.Sprintf("GUID %d", i)], hexGUID(g))
		}
	}
	holds(got)
	for _, g := range got[1:3] {
		dgid := ib.MakeGID(ib.DefaultGIDPrefix, g)
		text := w.run("h1", "saquery", "--sgid", shortGID(gid(w.node("h1"), 1)), "--dgid", shortGID(dgid), "PR")
		wants(t, text, fmt.Sprintf("dlid....................%d", lid))
	}
	holds(ask(mad.MethodDelete, []int{1}, mad.GUIDInfo{}))
	w.fails("h1", "saquery", "--sgid", shortGID(gid(w.node("h1"), 1)), "--dgid",
		shortGID(ib.MakeGID(ib.DefaultGIDPrefix, alias)), "PR")
}
