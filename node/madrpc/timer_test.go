package madrpc

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// TestTimersAgainstOracle holds the lists and their heap against a plain table of deadlines.
func TestTimersAgainstOracle(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s slab
		var tm timers
		deadlines := make(map[ref]ib.Time)
		var refs []ref
		now := ib.Time(0)
		durations := 1 + rng.IntN(200)
		for range 3000 {
			switch rng.IntN(5) {
			case 0, 1:
				r, _ := s.alloc(opCall)
				refs = append(refs, r)
				fallthrough
			case 2:
				if len(refs) == 0 {
					continue
				}
				r, after := refs[rng.IntN(len(refs))], ib.Time(1+rng.IntN(durations))*7
				tm.start(&s, r, now, after)
				deadlines[r] = now + after
			case 3:
				if len(refs) == 0 {
					continue
				}
				r := refs[rng.IntN(len(refs))]
				tm.stop(&s, r)
				delete(deadlines, r)
			case 4:
				now += ib.Time(rng.IntN(100))
				if rng.IntN(50) == 0 {
					now -= 30 // no driver does this; nothing may be lost when one does
				}
				for {
					r, d := tm.first(&s)
					if r == none || d > now {
						break
					}
					if deadlines[r] != d {
						t.Fatalf("seed %d: %d is due at %v, want %v", seed, r, d, deadlines[r])
					}
					tm.stop(&s, r)
					delete(deadlines, r)
				}
				for r, d := range deadlines { // tidy: order-free
					if d <= now {
						t.Fatalf("seed %d: %d was due at %v, it is %v", seed, r, d, now)
					}
				}
			}
			want := ib.Never
			for _, d := range deadlines { // tidy: order-free
				want = min(want, d)
			}
			if _, d := tm.first(&s); d != want {
				t.Fatalf("seed %d: first at %v, want %v", seed, d, want)
			}
		}
		if len(tm.byAfter) != len(tm.lists) || len(tm.lists) > max(listsKept, durations)+1 {
			t.Fatalf("%d lists, %d by duration", len(tm.lists), len(tm.byAfter))
		}
	}
}

func TestTimerThatNeverComes(t *testing.T) {
	var s slab
	var tm timers
	r, o := s.alloc(opCall)
	tm.start(&s, r, 5*ib.Second, ib.Never)
	if o.deadline != ib.Never {
		t.Errorf("deadline %v", o.deadline)
	}
}
