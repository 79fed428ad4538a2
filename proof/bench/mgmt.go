package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"softib/proto/topo"
)

// management is what subnet management is measured with: OpenSM on ibsim beside us, on the same fabrics, in one run.
type management struct {
	*bench
	// fabric is the one that OpenSM is compared on, huge the largest that addresses suffice for, middle the one whose
	// tables are compared.
	fabric, huge, middle string
	// long measures peers for minutes whose figures are otherwise those on record, and compares the tables of the large
	// fabric too.
	long bool

	dir    string
	lines  []line
	graphs map[string]*topo.Graph
	peers  map[string]openSMRun // by engine: OpenSM on fabric
}

// line is a line of the table. Everything is words: the figures are of many kinds.
type line struct {
	what, ours, peer, ratio, target string
	met                             verdict
	load                            string
}

type verdict string

const (
	pass    verdict = "pass"
	short   verdict = "SHORT"
	unknown verdict = ""
)

func judged(ok bool) verdict {
	if ok {
		return pass
	}
	return short
}

// parts are what "-only management/NAME" chooses from, in the order of the table.
var parts = []struct {
	name string
	run  func(*management, context.Context) error
}{
	{"up", (*management).up},
	{"ibsim", (*management).onIBSim},
	{"routing", (*management).routing},
	{"huge", (*management).upHuge},
	{"loss", (*management).linkLoss},
	{"paths", (*management).paths},
	{"quality", (*management).quality},
}

// run measures the parts whose name is part, all if it is empty, and prints the table.
func (m *management) run(ctx context.Context, part string) (err error) {
	if m.dir, err = os.MkdirTemp("", "softib-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	m.graphs, m.peers = map[string]*topo.Graph{}, map[string]openSMRun{}
	began, load := time.Now(), loadAverage()
	var failures []error
	known := false
	for _, p := range parts {
		if part != "" && part != p.name {
			continue
		}
		known = true
		if err := p.run(m, ctx); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if !known {
		return fmt.Errorf("-only management/%s: no such part; the parts are %s", part, strings.Join(partNames(), ", "))
	}
	progress("")
	fmt.Printf("management: %d cores, %s, %s, load average %s when it began and %s when it ended, %v\n\n",
		runtime.NumCPU(), runtime.Version(), openSMVersion(ctx), load, loadAverage(),
		time.Since(began).Round(time.Second))
	printLines(m.lines)
	return errors.Join(failures...)
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// add puts a line into the table; the load is that of now, just after the measurement. A run takes minutes, so the line
// is shown at once too.
func (m *management) add(l line) {
	l.load = loadAverage()
	if m.smoke {
		l.met = unknown
	}
	m.lines = append(m.lines, l)
	progress("")
	fmt.Fprintf(os.Stderr, "%s: %s; OpenSM %s; ratio %s; %s %s\n", l.what, l.ours, cmp.Or(l.peer, "-"),
		cmp.Or(l.ratio, "-"), l.target, l.met)
}

// compare adds a line for a figure that shall be at most a share of the peer's.
func (m *management) compare(what string, ours, peer sample, peerNote string, atMost float64) {
	l := line{what: what, ours: ours.String(), peer: "not installed"}
	if atMost > 0 {
		l.target = fmt.Sprintf("at most 1/%g", 1/atMost)
	}
	if len(peer.values) > 0 {
		l.peer = strings.TrimSpace(peer.String() + " " + peerNote)
		ratio := ours.median() / peer.median()
		l.ratio = share(ratio)
		if atMost > 0 {
			l.met = judged(ratio <= atMost)
		}
	}
	m.add(l)
}

// limit adds a line for a figure that shall stay under a limit; peer is for comparison and may be empty.
func (m *management) limit(what string, ours sample, under float64, peer sample, peerNote string) {
	l := line{what: what, ours: ours.String(), target: "under " + ours.unit.text(under),
		met: judged(ours.median() < under)}
	if len(peer.values) > 0 {
		l.peer = strings.TrimSpace(peer.String() + " " + peerNote)
		l.ratio = share(ours.median() / peer.median())
	} else {
		l.peer = peerNote
	}
	m.add(l)
}

// share prints a ratio as a share where that says more.
func share(r float64) string {
	if r > 0 && r < 0.5 {
		return fmt.Sprintf("1/%.3g", 1/r)
	}
	return fmt.Sprintf("%.2f", r)
}

// unit is what a sample counts.
type unit uint8

const (
	inSeconds unit = iota
	inBytes
)

func (u unit) text(v float64) string {
	if u == inBytes {
		if v >= 1<<30 {
			return fmt.Sprintf("%.3g GiB", v/(1<<30))
		}
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	}
	switch {
	case v >= 1:
		return fmt.Sprintf("%.3g s", v)
	case v >= 1e-3:
		return fmt.Sprintf("%.3g ms", v*1e3)
	}
	return fmt.Sprintf("%.3g µs", v*1e6)
}

// sample is one figure, measured some times.
type sample struct {
	unit   unit
	values []float64
}

func (s *sample) took(d time.Duration) { s.values = append(s.values, d.Seconds()) }

func (s sample) median() float64 {
	v := slices.Sorted(slices.Values(s.values))
	return v[len(v)/2]
}

// String is the median, with the range where it was measured several times.
func (s sample) String() string {
	text := s.unit.text(s.median())
	if len(s.values) > 1 {
		text += fmt.Sprintf(" (%s to %s)", s.unit.text(slices.Min(s.values)), s.unit.text(slices.Max(s.values)))
	}
	return text
}

// printLines prints the table so that it can be read here and pasted into a page.
func printLines(lines []line) {
	table := [][]string{{"what", "ours", "OpenSM", "ratio", "target", "met", "load"}, nil}
	for _, l := range lines {
		table = append(table, []string{l.what, l.ours, l.peer, l.ratio, l.target, string(l.met), l.load})
	}
	width := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, row := range table {
		for i, w := range width {
			cell, fill := "", " "
			if row == nil {
				fill = "-"
			} else {
				cell = row[i]
			}
			fmt.Print("|", fill, cell, strings.Repeat(fill, w-len([]rune(cell))), fill)
		}
		fmt.Println("|")
	}
}

// graph generates a topology, once.
func (m *management) graph(spec string) (*topo.Graph, error) {
	if g := m.graphs[spec]; g != nil {
		return g, nil
	}
	g, err := topo.ParseSpec(spec)
	if err != nil {
		return nil, err
	}
	m.graphs[spec] = g
	return g, nil
}

// folder makes an empty folder of this run.
func (m *management) folder() (string, error) { return os.MkdirTemp(m.dir, "") }

// loadAverage is the machine's, over the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// size says how large a fabric is.
func size(g *topo.Graph) string {
	return fmt.Sprintf("%d hosts, %d switches", len(g.Hosts()), len(g.Switches()))
}

// netFile writes a graph where ibsim reads it.
func netFile(dir string, g *topo.Graph) (string, error) {
	path := filepath.Join(dir, "net")
	return path, os.WriteFile(path, topo.Append(nil, g), 0o600)
}
