package history

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// write is the store's one goroutine: it turns heads into chunks, minutes into tens, and drops what is old.
func (s *Store) write() {
	defer close(s.ended)
	for range s.wake {
		s.mu.Lock()
		s.writing = true
		s.mu.Unlock()
		err := s.catchUp()
		s.mu.Lock()
		s.writing = false
		s.failed = nil
		if err != nil {
			s.failed = s.notSaved(err)
		}
		s.idle.Broadcast()
		s.mu.Unlock()
	}
}

// notSaved says why chunks are not written, and what to do about it.
func (s *Store) notSaved(err error) error {
	err = fmt.Errorf("%w: %w", ErrNotSaved, err)
	if errors.Is(err, ErrCorrupt) {
		return &FileError{s.name(), err}
	}
	return fmt.Errorf("history: %s: %w: see that there is room on the disk and that the file may be written", s.name(),
		err)
}

// catchUp writes everything that is there to write.
func (s *Store) catchUp() error {
	heads := 0
	for ; ; heads++ {
		s.mu.Lock()
		if len(s.sealed) == 0 {
			s.mu.Unlock()
			break
		}
		h := s.sealed[0]
		s.mu.Unlock()
		written, err := s.writeHead(h)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.sealed = slices.Clone(s.sealed[1:])
		for _, c := range written {
			s.chunks[c.tier] = insertChunk(s.chunks[c.tier], c)
			if c.tier == tierMinute {
				s.pending[c.key] = true
			}
		}
		s.mu.Unlock()
	}
	if err := s.rollUp(); err != nil {
		return err
	}
	return s.retain(dropPerChunk * max(1, heads))
}

// writeHead writes a head as a chunk of samples and one of minutes.
func (s *Store) writeHead(h *head) (written []*chunk, err error) {
	raw := &chunk{tier: tierRaw, from: h.from, to: h.to, set: h.set}
	for i := range h.rows {
		raw.points = append(raw.points, h.rows[i].span)
	}
	minutes := &chunk{tier: tierMinute, from: h.from, to: h.to, set: h.set}
	var g gather
	g.plan(minutes, raw.points)
	err = s.guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			raw.bytes, minutes.bytes = 0, 0
			w, err := newChunk(tx, raw)
			if err != nil {
				return err
			}
			v, err := newChunk(tx, minutes)
			if err != nil {
				return err
			}
			if err := h.writeBlocks(w, v, &g); err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(h.scalars)) {
				points := held(h.scalars[name])
				if err := w.put(scalarKey(name), appendScalars(nil, points)); err != nil {
					return err
				}
				if err := v.put(scalarKey(name), appendScalars(nil,
					rollScalars(nil, points, tiers[tierMinute].step))); err != nil {
					return err
				}
			}
			if err := w.close(); err != nil {
				return err
			}
			if err := v.close(); err != nil {
				return err
			}
			return tx.Bucket(bucketPending).Put(keyBytes(minutes.key), nil)
		})
	})
	return []*chunk{raw, minutes}, err
}

// writeBlocks writes every block of which a head has anything.
func (h *head) writeBlocks(raw, minutes *chunkWriter, g *gather) error {
	var b block
	for i, no := range h.blockNos {
		idle := true
		for r := range h.rows {
			part := h.rows[r].block(i)
			if len(part) == 0 {
				continue
			}
			if idle {
				b.reset(len(h.rows), false)
				idle = false
			}
			eachCode(part, func(port int, m Metric, c code) {
				b.active[m] |= 1 << port
				b.counts[(int(m)*blockPorts+port)*b.points+r] = c
			})
		}
		if idle {
			continue
		}
		if err := raw.put(blockKey(no), appendBlock(nil, &b)); err != nil {
			return err
		}
		g.begin()
		g.add(&b, raw.c.points, 0)
		if err := minutes.put(blockKey(no), appendBlock(nil, g.block())); err != nil {
			return err
		}
	}
	return nil
}

// peakUnit is what peaks are counted in: events in 1,000 seconds, so that one in a minute is not nothing.
const peakUnit = 1000

// peakOf is the rate of a count in a time.
func peakOf(count uint64, dur int64) code {
	return encode(uint64(min(float64(count)*(1000*peakUnit)/float64(dur), math.MaxInt64)))
}

// gather puts the points of finer blocks together into coarser ones.
type gather struct {
	into   *chunk
	place  []int // of every finer point, in all chunks one after another
	sums   []uint64
	out    block
	active [NumMetric]uint64
}

// plan lays out a coarser chunk's points for finer ones. More finer ones may be planned for after.
func (g *gather) plan(into *chunk, finer []span) {
	g.into = into
	step := tiers[into.tier].step
	for _, p := range finer {
		at := floor(p.at, step)
		i := slices.IndexFunc(into.points, func(q span) bool { return q.at == at })
		if i < 0 {
			i = len(into.points)
			into.points = append(into.points, span{at: at})
		}
		into.points[i].dur += p.dur
		g.place = append(g.place, i)
	}
}

// begin starts a block.
func (g *gather) begin() {
	g.active = [NumMetric]uint64{}
	g.out.reset(len(g.into.points), true)
	if n := len(g.out.counts); cap(g.sums) < n {
		g.sums = make([]uint64, n)
	} else {
		g.sums = g.sums[:n]
		clear(g.sums)
	}
}

// add adds a finer block, whose points were planned from first on.
func (g *gather) add(b *block, finer []span, first int) {
	n := len(g.into.points)
	for m := range NumMetric {
		g.active[m] |= b.active[m]
		for set := b.active[m]; set != 0; set &= set - 1 {
			port := bits.TrailingZeros64(set)
			counts, peaks := b.series(m, port)
			at := (int(m)*blockPorts + port) * n
			for i, c := range counts {
				if c == 0 {
					continue
				}
				v := decode(c)
				j := at + g.place[first+i]
				g.sums[j] += v
				peak := code(0)
				if b.peaks {
					peak = peaks[i]
				} else {
					peak = peakOf(v, finer[i].dur)
				}
				g.out.peak[j] = max(g.out.peak[j], peak)
			}
		}
	}
}

// block is what was gathered since begin.
func (g *gather) block() *block {
	for i, v := range g.sums {
		g.out.counts[i] = encode(v)
	}
	g.out.active = g.active
	return &g.out
}
