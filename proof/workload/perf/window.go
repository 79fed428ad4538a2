package perf

import "softib/verbs"

// window keeps the requests of one queue pair that are in flight within a
// depth, with one completion for every few of them. A completion's WRID says
// in its low half how many requests it stands for, and in its high half whose
// they are.
type window struct {
	id     uint64
	mod    int
	depth  int
	posted int
	group  int // posted since the last that is signalled
	out    int // posted and not known to be complete
}

func newWindow(id, depth int) window {
	return window{id: uint64(id) << 32, mod: min(cqMod, (depth+1)/2), depth: depth}
}

// isOpen reports whether another request may be posted.
func (w *window) isOpen() bool { return w.out < w.depth }

// next prepares wr as the next request; the last one of all is signalled.
func (w *window) next(wr *verbs.SendWR, last bool) {
	w.posted++
	w.out++
	w.group++
	if w.group == w.mod || last {
		wr.Flags |= verbs.SendSignaled
		wr.WRID = w.id | uint64(w.group)
		w.group = 0
		return
	}
	wr.Flags &^= verbs.SendSignaled
}

// retire takes note of the first n completions in wcs.
func (w *window) retire(wcs []verbs.WC) {
	for i := range wcs {
		w.out -= int(uint32(wcs[i].WRID))
	}
}
