package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// keyWrite is a block of a partition table that has to be written.
type keyWrite struct {
	ref   subnet.Ref
	block int
	keys  mad.PKeyTable
}

// beginKeys finds the blocks of partition tables that are not as they should be.
func (s *sweep) beginKeys() {
	s.keyWrites = s.keyWrites[:0]
	s.cursor = cursor{}
	s.resolvePartitions()
	s.forgetCongestion()
	s.forgetRouters()
	at := 0
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		want, pass := s.keyed.keys[at], s.keyed.front[at]
		at++
		if capacity := int(n.Info.PartitionCap); len(want) > capacity {
			s.problem("%s port %d: member of %d partitions, but its table has room for %d: it is left out of "+
				"the last ones", s.name(r.Node), r.Port, len(want), capacity)
			s.refuse(r, "has room for %d partitions: want %d", capacity, len(want))
			want = want[:capacity]
		}
		s.planKeys(r, want, int(n.Info.PartitionCap))
		if p := &n.Ports[r.Port]; s.enforce && p.Up() && s.nodes[p.Peer].IsSwitch() {
			// The switch in front lets pass what the port is a member of, and no more.
			far := subnet.Ref{Node: p.Peer, Port: p.PeerPort}
			capacity := int(s.nodes[p.Peer].Switch.PartitionEnforcementCap)
			if len(pass) > capacity {
				s.unenforced(far, len(pass), capacity)
				return
			}
			s.planKeys(far, pass, capacity)
		}
	})
}

// unenforced notes a switch port that cannot check the partitions of the port behind it. Its adapter does, as all
// adapters do.
func (s *sweep) unenforced(ref subnet.Ref, want, capacity int) {
	s.trouble(ref, false)
	if capacity > 0 { // one without any room never said that it would
		s.refuse(ref, "can check %d partitions: want %d", capacity, want)
	}
	guid := s.nodes[ref.Node].Info.NodeGUID
	if s.m.unenforced[guid] {
		return
	}
	if s.m.unenforced == nil {
		s.m.unenforced = map[ib.GUID]bool{}
	}
	s.m.unenforced[guid] = true
	s.m.event(EventPolicy, "%s: port %d cannot enforce %d partitions, having room for %d: only the adapter "+
		"behind it does", s.name(ref.Node), ref.Port, want, capacity)
}

// trouble notes a switch port whose table is not as it should be: keep leaves its enforcement as it is, else it is
// turned off.
func (s *sweep) trouble(ref subnet.Ref, keep bool) {
	if s.keyTrouble == nil {
		s.keyTrouble = map[subnet.Ref]bool{}
	}
	s.keyTrouble[ref] = keep
}

// planKeys plans what makes a port's table hold the keys. A key that is there keeps its place, because programs know
// keys by their index; the first of them is at index 0. A table that is not known is written whole.
func (s *sweep) planKeys(ref subnet.Ref, want []ib.PKey, capacity int) {
	p := &s.nodes[ref.Node].Ports[ref.Port]
	var have []ib.PKey
	known := false
	if p.Tables != nil && p.Tables.PKeys != nil {
		have, known = p.Tables.PKeys, true
	}
	if known && sameKeys(have, want) {
		return
	}
	list := placeKeys(have, want)
	size := max(len(list), len(have))
	if !known {
		size = capacity
	}
	for block := 0; block*mad.PKeysPerBlock < size; block++ {
		var now, then mad.PKeyTable
		copy(now[:], tail(have, block*mad.PKeysPerBlock))
		copy(then[:], tail(list, block*mad.PKeysPerBlock))
		if !known || now != then {
			s.keyWrites = append(s.keyWrites, keyWrite{ref, block, then})
		}
	}
}

func tail(list []ib.PKey, from int) []ib.PKey {
	if from >= len(list) {
		return nil
	}
	return list[from:]
}

// sameKeys reports whether a table holds exactly the wanted keys, the first of them at index 0.
func sameKeys(have, want []ib.PKey) bool {
	if len(want) == 0 {
		return len(have) == 0
	}
	if len(have) == 0 || have[0] != want[0] {
		return false
	}
	n := 0
	for _, k := range have {
		if k != 0 {
			n++
			if !slices.Contains(want, k) {
				return false
			}
		}
	}
	return n == len(want)
}

// placeKeys puts the wanted keys into a table, leaving those that are there where they are.
func placeKeys(have, want []ib.PKey) []ib.PKey {
	list := make([]ib.PKey, max(len(have), len(want)))
	var todo []ib.PKey
	for n, k := range want {
		at := slices.Index(have, k)
		switch {
		case n == 0:
			list[0] = k
		case at > 0:
			list[at] = k
		default:
			todo = append(todo, k)
		}
	}
	for at := 0; len(todo) > 0; at++ {
		if at == len(list) {
			list = append(list, 0)
		}
		if list[at] == 0 {
			list[at], todo = todo[0], todo[1:]
		}
	}
	for len(list) > 0 && list[len(list)-1] == 0 {
		list = list[:len(list)-1]
	}
	return list
}

// nextKeys writes the next block.
func (s *sweep) nextKeys(r *request) bool {
	if s.cursor.at >= len(s.keyWrites) {
		return false
	}
	w := &s.keyWrites[s.cursor.at]
	*r = request{what: tell, set: true, node: w.ref.Node, port: w.ref.Port, attr: mad.AttrPKeyTable,
		mod: uint32(w.block), extra: int32(s.cursor.at)}
	if s.nodes[w.ref.Node].IsSwitch() && w.ref.Port != 0 {
		r.mod = mad.PKeyModifier(w.ref.Port, w.block)
	}
	s.cursor.at++
	w.keys.Append(s.smp(r))
	return true
}

// keysReply notes that a block is as it was written. Of one that was not answered well nothing is known: the write may
// have been done.
func (s *sweep) keysReply(r *request, v mad.View) {
	w := &s.keyWrites[r.extra]
	if s.answered(r, v) {
		var took mad.PKeyTable
		if _, err := took.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil && took == w.keys {
			s.tookKeys(w.ref, w.block, &w.keys)
			return
		}
		s.failed[w.ref.Node]++
		s.problem("%s port %d was given block %d of partitions and says that it has other keys", s.name(w.ref.Node),
			w.ref.Port, w.block)
		s.refuse(w.ref, "was given block %d of partitions and says that it has other keys", w.block)
	} else {
		s.refuse(w.ref, "%s", refusal(r, v))
	}
	if p := &s.edit(w.ref.Node).Ports[w.ref.Port]; p.Tables != nil {
		t := *p.Tables
		t.PKeys = nil
		p.Tables = s.m.share(&t)
	}
	s.trouble(w.ref, true)
}

// wantedEnforcement makes a switch port in front of an end port check partitions.
func (s *sweep) wantedEnforcement(ref subnet.Ref, pi *mad.PortInfo) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	keep, trouble := s.keyTrouble[ref]
	if keep {
		return
	}
	on := s.enforce && !trouble && p.Up() && !s.nodes[p.Peer].IsSwitch()
	side := s.m.cfg.Enforce
	pi.PartitionEnforcementInbound = on && n.Switch.InboundEnforcementCap && side != EnforceOut
	pi.PartitionEnforcementOutbound = on && n.Switch.OutboundEnforcementCap && side != EnforceIn
}
