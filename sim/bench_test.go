package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
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
	start, from, events, cpu := s.Hops(), s.Now(), 0, cpuTime()
	for s.Hops()-start < uint64(b.N) {
		s.q.peek()
		s.step()
		events++
	}
	b.StopTimer()
	hops := float64(s.Hops() - start)
	b.ReportMetric(hops/b.Elapsed().Seconds()/1e6, "Mhops/s")
	b.ReportMetric(hops/(cpuTime()-cpu)/1e6, "Mhops/cpu-s")
	b.ReportMetric(float64(events)/hops, "events/hop")
	b.ReportMetric(float64(s.Now()-from)/1e6/b.Elapsed().Seconds(), "virtual-us/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
}

// cpuTime is what the process has used, in seconds: on a machine that others
// use as well it says more than the clock.
func cpuTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
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
