package aggregate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
)

// world is a tree of nodes with members at its ends, and connections on which messages take any time but keep their
// order.
type world struct {
	t       *testing.T
	r       *rand.Rand
	tree    uint32
	nodes   []*Node
	parent  []int   // by node; -1 for the root
	place   []int   // by node: which child of its parent
	kids    [][]int // by node: nodes, and then members as -1-m
	members []*Member
	leaf    []int // by member
	slot    []int // and which child of its leaf
	below   [][]uint32
	wires   map[[3]int]*[][]byte // from, to, whether it is the root's multicast
	keys    [][3]int
	cut     map[[3]int]bool
	now     ib.Time
	got     []map[uint64][]byte // by member: what has come of each operation
	again   int
	osts    int
	payload int
	casts   *rand.Rand // which multicasts get lost; nil if there are none
	cast    int        // results that have come by multicast
}

func newWorld(t *testing.T, seed uint64, members int) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), tree: 1}
	w.osts, w.payload = 1+w.r.IntN(6), 8*(1+w.r.IntN(8))
	if seed%2 == 1 {
		w.casts = rand.New(rand.NewPCG(seed, 8))
	}
	for i := range members {
		w.members = append(w.members, NewMember(Place{Tree: 1, Me: uint32(i), OSTs: w.osts, Payload: w.payload}))
		w.got = append(w.got, map[uint64][]byte{})
	}
	w.grow()
	return w
}

// grow makes a tree by chance.
func (w *world) grow() {
	n := 1 + w.r.IntN(min(5, len(w.members)))
	w.nodes, w.parent, w.place, w.kids = nil, make([]int, n), make([]int, n), make([][]int, n)
	w.leaf, w.slot, w.below = make([]int, len(w.members)), make([]int, len(w.members)), make([][]uint32, n)
	w.wires, w.keys, w.cut = map[[3]int]*[][]byte{}, nil, map[[3]int]bool{}
	for i := range n {
		w.parent[i] = -1
		if i > 0 {
			w.parent[i] = w.r.IntN(i)
		}
	}
	for m := range w.members {
		w.leaf[m] = w.r.IntN(n)
		if m < n {
			w.leaf[m] = m // everybody has somebody
		}
	}
	for i := n - 1; i >= 0; i-- {
		for m := range w.members {
			if w.leaf[m] == i {
				w.slot[m] = len(w.kids[i])
				w.kids[i] = append(w.kids[i], -1-m)
			}
		}
		if p := w.parent[i]; p >= 0 {
			w.place[i] = len(w.kids[p])
			w.kids[p] = append(w.kids[p], i)
		}
	}
	for i := range n {
		node := New(Config{Limits: Limits{1, 1, w.osts, 1 << 20}, Latency: 5})
		tree := Tree{ID: w.tree, HasUp: w.parent[i] >= 0, OSTs: w.osts, Payload: w.payload, Multicast: w.casts != nil}
		for _, k := range w.kids[i] {
			tree.Children = append(tree.Children, Child{Members: w.under(k)})
		}
		if err := node.Add(tree); err != nil {
			w.t.Fatal(err)
		}
		w.nodes = append(w.nodes, node)
	}
}

// under are the members below a child.
func (w *world) under(k int) (list []uint32) {
	for m := range w.members {
		at := w.leaf[m]
		if k == -1-m {
			return []uint32{uint32(m)}
		}
		for ; at >= 0; at = w.parent[at] {
			if at == k {
				list = append(list, uint32(m))
			}
		}
	}
	return list
}

// put sends a message from one to another: nodes are numbers from 0, members -1-m.
func (w *world) put(from, to int, b []byte) { w.putTo([3]int{from, to}, b) }

func (w *world) putTo(k [3]int, b []byte) {
	if w.wires[k] == nil {
		w.wires[k] = &[][]byte{}
		w.keys = append(w.keys, k)
	}
	if !w.cut[k] {
		*w.wires[k] = append(*w.wires[k], bytes.Clone(b))
	}
}

const vectorMax = 400

// vector is what a member has: floating-point numbers, whose sum depends on the order.
func vector(member uint32, id uint64, size int) []byte {
	b := make([]byte, 0, size)
	r := rand.New(rand.NewPCG(uint64(member), id))
	for len(b)+4 <= size {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.Float32()*1000))
	}
	return b
}

// want is the sum in the order of the tree.
func (w *world) want(id uint64, size, at int) []byte {
	var sum []byte
	for _, k := range w.kids[at] {
		v := vector(uint32(-1-k), id, size)
		if k >= 0 {
			v = w.want(id, size, k)
		}
		if sum == nil {
			sum = v
		} else {
			Combine(Sum, Float32, sum, v)
		}
	}
	return sum
}

// step moves one message, or lets time pass. It reports false if there is nothing to do.
func (w *world) step() bool {
	for m, mem := range w.members {
		for s, ok := mem.Poll(); ok; s, ok = mem.Poll() {
			b := s.Append(nil)
			if s.Bytes > 0 {
				b = append(b, vector(uint32(m), s.ID, vectorMax)[s.Offset:][:s.Bytes]...)
			}
			w.put(-1-m, w.leaf[m], b)
		}
	}
	next := ib.Never
	for i, n := range w.nodes {
		for o, ok := n.Poll(w.now); ok; o, ok = n.Poll(w.now) {
			switch o.To {
			case Up:
				w.put(i, w.parent[i], o.Data)
			case All:
				for m := range w.members {
					if w.casts.IntN(4) > 0 {
						w.putTo([3]int{i, -1 - m, 1}, o.Data)
					}
				}
			default:
				w.put(i, w.kids[i][o.To], o.Data)
			}
		}
		next = min(next, n.NextDeadline())
	}
	var full [][3]int
	for _, k := range w.keys {
		if len(*w.wires[k]) > 0 {
			full = append(full, k)
		}
	}
	if len(full) == 0 {
		if next == ib.Never {
			return false
		}
		w.now = next
		return true
	}
	k := full[w.r.IntN(len(full))]
	b := (*w.wires[k])[0]
	*w.wires[k] = (*w.wires[k])[1:]
	w.now++
	from, to := k[0], k[1]
	switch {
	case to < 0:
		handle := w.members[-1-to].HandleMessage
		if k[2] == 1 {
			handle = w.members[-1-to].HandleMulticast
		}
		if n, ok := handle(w.now, b); ok {
			w.cast += k[2]
			if n.Again {
				w.again++
			} else {
				w.got[-1-to][n.ID] = append(w.got[-1-to][n.ID], n.Vector...)
			}
		}
	case from < 0:
		w.nodes[to].HandleMessage(w.now, w.tree, w.slot[-1-from], b)
	case w.parent[to] == from:
		w.nodes[to].HandleMessage(w.now, w.tree, Up, b)
	default:
		w.nodes[to].HandleMessage(w.now, w.tree, w.place[from], b)
	}
	return true
}

// TestSums: whatever the tree and the order in which messages come, every member gets the sum in the order of the tree.
func TestSums(t *testing.T) {
	cast := 0
	for seed := range uint64(40) {
		w := newWorld(t, seed, 5+int(seed%6))
		sizes := []uint64{4, 0, 100, 4 * uint64(1+w.r.IntN(100)), 4}
		for _, mem := range w.members {
			for id, size := range sizes {
				o := Operation{ID: uint64(id), Type: Float32, Bytes: size, Target: Everybody, From: Everybody}
				if id == 2 {
					o.From = 3
				}
				if id == 4 {
					o.Target = 2
				}
				mem.Start(0, o)
			}
		}
		for range 200_000 {
			if !w.step() {
				break
			}
		}
		for m, mem := range w.members {
			if !mem.Idle() || mem.Failed() != NoReason {
				t.Fatalf("seed %d: member %d has done %d: %v", seed, m, mem.Done(), mem.Failed())
			}
			for id, size := range sizes {
				want := w.want(uint64(id), vectorMax, 0)[:size]
				if id == 2 {
					want = vector(3, 2, vectorMax)[:size]
				}
				if id == 4 && m != 2 {
					want = nil
				}
				if !bytes.Equal(w.got[m][uint64(id)], want) {
					t.Fatalf("seed %d: member %d, operation %d: %x, want %x", seed, m, id, w.got[m][uint64(id)], want)
				}
			}
		}
		cast += w.cast
	}
	if cast == 0 {
		t.Error("no result came by multicast before it came by the tree")
	}
}

// TestFailure: when a connection is lost, everybody who is not done hears of it; in the next tree all get whole sums of
// every operation, those who had some of them too.
func TestFailure(t *testing.T) {
	again := 0
	for seed := range uint64(40) {
		w := newWorld(t, seed, 6)
		for _, mem := range w.members {
			for id := range uint64(12) {
				mem.Start(0, Operation{ID: id, Type: Int32, Bytes: 40, Target: Everybody, From: Everybody})
			}
		}
		for try := range 6 {
			for i := 0; i < 100_000; i++ {
				if try < 5 && i == 40+w.r.IntN(200) {
					w.lose()
				}
				if !w.step() {
					break
				}
			}
			least, all := 12, true
			for m, mem := range w.members {
				all = all && mem.Idle()
				if !mem.Idle() && mem.Failed() == NoReason {
					t.Fatalf("seed %d: member %d waits for ever", seed, m)
				}
				least = min(least, mem.Done())
			}
			if all {
				break
			}
			w.tree++
			w.grow()
			for m, mem := range w.members {
				mem.Restart(w.now, Place{Tree: w.tree, Me: uint32(m), OSTs: w.osts, Payload: w.payload}, least)
				for id := uint64(mem.Done()); id < 12; id++ {
					delete(w.got[m], id)
				}
			}
		}
		for m, mem := range w.members {
			if !mem.Idle() {
				t.Fatalf("seed %d: member %d is not done", seed, m)
			}
			for id := range uint64(12) {
				want := vector(0, id, 40)
				for o := 1; o < len(w.members); o++ {
					Combine(Sum, Int32, want, vector(uint32(o), id, 40))
				}
				if !bytes.Equal(w.got[m][id], want) {
					t.Fatalf("seed %d: member %d, operation %d: %x, want %x", seed, m, id, w.got[m][id], want)
				}
			}
		}
		again += w.again
	}
	if again == 0 {
		t.Error("no member had to help another to what it had: not much of a test")
	}
}

// lose cuts a connection by chance, and tells both of its ends.
func (w *world) lose() {
	k := w.keys[w.r.IntN(len(w.keys))]
	if k[2] == 1 {
		*w.wires[k] = nil // nobody hears of that
		return
	}
	for _, k := range [][3]int{k, {k[1], k[0]}} {
		w.cut[k] = true
		if w.wires[k] != nil {
			*w.wires[k] = nil
		}
		from, to := k[0], k[1]
		switch {
		case to < 0:
			w.members[-1-to].HandleLost(Lost)
		case from < 0:
			w.nodes[to].HandleLost(w.now, w.tree, w.slot[-1-from])
		case w.parent[to] == from:
			w.nodes[to].HandleLost(w.now, w.tree, Up)
		default:
			w.nodes[to].HandleLost(w.now, w.tree, w.place[from])
		}
	}
}

// TestDisagree: members that do not do the same are told so, and get no sum.
func TestDisagree(t *testing.T) {
	for _, o := range []Operation{{Type: Int64, Bytes: 8}, {Op: Max, Bytes: 8}, {Bytes: 4}, {Bytes: 8, Target: 1}} {
		w := newWorld(t, 5, 4)
		for m, mem := range w.members {
			mine := Operation{Bytes: 8, Target: Everybody}
			if m == 2 {
				if mine = o; o.Target == 0 {
					mine.Target = Everybody
				}
			}
			mine.From = Everybody
			mem.Start(0, mine)
		}
		for range 10_000 {
			if !w.step() {
				break
			}
		}
		for m, mem := range w.members {
			if mem.Failed() != Mismatch || mem.Done() != 0 {
				t.Errorf("%+v: member %d: %v", o, m, mem.Failed())
			}
		}
	}
}

// TestPlaces: a node refuses trees beyond what it has, and says which of them.
func TestPlaces(t *testing.T) {
	n := New(Config{Limits: Limits{Trees: 3, Streams: 1, OSTs: 10, Buffer: 4096}})
	add := func(id uint32, osts, payload int, stream bool) string {
		err := n.Add(Tree{ID: id, Children: make([]Child, 2), OSTs: osts, Payload: payload, Stream: stream})
		if err != nil && !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		return fmt.Sprint(err)
	}
	for _, c := range []struct{ got, want string }{
		{add(1, 2, 256, true), "<nil>"},
		{add(2, 2, 256, true), "an aggregation node has no more places: streaming trees: it has 1, of which 1 are " +
			"taken: 1 are wanted"},
		{add(2, 9, 8, false), "an aggregation node has no more places: outstanding operations: it has 10, of which " +
			"2 are taken: 9 are wanted"},
		{add(2, 4, 512, false), "an aggregation node has no more places: bytes of buffer: it has 4096, of which " +
			"1024 are taken: 4096 are wanted"},
		{add(2, 1, 8, false), "<nil>"}, {add(3, 1, 8, false), "<nil>"},
		{add(4, 1, 8, false), "an aggregation node has no more places: trees: it has 3, of which 3 are taken: 1 are " +
			"wanted"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	n.Remove(1)
	if got := add(5, 2, 256, true); got != "<nil>" {
		t.Errorf("after one is gone: %s", got)
	}
	if n.Add(Tree{ID: 5, Children: make([]Child, 2), OSTs: 1, Payload: 8}) == nil {
		t.Error("a tree twice")
	}
}

// TestMessage: golden bytes, and every truncation is refused.
func TestMessage(t *testing.T) {
	h := Header{Kind: Result, Op: Max, Type: Uint16, Tree: 0x01020304, Seq: 5, Target: Everybody, Count: 2}
	b := append(h.Append(nil), 1, 2, 3, 4)
	want := []byte{2, 2, 5, 0, 1, 2, 3, 4, 0, 0, 0, 5, 255, 255, 255, 255, 0, 0, 0, 2, 1, 2, 3, 4}
	if !bytes.Equal(b, want) {
		t.Errorf("% x, want % x", b, want)
	}
	got, v, err := Parse(b)
	if err != nil || got != h || !bytes.Equal(v, want[HeaderLen:]) {
		t.Errorf("%+v, % x, %v", got, v, err)
	}
	for i := range b {
		if _, _, err := Parse(b[:i]); !errors.Is(err, ErrMessage) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
}

// FuzzParse: nothing panics, and what is read is written the same.
func FuzzParse(f *testing.F) {
	h := Header{Kind: Contribution, Type: Float32, Count: 1}
	f.Add(append(h.Append(nil), 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, v, err := Parse(b)
		if err != nil {
			return
		}
		if again := append(h.Append(nil), v...); !bytes.Equal(again, b) {
			t.Errorf("% x is read and written as % x", b, again)
		}
		n := New(Config{Limits: Limits{1, 1, 4, 1 << 16}})
		if err := n.Add(Tree{ID: h.Tree, HasUp: true, Children: make([]Child, 2), OSTs: 2, Payload: 64}); err != nil {
			t.Fatal(err)
		}
		for from := Up; from < 3; from++ {
			n.HandleMessage(0, h.Tree, from, b)
		}
		for _, ok := n.Poll(ib.Never - 1); ok; _, ok = n.Poll(ib.Never - 1) {
		}
	})
}

// TestTakeIn: a node takes in what comes one after the other, whatever tree it is of; a stream does not wait for that.
func TestTakeIn(t *testing.T) {
	n := New(Config{Limits: Limits{3, 1, 12, 1 << 20}, Latency: 100, PerMessage: 10, PerByte: 1})
	for id := range uint32(3) {
		if err := n.Add(Tree{ID: id, Children: make([]Child, 2), OSTs: 4, Payload: 64, Stream: id == 2}); err != nil {
			t.Fatal(err)
		}
	}
	give := func(now ib.Time, tree uint32, child int) {
		h := Header{Kind: Contribution, Type: Uint32, Tree: tree, Target: Everybody, Count: 2}
		n.HandleMessage(now, tree, child, append(h.Append(nil), make([]byte, 8)...))
	}
	// Each takes 10 + 28: the first tree has both at 38 and 114, the second at 76 and 152.
	give(0, 0, 0)
	give(0, 1, 0)
	give(1, 0, 1)
	give(1, 1, 1)
	give(2, 2, 0)
	give(3, 2, 1)
	type said struct {
		at   ib.Time
		tree uint32
		to   int
	}
	drain := func() (list []said) {
		for at := n.NextDeadline(); at != ib.Never; at = n.NextDeadline() {
			for o, ok := n.Poll(at); ok; o, ok = n.Poll(at) {
				list = append(list, said{at, o.Tree, o.To})
			}
		}
		return list
	}
	if got, want := drain(), []said{{103, 2, 0}, {103, 2, 1}, {214, 0, 0}, {214, 0, 1}, {252, 1, 0},
		{252, 1, 1}}; !slices.Equal(got, want) {
		t.Errorf("it says %v, want %v", got, want)
	}
	give(1000, 1, 0) // nobody is before it any more, but its operation is over
	if n.Stats.Failures != 1 {
		t.Errorf("an operation that was there already is taken")
	}
	if got, want := drain(), []said{{1138, 1, 0}, {1138, 1, 1}}; !slices.Equal(got, want) {
		t.Errorf("it says %v, want %v", got, want)
	}
}
