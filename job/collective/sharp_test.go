package collective

import (
	"testing"

	"softib/job"
)

// TestSharp: what switches do is the same for all ranks, in pieces if it is short, and nobody sends anything else.
func TestSharp(t *testing.T) {
	for _, c := range []struct {
		op            string
		bytes         uint64
		payload, want int
		stream        bool
		way           job.Way
	}{{"all-reduce", 8, 0, 1, false, job.AllReduce}, {"all-reduce", 4096, 0, 16, false, job.AllReduce},
		{"all-reduce", 4096, 1000, 5, false, job.AllReduce}, {"all-reduce", 1 << 20, 0, 1, true, job.AllReduce},
		{"barrier", 0, 0, 1, false, job.AllReduce}, {"reduce", 300, 0, 2, false, job.Reduce},
		{"broadcast", 5 << 10, 0, 1, true, job.Broadcast}} {
		b := job.NewBuilder(4)
		g := NewGroup(b, []int{2, 0, 3, 1})
		g.Payload = c.payload
		op, err := ByName(c.op)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := op.Do(g, c.bytes, Sharp); err != nil {
				t.Fatal(err)
			}
		}
		s, err := b.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Groups) != 1 || s.Groups[0].Stream != c.stream || len(s.Groups[0].Ranks) != 4 {
			t.Errorf("%+v: groups %+v", c, s.Groups)
		}
		for r := range s.Ranks {
			sum := uint64(0)
			for _, o := range s.Ranks[r].Ops {
				sum += o.Size
				if o.Kind != job.Aggregate || o.Way != c.way || o.Peer != 2 {
					t.Errorf("%+v: rank %d has a %v", c, r, o)
				}
			}
			if n := len(s.Ranks[r].Ops); sum != 2*c.bytes || n != 2*c.want {
				t.Errorf("%+v: rank %d gives %d bytes in %d operations", c, r, sum, n)
			}
		}
	}
}
