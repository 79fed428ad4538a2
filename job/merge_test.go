package job

import "testing"

// TestMerge: what ranks of a schedule do is what it was, among themselves.
func TestMerge(t *testing.T) {
	one := func(bytes uint64) *Schedule {
		b := NewBuilder(2)
		b.After(0, b.Send(0, 1, bytes, 7), b.Calc(0, 5))
		b.Add(1, Op{Kind: Recv, Peer: Any, Tag: 7, Size: bytes})
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
	if ops, messages, bytes := s.Count(); ops != 6 || messages != 2 || bytes != 30 {
		t.Errorf("%d operations, %d messages, %d bytes", ops, messages, bytes)
	}
}
