package ib

// Heap has the first of its values in front, by their own order. Four children to a parent, which is fewer lines of the
// cache than two. Values that are neither before the other come in any order, so an engine's have a tie-breaker. The
// zero value is ready.
type Heap[T any, P interface {
	*T
	Before(*T) bool
}] []T

// Push puts a value in.
func (h *Heap[T, P]) Push(v T) {
	*h = append(*h, v)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !P(&v).Before(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = v
}

// Pop takes the first; there has to be one.
func (h *Heap[T, P]) Pop() T {
	q := *h
	first, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return first
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= len(q) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(q)); c++ {
			if P(&q[c]).Before(&q[least]) {
				least = c
			}
		}
		if !P(&q[least]).Before(&last) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = last
	return first
}
