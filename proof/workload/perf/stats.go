package perf

import (
	"math"
	"slices"
	"time"
)

// Row is the result for one message size.
type Row struct {
	Bytes     int        `json:"bytes"`
	Iters     int        `json:"iterations"`
	Latency   *Latency   `json:"latency,omitempty"`
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
}

// Latency is in microseconds.
type Latency struct {
	Min     float64 `json:"min_usec"`
	Max     float64 `json:"max_usec"`
	Typical float64 `json:"typical_usec"`
	Average float64 `json:"average_usec"`
	StdDev  float64 `json:"stdev_usec"`
	P99     float64 `json:"p99_usec"`
	P999    float64 `json:"p999_usec"`
}

// Bandwidth is in bytes and messages a second.
type Bandwidth struct {
	Peak    float64 `json:"peak_bytes_per_sec"`
	Average float64 `json:"average_bytes_per_sec"`
	MsgRate float64 `json:"messages_per_sec"`
}

// summarize turns stamps into figures: each interval, divided by part, is one
// sample.
func summarize(stamps []time.Duration, part int) Latency {
	n := len(stamps) - 1
	samples := make([]float64, n)
	sum := 0.0
	for i := range samples {
		samples[i] = float64(stamps[i+1]-stamps[i]) / float64(part) / 1e3
		sum += samples[i]
	}
	slices.Sort(samples)
	avg := sum / float64(n)
	dev := 0.0
	for _, s := range samples {
		dev += (s - avg) * (s - avg)
	}
	at := func(share float64) float64 { return samples[max(int(math.Ceil(share*float64(n)))-1, 0)] }
	return Latency{
		Min: samples[0], Max: samples[n-1], Typical: at(0.5), Average: avg, StdDev: math.Sqrt(dev / float64(n)),
		P99: at(0.99), P999: at(0.999),
	}
}

// summarize turns the moments of a stream into figures.
func (m *marks) summarize(size int) Bandwidth {
	last := len(m.ended) - 1
	total := m.ended[last] - m.begun[0]
	rate := float64(m.within[last]) / total.Seconds()
	return Bandwidth{Peak: m.peak() * float64(size), Average: rate * float64(size), MsgRate: rate}
}

// peak is the highest rate between the beginning of any group and any later
// completion, in messages a second: the greatest (within[j]-before[i]) /
// (ended[j]-begun[i]). Whatever was posted after begun[i] and was complete by
// ended[j] is at least that many.
//
// The quotient is found as Dinkelbach does: with the best rate so far as the price
// of a second, look for a stretch that is still worth more than it costs.
func (m *marks) peak() float64 {
	rate := 0.0
	for range 100 {
		better := 0.0
		low := math.Inf(1) // the cheapest beginning so far
		best, from, i := 0.0, 0, 0
		for j := range m.ended {
			for ; i < len(m.begun) && m.begun[i] < m.ended[j]; i++ {
				if v := float64(m.before[i]) - rate*m.begun[i].Seconds(); v < low {
					low, from = v, i
				}
			}
			if i == 0 {
				continue
			}
			if v := float64(m.within[j]) - rate*m.ended[j].Seconds() - low; v > best+1e-6 {
				best = v
				better = float64(m.within[j]-m.before[from]) / (m.ended[j] - m.begun[from]).Seconds()
			}
		}
		if better <= rate {
			break
		}
		rate = better
	}
	return rate
}
