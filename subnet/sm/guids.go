package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/sa"
)

// guidWrite is a block of a port's GUID table that has to be written.
type guidWrite struct {
	ref   subnet.Ref
	block int
	guids mad.GUIDInfo
}

// beginGUIDs finds the blocks of GUID tables that differ from what hosts have asked the administrator for. Of
// a port whose table is not known, all that hosts have asked for are written.
func (s *sweep) beginGUIDs() {
	s.cursor = cursor{}
	s.guidWrites = s.guidWrites[:0]
	s.m.admin.EachGUIDs(func(want sa.PortGUIDs) {
		ref, ok := s.refOf(want.Port)
		if !ok {
			return
		}
		p := &s.nodes[ref.Node].Ports[ref.Port]
		var have []ib.GUID
		if p.Tables != nil {
			have = p.Tables.GUIDs
		}
		for from := 0; from < min(max(len(want.GUIDs), len(have)), int(p.Info.GUIDCap)); from += mad.GUIDsPerBlock {
			var was, is mad.GUIDInfo
			copy(is[:], want.GUIDs[min(from, len(want.GUIDs)):])
			copy(was[:], have[min(from, len(have)):])
			if have == nil || was != is {
				s.guidWrites = append(s.guidWrites, guidWrite{ref, from / mad.GUIDsPerBlock, is})
			}
		}
	})
}

// nextGUIDs writes the next block.
func (s *sweep) nextGUIDs(r *request) bool {
	if s.cursor.at >= len(s.guidWrites) {
		return false
	}
	w := &s.guidWrites[s.cursor.at]
	*r = request{what: tell, set: true, node: w.ref.Node, port: w.ref.Port, attr: mad.AttrGUIDInfo,
		mod: uint32(w.block), extra: int32(s.cursor.at)}
	w.guids.Append(s.smp(r))
	s.cursor.at++
	return true
}

// guidsReply notes what the port has now.
func (s *sweep) guidsReply(r *request, v mad.View) {
	if !s.answered(r, v) {
		return
	}
	w := &s.guidWrites[r.extra]
	p := &s.edit(w.ref.Node).Ports[w.ref.Port]
	var t subnet.PortTables
	if p.Tables != nil {
		t = *p.Tables
	}
	from := w.block * mad.GUIDsPerBlock
	t.GUIDs = slices.Clone(t.GUIDs)
	for len(t.GUIDs) < from+mad.GUIDsPerBlock {
		t.GUIDs = append(t.GUIDs, 0)
	}
	copy(t.GUIDs[from:], w.guids[:])
	p.Tables = s.m.share(&t)
}
