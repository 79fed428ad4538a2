package ib

// Queue is first in, first out: a ring that grows and never gives memory back. The zero value is ready.
type Queue[T any] struct {
	buf  []T // a power of two
	head int
	n    int
}

// Len counts what is in q.
func (q *Queue[T]) Len() int { return q.n }

// Push appends v.
func (q *Queue[T]) Push(v T) {
	if q.n == len(q.buf) {
		q.grow()
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = v
	q.n++
}

// Pop takes the first, if there is one.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	v, q.buf[q.head] = q.buf[q.head], v
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return v, true
}

// Peek is the first, which stays; there must be one.
func (q *Queue[T]) Peek() T { return q.buf[q.head] }

func (q *Queue[T]) grow() {
	b := make([]T, max(16, 2*len(q.buf)))
	for i := range q.n {
		b[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
	}
	q.buf, q.head = b, 0
}
