package history

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
)

// span is one point in time of a chunk: what it holds happened from At on, for Dur milliseconds that were watched. In
// the raw tier that is the time between two samples; in others At is where a minute, or ten, begin.
type span struct{ at, dur int64 }

// chunk is a stretch of time of one tier: what is known of it without reading it.
type chunk struct {
	tier     int
	key      int64 // unique in the tier; the first millisecond, or a little later where that is taken
	from, to int64 // milliseconds since 1970; to is the first that is not in it
	points   []span
	set      *portSet
	bytes    int64 // of its records
}

// Limits on what a record may claim, so that a damaged one cannot ask for all memory.
const (
	chunkPoints = 1 << 14
	maxPorts    = 1 << 24
)

// recordVersion is of every record; it goes up when they change.
const recordVersion = 1

// appendMeta encodes what a chunk is.
func appendMeta(dst []byte, c *chunk) []byte {
	start := len(dst)
	dst = append(dst, recordVersion)
	dst = binary.AppendVarint(dst, c.from)
	dst = binary.AppendVarint(dst, c.to-c.from)
	dst = binary.AppendVarint(dst, c.bytes)
	dst = binary.AppendUvarint(dst, uint64(len(c.points)))
	last := c.from
	for _, p := range c.points {
		dst = binary.AppendVarint(dst, p.at-last)
		dst = binary.AppendVarint(dst, p.dur)
		last = p.at
	}
	dst = c.set.append(dst)
	return seal(dst, start)
}

// readMeta decodes what a chunk is.
func readMeta(rec []byte) (*chunk, error) {
	rec, err := unseal(rec)
	if err != nil {
		return nil, err
	}
	r := recordReader{b: rec}
	if v := r.byte(); v > recordVersion {
		return nil, ErrNewer
	}
	c := &chunk{}
	c.from = r.varint()
	length := r.varint()
	c.to = c.from + length
	c.bytes = r.varint()
	n := r.uvarint(chunkPoints)
	if r.err == nil && (length < 0 || c.bytes < 0 || c.to < c.from || n > uint64(len(r.b))) {
		r.fail(n, "points cannot be")
	}
	if r.err != nil {
		return nil, r.err
	}
	c.points = make([]span, n)
	last := c.from
	for i := range c.points {
		last += r.varint()
		c.points[i] = span{last, r.varint()}
		if r.err == nil && (c.points[i].dur <= 0 || c.points[i].dur > math.MaxInt32) {
			r.fail(uint64(c.points[i].dur), "ms is no length of a point")
		}
	}
	c.set = readSet(&r)
	if r.err == nil && len(r.b) > 0 {
		r.fail(uint64(len(r.b)), "bytes are left")
	}
	return c, r.err
}

// recordReader takes numbers from a record; the first that is not there is the error.
type recordReader struct {
	b   []byte
	err error
}

func (r *recordReader) fail(v uint64, what string) {
	if r.err == nil {
		r.err = damage("record", v, what)
	}
	r.b = nil
}

func (r *recordReader) byte() byte {
	if len(r.b) == 0 {
		r.fail(0, "bytes are left where one is needed")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *recordReader) uvarint(most uint64) uint64 {
	v, k := binary.Uvarint(r.b)
	if k <= 0 || v > most {
		r.fail(v, "is no number that may be here")
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *recordReader) varint() int64 {
	v, k := binary.Varint(r.b)
	if k <= 0 {
		r.fail(0, "bytes are no number")
		return 0
	}
	r.b = r.b[k:]
	return v
}

// portSet is the ports that a chunk knows of: those that it has nothing of were idle, others were not watched.
type portSet struct {
	ranges []idRange
	n      int
}

// idRange is ports whose numbers follow each other, last included.
type idRange struct{ first, last uint32 }

// newSet makes a set from numbers in ascending order.
func newSet(ids []uint32) *portSet {
	s := &portSet{n: len(ids)}
	for _, id := range ids {
		if k := len(s.ranges); k > 0 && s.ranges[k-1].last+1 == id {
			s.ranges[k-1].last = id
			continue
		}
		s.ranges = append(s.ranges, idRange{id, id})
	}
	return s
}

func (s *portSet) equal(t *portSet) bool {
	return s == t || s.n == t.n && slices.Equal(s.ranges, t.ranges)
}

func (s *portSet) has(id uint32) bool {
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= id })
	return i < len(s.ranges) && s.ranges[i].first <= id
}

// blocks lists the numbers of the blocks that have any of the ports, in ascending order.
func (s *portSet) blocks() []uint32 {
	var all []uint32
	for _, r := range s.ranges {
		for b := r.first / blockPorts; b <= r.last/blockPorts; b++ {
			if k := len(all); k == 0 || all[k-1] != b {
				all = append(all, b)
			}
		}
	}
	return all
}

func (s *portSet) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s.ranges)))
	next := uint32(0)
	for _, r := range s.ranges {
		dst = binary.AppendUvarint(dst, uint64(r.first-next))
		dst = binary.AppendUvarint(dst, uint64(r.last-r.first))
		next = r.last + 1
	}
	return dst
}

func readSet(r *recordReader) *portSet {
	n := r.uvarint(maxPorts)
	if n > uint64(len(r.b)) {
		r.fail(n, "ranges of ports are more than there are bytes")
		return nil
	}
	s := &portSet{ranges: make([]idRange, 0, n)}
	next := uint64(0)
	for range n {
		first := next + r.uvarint(maxPorts)
		last := first + r.uvarint(maxPorts)
		if r.err != nil {
			return nil
		}
		if last >= maxPorts {
			r.fail(last, "is no port")
			return nil
		}
		s.ranges = append(s.ranges, idRange{uint32(first), uint32(last)})
		s.n += int(last - first + 1)
		next = last + 1
	}
	return s
}
