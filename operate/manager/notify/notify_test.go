package notify

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"softib/driver/live"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/proto/topo"
)

// receiver takes what is sent.
type receiver struct {
	*httptest.Server
	got    chan []byte
	refuse atomic.Bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	x := &receiver{got: make(chan []byte, 1000)}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if x.refuse.Load() {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s of %s", r.Method, r.Header.Get("Content-Type"))
		}
		x.got <- b
	}))
	t.Cleanup(x.Close)
	return x
}

// next is what came next.
func next[T any](t *testing.T, x *receiver) (v T) {
	t.Helper()
	select {
	case b := <-x.got:
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("nothing was sent")
	}
	return v
}

func managed(t *testing.T) (*live.Fabric, *manager.Manager) {
	t.Helper()
	g, err := topo.ParseSpec("star:3")
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
	m, err := manager.New(manager.Options{Name: "test", Version: "1", Fabric: f, Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return f, m
}

func start(t *testing.T, m *manager.Manager, o Options) {
	t.Helper()
	n, err := Start(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
}

// A webhook is told when an alarm is raised, acknowledged, muted and over; and how it stands when it was away.
func TestWebhook(t *testing.T) {
	f, m := managed(t)
	x := newReceiver(t)
	start(t, m, Options{URL: x.URL + "/hook", Page: "http://page/", Retry: time.Millisecond})
	down := topo.PortRef{Node: f.Graph().ByName("h2").Index, Port: 1}
	if err := f.SetLink(down, false); err != nil {
		t.Fatal(err)
	}
	raised := next[message](t, x)
	if raised.Version != "4" || raised.Status != firing || len(raised.Alerts) == 0 ||
		raised.ExternalURL != "http://page/" {
		t.Fatalf("raised: %+v", raised)
	}
	a := raised.Alerts[0]
	if a.Labels["alertname"] != "FabricLinkDown" || !strings.Contains(a.Labels["link"], "h2[1]") ||
		a.Labels["severity"] != "critical" || a.Labels["fabric"] != "test" || a.StartsAt.IsZero() ||
		!a.EndsAt.IsZero() || a.Fingerprint == "" || a.Annotations["description"] != "down at both ends" {
		t.Errorf("%+v", a)
	}
	id := m.OpenAlarms()[0].ID
	if err := m.Acknowledge(id, "ann", "spare ordered"); err != nil {
		t.Fatal(err)
	}
	if b := next[message](t, x); b.Alerts[0].Annotations["acknowledged_by"] != "ann" ||
		b.Alerts[0].Fingerprint != a.Fingerprint {
		t.Errorf("acknowledged: %+v", b)
	}
	mute, err := m.AddMute(manager.Mute{Link: a.Labels["link"], By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if b := next[message](t, x); b.Status != resolved || b.Alerts[0].EndsAt.IsZero() {
		t.Errorf("muted: %+v", b)
	}
	// While it is away, the rule goes and the link comes back: it hears of neither, since nothing is wrong then.
	x.refuse.Store(true)
	if err := m.RemoveMute(mute.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	said := func(words string) func() bool {
		return func() bool {
			for _, e := range m.Journal().After(0, 1000) {
				if strings.Contains(e.Text, words) {
					return true
				}
			}
			return false
		}
	}
	await(t, "word of the receiver that refuses", said("alarms do not arrive"))
	x.refuse.Store(false)
	if b := next[message](t, x); b.Status != firing {
		t.Errorf("back again: %+v", b)
	}
	await(t, "word of the receiver that is back", said("alarms arrive again"))
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(60 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// An Alertmanager is told again and again, and when it is over.
func TestAlertmanager(t *testing.T) {
	f, m := managed(t)
	x := newReceiver(t)
	start(t, m, Options{URL: x.URL + "/api/v2/alerts", Every: 50 * time.Millisecond})
	r := topo.PortRef{Node: f.Graph().ByName("h1").Index, Port: 1}
	if err := f.SetLink(r, false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		list := next[[]map[string]any](t, x)
		if len(list) == 0 || list[0]["status"] != nil || list[0]["startsAt"] == nil || list[0]["endsAt"] != nil {
			t.Fatalf("%v", list)
		}
	}
	if err := f.SetLink(r, true); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(60 * time.Second); ; {
		over := false
		for _, a := range next[[]alert](t, x) {
			over = over || a.Labels["alertname"] == "FabricLinkDown" && !a.EndsAt.IsZero()
		}
		if over {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the end is not told")
		}
	}
}

// Each kind of alarm arrives under the name that docs/OPERATE.md has for it, in both forms.
func TestKinds(t *testing.T) {
	text, err := os.ReadFile("../../../docs/OPERATE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Alarms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Fabric[A-Za-z]+)`").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	_, m := managed(t)
	x := newReceiver(t)
	for _, path := range []string{"/api/v2/alerts", "/hook"} {
		u, err := Check(x.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		n := &Notifier{m: m, target: u, client: x.Client(), isAPI: path != "/hook"}
		for k := range health.NumKind {
			r := health.Reason{Kind: k, Severity: health.Bad, At: m.Cables()[0].A, Peer: m.Cables()[0].B,
				Said: "it is so", Do: "mend it"}
			a := &manager.OpenAlarm{Alarm: health.Alarm{ID: 1, Kind: k, Severity: health.Bad, Since: time.Now(),
				Reason: r}, Link: "h1[1] sw1[1]", Text: r.Text(m.Graph())}
			if err := n.post(t.Context(), []alert{n.alertOf(a).alert}); err != nil {
				t.Fatal(err)
			}
			var got alert
			if n.isAPI {
				got = next[[]alert](t, x)[0]
			} else {
				got = next[message](t, x).Alerts[0]
			}
			if name := got.Labels["alertname"]; !listed[name] {
				t.Errorf("docs/OPERATE.md does not list %s", name)
			} else if n.isAPI == (got.Status != "") || got.Labels["link"] != a.Link || a.Text == "" ||
				got.Annotations["description"] != a.Text || got.Labels["severity"] != "critical" ||
				got.Annotations["summary"] != a.Link+": "+k.String() || r.Advice(m.Graph()) == "" {
				t.Errorf("%v: %+v", k, got)
			}
		}
	}
	if len(listed) != int(health.NumKind) {
		t.Errorf("docs/OPERATE.md lists %d alarms, and there are %d: %v", len(listed), health.NumKind, listed)
	}
}

func TestCheck(t *testing.T) {
	for _, bad := range []string{"", "alertmanager:9093", "ftp://x/", "http://", "http://a:secret@\x7f/",
		"ftp://a:secret@x/",
		"/api/v2/alerts"} {
		if _, err := Check(bad); !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Check("https://u:p@host/x"); err != nil {
		t.Error(err)
	}
}
