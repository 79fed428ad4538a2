package metrics

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/internal/benchsize"
	"softib/internal/promtest"
	"softib/internal/race"
	"softib/operate/doctor"
	"softib/operate/manager"
	"softib/proof/workload/perf"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs/attach"
	"softib/verbs/attach/server"
)

const rulesFile = "../../../contrib/prometheus/softib.rules.yml"

// world is a fabric as `softib up` has it: a subnet manager, a manager, programs that can attach, and /metrics.
type world struct {
	t      testing.TB
	f      *live.Fabric
	m      *manager.Manager
	socket string
	target string // host:port of /metrics
}

func newWorld(t testing.TB, spec string) *world {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := smrun.New(sm.Config{Window: 256, Groups: f.Groups()}, s, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = run.Run(ctx) }()
	select {
	case <-run.Up():
	case <-time.After(60 * time.Second):
		t.Fatal("the subnet does not come up")
	}
	w := &world{t: t, f: f, socket: filepath.Join(t.TempDir(), "verbs")}
	l, err := server.Listen(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, f, "test", nil) }()
	if w.m, err = manager.New(manager.Options{Name: "test", Topology: spec, Version: "1.2", Fabric: f,
		Subnet: run}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(New(w.m))
	w.target = srv.Listener.Addr().String()
	t.Cleanup(func() {
		srv.Close()
		if err := w.m.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		<-run.Done()
		f.Close()
	})
	return w
}

// traffic is two programs that send to each other until stop is called, which wants them to have fared well.
func (w *world) traffic(from, to string) (stop func()) {
	w.t.Helper()
	var dev [2]*attach.Device
	for i, h := range []string{from, to} {
		d, err := attach.Open(attach.Options{Socket: w.socket, Host: h})
		if err != nil {
			w.t.Fatal(err)
		}
		dev[i] = d
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			// A few at a time: two of a machine's cores are not only for this.
			err := perf.Run(ctx, dev[0], dev[1], perf.Config{Test: perf.SendBW, Sizes: []int{16 << 10}, Iters: 200,
				TxDepth: 16}, func(perf.Row) error { return nil })
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				done <- err
				return
			}
		}
	}()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("traffic: %v", err)
		}
		for _, d := range dev {
			d.Close()
		}
	}
}

// plantBadCable makes a cable between two switches on the way between two hosts a bad one, and names both ends, as
// topo.PortName does.
func (w *world) plantBadCable(from, to string, spec manager.FaultSpec) [2]string {
	w.t.Helper()
	a, err := w.m.Port(from)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := w.m.Port(to)
	if err != nil {
		w.t.Fatal(err)
	}
	way, err := w.m.Route(w.t.Context(), a, b)
	if err != nil || !way.Arrives || len(way.Hops) < 3 {
		w.t.Fatalf("%+v, %v", way, err)
	}
	h := way.Hops[1]
	if err := w.m.SetFault(h.Out, spec, "a test"); err != nil {
		w.t.Fatal(err)
	}
	return [2]string{w.m.Graph().PortName(h.Out), w.m.Graph().PortName(h.In)}
}

// TestAlerts: Debian's Prometheus scrapes a fabric with traffic, by our rules. While all is well no alert is there; a
// cable that is made bad is named.
func TestAlerts(t *testing.T) {
	if race.Enabled {
		t.Skip("programs that read each other's memory race by design")
	}
	w := newWorld(t, "fat-tree:radix=4,levels=2")
	p := promtest.Start(t, promtest.Config{Target: w.target, Rules: rulesFile, For: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	stop := w.traffic("h1", "h8")
	defer stop()

	p.AwaitValue(ctx, `sum(increase(infiniband_switch_port_transmit_data_bytes_total[10s]))`,
		func(v float64) bool { return v > 1e6 })
	p.AwaitValue(ctx, `count_over_time(up{job="softib"}[1m])`, func(v float64) bool { return v >= 6 })
	// A scrape that came late on a busy machine may have made one, which goes.
	p.Await(ctx, func(list []promtest.Alert) bool { return len(list) == 0 })
	if bad := p.Health(); len(bad) != 0 {
		t.Fatalf("rules that cannot be evaluated: %v", bad)
	}

	ends := w.plantBadCable("h1", "h8", manager.FaultSpec{BER: 1e-6})
	cable := func(a promtest.Alert) string { return a.Labels["switch"] + "[" + a.Labels["port"] + "]" }
	alerts := promtest.Firing(p.Await(ctx, func(list []promtest.Alert) bool {
		return slices.ContainsFunc(promtest.Firing(list),
			func(a promtest.Alert) bool { return a.Name() == "InfinibandCableErrors" })
	}))
	named := 0
	for _, a := range alerts {
		if a.Name() != "InfinibandCableErrors" {
			continue
		}
		named++
		far := a.Labels["uplink"] + "[" + a.Labels["uplink_port"] + "]"
		if got := []string{cable(a), far}; !slices.Equal(got, ends[:]) &&
			!slices.Equal(got, []string{ends[1], ends[0]}) {
			t.Errorf("the bad cable is %s: the alert names %s", ends, got)
		}
		for what, text := range a.Annotations {
			if strings.Contains(text, "<no value>") || strings.Contains(text, "error") &&
				strings.Contains(text, "template") {
				t.Errorf("%s: %s", what, text)
			}
		}
	}
	if named == 0 {
		t.Errorf("no alert of a cable among %+v", alerts)
	}
	w.doctorNames(ends)
	askDashboard(ctx, t, p)
}

// doctorNames wants `softib doctor` to name a cable too, and no other one, from what datagrams tell it while traffic
// goes on.
func (w *world) doctorNames(ends [2]string) {
	w.t.Helper()
	s, err := w.f.OpenMgmt(topo.PortRef{Node: w.m.Graph().Hosts()[1].Index, Port: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	surveys, err := doctor.Run(w.t.Context(), s, doctor.RunOptions{Interval: time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	report := doctor.Judge(surveys.Before, surveys.After, doctor.Options{Plan: w.m.Graph()})
	named := false
	for _, sec := range report.Sections {
		for _, f := range sec.Findings {
			if f.Kind != "bad-cable" {
				continue
			}
			if !slices.Contains(f.Objects, ends[0]) || !slices.Contains(f.Objects, ends[1]) {
				w.t.Errorf("the bad cable is %s: the doctor names %v", ends, f.Objects)
			}
			named = true
		}
	}
	if !named {
		w.t.Errorf("the doctor does not name %s: %+v", ends, report)
	}
}

// quiet are panels that may be empty on a small fabric in its first seconds: nothing waits, nothing is lost, no second
// sample came.
var quiet = []string{
	"Share of time that ports waited for credit", "Hosts that waited for credit", "Discards",
	"Links that went down, by hour", "Failed requests by status",
	"in error", "Administrator: time for a path", "Tenants: members", "Symbol errors",
}

// askDashboard asks Prometheus everything that the dashboard asks. What was scraped too late is not there until the
// next scrape.
func askDashboard(ctx context.Context, t *testing.T, p *promtest.Server) {
	t.Helper()
	d := readDashboard(t)
	fill := strings.NewReplacer("$__rate_interval", "10s", "$job", ".*", "$switch", "leaf1")
	for title, list := range d.expressions() {
		for _, q := range list {
			if !slices.Contains(quiet, title) {
				p.AwaitValue(ctx, fill.Replace(q), func(float64) bool { return true })
			}
		}
	}
}

// TestRules lets promtool check the rules and run their own tests.
func TestRules(t *testing.T) {
	tool := promtest.Find(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", rulesFile},
		{"test", "rules", "../../../contrib/prometheus/softib.rules.test.yml"},
		{"check", "config", "--syntax-only", "../../../contrib/prometheus/prometheus.yml"},
	} {
		out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// BenchmarkPrometheus says how long Debian's Prometheus takes to scrape 11,664 hosts. It has to make a series of each
// sample the first time.
func BenchmarkPrometheus(b *testing.B) {
	_, _, e := running(b, benchsize.Tree(large))
	srv := httptest.NewServer(e)
	defer srv.Close()
	every := benchsize.Of(30*time.Second, 200*time.Millisecond)
	for _, part := range []Part{HCA, Switch} {
		b.Run(string(part), func(b *testing.B) {
			p := promtest.Start(b, promtest.Config{Target: srv.Listener.Addr().String(),
				Collect: []string{string(part)}, Interval: every, Timeout: every})
			ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
			defer cancel()
			for b.Loop() {
				p.AwaitValue(ctx, "count_over_time(scrape_duration_seconds[5m])",
					func(v float64) bool { return v >= 2 })
			}
			for name, query := range map[string]string{"first-s": "max_over_time(scrape_duration_seconds[5m])",
				"next-s": "min_over_time(scrape_duration_seconds[5m])", "samples": "scrape_samples_scraped"} {
				v, _ := p.Value(query)
				b.ReportMetric(v, name)
			}
		})
	}
}
