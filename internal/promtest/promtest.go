package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Find is where a program of Debian's package prometheus is.
func Find(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("SOFTIB_NO_PROMETHEUS") != "" {
			t.Skip(err)
		}
		t.Fatalf("%v: apt-get install prometheus, or set SOFTIB_NO_PROMETHEUS to go without", err)
	}
	return path
}

// Config says what is scraped.
type Config struct {
	// Job is the job's name; softib if empty.
	Job string
	// Target is host:port, Collect the parts that are asked for; all if there are none.
	Target  string
	Collect []string
	// Rules is a file of rules. All of it is used as it is, but for the time that a condition has to stand ("for"),
	// which becomes For.
	Rules string
	For   time.Duration
	// Interval is that of scrapes and of evaluations, Timeout that of a scrape; a second each if 0.
	Interval, Timeout time.Duration
}

// Server is a Prometheus.
type Server struct {
	t    testing.TB
	base string
}

// waits is the line of a rule that says how long its condition has to stand.
var waits = regexp.MustCompile(`(?m)^(\s+for:) .*$`)

// Start runs a Prometheus until the test ends.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	path := Find(t, "prometheus")
	dir := t.TempDir()
	if c.Job == "" {
		c.Job = "softib"
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "global: {scrape_interval: %s, scrape_timeout: %s, evaluation_interval: %s}\n", c.Interval,
		c.Timeout, c.Interval)
	if c.Rules != "" {
		rules, err := os.ReadFile(c.Rules)
		if err != nil {
			t.Fatal(err)
		}
		rules = waits.ReplaceAll(rules, []byte("${1} "+c.For.String()))
		if err := os.WriteFile(filepath.Join(dir, "rules.yml"), rules, 0o600); err != nil {
			t.Fatal(err)
		}
		conf.WriteString("rule_files: [rules.yml]\n")
	}
	fmt.Fprintf(&conf, "scrape_configs:\n- job_name: %s\n  static_configs: [{targets: ['%s']}]\n", c.Job, c.Target)
	if len(c.Collect) > 0 {
		fmt.Fprintf(&conf, "  params: {'collect[]': [%s]}\n", strings.Join(c.Collect, ", "))
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	var log lockedBuffer
	cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("prometheus said:\n%s", log.String())
		}
	})
	s := &Server{t: t, base: "http://" + address}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.until(ctx, "prometheus to be ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("prometheus ended: %v\n%s", err, log.String())
		default:
		}
		r, err := http.Get(s.base + "/-/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return s
}

// lockedBuffer is what a process writes, to be read while it does.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// freeAddress is one on loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// until asks again and again whether something is so.
func (s *Server) until(ctx context.Context, what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("waited for %s in vain", what)
		case <-tick.C:
		}
	}
}

// ask is an answer of Prometheus' interface.
func (s *Server) ask(path string, q url.Values, data any) {
	s.t.Helper()
	r, err := http.Get(s.base + path + "?" + q.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	var a struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.Status != "success" {
		s.t.Fatalf("%s: %v %s", path, err, a.Error)
	}
	if err := json.Unmarshal(a.Data, data); err != nil {
		s.t.Fatal(err)
	}
}

// Alert is one that is pending or firing.
type Alert struct {
	Labels, Annotations map[string]string
	State               string
}

// Name is the rule's.
func (a Alert) Name() string { return a.Labels["alertname"] }

// Firing are those that do.
func Firing(list []Alert) (out []Alert) {
	for _, a := range list {
		if a.State == "firing" {
			out = append(out, a)
		}
	}
	return out
}

// Alerts are those that are pending or firing now.
func (s *Server) Alerts() []Alert {
	s.t.Helper()
	var d struct{ Alerts []Alert }
	s.ask("/api/v1/alerts", nil, &d)
	return d.Alerts
}

// Await waits until alerts are as wanted, and returns them.
func (s *Server) Await(ctx context.Context, are func([]Alert) bool) (list []Alert) {
	s.t.Helper()
	s.until(ctx, "alerts", func() bool {
		list = s.Alerts()
		return are(list)
	})
	return list
}

// Value is that of one series of a query's result; false where there is none.
func (s *Server) Value(query string) (float64, bool) {
	s.t.Helper()
	var d struct {
		Result []struct{ Value [2]any }
	}
	s.ask("/api/v1/query", url.Values{"query": {query}}, &d)
	if len(d.Result) == 0 {
		return 0, false
	}
	text, _ := d.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatalf("%s is %q: %v", query, text, err)
	}
	return v, true
}

// AwaitValue waits until a query has a result that is as wanted, and returns it.
func (s *Server) AwaitValue(ctx context.Context, query string, is func(float64) bool) (v float64) {
	s.t.Helper()
	s.until(ctx, query, func() bool {
		got, ok := s.Value(query)
		v = got
		return ok && is(got)
	})
	return v
}

// Health says of each rule how its last evaluation went, where it did not go well.
func (s *Server) Health() (bad map[string]string) {
	s.t.Helper()
	var d struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	s.ask("/api/v1/rules", nil, &d)
	bad = map[string]string{}
	for _, g := range d.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				bad[r.Name] = r.Health + ": " + r.LastError
			}
		}
	}
	return bad
}
