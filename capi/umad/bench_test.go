package umad

import (
	"os"
	"strconv"
	"sync"
	"testing"
)

// A program's requests through library, socket, server, management service and agent, and the answers back.
func BenchmarkRequests(b *testing.B) {
	for _, bc := range []struct {
		name                  string
		programs, outstanding int
	}{{"one at a time", 1, 1}, {"64 at a time", 1, 64}, {"4 programs, 16 each", 4, 16}} {
		b.Run(bc.name, func(b *testing.B) {
			f := serve(b)
			program := compile(b, "rate.c")
			b.ResetTimer()
			var wait sync.WaitGroup
			for range bc.programs {
				cmd := f.command(b, "h1", program, strconv.Itoa(max(1, b.N/bc.programs)), strconv.Itoa(bc.outstanding))
				cmd.Stderr = os.Stderr
				wait.Go(func() {
					if err := cmd.Run(); err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
