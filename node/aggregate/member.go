package aggregate

import (
	"softib/proto/ib"
)

// Place is a member's in a tree.
type Place struct {
	Tree uint32
	Me   uint32
	// OSTs and Payload are the tree's.
	OSTs, Payload int
}

// Operation is a collective of all members of a job. They do them in the same order.
type Operation struct {
	// ID is the driver's.
	ID uint64
	Op
	Type
	// Bytes is the length of the vector, 0 for a barrier.
	Bytes uint64
	// Target is who gets the result, or Everybody. From is whose vector it is alone, or Everybody: a broadcast is a sum
	// to which the others add nothing.
	Target, From uint32
}

// Send is a message that a member wants to send: the header, and then so many bytes of its vector.
type Send struct {
	Header
	ID     uint64
	Offset uint64
	Bytes  int
}

// News is what a member has got.
type News struct {
	ID     uint64
	Offset uint64
	// Vector is a part of the result, which lies in the message that it came in; nil if it is not for this member.
	Vector []byte
	// Over: the operation is.
	Over bool
	// Again: the member had this already, in a tree that has failed since.
	Again bool
}

// Member is a host's part in a job.
type Member struct {
	// Timeout is how long the member waits for a result before it takes the tree for lost; 0 for ever.
	Timeout ib.Time

	at     Place
	ops    []memberOp
	first  int // the number of ops[0] among all operations of the job
	done   int // operations that have ended, in whatever tree
	cursor int // the operation that the next message is of
	offset uint64
	got    uint64  // bytes of the result that have come of the operation that ends next
	ends   int     // which one that is
	seq    uint32  // of the next message
	over   uint32  // messages whose results have come, by the tree or by multicast
	passed uint32  // and by the tree: their places are free
	moved  ib.Time // when the last thing happened that brings the member further
	failed Reason
}

type memberOp struct {
	Operation
	last uint32 // the number of its last message in this tree, once it was sent
}

// NewMember makes a member that has done nothing.
func NewMember(at Place) *Member { return &Member{at: at} }

// Done is how many operations have ended.
func (m *Member) Done() int { return m.done }

// Idle reports whether nothing is to be done.
func (m *Member) Idle() bool { return m.done == m.first+len(m.ops) }

// Failed is why the member's tree has failed; NoReason if it has not.
func (m *Member) Failed() Reason { return m.failed }

// Start begins an operation, behind those that were begun before.
func (m *Member) Start(now ib.Time, o Operation) {
	if m.Idle() {
		m.moved = now
	}
	m.ops = append(m.ops, memberOp{Operation: o})
}

// step is how many bytes each message of an operation has but the last: whole elements.
func (m *Member) step(o *memberOp) uint64 {
	return uint64(m.at.Payload / o.Size() * o.Size())
}

// Poll is the next message that may leave now.
func (m *Member) Poll() (s Send, ok bool) {
	i := m.cursor - m.first
	if m.failed != NoReason || i >= len(m.ops) || m.seq-m.passed >= uint32(m.at.OSTs) {
		return s, false
	}
	o := &m.ops[i]
	n := min(m.step(o), o.Bytes-m.offset)
	s = Send{ID: o.ID, Offset: m.offset, Bytes: int(n), Header: Header{Kind: Contribution, Op: o.Op, Type: o.Type,
		Tree: m.at.Tree, Seq: m.seq, Target: o.Target, Count: uint32(n) / uint32(o.Size())}}
	if o.From != Everybody && o.From != m.at.Me {
		s.Bytes, s.Count = 0, 0
	}
	o.last = m.seq
	m.seq++
	if m.offset += n; m.offset == o.Bytes {
		m.cursor++
		m.offset = 0
	}
	return s, true
}

// HandleMessage takes what came from the tree. It reports false for a result that came by multicast before, and for
// what is none; then Failed says why.
func (m *Member) HandleMessage(now ib.Time, message []byte) (n News, ok bool) {
	if m.failed != NoReason {
		return n, false
	}
	h, vector, err := Parse(message)
	switch {
	case err != nil || h.Tree != m.at.Tree:
		m.failed = Malformed
	case h.Kind == Abort:
		m.failed = max(h.Why, Lost)
	case h.Kind != Result || h.Seq != m.passed || h.Seq == m.seq:
		m.failed = Sequence
	}
	if m.failed != NoReason {
		return n, false
	}
	m.passed++
	m.moved = now
	if h.Seq != m.over {
		return n, false
	}
	return m.take(now, vector)
}

// HandleMulticast takes what came to all members at once, which is the same as what will come from the tree, but sooner
// if it does. It reports false for what is not the next result: that is left to the tree.
func (m *Member) HandleMulticast(now ib.Time, message []byte) (n News, ok bool) {
	h, vector, err := Parse(message)
	if m.failed != NoReason || err != nil || h.Kind != Result || h.Tree != m.at.Tree || m.over == m.seq ||
		h.Seq != m.over && !plantAhead {
		return n, false
	}
	return m.take(now, vector)
}

// take hands out the next result.
func (m *Member) take(now ib.Time, vector []byte) (n News, ok bool) {
	o := &m.ops[m.ends-m.first]
	size := min(m.step(o), o.Bytes-m.got)
	wants := o.Target == Everybody || o.Target == m.at.Me
	if wants && uint64(len(vector)) != size {
		m.failed = Mismatch
		return n, false
	}
	n = News{ID: o.ID, Offset: m.got, Again: m.ends < m.done}
	if wants {
		n.Vector = vector
	}
	m.over++
	m.moved = now
	if m.got += size; m.got == o.Bytes {
		n.Over = true
		m.got = 0
		m.ends++
		m.done = max(m.done, m.ends)
		m.forget()
	}
	return n, true
}

// forget drops operations that everybody has done. A result means that all have contributed to it, and so have the
// results of those that are as many messages before it as may be outstanding.
func (m *Member) forget() {
	k := 0
	for k < len(m.ops) && m.first+k < m.ends && m.ops[k].last+uint32(m.at.OSTs) < m.over {
		k++
	}
	if k > 0 {
		m.ops = append(m.ops[:0], m.ops[k:]...)
		m.first += k
	}
}

// HandleLost says that the connection to the tree is no more, or that the tree is not.
func (m *Member) HandleLost(why Reason) {
	if m.failed == NoReason {
		m.failed = why
	}
}

// NextDeadline is when the member will have waited for too long.
func (m *Member) NextDeadline() ib.Time {
	if m.Timeout == 0 || m.failed != NoReason || m.seq == m.passed {
		return ib.Never
	}
	return m.moved + m.Timeout
}

// HandleTimeout lets the member see that it has.
func (m *Member) HandleTimeout(now ib.Time) {
	if m.NextDeadline() <= now {
		m.failed = Late
	}
}

// Restart goes on in another tree, with the first operation that some member of the job has not done. The others help
// it to what they have.
//
// A member that has the result of an operation already keeps it. Sums of integers are the same in any tree. Those of
// floating-point numbers may differ in their last bits between members that got them from different trees.
func (m *Member) Restart(now ib.Time, at Place, from int) {
	if plantOwn {
		from = m.done
	}
	m.at, m.failed, m.moved = at, NoReason, now
	m.cursor, m.ends = from, from
	m.offset, m.got, m.seq, m.over, m.passed = 0, 0, 0, 0, 0
}
