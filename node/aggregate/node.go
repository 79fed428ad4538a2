package aggregate

import (
	"errors"
	"fmt"
	"slices"

	"softib/proto/ib"
)

// Up is the connection to the parent, where a child is meant by its number, and All is no connection but all members at
// once, by a multicast that may get lost.
const (
	Up  = -1
	All = -3
)

// Limits are what an aggregation node has places for.
type Limits struct {
	// Trees is how many trees it can be part of, Streams how many of them may be for streaming.
	Trees, Streams int
	// OSTs is how many operations may be outstanding, of all trees together.
	OSTs int
	// Buffer is how many bytes of vectors it holds.
	Buffer int
}

// Config is what a node is.
type Config struct {
	Limits Limits
	// Latency is from a message having been taken in to the one that follows from it being ready to leave, up or down.
	Latency ib.Time
	// PerMessage and PerByte are how long the node takes a message in, and each of its bytes, our header's included.
	// It does so one after the other, in the order in which they come, whatever port and tree they are of. Streams have
	// a way of their own, on which they are there with their last byte.
	PerMessage, PerByte ib.Time
}

// TakeIn is how long the node is busy with some messages of a tree that streams or not, of so many bytes in all.
func (c *Config) TakeIn(stream bool, messages, bytes uint64) ib.Time {
	if stream {
		return 0
	}
	return ib.Time(messages)*(c.PerMessage+HeaderLen*c.PerByte) + ib.Time(bytes)*c.PerByte
}

// Child is a neighbour further down: a host, or a switch with hosts below it.
type Child struct {
	// Members are those below, in ascending order.
	Members []uint32
}

// Tree is what a node has to know of one.
type Tree struct {
	ID       uint32
	HasUp    bool // the root has no parent
	Children []Child
	// OSTs is how many operations may be outstanding, and Payload how many bytes of vector each has at most.
	OSTs, Payload int
	Stream        bool
	// Multicast has the root send results that are for everybody to All, too, ahead of those that go down the tree.
	Multicast bool
}

// Buffer is how many bytes the tree takes of a node's: any child but the first in its turn may come before it.
func (t *Tree) Buffer() int { return t.OSTs * t.Payload * len(t.Children) }

// ErrFull is matched by every refusal for want of places.
var ErrFull = errors.New("an aggregation node has no more places")

// Lacks says what a node that has already given out some of its places has too few of for a tree; nil if nothing.
func (l Limits) Lacks(used Limits, t *Tree) error {
	for _, c := range [...]struct {
		what             string
		has, used, wants int
	}{{"trees", l.Trees, used.Trees, 1}, {"streaming trees", l.Streams, used.Streams, one(t.Stream)},
		{"outstanding operations", l.OSTs, used.OSTs, t.OSTs}, {"bytes of buffer", l.Buffer, used.Buffer, t.Buffer()},
	} {
		if c.used+c.wants > c.has && c.wants > 0 {
			return fmt.Errorf("%w: %s: it has %d, of which %d are taken: %d are wanted", ErrFull, c.what, c.has,
				c.used, c.wants)
		}
	}
	return nil
}

// Add counts a tree among what is taken, sign 1, or no more, sign -1.
func (l *Limits) Add(t *Tree, sign int) {
	l.Trees += sign
	l.Streams += sign * one(t.Stream)
	l.OSTs += sign * t.OSTs
	l.Buffer += sign * t.Buffer()
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Output is a message to a neighbour. Data are the node's until its next call.
type Output struct {
	Tree uint32
	To   int
	Data []byte
}

// Stats count what a node has done.
type Stats struct{ Operations, Contributions, Failures uint64 }

// Node is the aggregation node of a switch.
type Node struct {
	Stats Stats
	cfg   Config
	used  Limits
	trees []*tree
	busy  ib.Time // until when it takes in what has come
	out   ib.Heap[output, *output]
	turn  uint64
	spent []byte // what Poll handed out last, if nobody else needs it
	free  map[int][][]byte
}

type tree struct {
	Tree
	slots  []slot
	seq    uint32 // results that have passed
	failed bool
}

// slot is an operation that has not ended.
type slot struct {
	seq   uint32
	busy  bool
	up    bool // it has gone to the parent
	head  Header
	sum   []byte   // of the children before next
	next  int      // the first child that has not come
	come  int      // children that have
	early [][]byte // what came before its turn, by child
	here  []bool   // children that have come
}

type output struct {
	at   ib.Time
	turn uint64 // among those of the same time
	tree *tree
	to   int
	data []byte
	last bool // nobody else needs the bytes
	end  bool // it tells that the tree has failed
}

// Before orders what leaves: a stream does not wait for what is taken in one after the other.
func (o *output) Before(p *output) bool { return o.at < p.at || o.at == p.at && o.turn < p.turn }

// New makes a node without trees.
func New(cfg Config) *Node { return &Node{cfg: cfg, free: map[int][][]byte{}} }

// Used is what of its places is taken.
func (n *Node) Used() Limits { return n.used }

// Add makes the node part of a tree.
func (n *Node) Add(t Tree) error {
	if n.find(t.ID) != nil || len(t.Children) == 0 || t.OSTs < 1 || t.Payload < 8 {
		return fmt.Errorf("tree %d with %d children, %d operations of %d bytes: want a new one, with a child, an "+
			"operation and 8 bytes at least", t.ID, len(t.Children), t.OSTs, t.Payload)
	}
	if err := n.cfg.Limits.Lacks(n.used, &t); err != nil {
		return err
	}
	n.used.Add(&t, 1)
	tr := &tree{Tree: t, slots: make([]slot, t.OSTs)}
	for i := range tr.slots {
		tr.slots[i].here = make([]bool, len(t.Children))
		tr.slots[i].early = make([][]byte, len(t.Children))
	}
	n.trees = append(n.trees, tr)
	return nil
}

// Remove takes the node out of a tree. What it has to say there is not said any more.
func (n *Node) Remove(id uint32) {
	if t := n.find(id); t != nil {
		n.used.Add(&t.Tree, -1)
		t.failed = true
		n.trees = slices.DeleteFunc(n.trees, func(o *tree) bool { return o == t })
		n.silence(t)
	}
}

func (n *Node) find(id uint32) *tree {
	for _, t := range n.trees {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// HandleMessage takes a message of a tree from a neighbour.
func (n *Node) HandleMessage(now ib.Time, id uint32, from int, message []byte) {
	t := n.find(id)
	if t == nil || t.failed {
		return
	}
	h, vector, err := Parse(message)
	if cost := n.cfg.TakeIn(t.Stream, 1, uint64(len(vector))); cost > 0 {
		n.busy = max(n.busy, now) + cost
		now = n.busy // what it says next, it says from then on
	}
	switch {
	case err != nil || h.Tree != id || len(vector) > t.Payload:
		n.fail(now, t, nobody, Malformed)
	case h.Kind == Abort:
		n.fail(now, t, from, h.Why)
	case from == Up && h.Kind == Result:
		n.result(now, t, &h, vector)
	case from >= 0 && from < len(t.Children) && h.Kind == Contribution:
		n.contribution(now, t, from, &h, vector)
	default:
		n.fail(now, t, nobody, Malformed)
	}
}

// contribution adds what a child has to what is there, or keeps it until it is its turn.
func (n *Node) contribution(now ib.Time, t *tree, child int, h *Header, vector []byte) {
	n.Stats.Contributions++
	s := &t.slots[h.Seq%uint32(len(t.slots))]
	if !s.busy {
		if h.Seq-t.seq >= uint32(len(t.slots)) {
			n.fail(now, t, nobody, Sequence)
			return
		}
		*s = slot{seq: h.Seq, busy: true, head: *h, early: s.early, here: s.here}
		clear(s.here)
	}
	switch was := &s.head; {
	case s.seq != h.Seq || s.here[child] || s.up:
		n.fail(now, t, nobody, Sequence)
		return
	case was.Op != h.Op || was.Type != h.Type || was.Target != h.Target ||
		was.Count != h.Count && was.Count != 0 && h.Count != 0:
		n.fail(now, t, nobody, Mismatch)
		return
	case was.Count == 0:
		was.Count = h.Count
	}
	s.here[child] = true
	s.come++
	switch {
	case plantArrival || child == s.next:
		n.add(t, s, vector)
	case len(vector) > 0:
		s.early[child] = append(n.buffer(t.Payload), vector...)
	}
	for ; s.next < len(s.here) && s.here[s.next]; s.next++ {
		n.add(t, s, s.early[s.next])
		n.giveBack(s.early[s.next])
		s.early[s.next] = nil
	}
	if s.come == len(s.here) {
		n.complete(now, t, s)
	}
}

// add combines a vector with what is there; one of no length adds nothing.
func (n *Node) add(t *tree, s *slot, vector []byte) {
	switch {
	case len(vector) == 0:
	case s.sum == nil:
		s.sum = s.head.Append(n.buffer(HeaderLen + t.Payload))
		s.sum = append(s.sum, vector...)
	default:
		Combine(s.head.Op, s.head.Type, s.sum[HeaderLen:], vector)
	}
}

// complete sends on what all children together have.
func (n *Node) complete(now ib.Time, t *tree, s *slot) {
	n.Stats.Operations++
	data := s.sum
	s.sum, s.up = nil, true
	if data == nil {
		data = n.buffer(HeaderLen + t.Payload)[:HeaderLen]
	}
	if t.HasUp {
		s.head.Kind = Contribution
		s.head.Append(data[:0])
		n.push(output{at: now + n.cfg.Latency, tree: t, to: Up, data: data, last: true})
		return
	}
	s.head.Kind = Result
	s.head.Append(data[:0])
	n.down(now, t, s, data)
}

// result passes a result on to the children.
func (n *Node) result(now ib.Time, t *tree, h *Header, vector []byte) {
	s := &t.slots[h.Seq%uint32(len(t.slots))]
	if !s.busy || s.seq != h.Seq || !s.up || h.Seq != t.seq {
		n.fail(now, t, nobody, Sequence)
		return
	}
	n.down(now, t, s, append(h.Append(n.buffer(HeaderLen+t.Payload)), vector...))
}

// down sends a result to all children, the vector only to those who want it, and ends the operation.
func (n *Node) down(now ib.Time, t *tree, s *slot, data []byte) {
	var over []byte // the message for those who do not want it
	at := now + n.cfg.Latency
	if t.Multicast && !t.HasUp && s.head.Target == Everybody {
		n.push(output{at: at, tree: t, to: All, data: data})
	}
	for i := range t.Children {
		o := output{at: at, tree: t, to: i, data: data}
		if s.head.Target != Everybody {
			if _, wants := slices.BinarySearch(t.Children[i].Members, s.head.Target); !wants {
				if over == nil {
					h := s.head
					h.Kind, h.Count = Result, 0
					over = h.Append(n.buffer(HeaderLen + t.Payload))
				}
				o.data = over
			}
		}
		n.push(o)
	}
	n.lend(at, t, data, over)
	s.busy = false
	t.seq = s.seq + 1
}

// lend marks whose bytes are nobody's any more when everything before has left.
func (n *Node) lend(at ib.Time, t *tree, list ...[]byte) {
	for _, b := range list {
		if b != nil {
			n.push(output{at: at, tree: t, to: nobody, data: b, last: true})
		}
	}
}

// nobody is who an output goes to that only gives its bytes back.
const nobody = -2

// HandleLost says that a connection of a tree is no more.
func (n *Node) HandleLost(now ib.Time, id uint32, peer int) {
	if t := n.find(id); t != nil && !t.failed {
		n.fail(now, t, peer, Lost)
	}
}

// fail ends a tree: all neighbours but the one who knows hear of it at once.
func (n *Node) fail(now ib.Time, t *tree, knows int, why Reason) {
	n.Stats.Failures++
	t.failed = true
	n.silence(t)
	h := Header{Kind: Abort, Why: why, Tree: t.ID}
	for to := Up; to < len(t.Children); to++ {
		if to != knows && (to != Up || t.HasUp) {
			n.push(output{at: now + n.cfg.Latency, tree: t, to: to, data: h.Append(n.buffer(HeaderLen)), last: true,
				end: true})
		}
	}
}

// silence forgets the operations of a tree and what it has to say.
func (n *Node) silence(t *tree) {
	for i := range t.slots {
		s := &t.slots[i]
		n.giveBack(s.sum)
		for c, b := range s.early {
			n.giveBack(b)
			s.early[c] = nil
		}
		s.sum, s.busy = nil, false
	}
}

func (n *Node) push(o output) {
	o.turn = n.turn
	n.turn++
	n.out.Push(o)
}

// Poll is the next message that leaves by now.
func (n *Node) Poll(now ib.Time) (Output, bool) {
	n.giveBack(n.spent)
	n.spent = nil
	for n.NextDeadline() <= now {
		o := n.out.Pop()
		if o.last {
			n.spent = o.data
		}
		if o.to != nobody && (!o.tree.failed || o.end) && n.find(o.tree.ID) == o.tree {
			return Output{Tree: o.tree.ID, To: o.to, Data: o.data}, true
		}
		n.giveBack(n.spent)
		n.spent = nil
	}
	return Output{}, false
}

// NextDeadline is when Poll has something.
func (n *Node) NextDeadline() ib.Time {
	if len(n.out) == 0 {
		return ib.Never
	}
	return n.out[0].at
}

// buffer is memory for so many bytes, empty.
func (n *Node) buffer(size int) []byte {
	if list := n.free[size]; len(list) > 0 {
		b := list[len(list)-1]
		n.free[size] = list[:len(list)-1]
		return b[:0]
	}
	return make([]byte, 0, size)
}

func (n *Node) giveBack(b []byte) {
	if b != nil {
		n.free[cap(b)] = append(n.free[cap(b)], b)
	}
}
