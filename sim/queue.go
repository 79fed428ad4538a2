package sim

import (
	"cmp"
	"math/bits"
	"slices"

	"softib/ib"
)

// event is something that will happen: 16 bytes without a pointer, so that
// the collector never looks and a cache line holds four.
type event struct {
	t ib.Time
	d uint64 // kind, place and argument: see code
}

// queue is the events in order of time and, at one time, of insertion.
//
// It is a calendar: a ring of buckets, each a short span of time, that covers the
// near future, and a heap for what is farther away. A bucket is sorted
// only when its time has come, so an event costs a link in a list and a share
// of a tiny sort, whatever the number of events. Insertion order breaks ties with no
// sequence number: lists keep it, the sort is stable, and an event from
// the heap enters its bucket before any later one can.
type queue struct {
	cur   []event // the open bucket, sorted
	at    int     // the next event of cur
	base  int64   // number of the open bucket: its time >> shift
	shift uint
	n     int // events in the ring, cur not counted

	// Buckets are lists, last first, through one slab of nodes whose free ones
	// are reused last in first out: what is in use stays in the cache.
	ring  []uint32 // first node of each bucket; 0 for none
	used  []uint64 // one bit a bucket: not empty
	nodes []node
	free  uint32
	far   heap

	// What the width of a bucket is adapted by.
	opened, popped, farPushed int
	floor                     uint // the narrowest width to try
	floorFor                  int
}

type node struct {
	event
	next uint32
}

const (
	ringBits  = 13
	ringSize  = 1 << ringBits
	ringMask  = ringSize - 1
	firstWide = 7 // buckets of 128 ps
	maxWide   = 40

	// A bucket should hold a few events: more cost sorting.
	bucketMany = 32
	adaptEvery = 1 << 16
	// floorRounds is for how many adaptations a width that was too narrow is
	// not tried again.
	floorRounds = 64
)

func (q *queue) init() {
	q.shift = firstWide
	q.ring = make([]uint32, ringSize)
	q.used = make([]uint64, ringSize/64)
	q.nodes = make([]node, 1, 1024)
}

// Len counts the events.
func (q *queue) Len() int { return len(q.cur) - q.at + q.n + len(q.far.a) }

func (q *queue) push(t ib.Time, d uint64) {
	b := int64(t) >> q.shift
	switch {
	case b <= q.base:
		q.pushCur(t, d)
	case b < q.base+ringSize:
		q.pushRing(b, t, d)
	default:
		q.farPushed++
		q.far.push(t, d)
	}
}

func (q *queue) pushRing(b int64, t ib.Time, d uint64) {
	i := q.free
	if i == 0 {
		i = uint32(len(q.nodes))
		q.nodes = append(q.nodes, node{})
	}
	nd := &q.nodes[i]
	q.free = nd.next
	slot := b & ringMask
	q.used[slot>>6] |= 1 << (slot & 63)
	head := &q.ring[slot]
	*nd = node{event{t, d}, *head}
	*head = i
	q.n++
}

// pushCur puts an event into the open bucket, behind those of its time.
func (q *queue) pushCur(t ib.Time, d uint64) {
	q.cur = append(q.cur, event{t, d})
	i := len(q.cur) - 1
	for i > q.at && q.cur[i-1].t > t {
		q.cur[i] = q.cur[i-1]
		i--
	}
	q.cur[i] = event{t, d}
}

// peek is the time of the next event; false when there is none.
func (q *queue) peek() (ib.Time, bool) {
	if q.at == len(q.cur) && !q.open() {
		return 0, false
	}
	return q.cur[q.at].t, true
}

// pop takes the event that peek has shown.
func (q *queue) pop() event {
	e := q.cur[q.at]
	q.at++
	q.popped++
	return e
}

// open opens the next bucket that has something in it.
func (q *queue) open() bool {
	if q.popped >= adaptEvery {
		q.adapt()
		if q.at < len(q.cur) {
			return true
		}
	}
	q.cur, q.at = q.cur[:0], 0
	if q.n == 0 {
		if len(q.far.a) == 0 {
			return false
		}
		q.base = int64(q.far.a[0].t) >> q.shift
		q.drawFar()
		// The first far event went straight into the open bucket.
		return true
	}
	q.base = q.nextUsed()
	q.cur = q.unlink(q.cur, q.base)
	q.opened++
	if len(q.far.a) > 0 {
		q.drawFar()
	}
	return true
}

// unlink moves the events of a bucket to the end of list, sorted.
func (q *queue) unlink(list []event, b int64) []event {
	first := len(list)
	slot := b & ringMask
	q.used[slot>>6] &^= 1 << (slot & 63)
	head := &q.ring[slot]
	last := uint32(0)
	for i := *head; i != 0; i = q.nodes[i].next {
		list = append(list, q.nodes[i].event)
		last = i
	}
	q.nodes[last].next = q.free
	q.free = *head
	*head = 0
	q.n -= len(list) - first
	slices.Reverse(list[first:])
	sortEvents(list[first:])
	return list
}

// nextUsed is the number of the first bucket after base that is not empty; there is one.
func (q *queue) nextUsed() int64 {
	i := (q.base + 1) & ringMask
	w := i >> 6
	m := q.used[w] &^ (1<<(i&63) - 1)
	for m == 0 {
		w = (w + 1) & (ringMask >> 6)
		m = q.used[w]
	}
	j := w<<6 | int64(bits.TrailingZeros64(m))
	return q.base + 1 + (j-i)&ringMask
}

// drawFar moves what has come within the ring's span.
func (q *queue) drawFar() {
	for len(q.far.a) > 0 && int64(q.far.a[0].t)>>q.shift < q.base+ringSize {
		e := q.far.pop()
		if b := int64(e.t) >> q.shift; b <= q.base {
			q.pushCur(e.t, e.d)
		} else {
			q.pushRing(b, e.t, e.d)
		}
	}
}

// cancel turns the events that match into ones that do nothing, and returns
// them in order of time. It looks at every event.
func (q *queue) cancel(match func(d uint64) bool) []event {
	var out []event
	take := func(t ib.Time, d *uint64) {
		if match(*d) {
			out = append(out, event{t, *d})
			*d = code(evNone, 0, 0)
		}
	}
	for i := q.at; i < len(q.cur); i++ {
		take(q.cur[i].t, &q.cur[i].d)
	}
	for b := range q.ring {
		from := len(out)
		for i := q.ring[b]; i != 0; i = q.nodes[i].next {
			take(q.nodes[i].t, &q.nodes[i].d)
		}
		slices.Reverse(out[from:]) // lists are last first
	}
	for i := range q.far.a {
		take(q.far.a[i].t, &q.far.a[i].d)
	}
	slices.SortStableFunc(out, byTime)
	return out
}

// adapt changes the width of buckets when they have become too full, or so
// narrow that many events fall behind the ring. Order does not depend on it.
func (q *queue) adapt() {
	shift := q.shift
	switch {
	case q.farPushed > q.popped/16 && shift < maxWide:
		shift++
		q.floor, q.floorFor = shift, floorRounds
	case q.popped > bucketMany*max(q.opened, 1) && shift > q.floor:
		shift--
	}
	if q.floorFor--; q.floorFor <= 0 {
		q.floor = 0
	}
	q.opened, q.popped, q.farPushed = 0, 0, 0
	if shift != q.shift {
		q.rebuild(shift)
	}
}

// rebuild moves every event into buckets of another width, in order.
func (q *queue) rebuild(shift uint) {
	now := q.base << q.shift
	all := append(make([]event, 0, q.Len()), q.cur[q.at:]...)
	for q.n > 0 {
		q.base = q.nextUsed()
		all = q.unlink(all, q.base)
	}
	q.shift, q.base = shift, now>>shift
	if len(all) > 0 {
		q.base = int64(all[0].t) >> shift
	}
	q.cur, q.at = q.cur[:0], 0
	for _, e := range all {
		q.push(e.t, e.d)
	}
	q.drawFar()
	q.farPushed = 0
}

func byTime(x, y event) int { return cmp.Compare(x.t, y.t) }

// sortEvents sorts by time and keeps the order of equals.
func sortEvents(a []event) {
	if len(a) > 64 {
		slices.SortStableFunc(a, byTime)
		return
	}
	for i := 1; i < len(a); i++ {
		e := a[i]
		j := i
		for j > 0 && a[j-1].t > e.t {
			a[j] = a[j-1]
			j--
		}
		a[j] = e
	}
}

// heap holds the far events: four children to a node, by time and sequence.
type heap struct {
	a   []farEvent
	seq uint64
}

type farEvent struct {
	t   ib.Time
	seq uint64
	d   uint64
}

func (e *farEvent) before(o *farEvent) bool {
	return e.t < o.t || e.t == o.t && e.seq < o.seq
}

func (h *heap) push(t ib.Time, d uint64) {
	h.seq++
	e := farEvent{t, h.seq, d}
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
