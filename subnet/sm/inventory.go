package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// inventoryMax is up to how many datagrams a manager spends on tables that it did not write and that only
// administration shows. In larger subnets they stay unknown.
const inventoryMax = 50_000

// inventory is the reading of lanes and arbitration, after the subnet is up. It makes room for whatever is more urgent.
type inventory struct {
	reads  []invRead
	tables map[subnet.Ref]*subnet.PortTables
}

type invRead struct {
	ref  subnet.Ref
	attr mad.AttrID
	mod  uint32
	at   int // of the port of entry, or of the table
}

// beginInventory lists what is unknown. The nodes have been published: from here on the sweep changes copies.
func (s *sweep) beginInventory() {
	s.cursor = cursor{}
	s.nodes = slices.Clone(s.nodes) // the list, too, is the published subnet's
	s.own = make([]bool, len(s.nodes))
	if s.m.brief {
		return
	}
	inv := &s.inv
	inv.tables = map[subnet.Ref]*subnet.PortTables{}
	for i, n := range s.nodes {
		for p := range n.Ports {
			ref := subnet.Ref{Node: int32(i), Port: ib.PortNum(p)}
			x := &n.Ports[p]
			if p > 0 && !x.Up() && ref != s.self || p == 0 && !n.IsSwitch() || x.Tables != nil &&
				x.Tables.SLtoVL != nil && x.Tables.VLArb[0] != nil {
				continue
			}
			s.listInventory(ref)
			if len(inv.reads) > inventoryMax {
				inv.reads = nil
				return
			}
		}
	}
}

// listInventory lists the reads of one port.
func (s *sweep) listInventory(ref subnet.Ref) {
	n := s.nodes[ref.Node]
	x := &n.Ports[ref.Port]
	add := func(attr mad.AttrID, mod uint32, at int) {
		s.inv.reads = append(s.inv.reads, invRead{ref, attr, mod, at})
	}
	t := &subnet.PortTables{}
	if x.Tables != nil {
		*t = *x.Tables
	}
	names := ib.PortNum(0)
	if n.IsSwitch() {
		names = ref.Port
	}
	if t.SLtoVL == nil {
		if !n.IsSwitch() {
			t.SLtoVL = make([]mad.SLtoVL, 1)
			add(mad.AttrSLtoVL, 0, 0)
		} else {
			t.SLtoVL = make([]mad.SLtoVL, len(n.Ports))
			for in := range n.Ports {
				add(mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ref.Port), in)
			}
		}
	}
	if t.VLArb[0] == nil {
		for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
			size, high := int(x.Info.VLArbitrationLowCap), 0
			if k >= mad.VLArbHigh0 {
				size, high = int(x.Info.VLArbitrationHighCap), 1
			}
			if from := int(k-mad.VLArbLow0) % 2 * mad.VLArbPerBlock; from < size {
				if t.VLArb[high] == nil {
					t.VLArb[high] = make([]mad.VLArbEntry, size)
				}
				add(mad.AttrVLArb, mad.VLArbModifier(names, k), int(k))
			}
		}
	}
	s.inv.tables[ref] = t
}

// nextInventory asks for the next table, unless something else is to be done.
func (s *sweep) nextInventory(r *request) bool {
	c := &s.cursor
	if s.m.due() || c.at >= len(s.inv.reads) {
		return false
	}
	x := &s.inv.reads[c.at]
	*r = request{what: askTable, node: x.ref.Node, port: x.ref.Port, attr: x.attr, mod: x.mod, extra: int32(c.at)}
	s.smp(r)
	c.at++
	return true
}

func (s *sweep) inventoryReply(r *request, v mad.View) {
	x := &s.inv.reads[r.extra]
	if v == nil || v.Status() != mad.StatusOK {
		delete(s.inv.tables, x.ref) // not known after all
		return
	}
	t := s.inv.tables[x.ref]
	if t == nil {
		return
	}
	data := v[mad.SMPDataOff:][:mad.SMPDataLen]
	switch x.attr {
	case mad.AttrSLtoVL:
		t.SLtoVL[x.at].Parse(data)
	case mad.AttrVLArb:
		var b mad.VLArb
		if _, err := b.Parse(data); err != nil {
			return
		}
		k := mad.VLArbBlock(x.at)
		high := 0
		if k >= mad.VLArbHigh0 {
			high = 1
		}
		copy(t.VLArb[high][int(k-mad.VLArbLow0)%2*mad.VLArbPerBlock:], b[:])
	}
}

// endInventory publishes what was read, if it was read to the end.
func (s *sweep) endInventory() {
	if len(s.inv.reads) == 0 || s.cursor.at < len(s.inv.reads) || s.m.sub == nil {
		return
	}
	for i, n := range s.nodes {
		for p := range n.Ports {
			ref := subnet.Ref{Node: int32(i), Port: ib.PortNum(p)}
			if t := s.inv.tables[ref]; t != nil {
				s.edit(ref.Node).Ports[p].Tables = s.m.share(t)
			}
		}
	}
	sub := *s.m.sub
	sub.Nodes = s.nodes
	sub.Index()
	s.m.sub = &sub
	s.m.admin.SetSubnet(s.m.sub)
	s.m.afterAdmin()
}
