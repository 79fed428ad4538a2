package route

// mend gives destinations whose chain of cables is broken another index.
func (f *treeFill) mend() {
	var broken []int32
	for _, g := range f.groups {
		for _, d := range g.ends {
			if (f.fresh == nil || !f.fresh[d]) && f.whole(g.sw, f.index[d]) {
				f.count(g.sw, f.index[d])
			} else {
				broken = append(broken, d)
			}
		}
	}
	for _, d := range broken {
		sw := f.n.Dests[d].Switch
		f.index[d] = f.another(sw, f.index[d])
		f.count(sw, f.index[d])
		f.odd.move(sw, f.index[d])
	}
}

// whole reports whether all cables of an index's chain are there, up from a switch as high as one can get.
func (f *treeFill) whole(s int32, index uint64) bool {
	high := f.climb[s]
	for {
		k := f.slotAt(s, index)
		if k < 0 {
			return f.dir.level[s] == high
		}
		s = f.slots[k].to
		if s == NoSwitch || f.climb[s] < high {
			return false
		}
	}
}

// count adds a destination to the loads of its chain.
func (f *treeFill) count(s int32, index uint64) {
	for {
		k := f.slotAt(s, index)
		if k < 0 || f.slots[k].to == NoSwitch {
			return
		}
		f.load[int(s)*f.w.stride+int(f.slots[k].port)]++
		s = f.slots[k].to
		f.through[s]++
	}
}

// another finds an index whose chain is whole and carries little, one level after the other.
func (f *treeFill) another(s int32, index uint64) uint64 {
	high, seat := f.climb[s], f.odd.first[s]
	for f.class[s] >= 0 {
		best, next := int64(-1), index
		var least [5]int64
		col := &f.cols[f.col[s]]
		was := index / col.div % col.width()
		for y := range col.width() {
			try := index - was*col.div + y*col.div
			k := f.slotAt(s, try)
			at := f.slots[k]
			if at.to == NoSwitch || f.climb[at.to] < high {
				continue
			}
			load := int64(f.load[int(s)*f.w.stride+int(at.port)])
			score := [5]int64{max(load, f.leastAbove(at.to)), load, 0, f.crowd(at.to), int64(f.stamp[col.first+y])}
			if f.odd.movedNear(s, col.first+y, seat) {
				score[2] = 1
			}
			if best < 0 || lessScore(score, least) {
				best, least, next = int64(y), score, try
			}
		}
		if best < 0 {
			return index
		}
		index = next
		k := f.slotAt(s, index)
		f.now++
		f.stamp[col.first+uint64(best)] = f.now
		s = f.slots[k].to
	}
	return index
}

// leastAbove is the load of the emptiest cable upwards from s, 0 at the top.
func (f *treeFill) leastAbove(s int32) int64 {
	least := int64(-1)
	for _, e := range f.dir.up[s] {
		if l := int64(f.load[int(s)*f.w.stride+int(e.port)]); least < 0 || l < least {
			least = l
		}
	}
	return max(least, 0)
}

// crowd is how many destinations each cable upwards from s has on average, in thousandths.
func (f *treeFill) crowd(s int32) int64 {
	return int64(f.through[s]) * 1000 / int64(max(len(f.dir.up[s]), 1))
}

func lessScore(a, b [5]int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
