package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// rollSpan is how much time a chunk of tens has.
const rollSpan = int64(time.Hour / time.Millisecond)

// rollUp makes chunks of tens from the chunks of minutes of hours that are over.
func (s *Store) rollUp() error {
	for _, group := range s.rollable() {
		if err := s.rollGroup(group); err != nil {
			return err
		}
	}
	return nil
}

// rollable finds groups of chunks of minutes that belong to one hour and have the same ports.
func (s *Store) rollable() [][]*chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	var groups [][]*chunk
	for _, c := range s.chunks[tierMinute] {
		if !s.pending[c.key] || s.steady == 0 || floor(c.from, rollSpan) == floor(s.now, rollSpan) {
			continue
		}
		k := len(groups) - 1
		if k >= 0 && floor(groups[k][0].from, rollSpan) == floor(c.from, rollSpan) && groups[k][0].set.equal(c.set) {
			groups[k] = append(groups[k], c)
			continue
		}
		groups = append(groups, []*chunk{c})
	}
	return groups
}

// rollGroup makes one chunk of tens, in one transaction with the note that its minutes are done.
func (s *Store) rollGroup(group []*chunk) error {
	tens := &chunk{tier: tierTen, from: group[0].from, to: group[0].to, set: group[0].set}
	var g gather
	for _, c := range group {
		tens.from, tens.to = min(tens.from, c.from), max(tens.to, c.to)
		g.plan(tens, c.points)
	}
	err := s.guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			tens.bytes = 0
			w, err := newChunk(tx, tens)
			if err != nil {
				return err
			}
			if err := rollBlocks(tx, w, group, &g); err != nil {
				return err
			}
			if err := rollNamed(tx, w, group); err != nil {
				return err
			}
			for _, c := range group {
				if err := tx.Bucket(bucketPending).Delete(keyBytes(c.key)); err != nil {
					return err
				}
			}
			return w.close()
		})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chunks[tierTen] = insertChunk(s.chunks[tierTen], tens)
	// Readers have the set as it was or as it is.
	pending := maps.Clone(s.pending)
	for _, c := range group {
		delete(pending, c.key)
	}
	s.pending = pending
	return nil
}

// chunkBucket is where a chunk is kept; nil if it is gone.
func chunkBucket(tx *bolt.Tx, c *chunk) *bolt.Bucket {
	return tx.Bucket([]byte(tiers[c.tier].name)).Bucket(keyBytes(c.key))
}

func rollBlocks(tx *bolt.Tx, w *chunkWriter, group []*chunk, g *gather) error {
	from := make([]*bolt.Bucket, len(group))
	for i, c := range group {
		from[i] = chunkBucket(tx, c)
	}
	var b block
	for _, no := range w.c.set.blocks() {
		idle, first := true, 0
		for i, c := range group {
			var rec []byte
			if from[i] != nil {
				rec = from[i].Get(blockKey(no))
			}
			if rec != nil {
				if idle {
					g.begin()
					idle = false
				}
				b.reset(len(c.points), true)
				if err := readBlock(rec, &b); err != nil {
					return err
				}
				g.add(&b, c.points, first)
			}
			first += len(c.points)
		}
		if idle {
			continue
		}
		if err := w.put(blockKey(no), appendBlock(nil, g.block())); err != nil {
			return err
		}
	}
	return nil
}

// rollNamed does the same to the series without a port.
func rollNamed(tx *bolt.Tx, w *chunkWriter, group []*chunk) error {
	all := map[string][]scalarPoint{}
	for _, c := range group {
		b := chunkBucket(tx, c)
		if b == nil {
			continue
		}
		cur := b.Cursor()
		for k, v := cur.Seek([]byte{'s'}); k != nil && k[0] == 's'; k, v = cur.Next() {
			points, err := readScalars(v)
			if err != nil {
				return err
			}
			name := string(k[1:])
			all[name] = rollScalars(all[name], points, tiers[w.c.tier].step)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := w.put(scalarKey(name), appendScalars(nil, all[name])); err != nil {
			return err
		}
	}
	return nil
}

// A clock that is wrong for a while must not cost all of the past: for each chunk that comes at most dropPerChunk of a
// tier go because of their age, and none before time has passed as it should for long enough.
const (
	dropPerChunk = 2
	steadyFor    = int64(10 * time.Minute / time.Millisecond)
)

// fullAt is how much of the room may be in use: the rest is for what is being written, as bbolt never writes in place.
const fullAt = 0.85

// retain drops what is too old, and the oldest of what is too much.
func (s *Store) retain(atMost int) error {
	drop := s.tooOld(atMost)
	drop = append(drop, s.tooMuch(drop)...)
	if len(drop) == 0 {
		return nil
	}
	return s.drop(drop)
}

// drop takes chunks off the lists and out of the file, in that order: see snapshot.
func (s *Store) drop(drop []*chunk) error {
	pending := s.strike(drop)
	err := s.guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			for _, c := range drop {
				if err := tx.Bucket([]byte(tiers[c.tier].name)).DeleteBucket(keyBytes(c.key)); err != nil {
					return err
				}
				if c.tier == tierMinute {
					if err := tx.Bucket(bucketPending).Delete(keyBytes(c.key)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		// They are still there.
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range drop {
			s.chunks[c.tier] = insertChunk(s.chunks[c.tier], c)
		}
		s.pending = pending
	}
	return err
}

// strike takes chunks off the lists, so that no question goes to them any more. It returns which were pending before;
// nobody but the caller, who is the one that writes, changes that.
func (s *Store) strike(drop []*chunk) (pending map[int64]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.pending
	left := maps.Clone(pending)
	for t := range s.chunks {
		s.chunks[t] = slices.DeleteFunc(slices.Clone(s.chunks[t]),
			func(c *chunk) bool { return slices.Contains(drop, c) })
	}
	for _, c := range drop {
		if c.tier == tierMinute {
			delete(left, c.key)
		}
	}
	s.pending = left
	return pending
}

// tooOld lists what has been kept long enough, at most so many of each tier.
func (s *Store) tooOld(atMost int) (drop []*chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steady == 0 || s.now-s.steady < steadyFor {
		return nil
	}
	keep := [numTier]time.Duration{s.opts.Raw, s.opts.Minute, s.opts.Ten}
	for t := range s.chunks {
		n := 0
		for _, c := range s.chunks[t] {
			if n < atMost && c.to <= s.now-keep[t].Milliseconds() && !(t == tierMinute && s.pending[c.key]) {
				drop = append(drop, c)
				n++
			}
		}
	}
	return drop
}

// tooMuch lists what else has to go for the file to stay within its room: each time the oldest of the tier that has
// most above its share, but never the last of a tier.
func (s *Store) tooMuch(gone []*chunk) (drop []*chunk) {
	_, live := s.sizes()
	s.mu.Lock()
	defer s.mu.Unlock()
	var have [numTier]int64
	var left [numTier][]*chunk
	for t := range s.chunks {
		for _, c := range s.chunks[t] {
			have[t] += c.bytes
			if !slices.Contains(gone, c) {
				left[t] = append(left[t], c)
			}
		}
	}
	total := max(1, have[tierRaw]+have[tierMinute]+have[tierTen])
	// Pages are not full, and each record has a head: what the file has for every byte of a record.
	each := float64(live) / float64(total)
	free := func(c *chunk) {
		live -= int64(float64(c.bytes) * each)
		have[c.tier] -= c.bytes
	}
	for _, c := range gone {
		free(c)
	}
	for live > int64(fullAt*float64(s.opts.MaxBytes)) {
		t := slices.MaxFunc([]int{tierRaw, tierMinute, tierTen}, func(a, b int) int {
			over := func(t int) float64 {
				if len(left[t]) < 2 {
					return -1
				}
				return float64(have[t]) / tiers[t].share
			}
			return cmp.Compare(over(a), over(b))
		})
		if len(left[t]) < 2 {
			break
		}
		drop = append(drop, left[t][0])
		free(left[t][0])
		left[t] = left[t][1:]
	}
	return drop
}
