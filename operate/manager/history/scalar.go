package history

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"
)

// scalarPoint is a number that was so from a time on, for so many milliseconds; in coarser tiers the mean of several,
// for the sum of their times, and the largest.
type scalarPoint struct {
	at        int64
	ms        uint64
	mean, max float64
}

// scalarHolds is how long a number stands for the time after it, if no other comes: longer is a gap.
const scalarHolds = int64(time.Minute / time.Millisecond)

// held says of numbers as they were given for how long each held: until the next, within reason, and the last one as
// long as the one before it.
func held(points []scalarPoint) []scalarPoint {
	points = slices.Clone(points)
	ms := scalarHolds
	for i := range points {
		if i+1 < len(points) {
			ms = min(max(1, points[i+1].at-points[i].at), scalarHolds)
		}
		points[i].ms = uint64(ms)
	}
	return points
}

// appendScalars encodes the points of one series:
//
//	count, then for each: milliseconds since the one before, for how many, mean and largest
//
// Numbers are those of the point before with bits turned, from the highest on, so that what does not change is one
// byte.
func appendScalars(dst []byte, all []scalarPoint) []byte {
	start := len(dst)
	dst = append(dst, recordVersion)
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	var last scalarPoint
	for _, p := range all {
		dst = binary.AppendVarint(dst, p.at-last.at)
		dst = binary.AppendUvarint(dst, p.ms)
		dst = binary.AppendUvarint(dst, turn(p.mean, last.mean))
		dst = binary.AppendUvarint(dst, turn(p.max, p.mean))
		last = p
	}
	return seal(dst, start)
}

func turn(v, last float64) uint64 {
	return bits.Reverse64(math.Float64bits(v) ^ math.Float64bits(last))
}

func turnBack(v uint64, last float64) float64 {
	return math.Float64frombits(bits.Reverse64(v) ^ math.Float64bits(last))
}

// readScalars decodes them.
func readScalars(rec []byte) ([]scalarPoint, error) {
	rec, err := unseal(rec)
	if err != nil {
		return nil, err
	}
	r := recordReader{b: rec}
	if v := r.byte(); v > recordVersion {
		return nil, ErrNewer
	}
	n := r.uvarint(math.MaxUint32)
	if n > uint64(len(r.b)/4) {
		r.fail(n, "points are more than there are bytes")
	}
	if r.err != nil {
		return nil, r.err
	}
	all := make([]scalarPoint, n)
	var last scalarPoint
	for i := range all {
		p := scalarPoint{at: last.at + r.varint(), ms: r.uvarint(math.MaxUint32)}
		p.mean = turnBack(r.uvarint(math.MaxUint64), last.mean)
		p.max = turnBack(r.uvarint(math.MaxUint64), p.mean)
		if r.err == nil && (p.ms == 0 || !isFinite(p.mean) || !isFinite(p.max)) {
			r.fail(uint64(i), "is a point without a number")
		}
		all[i], last = p, p
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail(uint64(len(r.b)), "bytes are left")
	}
	return all, r.err
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// rollScalars puts points together that are in the same stretch of so many milliseconds.
func rollScalars(dst []scalarPoint, all []scalarPoint, step int64) []scalarPoint {
	for _, p := range all {
		at := floor(p.at, step)
		k := len(dst) - 1
		if k < 0 || dst[k].at != at {
			p.at = at
			dst = append(dst, p)
			continue
		}
		q := &dst[k]
		q.ms += p.ms
		q.mean += (p.mean - q.mean) * (float64(p.ms) / float64(q.ms))
		q.max = max(q.max, p.max)
	}
	return dst
}

// floor is the last multiple of step that is not after v.
func floor(v, step int64) int64 {
	r := v % step
	if r < 0 {
		r += step
	}
	return v - r
}
