package jobs

import (
	"slices"

	"softib/fabric/flow"
	"softib/job"
	"softib/job/play"
	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/subnet/am"
)

// works are what the aggregation nodes of all switches do for short vectors, by flows. Links are not what such vectors
// wait for but nodes, which take messages in one after the other; so each message is followed from node to node, on
// links that are taken to be idle. An operation is over when its flow is and when its last message is there: whichever
// of the two has to wait decides.
type works struct {
	cfg   aggregate.Config
	busy  []ib.Time // by switch: until when it takes in what has come
	queue ib.Heap[nodeEvent, *nodeEvent]
	turn  uint64
}

// nodeEvent is a message that comes to a node of a tree, or the end of an operation.
type nodeEvent struct {
	at    ib.Time
	turn  uint64
	tree  *tree
	op    uint64
	node  int32
	bytes uint64
	kind  uint8
}

const (
	goesUp = uint8(iota)
	goesDown
	isHeard // the multicast of its result is there
	isOver
)

func (e *nodeEvent) Before(f *nodeEvent) bool { return e.at < f.at || e.at == f.at && e.turn < f.turn }

// work is what the nodes of one tree do.
type work struct {
	made     *am.Tree
	mtu      int
	up, down []leg // of nodes, to and from their parents
	rise     []leg // of members, to and from their switches
	fall     []leg
	left     []ib.Time // by member: when its last message has left
	ops      []workOp  // those that are not over, from first on
	first    uint64
	told     int                // of ops: those whose ranks have the result
	cast     bool               // results come by multicast, too
	drop     []ib.Time          // by node: how long these take from the root, besides their bytes
	flown    ib.Queue[[]uint32] // who waits for those whose flows are over
}

// workOp is an operation that some rank has come to.
type workOp struct {
	way   job.Way
	peer  int
	size  uint64
	left  []int32  // by node: children that have not come
	has   []uint64 // and bytes that have
	below int      // members that have not got the result
	end   ib.Time  // when the last of the others has
	heard bool     // the result is there, by the tree or sooner by multicast
	over  bool     // it is by the tree: its place is free
	wait  []int    // members that have come before there was a place
}

func newWork(made *am.Tree, mtu int) *work {
	return &work{made: made, mtu: mtu, up: make([]leg, len(made.Nodes)), down: make([]leg, len(made.Nodes)),
		cast: made.Multicast && aggregate.HeaderLen+made.Payload <= mtu, drop: make([]ib.Time, len(made.Nodes))}
}

// castBytes is what a datagram to a group has more than a message of a connection: the global header, and the one of
// datagrams (IBA 8.3, 9.3.1).
const castBytes = 40 + 8

func (w *work) nodeLegs(node int, up, down leg) {
	if w != nil {
		w.up[node], w.down[node] = up, down
		w.drop[node] = w.drop[w.made.Nodes[node].Parent] + down.fixed
	}
}

func (w *work) memberLegs(up, down leg) {
	if w != nil {
		w.rise, w.fall, w.left = append(w.rise, up), append(w.fall, down), append(w.left, 0)
	}
}

// over is how long one message of a vector, or of a part of it, is on a leg.
func (w *work) over(l *leg, bytes uint64) ib.Time {
	return l.takes(flow.OnWire(aggregate.HeaderLen+min(bytes, uint64(w.made.Payload)), w.mtu, 0))
}

// comes notes that a member gives its vector to an operation, at once if there is a place.
func (s *works) comes(now ib.Time, t *tree, op uint64, me int, m play.Message) {
	w := t.work
	if op == w.first+uint64(len(w.ops)) {
		o := workOp{way: m.Way, peer: t.member[m.Peer], size: m.Size, left: make([]int32, len(w.made.Nodes)),
			has: make([]uint64, len(w.made.Nodes)), below: len(t.Ranks)}
		for i := range o.left {
			o.left[i] = int32(len(w.made.Nodes[i].Children))
		}
		w.ops = append(w.ops, o)
	}
	if op >= w.first+uint64(t.window) {
		o := &w.ops[op-w.first]
		o.wait = append(o.wait, me)
		return
	}
	s.give(now, t, op, me)
}

// give sends a member's vector, behind what it has sent before: one operation comes after the other.
func (s *works) give(now ib.Time, t *tree, op uint64, me int) {
	w := t.work
	bytes := w.ops[op-w.first].size
	if o := &w.ops[op-w.first]; o.way == job.Broadcast && o.peer != me {
		bytes = 0
	}
	there := max(now, w.left[me]) + w.over(&w.rise[me], bytes)
	w.left[me] = there - w.rise[me].fixed
	s.push(nodeEvent{at: there, tree: t, op: op, node: w.made.Leaf[me], bytes: bytes})
}

func (s *works) push(e nodeEvent) {
	e.turn = s.turn
	s.turn++
	s.queue.Push(e)
}

// nextDeadline is when the next message comes to a node.
func (s *trees) nextDeadline() ib.Time {
	if s == nil || len(s.queue) == 0 {
		return ib.Never
	}
	return s.queue[0].at
}

// handle lets nodes do what is due.
func (s *trees) handle(n *Flows, now ib.Time) {
	for s.nextDeadline() <= now {
		e := s.queue.Pop()
		w := e.tree.work
		o := &w.ops[e.op-w.first]
		if e.kind >= isHeard {
			o.heard, o.over = true, o.over || e.kind == isOver
			s.settle(n, now, e.tree)
			continue
		}
		v := &w.made.Nodes[e.node]
		each := uint64(w.made.Payload)
		s.busy[v.Switch] = max(s.busy[v.Switch], e.at) + s.cfg.TakeIn(false, max((e.bytes+each-1)/each, 1), e.bytes)
		at := s.busy[v.Switch] + s.cfg.Latency
		if e.kind == goesUp {
			o.has[e.node] = max(o.has[e.node], e.bytes)
			if o.left[e.node]--; o.left[e.node] > 0 {
				continue
			}
			e.bytes = o.has[e.node]
			if v.Parent >= 0 {
				s.push(nodeEvent{at: at + w.over(&w.up[e.node], e.bytes), tree: e.tree, op: e.op, node: v.Parent,
					bytes: e.bytes})
				continue
			}
		}
		if e.kind == goesUp && w.cast && o.way != job.Reduce {
			s.cast(at, e)
		}
		s.fall(at, e, o)
	}
}

// cast sends a result from the root to all members at once.
func (s *works) cast(at ib.Time, e nodeEvent) {
	w, last := e.tree.work, at
	for m, leaf := range w.made.Leaf {
		l := &w.fall[m]
		last = max(last, at+w.drop[leaf]+l.takes(flow.OnWire(aggregate.HeaderLen+e.bytes+castBytes, w.mtu, 0)))
	}
	s.push(nodeEvent{at: last, tree: e.tree, op: e.op, kind: isHeard})
}

// fall sends a result to all children of a node.
func (s *works) fall(at ib.Time, e nodeEvent, o *workOp) {
	w := e.tree.work
	for _, c := range w.made.Nodes[e.node].Children {
		bytes := e.bytes
		if _, wants := slices.BinarySearch(c.Members, uint32(o.peer)); o.way == job.Reduce && !wants {
			bytes = 0
		}
		if c.Node >= 0 {
			s.push(nodeEvent{at: at + w.over(&w.down[c.Node], bytes), tree: e.tree, op: e.op, node: c.Node,
				bytes: bytes, kind: goesDown})
			continue
		}
		o.end = max(o.end, at+w.over(&w.fall[c.Member], bytes))
		if o.below--; o.below == 0 {
			s.push(nodeEvent{at: o.end, tree: e.tree, op: e.op, kind: isOver})
		}
	}
}

// settle tells the ranks of operations whose flows and results are there, and gives the places of those that are over
// to others.
func (s *trees) settle(n *Flows, now ib.Time, t *tree) {
	w := t.work
	for w.told < len(w.ops) && w.ops[w.told].heard && w.flown.Len() > 0 {
		ids, _ := w.flown.Pop()
		n.tell(ids)
		w.told++
	}
	for w.told > 0 && w.ops[0].over {
		w.ops = w.ops[1:]
		w.first++
		w.told--
		if k := t.window - 1; k < len(w.ops) {
			for _, me := range w.ops[k].wait {
				s.give(now, t, w.first+uint64(k), me)
			}
			w.ops[k].wait = nil
		}
		t.busy--
		s.start(n, now, t)
	}
}
