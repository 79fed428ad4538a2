package route

import (
	"cmp"
	"slices"

	"softib/proto/ib"
)

// BlockLIDs is how many entries of a linear forwarding table one management datagram writes (IBA 14.2.5.10).
const BlockLIDs = 64

// Write is one block of forwarding entries to be written to a switch.
type Write struct {
	Switch  int32
	Block   int
	Entries [BlockLIDs]ib.PortNum
}

// Round is writes that may be done in any order and at the same time. The next round starts when all have been
// acknowledged.
type Round struct {
	// Drain says that packets which are under way when the round's writes are done must be gone before the next round
	// starts: wait for as long as a packet can live, which is the switches' life time (IBA 18.2.5.4) times the hops of
	// the longest way.
	Drain  bool
	Writes []Write
}

// Plan is how to get from one table set to another.
type Plan struct {
	Rounds []Round
	// Drained are the destinations, by index, whose packets are dropped for a while because no order of writes is safe
	// for them.
	Drained []int32
	// Levels are the destinations for which some source has to use another service level, see Transition.
	Levels []int32
}

// Writes counts all writes of the plan.
func (p *Plan) Writes() int {
	count := 0
	for i := range p.Rounds {
		count += len(p.Rounds[i].Writes)
	}
	return count
}

// Transition orders the writes that turn old tables into new ones so that at every moment, whichever writes of a round
// have been done, no packet goes round for ever and no packets wait for each other in a circle. Old and new are for the
// same switches; n is the network as it is now. Without old tables there is one round.
//
// No loop: a switch gets its new entry for a destination only when the rest of the new way is in place. A switch
// that has it leads to the destination by new entries alone; one that has not leads along the
// old way, until that ends or meets the new. So every packet's way is old hops and then new ones.
//
// No waiting in a circle: a packet may hold a channel of its old way while it waits for one of its new way, which
// neither table set has on its own. Where both sets go up and down in the same ranks, a switch is checked on its own:
// packets that came down to it by old entries must go on downwards by the new. Otherwise the channel dependencies of
// all such ways are put together, and destinations that would close a cycle are drained: their entries become NoPort
// where they change and where end ports' packets enter, and the new ones come last, when everything else is in place.
// Entries that only packets of switches need in the new tables, but where old packets of programs may still arrive,
// come last too, after a wait. What leads to switches closes no cycle of programs' packets: where destinations were
// drained for one it comes last as well, so that they do not stay closed for it.
//
// Service levels are chosen by end ports, which learn them from PathRecords and may keep them for long. The
// destinations of Plan.Levels have changed levels for some sources. A manager answers with the new levels from the
// first Drain on, or from the start where there is none. Destinations of Plan.Levels that are not drained may then be
// used with either level. For those in Plan.Drained too the old level is not safe with the new tables: the manager has
// the end ports ask again (client reregister) before it starts the rounds that follow the last one with Drain; end
// ports that don't remain a risk. Where SLtoVL differs, all destinations are drained, and the manager writes the maps
// at that same moment.
func Transition(n *Network, old, new *Tables) Plan {
	if old == nil {
		return coldPlan(new)
	}
	t := newTransition(n, old, new)
	t.findLevels()
	if !t.sameRanks {
		t.drainCycles()
		t.shuts = slices.Contains(t.drained, true)
	}
	for first := 0; first < len(t.destOf); first += BlockLIDs {
		t.find(first)
		t.inspect()
		t.emit(first)
	}
	return t.plan()
}

// coldPlan writes everything.
func coldPlan(t *Tables) Plan {
	var round Round
	for s, row := range t.LFT {
		for first := 0; first < len(row); first += BlockLIDs {
			w := Write{Switch: int32(s), Block: first / BlockLIDs}
			for i := range w.Entries {
				w.Entries[i] = entryAt(row, first+i)
			}
			round.Writes = append(round.Writes, w)
		}
	}
	if len(round.Writes) == 0 {
		return Plan{}
	}
	return Plan{Rounds: []Round{round}}
}

// entryAt is an entry of a row, NoPort beyond its end.
func entryAt(row []ib.PortNum, lid int) ib.PortNum {
	if lid >= len(row) {
		return NoPort
	}
	return row[lid]
}

// entryChange is a forwarding entry that differs.
type entryChange struct {
	lid ib.LID
	sw  int32
	// round is when it is written: 0 first. Late ones are counted apart and come after all others.
	round int32
	late  bool
}

// transition is the work.
type transition struct {
	n         *Network
	old, new  *Tables
	sameRanks bool
	destOf    []int32 // by LID, -1 for none
	drained   []bool  // by LID
	shuts     bool    // some destinations are drained before LIDs are looked at one by one
	levels    []int32 // destinations whose levels change
	rows      []int32 // switches whose entries differ

	// The block of LIDs at hand.
	changes []entryChange // by LID, then switch
	spare   []entryChange

	// By switch, for the LID at hand: whether packets of end ports pass, and whether the change is late.
	usedOld, usedNew []bool
	isLate           []bool
	anyUse           bool // take all as used in the old tables
	state            []uint8
	way              []int32

	plans
}

func newTransition(n *Network, old, new *Tables) *transition {
	t := &transition{
		n: n, old: old, new: new, sameRanks: old.Rank != nil && old.SL == nil && new.SL == nil &&
			slices.Equal(old.Rank, new.Rank),
		usedOld: make([]bool, len(n.Switches)), usedNew: make([]bool, len(n.Switches)),
		isLate: make([]bool, len(n.Switches)),
		state:  make([]uint8, len(n.Switches)),
	}
	top := int(n.Top)
	for s := range n.Switches {
		a, b := t.row(old, int32(s)), t.row(new, int32(s))
		top = max(top, len(a)-1, len(b)-1)
		if len(a) != len(b) || len(a) > 0 && &a[0] != &b[0] && !slices.Equal(a, b) {
			t.rows = append(t.rows, int32(s))
		}
	}
	t.destOf, t.drained = make([]int32, top+1), make([]bool, top+1)
	for i := range t.destOf {
		t.destOf[i] = -1
	}
	for i := range n.Dests {
		t.destOf[n.Dests[i].LID] = int32(i)
	}
	return t
}

func (t *transition) row(of *Tables, s int32) []ib.PortNum {
	if int(s) >= len(of.LFT) {
		return nil
	}
	return of.LFT[s]
}

func (t *transition) entry(of *Tables, s int32, lid ib.LID) ib.PortNum {
	return entryAt(t.row(of, s), int(lid))
}

// findLevels lists the destinations whose levels differ.
func (t *transition) findLevels() {
	if t.old.SL == nil && t.new.SL == nil {
		return
	}
	for d := range t.n.Dests {
		for s := range t.n.Switches {
			if t.n.Switches[s].Ends > 0 && t.old.Level(int32(s), d) != t.new.Level(int32(s), d) {
				t.levels = append(t.levels, int32(d))
				break
			}
		}
	}
}

// find lists the entries of a block of LIDs that differ.
func (t *transition) find(first int) {
	t.changes = t.changes[:0]
	end := first + BlockLIDs
	for _, s := range t.rows {
		a, b := t.row(t.old, s), t.row(t.new, s)
		if end <= len(a) && end <= len(b) &&
			[BlockLIDs]ib.PortNum(a[first:end]) == [BlockLIDs]ib.PortNum(b[first:end]) {
			continue
		}
		for lid := first; lid < end; lid++ {
			if entryAt(a, lid) != entryAt(b, lid) {
				t.changes = append(t.changes, entryChange{lid: ib.LID(lid), sw: s})
			}
		}
	}
	// By LID, keeping the order of the switches.
	var place [BlockLIDs + 1]int
	for i := range t.changes {
		place[t.changes[i].lid%BlockLIDs+1]++
	}
	for i := range BlockLIDs {
		place[i+1] += place[i]
	}
	sorted := slices.Grow(t.spare[:0], len(t.changes))[:len(t.changes)]
	for _, c := range t.changes {
		sorted[place[c.lid%BlockLIDs]] = c
		place[c.lid%BlockLIDs]++
	}
	t.changes, t.spare = sorted, t.changes
}

// next is the switch that an entry leads to over a cable that is there, NoSwitch for none.
func (t *transition) next(s int32, p ib.PortNum) int32 {
	if p == NoPort || int(p) >= len(t.n.Switches[s].Ports) {
		return NoSwitch
	}
	return t.n.Switches[s].Ports[p].To
}

// inspect goes through the LIDs that change and decides on the round of each entry.
func (t *transition) inspect() {
	for rest := t.changes; len(rest) > 0; {
		count := 1
		for count < len(rest) && rest[count].lid == rest[0].lid {
			count++
		}
		t.inspectLID(rest[:count])
		rest = rest[count:]
	}
}

func (t *transition) inspectLID(changes []entryChange) {
	lid := changes[0].lid
	d := t.destOf[lid]
	if d < 0 {
		return // nobody is there any more: entries go in any order
	}
	if t.old.made == nil && t.loops(lid) {
		t.drained[lid] = true // the old tables were not ours
		return
	}
	end := t.n.Dests[d].IsEnd() && !t.drained[lid]
	if end && t.sameRanks {
		// Most changes are harmless whoever's packets pass.
		t.anyUse = true
		end = slices.ContainsFunc(changes, func(c entryChange) bool { return !t.goesOn(c.sw, lid) })
		t.anyUse = false
	}
	if end {
		t.mark(t.old, lid, t.usedOld)
		t.mark(t.new, lid, t.usedNew)
		t.findLate(changes)
		if t.sameRanks && t.turnsUp(changes) {
			t.drained[lid] = true
		}
	}
	for i := range changes {
		c := &changes[i]
		c.late = c.late || t.isLate[c.sw]
	}
	for i := range changes {
		t.order(&changes[i])
	}
	if end {
		clear(t.usedOld)
		clear(t.usedNew)
		clear(t.isLate)
	}
}

// loops reports whether the old entries for a LID go round, at a switch that changes or not.
func (t *transition) loops(lid ib.LID) bool {
	at := t.n.Dests[t.destOf[lid]].Switch
	state, way := t.state, t.way
	clear(state)
	for s := range t.n.Switches {
		way = way[:0]
		x := int32(s)
		for x != NoSwitch && x != at && state[x] == 0 {
			state[x] = 1
			way = append(way, x)
			x = t.next(x, t.entry(t.old, x, lid))
		}
		if x != NoSwitch && x != at && state[x] == 1 {
			return true
		}
		for _, y := range way {
			state[y] = 2
		}
		t.way = way
	}
	return false
}

// mark finds the switches that packets of end ports pass on their way to a LID.
func (t *transition) mark(of *Tables, lid ib.LID, used []bool) {
	at := t.n.Dests[t.destOf[lid]].Switch
	for s := range t.n.Switches {
		if t.n.Switches[s].Ends == 0 {
			continue
		}
		for x := int32(s); x != NoSwitch && !used[x]; x = t.next(x, t.entry(of, x, lid)) {
			used[x] = true
			if x == at {
				break
			}
		}
	}
}

// findLate marks the changes that have to wait until old packets are gone: where such packets may arrive,
// but none of the new tables' own; and those whose new way leads there.
func (t *transition) findLate(changes []entryChange) {
	for i := range changes {
		if c := &changes[i]; t.usedOld[c.sw] && !t.usedNew[c.sw] && !t.goesOn(c.sw, c.lid) {
			t.isLate[c.sw] = true
		}
	}
	for i := range changes {
		c := &changes[i]
		if t.usedNew[c.sw] {
			continue
		}
		t.follow(t.new, c.sw, c.lid, func(x int32) bool {
			c.late = c.late || t.isLate[x]
			return true
		})
	}
}

// goesOn reports whether packets that arrive at a switch by old entries may go on by new ones: in the same ranks, a
// packet that came from above only downwards, and one from below up and then down. Without ranks nothing is known.
func (t *transition) goesOn(s int32, lid ib.LID) bool {
	if !t.sameRanks {
		return false
	}
	rank := t.new.Rank
	legal, down, rises := true, false, false
	at := s
	t.follow(t.new, s, lid, func(x int32) bool {
		up := rank[x] > rank[at]
		legal = legal && (!up || !down)
		down = down || !up
		rises = rises || up
		at = x
		return true
	})
	if !rises {
		return true
	}
	return legal && !t.fromAbove(s, lid)
}

// fromAbove reports whether packets of end ports come down to a switch by old entries.
func (t *transition) fromAbove(s int32, lid ib.LID) bool {
	for _, h := range t.n.Switches[s].Ports {
		if h.To != NoSwitch && t.old.Rank[h.To] > t.old.Rank[s] && (t.anyUse || t.usedOld[h.To]) &&
			t.entry(t.old, h.To, lid) == h.Port {
			return true
		}
	}
	return false
}

// turnsUp reports whether some packet could come down by old entries and go up by new ones.
func (t *transition) turnsUp(changes []entryChange) bool {
	for i := range changes {
		if c := &changes[i]; t.usedOld[c.sw] && t.usedNew[c.sw] && !t.goesOn(c.sw, c.lid) {
			return true
		}
	}
	return false
}

// follow goes along a way and calls visit with each switch after the first, until it answers false.
func (t *transition) follow(of *Tables, s int32, lid ib.LID, visit func(x int32) bool) {
	d := t.n.Dests[t.destOf[lid]].Switch
	for range len(t.n.Switches) {
		if s == d {
			return
		}
		s = t.next(s, t.entry(of, s, lid))
		if s == NoSwitch || !visit(s) {
			return
		}
	}
}

// order decides on the round of an entry: after those on its new way that have an old entry to be led astray by. Late
// ones wait for late ones only.
func (t *transition) order(c *entryChange) {
	t.follow(t.new, c.sw, c.lid, func(x int32) bool {
		was := t.entry(t.old, x, c.lid)
		if was != NoPort && was != t.entry(t.new, x, c.lid) && (!c.late || t.isLate[x] || t.lateAt(x, c.lid)) {
			c.round++
		}
		return true
	})
}

// lateAt reports whether the change at a switch is late.
func (t *transition) lateAt(s int32, lid ib.LID) bool {
	i, ok := slices.BinarySearchFunc(t.changes, entryChange{lid: lid, sw: s}, func(a, b entryChange) int {
		return cmp.Or(cmp.Compare(a.lid, b.lid), cmp.Compare(a.sw, b.sw))
	})
	return ok && t.changes[i].late
}
