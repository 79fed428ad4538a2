package fabric

import (
	"math/rand/v2"
	"sort"
	"testing"

	"softib/proto/ib"
)

// TestQueueOrder holds the calendar against a sorted list.
func TestQueueOrder(t *testing.T) {
	for seed := uint64(0); seed < 40; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		q := newQueue(&Config{})
		type ref struct {
			t   ib.Time
			seq uint64
		}
		var want []ref
		now := ib.Time(0)
		seq := uint64(0)
		scale := int64(1) << r.IntN(44)
		push := func() {
			at := now + ib.Time(r.Int64N(scale))
			switch r.IntN(8) {
			case 0:
				at = now
			case 1:
				at = now + ib.Time(r.Int64N(1<<44))
			}
			seq++
			q.push(at, seq)
			i := sort.Search(len(want), func(i int) bool { return want[i].t > at })
			want = append(want, ref{})
			copy(want[i+1:], want[i:])
			want[i] = ref{at, seq}
		}
		for step := 0; step < 4000; step++ {
			for range r.IntN(4) {
				push()
			}
			if step%1000 == 999 {
				q.rebuild(uint(r.IntN(20)))
			}
			for range r.IntN(4) {
				at, ok := q.next(), q.due(ib.Never)
				if ok != (len(want) > 0) {
					t.Fatalf("seed %d: peek %v with %d events left", seed, ok, len(want))
				}
				if !ok {
					break
				}
				e := q.pop()
				if e.t != at || e.t != want[0].t || e.d != want[0].seq {
					t.Fatalf("seed %d step %d: got (%d, %d), want (%d, %d)", seed, step, e.t, e.d, want[0].t,
						want[0].seq)
				}
				now = e.t
				want = want[1:]
			}
			if q.Len() != len(want) {
				t.Fatalf("seed %d: Len %d, want %d", seed, q.Len(), len(want))
			}
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	q := newQueue(&Config{})
	var delays [4096]ib.Time
	for i := range delays {
		delays[i] = ib.Time(80_000 + r.IntN(150_000))
	}
	for i := range 20000 {
		q.push(delays[i&4095], uint64(i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q.due(ib.Never)
		e := q.pop()
		q.push(e.t+delays[i&4095], e.d)
		i++
	}
}
