package history

import (
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"softib/internal/benchsize"
)

// benchPorts is a fat tree with 11,664 hosts: both ends of its 34,992 cables.
func benchPorts() int { return benchsize.Of(70_000, 700) }

// load makes the totals of the next sample of all ports.
type load struct {
	name string
	next func(rng *rand.Rand, k int, totals []Values)
}

// busy is a port that carries a noisy 2 GB/s both ways, and waits now and then.
func busy(rng *rand.Rand, v *Values) {
	bytes := uint64(1e10 * (0.9 + 0.2*rng.Float64()))
	v[XmitBytes] += bytes
	v[RcvBytes] += bytes + bytes/16
	v[XmitPkts] += bytes / 4096
	v[RcvPkts] += bytes / 4000
	if rng.IntN(4) == 0 {
		v[XmitWait] += rng.Uint64N(1e8)
	}
}

var loads = []load{
	{"idle", func(*rand.Rand, int, []Values) {}},
	{"tenth", func(rng *rand.Rand, k int, totals []Values) { // a tenth of the ports at a time
		for p := range totals {
			if (p/700+k/60)%10 == 0 {
				busy(rng, &totals[p])
			}
		}
	}},
	{"busy", func(rng *rand.Rand, _ int, totals []Values) {
		for p := range totals {
			busy(rng, &totals[p])
		}
	}},
}

func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkAppend is one sample of all ports. Writing goes on meanwhile, and is waited for in the end.
func BenchmarkAppend(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			before := memory()
			s := open(b, filepath.Join(b.TempDir(), "h.db"), Options{MaxBytes: 20 << 30})
			ids := numbers(b, s, benchPorts())
			empty := s.Stats().LiveBytes
			totals := make([]Values, benchPorts())
			rng := rand.New(rand.NewPCG(1, 1))
			k, worst := 0, time.Duration(0)
			var peak float64
			for b.Loop() {
				b.StopTimer()
				l.next(rng, k, totals)
				at := start.Add(time.Duration(k) * 5 * time.Second)
				if k%60 == 59 {
					peak = max(peak, memory()-before)
				}
				// On a real clock a sample has 5 s and the writer most of them.
				s.mu.Lock()
				for len(s.sealed) > 1 {
					s.idle.Wait()
				}
				s.mu.Unlock()
				begin := time.Now()
				b.StartTimer()
				appendTo(b, s, at, ids, totals)
				worst = max(worst, time.Since(begin))
				k++
			}
			b.StopTimer()
			if err := s.Flush(); err != nil {
				b.Fatal(err)
			}
			st := s.Stats()
			b.ReportMetric(float64(worst)/1e6, "ms-worst")
			b.ReportMetric(float64(st.LiveBytes-empty)/float64(k), "B-disk/sample")
			b.ReportMetric(float64(st.LiveBytes-empty)/float64(k)/float64(len(ids)), "B-disk/port")
			b.ReportMetric(peak, "MiB-heap")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkQuery asks a store that has a day of 70,000 ports, of which a tenth is busy at a time.
func BenchmarkQuery(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "h.db"), Options{MaxBytes: 20 << 30})
	defer s.Close()
	ids := numbers(b, s, benchPorts())
	totals := make([]Values, benchPorts())
	rng := rand.New(rand.NewPCG(1, 1))
	const day = 24 * time.Hour
	for k := range int(day / (30 * time.Second)) { // coarser samples, as many chunks
		loads[1].next(rng, k, totals)
		appendTo(b, s, start.Add(time.Duration(k)*30*time.Second), ids, totals)
		s.mu.Lock()
		for len(s.sealed) > 1 {
			s.idle.Wait()
		}
		s.mu.Unlock()
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	end := start.Add(day)
	for _, q := range []struct {
		name string
		ask  func(k int) error
	}{
		{"hour-1000", func(k int) error {
			_, err := s.Query(ids[k*7919%len(ids)], XmitBytes, end.Add(-time.Hour), end, 1000)
			return err
		}},
		{"day-1440", func(k int) error {
			_, err := s.Query(ids[k*7919%len(ids)], XmitBytes, start, end, 1440)
			return err
		}},
		{"day-144", func(k int) error {
			_, err := s.Query(ids[k*7919%len(ids)], XmitBytes, start, end, 144)
			return err
		}},
		{"top-hour", func(k int) error { _, err := s.Top(XmitBytes, end.Add(-time.Hour), end, 20); return err }},
		{"top-day", func(k int) error { _, err := s.Top(XmitBytes, start, end, 20); return err }},
	} {
		b.Run(q.name, func(b *testing.B) {
			for k := 0; b.Loop(); k++ {
				if err := q.ask(k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
