package fieldtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// killed is how many pairs TestKill kills; FIELDTEST_KILLS is another number.
func killed(t testing.TB) int {
	text := os.Getenv("FIELDTEST_KILLS")
	if text == "" {
		return 80
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FIELDTEST_KILLS is %q, want a number", text)
	}
	return n
}

// belongings are what a process has that it could forget to give back.
type belongings struct {
	files, mappings, goroutines int
	heap, resident              int // bytes
}

func (b belongings) String() string {
	return fmt.Sprintf("%d descriptors, %d shared mappings, %d goroutines, %d KiB of heap, %d KiB resident", b.files,
		b.mappings, b.goroutines, b.heap>>10, b.resident>>10)
}

// ours counts those of this process, which is the fabric's.
func ours(t testing.TB) (b belongings) {
	t.Helper()
	runtime.GC()
	runtime.GC() // finalizers had their turn
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.heap, b.goroutines = int(m.HeapAlloc), runtime.NumGoroutine()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	b.files = len(files)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	b.mappings = bytes.Count(maps, []byte("/memfd:"))
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, _ := strconv.Atoi(f[1])
			b.resident = kib << 10
		}
	}
	return b
}

// Programs that die, whichever side and whatever they are at, leave nothing in the fabric, and the next pair runs. Not
// parallel: what this process has is counted.
func TestKill(t *testing.T) {
	w := up(t, "fat-tree:radix=4,levels=2")
	programs := [][]string{
		{"ibv_rc_pingpong", "-n", "100000000"}, {"ibv_rc_pingpong", "-n", "100000000", "-s", "1048576"},
		{"ibv_ud_pingpong", "-n", "100000000"}, {"ibv_srq_pingpong", "-n", "10000000", "-e"},
		{"ib_write_bw", "-F", "-D", "100"}, {"ib_read_bw", "-F", "-D", "100", "-s", "1048576", "-q", "4"},
		{"ib_send_bw", "-F", "-D", "100", "-b"}, {"ib_atomic_lat", "-F", "-D", "100"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	n := 0
	kill := func(w *world) {
		p := programs[n%len(programs)]
		hosts := []string{"h1", "h8"}
		if n%5 == 4 {
			hosts = []string{"h3", "h3"} // within an adapter
		}
		first, second := w.startPair(hosts[0], hosts[1], p[0], p[1:]...)
		if n%2 == 1 {
			first, second = second, first
		}
		switch n % 4 {
		case 0: // in full flight
			from, _ := w.HostTraffic()
			first.until("sent", func() bool {
				now, _ := w.HostTraffic()
				return now > from+1000 || hosts[0] == hosts[1]
			})
		default: // wherever it may be
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		}
		first.kill()
		if n%8 == 0 {
			// The other finds out by itself: the queue pair fails, or the connection over which they met has ended.
			select {
			case <-second.done:
			case <-time.After(2 * time.Second):
			}
		}
		second.kill()
		n++
	}
	gone := func() {
		w.eventually("the programs' end", func() bool { return len(w.Programs()) == 0 })
	}
	// Some at a time, since a test keeps what its programs have printed until it ends.
	kills := func(until int) {
		for n < until && !t.Failed() {
			t.Run("from "+strconv.Itoa(n), func(t *testing.T) {
				for end := min(n+20, until); n < end; {
					kill(w.in(t))
				}
			})
		}
		gone()
	}
	kills(len(programs)) // once each, for what is made once
	before := ours(t)
	total := killed(t)
	start := time.Now()
	n = 0
	kills(total)
	var after belongings
	w.eventually("what programs had to be given back", func() bool {
		after = ours(t)
		return after.files <= before.files && after.mappings <= before.mappings && after.goroutines <= before.goroutines
	})
	t.Logf("%d pairs killed in %v", total, time.Since(start).Round(time.Second))
	t.Logf("before: %v", before)
	t.Logf("after:  %v", after)
	if grown := after.heap - before.heap; grown > 1<<20+total*512 {
		t.Errorf("the heap has grown by %d KiB", grown>>10)
	}
	w.perftest("h1", "h8", "ib_write_bw")
	w.perftest("h3", "h3", "ib_send_lat")
}
