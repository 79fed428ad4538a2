package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/health"
)

// Options say where alarms go.
type Options struct {
	// URL is who is told, by POST. A user and a password in it are shown to the receiver, and to nobody else.
	URL string
	// Page is where people look at the fabric; empty if there is none.
	Page string
	// Every is how often an Alertmanager is told again; 0 is a minute, of the five after which it forgets.
	Every time.Duration
	// Retry is how long to wait after a failure, the first time; 0 is a second. It doubles up to Every.
	Retry time.Duration
}

// ErrURL is an address that nothing can be sent to.
var ErrURL = errors.New("want http://HOST/… or https://HOST/…")

// Limits of a request.
const (
	timeout   = 10 * time.Second
	answerMax = 4 << 10 // of an answer that is quoted
	batchMax  = 1000    // alarms in one request
)

// Notifier sends alarms on until it is closed.
type Notifier struct {
	m      *manager.Manager
	o      Options
	target *url.URL
	isAPI  bool // it is an Alertmanager itself
	client *http.Client
	stop   context.CancelFunc
	done   sync.WaitGroup

	told map[uint64]told // what the receiver believes to stand
	// failed says that the last try did not arrive, which was written down.
	failed bool
}

// told is what was sent of an alarm.
type told struct {
	alert
	mark string // what makes it worth telling again
}

// alert is an alarm as both forms have it.
type alert struct {
	Status       string            `json:"status,omitempty"` // of webhooks
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt,omitzero"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
	Fingerprint  string            `json:"fingerprint,omitempty"` // of webhooks
}

// message is what webhooks get: version 4 of Alertmanager's.
type message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []alert           `json:"alerts"`
}

const (
	firing   = "firing"
	resolved = "resolved"
)

// Check reads an address.
func Check(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("notify: an address that cannot be read: %w", ErrURL) // it may have a password in it
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("notify: %q: %w", u.Redacted(), ErrURL)
	}
	return u, nil
}

// Start begins to send.
func Start(m *manager.Manager, o Options) (*Notifier, error) {
	u, err := Check(o.URL)
	if err != nil {
		return nil, err
	}
	o.Every, o.Retry = cmp.Or(o.Every, time.Minute), cmp.Or(o.Retry, time.Second)
	n := &Notifier{m: m, o: o, target: u, isAPI: strings.HasSuffix(u.Path, "/api/v2/alerts"), told: map[uint64]told{},
		client: &http.Client{Timeout: timeout,
			// Who is told is who was named: no receiver sends alarms on to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.done.Go(func() { n.run(ctx) })
	return n, nil
}

// Close ends it. What was not sent is not sent any more.
func (n *Notifier) Close() {
	n.stop()
	n.done.Wait()
}

// run looks at the alarms after each sample.
func (n *Notifier) run(ctx context.Context) {
	samples := n.m.Samples(ctx)
	again := time.NewTimer(0)
	defer again.Stop()
	wait, repeat := n.o.Retry, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-samples:
			if n.failed {
				continue // its time comes
			}
		}
		if n.tell(ctx, n.isAPI && !time.Now().Before(repeat)) {
			if !time.Now().Before(repeat) {
				repeat = time.Now().Add(n.o.Every)
			}
			wait = n.o.Retry
			again.Reset(n.o.Every)
			continue
		}
		again.Reset(wait)
		wait = min(2*wait, n.o.Every)
	}
}

// tell sends what the receiver does not know yet, or all that stands, and reports whether it arrived.
func (n *Notifier) tell(ctx context.Context, all bool) bool {
	now := time.Now()
	stands := map[uint64]told{}
	var send []alert
	open := n.m.OpenAlarms()
	for i := range open {
		a := &open[i]
		if a.Muted != nil {
			continue
		}
		t := n.alertOf(a)
		stands[a.ID] = t
		if was, known := n.told[a.ID]; all || !known || was.mark != t.mark {
			send = append(send, t.alert)
		}
	}
	for id, t := range n.told {
		if _, still := stands[id]; !still {
			t.EndsAt = now
			if !n.isAPI {
				t.Status = resolved
			}
			send = append(send, t.alert)
		}
	}
	slices.SortStableFunc(send, func(a, b alert) int { return a.StartsAt.Compare(b.StartsAt) })
	for batch := range slices.Chunk(send, batchMax) {
		if err := n.post(ctx, batch); err != nil {
			n.note(ctx, err)
			return false
		}
	}
	n.told = stands
	n.note(ctx, nil)
	return true
}

// alertOf is an alarm in the words of Prometheus. Labels say which one it is and never change while it stands, but for
// the severity; what does change is in annotations.
func (n *Notifier) alertOf(a *manager.OpenAlarm) told {
	severity := "warning"
	if a.Severity >= health.Bad {
		severity = "critical"
	}
	t := told{mark: fmt.Sprint(a.Severity, a.Acknowledged != nil), alert: alert{
		Labels: map[string]string{"alertname": "Fabric" + camel(a.Kind.String()), "fabric": n.m.Name(), "link": a.Link,
			"severity": severity},
		Annotations:  map[string]string{"summary": a.Link + ": " + a.Kind.String(), "description": a.Text},
		StartsAt:     a.Since,
		GeneratorURL: n.o.Page,
	}}
	if a.Acknowledged != nil {
		t.Annotations["acknowledged_by"], t.Annotations["note"] = a.Acknowledged.By, a.Acknowledged.Note
	}
	if !n.isAPI {
		t.Status, t.Fingerprint = firing, fingerprint(t.Labels)
	}
	return t
}

// camel joins words: "link down" is LinkDown.
func camel(words string) string {
	var b strings.Builder
	for w := range strings.FieldsSeq(words) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}

// fingerprint tells alarms apart by their labels.
func fingerprint(labels map[string]string) string {
	h := fnv.New64a()
	for _, k := range []string{"alertname", "fabric", "link"} {
		io.WriteString(h, k+"\xff"+labels[k]+"\xff")
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// post sends some alarms.
func (n *Notifier) post(ctx context.Context, batch []alert) error {
	var body any = batch
	if !n.isAPI {
		m := message{Version: "4", GroupKey: fmt.Sprintf("{}:{fabric=%q}", n.m.Name()), Status: resolved,
			Receiver: "softib", GroupLabels: map[string]string{"fabric": n.m.Name()},
			CommonLabels: map[string]string{"fabric": n.m.Name()}, CommonAnnotations: map[string]string{},
			ExternalURL: n.o.Page, Alerts: batch}
		if slices.ContainsFunc(batch, func(a alert) bool { return a.Status == firing }) {
			m.Status = firing
		}
		body = m
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.target.String(), bytes.NewReader(b))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "softib/"+n.m.Version())
	answer, err := n.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerMax))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s: %.200q", n.target.Redacted(), answer.Status, text)
	}
	return nil
}

// note writes down that alarms do not arrive, once, and that they do again.
func (n *Notifier) note(ctx context.Context, err error) {
	if failed := err != nil; failed != n.failed && ctx.Err() == nil {
		n.failed = failed
		e := manager.Event{Kind: "alarm", Text: "alarms arrive again at " + n.target.Redacted()}
		if failed {
			e.Severity, e.Text = manager.Warning, fmt.Sprintf("alarms do not arrive, and will be sent again: %v", err)
		}
		n.m.Journal().Add(e)
	}
}
