package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"softib/driver/surveyrun"
	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// Options say how a fabric is watched. Zero values mean the defaults.
type Options struct {
	// Interval is the time between two readings of the counters: 5 s by default. Survey is that between two looks at
	// everything: three intervals by default. Both stretch where the fabric is slow: it is left alone for as long as it
	// was asked.
	Interval, Survey time.Duration
	// Window is how many datagrams may be on their way: 32 by default, which suits real switches.
	Window int
	// MKey goes with every question and every change.
	MKey uint64
	// AllowChanges lets ports be disabled and enabled, and counters be cleared before they stop.
	AllowChanges bool
	// AsIs takes links to be as good as they can be: where nodes claim of every port the same, as in ibsim (12x QDR),
	// what they claim says nothing.
	AsIs bool
	// Name names the node of a GUID, where somebody knows better than its description; nil or "" for none.
	Name func(ib.GUID) string
	// Journal is told what happens; nil for a new one.
	Journal *manager.Journal
	// Progress is told how far the first look is.
	Progress func(survey.Progress)
}

func (o *Options) fill() {
	if o.Interval <= 0 {
		o.Interval = 5 * time.Second
	}
	if o.Survey <= 0 {
		o.Survey = 3 * o.Interval
	}
	if o.Window <= 0 {
		o.Window = 32
	}
	if o.Journal == nil {
		o.Journal = manager.NewJournal()
	}
}

// ErrNoAnswer is matched where not even the port that is asked from answers.
var ErrNoAnswer = errors.New("the port does not answer")

// Fabric is a fabric that is watched. Any number of goroutines may ask.
type Fabric struct {
	opts Options
	port *port
	s    *session // the reader's own

	graph atomic.Pointer[topo.Graph]
	view  atomic.Pointer[view]
	stats atomic.Pointer[Stats]

	mu     sync.Mutex // guards what is below
	totals [][]total  // by node and port
	reads  map[chan time.Time]bool
	taken  map[topo.PortRef]time.Time // links that were taken down here, by the port that was disabled

	// The reader's own.
	surveys *surveyrun.Runner
	shape   *shape
	at      []int // numbers of the last survey's nodes
	last    *survey.Survey
	told    map[string]bool // what is said once
	silent  int             // ports that had no reading the last time

	grown chan struct{}
	wake  chan struct{}
	stop  context.CancelFunc
	done  sync.WaitGroup
}

var (
	_ manager.Fabric = (*Fabric)(nil)
	_ manager.Paced  = (*Fabric)(nil)
)

// Stats is how the reading goes.
type Stats struct {
	// Surveys and Counts are how often all was read, and how often the counters only; Took and Asked are what the last
	// of each took.
	Surveys, Counts             int
	SurveyTook, CountTook       time.Duration
	SurveyAsked, CountAsked     int
	SurveyUnread, CountUnread   int // questions without a good answer
	LastSurvey, LastCountersEnd time.Time
}

// Open looks at the fabric that a port is part of, and goes on looking until Close. The transport is the fabric's from
// then on, and closed with it, also when Open fails.
func Open(ctx context.Context, t madrpc.Transport, o Options) (*Fabric, error) {
	o.fill()
	p, err := openPort(t, o.Window, o.MKey)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	life, stop := context.WithCancel(context.Background())
	f := &Fabric{
		opts: o, port: p, s: p.open(), reads: map[chan time.Time]bool{}, taken: map[topo.PortRef]time.Time{},
		shape: newShape(), told: map[string]bool{},
		grown: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: stop,
	}
	f.stats.Store(&Stats{})
	f.done.Go(func() { p.run(life) })
	if f.surveys, err = surveyrun.New(f.s, "softib watch"); err == nil {
		f.surveys.Progress = o.Progress
		err = f.survey(ctx)
	}
	if err == nil && f.view.Load() == nil {
		err = fmt.Errorf("remote: %w", ErrNoAnswer)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	f.surveys.Progress = nil
	f.done.Go(func() { f.run(life) })
	return f, nil
}

// Close ends the watching, and closes the transport.
func (f *Fabric) Close() error {
	f.stop()
	f.done.Wait()
	return f.port.t.Close()
}

// Err is why the fabric is watched no more; nil while it is.
func (f *Fabric) Err() error { return f.port.failure() }

// Done is closed when the fabric is watched no more: it was closed, or its port is gone.
func (f *Fabric) Done() <-chan struct{} { return f.port.done }

// Grown is sent to when the graph has more than before. Ports of the old one are ports of the new one.
func (f *Fabric) Grown() <-chan struct{} { return f.grown }

// Journal is what happened.
func (f *Fabric) Journal() *manager.Journal { return f.opts.Journal }

// Stats is how the reading goes.
func (f *Fabric) Stats() Stats { return *f.stats.Load() }

// From is the port that the fabric is looked at from.
func (f *Fabric) From() topo.PortRef { return f.view.Load().from }

// Graph is everything that was ever seen. It is not changed; another one takes its place.
func (f *Fabric) Graph() *topo.Graph { return f.graph.Load() }

// Epoch moves on whenever a state, an address, a table or a key was found to have changed.
func (f *Fabric) Epoch() uint64 { return f.view.Load().epoch }

// PortInfo is what a port said last. Of one that does not answer any more it is what it said before, with the state
// that its far end has.
func (f *Fabric) PortInfo(r topo.PortRef) (mad.PortInfo, bool) {
	p := f.view.Load().port(r)
	if p == nil || !p.known {
		return mad.PortInfo{}, false
	}
	return p.info, true
}

// PKeys is the partition table of an adapter's port up to its last key; nil where it is not known.
func (f *Fabric) PKeys(r topo.PortRef) []ib.PKey {
	p := f.view.Load().port(r)
	if p == nil || f.Graph().Nodes[r.Node].IsSwitch() {
		return nil
	}
	return append([]ib.PKey(nil), p.keys...)
}

// CountersOf is what ports have counted.
func (f *Fabric) CountersOf(refs []topo.PortRef) []ib.Counters {
	list := make([]ib.Counters, len(refs))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range refs {
		if r.Node < len(f.totals) && int(r.Port) < len(f.totals[r.Node]) {
			list[i] = f.totals[r.Node][r.Port].sum
		}
	}
	return list
}

// MgmtSession opens the management service of the port that the fabric is looked at from, whatever port is meant: it is
// the only one.
func (f *Fabric) MgmtSession(topo.PortRef) (inspect.Session, error) {
	if err := f.Err(); err != nil {
		return nil, err
	}
	return f.port.open(), nil
}

// Reads sends when counters were read.
func (f *Fabric) Reads(ctx context.Context) <-chan time.Time {
	c := make(chan time.Time, 1)
	f.mu.Lock()
	f.reads[c] = true
	f.mu.Unlock()
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		delete(f.reads, c)
		f.mu.Unlock()
	})
	return c
}

// What programs tell of themselves is known where they are attached, not here.

// Programs are none.
func (f *Fabric) Programs() []inspect.ProgramStats { return nil }

// HostStats are none.
func (f *Fabric) HostStats() []inspect.HostStats { return nil }

// PathLatencies are none.
func (f *Fabric) PathLatencies() []inspect.PathLatency { return nil }

// Peaks are none.
func (f *Fabric) Peaks(time.Duration) []inspect.PortPeak { return nil }
