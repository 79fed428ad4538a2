package flow

import "softib/proto/ib"

// ends has flows by when they end; flow.heap says where each one is.
type ends []uint32

func sooner(fl []flow, a, b uint32) bool {
	return fl[a].end < fl[b].end || fl[a].end == fl[b].end && fl[a].id < fl[b].id
}

// place puts a flow where its end belongs, whether it is in the heap or not.
func (h *ends) place(fl []flow, f uint32) {
	if fl[f].heap < 0 {
		fl[f].heap = int32(len(*h))
		*h = append(*h, f)
	}
	h.up(fl, int(fl[f].heap))
	h.down(fl, int(fl[f].heap))
}

func (h *ends) pop(fl []flow) uint32 {
	q := *h
	first, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	fl[first].heap = -1
	if len(q) > 0 {
		q[0], fl[last].heap = last, 0
		h.down(fl, 0)
	}
	return first
}

func (h *ends) up(fl []flow, i int) {
	q := *h
	f := q[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !sooner(fl, f, q[parent]) {
			break
		}
		q[i] = q[parent]
		fl[q[i]].heap = int32(i)
		i = parent
	}
	q[i], fl[f].heap = f, int32(i)
}

func (h *ends) down(fl []flow, i int) {
	q := *h
	f := q[i]
	for {
		least := 4*i + 1
		if least >= len(q) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(q)); c++ {
			if sooner(fl, q[c], q[least]) {
				least = c
			}
		}
		if !sooner(fl, q[least], f) {
			break
		}
		q[i] = q[least]
		fl[q[i]].heap = int32(i)
		i = least
	}
	q[i], fl[f].heap = f, int32(i)
}

// arrival is a message behind its last link.
type arrival struct {
	at, latency ib.Time
	id          uint32
	step        Step
}

// Before orders a queue of them.
func (a *arrival) Before(b *arrival) bool {
	return a.at < b.at || a.at == b.at && (a.id < b.id || a.id == b.id && a.step < b.step)
}
