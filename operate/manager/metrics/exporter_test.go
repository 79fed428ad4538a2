package metrics

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"softib/internal/promtest"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// scrape is what a request gets, parsed strictly.
func scrape(t testing.TB, h http.Handler, query string) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics"+query, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	text := w.Body.String()
	return parse(t, text), text
}

// parse reads the text format and wants it to be as it should.
func parse(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	list, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not the text format: %v", err)
	}
	checkOrder(t, text)
	return list
}

// checkOrder wants one HELP and one TYPE for each family, its samples after them and together, and no sample twice.
func checkOrder(t testing.TB, text string) {
	t.Helper()
	helps, types, samples := map[string]bool{}, map[string]bool{}, map[string]bool{}
	now := ""
	in := bufio.NewScanner(strings.NewReader(text))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		if f := strings.Fields(line); len(f) > 2 && f[0] == "#" {
			set := map[string]map[string]bool{"HELP": helps, "TYPE": types}[f[1]]
			if set == nil || set[f[2]] {
				t.Fatalf("twice, or neither HELP nor TYPE: %s", line)
			}
			set[f[2]], now = true, f[2]
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		if !helps[now] || !types[now] || name != now &&
			!slices.Contains([]string{now + "_bucket", now + "_sum", now + "_count"}, name) {
			t.Fatalf("outside of its family, after %s: %s", now, line)
		}
		key := line[:strings.LastIndexByte(line, ' ')]
		if samples[key] {
			t.Fatalf("twice: %s", line)
		}
		samples[key] = true
	}
}

// value is that of the sample with these labels, names and values in turn; NaN where there is none.
func value(f *dto.MetricFamily, labels ...string) float64 {
	for _, m := range f.GetMetric() {
		found := 0
		for _, l := range m.GetLabel() {
			for i := 0; i+1 < len(labels); i += 2 {
				if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
					found++
				}
			}
		}
		if found == len(labels)/2 {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return math.NaN()
}

func labelNames(m *dto.Metric) (names []string) {
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

func TestNames(t *testing.T) {
	_, m, e := running(t, "fat-tree:radix=4,levels=2")
	all, _ := scrape(t, e, "")
	// The names and labels of infiniband_exporter 0.10, and of UFM Telemetry.
	port := []string{"guid", "port"}
	want := map[string][]string{
		"infiniband_switch_port_rate_bytes_per_second":     port,
		"infiniband_switch_port_raw_rate_bytes_per_second": port,
		"infiniband_switch_info":                           {"guid", "lid", "switch"},
		"infiniband_switch_uplink_info": {"guid", "port", "switch", "uplink", "uplink_guid",
			"uplink_lid", "uplink_port", "uplink_type"},
		"infiniband_switch_collect_duration_seconds": {"collector", "guid"},
		"infiniband_switch_collect_error":            {"collector", "guid"},
		"infiniband_switch_collect_timeout":          {"collector", "guid"},
		"infiniband_hca_rate_bytes_per_second":       {"guid"},
		"infiniband_hca_raw_rate_bytes_per_second":   {"guid"},
		"infiniband_hca_info":                        {"guid", "hca", "lid"},
		"infiniband_hca_uplink_info": {"guid", "hca", "port", "uplink", "uplink_guid",
			"uplink_lid", "uplink_port", "uplink_type"},
		"infiniband_hca_collect_duration_seconds":        {"collector", "guid"},
		"infiniband_hca_collect_error":                   {"collector", "guid"},
		"infiniband_hca_collect_timeout":                 {"collector", "guid"},
		"infiniband_exporter_collector_duration_seconds": {"collector"},
		"infiniband_exporter_collect_errors":             {"collector"},
		"infiniband_exporter_collect_timeouts":           {"collector"},
	}
	for _, c := range strings.Fields(`transmit_data_bytes receive_data_bytes transmit_packets receive_packets unicast_transmit_packets unicast_receive_packets
		multicast_transmit_packets multicast_receive_packets symbol_error link_error_recovery link_downed receive_errors receive_remote_physical_errors
		receive_switch_relay_errors transmit_discards transmit_constraint_errors receive_constraint_errors local_link_integrity_errors
		excessive_buffer_overrun_errors vl15_dropped transmit_wait qp1_dropped local_physical_errors malformed_packet_errors buffer_overrun_errors
		dli_mapping_errors vl_mapping_errors looping_errors`) {
		want["infiniband_switch_port_"+c+"_total"] = port
		want["infiniband_hca_port_"+c+"_total"] = port
	}
	for _, c := range strings.Fields(`PortXmitDataExtended PortRcvDataExtended PortXmitPktsExtended PortRcvPktsExtended PortUniCastXmitPktsExtended
		PortUniCastRcvPktsExtended PortMultiCastXmitPktsExtended PortMultiCastRcvPktsExtended SymbolErrorCounterExtended LinkErrorRecoveryCounterExtended
		LinkDownedCounterExtended PortRcvErrorsExtended PortRcvRemotePhysicalErrorsExtended PortRcvSwitchRelayErrorsExtended PortXmitDiscardsExtended
		PortXmitConstraintErrorsExtended PortRcvConstraintErrorsExtended LocalLinkIntegrityErrorsExtended ExcessiveBufferOverrunErrorsExtended
		VL15DroppedExtended PortXmitWaitExtended QP1DroppedExtended PortLocalPhysicalErrors PortMalformedPacketErrors PortBufferOverrunErrors
		PortDLIDMappingErrors PortVLMappingErrors PortLoopingErrors PortInactiveDiscards PortNeighborMTUDiscards PortSwLifetimeLimitDiscards
		PortSwHOQLifetimeLimitDiscards Link_Down_IB`) {
		want[c] = []string{"node_guid", "port_guid", "port_num"}
	}
	cabled := map[string]int{"infiniband_switch_port_": 24, "infiniband_hca_port_": 8, "infiniband_switch_uplink": 24,
		"infiniband_hca_uplink": 8, "infiniband_switch_info": 6, "infiniband_hca_info": 8}
	for name, labels := range want {
		f := all[name]
		if f == nil {
			t.Errorf("no %s", name)
			continue
		}
		for _, s := range f.Metric {
			if got := labelNames(s); !slices.Equal(got, labels) {
				t.Errorf("%s has the labels %v: want %v", name, got, labels)
			}
		}
		total := strings.HasSuffix(name, "_total") || !strings.HasPrefix(name, "infiniband_")
		if want := map[bool]dto.MetricType{true: dto.MetricType_COUNTER,
			false: dto.MetricType_GAUGE}[total]; f.GetType() != want {
			t.Errorf("%s is a %v: want a %v", name, f.GetType(), want)
		}
		for prefix, n := range cabled {
			if strings.HasPrefix(name, prefix) && len(f.Metric) != n {
				t.Errorf("%s has %d samples: want %d", name, len(f.Metric), n)
			}
		}
	}
	for name := range all {
		if !strings.HasPrefix(name, "softib_") && !strings.HasPrefix(name, "go_") &&
			!strings.HasPrefix(name, "process_") && want[name] == nil {
			t.Errorf("%s is nobody's name", name)
		}
	}
	leaf, host := m.Graph().ByName("leaf1"), m.Graph().ByName("h1")
	lid := fmt.Sprint(m.LID(topo.PortRef{Node: host.Index, Port: 1}))
	if v := value(all["infiniband_switch_uplink_info"], "guid", guidText(leaf.GUID), "port", "1", "switch", "leaf1",
		"uplink", "h1 HCA-1",
		"uplink_guid", guidText(host.PortGUID(1)), "uplink_lid", lid, "uplink_port", "1", "uplink_type",
		"CA"); v != 1 ||
		lid == "0" {
		t.Errorf("leaf1[1] is not seen to lead to h1, whose LID is %s", lid)
	}
	if v := value(all["infiniband_hca_info"], "hca", "h1 HCA-1", "lid", lid); v != 1 {
		t.Errorf("h1 with the LID %s is %v", lid, v)
	}
	for name, n := range map[string]int{"switch": 6, "hca": 8} {
		for _, what := range []string{"duration_seconds", "error", "timeout"} {
			seen := map[string]int{}
			for _, s := range all["infiniband_"+name+"_collect_"+what].Metric {
				for _, l := range s.GetLabel() {
					if l.GetName() == "collector" {
						seen[l.GetValue()]++
					}
				}
			}
			if want := map[string]int{name: n, name + "-rcv-err": n}; !maps.Equal(seen, want) {
				t.Errorf("infiniband_%s_collect_%s by collector: %v, want %v", name, what, seen, want)
			}
		}
	}
	rate := host.Ports[1].Rate()
	if v := value(all["infiniband_switch_port_rate_bytes_per_second"], "guid", guidText(leaf.GUID), "port",
		"1"); v != float64(rate.Mbps())*1e6/8 {
		t.Errorf("a link of %v carries %v bytes a second", rate, v)
	}
	if v := value(all["infiniband_hca_raw_rate_bytes_per_second"], "guid",
		guidText(host.PortGUID(1))); v != 4*100e9/8 { // as infiniband_exporter has it for NDR
		t.Errorf("a link of %v signals %v bytes a second", rate, v)
	}
}

// TestRates: what links carry and what they signal, at switches and at hosts, in bytes a second. Of 4x EDR the tests of
// infiniband_exporter have both numbers.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		link         string
		carries, raw float64
	}{
		{"speed=QDR", 4e9, 5e9}, {"speed=FDR10", 5e9, 5.15625e9}, {"speed=FDR", 6.8181e9, 7.03125e9},
		{"speed=EDR", 12.5e9, 12.890625e9}, {"speed=HDR", 25e9, 25e9}, {"speed=HDR,width=2x", 12.5e9, 12.5e9},
		{"speed=NDR", 50e9, 50e9}, {"speed=XDR", 100e9, 100e9},
	} {
		_, m, e := running(t, "star:2,"+c.link)
		all, _ := scrape(t, e, "?collect[]=switch&collect[]=hca")
		sw, host := guidText(m.Graph().ByName("sw1").GUID), guidText(m.Graph().ByName("h1").PortGUID(1))
		for name, want := range map[string]float64{"rate_bytes_per_second": c.carries,
			"raw_rate_bytes_per_second": c.raw} {
			at := value(all["infiniband_switch_port_"+name], "guid", sw, "port", "1")
			of := value(all["infiniband_hca_"+name], "guid", host)
			if math.Abs(at/want-1) > 1e-3 || math.Abs(of/want-1) > 1e-3 {
				t.Errorf("%s: %s is %g at the switch, %g at the host, want %g", c.link, name, at, of, want)
			}
		}
	}
}

// TestValues: what is exported is what the ports count, in the right units, and goes on when a link goes down.
func TestValues(t *testing.T) {
	f, m, e := running(t, "fat-tree:radix=4,levels=2")
	r, err := m.Link("leaf1", "spine1")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetFault(r, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	before := f.CountersOf(m.Ports())
	all, _ := scrape(t, e, "")
	after := f.CountersOf(m.Ports()) // managers and traps go on meanwhile
	n := m.Graph().Nodes[r.Node]
	guid, port := guidText(n.GUID), fmt.Sprint(r.Port)
	for i, r := range m.Ports() {
		n := m.Graph().Nodes[r.Node]
		if !n.Ports[r.Port].Connected() {
			continue
		}
		word := "hca"
		if n.IsSwitch() {
			word = "switch"
		}
		for _, c := range portCounters {
			low, high := float64(before[i][c.counter]*c.unit), float64(after[i][c.counter]*c.unit)
			if got := value(all[c.ufm], "node_guid", fmt.Sprintf("%x", uint64(n.GUID)), "port_num",
				fmt.Sprint(r.Port)); !(got >= low && got <= high) {
				t.Errorf("port %d: %s is %v: want %v to %v", i, c.ufm, got, low, high)
			}
			if c.trey == "" {
				continue
			}
			if got := value(all["infiniband_"+word+"_"+c.trey], "guid", guidText(n.PortGUID(r.Port)), "port",
				fmt.Sprint(r.Port)); !(got >= low && got <= high) {
				t.Errorf("port %d: %s is %v: want %v to %v", i, c.trey, got, low, high)
			}
		}
	}
	if c := f.Counters(r); c[ib.LinkDownedCounter] != 1 || c[ib.PortXmitData] == 0 {
		t.Fatalf("nothing was counted: %v", c)
	}
	if v := value(all["infiniband_switch_uplink_info"], "guid", guid, "port", port); !math.IsNaN(v) {
		t.Errorf("a link that is down leads somewhere")
	}
	if v := value(all["infiniband_switch_port_rate_bytes_per_second"], "guid", guid, "port", port); !math.IsNaN(v) {
		t.Errorf("a link that is down carries %v bytes a second", v)
	}
	if v := value(all["softib_fault_info"], "link", "leaf1[3] spine1[1]", "fault", "down"); v != 1 {
		t.Errorf("the fault is %v", v)
	}
}

func TestParts(t *testing.T) {
	_, _, e := running(t, "star:2")
	prefix := map[Part]string{Switch: "infiniband_switch_port_", HCA: "infiniband_hca_port_", UFM: "PortXmit",
		Own: "softib_"}
	for i := range 1 << len(Parts) {
		var q []string
		for k, p := range Parts {
			if i&(1<<k) != 0 {
				q = append(q, "collect[]="+string(p))
			}
		}
		slices.Reverse(q) // the order of the text is always the same
		all, _ := scrape(t, e, "?"+strings.Join(q, "&"))
		for k, p := range Parts {
			has := false
			for name := range all {
				has = has || strings.HasPrefix(name, prefix[p])
			}
			if want := i == 0 || i&(1<<k) != 0; has != want {
				t.Errorf("%v has %s: %v", q, p, has)
			}
		}
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/metrics?collect[]=fans", nil))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "switch, hca, ufm, softib") {
		t.Errorf("an unknown part: %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("POST", "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	w = httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("HEAD", "/metrics", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d and %d bytes", w.Code, w.Body.Len())
	}
}

// TestEscapes: descriptions that other people's files have must not break a scrape.
func TestEscapes(t *testing.T) {
	var s sheet
	names := []string{`a "quoted" name`, "two\nlines", `back\slash`, "no UTF-8: \xff\xfe", "höst", `ends in \`, ""}
	s.family("x", "help with \\ and\nlines", gauge)
	for i, n := range names {
		s.add("x", float64(i), "name", n, "more", n)
	}
	for i, v := range []float64{math.Inf(1), math.Inf(-1), 1e300, 0.1} {
		s.add("x", v, "name", fmt.Sprint(i))
	}
	f := parse(t, string(s.b))["x"]
	for i, n := range names {
		n = strings.ToValidUTF8(n, "\uFFFD")
		if got := value(f, "name", n, "more", n); got != float64(i) && n != "" {
			t.Errorf("%q is %v: want %d", n, got, i)
		}
	}
	if len(f.Metric) != len(names)+4 {
		t.Errorf("%d samples", len(f.Metric))
	}
}

func FuzzLabel(f *testing.F) {
	for _, s := range []string{"", "leaf1", `"`, `\`, "\n", "\xff", `a\"b`, "\x00", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		var s sheet
		s.family("x", v, gauge)
		s.add("x", 1, "a", v, "b", "end")
		p := expfmt.NewTextParser(model.LegacyValidation)
		list, err := p.TextToMetricFamilies(bytes.NewReader(s.b))
		if err != nil {
			t.Fatalf("%q: %v", s.b, err)
		}
		m := list["x"].Metric[0]
		for _, l := range m.Label {
			if want := strings.ToValidUTF8(v, "\uFFFD"); l.GetName() == "a" && l.GetValue() != want {
				t.Errorf("%q was read as %q: want %q", s.b, l.GetValue(), want)
			}
		}
	})
}

// TestPromtool lets Prometheus' own tool judge.
func TestPromtool(t *testing.T) {
	tool := promtest.Find(t, "promtool")
	_, m, e := running(t, "fat-tree:radix=4,levels=2")
	r, _ := m.Link("leaf1", "spine1")
	if err := m.SetFault(r, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	_, text := scrape(t, e, "?collect[]=switch&collect[]=hca&collect[]=softib")
	cmd := exec.CommandContext(t.Context(), tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// UFM's names are not what the tool likes; it must still be able to read them.
	_, text = scrape(t, e, "?collect[]=ufm")
	cmd = exec.CommandContext(t.Context(), tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, `counter metrics should have "_total" suffix`) &&
			!strings.Contains(line, "camelCase") {
			t.Error(line)
		}
	}
}

// TestBlocks: the text is the same however it is cut.
func TestBlocks(t *testing.T) {
	_, _, e := running(t, "fat-tree:radix=8,levels=3")
	e.index()
	s := e.snapshot()
	for _, p := range []Part{Switch, HCA, UFM} {
		var whole []byte
		for _, k := range e.blocks[p] {
			whole = k.append(whole, s)
		}
		var small []block
		for _, k := range e.blocks[p] {
			for i := k.from; i < k.to; i += 7 {
				small = append(small, block{k.f, i, min(i+7, k.to)})
			}
		}
		var got bytes.Buffer
		if err := stream(t.Context(), &got, small, s, false); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), whole) {
			t.Errorf("%s: %d bytes in small blocks, %d in large ones, and not the same", p, got.Len(), len(whole))
		}
	}
}

// stuck is a writer that takes a little and then fails, as one whose deadline passes.
type stuck struct{ n int }

func (s *stuck) Write(b []byte) (int, error) {
	if s.n--; s.n < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// TestStuck: whoever makes text ends when nobody takes it.
func TestStuck(t *testing.T) {
	_, _, e := running(t, "fat-tree:radix=8,levels=3")
	e.index()
	s := e.snapshot()
	all := slices.Concat(e.blocks[Switch], e.blocks[UFM])
	for n := range 10 {
		if err := stream(t.Context(), &stuck{n}, all, s, n%2 == 1); err != io.ErrClosedPipe {
			t.Fatalf("after %d blocks: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stream(ctx, &stuck{1 << 30}, all, s, false); err != context.Canceled {
		t.Fatal(err)
	}
}

// TestSlowReader: clients that never read, and many at once, hold up neither the fabric nor each other for long.
func TestSlowReader(t *testing.T) {
	f, m, e := running(t, "fat-tree:radix=16,levels=3")
	e.blockPatience = time.Hour // nobody is given up: whoever waits for them waits for ever
	srv := httptest.NewServer(e)
	defer srv.Close()
	// These read one line and no more. What they asked for is more than sockets hold.
	for range scrapesMax - 1 {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatal(line, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	// The fabric is free for others.
	free := make(chan struct{})
	go func() {
		defer close(free)
		f.CountersOf(m.Ports())
	}()
	select {
	case <-free:
	case <-ctx.Done():
		t.Fatal("the fabric is held")
	}
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/metrics?collect[]=switch", nil)
			if err != nil {
				t.Error(err)
				return
			}
			a, err := srv.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			if n, err := io.Copy(io.Discard, a.Body); err != nil || n < 1<<20 {
				t.Errorf("%d bytes and %v", n, err)
			}
		})
	}
	done.Wait()
	srv.CloseClientConnections()
}

// TestCrowd: more scrapes than can wait are told so.
func TestCrowd(t *testing.T) {
	_, _, e := running(t, "star:2")
	for range cap(e.waiting) {
		e.waiting <- struct{}{}
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// Who accepts gzip gets it, in several members, and it is the same text.
func TestCompressed(t *testing.T) {
	_, _, e := running(t, "fat-tree:radix=8,levels=2")
	scrape := func(accept string) (http.Header, []byte) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/metrics?collect[]=switch&collect[]=hca&collect[]=ufm", nil)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Header(), w.Body.Bytes()
	}
	same := regexp.MustCompile(`(?m)^.*duration_seconds.*\n`) // which differ from scrape to scrape
	_, plain := scrape("")
	head, zipped := scrape("deflate, gzip;q=0.5")
	if head.Get("Content-Encoding") != "gzip" || head.Get("Vary") != "Accept-Encoding" || 8*len(zipped) > len(plain) {
		t.Errorf("%v: %d bytes for %d", head, len(zipped), len(plain))
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(same.ReplaceAll(got, nil), same.ReplaceAll(plain, nil)) {
		t.Errorf("%v: %d bytes are %d: want %d", err, len(zipped), len(got), len(plain))
	}
	for _, no := range []string{"identity", "gzip;q=0", "deflate", "gzip;q=x"} {
		if head, got := scrape(no); head.Get("Content-Encoding") != "" || len(got) < len(plain)/2 {
			t.Errorf("%q is answered with %d bytes, %v", no, len(got), head)
		}
	}
}
