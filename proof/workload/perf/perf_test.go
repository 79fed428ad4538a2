package perf

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/race"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

// fabric is a running fabric of two hosts and a switch.
func fabric(t testing.TB, spec string) (*live.Host, *live.Host) {
	t.Helper()
	hosts := bringUp(t, spec).Hosts()
	return hosts[0], hosts[len(hosts)-1]
}

func bringUp(t testing.TB, spec string) *live.Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEveryTest(t *testing.T) {
	a, b := fabric(t, "star:2")
	for test := range NumTest {
		if test == WriteLat && race.Enabled {
			continue // it watches memory that somebody else writes: that is its purpose
		}
		sizes := []int{1, 2, 64, 65, 513, 4096, 4097, 100_000}
		if test == AtomicLat {
			sizes = []int{8}
		}
		t.Run(test.String(), func(t *testing.T) {
			var rows []Row
			cfg := Config{Test: test, Sizes: sizes, Iters: 100}
			if !test.IsLatency() {
				cfg.QPs, cfg.TxDepth = 3, 20
			}
			if err := Run(t.Context(), a.Device(), b.Device(), cfg, func(r Row) error {
				rows = append(rows,
					r)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if len(rows) != len(sizes) {
				t.Fatalf("%d rows, want %d", len(rows), len(sizes))
			}
			for i, r := range rows {
				if r.Bytes != sizes[i] {
					t.Errorf("row %d is of %d bytes, want %d", i, r.Bytes, sizes[i])
				}
				if test.IsLatency() {
					l := r.Latency
					if r.Iters != 100 || l.Min <= 0 || l.Min > l.Typical || l.Typical > l.P99 || l.P99 > l.P999 ||
						l.P999 > l.Max || l.Average < l.Min || l.Average > l.Max {
						t.Errorf("%d bytes: figures make no sense: %+v", r.Bytes, *l)
					}
				} else {
					w := r.Bandwidth
					if r.Iters != 300 || w.Average <= 0 || w.Peak < w.Average*0.999 ||
						math.Abs(w.MsgRate*float64(r.Bytes)/w.Average-1) > 1e-9 {
						t.Errorf("%d bytes: figures make no sense: %+v", r.Bytes, *w)
					}
				}
				if line, head := test.Columns().Line(r), test.Columns().Head(); len(line) != len(head) {
					t.Errorf("a row is not as wide as its head:\n%s\n%s", head, line)
				}
			}
		})
	}
}

func TestDepthAndMTU(t *testing.T) {
	a, b := fabric(t, "fat-tree:radix=4,levels=2")
	for _, depth := range []int{1, 2, 3, 16, 17, 128} {
		for _, mtu := range []ib.MTU{0, ib.MTU256} {
			cfg := Config{Test: WriteBW, Sizes: []int{3000}, Iters: 77, TxDepth: depth, MTU: mtu}
			var s Setting
			rows := 0
			if err := run(t.Context(), a.Device(), b.Device(), cfg, func(got Setting) error { s = got; return nil },
				func(Row) error { rows++; return nil }); err != nil || rows != 1 {
				t.Errorf("depth %d, mtu %d: %d rows, %v", depth, mtu, rows, err)
			}
			want := Setting{Test: WriteBW, Active: a.Name(), Passive: b.Name(), LIDs: s.LIDs, MTU: 4096, QPs: 1,
				TxDepth: depth}
			if mtu != 0 {
				want.MTU = mtu.Bytes()
			}
			if s != want || s.LIDs[0] == s.LIDs[1] {
				t.Errorf("setting is %+v, want %+v", s, want)
			}
		}
	}
}

func TestPostList(t *testing.T) {
	a, b := fabric(t, "star:2")
	for _, list := range []int{1, 2, 3, 16, 20} {
		for _, test := range []Test{SendBW, WriteBW, ReadBW} {
			cfg := Config{Test: test, Sizes: []int{8, 3000}, Iters: 101, QPs: 2, TxDepth: 20, PostList: list}
			rows := 0
			if err := Run(t.Context(), a.Device(), b.Device(), cfg,
				func(Row) error { rows++; return nil }); err != nil || rows != 2 {
				t.Errorf("%v, lists of %d: %d rows, %v", test, list, rows, err)
			}
		}
	}
}

func TestRunTwiceLeavesNothing(t *testing.T) {
	a, b := fabric(t, "star:2")
	for range 3 {
		if err := Run(t.Context(), a.Device(), b.Device(), Config{Test: SendBW, Sizes: []int{8}, Iters: 50, QPs: 2},
			func(Row) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStops(t *testing.T) {
	a, b := fabric(t, "star:2")
	for test := range NumTest {
		if test == WriteLat && race.Enabled {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := Run(ctx, a.Device(), b.Device(), Config{Test: test, Iters: MaxIters}, func(Row) error { return nil })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v, want the deadline", test, err)
		}
	}
	stop := errors.New("enough")
	if err := Run(t.Context(), a.Device(), b.Device(), Config{Test: SendLat, Iters: 10},
		func(Row) error { return stop }); !errors.Is(err,
		stop) {
		t.Errorf("got %v, want the caller's own error", err)
	}
}

// A cable that is pulled ends the test with the status that says so.
func TestCablePulled(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := f.Hosts()[0], f.Hosts()[1]
	end := topo.PortRef{Node: b.Node().Index, Port: 1}
	before := f.Counters(end)[ib.PortRcvPkts]
	var pulled sync.WaitGroup
	pulled.Go(func() {
		for t.Context().Err() == nil && f.Counters(end)[ib.PortRcvPkts] < before+1000 { // the test runs
			time.Sleep(time.Millisecond)
		}
		f.SetLink(end, false)
	})
	err := Run(t.Context(), a.Device(), b.Device(), Config{Test: SendLat, Iters: MaxIters / 10},
		func(Row) error { return nil })
	pulled.Wait()
	var status *StatusError
	if !errors.As(err, &status) || status.Status == verbs.WCSuccess {
		t.Fatalf("got %v, want a completion with an error", err)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg    Config
		option string
	}{
		{Config{Test: NumTest}, "test"},
		{Config{Test: SendLat, Sizes: []int{0}}, "size"},
		{Config{Test: SendLat, Sizes: []int{8, -1}}, "size"},
		{Config{Test: WriteBW, Sizes: []int{MaxSize + 1}}, "size"},
		{Config{Test: AtomicLat, Sizes: []int{16}}, "size"},
		{Config{Test: SendLat, Iters: -1}, "iterations"},
		{Config{Test: SendLat, Iters: MaxIters + 1}, "iterations"},
		{Config{Test: SendLat, QPs: 2}, "qps"},
		{Config{Test: SendBW, QPs: MaxQPs + 1}, "qps"},
		{Config{Test: SendBW, TxDepth: -5}, "tx-depth"},
		{Config{Test: SendBW, PostList: -5}, "post-list"},
		{Config{Test: SendBW, PostList: 17, TxDepth: 16}, "post-list"},
		{Config{Test: SendBW, QPs: 1024, Sizes: []int{8 << 20}}, "size"},
		{Config{Test: SendBW, MTU: 9}, "mtu"},
	} {
		_, err := c.cfg.complete()
		var e *ConfigError
		if !errors.As(err, &e) || e.Option != c.option || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: got %v, want a ConfigError about %s", c.cfg, err, c.option)
		}
	}
}

func TestNames(t *testing.T) {
	for test := range NumTest {
		for _, name := range []string{test.String(), "ib_" + test.String()} {
			if got, err := ParseTest(name); err != nil || got != test {
				t.Errorf("ParseTest(%q) = %v, %v", name, got, err)
			}
		}
		var back Test
		text, err := test.MarshalText()
		if err := errors.Join(err, back.UnmarshalText(text)); err != nil || back != test {
			t.Errorf("%v reads back as %v, %v", test, back, err)
		}
	}
	if _, err := ParseTest("send_speed"); err == nil || !strings.Contains(err.Error(), "write_bw") {
		t.Errorf("an unknown test is answered with %v, which does not list the tests", err)
	}
}

func TestAllSizes(t *testing.T) {
	all := AllSizes()
	if all[0] != 2 || all[len(all)-1] != 8<<20 || len(all) != 23 {
		t.Errorf("sizes are %v, want the 23 powers of two from 2 to 8 MiB", all)
	}
}

func TestSummarize(t *testing.T) {
	stamps := []time.Duration{0}
	for i := range 1000 {
		stamps = append(stamps, stamps[i]+time.Duration(i+1)*2*time.Microsecond)
	}
	got := summarize(stamps, 2)
	want := Latency{Min: 1, Max: 1000, Typical: 500, Average: 500.5, StdDev: math.Sqrt((1000*1000 - 1) / 12.0),
		P99: 990, P999: 999}
	if math.Abs(got.StdDev-want.StdDev) > 1e-6 {
		t.Errorf("stdev is %v, want %v", got.StdDev, want.StdDev)
	}
	got.StdDev = want.StdDev
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The peak is compared with trying every stretch.
func TestPeakOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := newMarks(64)
		n := 1 + rng.IntN(30)
		at, posted := time.Duration(0), 0
		completed := 0
		for len(m.ended) < n {
			at += time.Duration(1 + rng.IntN(5000))
			if len(m.begun) < n && (len(m.begun) == len(m.ended) || rng.IntN(2) == 0) {
				m.begun, m.before = append(m.begun, at), append(m.before, posted)
				posted += 16
			} else {
				completed += 16
				m.ended, m.within = append(m.ended, at), append(m.within, completed)
			}
		}
		want := 0.0
		for i := range m.begun {
			for j := range m.ended {
				if k := m.within[j] - m.before[i]; k > 0 && m.ended[j] > m.begun[i] {
					want = max(want, float64(k)/(m.ended[j]-m.begun[i]).Seconds())
				}
			}
		}
		if got := m.peak(); math.Abs(got/want-1) > 1e-6 {
			t.Fatalf("peak is %g, the best of all stretches %g: %+v", got, want, m)
		}
	}
}

func TestHead(t *testing.T) {
	var b strings.Builder
	s := Setting{Test: SendLat, Active: "h1", Passive: "h2", LIDs: [2]ib.LID{13, 14}, MTU: 4096, QPs: 1, TxDepth: 1,
		Hops: 1, Where: "star"}
	if err := s.WriteHead(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Send Latency Test", "h1", "4096[B]", "LID 0x0d", "LID 0x0e, 1 switch away",
		"t_typical[usec]", "99.9% percentile[usec]"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("head lacks %q:\n%s", want, b.String())
		}
	}
}
