package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proof/workload/perf"
)

// BenchmarkSwitched is what a way through the switches costs: the time of a message and how much goes through, over
// cables with no limit and with one.
func BenchmarkSwitched(b *testing.B) {
	for _, rate := range []int64{0, 10e9, 1e9} {
		for _, c := range []struct {
			test perf.Test
			size int
		}{{perf.SendLat, 8}, {perf.WriteBW, 65536}} {
			b.Run(fmt.Sprintf("%v/%d Mb/s", c.test, rate/1e6), func(b *testing.B) {
				f, socket := fabric(b, "fat-tree:radix=4,levels=2")
				x, y := open(b, socket, "h1"), open(b, socket, "h8")
				if err := f.SetFault(portOf(f, 7), live.Fault{Rate: rate}); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				b.ResetTimer()
				err := perf.Run(ctx, x, y, perf.Config{Test: c.test, Iters: max(b.N, 5), Sizes: []int{c.size}},
					func(r perf.Row) error {
						if r.Latency != nil {
							b.ReportMetric(r.Latency.Typical, "us/message")
						} else {
							b.ReportMetric(r.Bandwidth.Average*8/1e6, "Mb/s")
						}
						return nil
					})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
