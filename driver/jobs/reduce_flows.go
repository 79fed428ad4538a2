package jobs

import (
	"fmt"

	"softib/driver/sim"
	"softib/fabric/flow"
	"softib/job"
	"softib/job/play"
	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/am"
)

// trees are the groups of ranks that switches work for, by flows: an operation is one flow over all links of its tree,
// up and down at once, which begins when the last rank is there. It has on all of them the rate that it has on the
// slowest; so links are shared with messages as they are among these. One on a short vector is over when its messages
// have also passed all aggregation nodes; see works.
type trees struct {
	list   []tree
	active []treeOp
	free   []uint32
	works
}

type tree struct {
	job.Group
	links   []int32
	member  map[uint32]int
	next    []uint64   // by member: its next operation
	ops     [][]uint32 // those that not all have begun, from first on: messages that wait
	first   uint64
	latency func(bytes uint64) ib.Time // beyond the bytes on one link
	// Of a group of short vectors no more than window operations are on their way at a time; the others wait.
	window, busy int
	wait         ib.Queue[treeOp]
	work         *work // nil for a stream
}

// leg is a link of a tree in one direction, and the switch behind it.
type leg struct {
	rate  float64
	fixed ib.Time
}

func (l *leg) takes(bytes float64) ib.Time { return l.fixed + ib.Time(bytes/l.rate) }

// treeOp is an operation that all have come to: the messages that end with it.
type treeOp struct {
	tree  *tree
	ids   []uint32
	bytes uint64
}

// treeFlow is the first number of flows that are operations.
const treeFlow = 1 << 31

// SetGroups makes the groups' trees.
func (n *Flows) SetGroups(list []job.Group) error {
	c := n.f.reduction()
	lid := make([]ib.LID, len(n.f.Net.Switches))
	number := map[int]int32{}
	for i, sw := range n.f.Graph.Switches() {
		number[sw.Index] = int32(i)
	}
	for _, d := range n.f.Net.Dests {
		if !d.IsEnd() {
			lid[d.Switch] = d.LID
		}
	}
	m := am.New(am.NewFabric(n.f.Net, func(from, to int32) ib.PortNum { return n.f.Tables.LFT[from][lid[to]] }),
		c.Limits)
	n.trees = &trees{list: make([]tree, len(list)), works: works{cfg: c.node(), busy: make([]ib.Time, len(lid))}}
	for i := range list {
		t := &n.trees.list[i]
		*t = tree{Group: list[i], member: map[uint32]int{}, next: make([]uint64, len(list[i].Ranks))}
		q := c.request(&t.Group)
		for k, rank := range t.Ranks {
			if int(rank) >= n.f.Ranks() {
				return fmt.Errorf("%w: rank %d has no host: there are %d places", ErrReduction, rank, n.f.Ranks())
			}
			t.member[rank] = k
			peer := n.f.Graph.Port(n.f.Place(rank)).Peer
			if !n.f.Graph.Nodes[peer].IsSwitch() {
				return fmt.Errorf("%w: group %d: rank %d is at no switch", ErrReduction, i, rank)
			}
			q.Members = append(q.Members, number[peer])
		}
		j, err := m.Create(q)
		if err != nil {
			return fmt.Errorf("%w: group %d: %w", ErrReduction, i, err)
		}
		t.lay(n.f, j.Tree, c.Latency)
		if t.window = q.OSTs; t.Stream {
			t.window = maxStreams
		}
	}
	return nil
}

// lay finds the links of a tree, and how long its longest way takes: each message is there with its last byte at every
// node, which adds it up before it goes on.
func (t *tree) lay(f *Fabric, made *am.Tree, node ib.Time) {
	switches := f.Graph.Switches()
	rates := f.Ways.Rates()
	legOf := func(from topo.PortRef, toSwitch bool) (l leg) {
		t.links = append(t.links, f.Ways.Link(from))
		l.rate = rates[f.Ways.Link(from)]
		l.fixed = ib.Time(f.Graph.Port(from).LengthMM) * sim.CableDelay
		if toSwitch {
			l.fixed += f.opt.SwitchLatency
		}
		return l
	}
	back := func(ref topo.PortRef) topo.PortRef {
		p := f.Graph.Port(ref)
		return topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	}
	if !t.Stream {
		t.work = newWork(made, f.opt.MTU.Bytes())
	}
	var legs [][]leg // by node: up and down, to the root
	for i := range made.Nodes {
		v := &made.Nodes[i]
		var list []leg
		if v.Parent >= 0 {
			up := topo.PortRef{Node: switches[v.Switch].Index, Port: v.Port}
			down := topo.PortRef{Node: switches[made.Nodes[v.Parent].Switch].Index, Port: v.Far}
			a, b := legOf(up, true), legOf(down, true)
			list = append(append(list, legs[v.Parent]...), a, b)
			t.work.nodeLegs(i, a, b)
		}
		legs = append(legs, list)
	}
	var ways [][]leg
	for m, leaf := range made.Leaf {
		up := f.Place(t.Ranks[m])
		a, b := legOf(up, true), legOf(back(up), false)
		t.work.memberLegs(a, b)
		if list := append(append([]leg(nil), legs[leaf]...), a, b); len(ways) == 0 || len(list) > len(ways[0]) {
			ways = [][]leg{list}
		} else if len(list) == len(ways[0]) && len(ways) < 64 {
			ways = append(ways, list)
		}
	}
	payload, cast := uint64(t.Payload), t.work != nil && t.work.cast // by which a result passes no node but the root
	t.latency = func(bytes uint64) ib.Time {
		one := f.onWire(aggregate.HeaderLen + min(bytes, payload))
		most := ib.Time(0)
		for _, w := range ways {
			passes := len(w) - 1
			if cast {
				passes = len(w) / 2
			}
			sum := ib.Time(passes) * node
			for i, l := range w { // up, down, up, down, …
				if sum += l.fixed; !cast || i%2 == 0 || i == len(w)-1 {
					sum += ib.Time(one / l.rate)
				}
			}
			sum -= ib.Time(one / w[len(w)-2].rate) // the bytes themselves leave the host
			most = max(most, sum)
		}
		return most
	}
}

// join notes that a rank has come to its group's next operation, which begins with the last of them.
func (n *Flows) join(now ib.Time, m play.Message) error {
	t := &n.trees.list[m.Group-1]
	me := t.member[m.From]
	k := t.next[me] - t.first
	if t.work != nil {
		n.trees.comes(now, t, t.next[me], me, m)
	}
	t.next[me]++
	if k == uint64(len(t.ops)) {
		t.ops = append(t.ops, nil)
	}
	t.ops[k] = append(t.ops[k], m.ID)
	n.out++
	if len(t.ops[k]) < len(t.Ranks) {
		return nil
	}
	// Whoever is last with this one has done all before it, and so has everybody else.
	ids := t.ops[k]
	t.ops = t.ops[k+1:]
	t.first += k + 1
	t.wait.Push(treeOp{tree: t, ids: ids, bytes: m.Size})
	n.trees.start(n, now, t)
	return nil
}

// maxStreams is how many operations of a stream are on their way: their packets have the window.
const maxStreams = 1 << 30

// start puts operations on their way, as many as may be.
func (s *trees) start(n *Flows, now ib.Time, t *tree) {
	for t.busy < t.window {
		o, ok := t.wait.Pop()
		if !ok {
			return
		}
		t.busy++
		payload := uint64(t.Payload)
		messages := max((o.bytes+payload-1)/payload, 1)
		id := uint32(len(s.active))
		if k := len(s.free); k > 0 {
			id, s.free = s.free[k-1], s.free[:k-1]
			s.active[id] = o
		} else {
			s.active = append(s.active, o)
		}
		n.Start(now, treeFlow+id, t.links, nil, n.f.onWire(o.bytes+messages*aggregate.HeaderLen),
			t.latency(o.bytes))
	}
}

// step takes what has become of an operation.
func (s *trees) step(n *Flows, now ib.Time, a flow.Arrival) {
	switch op := &s.active[a.ID-treeFlow]; a.Step {
	case flow.Arrived:
		if w := op.tree.work; w != nil {
			w.flown.Push(op.ids)
			s.settle(n, now, op.tree)
		} else {
			n.tell(op.ids)
			op.tree.busy--
			s.start(n, now, op.tree)
		}
	case flow.Sent:
		*op = treeOp{}
		s.free = append(s.free, a.ID-treeFlow)
	}
}

// tell has the messages of an operation arrive.
func (n *Flows) tell(ids []uint32) {
	for _, id := range ids {
		n.ready.Push(done{id: id})
		n.out--
	}
}
