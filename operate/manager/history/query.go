package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Point is what was so in a stretch of time: for ports rates a second, for named series their numbers.
type Point struct {
	At       time.Time // where the stretch begins
	Avg, Max float64
}

// Series is points in the order of time, each for Step from At on. Where nothing was watched there is no point: a gap
// is where the next point is later than Step after the one before.
type Series struct {
	Step   time.Duration
	Points []Point
}

// Ranked is a port's place in a ranking.
type Ranked struct {
	Port     uint32
	Avg, Max float64
}

// mostPoints is how many points a question may ask for.
const mostPoints = 100_000

// noEnd is a time that does not come, and noBegin one that never was.
const (
	noEnd   = math.MaxInt64
	noBegin = math.MinInt64
)

// part is what a query reads of a chunk: points that begin at after, or later, and end by before.
type part struct {
	c             *chunk
	after, before int64
}

// has reports whether a point is one of them.
func (p *part) has(at span) bool { return at.at >= p.after && p.c.ends(at) <= p.before }

// view is all that a query reads, as it was at one moment.
type view struct {
	from, to, step int64
	disk           []part
	heads          []*head
	after          int64 // what heads have before is in disk
}

// read lets do read what a question needs, of the file as it is while nothing of that is dropped.
func (s *Store) read(from, to time.Time, maxPoints int, do func(*view, *bolt.Tx) error) error {
	v, tx, err := s.snapshot(from, to, maxPoints)
	if err != nil {
		return err
	}
	err = s.guard(func() error {
		defer tx.Rollback()
		return do(v, tx)
	})
	if err != nil {
		return &FileError{s.name(), err}
	}
	return nil
}

// snapshot is what a question needs, and the file as it is now: all that the store's lists have is in it, because what
// is written is written before it is listed, and what is dropped is dropped after it was struck off.
func (s *Store) snapshot(from, to time.Time, maxPoints int) (v *view, tx *bolt.Tx, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, err = s.look(from, to, maxPoints); err != nil {
		return nil, nil, err
	}
	err = s.guard(func() (err error) {
		tx, err = s.db.Begin(false)
		return err
	})
	if err != nil {
		return nil, nil, &FileError{s.name(), err}
	}
	return v, tx, nil
}

// look picks what to read for a question, with the store locked: the coarsest tier that is fine enough, what is not yet
// in it from finer ones, and what is no longer in it from coarser ones.
func (s *Store) look(from, to time.Time, maxPoints int) (*view, error) {
	v := &view{from: from.UnixMilli(), to: to.UnixMilli(), after: noBegin}
	if v.to <= v.from || maxPoints <= 0 {
		return nil, fmt.Errorf("history: from %v to %v in %d points: an end after the beginning and a point "+
			"are wanted: %w", from, to, maxPoints, ErrBadQuery)
	}
	maxPoints = min(maxPoints, mostPoints)
	v.step = max(1, (v.to-v.from+int64(maxPoints)-1)/int64(maxPoints))
	tier := tierRaw
	for t := range tiers {
		if tiers[t].step <= v.step {
			tier = t
		}
	}
	if s.closed {
		return nil, ErrClosed
	}
	oldest := int64(noEnd)
	for _, h := range append(slices.Clone(s.sealed), s.head) {
		if h.empty() {
			continue
		}
		oldest = min(oldest, h.from)
		if h.to > v.from && h.from < v.to {
			v.heads = append(v.heads, h.snapshot())
		}
	}
	finest := tier
	take := func(t int, before int64, want func(*chunk) bool) {
		for _, c := range s.chunks[t] {
			if c.to > v.from && c.from < v.to && c.from < before && want(c) {
				v.disk = append(v.disk, part{c, noBegin, before})
				finest = max(finest, t)
			}
		}
	}
	all := func(*chunk) bool { return true }
	take(tier, noEnd, all)
	oldest = min(oldest, oldestOf(s.chunks[tier]))
	if tier == tierTen {
		notYet := func(c *chunk) bool { return s.pending[c.key] }
		take(tierMinute, noEnd, notYet)
		for _, c := range s.chunks[tierMinute] {
			if notYet(c) {
				oldest = min(oldest, c.from)
			}
		}
	}
	// A young store has nothing older in coarser tiers either: the stretch in which it began is not worth coarser steps
	// for all.
	older := oldest == noEnd
	for t := tier + 1; t < numTier && !older; t++ {
		older = oldestOf(s.chunks[t]) < floor(oldest, tiers[t].step)
	}
	for t := tier + 1; t < numTier && oldest > v.from && older; t++ {
		cut := oldest
		// Where a stretch of the coarser tier is only in part in the finer ones, it is taken from the coarser one.
		if end := floor(oldest-1, tiers[t].step) + tiers[t].step; oldest != noEnd && covers(s.chunks[t], oldest, end) {
			cut = end
			v.after = max(v.after, cut)
			for i := range v.disk {
				v.disk[i].after = max(v.disk[i].after, cut)
			}
		}
		take(t, cut, all)
		oldest = min(oldest, oldestOf(s.chunks[t]))
	}
	// Steps finer than what there is would only repeat it, and those that do not fit it would be uneven.
	natural := tiers[finest].step
	if natural == 0 {
		natural = v.sampled()
	} else {
		v.step = (v.step + natural - 1) / natural * natural
	}
	v.step = max(v.step, natural)
	return v, nil
}

// covers reports whether chunks have all of a time.
func covers(list []*chunk, from, to int64) bool {
	for _, c := range list {
		if c.from <= from && c.to > from {
			from = c.to
		}
	}
	return from >= to
}

func oldestOf(list []*chunk) int64 {
	oldest := int64(noEnd)
	for _, c := range list {
		oldest = min(oldest, c.from)
	}
	return oldest
}

// snapshot is a head that does not change any more.
func (h *head) snapshot() *head {
	c := *h
	c.scalars = maps.Clone(h.scalars)
	return &c
}

// sampled is the time between samples, as of late.
func (v *view) sampled() int64 {
	if k := len(v.heads); k > 0 && len(v.heads[k-1].rows) > 0 {
		rows := v.heads[k-1].rows
		return rows[len(rows)-1].dur
	}
	if k := len(v.disk); k > 0 && len(v.disk[k-1].c.points) > 0 {
		return v.disk[k-1].c.points[0].dur
	}
	return 1
}

// bins put what was so at times into equal steps.
type bins struct {
	from, step    int64
	ms, sum, high []float64
}

func (v *view) bins() *bins {
	from := floor(v.from, v.step)
	n := int((v.to - from + v.step - 1) / v.step)
	all := make([]float64, 3*n)
	return &bins{from, v.step, all[:n], all[n : 2*n], all[2*n:]}
}

// add notes a mean and a peak over a time. A time that is in several steps counts in each for its part, so that it does
// not matter when exactly samples were taken.
func (b *bins) add(at, dur int64, mean, peak float64) {
	end := at + dur
	at = max(at, b.from)
	for i := (at - b.from) / b.step; at < end && int(i) < len(b.ms); i++ {
		next := min(end, b.from+(i+1)*b.step)
		part := float64(next - at)
		if b.ms[i] == 0 {
			b.high[i] = peak
		}
		b.ms[i] += part
		b.sum[i] += mean * part
		b.high[i] = max(b.high[i], peak)
		at = next
	}
}

func (b *bins) series() Series {
	s := Series{Step: time.Duration(b.step) * time.Millisecond}
	for i, ms := range b.ms {
		if ms > 0 {
			mean := b.sum[i] / ms
			s.Points = append(s.Points, Point{time.UnixMilli(b.from + int64(i)*b.step), mean, max(mean, b.high[i])})
		}
	}
	return s
}

// rates are a count and a peak, as they are kept, as rates a second.
func rates(p span, count, peak code, hasPeak bool) (mean, high float64) {
	mean = float64(decode(count)) * 1000 / float64(p.dur)
	if hasPeak {
		return mean, max(mean, float64(decode(peak))/peakUnit)
	}
	return mean, mean
}

// placed is where a point of a chunk is in time: a coarse one is never longer than its stretch, even if its last sample
// was.
func (c *chunk) placed(p span) (at, dur int64) {
	if step := tiers[c.tier].step; step > 0 {
		return p.at, min(p.dur, step)
	}
	return p.at, p.dur
}

// ends is where a point's stretch is over.
func (c *chunk) ends(p span) int64 {
	if step := tiers[c.tier].step; step > 0 {
		return p.at + step
	}
	return p.at + p.dur
}

// Query gives the rates of one metric of a port from one time to another, in at most about so many points. It picks the
// tier: each point has the average, and the highest rate between two samples.
func (s *Store) Query(port uint32, m Metric, from, to time.Time, maxPoints int) (Series, error) {
	all, err := s.QueryMany([]uint32{port}, m, from, to, maxPoints)
	if err != nil {
		return Series{}, err
	}
	return all[0], nil
}

// QueryMany is Query for many ports; all series have the same steps.
func (s *Store) QueryMany(ports []uint32, m Metric, from, to time.Time, maxPoints int) ([]Series, error) {
	if m >= NumMetric {
		return nil, fmt.Errorf("history: %v: want one below %d: %w", m, NumMetric, ErrBadQuery)
	}
	all := make([]Series, len(ports))
	err := s.read(from, to, maxPoints, func(v *view, tx *bolt.Tx) error {
		for i, port := range ports {
			b := v.bins()
			if err := v.readDisk(tx, port, m, b); err != nil {
				return err
			}
			v.readHeads(port, m, b)
			all[i] = b.series()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readDisk reads one port of the chunks.
func (v *view) readDisk(tx *bolt.Tx, port uint32, m Metric, b *bins) error {
	var counts, peaks []code
	for _, p := range v.disk {
		c := p.c
		if !c.set.has(port) {
			continue
		}
		n := len(c.points)
		counts = slices.Grow(counts[:0], n)[:n]
		peaks = nil
		if c.tier != tierRaw {
			peaks = make([]code, n)
		}
		bucket := chunkBucket(tx, c)
		if bucket == nil {
			continue // the file is not what it was
		}
		has := false
		if rec := bucket.Get(blockKey(port / blockPorts)); rec != nil {
			var err error
			if has, err = readPort(rec, m, int(port%blockPorts), counts, peaks); err != nil {
				return err
			}
		}
		for i, at := range c.points {
			if !p.has(at) {
				continue
			}
			var mean, high float64
			if has {
				peak := code(0)
				if peaks != nil {
					peak = peaks[i]
				}
				mean, high = rates(at, counts[i], peak, peaks != nil)
			}
			from, dur := c.placed(at)
			b.add(from, dur, mean, high)
		}
	}
	return nil
}

// readHeads reads one port of what is in memory.
func (v *view) readHeads(port uint32, m Metric, b *bins) {
	for _, h := range v.heads {
		if !h.set.has(port) {
			continue
		}
		place, _ := slices.BinarySearch(h.blockNos, port/blockPorts)
		for i := range h.rows {
			r := &h.rows[i]
			if r.at < v.after {
				continue
			}
			mean, high := rates(r.span, portCode(r.block(place), m, int(port%blockPorts)), 0, false)
			b.add(r.at, r.dur, mean, high)
		}
	}
}

// topPoints is how finely Top looks: peaks are exact in every tier, so it need not be fine.
const topPoints = 30

// Top ranks ports by their average of a metric from one time to another. Ports that had none of it are not in it.
func (s *Store) Top(m Metric, from, to time.Time, n int) ([]Ranked, error) {
	return s.rank(m, from, to, n, func(a, b Ranked) int {
		return cmp.Or(cmp.Compare(b.Avg, a.Avg), cmp.Compare(b.Max, a.Max), cmp.Compare(a.Port, b.Port))
	})
}

// TopPeak ranks them by the highest rate between two samples.
func (s *Store) TopPeak(m Metric, from, to time.Time, n int) ([]Ranked, error) {
	return s.rank(m, from, to, n, func(a, b Ranked) int {
		return cmp.Or(cmp.Compare(b.Max, a.Max), cmp.Compare(b.Avg, a.Avg), cmp.Compare(a.Port, b.Port))
	})
}

func (s *Store) rank(m Metric, from, to time.Time, n int, order func(a, b Ranked) int) ([]Ranked, error) {
	if m >= NumMetric || n <= 0 {
		return nil, fmt.Errorf("history: the first %d of %v: at least one and a metric below %d are wanted: %w", n, m,
			NumMetric, ErrBadQuery)
	}
	t := &tally{m: m}
	err := s.read(from, to, topPoints, func(v *view, tx *bolt.Tx) error {
		for _, p := range v.disk {
			if err := t.addChunk(tx, v, p); err != nil {
				return err
			}
		}
		for _, h := range v.heads {
			t.addHead(v, h)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := t.ranked()
	slices.SortFunc(all, order)
	return slices.Clone(all[:min(n, len(all))]), nil
}

// tally adds up one metric of all ports.
type tally struct {
	m             Metric
	sum, ms, high []float64
}

// grow makes room for a port.
func (t *tally) grow(port uint32) {
	if need := int(port) + 1 - len(t.sum); need > 0 {
		t.sum = append(t.sum, make([]float64, need)...)
		t.ms = append(t.ms, make([]float64, need)...)
		t.high = append(t.high, make([]float64, need)...)
	}
}

// watch notes that ports were watched for so long.
func (t *tally) watch(set *portSet, ms float64) {
	for _, r := range set.ranges {
		t.grow(r.last)
		for id := r.first; id <= r.last; id++ {
			t.ms[id] += ms
		}
	}
}

func (t *tally) addChunk(tx *bolt.Tx, v *view, p part) error {
	c := p.c
	bucket := chunkBucket(tx, c)
	if bucket == nil {
		return nil
	}
	inside := make([]bool, len(c.points))
	ms := 0.0
	for i, at := range c.points {
		if inside[i] = at.at+at.dur > v.from && at.at < v.to && p.has(at); inside[i] {
			ms += float64(at.dur)
		}
	}
	if ms == 0 {
		return nil
	}
	t.watch(c.set, ms)
	counts, peaks := make([]code, len(c.points)), []code(nil)
	if c.tier != tierRaw {
		peaks = make([]code, len(c.points))
	}
	cur := bucket.Cursor()
	for k, rec := cur.Seek([]byte{'b'}); k != nil && k[0] == 'b'; k, rec = cur.Next() {
		if len(k) != 5 {
			return damage("chunk", uint64(len(k)), "bytes are no key of a block")
		}
		first := (uint32(k[1])<<24 | uint32(k[2])<<16 | uint32(k[3])<<8 | uint32(k[4])) * blockPorts
		rec, err := unseal(rec)
		if err != nil {
			return err
		}
		ports, rest, err := section(rec, t.m)
		if err != nil {
			return err
		}
		for ; ports != 0; ports &= ports - 1 {
			n, err := readSeries(rest, counts)
			if err != nil {
				return err
			}
			rest = rest[n:]
			if peaks != nil {
				if n, err = readSeries(rest, peaks); err != nil {
					return err
				}
				rest = rest[n:]
			}
			id := first + uint32(bits.TrailingZeros64(ports))
			if int(id) >= len(t.sum) {
				return damage("block", uint64(id), "is a port that its chunk does not have")
			}
			for i := range counts {
				if !inside[i] || counts[i] == 0 {
					continue
				}
				peak := code(0)
				if peaks != nil {
					peak = peaks[i]
				}
				_, high := rates(c.points[i], counts[i], peak, peaks != nil)
				t.sum[id] += float64(decode(counts[i]))
				t.high[id] = max(t.high[id], high)
			}
		}
	}
	return nil
}

func (t *tally) addHead(v *view, h *head) {
	for r := range h.rows {
		row := &h.rows[r]
		if row.at+row.dur <= v.from || row.at >= v.to || row.at < v.after {
			continue
		}
		t.watch(h.set, float64(row.dur))
		for i, no := range h.blockNos {
			eachCode(row.block(i), func(port int, m Metric, c code) {
				if m != t.m {
					return
				}
				id := no*blockPorts + uint32(port)
				_, high := rates(row.span, c, 0, false)
				t.sum[id] += float64(decode(c))
				t.high[id] = max(t.high[id], high)
			})
		}
	}
}

// ranked lists the ports that had anything.
func (t *tally) ranked() []Ranked {
	var all []Ranked
	for id, sum := range t.sum {
		if sum > 0 {
			mean := sum * 1000 / t.ms[id]
			all = append(all, Ranked{uint32(id), mean, max(mean, t.high[id])})
		}
	}
	return all
}
