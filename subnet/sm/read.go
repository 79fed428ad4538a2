package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// reading is a table of a node that has to be read: the blocks of one attribute.
type reading struct {
	ref    subnet.Ref
	attr   mad.AttrID
	blocks int
	again  bool // it is known, and read to see whether it still is so
}

// beginRead lists the tables that are not known: forwarding tables of switches that are in use, since what is written
// must not disturb what they do, and partition tables of ports that were never seen. Those that are known are read
// again where that matters, see tamper.go.
func (s *sweep) beginRead() {
	s.cursor = cursor{}
	s.reads = s.reads[:0]
	for _, i := range s.switches {
		if n := s.nodes[i]; s.unread[i] {
			delete(s.m.choosing, n.Info.NodeGUID) // another manager may have written that as well
			top := n.Switch.LinearFDBTop
			if n.Switch.LinearFDBCap == 0 && s.setback("a switch has not said what it holds") {
				return
			}
			if !top.IsUnicast() {
				s.unread[i], s.cold[i] = false, true
				continue
			}
			e := s.edit(i)
			e.LFT = mad.NewLFT(top)
			s.reads = append(s.reads, reading{ref: subnet.Ref{Node: i}, attr: mad.AttrLFT,
				blocks: mad.LFTBlocks(len(e.LFT))})
		}
	}
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		if p := &n.Ports[r.Port]; !n.IsSwitch() && p.Info.PortState == ib.PortInit && p.Tables != nil {
			// Its link was down: it may have been another life of the node that had these.
			n = s.edit(r.Node)
			n.Ports[r.Port].Tables = nil
		}
		s.readKeys(r)
	})
	s.computeEarly()
}

// nextRead asks for the next block.
func (s *sweep) nextRead(r *request) bool {
	c := &s.cursor
	for c.at < len(s.reads) {
		x := &s.reads[c.at]
		if c.block >= x.blocks {
			c.at, c.block = c.at+1, 0
			continue
		}
		*r = request{what: askTable, node: x.ref.Node, port: x.ref.Port, attr: x.attr, mod: uint32(c.block),
			extra: int32(c.at)}
		if x.attr == mad.AttrPKeyTable && s.nodes[x.ref.Node].IsSwitch() {
			r.mod = mad.PKeyModifier(x.ref.Port, c.block)
		}
		s.smp(r)
		c.block++
		return true
	}
	return false
}

// unreadable starts the sweep over if the table of a switch in use could not be read: what is not known cannot be
// changed safely.
func (s *sweep) unreadable() bool {
	return s.readFailed && s.setback("a table could not be read")
}

// readReply takes a block.
func (s *sweep) readReply(r *request, v mad.View) {
	if !s.answered(r, v) {
		if r.attr == mad.AttrLFT {
			s.readFailed = true
			s.m.doubt[s.nodes[r.node].Info.NodeGUID] = true
			if v == nil {
				// The switch may be gone: its other blocks, hundreds perhaps, are not waited for as well.
				s.reads[r.extra].blocks = 0
				s.unreadable()
			}
		}
		return
	}
	data := v[mad.SMPDataOff:][:mad.SMPDataLen]
	block := int(r.mod & 0xFFFF)
	switch r.attr {
	case mad.AttrLFT:
		var t mad.LFT
		if _, err := t.Parse(data); err == nil {
			t.PutInto(s.edit(r.node).LFT, block)
		}
	case mad.AttrPKeyTable:
		var keys mad.PKeyTable
		if _, err := keys.Parse(data); err == nil {
			ref := subnet.Ref{Node: r.node, Port: r.port}
			if s.reads[r.extra].again {
				s.checkKeys(ref, block, &keys)
			}
			s.tookKeys(ref, block, &keys)
		}
	}
}

// tookKeys notes a block of a port's partition table. Ports that hold the same share one value.
func (s *sweep) tookKeys(ref subnet.Ref, block int, keys *mad.PKeyTable) {
	n := s.edit(ref.Node)
	p := &n.Ports[ref.Port]
	var t subnet.PortTables
	if p.Tables != nil {
		t = *p.Tables
	}
	from := block * mad.PKeysPerBlock
	last := len(keys)
	for last > 0 && keys[last-1] == 0 {
		last--
	}
	list := append([]ib.PKey(nil), t.PKeys[:min(len(t.PKeys), from)]...)
	if last > 0 || len(t.PKeys) > from+mad.PKeysPerBlock {
		for len(list) < from {
			list = append(list, 0)
		}
		if len(t.PKeys) > from+mad.PKeysPerBlock {
			list = append(append(list, keys[:]...), t.PKeys[from+mad.PKeysPerBlock:]...)
		} else {
			list = append(list, keys[:last]...)
		}
	}
	if list == nil {
		list = []ib.PKey{} // known to be empty
	}
	t.PKeys = list
	p.Tables = s.m.share(&t)
}

// share gives one value for all ports whose tables are the same as the last one's.
func (m *Manager) share(t *subnet.PortTables) *subnet.PortTables {
	for _, o := range m.shared {
		if o != nil && slices.Equal(o.PKeys, t.PKeys) && (o.PKeys == nil) == (t.PKeys == nil) &&
			slices.Equal(o.GUIDs, t.GUIDs) &&
			slices.Equal(o.SLtoVL, t.SLtoVL) && slices.Equal(o.VLArb[0], t.VLArb[0]) &&
			slices.Equal(o.VLArb[1], t.VLArb[1]) {
			return o
		}
	}
	c := *t
	m.shared[m.sharedAt] = &c
	m.sharedAt = (m.sharedAt + 1) % len(m.shared)
	return &c
}
