package cm

import "softib/proto/ib"

// timer is one deadline, of a connection or of an answer that is remembered.
type timer struct {
	at  ib.Time
	seq uint64 // of two with one deadline, the one set first is first
	pos int    // in the heap, plus 1; 0 if not set
	c   *conn
	g   *ghost
}

// timers is a heap of all deadlines that are set.
type timers struct {
	heap []*timer
	seq  uint64
}

// set starts t, or sets it anew.
func (h *timers) set(t *timer, at ib.Time) {
	h.seq++
	t.at, t.seq = at, h.seq
	if t.pos == 0 {
		h.heap = append(h.heap, t)
		t.pos = len(h.heap)
	}
	h.fix(t.pos - 1)
}

func (h *timers) stop(t *timer) {
	i := t.pos - 1
	if i < 0 {
		return
	}
	n := len(h.heap) - 1
	h.swap(i, n)
	h.heap[n] = nil
	h.heap = h.heap[:n]
	t.pos = 0
	if i < n {
		h.fix(i)
	}
}

// first is the deadline that comes first; nil if there is none.
func (h *timers) first() *timer {
	if len(h.heap) == 0 {
		return nil
	}
	return h.heap[0]
}

func (h *timers) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (h *timers) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].pos, h.heap[j].pos = i+1, j+1
}

func (h *timers) fix(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(h.heap) {
			return
		}
		if c+1 < len(h.heap) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.swap(i, c)
		i = c
	}
}

// span is 4.096 us * 2^code, the unit of all times in these messages. Code 0 is the shortest, not never.
func span(code uint8) ib.Time { return 4096 * ib.Nanosecond << (code & 31) }

// ackTimeout is the code of how long a sender waits for an acknowledgement: twice the life of a packet and the delay at
// the target (IBA 12.7.34). Each is a power of two; of two that differ by more than one step, the larger stands for
// both, as in Linux.
func ackTimeout(ackDelay, lifeTime uint8) uint8 {
	a, b := lifeTime+1, ackDelay
	if a < b {
		a, b = b, a
	}
	if a-b <= 1 {
		a++
	}
	return min(a, timeMax)
}
