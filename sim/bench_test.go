package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"softib/ib"
)

// permutation has every host send without end to another, each to one.
func permutation(s *Sim, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	n := s.NumHosts()
	to := r.Perm(n)
	for i := range n {
		if to[i] == i {
			j := (i + 1) % n
			to[i], to[j] = to[j], to[i]
		}
	}
	for i := range n {
		s.flow(i, to[i], math.MaxInt)
	}
}

func benchPermutation(b *testing.B, spec string) {
	s := build(b, spec, Config{Seed: 1})
	permutation(s, 1)
	s.Run(100 * ib.Microsecond) // queues fill, pools and buckets reach their size
	b.ReportAllocs()
	b.ResetTimer()
	start, from, events := s.Hops(), s.Now(), 0
	for s.Hops()-start < uint64(b.N) {
		s.q.peek()
		s.step()
		events++
	}
	b.StopTimer()
	hops := float64(s.Hops() - start)
	b.ReportMetric(hops/b.Elapsed().Seconds()/1e6, "Mhops/s")
	b.ReportMetric(float64(events)/hops, "events/hop")
	b.ReportMetric(float64(s.Now()-from)/1e6/b.Elapsed().Seconds(), "virtual-us/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
}

func BenchmarkPermutation(b *testing.B) {
	for _, t := range []struct {
		hosts int
		spec  string
	}{
		{32, "fat-tree:radix=8,levels=2"},
		{128, "fat-tree:radix=8,levels=3"},
		{1024, "fat-tree:radix=16,levels=3"},
	} {
		b.Run(fmt.Sprint(t.hosts), func(b *testing.B) { benchPermutation(b, t.spec) })
	}
}
