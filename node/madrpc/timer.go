package madrpc

import "softib/proto/ib"

// Timers are many, last equally long in large groups, and nearly never expire. So each
// duration has a list of its own, in which starting one is appending, stopping one is unlinking, and the first expires
// first. A heap orders the lists by a time that is never later than their first
// deadline; it is put right when somebody looks at the top.

// timerLink is an op's place in the list of its duration.
type timerLink struct {
	prev, next ref
	list       int32
}

var noTimer = timerLink{none, none, -1}

type timerList struct {
	after      ib.Time
	key        ib.Time // in the heap: not later than the head's deadline
	head, tail ref
	pos        int32 // in the heap, or -1
}

// listsKept is how many durations are remembered though nothing has them.
const listsKept = 64

type timers struct {
	lists   []timerList
	byAfter map[ib.Time]int32
	heap    []int32
	last    int32 // the list used last
}

func (t *timers) listFor(after ib.Time) int32 {
	if len(t.lists) > 0 && t.lists[t.last].after == after {
		return t.last
	}
	i, ok := t.byAfter[after]
	if !ok {
		i = t.newList(after)
	}
	t.last = i
	return i
}

func (t *timers) newList(after ib.Time) int32 {
	if t.byAfter == nil {
		t.byAfter = make(map[ib.Time]int32)
	}
	i := int32(-1)
	if n := len(t.lists); n >= listsKept && n >= 2*len(t.heap) {
		for j := range t.lists {
			if t.lists[j].pos < 0 {
				i = int32(j)
				delete(t.byAfter, t.lists[j].after)
				break
			}
		}
	}
	if i < 0 {
		i = int32(len(t.lists))
		t.lists = append(t.lists, timerList{})
	}
	t.lists[i] = timerList{after: after, head: none, tail: none, pos: -1}
	t.byAfter[after] = i
	return i
}

// start sets the op's timer; one that runs is set anew.
func (t *timers) start(s *slab, r ref, now, after ib.Time) {
	o := s.at(r)
	if o.timer.list >= 0 {
		t.stop(s, r)
	}
	o.deadline = now + after
	if o.deadline < now {
		o.deadline = ib.Never
	}
	li := t.listFor(after)
	l := &t.lists[li]
	// Time does not run backwards, so the place is the end; should it, order still holds.
	prev := l.tail
	for prev != none && s.at(prev).deadline > o.deadline {
		prev = s.at(prev).timer.prev
	}
	next := l.head
	if prev != none {
		next = s.at(prev).timer.next
		s.at(prev).timer.next = r
	} else {
		l.head = r
	}
	if next != none {
		s.at(next).timer.prev = r
	} else {
		l.tail = r
	}
	o.timer = timerLink{prev, next, li}
	switch {
	case l.pos < 0:
		l.key, l.pos = o.deadline, int32(len(t.heap))
		t.heap = append(t.heap, li)
		t.up(int(l.pos))
	case o.deadline < l.key:
		l.key = o.deadline
		t.up(int(l.pos))
	}
}

func (t *timers) stop(s *slab, r ref) {
	o := s.at(r)
	if o.timer.list < 0 {
		return
	}
	l := &t.lists[o.timer.list]
	if o.timer.prev != none {
		s.at(o.timer.prev).timer.next = o.timer.next
	} else {
		l.head = o.timer.next
	}
	if o.timer.next != none {
		s.at(o.timer.next).timer.prev = o.timer.prev
	} else {
		l.tail = o.timer.prev
	}
	o.timer = noTimer
}

// first is the op whose timer expires first, and when.
func (t *timers) first(s *slab) (ref, ib.Time) {
	for len(t.heap) > 0 {
		l := &t.lists[t.heap[0]]
		if l.head == none {
			t.dropTop()
			continue
		}
		if d := s.at(l.head).deadline; d > l.key {
			l.key = d
			t.down(0)
			continue
		}
		return l.head, l.key
	}
	return none, ib.Never
}

func (t *timers) dropTop() {
	t.lists[t.heap[0]].pos = -1
	n := len(t.heap) - 1
	if n > 0 {
		t.heap[0] = t.heap[n]
		t.lists[t.heap[0]].pos = 0
	}
	t.heap = t.heap[:n]
	t.down(0)
}

func (t *timers) less(i, j int) bool {
	a, b := t.heap[i], t.heap[j]
	if t.lists[a].key != t.lists[b].key {
		return t.lists[a].key < t.lists[b].key
	}
	return a < b
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.lists[t.heap[i]].pos, t.lists[t.heap[j]].pos = int32(i), int32(j)
}

func (t *timers) up(i int) {
	for i > 0 && t.less(i, (i-1)/2) {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (t *timers) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(t.heap) {
			return
		}
		if c+1 < len(t.heap) && t.less(c+1, c) {
			c++
		}
		if !t.less(c, i) {
			return
		}
		t.swap(i, c)
		i = c
	}
}
