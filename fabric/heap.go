package fabric

import "softib/proto/ib"

// heap holds the far events: four children to a node, by time and sequence.
type heap struct {
	a   []farEvent
	seq uint64
}

type farEvent struct {
	event
	seq uint64
}

func (e *farEvent) before(o *farEvent) bool {
	return e.t < o.t || e.t == o.t && e.seq < o.seq
}

func (h *heap) push(t ib.Time, d uint64) {
	h.seq++
	e := farEvent{event{t, d}, h.seq}
	h.a = append(h.a, e)
	i := len(h.a) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h.a[up]) {
			break
		}
		h.a[i] = h.a[up]
		i = up
	}
	h.a[i] = e
}

func (h *heap) pop() farEvent {
	top := h.a[0]
	last := len(h.a) - 1
	e := h.a[last]
	h.a = h.a[:last]
	if last == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, last); c++ {
			if h.a[c].before(&h.a[least]) {
				least = c
			}
		}
		if !h.a[least].before(&e) {
			break
		}
		h.a[i] = h.a[least]
		i = least
	}
	h.a[i] = e
	return top
}
