package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"softib/job"
)

// ErrCollective is what every refusal is.
var ErrCollective = errors.New("a collective operation that cannot be done")

// Part is what a message carries: pieces of the data by number, and whether the receiver adds them to its own.
type Part struct {
	From, To int // members
	Tag      uint32
	Pieces   []int32
	Add      bool
}

// Group is ranks that do things together. Members are numbered from 0.
type Group struct {
	// Note has the group write down in Parts what each message carries.
	Note  bool
	Parts []Part
	// AddTime is how many picoseconds a byte takes that is added to another; 0 for no time.
	AddTime uint64
	// CPU and NIC are what the members' operations use.
	CPU, NIC uint8
	// Payload is how many bytes of a short vector the network takes at a time, in algorithms that it does; 0 is
	// SharpPayload.
	Payload int

	b     *job.Builder
	ranks []int
	front [][]uint32 // by member: what its next operation waits for
	step  [][]uint32 // and what it does now
	added []uint64   // bytes that it has to add to its own after that
	tag   uint32
	most  uint32     // see NewCounter
	nets  [2]*uint32 // the job's groups that the network works for, short and streaming
}

// NewGroup makes a group that has done nothing.
func NewGroup(b *job.Builder, ranks []int) *Group {
	return &Group{b: b, ranks: ranks, front: make([][]uint32, len(ranks)), step: make([][]uint32, len(ranks)),
		added: make([]uint64, len(ranks))}
}

// NewCounter makes a group that sends nothing and counts what it would send, up to a limit, beyond which there is an
// error: a ring of ten thousand ranks has more messages than fit into memory, which is to be said before it is full.
func NewCounter(members int, most uint32) *Group {
	g := NewGroup(nil, make([]int, members))
	g.most = most
	return g
}

// Messages counts what the group has sent.
func (g *Group) Messages() int { return int(g.tag) }

// Size counts the members.
func (g *Group) Size() int { return len(g.ranks) }

// Compute lets every member work for so many nanoseconds.
func (g *Group) Compute(ns uint64) {
	for m := range g.ranks {
		op := g.b.Add(g.ranks[m], job.Op{Kind: job.Calc, Size: ns, CPU: g.CPU})
		g.b.After(g.ranks[m], op, g.front[m]...)
		g.front[m] = []uint32{op}
	}
}

// tooMany ends an algorithm that goes beyond a counter's limit; limited makes an error of it.
type tooMany struct{}

// limited does something, up to the group's limit.
func (g *Group) limited(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooMany:
			err = fmt.Errorf("%w: %d ranks would send more than %d messages; next: take a smaller count, or another "+
				"algorithm", ErrCollective, g.Size(), g.most)
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

// message is one of the step: it begins when its sender has done the last step, and the receiver's next waits for it.
func (g *Group) message(from, to int, bytes uint64, add bool, pieces func() []int32) {
	if g.b == nil {
		if g.tag++; g.tag > g.most {
			panic(tooMany{})
		}
		return
	}
	if g.Note {
		g.Parts = append(g.Parts, Part{From: from, To: to, Tag: g.tag, Pieces: pieces(), Add: add})
	}
	s := g.b.Add(g.ranks[from], job.Op{Kind: job.Send, Peer: uint32(g.ranks[to]), Size: bytes, Tag: g.tag, CPU: g.CPU,
		NIC: g.NIC})
	g.b.After(g.ranks[from], s, g.front[from]...)
	r := g.b.Add(g.ranks[to], job.Op{Kind: job.Recv, Peer: uint32(g.ranks[from]), Size: bytes, Tag: g.tag, CPU: g.CPU,
		NIC: g.NIC})
	g.b.After(g.ranks[to], r, g.front[to]...)
	g.step[from] = append(g.step[from], s)
	g.step[to] = append(g.step[to], r)
	if add {
		g.added[to] += bytes
	}
	g.tag++
}

// next ends a step: whoever did something in it goes on from there. What came is added when all of the step is over:
// till then its own is on its way to others.
func (g *Group) next() {
	for m := range g.step {
		if len(g.step[m]) > 0 {
			g.front[m], g.step[m] = g.step[m], nil
			g.front[m] = g.sum(m, g.front[m])
		}
	}
}

// sum adds what came to a member, after some operations, and returns what to wait for then.
func (g *Group) sum(m int, after []uint32) []uint32 {
	ns := g.added[m] * g.AddTime / 1000
	g.added[m] = 0
	if ns == 0 {
		return after
	}
	op := g.b.Add(g.ranks[m], job.Op{Kind: job.Calc, Size: ns, CPU: g.CPU})
	g.b.After(g.ranks[m], op, after...)
	return []uint32{op}
}

// share is how many of some bytes piece i of n has.
func share(bytes uint64, i, n int) uint64 {
	each, more := bytes/uint64(n), bytes%uint64(n)
	if uint64(i) < more {
		return each + 1
	}
	return each
}

// span is the bytes of pieces from lo up to hi of n.
func span(bytes uint64, lo, hi, n int) (sum uint64) {
	for i := lo; i < hi; i++ {
		sum += share(bytes, i, n)
	}
	return sum
}

// pieces lists numbers from lo up to hi, when somebody asks.
func pieces(lo, hi int) func() []int32 {
	return func() []int32 {
		list := make([]int32, 0, hi-lo)
		for i := lo; i < hi; i++ {
			list = append(list, int32(i))
		}
		return list
	}
}

// algorithm is a way to do a collective.
type algorithm struct {
	name string
	do   func(g *Group, bytes uint64)
}

// pick finds an algorithm by its name.
func pick(what, name string, list []algorithm) (func(g *Group, bytes uint64), error) {
	if i := slices.IndexFunc(list, func(a algorithm) bool { return a.name == name }); i >= 0 {
		return list[i].do, nil
	}
	return nil, fmt.Errorf("%w: %s by %q: want %s", ErrCollective, what, name, strings.Join(names(list), ", "))
}

func names(list []algorithm) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].name
	}
	return out
}

// Operation is a collective that can be asked for by name.
type Operation struct {
	Name, Help string
	algorithms []algorithm
	choose     func(bytes uint64, members int) string
}

// Algorithms are the names of the ways to do it.
func (o *Operation) Algorithms() []string { return names(o.algorithms) }

// Operations are all of them.
func Operations() []Operation { return operations }

// ByName finds an operation.
func ByName(name string) (*Operation, error) {
	var all []string
	for i := range operations {
		if operations[i].Name == name {
			return &operations[i], nil
		}
		all = append(all, operations[i].Name)
	}
	return nil, fmt.Errorf("%w: %q: want one of %s", ErrCollective, name, strings.Join(all, ", "))
}

// Do lets a group do an operation on so many bytes: what a member has in the beginning, or has in the end, whichever is
// more. An empty algorithm is chosen by size and number.
func (o *Operation) Do(g *Group, bytes uint64, name string) error {
	if name == "" {
		name = o.choose(bytes, g.Size())
	}
	do, err := pick(o.Name, name, o.algorithms)
	if err != nil {
		return err
	}
	if g.Size() < 2 {
		return nil
	}
	return g.limited(func() { do(g, bytes) })
}

// AllReduce gives every member the sum of all members' bytes.
func (g *Group) AllReduce(bytes uint64, algorithm string) error {
	return operations[0].Do(g, bytes, algorithm)
}

var operations []Operation

func init() {
	small := func(limit uint64, less, more string) func(uint64, int) string {
		return func(bytes uint64, _ int) string {
			if bytes <= limit {
				return less
			}
			return more
		}
	}
	operations = []Operation{
		{"all-reduce", "every rank gets the sum of all", []algorithm{{"ring", ringAllReduce},
			{"recursive-doubling", doublingAllReduce}, {"halving-doubling", halvingDoubling},
			{"double-tree", doubleTree}, {Sharp, sharpAllReduce}}, chooseAllReduce},
		{"reduce-scatter", "every rank gets its share of the sum", []algorithm{{"ring", ringReduceScatter},
			{"halving", halvingReduceScatter}}, small(512<<10, "halving", "ring")},
		{"all-gather", "every rank gets what all have", []algorithm{{"ring", ringAllGather},
			{"doubling", doublingAllGather}, {"bruck", bruckAllGather}}, small(80<<10, "bruck", "ring")},
		{"broadcast", "every rank gets what rank 0 has", []algorithm{{"binomial", binomialBroadcast},
			{"scatter-all-gather", scatterAllGather}, {"chain", chainBroadcast}, {Sharp, sharpBroadcast}},
			small(512<<10, "binomial", "scatter-all-gather")},
		{"reduce", "rank 0 gets the sum of all", []algorithm{{"binomial", binomialReduce}, {Sharp, sharpReduce}},
			small(0, "binomial", "binomial")},
		{"scatter", "every rank gets its share of what rank 0 has", []algorithm{{"binomial", binomialScatter},
			{"linear", linearScatter}}, small(0, "binomial", "binomial")},
		{"gather", "rank 0 gets what all have", []algorithm{{"binomial", binomialGather}, {"linear", linearGather}},
			small(0, "binomial", "binomial")},
		{"all-to-all", "every rank sends another part to each other", []algorithm{{"pairwise", pairwise},
			{"direct", direct}, {"bruck", bruckAllToAll}}, small(256*8, "bruck", "pairwise")},
		{"barrier", "nobody goes on before all are there", []algorithm{{"dissemination", dissemination},
			{Sharp, sharpBarrier}}, small(0, "dissemination", "dissemination")},
	}
}

// chooseAllReduce is what MPI libraries do, roughly: few steps for short messages, few bytes for long ones, and a ring
// where it is not too long.
func chooseAllReduce(bytes uint64, members int) string {
	switch {
	case bytes <= 10<<10:
		return "recursive-doubling"
	case bytes >= uint64(members)<<20 && members <= 512:
		return "ring"
	case bytes >= 1<<20:
		return "double-tree"
	}
	return "halving-doubling"
}
