package route

import (
	"slices"

	"softib/proto/ib"
)

// Repaired is what Repair made of tables.
type Repaired struct {
	Tables *Tables
	// Changed are the switches whose forwarding entries differ from the old ones. Rows of the others are the old rows
	// themselves.
	Changed []int32
	// Full says that all was computed anew, and Why, in words.
	Full bool
	Why  string
}

// Repair makes tables for a network that differs a little from the one that the old tables were computed for: the same
// switches, some cables lost or returned, some destinations gone or new. A lost switch is one without cables. The old
// tables' network must not have been changed since.
//
// In a tree only those ways change that went over lost cables, or that had to avoid a cable that is back, so traffic
// that need not move does not, and the rest stays as balanced as it was; the new ways go up and down in the same ranks
// as the old. New destinations take the emptiest ways. Entries of LIDs that are gone stay: nobody sends there, and an
// end port that comes back finds its ways as they were. Everything else, such as what is no tree, is computed in full
// by the engine that made the old tables; Changed is then simply what differs.
func Repair(n *Network, old *Tables, o Options) (Repaired, error) {
	r, why := newRepair(n, old, o)
	if why == "" {
		why = r.run()
	}
	if why == "" {
		return Repaired{Tables: r.tab, Changed: r.changed()}, nil
	}
	e := ByName(old.Engine)
	if e == nil {
		e = upDown{}
	}
	tab, err := e.Compute(n, o)
	if err != nil {
		return Repaired{}, err
	}
	res := Repaired{Tables: tab, Full: true, Why: why}
	for s := range tab.LFT {
		if s < len(old.LFT) && slices.Equal(tab.LFT[s], old.LFT[s]) {
			tab.LFT[s] = old.LFT[s]
		} else {
			res.Changed = append(res.Changed, int32(s))
		}
	}
	return res, nil
}

// repair is the work on lost cables of a tree.
type repair struct {
	n    *Network
	old  *Tables
	tab  *Tables
	lost []Link // both ends
	// returned says that some cables are new: all ways are looked at again.
	returned bool
	t        *tree
	f        *treeFill
	// own are the rows that are copies already, and dirty those that differ from the old.
	own, dirty []bool
	index      []uint64 // of the destinations, as far as they are old
	fresh      []bool   // destinations that are new
	// redo are the groups of destinations that are routed anew.
	redo []bool
	// up are the entries that only have to take another cable upwards.
	up []upEntry
}

type upEntry struct {
	sw   int32
	dest int32
}

// newRepair finds what was lost; why says that a repair is out of the question.
func newRepair(n *Network, old *Tables, o Options) (r *repair, why string) {
	was := old.made
	switch {
	case was == nil || !old.MayMend():
		return nil, "the old tables are not those of a tree"
	case len(was.Switches) != len(n.Switches):
		return nil, "switches came or went"
	}
	r = &repair{n: n, old: old, index: old.index, own: make([]bool, len(n.Switches)),
		dirty: make([]bool, len(n.Switches))}
	for s := range n.Switches {
		a, b := &was.Switches[s], &n.Switches[s]
		if len(a.Ports) != len(b.Ports) || a.GUID != b.GUID {
			return nil, "switches came or went"
		}
		for p := range a.Ports {
			if a.Ports[p] == b.Ports[p] {
				continue
			}
			if b.Ports[p].To != NoSwitch {
				r.returned = true
				if a.Ports[p].To == NoSwitch {
					continue
				}
			}
			r.lost = append(r.lost, Link{int32(s), ib.PortNum(p)})
		}
	}
	r.tab = &Tables{Engine: old.Engine, LFT: slices.Clone(old.LFT), VLs: old.VLs, Rank: old.Rank, made: n, own: old.own,
		whole: old.whole}
	r.fit()
	r.matchDests()
	r.tab.index = r.index
	if len(r.lost) == 0 && !r.returned && r.fresh == nil {
		return r, ""
	}
	// The shape is that of the network that was whole: places of what is missing stay where they were.
	var t *tree
	var err error
	if n.isPartOf(old.whole) {
		t, err = newTreeWithin(old.whole, n, o)
	} else {
		r.tab.whole = n
		t, err = newTree(n, o)
	}
	if err != nil {
		return nil, err.Error()
	}
	if !slices.Equal(t.dir.ranks(), old.Rank) {
		return nil, "the levels of the tree are others now"
	}
	r.t = t
	return r, ""
}

// isPartOf reports whether all cables of a network are those of another with the same switches.
func (n *Network) isPartOf(whole *Network) bool {
	if whole == nil || len(n.Switches) != len(whole.Switches) {
		return false
	}
	for s := range n.Switches {
		a, b := n.Switches[s].Ports, whole.Switches[s].Ports
		if len(a) != len(b) {
			return false
		}
		for p := range a {
			if a[p].To != NoSwitch && a[p] != b[p] {
				return false
			}
		}
	}
	return true
}

// fit gives the rows the length that the LIDs need.
func (r *repair) fit() {
	width := int(r.n.Top) + 1
	for s, row := range r.tab.LFT {
		if len(row) < width {
			r.own[s] = true
			more := make([]ib.PortNum, width)
			for i := copy(more, row); i < width; i++ {
				more[i] = NoPort
			}
			r.tab.LFT[s] = more
		} else {
			r.tab.LFT[s] = row[:width:width]
		}
	}
}

// matchDests finds the new destinations among the old.
func (r *repair) matchDests() {
	was := r.old.made.Dests
	if slices.Equal(was, r.n.Dests) {
		return
	}
	byLID := make([]int32, int(max(r.old.made.Top, r.n.Top))+1)
	for i := range was {
		byLID[was[i].LID] = int32(i) + 1
	}
	r.index = make([]uint64, len(r.n.Dests))
	r.tab.own = make([]uint64, len(r.n.Dests))
	for i, d := range r.n.Dests {
		if k := byLID[d.LID] - 1; k >= 0 && was[k] == d {
			r.index[i], r.tab.own[i] = r.old.index[k], r.old.own[k]
			continue
		}
		if r.fresh == nil {
			r.fresh = make([]bool, len(r.n.Dests))
		}
		r.fresh[i] = true
	}
}

// run repairs; it answers why it cannot.
func (r *repair) run() (why string) {
	if len(r.lost) == 0 && !r.returned && r.fresh == nil {
		return ""
	}
	r.redo = make([]bool, len(r.n.Switches))
	for s := range r.redo {
		r.redo[s] = r.returned
	}
	for _, l := range r.lost {
		peer := r.old.made.Switches[l.Switch].Ports[l.Port].To
		down := r.old.Rank[peer] < r.old.Rank[l.Switch]
		row := r.old.LFT[l.Switch]
		for i := range r.n.Dests {
			d := &r.n.Dests[i]
			switch {
			case r.fresh != nil && r.fresh[i] || row[d.LID] != l.Port:
			case down:
				r.redo[d.Switch] = true
			default:
				r.up = append(r.up, upEntry{l.Switch, int32(i)})
			}
		}
	}
	for i, fresh := range r.fresh {
		if fresh {
			r.redo[r.n.Dests[i].Switch] = true
		}
	}
	if why := r.refill(); why != "" {
		return why
	}
	r.fresh = nil
	// Entries upwards that find no other cable need their whole group.
	clear(r.redo)
	again := false
	for _, e := range r.up {
		if !r.reroute(e) {
			r.redo[r.n.Dests[e.dest].Switch], again = true, true
		}
	}
	if again {
		return r.refill()
	}
	return ""
}

// refill routes the groups to be redone, into tables of their destinations alone, and takes over what differs.
func (r *repair) refill() (why string) {
	narrow := &Network{Switches: r.n.Switches, Dests: slices.Clone(r.n.Dests)}
	oldLID := []ib.LID{0}
	for i := range narrow.Dests {
		d := &narrow.Dests[i]
		if !r.redo[d.Switch] {
			d.LID = 0
			continue
		}
		oldLID = append(oldLID, d.LID)
		d.LID = ib.LID(len(oldLID) - 1)
	}
	narrow.Top = ib.LID(len(oldLID) - 1)
	f := newTreeFill(narrow, r.t)
	r.f = f
	f.old, f.oldLID = r.tab.LFT, oldLID
	copy(f.index, r.tab.index)
	f.fresh = r.fresh
	if r.returned {
		for d, own := range r.tab.own {
			if (r.fresh == nil || !r.fresh[d]) && f.whole(r.n.Dests[d].Switch, own) {
				f.index[d] = own
			}
		}
	}
	f.mend()
	index, own := slices.Clone(r.tab.index), slices.Clone(r.tab.own)
	for i, g := range f.groups {
		if !r.redo[g.sw] {
			continue
		}
		f.fillGroup(i)
		for _, set := range [...][]int32{g.ends, g.self} {
			for _, d := range set {
				index[d] = f.index[d]
				if r.fresh != nil && r.fresh[d] {
					own[d] = f.index[d]
				}
			}
		}
	}
	if len(f.detours) > 0 {
		return "some ways no longer go up and then down"
	}
	r.tab.index, r.tab.own = index, own
	r.take(f.lft, oldLID)
	return ""
}

// take copies the entries that differ; lids are those of the columns.
func (r *repair) take(from [][]ib.PortNum, lids []ib.LID) {
	for s, row := range from {
		for as, p := range row[1:] {
			if lid := lids[as+1]; p != r.tab.LFT[s][lid] {
				r.set(int32(s), lid, p)
			}
		}
	}
}

// set changes an entry of a row of our own.
func (r *repair) set(s int32, lid ib.LID, p ib.PortNum) {
	if !r.own[s] {
		r.own[s] = true
		r.tab.LFT[s] = slices.Clone(r.tab.LFT[s])
	}
	r.tab.LFT[s][lid] = p
	r.dirty[s] = true
}

// reroute gives a switch another cable upwards for a destination, unless that has been routed anew already: the
// shortest way that goes up and down, then the cable that stood in for others least often and not for a neighbour of
// the destination.
func (r *repair) reroute(e upEntry) bool {
	d := &r.n.Dests[e.dest]
	if p := r.tab.LFT[e.sw][d.LID]; p == NoPort || r.n.Switches[e.sw].Ports[p].To != NoSwitch {
		return true
	}
	o := r.f.odd
	from, to := r.t.first[e.sw], r.t.first[e.sw+1]
	turn := o.first[d.Switch]
	best, shortest, least := int32(-1), 0, uint64(0)
	start := int32(e.sw) + int32(len(r.n.Dests))/2 + e.dest
	for i := range to - from {
		k := from + (start+i)%(to-from)
		at := r.t.slots[k]
		if at.to == NoSwitch {
			continue
		}
		length := r.legal(at.to, d)
		if length < 0 {
			continue
		}
		score := uint64(o.count[k])
		if o.within(o.last[k], turn, o.span[e.sw]) {
			score |= 1 << 32
		}
		if best < 0 || length < shortest || length == shortest && score < least {
			best, shortest, least = k, length, score
		}
	}
	if best < 0 {
		return false
	}
	o.count[best]++
	o.last[best] = turn
	r.set(e.sw, d.LID, r.t.slots[best].port)
	return true
}

// legal is the number of hops from a switch to a destination by the tables so far, -1 if it does not get there by going
// up and then down.
func (r *repair) legal(s int32, d *Dest) int {
	hops, down := 0, false
	for s != d.Switch {
		p := r.tab.LFT[s][d.LID]
		if p == NoPort {
			return -1
		}
		next := r.n.Switches[s].Ports[p].To
		if next == NoSwitch {
			return -1
		}
		up := r.tab.Rank[next] > r.tab.Rank[s]
		if up && down {
			return -1
		}
		down = !up
		s = next
		hops++
	}
	return hops
}

// changed lists the switches whose rows differ.
func (r *repair) changed() []int32 {
	var list []int32
	for s, dirty := range r.dirty {
		if dirty {
			list = append(list, int32(s))
		}
	}
	return list
}
