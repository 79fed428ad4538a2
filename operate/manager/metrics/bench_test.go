package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"softib/internal/benchsize"
	"softib/internal/cputime"
	"softib/internal/race"
	"softib/operate/manager"
	"softib/proto/ib"
)

// large is a fabric with as many hosts as one 36-port switch radix gives on three levels: 11,664.
const large = "fat-tree:radix=36,levels=3"

// BenchmarkScrape measures scrapes of 11,664 hosts with an HTTP client on loopback that reads to the end.
func BenchmarkScrape(b *testing.B) {
	_, _, e := running(b, benchsize.Tree(large))
	busy(e)
	srv := httptest.NewServer(e)
	srv.Client().Transport.(*http.Transport).DisableCompression = true // what is measured is the text
	defer srv.Close()
	for _, c := range []struct {
		name  string
		parts []string
	}{{"all", nil}, {"switch", []string{"switch"}}, {"hca", []string{"hca"}}, {"ufm", []string{"ufm"}},
		{"softib", []string{"softib"}}, {"switch+hca+softib", []string{"switch", "hca", "softib"}}} {
		b.Run(c.name, func(b *testing.B) {
			to := srv.URL + "/metrics?" + url.Values{"collect[]": c.parts}.Encode()
			get(b, srv.Client(), to)
			for b.Loop() {
				b.SetBytes(get(b, srv.Client(), to))
			}
		})
	}
}

// busy makes counters as long as they are after weeks of traffic: those that are 0 on a good fabric stay so.
func busy(e *Exporter) {
	idle := e.fresh
	e.fresh = func() *manager.Sample {
		s := idle()
		for i := range s.Ports {
			for _, k := range []ib.Counter{
				ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts, ib.PortXmitWait,
				ib.PortUnicastXmitPkts, ib.PortUnicastRcvPkts, ib.PortMulticastXmitPkts, ib.PortMulticastRcvPkts,
			} {
				s.Ports[i].Counters[k] += 37_108_676_853_855 + uint64(i)
			}
		}
		return s
	}
}

// TestLarge: 11,664 hosts are scraped with two seconds of processor time at most, which is a second on two processors,
// and several at once in bounded memory. How long a scrape takes is BenchmarkScrape's.
func TestLarge(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("a measurement")
	}
	_, _, e := running(t, large)
	busy(e)
	srv := httptest.NewServer(e)
	srv.Client().Transport.(*http.Transport).DisableCompression = true // what is measured is the text
	defer srv.Close()
	worked := cputime.Used(t)
	bytes := get(t, srv.Client(), srv.URL)
	worked = cputime.Used(t) - worked
	if worked > 2*time.Second || bytes < 400e6 {
		t.Errorf("%d bytes with %v of processor time: want 400 MB or more with 2 s at most", bytes, worked)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var done sync.WaitGroup
	for range scrapesMax + 1 {
		done.Go(func() { get(t, srv.Client(), srv.URL) })
	}
	done.Wait()
	runtime.ReadMemStats(&now)
	if used := now.HeapSys - min(before.HeapSys, now.HeapSys); used > 500e6 {
		t.Errorf("%d scrapes at once, of %d MB each, took %d MB of memory", scrapesMax+1, bytes>>20, used>>20)
	}
	t.Logf("%d MB with %v of processor time; heap %d MB, then %d MB", bytes>>20, worked,
		before.HeapSys>>20, now.HeapSys>>20)
}

// get reads an answer to its end.
func get(t testing.TB, c *http.Client, to string) int64 {
	t.Helper()
	r, err := c.Get(to)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Error(r.Status, err)
	}
	return n
}

// BenchmarkIndex is what is done once.
func BenchmarkIndex(b *testing.B) {
	_, m, _ := running(b, benchsize.Tree(large))
	for b.Loop() {
		newIndex(m)
	}
}
