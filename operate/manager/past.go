package manager

import (
	"errors"
	"fmt"
	"os"
	"time"

	"softib/operate/manager/history"
	"softib/proto/ib"
	"softib/proto/topo"
)

// historyFile is the history's file in the folder of the state.
const historyFile = "history.db"

// Series of the whole fabric, by name.
const (
	SeriesTraffic = "hosts_xmit_bytes" // bytes a second that hosts send, all together
	SeriesDown    = "links_down"
	SeriesAdmin   = "sa_seconds"    // how long the administrator took for a path
	SeriesSweep   = "sweep_seconds" // how long the last sweep took
)

// past is the history of a fabric.
type past struct {
	store  *history.Store
	ids    []uint32 // by port index
	values []history.Values
	swept  ib.Time // when the last sweep that was noted began
	failed bool    // the last sample could not be kept, which was said
	aside  string  // where a file is that could not be read
}

// openHistory opens the history. A file that cannot be read is put aside: a fabric without a past is better than none.
func (m *Manager) openHistory() error {
	path := m.path(historyFile)
	err := m.beginHistory(path)
	if (errors.Is(err, history.ErrCorrupt) || errors.Is(err, history.ErrNewer)) && path != "" {
		aside := fmt.Sprintf("%s.aside-%s", path, time.Now().UTC().Format("20060102T150405"))
		if e := os.Rename(path, aside); e != nil {
			return errors.Join(err, e)
		}
		m.journal.Add(Event{Kind: "history", Severity: Warning, Object: aside,
			Text: fmt.Sprintf("the history cannot be read and was put aside as %s; a new one begins: %v", aside, err)})
		err = m.beginHistory(path)
		m.past.aside = aside
	}
	return err
}

// beginHistory opens a file and gives all ports their numbers in it, which is the first that is written to it: what is
// damaged in it may show only then.
func (m *Manager) beginHistory(path string) error {
	store, err := history.Open(path, history.Options{})
	if err != nil {
		return err
	}
	keys := make([]history.PortKey, len(m.ports))
	for i, r := range m.ports {
		keys[i] = history.PortKey{Node: m.g.Nodes[r.Node].GUID, Port: r.Port}
	}
	ids, err := store.PortIDs(keys)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	m.past = past{store: store, ids: ids, values: make([]history.Values, len(ids)), swept: -1}
	return nil
}

// HistoryAside is where the history that was found at the start was put, because it could not be read; empty if it
// could.
func (m *Manager) HistoryAside() string { return m.past.aside }

// keep adds a sample to the history.
func (m *Manager) keep(s *Sample) {
	h := &m.past
	for i := range s.Ports {
		h.values[i] = history.ValuesOf(&s.Ports[i].Counters)
	}
	err := h.store.Append(s.At, h.ids, h.values)
	note := func(name string, v float64) { err = errors.Join(err, h.store.AppendScalar(name, s.At, v)) }
	note(SeriesTraffic, s.XmitBytes)
	note(SeriesDown, float64(s.Down))
	if l := m.AdminLatency(); l.At.After(s.At.Add(-s.Interval)) {
		note(SeriesAdmin, l.Last.Seconds())
	}
	if sweeps := m.Sweeps(); len(sweeps) > 0 {
		if last := &sweeps[len(sweeps)-1]; last.Began != h.swept {
			h.swept = last.Began
			note(SeriesSweep, float64(last.Took)/float64(ib.Second))
		}
	}
	// A disk that is full stays full for a while: once is enough to say so.
	if failed := err != nil; failed != h.failed {
		h.failed = failed
		e := Event{Kind: "history", Text: "the history is kept again"}
		if failed {
			e.Severity, e.Text = Warning, fmt.Sprintf("the history cannot be kept: %v", err)
		}
		m.journal.Add(e)
	}
}

// PortHistory is what was counted at a port in a stretch of time, as rates, in at most max points.
func (m *Manager) PortHistory(r topo.PortRef, what history.Metric, from, to time.Time, max int) (history.Series,
	error) {
	i, ok := m.PortIndex(r)
	if !ok {
		return history.Series{}, fmt.Errorf("no port %v: %w", r, ErrUnknown)
	}
	return m.past.store.Query(m.past.ids[i], what, from, to, max)
}

// FabricHistory is a series of the whole fabric: one of the Series constants.
func (m *Manager) FabricHistory(name string, from, to time.Time, max int) (history.Series, error) {
	return m.past.store.QueryScalar(name, from, to, max)
}

// HistoryStats is how the history stands.
func (m *Manager) HistoryStats() history.Stats { return m.past.store.Stats() }
