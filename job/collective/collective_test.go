package collective

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"softib/job"
)

// trial is a collective of n ranks whose contents are followed: what each rank has of each piece, as the set of those
// who have contributed to it.
type trial struct {
	t     *testing.T
	name  string
	n     int
	have  []map[int32]uint64
	parts map[string]Part
	s     *job.Schedule
}

func newTrial(t *testing.T, op *Operation, algorithm string, n int, bytes uint64) *trial {
	return followed(t, op.Name, algorithm, n, func(g *Group) error { return op.Do(g, bytes, algorithm) })
}

func followed(t *testing.T, op, algorithm string, n int, do func(*Group) error) *trial {
	x := &trial{t: t, name: fmt.Sprintf("%s by %s of %d", op, algorithm, n), n: n, parts: map[string]Part{}}
	b := job.NewBuilder(n)
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = (i*7 + 3) % n // members are not in the order of ranks, where 7 lets them
	}
	if n%7 == 0 {
		for i := range ranks {
			ranks[i] = i
		}
	}
	member := make([]int, n)
	for m, r := range ranks {
		member[r] = m
	}
	g := NewGroup(b, ranks)
	g.AddTime = 10
	g.Note = true
	if err := do(g); err != nil {
		t.Fatal(err)
	}
	for _, p := range g.Parts {
		x.parts[fmt.Sprint(ranks[p.From], ranks[p.To], p.Tag)] = p
	}
	s, err := b.Schedule()
	if err != nil {
		t.Fatalf("%s: %v", x.name, err)
	}
	x.s = s
	x.have = make([]map[int32]uint64, n)
	for m := range n {
		x.have[m] = map[int32]uint64{}
	}
	x.fill(op)
	x.play(member)
	x.want(op)
	return x
}

// count is how many pieces the messages speak of.
func (x *trial) count() int32 {
	most := int32(1)
	for _, p := range x.parts {
		for _, piece := range p.Pieces {
			most = max(most, piece+1)
		}
	}
	return most
}

// fill is what members have in the beginning.
func (x *trial) fill(op string) {
	for m := range x.n {
		own := uint64(1) << m
		switch op {
		case "all-reduce", "reduce-scatter", "reduce":
			for piece := range x.count() {
				x.have[m][piece] = own
			}
		case "all-gather", "gather", "barrier":
			x.have[m][int32(m)] = own
		case "broadcast", "scatter":
			for piece := range x.count() {
				if m == 0 {
					x.have[m][piece] = own
				}
			}
		case "all-to-all":
			for to := range x.n {
				x.have[m][int32(m*x.n+to)] = own
			}
		}
	}
}

// play does the operations, each as soon as it may but in an order by chance: what is right must not depend on it.
func (x *trial) play(member []int) {
	type state struct {
		left []uint32
		done []bool
	}
	r := rand.New(rand.NewPCG(uint64(x.n), uint64(len(x.parts))))
	ranks := make([]state, x.n)
	undone := 0
	for i := range ranks {
		ops := x.s.Ranks[i].Ops
		ranks[i] = state{left: make([]uint32, len(ops)), done: make([]bool, len(ops))}
		undone += len(ops)
		for n := range ops {
			ranks[i].left[n] = x.s.Ranks[i].Waits(uint32(n))
		}
	}
	// What is added lies beside the receiver's own until an operation that waited for it begins.
	type beside struct {
		part Part
		got  map[int32]uint64
	}
	before := make([]map[int][]int, x.n)
	aside := make([]map[int]beside, x.n)
	for i := range x.n {
		before[i], aside[i] = map[int][]int{}, map[int]beside{}
		for n := range x.s.Ranks[i].Ops {
			for _, next := range x.s.Ranks[i].Ended(uint32(n)) {
				before[i][int(next)] = append(before[i][int(next)], n)
			}
		}
	}
	add := func(i, n int) {
		if b, ok := aside[i][n]; ok {
			x.take(b.part, member[i], b.got)
			delete(aside[i], n)
		}
	}
	mail := map[string]map[int32]uint64{}
	for moved := true; moved; {
		moved = false
		for _, i := range r.Perm(x.n) {
			ops := x.s.Ranks[i].Ops
			for _, n := range r.Perm(len(ops)) {
				o := &ops[n]
				if ranks[i].done[n] || ranks[i].left[n] > 0 {
					continue
				}
				for _, on := range before[i][n] {
					add(i, on)
				}
				switch o.Kind {
				case job.Send:
					key := fmt.Sprint(i, o.Peer, o.Tag)
					mail[key] = x.carry(x.parts[key], member[i])
				case job.Recv:
					key := fmt.Sprint(o.Peer, i, o.Tag)
					if mail[key] == nil {
						continue
					}
					if aside[i][n] = (beside{x.parts[key], mail[key]}); !x.parts[key].Add {
						add(i, n)
					}
				}
				ranks[i].done[n] = true
				moved = true
				undone--
				for _, next := range append(x.s.Ranks[i].Ended(uint32(n)), x.s.Ranks[i].Begun(uint32(n))...) {
					ranks[i].left[next]--
				}
			}
		}
	}
	for i := range x.n {
		for n := range x.s.Ranks[i].Ops {
			add(i, n)
		}
	}
	if undone > 0 {
		x.t.Fatalf("%s: %d operations wait for ever", x.name, undone)
	}
}

// carry is what a message takes along.
func (x *trial) carry(p Part, from int) map[int32]uint64 {
	out := map[int32]uint64{}
	for _, piece := range p.Pieces {
		set, ok := x.have[from][piece]
		if !ok {
			x.t.Errorf("%s: member %d sends piece %d and does not have it", x.name, from, piece)
		}
		out[piece] = set
	}
	return out
}

// take is what a receiver makes of it.
func (x *trial) take(p Part, to int, got map[int32]uint64) {
	for piece, set := range got {
		if !p.Add {
			x.have[to][piece] = set
			continue
		}
		if both := x.have[to][piece] & set; both != 0 {
			x.t.Errorf("%s: member %d adds the part of %d to piece %d twice", x.name, to,
				bits.TrailingZeros64(both), piece)
		}
		x.have[to][piece] |= set
	}
}

// want compares with what the operation should give.
func (x *trial) want(op string) {
	all := uint64(1)<<x.n - 1
	is := func(m int, piece int32, want uint64) {
		if got := x.have[m][piece]; got != want {
			x.t.Errorf("%s: member %d has %b of piece %d, want %b", x.name, m, got, piece, want)
		}
	}
	for m := range x.n {
		switch op {
		case "all-reduce":
			for piece := range x.count() {
				is(m, piece, all)
			}
		case "reduce-scatter":
			is(m, int32(m), all)
		case "all-gather", "barrier":
			for piece := range int32(x.n) {
				is(m, piece, 1<<piece)
			}
		case "broadcast":
			for piece := range x.count() {
				is(m, piece, 1)
			}
		case "scatter":
			is(m, int32(m), 1)
		case "reduce":
			is(0, 0, all)
		case "gather":
			is(0, int32(m), 1<<m)
		case "all-to-all":
			for from := range x.n {
				is(m, int32(from*x.n+m), 1<<from)
			}
		}
	}
}

// TestContents follows every operation by every algorithm, for numbers of ranks that are powers of two and not.
func TestContents(t *testing.T) {
	for i := range operations {
		op := &operations[i]
		for _, algorithm := range append(op.Algorithms(), "") {
			if algorithm == Sharp {
				continue // switches have the contents; see TestSharp, and package jobs for the sums
			}
			for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 32} {
				newTrial(t, op, algorithm, n, 3<<20+5)
			}
		}
	}
}

// TestHierarchical follows all-reduces over hosts of several ranks.
func TestHierarchical(t *testing.T) {
	for _, c := range [][2]int{{8, 2}, {12, 3}, {24, 8}, {6, 6}, {5, 1}, {16, 4}} {
		for _, algorithm := range []string{"ring", "recursive-doubling"} {
			followed(t, "all-reduce", fmt.Sprintf("hosts of %d and %s", c[1], algorithm), c[0], func(g *Group) error {
				return g.Hierarchical(1<<20, c[1], algorithm)
			})
		}
	}
	if err := NewGroup(job.NewBuilder(6), []int{0, 1, 2, 3, 4, 5}).Hierarchical(8, 4, "ring"); err == nil {
		t.Error("six ranks are hosts of four")
	}
}

// TestBytes: what ranks send is what the literature says.
func TestBytes(t *testing.T) {
	const bytes = 1 << 20
	for _, c := range []struct {
		op, algorithm string
		n             int
		most          float64 // that a rank sends, by the bytes
	}{
		{"all-reduce", "ring", 16, 2 * 15.0 / 16}, {"all-reduce", "recursive-doubling", 16, 4},
		{"all-reduce", "halving-doubling", 16, 2 * 15.0 / 16}, {"reduce-scatter", "ring", 8, 7.0 / 8},
		{"reduce-scatter", "halving", 8, 7.0 / 8}, {"all-gather", "ring", 8, 7.0 / 8},
		{"all-gather", "bruck", 8, 7.0 / 8},
		{"broadcast", "binomial", 8, 3}, {"all-to-all", "pairwise", 8, 7.0 / 8}, {"all-to-all", "bruck", 8, 1.5},
		{"barrier", "dissemination", 8, 0}, {"all-reduce", "double-tree", 64, 2.6},
	} {
		op, err := ByName(c.op)
		if err != nil {
			t.Fatal(err)
		}
		x := newTrial(t, op, c.algorithm, c.n, bytes)
		most := 0.0
		for i := range x.s.Ranks {
			sum := 0.0
			for _, o := range x.s.Ranks[i].Ops {
				if o.Kind == job.Send {
					sum += float64(o.Size)
				}
			}
			most = max(most, sum/bytes)
		}
		if most < c.most*0.999-1e-9 && c.algorithm != "double-tree" || most > c.most*1.001 {
			t.Errorf("%s: a rank sends %.4f of the bytes, want %.4f", x.name, most, c.most)
		}
	}
}

// TestCounter: a counter counts what a group sends, and refuses what is beyond its limit.
func TestCounter(t *testing.T) {
	for i := range operations {
		op := &operations[i]
		for _, algorithm := range op.Algorithms() {
			if algorithm == Sharp {
				continue
			}
			for _, n := range []int{2, 7, 16} {
				x := newTrial(t, op, algorithm, n, 5<<20)
				_, sent, _ := x.s.Count()
				c := NewCounter(n, uint32(sent))
				if err := op.Do(c, 5<<20, algorithm); err != nil || c.Messages() != sent {
					t.Errorf("%s: %d messages, counted %d: %v", x.name, sent, c.Messages(), err)
				}
				if err := op.Do(NewCounter(n, uint32(sent-1)), 5<<20, algorithm); !errors.Is(err, ErrCollective) {
					t.Errorf("%s: one message too many: %v", x.name, err)
				}
			}
		}
	}
	if c := NewCounter(8, 64); c.Hierarchical(800, 2, "ring") != nil || c.Messages() != 64 {
		t.Errorf("a ring of hosts with two ranks: %d messages", c.Messages())
	}
	if err := NewCounter(8, 63).Hierarchical(800, 2, "ring"); !errors.Is(err, ErrCollective) {
		t.Errorf("one message too many: %v", err)
	}
	if err := NewCounter(100_000, 1000).AllReduce(8, "ring"); !errors.Is(err, ErrCollective) {
		t.Errorf("a ring of a hundred thousand: %v", err)
	}
}

// TestRefused: names that are none.
func TestRefused(t *testing.T) {
	if _, err := ByName("dance"); err == nil {
		t.Error("dance is an operation")
	}
	if err := NewGroup(job.NewBuilder(2), []int{0, 1}).AllReduce(8, "dance"); err == nil {
		t.Error("dance is an algorithm")
	}
}
