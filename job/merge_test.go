package job

import "testing"

// TestMerge: what ranks of a schedule do is what it was, among themselves.
func TestMerge(t *testing.T) {
	one := func(bytes uint64) *Schedule {
		b := NewBuilder(2)
		b.After(0, b.Send(0, 1, bytes, 7), b.Calc(0, 5))
		b.Add(1, Op{Kind: Recv, Peer: Any, Tag: 7, Size: bytes})
		g := b.Group(Group{Ranks: []uint32{0, 1}, Payload: 8})
		for rank := range 2 {
			b.Aggregate(rank, g, Broadcast, 1, bytes)
		}
		s, err := b.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := one(10), one(20)
	s := Merge(a, b)
	if len(s.Ranks) != 4 || s.check() != nil {
		t.Fatalf("%d ranks, %v", len(s.Ranks), s.check())
	}
	if o := s.Ranks[2].Ops[0]; o.Peer != 3 || o.Size != 20 || s.Ranks[2].Waits(0) != 1 {
		t.Errorf("%v", o)
	}
	if b.Ranks[0].Ops[0].Peer != 1 || s.Ranks[3].Ops[0].Peer != Any {
		t.Error("the schedules themselves were changed, or who receives from anybody")
	}
	if g := s.Groups; len(g) != 2 || g[1].Ranks[1] != 3 || b.Groups[0].Ranks[1] != 1 {
		t.Errorf("groups %v, and of the second schedule %v", s.Groups, b.Groups)
	}
	if o := s.Ranks[3].Ops[1]; o.Kind != Aggregate || o.Tag != 1 || o.Peer != 3 {
		t.Errorf("%v of group %d", o, o.Tag)
	}
	if ops, messages, bytes := s.Count(); ops != 10 || messages != 6 || bytes != 90 {
		t.Errorf("%d operations, %d messages, %d bytes", ops, messages, bytes)
	}
}
