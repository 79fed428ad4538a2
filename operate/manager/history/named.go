package history

import (
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// QueryScalar gives a named series from one time to another, in at most about so many points. A name of which nothing
// is known has no points.
func (s *Store) QueryScalar(name string, from, to time.Time, maxPoints int) (Series, error) {
	var b *bins
	add := func(points []scalarPoint, p part, step int64) {
		for _, x := range points {
			if x.at < p.after || x.at+max(1, step) > p.before {
				continue
			}
			dur := int64(x.ms)
			if step > 0 {
				dur = min(dur, step)
			}
			b.add(x.at, dur, x.mean, x.max)
		}
	}
	err := s.read(from, to, maxPoints, func(v *view, tx *bolt.Tx) error {
		b = v.bins()
		for _, p := range v.disk {
			bucket := chunkBucket(tx, p.c)
			if bucket == nil {
				continue
			}
			rec := bucket.Get(scalarKey(name))
			if rec == nil {
				continue
			}
			points, err := readScalars(rec)
			if err != nil {
				return err
			}
			add(points, p, tiers[p.c.tier].step)
		}
		for _, h := range v.heads {
			add(held(h.scalars[name]), part{after: v.after, before: noEnd}, 0)
		}
		return nil
	})
	if err != nil {
		return Series{}, err
	}
	return b.series(), nil
}

// ScalarNames lists the names of which anything is known.
func (s *Store) ScalarNames() ([]string, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	names := map[string]bool{}
	for _, h := range append(slices.Clone(s.sealed), s.head) {
		for name := range h.scalars {
			names[name] = true
		}
	}
	lists := s.chunks
	s.mu.Unlock()
	err := s.guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			for _, list := range lists {
				for _, c := range list {
					bucket := chunkBucket(tx, c)
					if bucket == nil {
						continue
					}
					cur := bucket.Cursor()
					for k, _ := cur.Seek([]byte{'s'}); k != nil && k[0] == 's'; k, _ = cur.Next() {
						names[string(k[1:])] = true
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, &FileError{s.name(), err}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
