package sm

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// Who knows a port's M_Key, or finds one that has none, can write what the manager has written. So where partitions
// keep anybody apart, every full sweep, and every look at a node, reads back who is in which: what is not as it was
// left is put right by the same sweep, and said. The standard has no trap for a table that was written, so between full
// sweeps light ones ask for some tables each.

const (
	// lightKeysLeast is how many blocks of partition tables a light sweep reads, and lightKeysTurns in how many of them
	// all are read where there are more.
	lightKeysLeast = 512
	lightKeysTurns = 30
)

// keyBlock is a block of a port's partition table.
type keyBlock struct {
	subnet.Ref
	block int
}

// someKeys are the blocks of partition tables that a light sweep reads: those of hosts, and of the ports in front of
// them, from where the last one left off.
func (m *Manager) someKeys(round int) []keyBlock {
	if x := m.members; x == nil || x.plain {
		return nil
	}
	var all []keyBlock
	add := func(r subnet.Ref, capacity int) {
		if t := m.sub.Port(r).Tables; t == nil || t.PKeys == nil {
			return
		}
		for b := range mad.PKeyBlocks(capacity) {
			all = append(all, keyBlock{r, b})
		}
	}
	m.sub.EachEnd(func(r subnet.Ref, p *subnet.Port) {
		n := m.sub.Nodes[r.Node]
		if n.IsSwitch() {
			return
		}
		add(r, int(n.Info.PartitionCap))
		if p.Up() && m.sub.Nodes[p.Peer].IsSwitch() {
			add(subnet.Ref{Node: p.Peer, Port: p.PeerPort}, int(m.sub.Nodes[p.Peer].Switch.PartitionEnforcementCap))
		}
	})
	some := max(lightKeysLeast, (len(all)+lightKeysTurns-1)/lightKeysTurns)
	if some >= len(all) {
		return all
	}
	from := round * some % len(all)
	return append(all[from:], all[:from]...)[:some]
}

// lightKeys asks for a block.
func (m *Manager) lightKeys(r *request, k keyBlock) {
	mod := uint32(k.block)
	if m.sub.Nodes[k.Node].IsSwitch() {
		mod = mad.PKeyModifier(k.Port, k.block)
	}
	m.lightAsk(r, k.Ref, request{what: askTable, attr: mad.AttrPKeyTable, mod: mod})
}

// lightKeysReply has a node looked at whose table is another one than was written.
func (m *Manager) lightKeysReply(r *request, v mad.View) {
	var was, is mad.PKeyTable
	t := m.sub.Nodes[r.node].Ports[r.port].Tables
	if _, err := is.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil || t == nil || t.PKeys == nil {
		return
	}
	copy(was[:], tail(t.PKeys, int(r.mod&0xFFFF)*mad.PKeysPerBlock))
	if was != is {
		n := m.sub.Nodes[r.node]
		m.wantLook(m.now, n.Info.NodeGUID, nodeName(n)+" holds other partition keys than it was given")
	}
}

// rereads reports whether partition tables of a node are read that are known.
func (s *sweep) rereads(node int32) bool {
	x := s.m.members
	return x != nil && !x.plain && s.prev != nil && (s.full || s.looked[node])
}

// readKeys lists the partition tables that are to be read for an end port: its own, and that of the switch in front.
func (s *sweep) readKeys(r subnet.Ref) {
	n := s.nodes[r.Node]
	s.readKeysOf(r, int(n.Info.PartitionCap), true)
	if p := &n.Ports[r.Port]; p.Up() && s.nodes[p.Peer].IsSwitch() {
		far := subnet.Ref{Node: p.Peer, Port: p.PeerPort}
		s.readKeysOf(far, int(s.nodes[p.Peer].Switch.PartitionEnforcementCap), false)
		s.checkEnforcement(far)
	}
}

// readKeysOf lists one table. One of a switch that is not known is not read, but written whole.
func (s *sweep) readKeysOf(r subnet.Ref, capacity int, unknown bool) {
	p := &s.nodes[r.Node].Ports[r.Port]
	known := p.Tables != nil && p.Tables.PKeys != nil
	if known && !s.rereads(r.Node) || !known && !unknown {
		return
	}
	if blocks := mad.PKeyBlocks(capacity); blocks > 0 {
		s.reads = append(s.reads, reading{ref: r, attr: mad.AttrPKeyTable, blocks: blocks, again: known})
	}
}

// checkKeys holds a block of a partition table that was read again against what was written there.
func (s *sweep) checkKeys(r subnet.Ref, block int, is *mad.PKeyTable) {
	var was mad.PKeyTable
	copy(was[:], tail(s.nodes[r.Node].Ports[r.Port].Tables.PKeys, block*mad.PKeysPerBlock))
	if was == *is || !s.undisturbed(r) {
		return
	}
	s.tampered(r, "holds partition keys %s where %s were written", keyList(is), keyList(&was))
}

// checkEnforcement says when a switch port has ceased to check partitions by itself.
func (s *sweep) checkEnforcement(r subnet.Ref) {
	if !s.rereads(r.Node) || !s.undisturbed(r) {
		return
	}
	i, _ := s.prev.ByGUID(s.nodes[r.Node].Info.NodeGUID)
	was, is := &s.prev.Nodes[i].Ports[r.Port].Info, &s.nodes[r.Node].Ports[r.Port].Info
	if was.PartitionEnforcementInbound && !is.PartitionEnforcementInbound ||
		was.PartitionEnforcementOutbound && !is.PartitionEnforcementOutbound {
		s.tampered(r, "does not check partitions any more")
	}
}

// undisturbed reports whether a port has been active all the time, as far as one can see: one whose node was started
// anew has lost what was written without anybody's doing.
func (s *sweep) undisturbed(r subnet.Ref) bool {
	n := s.nodes[r.Node]
	i, ok := s.prev.ByGUID(n.Info.NodeGUID)
	if !ok || int(r.Port) >= len(s.prev.Nodes[i].Ports) {
		return false
	}
	active := func(p *subnet.Port) bool { return p.Info.PortState == ib.PortActive }
	return active(&n.Ports[r.Port]) && active(&s.prev.Nodes[i].Ports[r.Port])
}

// tampered says that somebody else has written to a port, and who may have.
func (s *sweep) tampered(r subnet.Ref, format string, args ...any) {
	s.m.counters.Tampered++
	s.m.event(EventTamper, "%s port %d %s; it is put right. %s", s.name(r.Node), r.Port, fmt.Sprintf(format, args...),
		s.suspects(r))
}

// suspects names who could have written to a port.
func (s *sweep) suspects(r subnet.Ref) string {
	var others []string
	for k := range s.managers {
		if o := &s.managers[k]; o.Port != s.m.guid {
			others = append(others, s.peer(o.Port))
		}
	}
	slices.Sort(others)
	switch {
	case len(others) > 0:
		return fmt.Sprintf("Other managers in sight: %v", slices.Compact(others))
	case s.m.MKey(s.guidOf(r.Node, r.Port)) == 0:
		return "It has no M_Key: any host could have written there"
	}
	return "No other manager is in sight: it was one that has gone, or whoever knows its M_Key"
}

// keyList is the keys of a block as people write them.
func keyList(t *mad.PKeyTable) string {
	list := []ib.PKey{}
	for _, k := range t {
		if k != 0 {
			list = append(list, k)
		}
	}
	return fmt.Sprint(list)
}
