package madrpc

// ring is a queue that grows and never gives memory back.
type ring[T any] struct {
	buf  []T // a power of two
	head int
	n    int
}

func (q *ring[T]) push(v T) {
	if q.n == len(q.buf) {
		q.grow()
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = v
	q.n++
}

func (q *ring[T]) pop() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	v = q.buf[q.head]
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return v, true
}

func (q *ring[T]) grow() {
	b := make([]T, max(16, 2*len(q.buf)))
	for i := range q.n {
		b[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
	}
	q.buf, q.head = b, 0
}
