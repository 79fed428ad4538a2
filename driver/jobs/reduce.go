package jobs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"softib/driver/sim"
	"softib/job"
	"softib/job/play"
	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/am"
)

// Reduction is how switches do reductions (SHARP). Zero fields take defaults.
type Reduction struct {
	// Latency is how long an aggregation node takes for a message that it has taken in, up or down.
	Latency ib.Time
	// PerMessage and PerByte are how long it takes each message of short vectors in, one after the other, and each byte
	// of it; a PerByte of 0 is what a byte takes on the fabric's fastest link, as if all came by one port.
	PerMessage, PerByte ib.Time
	// Multicast has results go to all ranks of a group of short vectors at once, besides down the tree.
	Multicast bool
	// OSTs is how many operations a group may have outstanding, StreamOSTs how many packets of a stream.
	OSTs, StreamOSTs int
	// Limits are what the aggregation node of a switch has places for.
	Limits aggregate.Limits
}

// Defaults of Reduction. The times are what published figures need, docs/VALIDATION.md says which. Scripts for
// Mellanox's own tests ask for 32 operations for 4 groups, eight each. A stream's window is more than what is on its
// way at 400 Gb/s. What switches have places for was not found anywhere, and is generous.
const (
	reduceLatency    = 490 * ib.Nanosecond
	reducePerMessage = 16 * ib.Nanosecond
	reduceOSTs       = 8
	reduceStreamOSTs = 64
)

var reduceLimits = aggregate.Limits{Trees: 64, Streams: 4, OSTs: 1024, Buffer: 64 << 20}

func (f *Fabric) reduction() Reduction {
	r := f.opt.Reduction
	r.Latency = cmp.Or(r.Latency, reduceLatency)
	r.PerMessage = cmp.Or(r.PerMessage, reducePerMessage)
	if r.PerByte == 0 {
		r.PerByte = ib.Time(math.Round(1 / slices.Max(f.Ways.Rates())))
	}
	r.OSTs = cmp.Or(r.OSTs, reduceOSTs)
	r.StreamOSTs = cmp.Or(r.StreamOSTs, reduceStreamOSTs)
	r.Limits = cmp.Or(r.Limits, reduceLimits)
	return r
}

// node is what an aggregation node is.
func (r *Reduction) node() aggregate.Config {
	return aggregate.Config{Limits: r.Limits, Latency: r.Latency, PerMessage: r.PerMessage, PerByte: r.PerByte}
}

// request is what a group asks the aggregation manager for.
func (r Reduction) request(g *job.Group) am.Request {
	q := am.Request{OSTs: r.OSTs, Payload: g.Payload, Stream: g.Stream, Multicast: r.Multicast}
	if g.Stream {
		q.OSTs = r.StreamOSTs
	}
	return q
}

// ErrReduction is matched where switches cannot do a group's operations, or have done them wrong.
var ErrReduction = errors.New("reduction by switches")

// groups are the groups of ranks that switches work for, by packets.
type groups struct {
	net  *Packets
	red  *sim.Reductions
	list []*group
	of   map[*sim.Reduction]*group
	err  error
}

// group is one of them.
type group struct {
	job.Group
	tree   *sim.Reduction
	member map[uint32]int
	ops    []groupOp // those that not all have done, from first on
	first  uint64
	next   []uint64 // by member: its next operation
	ids    []ib.Queue[uint32]
}

// groupOp is what an operation is.
type groupOp struct {
	way   job.Way
	peer  int
	bytes uint64
	typ   aggregate.Type
	left  int // members that have not done it
}

// SetGroups makes the groups' trees.
func (n *Packets) SetGroups(list []job.Group) error {
	c := n.f.reduction()
	g := n.groups
	g.of = map[*sim.Reduction]*group{}
	g.red = n.Reductions(sim.ReductionConfig{Node: c.node(), MTU: n.f.opt.MTU, RetryCnt: 7, Level: n.rep.Level,
		Fill: g.fill, Got: g.got,
		Failed: func(_ *sim.Reduction, member int, why aggregate.Reason) {
			g.fail("member %d: %v", member, why)
		}})
	for i := range list {
		x := &group{Group: list[i], member: map[uint32]int{}, next: make([]uint64, len(list[i].Ranks)),
			ids: make([]ib.Queue[uint32], len(list[i].Ranks))}
		var places []topo.PortRef
		for m, rank := range x.Ranks {
			if int(rank) >= n.f.Ranks() {
				return fmt.Errorf("%w: rank %d has no host: there are %d places", ErrReduction, rank, n.f.Ranks())
			}
			x.member[rank] = m
			places = append(places, n.f.Place(rank))
		}
		var err error
		if x.tree, err = g.red.Create(places, c.request(&x.Group)); err != nil {
			return fmt.Errorf("%w: group %d: %w", ErrReduction, i, err)
		}
		g.of[x.tree] = x
		g.list = append(g.list, x)
	}
	return nil
}

func (g *groups) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf("%w: at %v "+format, append([]any{ErrReduction, g.net.Now()}, args...)...)
	}
}

// start begins a rank's part in its group's next operation.
func (g *groups) start(m play.Message) error {
	x := g.list[m.Group-1]
	me := x.member[m.From]
	id := x.next[me]
	x.next[me]++
	o := groupOp{way: m.Way, peer: x.member[m.Peer], bytes: m.Size, typ: elements(m.Size), left: len(x.Ranks)}
	if id == x.first+uint64(len(x.ops)) {
		x.ops = append(x.ops, o)
	}
	op := aggregate.Operation{ID: id, Type: o.typ, Bytes: o.bytes, Target: aggregate.Everybody,
		From: aggregate.Everybody}
	switch m.Way {
	case job.Reduce:
		op.Target = uint32(o.peer)
	case job.Broadcast:
		op.From = uint32(o.peer)
	}
	x.ids[me].Push(m.ID)
	g.net.out++
	g.red.Start(x.tree, me, op)
	return g.err
}

// elements are what a vector is made of: integers of 32 bits if they fit.
func elements(bytes uint64) aggregate.Type {
	if bytes%4 == 0 {
		return aggregate.Uint32
	}
	return aggregate.Uint8
}

func (g *groups) serve(host int) error {
	if g.red != nil {
		g.red.ServeHost(host)
	}
	return g.err
}

// Vectors are such that every member's is another one, and that everybody knows the sum: element i of member m is
// a + m*b, with two numbers that i and the operation give.
func numbers(id, i uint64) (a, b uint32) {
	h := (id<<40 + i + 1) * 0x9E3779B97F4A7C15
	return uint32(h >> 32), uint32(h>>7) | 1
}

func (g *groups) fill(j *sim.Reduction, member int, id, offset uint64, vector []byte) {
	x := g.of[j]
	size := uint64(x.ops[id-x.first].typ.Size())
	for i := uint64(0); i < uint64(len(vector)); i += size {
		a, b := numbers(id, (offset+i)/size)
		put(vector[i:i+size], a+uint32(member)*b)
	}
}

func put(b []byte, v uint32) {
	if len(b) == 4 {
		binary.LittleEndian.PutUint32(b, v)
	} else {
		b[0] = byte(v)
	}
}

// is reports whether an element is what was put.
func is(b []byte, v uint32) bool {
	if len(b) == 4 {
		return binary.LittleEndian.Uint32(b) == v
	}
	return b[0] == byte(v)
}

// got holds a result against what it has to be.
func (g *groups) got(j *sim.Reduction, member int, n aggregate.News) {
	x := g.of[j]
	o := &x.ops[n.ID-x.first]
	size, k := uint64(o.typ.Size()), uint32(len(x.Ranks))
	for i := uint64(0); i < uint64(len(n.Vector)); i += size {
		a, b := numbers(n.ID, (n.Offset+i)/size)
		sum := k*a + uint32(uint64(k)*uint64(k-1)/2)*b
		if o.way == job.Broadcast {
			sum = a + uint32(o.peer)*b
		}
		if !is(n.Vector[i:i+size], sum) {
			g.fail("rank %d has got %x as element %d of operation %d: want the low bytes of %x", x.Ranks[member],
				n.Vector[i:i+size], (n.Offset+i)/size, n.ID, sum)
			return
		}
	}
	if o.way == job.Reduce && (len(n.Vector) > 0) != (member == o.peer && o.bytes > 0) {
		g.fail("rank %d has got %d bytes of a result for rank %d", x.Ranks[member], len(n.Vector), x.Ranks[o.peer])
	}
	if !n.Over {
		return
	}
	message, _ := x.ids[member].Pop()
	g.net.ready.Push(done{id: message})
	g.net.out--
	for o.left--; len(x.ops) > 0 && x.ops[0].left == 0; x.first++ {
		x.ops = x.ops[1:]
	}
}
