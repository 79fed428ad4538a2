package sm

import (
	"softib/ib"
	"softib/mad"
)

// beginTables prepares the writing of forwarding tables. Switches through which nothing can pass yet get theirs whole, in any
// order; all others in the rounds of the transition, so that no mixture of old and new makes a loop.
func (s *sweep) beginTables() {
	s.cursor = cursor{}
	s.round = -1
	for at, i := range s.switches {
		if s.cold[i] || !sameRow(s.nodes[i].LFT, s.tables.LFT[at]) {
			s.m.doubt[s.nodes[i].Info.NodeGUID] = true
		}
	}
}

func sameRow(a, b []ib.PortNum) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// nextTable writes the next block of the present round; round -1 is the cold switches, the one after the last
// the switches' own information.
func (s *sweep) nextTable(r *request) bool {
	c := &s.cursor
	switch {
	case s.round < 0:
		for ; c.node < len(s.switches); c.node, c.block = c.node+1, 0 {
			i := s.switches[c.node]
			if !s.cold[i] {
				continue
			}
			row := s.tables.LFT[c.node]
			if from := c.block * mad.LFTPerBlock; from < len(row) {
				var b mad.LFT
				for k := copy(b[:], row[from:]); k < len(b); k++ {
					b[k] = mad.LFTNone
				}
				s.writeLFT(r, i, c.block, &b)
				c.block++
				return true
			}
		}
	case s.round < len(s.plan.Rounds):
		writes := s.plan.Rounds[s.round].Writes
		for c.at < len(writes) {
			w := &writes[c.at]
			c.at++
			i := s.switches[w.Switch]
			if s.cold[i] {
				continue // it has the whole new table
			}
			b := mad.LFT(w.Entries)
			s.writeLFT(r, i, w.Block, &b)
			return true
		}
	default:
		return s.nextSwitch(r)
	}
	return false
}

func (s *sweep) writeLFT(r *request, node int32, block int, b *mad.LFT) {
	*r = request{what: tell, set: true, node: node, attr: mad.AttrLFT, mod: uint32(block)}
	copy(s.smp(r)[:mad.SMPDataLen], lftBytes(b))
	s.report.Blocks++
}

// lftBytes are a block's bytes.
func lftBytes(b *mad.LFT) []byte {
	out := make([]byte, 0, mad.SMPDataLen)
	return b.Append(out)
}

// nextRound goes on when all answers of a round are there.
func (s *sweep) nextRound() bool {
	s.round++
	s.cursor = cursor{}
	return s.round <= len(s.plan.Rounds)
}

// nextSwitch writes the SwitchInfo of switches whose table has another end, or who wait to hear that a change was seen.
func (s *sweep) nextSwitch(r *request) bool {
	for s.cursor.node < len(s.switches) {
		i := s.switches[s.cursor.node]
		s.cursor.node++
		n := s.nodes[i]
		si := n.Switch
		si.LinearFDBTop = s.net.Top
		si.LifeTimeValue = s.m.cfg.PacketLife
		if si == n.Switch && !si.PortStateChange {
			continue
		}
		// Writing the bit back says that the change was seen (IBA 14.2.5.4).
		*r = request{what: tell, set: true, node: i, attr: mad.AttrSwitchInfo}
		si.Append(s.smp(r))
		return true
	}
	return false
}

// tableReply takes an answer to a block or to the switch's information.
func (s *sweep) tableReply(r *request, v mad.View) {
	if !s.answered(r, v) {
		s.missed(r.node)
		return
	}
	if r.attr == mad.AttrSwitchInfo {
		si := &s.edit(r.node).Switch
		si.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen])
		si.PortStateChange = false
	}
}

// missed notes that a switch does not hold what it should.
func (s *sweep) missed(node int32) {
	if s.incomplete == nil {
		s.incomplete = map[int32]bool{}
	}
	s.incomplete[node] = true
}
