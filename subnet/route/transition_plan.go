package route

import (
	"cmp"
	"slices"

	"softib/proto/ib"
)

// plans are the rounds so far, by kind.
type plans struct {
	drain   Round   // what is drained becomes NoPort
	steps   []Round // what changes step by step
	last    []Round // what comes when packets of the steps are gone
	dropped []int32 // destinations that are drained
}

// Kinds of rounds, in their order.
const (
	roundDrain = iota
	roundStep
	roundLast
)

// entryWrite is an entry that gets a value in a round of some kind.
type entryWrite struct {
	kind, round int32
	sw          int32
	lid         ib.LID
	port        ib.PortNum
}

// emit puts the changes of a block into rounds.
func (t *transition) emit(first int) {
	var writes []entryWrite
	for lid := first; lid < min(first+BlockLIDs, len(t.drained)); lid++ {
		if t.drained[lid] {
			t.dropped = append(t.dropped, t.destOf[lid])
			writes = t.shutOut(ib.LID(lid), writes)
		}
	}
	for i := range t.changes {
		c := &t.changes[i]
		port := t.entry(t.new, c.sw, c.lid)
		switch {
		case t.drained[c.lid]:
			if t.entry(t.old, c.sw, c.lid) != NoPort {
				writes = append(writes, entryWrite{roundDrain, 0, c.sw, c.lid, NoPort})
			}
			if port != NoPort {
				writes = append(writes, entryWrite{roundLast, 0, c.sw, c.lid, port})
			}
		case c.late, t.shuts && !t.forEnds(c.lid):
			writes = append(writes, entryWrite{roundLast, c.round, c.sw, c.lid, port})
		default:
			writes = append(writes, entryWrite{roundStep, c.round, c.sw, c.lid, port})
		}
	}
	slices.SortFunc(writes, func(a, b entryWrite) int {
		return cmp.Or(cmp.Compare(a.sw, b.sw), cmp.Compare(a.kind, b.kind), cmp.Compare(a.round, b.round),
			cmp.Compare(a.lid, b.lid))
	})
	// Entries whose turn has not come keep their old value.
	now := Write{Switch: NoSwitch, Block: first / BlockLIDs}
	for i, w := range writes {
		if now.Switch != w.sw {
			now.Switch = w.sw
			row := t.row(t.old, w.sw)
			for k := range now.Entries {
				now.Entries[k] = entryAt(row, first+k)
			}
		}
		now.Entries[w.lid%BlockLIDs] = w.port
		if i+1 < len(writes) {
			if next := writes[i+1]; next.sw == w.sw && next.kind == w.kind && next.round == w.round {
				continue
			}
		}
		r := t.roundOf(w)
		r.Writes = append(r.Writes, now)
	}
}

// forEnds reports whether packets of programs go to a LID.
func (t *transition) forEnds(lid ib.LID) bool {
	d := t.destOf[lid]
	return d >= 0 && t.n.Dests[d].IsEnd()
}

// shutOut keeps packets to a LID out while it is drained: entries become NoPort that don't change themselves, but where
// end ports' packets would enter.
func (t *transition) shutOut(lid ib.LID, writes []entryWrite) []entryWrite {
	at := t.n.Dests[t.destOf[lid]].Switch
	for s := range t.n.Switches {
		p := t.entry(t.old, int32(s), lid)
		if t.n.Switches[s].Ends == 0 || int32(s) == at || p == NoPort || p != t.entry(t.new, int32(s), lid) {
			continue
		}
		writes = append(writes, entryWrite{roundDrain, 0, int32(s), lid, NoPort},
			entryWrite{roundLast, 0, int32(s), lid, p})
	}
	return writes
}

func (p *plans) roundOf(w entryWrite) *Round {
	list := &p.steps
	switch w.kind {
	case roundDrain:
		return &p.drain
	case roundLast:
		list = &p.last
	}
	for int(w.round) >= len(*list) {
		*list = append(*list, Round{})
	}
	return &(*list)[w.round]
}

// plan puts the rounds in order.
func (t *transition) plan() Plan {
	p := Plan{Levels: t.levels, Drained: t.dropped}
	if len(t.drain.Writes) > 0 {
		t.drain.Drain = true
		p.Rounds = append(p.Rounds, t.drain)
	}
	for _, r := range t.steps {
		if len(r.Writes) > 0 {
			p.Rounds = append(p.Rounds, r)
		}
	}
	if len(t.last) > 0 && len(p.Rounds) > 0 {
		p.Rounds[len(p.Rounds)-1].Drain = true
	}
	for _, r := range t.last {
		if len(r.Writes) > 0 {
			p.Rounds = append(p.Rounds, r)
		}
	}
	return p
}
