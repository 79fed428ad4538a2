package fabric

import (
	"cmp"
	"math/bits"
	"slices"

	"softib/proto/ib"
)

// event is something that will happen: 16 bytes without a pointer, so that
// the collector never looks and a cache line holds four.
type event struct {
	t ib.Time
	d uint64 // kind, place and argument: see code
}

// queue is the events in order of time and, at one time, of what ties has of their codes, and of insertion.
//
// It is a calendar: a ring of buckets, each a short span of time, that covers the near future, and a heap for what is
// farther away. A bucket is sorted only when its time has come, so an event costs a link in a list and a share of a
// tiny sort, whatever the number of events. Insertion order breaks ties with no sequence number: lists keep it, the
// sort is stable, and an event from the heap enters its bucket before any later one can.
type queue struct {
	cur   []event // the open bucket, sorted
	at    int     // the next event of cur
	base  int64   // number of the open bucket: its time >> shift
	shift uint
	ties  uint64 // see Config.ByPlace
	n     int    // events in the ring, cur not counted

	// Buckets are lists of chunks, last first, from one slab whose free ones are reused last in first out: what is in
	// use stays in the cache. A bucket's word says which chunk is its last and how many events are in that one, so that
	// a push only stores.
	ring   []uint32 // chunk<<chunkBits | events; 0 for none
	used   []uint64 // one bit a bucket: not empty
	chunks []chunk
	free   uint32
	warm   ib.Time // see fetch
	// patient: time is the real one.
	patient bool
	far     heap

	// What the width of a bucket is adapted by.
	opened, popped, farPushed int
	floor                     uint // the narrowest width to try
	floorFor                  int
}

// chunk is two cache lines of events.
type chunk struct {
	ev   [chunkLen]event
	prev uint32 // a full chunk of the same bucket, or the next free one
	_    [12]byte
}

const (
	chunkLen  = 7
	chunkBits = 3
	chunkMask = 1<<chunkBits - 1
)

const (
	ringBits  = 13
	ringSize  = 1 << ringBits
	ringMask  = ringSize - 1
	firstWide = 7  // buckets of 128 ps
	realWide  = 20 // and of 1 us, where time is the real one
	maxWide   = 40

	// A bucket should hold a few events: more cost sorting.
	bucketMany = 16
	adaptEvery = 1 << 16
	// floorRounds is for how many adaptations a width that was too narrow is not tried again.
	floorRounds = 64
)

func newQueue(cfg *Config) queue {
	q := queue{shift: firstWide, ring: make([]uint32, ringSize), used: make([]uint64, ringSize/64),
		chunks: make([]chunk, 1, 1024)}
	if cfg.ByPlace {
		q.ties = code(fromFar, 0xFFFFFF, 0)
	}
	if cfg.Instant {
		q.shift, q.patient = realWide, true
	}
	return q
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
	slot := b & ringMask
	w := q.ring[slot]
	if w&chunkMask == chunkLen || w == 0 {
		w = q.addChunk(w>>chunkBits) << chunkBits
		q.used[slot>>6] |= 1 << (slot & 63)
	}
	q.chunks[w>>chunkBits].ev[w&chunkMask] = event{t, d}
	q.ring[slot] = w + 1
	q.n++
}

// addChunk takes a chunk that follows prev, which is full, or 0.
func (q *queue) addChunk(prev uint32) uint32 {
	i := q.free
	if i == 0 {
		i = uint32(len(q.chunks))
		q.chunks = append(q.chunks, chunk{})
	} else {
		q.free = q.chunks[i].prev
	}
	q.chunks[i].prev = prev
	return i
}

// pushCur puts an event into the open bucket, behind those of its time.
func (q *queue) pushCur(t ib.Time, d uint64) {
	q.cur = append(q.cur, event{t, d})
	q.settle(q.cur, q.at)
}

// settle moves the last event of a list before those that come later, up to from.
func (q *queue) settle(a []event, from int) {
	i := len(a) - 1
	e, tie := a[i], a[i].d&q.ties
	for ; i > from && (a[i-1].t > e.t || a[i-1].t == e.t && a[i-1].d&q.ties > tie); i-- {
		a[i] = a[i-1]
	}
	a[i] = e
}

// due reports whether an event, which pop then takes, comes no later than limit.
func (q *queue) due(limit ib.Time) bool {
	return (q.at < len(q.cur) || q.openBy(limit)) && q.cur[q.at].t <= limit
}

// openBy opens the next bucket. In real time it opens none that lies behind limit, so that what is pushed meanwhile
// finds its bucket still closed.
func (q *queue) openBy(limit ib.Time) bool { return (!q.patient || q.next() <= limit) && q.open() }

// next is when the first event comes; Never if there is none. It opens nothing.
func (q *queue) next() ib.Time {
	if q.at < len(q.cur) {
		return q.cur[q.at].t
	}
	t := ib.Never
	if q.n > 0 {
		w := q.ring[q.nextUsed()&ringMask]
		q.eachOf(w>>chunkBits, w&chunkMask, func(e *event) { t = min(t, e.t) })
	}
	if len(q.far.a) > 0 {
		t = min(t, q.far.a[0].t)
	}
	return t
}

// pop takes the next event of the open bucket, which has one.
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
	switch {
	case q.n > 0:
		q.base = q.nextUsed()
		q.cur = q.unlink(q.cur, q.base)
		q.opened++
	case len(q.far.a) > 0:
		q.base = int64(q.far.a[0].t) >> q.shift // it goes straight into the open bucket
	default:
		return false
	}
	q.drawFar()
	q.fetch()
	return true
}

// unlink moves the events of a bucket to the end of list, sorted.
func (q *queue) unlink(list []event, b int64) []event {
	first := len(list)
	slot := b & ringMask
	q.used[slot>>6] &^= 1 << (slot & 63)
	w := q.ring[slot]
	q.ring[slot] = 0
	// Chunks come last first; the lists are short, so that all but the last are put right by moving.
	for i, n := w>>chunkBits, w&chunkMask; i != 0; n = chunkLen {
		c := &q.chunks[i]
		list = append(list, c.ev[:n]...)
		if moved := len(list) - first - int(n); moved > 0 {
			copy(list[first+int(n):], list[first:first+moved])
			copy(list[first:], c.ev[:n])
		}
		i, c.prev, q.free = c.prev, q.free, i
	}
	q.n -= len(list) - first
	q.sort(list[first:])
	return list
}

// fetch reads the next bucket's last chunk, so that it is in the cache when its time comes.
func (q *queue) fetch() {
	if q.n > 0 {
		q.warm = q.chunks[q.ring[q.nextUsed()&ringMask]>>chunkBits].ev[0].t
	}
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
		q.push(e.t, e.d)
	}
}

// each shows every event. Those of one time are seen in their order, but for the far ones.
func (q *queue) each(see func(*event)) {
	for i := q.at; i < len(q.cur); i++ {
		see(&q.cur[i])
	}
	for _, w := range q.ring {
		q.eachOf(w>>chunkBits, w&chunkMask, see)
	}
	for i := range q.far.a {
		see(&q.far.a[i].event)
	}
}

// eachOf shows the events of a bucket, of which n are in its last chunk i.
func (q *queue) eachOf(i, n uint32, see func(*event)) {
	if i == 0 {
		return
	}
	c := &q.chunks[i]
	q.eachOf(c.prev, chunkLen, see)
	for j := range c.ev[:n] {
		see(&c.ev[j])
	}
}

// cancel turns the events that match into ones that do nothing, and returns them in order of time. It looks at every
// event.
func (q *queue) cancel(match func(d uint64) bool) []event {
	var out []event
	q.each(func(e *event) {
		if match(e.d) {
			out = append(out, *e)
			e.d = code(evNone, 0, 0)
		}
	})
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
	// A burst may have scattered the chunks in use over a large slab.
	if shift != q.shift || len(q.chunks) > 1024 && len(q.chunks) > 2*q.n {
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
	q.chunks, q.free = q.chunks[:1], 0 // packed anew
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

// sort keeps the order of equals.
func (q *queue) sort(a []event) {
	if len(a) > 64 {
		slices.SortStableFunc(a, func(x, y event) int {
			return cmp.Or(byTime(x, y), cmp.Compare(x.d&q.ties, y.d&q.ties))
		})
		return
	}
	for i := range a {
		q.settle(a[:i+1], 0)
	}
}

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
