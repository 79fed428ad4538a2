package metrics

import (
	"context"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	waits "softib/internal/patience" // the package has a patience of its own
	"softib/internal/race"
	"softib/node/hca"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs/attach"
)

// TestPrograms: what two programs did is what is exported, to the byte.
func TestPrograms(t *testing.T) {
	if race.Enabled {
		t.Skip("programs that read each other's memory race by design")
	}
	w := newWorld(t, "star:3")
	var dev [2]*attach.Device
	for i, h := range []string{"h1", "h2"} {
		d, err := attach.Open(attach.Options{Socket: w.socket, Host: h})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dev[i] = d
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cfg := perf.Config{Test: perf.SendBW, Sizes: []int{4096}, Iters: 5000}
	if err := perf.Run(ctx, dev[0], dev[1], cfg, func(perf.Row) error { return nil }); err != nil {
		t.Fatal(err)
	}
	const bytes = 4096 * 5000
	sent := func(all map[string]*dto.MetricFamily, host, direction string) float64 {
		return value(all["softib_host_bytes_total"], "host", host, "kind", "native", "direction", direction)
	}
	all, _ := scrape(t, New(w.m), "?collect[]=softib")
	for !(sent(all, "h1", "transmit") >= bytes && sent(all, "h2", "receive") >= bytes) { // programs tell now and then
		if ctx.Err() != nil {
			t.Fatalf("h1 has sent %v bytes, h2 has received %v: want at least %d", sent(all, "h1", "transmit"),
				sent(all, "h2", "receive"), bytes)
		}
		time.Sleep(time.Millisecond)
		all, _ = scrape(t, New(w.m), "?collect[]=softib")
	}
	hosts := w.f.HostStats() // this may be a little more
	if len(hosts) != 2 {
		t.Fatalf("%d hosts have programs", len(hosts))
	}
	for i := range hosts {
		h := &hosts[i]
		s := &h.Stats
		for _, c := range hostCounters {
			if got := value(all[c.name], "host", h.Host); !(got >= 0 && got <= float64(c.of(s))) {
				t.Errorf("%s of %s is %v: want up to %d", c.name, h.Host, got, c.of(s))
			}
		}
		if v := value(all["softib_host_programs"], "host", h.Host); v != 1 {
			t.Errorf("%s has %v programs", h.Host, v)
		}
	}
	if v := value(all["softib_host_bytes_total"], "host", "h1", "kind", "ipoib", "direction", "transmit"); v != 0 {
		t.Errorf("%v bytes by IP", v)
	}
	if v := value(all["softib_program_start_time_seconds"], "host", "h1", "pid",
		strconv.Itoa(os.Getpid())); math.Abs(v-float64(time.Now().Unix())) > 60 {
		t.Errorf("the program of h1 began at %v", v)
	}
	paths := all["softib_path_latency_seconds"]
	i := slices.IndexFunc(paths.GetMetric(), func(m *dto.Metric) bool {
		return value(&dto.MetricFamily{Metric: []*dto.Metric{m}}, "from", "h1", "to", "h2") == 0
	})
	if i < 0 {
		t.Fatalf("no path from h1 to h2: %v", paths)
	}
	last := 0.0
	for _, q := range paths.Metric[i].GetSummary().GetQuantile() {
		if q.GetValue() < last || q.GetValue() <= 0 || q.GetValue() > 10 {
			t.Errorf("quantile %v is %v s, after %v", q.GetQuantile(), q.GetValue(), last)
		}
		last = q.GetValue()
	}
	checkHistogram(t, all["softib_latency_seconds"], paths.Metric[i].GetSummary().GetSampleCount())
	checkHistogram(t, all["softib_sa_latency_seconds"], 0)
}

// TestAlarms: alarms that stand are counted by what they are about and how grave they are, those of every other kind
// are none and not missing, and one that is over is counted no more.
func TestAlarms(t *testing.T) {
	w := newWorld(t, "star:4")
	samples := w.m.Samples(t.Context())
	ctx, cancel := waits.Context(t.Context(), time.Minute)
	defer cancel()
	down := func(host string, is bool, standing int) {
		t.Helper()
		r, err := w.m.Link(host, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.m.SetFault(r, manager.FaultSpec{Down: is}, "a test"); err != nil {
			t.Fatal(err)
		}
		for {
			n := 0
			for _, a := range w.m.Alarms() {
				if a.Kind == health.LinkDown {
					n++
				}
			}
			if n == standing {
				return
			}
			select {
			case <-samples:
			case <-ctx.Done():
				t.Fatalf("%d alarms of links that are down, want %d: %v", n, standing, context.Cause(ctx))
			}
		}
	}
	want := func(counts map[[2]string]float64) {
		t.Helper()
		all, _ := scrape(t, New(w.m), "?collect[]=softib")
		for _, kind := range manager.Kinds() {
			for _, severity := range []string{"watch", "bad", "down"} {
				got := value(all["softib_alarms"], "kind", kind, "severity", severity)
				if n := counts[[2]string{kind, severity}]; got != n {
					t.Errorf("softib_alarms of %s, %s, is %v: want %v", kind, severity, got, n)
				}
			}
		}
		if n := len(all["softib_alarms"].GetMetric()); n != 3*int(health.NumKind) {
			t.Errorf("softib_alarms has %d samples, want %d", n, 3*int(health.NumKind))
		}
	}
	want(nil)
	down("h2", true, 1)
	down("h3", true, 2)
	flapped := [2]string{"flapping", "watch"} // by which they went down, for some minutes
	want(map[[2]string]float64{{"link down", "down"}: 2, flapped: 2})
	down("h3", false, 1)
	want(map[[2]string]float64{{"link down", "down"}: 1, flapped: 2})
}

// TestServiceNodes: adapters that are part of switches are counted apart from hosts.
func TestServiceNodes(t *testing.T) {
	text, err := os.ReadFile("../../../proto/topo/testdata/dumps/dgx.ibnetdiscover")
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.Parse("dgx", text)
	if err != nil {
		t.Fatal(err)
	}
	_, _, e := runningOf(t, "dgx", g)
	all, _ := scrape(t, e, "?collect[]=softib")
	for kind, want := range map[string]float64{"host": 9, "service": 2, "switch": 2, "router": 0} {
		if got := value(all["softib_nodes"], "type", kind); got != want {
			t.Errorf("softib_nodes of type %s is %v: want %v", kind, got, want)
		}
	}
}

// checkHistogram wants buckets that grow, and at least so many samples.
func checkHistogram(t *testing.T, f *dto.MetricFamily, atLeast uint64) {
	t.Helper()
	if f.GetType() != dto.MetricType_HISTOGRAM || len(f.Metric) != 1 {
		t.Fatalf("%v", f)
	}
	h := f.Metric[0].GetHistogram()
	last, bound := uint64(0), 0.0
	for _, b := range h.GetBucket() {
		if b.GetCumulativeCount() < last || b.GetUpperBound() <= bound {
			t.Errorf("%s: %d up to %v, after %d up to %v", f.GetName(), b.GetCumulativeCount(), b.GetUpperBound(), last,
				bound)
		}
		last, bound = b.GetCumulativeCount(), b.GetUpperBound()
	}
	if last != h.GetSampleCount() || last < atLeast || !math.IsInf(bound, 1) || len(h.GetBucket()) < 10 {
		t.Errorf("%s: %d in all buckets up to %v, %d in all; want at least %d", f.GetName(), last, bound,
			h.GetSampleCount(), atLeast)
	}
}

// TestManager: the subnet manager and links, as they are.
func TestManager(t *testing.T) {
	w := newWorld(t, "fat-tree:radix=4,levels=2")
	all, _ := scrape(t, New(w.m), "?collect[]=softib")
	for _, c := range []struct {
		name   string
		want   float64
		labels []string
	}{
		{"softib_sm_managed", 1, nil},
		{"softib_sm_state", 1, []string{"state", "master"}},
		{"softib_sm_state", 0, []string{"state", "standby"}},
		{"softib_sm_managers", 1, []string{"state", "master"}},
		{"softib_nodes", 8, []string{"type", "host"}},
		{"softib_nodes", 0, []string{"type", "service"}},
		{"softib_nodes", 6, []string{"type", "switch"}},
		{"softib_links", 16, []string{"state", "active"}},
		{"softib_links", 0, []string{"state", "down"}},
		{"softib_links_degraded", 0, nil},
		{"softib_faults", 0, nil},
		{"softib_tenants", 0, nil},
		{"softib_tenants_in_force", 1, nil},
		{"softib_partition_members", 14, []string{"pkey", "0x7fff"}},
		{"softib_info", 1, []string{"fabric", "test", "version", "1.2"}},
	} {
		if got := value(all[c.name], c.labels...); got != c.want {
			t.Errorf("%s%v is %v: want %v", c.name, c.labels, got, c.want)
		}
	}
	for total, phases := range map[string]string{"softib_sm_sweep_seconds": "softib_sm_sweep_phase_seconds",
		"softib_sm_sweep_datagrams": "softib_sm_sweep_phase_datagrams"} {
		sum := 0.0
		for _, m := range all[phases].GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		if v := value(all[total]); !(v > 0) || sum <= 0 || len(all[phases].GetMetric()) < 5 {
			t.Errorf("%s is %v, its %d phases are %v", total, v, len(all[phases].GetMetric()), sum)
		}
	}
	if value(all["softib_sm_sweeps_total"]) < 1 || value(all["softib_sm_datagrams_sent_total"]) < 10 {
		t.Errorf("%v sweeps, %v datagrams", value(all["softib_sm_sweeps_total"]),
			value(all["softib_sm_datagrams_sent_total"]))
	}
	if value(all["go_goroutines"]) < 1 || value(all["process_resident_memory_bytes"]) < 1e6 {
		t.Error("nothing about the process")
	}
}

// ease enforces nothing.
type ease struct{ err error }

func (ease) Reserved(ib.PKey) (string, bool)                             { return "", false }
func (e ease) Enforce(context.Context, tenant.State, tenant.State) error { return e.err }

func TestTenants(t *testing.T) {
	f, _, _ := running(t, "star:4")
	dir := t.TempDir()
	open := func(e ease) *manager.Manager {
		store, err := tenant.OpenStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		book, err := tenant.Open(t.Context(), store, e)
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Options{Fabric: f, Tenants: book, Interval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open(ease{})
	var members []tenant.Member
	for _, h := range f.Graph().Hosts()[:3] {
		members = append(members, tenant.Member{GUID: h.PortGUID(1), Full: true})
	}
	if _, err := m.Tenants().Create(t.Context(), tenant.Tenant{Name: "red", Key: 5, Members: members}); err != nil {
		t.Fatal(err)
	}
	check := func(m *manager.Manager, force float64) {
		t.Helper()
		all, _ := scrape(t, New(m), "?collect[]=softib")
		if v := value(all["softib_tenant_members"], "tenant", "red", "pkey", "0x0005"); v != 3 ||
			value(all["softib_tenants"]) != 1 {
			t.Errorf("red has %v members", v)
		}
		if v := value(all["softib_tenants_in_force"]); v != force {
			t.Errorf("in force: %v, want %v", v, force)
		}
	}
	check(m, 1)
	m.Tenants().Close()
	m.Close()
	m = open(ease{tenant.ErrUnmanaged})
	defer m.Close()
	defer m.Tenants().Close()
	check(m, 0)
}

// TestFailed: a request that was flushed because another failed is not another failure.
func TestFailed(t *testing.T) {
	var s hca.Stats
	s.SendErrors[hca.WCRetryExcErr], s.SendErrors[hca.WCWRFlushErr], s.RecvErrors[hca.WCWRFlushErr],
		s.RecvErrors[hca.WCLocLenErr] = 1, 10, 100, 2
	if n := failed(&s); n != 3 {
		t.Errorf("%d failures: want 3", n)
	}
}
