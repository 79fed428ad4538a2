package endpoint

import (
	"math/bits"
	"time"
)

// Histogram counts times by their size. Every power of two is cut into eight, so that a quantile is off by no more than
// a sixteenth, or 6%. The last bucket takes what is longer than all.
type Histogram [NumBuckets]uint64

const (
	// NumBuckets reach from a nanosecond to 34 seconds.
	NumBuckets = 8 * 33
	subBuckets = 8
)

// bucketOf is where a time counts. Up to 15 ns each nanosecond has its own.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 2*subBuckets {
		return int(n)
	}
	shift := bits.Len64(n) - 4 // which leaves 8 to 15
	return min(shift*subBuckets+int(n>>shift), NumBuckets-1)
}

// BucketStart is the shortest time that counts in bucket i. That of NumBuckets is where the last one would end.
func BucketStart(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(max(i, 0))
	}
	shift := i/subBuckets - 1
	return time.Duration(subBuckets+i%subBuckets) << shift
}

// Add counts a time.
func (h *Histogram) Add(d time.Duration) { h[bucketOf(d)]++ }

// Merge adds what another has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// Count is how many times were counted.
func (h *Histogram) Count() (n uint64) {
	for _, k := range h {
		n += k
	}
	return n
}

// Below is how many times were shorter than d, where a bucket begins with d; else those of d's bucket are left out.
func (h *Histogram) Below(d time.Duration) (n uint64) {
	for _, k := range h[:bucketOf(d)] {
		n += k
	}
	return n
}

// Sum is about what all times add up to.
func (h *Histogram) Sum() time.Duration {
	sum := 0.0
	for i, k := range h {
		sum += float64(k) * float64(middle(i))
	}
	return time.Duration(min(sum, 1<<62))
}

// Quantile is a time that a share q of all, from 0 to 1, do not exceed, 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total))
	for i, k := range h {
		if rank < k {
			return middle(i)
		}
		rank -= k
	}
	for i := NumBuckets - 1; ; i-- { // q is 1
		if h[i] > 0 {
			return middle(i)
		}
	}
}

// middle stands for all times of a bucket.
func middle(i int) time.Duration { return (BucketStart(i) + BucketStart(i+1) - 1) / 2 }
