package perf

import (
	"fmt"
	"testing"
)

// BenchmarkTests runs every test for b.N messages, set-up and warm-up
// included in the time but not in the figures that it reports.
func BenchmarkTests(b *testing.B) {
	for _, c := range []struct {
		test Test
		size int
	}{
		{SendLat, 8}, {WriteLat, 8}, {ReadLat, 8}, {AtomicLat, 8},
		{SendBW, 8}, {WriteBW, 8}, {ReadBW, 8}, {SendBW, 65536}, {WriteBW, 65536}, {ReadBW, 65536},
	} {
		b.Run(fmt.Sprintf("%v/%d", c.test, c.size), func(b *testing.B) {
			x, y := fabric(b, "star:2")
			b.ResetTimer()
			err := Run(b.Context(), x.Device(), y.Device(), Config{Test: c.test, Sizes: []int{c.size}, Iters: b.N},
				func(r Row) error {
					if r.Latency != nil {
						b.ReportMetric(r.Latency.Typical*1e3, "ns-typical")
					} else {
						b.ReportMetric(r.Bandwidth.Average/mb, "MB/sec")
						b.ReportMetric(r.Bandwidth.MsgRate/1e6, "Mmsg/s")
					}
					return nil
				})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
