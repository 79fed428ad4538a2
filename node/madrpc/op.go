package madrpc

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// ref names an op of the slab.
type ref int32

const none ref = -1

// opKind is what an op is about.
type opKind uint8

const (
	opFree     opKind = iota
	opOnce            // one datagram to send, and no more of it
	opCall            // a request that awaits its response, in one datagram or in segments
	opCast            // a message in segments that awaits nothing but its last acknowledgement
	opRecv            // a message that comes in segments; done: it has come, and late segments are still acknowledged
	opDelivery        // on its way to an agent
)

// op is anything that outlasts a call: what is sent, awaited, put together or delivered. One
// size for all of them makes one slab, one hash table and one set of timers.
type op struct {
	buf  [mad.Size]byte // the datagram, or the first segment's header
	long []byte         // a message of many segments, whole
	env  mad.Envelope

	tid      uint64
	cookie   uint64
	seq      uint64 // order of creation
	timeout  ib.Time
	deadline ib.Time

	agent    AgentID
	gen      uint32 // of the slot: a queue's entry with another one is void
	hashNext ref
	timer    timerLink
	partner  ref // a call and the reception of its response name each other

	retries, retriesLeft int32

	// Segments. For a sender: next to send, highest sent, last acknowledged, all, the window's last. For a
	// receiver: received without a gap, the last one's number or 0, the window's last; when it is done, next is
	// how far a response in segments may go at first.
	next, highest, acked, count, window uint32
	got, last, lastPayload              uint32

	kind    opKind
	class   mad.Class
	version uint8
	method  mad.Method
	result  Kind
	status  mad.RMPPStatus
	rmpp    bool // the agent lets the port do RMPP
	resp    bool // what is sent, or received, is a response
	queued  bool // in the outbox
	hashed  bool
	done    bool
	have    windowSet // segments received beyond a gap
}

// windowMax is the widest window that a receiver opens.
const windowMax = 256

// windowSet holds segment numbers that are less than windowMax apart.
type windowSet [windowMax / 64]uint64

func (s *windowSet) has(seg uint32) bool { return s[seg/64%(windowMax/64)]>>(seg%64)&1 != 0 }
func (s *windowSet) add(seg uint32)      { s[seg/64%(windowMax/64)] |= 1 << (seg % 64) }
func (s *windowSet) remove(seg uint32)   { s[seg/64%(windowMax/64)] &^= 1 << (seg % 64) }

const chunkOps = 128

// slab holds ops at places that do not move.
type slab struct {
	chunks []*[chunkOps]op
	free   []ref
	seq    uint64
}

func (s *slab) at(r ref) *op { return &s.chunks[r/chunkOps][r%chunkOps] }

// alloc returns an op with its links cleared; its datagram and envelope still hold what they held before.
func (s *slab) alloc(kind opKind) (ref, *op) {
	if len(s.free) == 0 {
		base := ref(len(s.chunks) * chunkOps)
		s.chunks = append(s.chunks, new([chunkOps]op))
		for i := ref(chunkOps - 1); i >= 0; i-- {
			s.free = append(s.free, base+i)
		}
	}
	r := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	o := s.at(r)
	s.seq++
	o.kind, o.seq = kind, s.seq
	o.hashNext, o.partner, o.timer = none, none, noTimer
	o.cookie, o.agent, o.retries, o.retriesLeft, o.timeout = 0, 0, 0, 0, 0
	o.next, o.highest, o.acked, o.count, o.window = 0, 0, 0, 0, 0
	o.result, o.status, o.rmpp, o.resp, o.done = 0, 0, false, false, false
	return r, o
}

// put gives an op back. It is in no list any more but the outbox, whose entry the generation voids.
func (s *slab) put(r ref) {
	o := s.at(r)
	o.gen++
	o.kind, o.queued, o.long = opFree, false, nil
	s.free = append(s.free, r)
}

// table finds ops by transaction and class. What else must fit depends on the kind of op, so callers walk the chain.
type table struct {
	heads []ref
	shift uint
	n     int
}

func (t *table) slot(tid uint64, c mad.Class) uint64 {
	return (tid ^ uint64(c)<<56 ^ tid>>32) * 0x9E37_79B9_7F4A_7C15 >> t.shift
}

// first is the head of the chain in which ops of this transaction and class are, among others.
func (t *table) first(tid uint64, c mad.Class) ref {
	if len(t.heads) == 0 {
		return none
	}
	return t.heads[t.slot(tid, c)]
}

func (t *table) insert(s *slab, r ref) {
	if t.n >= len(t.heads) {
		t.grow(s)
	}
	o := s.at(r)
	i := t.slot(o.tid, o.class)
	o.hashNext, o.hashed = t.heads[i], true
	t.heads[i] = r
	t.n++
}

func (t *table) remove(s *slab, r ref) {
	o := s.at(r)
	if !o.hashed {
		return
	}
	at := &t.heads[t.slot(o.tid, o.class)]
	for *at != r {
		at = &s.at(*at).hashNext
	}
	*at = o.hashNext
	o.hashNext, o.hashed = none, false
	t.n--
}

func (t *table) grow(s *slab) {
	bits := uint(6)
	for 1<<bits <= len(t.heads) {
		bits++
	}
	old := t.heads
	t.heads, t.shift, t.n = make([]ref, 1<<bits), 64-bits, 0
	for i := range t.heads {
		t.heads[i] = none
	}
	for _, r := range old {
		for r != none {
			next := s.at(r).hashNext
			t.insert(s, r)
			r = next
		}
	}
}
