package tunnel

// ring holds bytes of a stream from one offset up to another. It begins small and doubles when it has to, so that a
// session that never has much under way has little memory, and that in the processor's caches. How far it may grow is
// for its user to say.
type ring struct{ buf []byte } // a power of two

const ringFirst = 64 << 10

// fit makes room for all offsets from one up to another. What lies in [from, used) stays.
func (r *ring) fit(from, used, to uint64) {
	if to-from <= uint64(len(r.buf)) {
		return
	}
	n := max(ringFirst, len(r.buf))
	for uint64(n) < to-from {
		n *= 2
	}
	next := ring{make([]byte, n)}
	for at := from; at < used; {
		p := r.piece(span{at, used})
		next.put(at, p)
		at += uint64(len(p))
	}
	*r = next
}

// piece is the bytes of a span, in place, up to the ring's edge.
func (r *ring) piece(a span) []byte {
	i := int(a.from & uint64(len(r.buf)-1))
	return r.buf[i:min(len(r.buf), i+int(a.to-a.from))]
}

// put writes bytes to an offset.
func (r *ring) put(at uint64, b []byte) {
	n := copy(r.buf[at&uint64(len(r.buf)-1):], b)
	copy(r.buf, b[n:])
}

// get reads bytes from an offset.
func (r *ring) get(b []byte, at uint64) {
	n := copy(b, r.buf[at&uint64(len(r.buf)-1):])
	copy(b[n:], r.buf)
}
