package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/route"
)

// beginTables prepares the writing of forwarding tables. Switches through which nothing can pass yet get theirs whole,
// in any order; all others in the rounds of the transition, so that no mixture of old and new makes a loop.
func (s *sweep) beginTables() {
	s.cursor = cursor{}
	s.round = -1
	s.prompt = len(s.plan.Rounds)
	for k := range s.plan.Rounds {
		if s.plan.Rounds[k].Drain {
			s.prompt = k + 1
			break
		}
	}
	s.coverRise()
	for at, i := range s.switches {
		if s.cold[i] || !sameRow(s.held(s.nodes[i]), s.tables.LFT[at]) {
			s.m.doubt[s.nodes[i].Info.NodeGUID] = true
			s.blind = true
		}
	}
}

// coverRise sees to it that entries are written which come into force because a switch's table gets a later end. What
// stands there is not known: tables are read up to their end, and a manager that moved the end down has left in place
// what was above it. So the blocks that no round writes before the end moves join the first round, as the transition
// takes them to be: nothing is above the end.
func (s *sweep) coverRise() {
	end := int(s.net.Top) / mad.LFTPerBlock
	from := make([]int, len(s.switches)) // by number of routing: the first block that comes into force
	rises := false
	for at, i := range s.switches {
		from[at] = end + 1
		if top := s.nodes[i].Switch.LinearFDBTop; top < s.net.Top && !s.cold[i] {
			from[at] = (int(top) + 1) / mad.LFTPerBlock
			rises = true
		}
	}
	if !rises {
		return
	}
	type block struct {
		sw int32
		at int
	}
	covered := map[block]bool{}
	for k := range s.prompt {
		for j := range s.plan.Rounds[k].Writes {
			if w := &s.plan.Rounds[k].Writes[j]; w.Block >= from[w.Switch] {
				covered[block{w.Switch, w.Block}] = true
			}
		}
	}
	var writes []route.Write
	for at := range s.switches {
		for b := from[at]; b <= end; b++ {
			if covered[block{int32(at), b}] {
				continue
			}
			writes = append(writes, route.Write{Switch: int32(at), Block: b, Entries: mad.LFTBlock(s.was.LFT[at], b)})
		}
	}
	if len(writes) == 0 {
		return
	}
	if s.prompt == 0 {
		s.plan.Rounds, s.prompt = []route.Round{{}}, 1
	}
	s.plan.Rounds[0].Writes = append(s.plan.Rounds[0].Writes, writes...)
}

func sameRow[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// nextTable writes the next block of the present round; round -1 is the cold switches, the one after the last
// the switches' own information.
func (s *sweep) nextTable(r *request) bool {
	c := &s.cursor
	switch {
	case s.blind:
		return s.nextOwn(r)
	case s.round < 0:
		for ; c.node < len(s.switches); c.node, c.block = c.node+1, 0 {
			i := s.switches[c.node]
			if !s.cold[i] {
				continue
			}
			row := s.coldRow(int32(c.node))
			if c.block < mad.LFTBlocks(len(row)) {
				b := mad.LFTBlock(row, c.block)
				s.writeLFT(r, i, c.block, &b)
				c.block++
				return true
			}
		}
	case s.round < s.prompt:
		return s.nextWrite(r)
	default:
		return s.nextSwitch(r)
	}
	return false
}

// nextWrite writes the next block of a round of the transition.
func (s *sweep) nextWrite(r *request) bool {
	if s.round >= len(s.plan.Rounds) {
		return false
	}
	c := &s.cursor
	writes := s.plan.Rounds[s.round].Writes
	if plantOrder {
		writes = s.plan.Rounds[len(s.plan.Rounds)-1-s.round].Writes
	}
	for c.at < len(writes) {
		w := &writes[c.at]
		c.at++
		i := s.switches[w.Switch]
		if s.cold[i] && s.round < s.prompt {
			continue // it has them all
		}
		b := mad.LFT(w.Entries)
		s.writeLFT(r, i, w.Block, &b)
		return true
	}
	return false
}

func (s *sweep) writeLFT(r *request, node int32, block int, b *mad.LFT) {
	*r = request{what: tell, set: true, node: node, attr: mad.AttrLFT, mod: uint32(block)}
	b.Append(s.smp(r))
	s.report.Blocks++
}

// drainMax bounds how long packets under way are waited for, where switches let them live for ever.
const drainMax = 2 * ib.Second

// setbacksMax is how many sweeps in a row may be given up because switches did not give or take their tables. The next
// one goes on without them.
const setbacksMax = 3

// setback gives the sweep up, to be started over, unless that was done too often. A look always is: the full sweep that
// follows finds out whether the switch is still there.
func (s *sweep) setback(why string) bool {
	if s.full {
		if s.m.setbacks >= setbacksMax {
			return false
		}
		s.m.setbacks++
	}
	s.m.want(s.m.now+s.m.cfg.Timeout, why)
	s.abandon = true
	return true
}

// nextRound goes on when all answers of a round are there. A round is not safe before the one before it is done: if a
// switch has not taken its blocks the sweep starts over, and goes on from what the switches really hold.
func (s *sweep) nextRound() bool {
	if len(s.incomplete) > 0 && len(s.plan.Rounds) > 0 && s.setback("a switch has not taken its table") {
		return true
	}
	s.round++
	s.cursor = cursor{}
	return s.round <= s.prompt
}

// beginLate starts the rounds that have to wait for packets that are under way on old routes. Every way between end
// ports that can be there without waiting is there, and the subnet is published.
func (s *sweep) beginLate() {
	s.cursor = cursor{}
	s.round = s.prompt
	s.pause()
}

// pause holds the next round back if packets have to be gone before it.
func (s *sweep) pause() {
	s.blind = s.round < len(s.plan.Rounds)
	if s.round > 0 && s.round < len(s.plan.Rounds) && s.plan.Rounds[s.round-1].Drain && !s.m.brief {
		s.hold = s.m.now + s.m.drainTime()
	}
}

// drainTime is how long packets under way on old routes are waited for.
func (m *Manager) drainTime() ib.Time { return min(ib.HOQLife(m.cfg.PacketLife), drainMax) }

// nextLate goes on with the late rounds, unless something more urgent has to be done, see pressed: then the next sweep
// goes on from what the switches hold.
func (s *sweep) nextLate() bool {
	if s.round < len(s.plan.Rounds) && s.m.now >= s.hold {
		s.round++
	}
	if s.round >= len(s.plan.Rounds) || s.pressed() || len(s.incomplete) > 0 {
		s.leaveLate()
		return false
	}
	s.cursor = cursor{}
	s.pause()
	return true
}

// leaveLate notes what the switches hold that wait for late rounds, now that the rounds before s.round are done.
func (s *sweep) leaveLate() {
	s.stopped, s.blind = false, false
	switch {
	case !s.lateFailed:
		s.m.lateFails = 0
	case s.m.lateFails < setbacksMax:
		s.m.lateFails++
		s.m.want(s.m.now+s.m.cfg.Timeout, "a switch has not taken its table")
	default:
		s.m.want(s.m.retryAt(0), "a switch has not taken its table")
	}
	for i := range s.late { // tidy: order-free
		guid := s.nodes[i].Info.NodeGUID
		if s.incomplete[i] {
			continue
		}
		delete(s.m.doubt, guid)
		if s.round < len(s.plan.Rounds) {
			s.m.actual[guid] = s.heldRow(s.nodes[i].RouteIndex, s.round)
		}
	}
	s.m.stillDoubted()
}

// coldRow is the table that a switch gets through which nothing passes yet: the new one, less what has to wait at the
// others too. Its links become active before the late rounds.
func (s *sweep) coldRow(sw int32) []ib.PortNum {
	for k := s.prompt; k < len(s.plan.Rounds); k++ {
		for j := range s.plan.Rounds[k].Writes {
			if s.plan.Rounds[k].Writes[j].Switch == sw {
				return s.heldRow(sw, s.prompt)
			}
		}
	}
	return s.tables.LFT[sw]
}

// heldRow is a switch's table before a round.
func (s *sweep) heldRow(sw int32, round int) []ib.PortNum {
	row := slices.Clone(s.tables.LFT[sw])
	was := s.was.LFT[sw]
	put := func(block int, from []ib.PortNum) {
		for k := range mad.LFTPerBlock {
			if at := block*mad.LFTPerBlock + k; at < len(row) {
				row[at] = mad.LFTNone
				if k < len(from) {
					row[at] = from[k]
				}
			}
		}
	}
	for k := round; k < len(s.plan.Rounds); k++ {
		for j := range s.plan.Rounds[k].Writes {
			if w := &s.plan.Rounds[k].Writes[j]; w.Switch == sw {
				put(w.Block, was[min(w.Block*mad.LFTPerBlock, len(was)):])
			}
		}
	}
	for k := range min(round, len(s.plan.Rounds)) {
		for j := range s.plan.Rounds[k].Writes {
			if w := &s.plan.Rounds[k].Writes[j]; w.Switch == sw {
				put(w.Block, w.Entries[:])
			}
		}
	}
	return row
}

// held is the table that a switch holds, which may not be the published one yet.
func (s *sweep) held(n *subnet.Node) []ib.PortNum {
	if row, ok := s.m.actual[n.Info.NodeGUID]; ok {
		return row
	}
	return n.LFT
}

// drains holds the writes until packets that are under way on old routes have gone.
func (s *sweep) drains() bool { return s.m.now < s.hold && !s.pressed() }

// pressed reports whether late rounds make way for the sweep that is due. They do for a look, which does not take long,
// and where another manager has been at work, since they do not fit what it wrote. But ways that are closed for them
// stay closed while a full sweep finds everything anew: it waits for what is left of them if that takes less time.
func (s *sweep) pressed() bool {
	m := s.m
	return m.due() && (m.now < m.wants.full.at || m.peers.meddled || s.lateTime() >= m.fullTook)
}

// lateTime is about how long the late rounds take that are left.
func (s *sweep) lateTime() ib.Time {
	left, writes := max(s.hold-s.m.now, 0), 0
	for k := s.round; k < len(s.plan.Rounds); k++ {
		writes += len(s.plan.Rounds[k].Writes)
		if s.plan.Rounds[k].Drain {
			left += s.m.drainTime()
		}
	}
	return left + s.m.last.Took/ib.Time(max(s.m.last.MADs, 1))*ib.Time(writes)
}

// nextLateWrite is nextWrite, but for what has to make room.
func (s *sweep) nextLateWrite(r *request) bool {
	if s.m.now < s.hold || s.stopped {
		return false
	}
	return s.blind && s.nextOwn(r) || !s.blind && s.nextWrite(r)
}

// lateSwitches are those that have blocks to come after a pause.
func (s *sweep) lateSwitches() map[int32]bool {
	late := map[int32]bool{}
	for k := s.prompt; k < len(s.plan.Rounds); k++ {
		for j := range s.plan.Rounds[k].Writes {
			late[s.switches[s.plan.Rounds[k].Writes[j].Switch]] = true
		}
	}
	return late
}

// nextSwitch writes the SwitchInfo of switches whose table has another end, or who wait to hear that a change was seen.
func (s *sweep) nextSwitch(r *request) bool {
	for s.cursor.node < len(s.switches) {
		i := s.switches[s.cursor.node]
		s.cursor.node++
		n := s.nodes[i]
		si := n.Switch
		if !s.stuck[i] || s.net.Top < si.LinearFDBTop { // else entries come into force that it has not taken
			si.LinearFDBTop = s.net.Top
		}
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
	if r.what == askPort {
		s.sawOwn(v)
		return
	}
	if !s.answered(r, v) {
		s.missed(r.node)
		if s.stuck == nil {
			s.stuck = map[int32]bool{}
		}
		s.stuck[r.node] = true
		s.lateFailed = s.late != nil // after the subnet was published
		if v == nil {
			s.stopRound()
		}
		return
	}
	if r.attr == mad.AttrSwitchInfo {
		si := &s.edit(r.node).Switch
		if si.PortStateChange {
			s.cleared = append(s.cleared, r.node)
		}
		si.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen])
		si.PortStateChange = false
	}
}

// stopRound writes no more after a switch was silent, unless that was done too often: the manager may be cut off, and
// what it goes on to write, one silent switch after the other, would come to switches that another manager has read
// meanwhile.
func (s *sweep) stopRound() {
	switch {
	case s.late == nil:
		if len(s.plan.Rounds) > 0 {
			s.setback("a switch has not taken its table")
		}
	case s.m.lateFails < setbacksMax:
		for i := range s.late { // tidy: order-free
			s.missed(i) // what it holds is not known
		}
		s.stopped = true
		s.waiting -= len(s.repeats)
		s.repeats = nil
	}
}

// missed notes that a switch does not hold what it should.
func (s *sweep) missed(node int32) {
	if s.incomplete == nil {
		s.incomplete = map[int32]bool{}
	}
	s.incomplete[node] = true
}
