package wiring

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"softib/proto/topo"
)

// LayoutFormat describes the file that ParseLayout reads, for a command's help.
const LayoutFormat = `A layout file says where things stand, one thing a line; # starts a comment.

  pitch 600mm                    between the middles of neighbouring racks
  aisle 3m                       between the middles of neighbouring rows
  tray 500mm                     from the top of a rack up to the tray
  slack 500mm                    to spare at each end of a cable
  units 42                       of a rack
  rack A1 row 1 position 1       a rack, by row and by place in the row
  place leaf1 A1 42              a node, its rack and its lowest unit
  place h1..h18 A1 1             eighteen nodes from unit 1 upwards
  place h19..h27 A2 1 step 2     each two units high

The first five lines have these values if they are left out.
`

// Place is where a node is.
type Place struct {
	Rack string
	// Unit counts from 1, at the bottom.
	Unit int
}

// Rack stands in a row.
type Rack struct {
	Name          string
	Row, Position int
}

// Layout is racks on a floor and what is in them. Lengths are in millimetres.
type Layout struct {
	PitchMM, AisleMM, TrayMM, SlackMM int32
	Units                             int
	Racks                             []Rack
	// Made says that nobody wrote the layout: it was made up.
	Made bool

	rack  map[string]int
	place map[string]Place
}

// UnitMM is the height of a rack unit (EIA-310).
const UnitMM = 44.45

// Values of a layout that says nothing else.
const (
	defaultPitchMM = 600
	defaultAisleMM = 3000
	defaultTrayMM  = 500
	defaultSlackMM = 500
	defaultUnits   = 42

	unitsMax    = 100
	positionMax = 10_000
	layoutMMMax = 1_000_000
	rangeMax    = 50_000
)

func newLayout() *Layout {
	return &Layout{PitchMM: defaultPitchMM, AisleMM: defaultAisleMM, TrayMM: defaultTrayMM, SlackMM: defaultSlackMM,
		Units: defaultUnits,
		rack:  map[string]int{}, place: map[string]Place{}}
}

// What can be wrong with a layout. They arrive wrapped in a LayoutError.
var (
	ErrLayoutSyntax    = errors.New("syntax error")
	ErrLayoutDuplicate = errors.New("given twice")
	ErrLayoutRack      = errors.New("unknown rack")
	ErrLayoutUnit      = errors.New("no such unit")
	ErrNotPlaced       = errors.New("node without a place")
)

// LayoutError says which line of a layout is wrong, what stands there and what was expected.
type LayoutError struct {
	File string
	// Line counts from 1; 0 when the whole file is meant.
	Line   int
	Err    error
	Detail string
}

func (e *LayoutError) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	return fmt.Sprintf("%s: %v: %s", at, e.Err, e.Detail)
}

// Unwrap is the kind of mistake.
func (e *LayoutError) Unwrap() error { return e.Err }

// ParseLayout reads a layout; file is its name in errors, which are of type *LayoutError.
func ParseLayout(file, text string) (*Layout, error) {
	p := &layoutParser{Layout: newLayout(), file: file, said: map[string]bool{}}
	for line := range strings.SplitSeq(text, "\n") {
		p.line++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := p.statement(words); err != nil {
			return nil, err
		}
	}
	return p.Layout, p.checkUnits()
}

type layoutParser struct {
	*Layout
	file string
	line int
	said map[string]bool
	// at is the line of each place, in the order of the file.
	at []placedLine
}

type placedLine struct {
	node string
	line int
}

func (p *layoutParser) fail(kind error, format string, v ...any) error {
	return &LayoutError{p.file, p.line, kind, fmt.Sprintf(format, v...)}
}

func (p *layoutParser) statement(words []string) error {
	switch words[0] {
	case "pitch", "aisle", "tray", "slack", "units":
		if p.said[words[0]] {
			return p.fail(ErrLayoutDuplicate, "%s has a value already: want it once", words[0])
		}
		p.said[words[0]] = true
		if len(words) != 2 {
			return p.fail(ErrLayoutSyntax, "found %d words: want %s and its value", len(words), words[0])
		}
		if words[0] == "units" {
			return p.number(words[1], "units", 1, unitsMax, &p.Units)
		}
		return p.length(words[0], words[1])
	case "rack":
		return p.rackLine(words)
	case "place":
		return p.placeLine(words)
	}
	return p.fail(ErrLayoutSyntax, "found %q: want pitch, aisle, tray, slack, units, rack or place", words[0])
}

func (p *layoutParser) number(word, what string, low, high int, to *int) error {
	n, err := strconv.Atoi(word)
	if err != nil || n < low || n > high {
		return p.fail(ErrLayoutSyntax, "%s is %q: want a number from %d to %d", what, word, low, high)
	}
	*to = n
	return nil
}

func (p *layoutParser) length(what, word string) error {
	unit, digits := 1000.0, word
	for _, u := range [...]struct {
		suffix string
		mm     float64
	}{{"mm", 1}, {"cm", 10}, {"m", 1000}} {
		if d, ok := strings.CutSuffix(word, u.suffix); ok {
			digits, unit = d, u.mm
			break
		}
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(v >= 0 && v*unit <= layoutMMMax) {
		return p.fail(ErrLayoutSyntax, "%s is %q: want a length such as 600mm or 0.6m, at most 1000m", what, word)
	}
	mm := int32(v*unit + 0.5)
	switch what {
	case "pitch":
		p.PitchMM = mm
	case "aisle":
		p.AisleMM = mm
	case "tray":
		p.TrayMM = mm
	default:
		p.SlackMM = mm
	}
	return nil
}

// rackLine reads "rack NAME row N position N".
func (p *layoutParser) rackLine(words []string) error {
	if len(words) != 6 || words[2] != "row" || words[4] != "position" {
		return p.fail(ErrLayoutSyntax, "found %q: want rack NAME row N position N", strings.Join(words, " "))
	}
	r := Rack{Name: words[1]}
	if err := p.number(words[3], "row", 1, positionMax, &r.Row); err != nil {
		return err
	}
	if err := p.number(words[5], "position", 1, positionMax, &r.Position); err != nil {
		return err
	}
	if _, dup := p.rack[r.Name]; dup {
		return p.fail(ErrLayoutDuplicate, "rack %s stands somewhere already: want a name of its own", r.Name)
	}
	p.addRack(r)
	return nil
}

func (l *Layout) addRack(r Rack) {
	l.rack[r.Name] = len(l.Racks)
	l.Racks = append(l.Racks, r)
}

// placeLine reads "place NODE[..NODE] RACK UNIT [step N]".
func (p *layoutParser) placeLine(words []string) error {
	step := 1
	switch {
	case len(words) == 6 && words[4] == "step":
		if err := p.number(words[5], "step", 1, unitsMax, &step); err != nil {
			return err
		}
	case len(words) != 4:
		return p.fail(ErrLayoutSyntax, "found %q: want place NODE RACK UNIT, or place NODE..NODE RACK UNIT step N",
			strings.Join(words, " "))
	}
	names, err := p.names(words[1])
	if err != nil {
		return err
	}
	if _, known := p.rack[words[2]]; !known {
		return p.fail(ErrLayoutRack, "rack is %q: want one that a rack line above names", words[2])
	}
	unit := 0
	if err := p.number(words[3], "unit", 1, unitsMax, &unit); err != nil {
		return err
	}
	for i, name := range names {
		if was, dup := p.place[name]; dup {
			return p.fail(ErrLayoutDuplicate, "%s is in rack %s already: want one place for each node", name, was.Rack)
		}
		p.place[name] = Place{words[2], unit + i*step}
		p.at = append(p.at, placedLine{name, p.line})
	}
	return nil
}

// names expands h1..h18.
func (p *layoutParser) names(word string) ([]string, error) {
	first, last, isRange := strings.Cut(word, "..")
	if !isRange {
		return []string{word}, nil
	}
	stem := strings.TrimRight(first, "0123456789")
	low, errLow := strconv.Atoi(first[len(stem):])
	lastStem := strings.TrimRight(last, "0123456789")
	high, errHigh := strconv.Atoi(last[len(lastStem):])
	if errLow != nil || errHigh != nil || stem != lastStem || low > high || high-low >= rangeMax {
		return nil, p.fail(ErrLayoutSyntax,
			"range is %q: want such as h1..h18, the same name with two numbers, the lower first", word)
	}
	digits := 0 // node01..node18 keeps its zeros
	if first[len(stem)] == '0' {
		digits = len(first) - len(stem)
	}
	var list []string
	for n := low; n <= high; n++ {
		list = append(list, fmt.Sprintf("%s%0*d", stem, digits, n))
	}
	return list, nil
}

// checkUnits wants every node within its rack. Units may be given after places, so it comes last.
func (p *layoutParser) checkUnits() error {
	for _, at := range p.at {
		if u := p.place[at.node].Unit; u > p.Units {
			p.line = at.line
			return p.fail(ErrLayoutUnit, "%s is in unit %d: the racks have %d", at.node, u, p.Units)
		}
	}
	return nil
}

// Of is where a node is.
func (l *Layout) Of(name string) (Place, bool) {
	p, ok := l.place[name]
	return p, ok
}

// CableMM is how long a cable between two places has to be. Within a rack it runs straight up or down; between racks up
// into the tray, along the row and across the rows, and down again (Manhattan distance), with slack at both ends.
func (l *Layout) CableMM(a, b Place) int32 {
	up := func(p Place) int32 { return int32(float64(l.Units-p.Unit)*UnitMM) + l.TrayMM }
	if a.Rack == b.Rack {
		return int32(float64(abs(a.Unit-b.Unit))*UnitMM) + 2*l.SlackMM
	}
	x, y := l.Racks[l.rack[a.Rack]], l.Racks[l.rack[b.Rack]]
	along := int32(abs(x.Position-y.Position))*l.PitchMM + int32(abs(x.Row-y.Row))*l.AisleMM
	return up(a) + along + up(b) + 2*l.SlackMM
}

func abs(n int) int { return max(n, -n) }

// unplaced are the nodes of a fabric that a layout forgets, with a cable.
func (l *Layout) unplaced(g *topo.Graph) []string {
	var list []string
	for _, n := range g.Nodes {
		if _, ok := l.place[n.Name]; !ok && slices.ContainsFunc(n.Ports,
			func(p topo.Port) bool { return p.Connected() }) {
			list = append(list, n.Name)
		}
	}
	return list
}
