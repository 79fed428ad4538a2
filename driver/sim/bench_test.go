package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"softib/internal/benchsize"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
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

func benchPermutation(b *testing.B, spec string, levels int) {
	s := build(b, spec, Config{Seed: 1})
	for i := range s.NumHosts() {
		s.src(i).sl = ib.SL(i % levels)
	}
	permutation(s, 1)
	s.Run(100 * ib.Microsecond) // queues fill, pools and buckets reach their size
	b.ReportAllocs()
	b.ResetTimer()
	start, from, cpu := s.Hops(), s.Now(), cpuTime()
	for s.Hops()-start < uint64(b.N) {
		s.Run(s.Now() + ib.Microsecond)
	}
	b.StopTimer()
	hops := float64(s.Hops() - start)
	b.ReportMetric(hops/b.Elapsed().Seconds()/1e6, "Mhops/s")
	b.ReportMetric(hops/(cpuTime()-cpu)/1e6, "Mhops/cpu-s")
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
		name   string
		spec   string
		levels int // service levels in use, each on a lane of its own
	}{
		{"32", "fat-tree:radix=8,levels=2", 1},
		{"128", "fat-tree:radix=8,levels=3", 1},
		{"1024", "fat-tree:radix=16,levels=3", 1},
		{"1024-8VLs", "fat-tree:radix=16,levels=3", 8},
	} {
		b.Run(t.name, func(b *testing.B) { benchPermutation(b, benchsize.Tree(t.spec), t.levels) })
	}
}

// rcLoad is every host writing to another by RDMA over RC, in messages of 64 KiB, with the real adapters, worked on by
// one processor or by several.
type rcLoad struct {
	tb    testing.TB
	s     *Sim
	parts *Parts
	from  []*peer
}

func newRCLoad(tb testing.TB, spec string, cores int) *rcLoad {
	g, err := topo.ParseSpec(spec)
	check(tb, err)
	s, err := New(g, Config{Seed: 1, ByRefMin: 1024, ByPlace: true})
	check(tb, err)
	_, err = s.BringUp()
	check(tb, err)
	n := s.NumHosts()
	const size = 1 << 16
	l := &rcLoad{tb: tb, s: s, from: make([]*peer, n)}
	to := make([]*peer, n)
	// What is sent and received is nobody's, as in jobs: all hosts read the same memory, those of a part write to one.
	source, sinks, of := make([]byte, size), make([][size]byte, cores), divide(g, cores, nil)
	for i := range n {
		l.from[i] = newPeerOn(tb, s, i, hca.RC, source)
		to[i] = newPeerOn(tb, s, i, hca.RC, sinks[of[s.HostNode(i).Index]][:])
	}
	perm := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for i := range n {
		if perm[i] == i {
			j := (i + 1) % n
			perm[i], perm[j] = perm[j], perm[i]
		}
	}
	for i := range n {
		connectRC(tb, l.from[i], to[perm[i]], ib.MTU4096, 0)
		l.from[i].rkey = to[perm[i]].mr.RKey()
	}
	if cores > 1 {
		l.parts, err = s.Split(cores, nil)
		check(tb, err)
	}
	for i := range n {
		l.from[i].cq.ReqNotify(false)
		for range 8 {
			l.from[i].write(tb)
		}
		l.simOf(i).Wake(i)
	}
	return l
}

// simOf is the simulation that a host is of.
func (l *rcLoad) simOf(host int) *Sim {
	if l.parts == nil {
		return l.s
	}
	return l.parts.Sim(l.parts.PartOf(l.s.HostNode(host).Index))
}

// write posts one more message of all the memory.
func (p *peer) write(tb testing.TB) {
	p.wr = hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: p.sges[:], RemoteAddr: peerVA,
		RKey: p.rkey}
	p.sges[0] = hca.SGE{Addr: peerVA, Length: uint32(len(p.mem)), LKey: p.mr.LKey()}
	if err := p.h.PostSend(p.qp, &p.wr); err != nil {
		tb.Error(err)
	}
}

// run lets time pass, posting a message for each that completes.
func (l *rcLoad) run(until ib.Time) {
	if l.parts == nil {
		l.serve(l.s, until)
		return
	}
	for l.parts.Next() <= until {
		check(l.tb, l.parts.Run(until, func(part int, until ib.Time) (ib.Time, error) {
			s := l.parts.Sim(part)
			l.serve(s, until)
			return s.Engine.Next(), nil
		}))
	}
}

func (l *rcLoad) serve(s *Sim, until ib.Time) {
	var wc [16]hca.WC
	for w := s.Next(until); w.Kind == WakeHost; w = s.Next(until) {
		p := l.from[w.Host]
		for _, ok := p.h.PollEvent(); ok; _, ok = p.h.PollEvent() {
		}
		p.cq.ReqNotify(false)
		for n := p.cq.Poll(wc[:]); n > 0; n = p.cq.Poll(wc[:]) {
			for range n {
				p.write(l.tb)
			}
		}
		s.Wake(w.Host)
	}
}

// BenchmarkRC is the permutation with real adapters: queue pairs, memory, acknowledgements.
func BenchmarkRC(b *testing.B) {
	for _, t := range []struct {
		hosts, cores int
		spec         string
	}{
		{32, 1, "fat-tree:radix=8,levels=2"},
		{1024, 1, "fat-tree:radix=16,levels=3"},
		{1024, 2, "fat-tree:radix=16,levels=3"},
	} {
		b.Run(fmt.Sprintf("%d-hosts-%d-cores", t.hosts, t.cores), func(b *testing.B) {
			l := newRCLoad(b, benchsize.Tree(t.spec), t.cores)
			now := 100 * ib.Microsecond // queues fill, pools and buckets reach their size
			l.run(now)
			b.ReportAllocs()
			b.ResetTimer()
			start, cpu := l.s.Hops(), cpuTime()
			for l.s.Hops()-start < uint64(b.N) {
				now += 10 * ib.Microsecond
				l.run(now)
			}
			b.StopTimer()
			hops := float64(l.s.Hops() - start)
			b.ReportMetric(hops/b.Elapsed().Seconds()/1e6, "Mhops/s")
			b.ReportMetric(hops/(cpuTime()-cpu)/1e6, "Mhops/cpu-s")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
		})
	}
}
