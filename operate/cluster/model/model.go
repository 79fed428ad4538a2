package model

import (
	"maps"
	"slices"
	"strings"

	"softib/operate/cluster"
	"softib/proto/ib"
)

// expireEvery is how often etcd looks for leases that are over.
const expireEvery = 500 * ib.Millisecond

// Store is the model. Its revision begins at 1, as etcd's does.
type Store struct {
	rev, compacted int64
	term           uint64
	pairs          map[string]cluster.Pair
	leases         map[cluster.LeaseID]lease
	lastLease      cluster.LeaseID
	log            []cluster.Batch // of revisions compacted+1 on
	nextExpiry     ib.Time
	// Full refuses everything that would need room, as etcd does when its quota is used up.
	Full bool
}

type lease struct {
	ttl  int64
	ends ib.Time
}

// New is a store without keys.
func New() *Store {
	return &Store{rev: 1, compacted: 1, term: 1, pairs: map[string]cluster.Pair{},
		leases: map[cluster.LeaseID]lease{}, nextExpiry: expireEvery}
}

// Clone is a copy with a future of its own.
func (s *Store) Clone() *Store {
	c := *s
	c.pairs, c.leases, c.log = maps.Clone(s.pairs), maps.Clone(s.leases), slices.Clone(s.log)
	return &c
}

// Rev is the newest revision.
func (s *Store) Rev() int64 { return s.rev }

// NextExpiry is when leases are looked at next.
func (s *Store) NextExpiry() ib.Time { return s.nextExpiry }

// Advance ends leases that are over. Between looks they live on, as in etcd.
func (s *Store) Advance(now ib.Time) {
	for ; s.nextExpiry <= now; s.nextExpiry += expireEvery {
		var over []cluster.LeaseID
		for id, l := range s.leases { // tidy: order-free
			if l.ends <= s.nextExpiry {
				over = append(over, id)
			}
		}
		slices.Sort(over)
		for _, id := range over {
			s.revoke(id)
		}
	}
}

// ChangeLeader makes another leader, which does not know how long leases had left.
func (s *Store) ChangeLeader(now ib.Time) {
	s.term++
	for id, l := range s.leases { // tidy: order-free
		l.ends = now + ib.Time(l.ttl)*ib.Second
		s.leases[id] = l
	}
}

// Compact forgets what was before a revision.
func (s *Store) Compact(rev int64) {
	if rev = min(rev, s.rev); rev > s.compacted {
		s.log = s.log[rev-s.compacted:]
		s.compacted = rev
	}
}

func (s *Store) revoke(id cluster.LeaseID) {
	delete(s.leases, id)
	var writes []cluster.Write
	for key, p := range s.pairs { // tidy: order-free
		if p.Lease == id {
			writes = append(writes, cluster.Write{Key: key, Delete: true})
		}
	}
	slices.SortFunc(writes, func(a, b cluster.Write) int { return strings.Compare(a.Key, b.Key) })
	s.apply(writes)
}

// apply makes a revision of writes that change something.
func (s *Store) apply(writes []cluster.Write) {
	b := cluster.Batch{Rev: s.rev + 1}
	for _, w := range writes {
		p, had := s.pairs[w.Key]
		if w.Delete {
			if had {
				delete(s.pairs, w.Key)
				b.Changes = append(b.Changes,
					cluster.PairChange{Pair: cluster.Pair{Key: w.Key, Mod: b.Rev}, Deleted: true})
			}
			continue
		}
		if !had {
			p = cluster.Pair{Key: w.Key, Create: b.Rev}
		}
		p.Value, p.Lease, p.Mod = w.Value, w.Lease, b.Rev
		s.pairs[w.Key] = p
		b.Changes = append(b.Changes, cluster.PairChange{Pair: p})
	}
	if len(b.Changes) > 0 {
		s.rev++
		s.log = append(s.log, b)
	}
}

// Do answers a request that is not a watch.
func (s *Store) Do(now ib.Time, r cluster.Request) cluster.Answer {
	a := cluster.Answer{ID: r.ID, Term: s.term}
	l, live := s.leases[r.Lease]
	switch r.Op {
	case cluster.OpGrant:
		s.lastLease++
		a.Lease, a.Granted = s.lastLease, max(r.TTL, 2)
		s.leases[a.Lease] = lease{a.Granted, now + ib.Time(a.Granted)*ib.Second}
	case cluster.OpKeepAlive:
		if !live {
			a.Outcome = cluster.OutcomeGone
			break
		}
		l.ends = now + ib.Time(l.ttl)*ib.Second
		s.leases[r.Lease] = l
	case cluster.OpRevoke:
		if !live {
			a.Outcome = cluster.OutcomeGone
			break
		}
		s.revoke(r.Lease)
	case cluster.OpTimeToLive:
		a.TTL = -1
		if live {
			a.Granted, a.TTL = l.ttl, max(int64((l.ends-now)/ib.Second), 0)
		}
	case cluster.OpGet:
		a.Pairs = s.Get(r.Key, r.Prefix)
	case cluster.OpTxn:
		s.txn(&r.Txn, &a)
	}
	a.Rev = s.rev
	return a
}

func (s *Store) txn(t *cluster.Txn, a *cluster.Answer) {
	a.Held = true
	for _, c := range t.If {
		a.Held = a.Held && s.pairs[c.Key].Mod == c.Mod
	}
	if !a.Held {
		for _, key := range t.Else {
			a.Pairs = append(a.Pairs, s.Get(key, false)...)
		}
		return
	}
	for _, w := range t.Then {
		if _, live := s.leases[w.Lease]; w.Lease != 0 && !live {
			a.Outcome, a.Held = cluster.OutcomeGone, false
			return
		}
	}
	if s.Full && len(t.Then) > 0 {
		a.Outcome, a.Held = cluster.OutcomeFull, false
		return
	}
	s.apply(t.Then)
}

// Get is one pair or, by their prefix, all of them in the order of their keys.
func (s *Store) Get(key string, prefix bool) (list []cluster.Pair) {
	if !prefix {
		if p, ok := s.pairs[key]; ok {
			list = append(list, p)
		}
		return list
	}
	for k, p := range s.pairs { // tidy: order-free
		if strings.HasPrefix(k, key) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Pair) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// Since is what has changed below a prefix from a revision on; not ok if the store does not know any more.
func (s *Store) Since(prefix string, rev int64) (list []cluster.Batch, ok bool) {
	if rev <= s.compacted && rev <= s.rev {
		return nil, false
	}
	for _, b := range s.log[min(max(rev-s.compacted-1, 0), int64(len(s.log))):] {
		only := cluster.Batch{Rev: b.Rev}
		for _, c := range b.Changes {
			if strings.HasPrefix(c.Key, prefix) {
				only.Changes = append(only.Changes, c)
			}
		}
		if len(only.Changes) > 0 {
			list = append(list, only)
		}
	}
	return list, true
}
