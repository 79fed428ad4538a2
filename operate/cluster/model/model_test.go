package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/operate/cluster"
	"softib/proto/ib"
)

func (s *Store) txnT(now ib.Time, t cluster.Txn) cluster.Answer {
	return s.Do(now, cluster.Request{Op: cluster.OpTxn, Txn: t})
}

// TestLease: a lease is there for its time, what is left of it is rounded down, and its keys go with it.
func TestLease(t *testing.T) {
	s := New()
	id := s.Do(0, cluster.Request{Op: cluster.OpGrant, TTL: 5}).Lease
	s.txnT(0, cluster.Txn{Then: []cluster.Write{{Key: "a", Lease: id}, {Key: "b"}}})
	for _, tc := range []struct {
		at   ib.Time
		want int64
	}{{0, 5}, {1, 4}, {ib.Second, 4}, {ib.Second + 1, 3}, {4*ib.Second + 1, 0}} {
		if a := s.Do(tc.at, cluster.Request{Op: cluster.OpTimeToLive, Lease: id}); a.TTL != tc.want || a.Granted != 5 {
			t.Errorf("at %v %+v: want %d", tc.at, a, tc.want)
		}
	}
	s.Advance(5*ib.Second - 1)
	if len(s.Get("a", false)) != 1 {
		t.Error("it went too soon")
	}
	s.Advance(5 * ib.Second)
	if len(s.Get("", true)) != 1 || s.Rev() != 3 {
		t.Errorf("%+v at %d", s.Get("", true), s.Rev())
	}
	for _, op := range []cluster.Op{cluster.OpKeepAlive, cluster.OpRevoke} {
		if a := s.Do(0, cluster.Request{Op: op, Lease: id}); a.Outcome != cluster.OutcomeGone {
			t.Errorf("%v of a lease that is over: %+v", op, a)
		}
	}
	if a := s.txnT(0, cluster.Txn{Then: []cluster.Write{{Key: "c", Lease: id}}}); a.Outcome != cluster.OutcomeGone {
		t.Errorf("%+v", a)
	}
}

// TestWatchTellsAll: whoever follows a watch, and lists again after a compaction, has what the store has.
func TestWatchTellsAll(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := New()
		have := map[string]string{}
		next := s.Rev() + 1
		lists := 0
		for range 300 {
			key := fmt.Sprintf("k%d", rng.IntN(6))
			w := cluster.Write{Key: key, Value: fmt.Appendf(nil, "%d", rng.Uint64()), Delete: rng.IntN(3) == 0}
			mod := int64(rng.IntN(2))
			for _, p := range s.Get(key, false) {
				mod = p.Mod - int64(rng.IntN(2))
			}
			rev, was := s.Rev(), s.Get(key, false)
			a := s.txnT(0, cluster.Txn{If: []cluster.Compare{{Key: key, Mod: mod}}, Then: []cluster.Write{w}})
			holds := len(was) == 0 && mod == 0 || len(was) > 0 && was[0].Mod == mod
			if a.Held != holds || !holds && s.Rev() != rev {
				t.Fatalf("seed %d: %+v, and it should hold: %t", seed, a, holds)
			}
			if rng.IntN(20) == 0 {
				s.Compact(s.Rev() - int64(rng.IntN(3)))
			}
			if rng.IntN(4) > 0 {
				continue
			}
			list, ok := s.Since("", next)
			if !ok {
				lists++
				clear(have)
				for _, p := range s.Get("", true) {
					have[p.Key] = string(p.Value)
				}
			}
			for _, b := range list {
				for _, c := range b.Changes {
					if c.Deleted {
						delete(have, c.Key)
					} else {
						have[c.Key] = string(c.Value)
					}
				}
			}
			next = s.Rev() + 1
			if got := s.Get("", true); len(got) != len(have) {
				t.Fatalf("seed %d: %v: want %v", seed, have, got)
			}
			for _, p := range s.Get("", true) {
				if have[p.Key] != string(p.Value) {
					t.Fatalf("seed %d: %s is %q: want %q", seed, p.Key, have[p.Key], p.Value)
				}
			}
		}
		if lists == 0 {
			t.Errorf("seed %d: never compacted", seed)
		}
	}
}

// TestFull: a store without room refuses what would need some, and still keeps leases.
func TestFull(t *testing.T) {
	s := New()
	id := s.Do(0, cluster.Request{Op: cluster.OpGrant, TTL: 5}).Lease
	s.Full = true
	if a := s.txnT(0, cluster.Txn{Then: []cluster.Write{{Key: "a"}}}); a.Outcome != cluster.OutcomeFull {
		t.Errorf("%+v", a)
	}
	if a := s.Do(0, cluster.Request{Op: cluster.OpKeepAlive, Lease: id}); a.Outcome != cluster.OutcomeDone {
		t.Errorf("%+v", a)
	}
}
