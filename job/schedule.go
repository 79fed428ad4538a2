package job

import "fmt"

// Kind says what an operation is.
type Kind uint8

// Kinds of operations.
const (
	Send Kind = iota + 1
	Recv
	Calc
	// Aggregate is a rank's part in an operation of a group that the network does.
	Aggregate
)

func (k Kind) String() string {
	switch k {
	case Send:
		return "send"
	case Recv:
		return "recv"
	case Calc:
		return "calc"
	case Aggregate:
		return "aggregate"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Any as the peer or the tag of a Recv takes what comes.
const Any = ^uint32(0)

// Op is an operation of a rank.
type Op struct {
	// Size is in bytes; a calculation's is in nanoseconds.
	Size uint64
	// Peer is the rank at the other end, and Tag tells messages between the same two apart. Of an Aggregate, Tag is the
	// group, and Peer the rank that Way is about.
	Peer, Tag uint32
	// CPU is which of the rank's processors does it, NIC by which of its ports a message goes.
	CPU, NIC uint8
	Kind     Kind
	// Way is what an Aggregate does.
	Way Way
}

// Way is who gives and who gets in an operation of the network.
type Way uint8

// Ways.
const (
	AllReduce Way = iota // everybody gives and gets; with no bytes, a barrier
	Reduce               // everybody gives, and Op.Peer gets
	Broadcast            // Op.Peer gives, and everybody gets
)

// Group is ranks that have operations done by the network. All of them do the same ones, in the same order.
type Group struct {
	Ranks []uint32
	// Payload is how many bytes of an operation the network takes at a time. Stream asks for a way of doing it that
	// keeps links full, of which there are few.
	Payload int
	Stream  bool
}

func (o Op) String() string {
	word := func(v uint32) string {
		if v == Any {
			return "any"
		}
		return fmt.Sprint(v)
	}
	switch o.Kind {
	case Send:
		return fmt.Sprintf("send of %d bytes to rank %d with tag %s", o.Size, o.Peer, word(o.Tag))
	case Recv:
		return fmt.Sprintf("receive of %d bytes from rank %s with tag %s", o.Size, word(o.Peer), word(o.Tag))
	case Aggregate:
		return fmt.Sprintf("operation of group %d on %d bytes", o.Tag, o.Size)
	}
	return fmt.Sprintf("calculation of %d ns", o.Size)
}

// Rank is what one rank does. Operations are numbered from 0; one may begin when all that it waits for have ended, or,
// where that is enough, begun.
type Rank struct {
	Ops []Op
	// Lines are where a file has the operations; nil if they are not from a file.
	Lines []uint32

	waits  []uint32 // how many others each one waits for
	next   []uint32 // who waits for an operation: first those for its end, then those for its beginning
	bounds []uint32 // where in next: 2i for the end of i, 2i+1 for its beginning, up to the following
}

// Waits is how many operations one waits for.
func (r *Rank) Waits(op uint32) uint32 { return r.waits[op] }

// Ended are those who wait for an operation's end, in the order in which they were told to.
func (r *Rank) Ended(op uint32) []uint32 { return r.next[r.bounds[2*op]:r.bounds[2*op+1]] }

// Begun are those who wait for an operation's beginning.
func (r *Rank) Begun(op uint32) []uint32 { return r.next[r.bounds[2*op+1]:r.bounds[2*op+2]] }

// Schedule is what all ranks do. It is not changed by running it.
type Schedule struct {
	Ranks []Rank
	// CPUs and NICs are how many of them a rank needs.
	CPUs, NICs int
	// Groups are those of Aggregates.
	Groups []Group
}

// Count adds up what there is: operations, messages and their bytes. A part in an operation of the network is one.
func (s *Schedule) Count() (ops, messages int, bytes uint64) {
	for i := range s.Ranks {
		ops += len(s.Ranks[i].Ops)
		for _, o := range s.Ranks[i].Ops {
			if o.Kind == Send || o.Kind == Aggregate {
				messages++
				bytes += o.Size
			}
		}
	}
	return ops, messages, bytes
}

// edge is a wait: op may begin when another one of its rank has ended, or begun.
type edge struct {
	op, on uint32
	begun  bool
}

// Builder makes a Schedule.
type Builder struct {
	ranks  []Rank
	edges  [][]edge
	groups []Group
	line   uint32
}

// NewBuilder makes one for so many ranks.
func NewBuilder(ranks int) *Builder {
	return &Builder{ranks: make([]Rank, ranks), edges: make([][]edge, ranks)}
}

// Line says which line of a file the next operations are from.
func (b *Builder) Line(n int) { b.line = uint32(n) }

// Add adds an operation and returns its number.
func (b *Builder) Add(rank int, o Op) uint32 {
	r := &b.ranks[rank]
	r.Ops = append(r.Ops, o)
	if b.line != 0 {
		r.Lines = append(r.Lines, b.line)
	}
	return uint32(len(r.Ops) - 1)
}

// Send adds a message to another rank.
func (b *Builder) Send(rank, to int, bytes uint64, tag uint32) uint32 {
	return b.Add(rank, Op{Kind: Send, Peer: uint32(to), Size: bytes, Tag: tag})
}

// Recv adds a message from another rank.
func (b *Builder) Recv(rank, from int, bytes uint64, tag uint32) uint32 {
	return b.Add(rank, Op{Kind: Recv, Peer: uint32(from), Size: bytes, Tag: tag})
}

// Calc adds a calculation.
func (b *Builder) Calc(rank int, ns uint64) uint32 { return b.Add(rank, Op{Kind: Calc, Size: ns}) }

// Group adds a group, and returns its number.
func (b *Builder) Group(g Group) uint32 {
	b.groups = append(b.groups, g)
	return uint32(len(b.groups) - 1)
}

// Aggregate adds a rank's part in an operation of a group. Peer is whom the way is about.
func (b *Builder) Aggregate(rank int, group uint32, way Way, peer int, bytes uint64) uint32 {
	return b.Add(rank, Op{Kind: Aggregate, Way: way, Peer: uint32(peer), Size: bytes, Tag: group})
}

// After makes an operation wait for the end of others of its rank.
func (b *Builder) After(rank int, op uint32, on ...uint32) {
	for _, o := range on {
		b.edges[rank] = append(b.edges[rank], edge{op: op, on: o})
	}
}

// AfterBegun makes an operation wait for the beginning of others of its rank.
func (b *Builder) AfterBegun(rank int, op uint32, on ...uint32) {
	for _, o := range on {
		b.edges[rank] = append(b.edges[rank], edge{op: op, on: o, begun: true})
	}
}

// Schedule is what was built, checked. The Builder is not used again.
func (b *Builder) Schedule() (*Schedule, error) {
	s := &Schedule{Ranks: b.ranks, CPUs: 1, NICs: 1, Groups: b.groups}
	for i := range s.Ranks {
		s.Ranks[i].link(b.edges[i])
		b.edges[i] = nil
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// link lays the waits out by who is waited for, each one's in the order in which they came.
func (r *Rank) link(edges []edge) {
	n := len(r.Ops)
	r.waits = make([]uint32, n)
	r.bounds = make([]uint32, 2*n+1)
	slot := func(e edge) uint32 {
		if e.begun {
			return 2*e.on + 1
		}
		return 2 * e.on
	}
	for _, e := range edges {
		r.waits[e.op]++
		r.bounds[slot(e)+1]++
	}
	for i := range 2 * n {
		r.bounds[i+1] += r.bounds[i]
	}
	r.next = make([]uint32, len(edges))
	at := append([]uint32(nil), r.bounds[:2*n]...)
	for _, e := range edges {
		r.next[at[slot(e)]] = e.op
		at[slot(e)]++
	}
}
