package metrics

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"softib/operate/manager"
)

// Part is a part of what is exported.
type Part string

// The parts, in the order of the text.
const (
	Switch Part = "switch"
	HCA    Part = "hca"
	UFM    Part = "ufm"
	Own    Part = "softib"
)

// Parts are all of them.
var Parts = []Part{Switch, HCA, UFM, Own}

const (
	// scrapesMax is how many scrapes are answered at once. A scrape of a large fabric has a snapshot of some 25 MB and
	// takes all cores, so more of them would only be slower.
	scrapesMax = 4
	// waitingMax is how many more may wait for their turn.
	waitingMax = 64
	// A reader has to take a block within blockPatience and everything within patience; Prometheus' own limit is 10 s
	// unless it is told otherwise.
	// tidy: not patience, Prometheus does not wait longer either, and scrapes again.
	blockPatience = 5 * time.Second
	// tidy: not patience, as above
	patience = time.Minute
)

// Exporter answers scrapes of one fabric. Any number of goroutines may use it.
type Exporter struct {
	m     *manager.Manager
	fresh func() *manager.Sample // how ports are read
	once  sync.Once
	x     *index
	// by part, but for Own, which is made anew each time
	blocks map[Part][]block
	own    own

	turns         chan struct{}
	waiting       chan struct{}
	blockPatience time.Duration // the constant, but in tests

	mu     sync.Mutex
	flight *flight // the snapshot that is being taken
	lids   *lids
}

// New is the exporter of a fabric.
func New(m *manager.Manager) *Exporter {
	e := &Exporter{m: m, fresh: m.Fresh, turns: make(chan struct{}, scrapesMax),
		waiting: make(chan struct{}, scrapesMax+waitingMax), blockPatience: blockPatience}
	go e.index() // so that the first scrape does not wait for it
	return e
}

// index makes the text that stays, once.
func (e *Exporter) index() {
	e.once.Do(func() {
		e.x = newIndex(e.m)
		e.blocks = map[Part][]block{
			Switch: blocks(e.x.sides[0].families(e.m.Graph())),
			HCA:    blocks(e.x.sides[1].families(e.m.Graph())),
			UFM:    blocks(e.x.ufmFamilies()),
		}
		e.own.init()
	})
}

// snapshot is what one scrape says, or several that came together.
type snapshot struct {
	sample *manager.Sample
	lids   *lids
	took   time.Duration
}

type flight struct {
	done chan struct{}
	s    *snapshot
}

// snapshot reads the fabric. Who comes while it is being read takes the same.
func (e *Exporter) snapshot() *snapshot {
	e.mu.Lock()
	f := e.flight
	if f != nil {
		e.mu.Unlock()
		<-f.done
		return f.s
	}
	f = &flight{done: make(chan struct{})}
	e.flight = f
	l := e.lids
	e.mu.Unlock()

	began := time.Now()
	s := &snapshot{sample: e.fresh()}
	if l == nil || l.epoch != s.sample.Epoch {
		l = readLIDs(e.m)
	}
	s.lids, s.took = l, time.Since(began)
	f.s = s

	e.mu.Lock()
	e.flight, e.lids = nil, l
	e.mu.Unlock()
	close(f.done)
	return s
}

// ServeHTTP answers a scrape.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, fmt.Sprintf("method %s: want GET", r.Method), http.StatusMethodNotAllowed)
		return
	}
	parts, err := wanted(r.URL.Query()["collect[]"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	zipped := acceptsGzip(r.Header.Get("Accept-Encoding"))
	if r.Method == http.MethodHead {
		return
	}
	select {
	case e.waiting <- struct{}{}:
		defer func() { <-e.waiting }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d scrapes are waiting already: try again later", waitingMax),
			http.StatusServiceUnavailable)
		return
	}
	select {
	case e.turns <- struct{}{}:
		defer func() { <-e.turns }()
	case <-r.Context().Done():
		return
	}
	if zipped {
		w.Header().Set("Content-Encoding", "gzip")
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	// There is nobody to tell: who does not get all of it sees the connection end early.
	if e.write(ctx, &impatient{w, http.NewResponseController(w), e.blockPatience}, parts, zipped) != nil {
		panic(http.ErrAbortHandler)
	}
}

// acceptsGzip reads an Accept-Encoding (RFC 9110, 12.5.3).
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name = strings.TrimSpace(name); !strings.EqualFold(name, "gzip") && name != "*" {
			continue
		}
		q, isWeight := strings.CutPrefix(strings.TrimSpace(weight), "q=")
		v, err := strconv.ParseFloat(q, 64)
		return !isWeight || err == nil && v > 0
	}
	return false
}

// write makes the text of some parts.
func (e *Exporter) write(ctx context.Context, w *impatient, parts []Part, zipped bool) error {
	small := func(text []byte) error {
		if zipped {
			text = zip(nil, text)
		}
		_, err := w.Write(text)
		return err
	}
	e.index()
	var mine chan []byte
	if slices.Contains(parts, Own) {
		mine = make(chan []byte, 1)
		go func() { mine <- e.own.text(e.m) }()
	}
	var all []block
	for _, p := range parts {
		all = append(all, e.blocks[p]...)
	}
	var err error
	if len(all) > 0 {
		s := e.snapshot()
		if err = stream(ctx, w, all, s, zipped); err == nil {
			err = small(collectorSheet(parts, s))
		}
	}
	if err == nil && mine != nil {
		select {
		case b := <-mine:
			err = small(b)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// collectorSheet is infiniband_exporter's words about itself.
func collectorSheet(parts []Part, s *snapshot) []byte {
	var names []string
	for _, p := range parts {
		if p == Switch || p == HCA {
			names = append(names, string(p))
		}
	}
	if len(names) == 0 {
		return nil
	}
	names = append(names, "ibnetdiscover")
	var t sheet
	for _, f := range []struct {
		name, help string
		v          float64
	}{
		{"infiniband_exporter_collector_duration_seconds", "Time in which the fabric was read.", s.took.Seconds()},
		{"infiniband_exporter_collect_errors", "Errors while the fabric was read.", 0},
		{"infiniband_exporter_collect_timeouts", "Timeouts while the fabric was read.", 0},
	} {
		t.family(f.name, f.help, gauge)
		for _, n := range names {
			t.add(f.name, f.v, "collector", n)
		}
	}
	return t.b
}

// wanted reads collect[].
func wanted(names []string) ([]Part, error) {
	if len(names) == 0 {
		return Parts, nil
	}
	var list []Part
	for _, n := range names {
		if !slices.Contains(Parts, Part(n)) {
			words := make([]string, len(Parts))
			for i, p := range Parts {
				words[i] = string(p)
			}
			return nil, fmt.Errorf("collect[]=%q: want one of %s", n, strings.Join(words, ", "))
		}
	}
	for _, p := range Parts {
		if slices.Contains(names, string(p)) {
			list = append(list, p)
		}
	}
	return list, nil
}

// impatient is a writer whose reader has to get on.
type impatient struct {
	w http.ResponseWriter
	c *http.ResponseController
	// patience is how long a block may take.
	patience time.Duration
}

func (i *impatient) Write(b []byte) (int, error) {
	i.c.SetWriteDeadline(time.Now().Add(i.patience)) // not every ResponseWriter has deadlines
	return i.w.Write(b)
}
