package doctor

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoAnswer is what comes of a fabric whose very first port, the one that is asked from, does not answer.
var ErrNoAnswer = errors.New("doctor: the port that the questions are asked from does not answer: is there " +
	"a device behind it?")

// Severity is how grave a finding, or the state of a section, is.
type Severity uint8

// Severities, in their order.
const (
	// OK: looked at, and nothing was found.
	OK Severity = iota
	// Skipped: not looked at.
	Skipped
	// Note is worth knowing; the fabric is well all the same.
	Note
	// Warn works, and will not always, or costs something.
	Warn
	// Fail does not work.
	Fail
	NumSeverity
)

var severityNames = [NumSeverity]string{"ok", "skipped", "note", "warn", "fail"}

func (s Severity) String() string {
	if s < NumSeverity {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads it.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("doctor: severity %q: want one of %v", text, severityNames)
	}
	*s = Severity(i)
	return nil
}

// Check is what was looked at.
type Check uint8

// Checks, in the order of a report.
const (
	Answers Check = iota
	GUIDs
	LIDs
	Links
	Wiring
	Cables
	Errors
	Congestion
	Routing
	Lanes
	Partitions
	Managers
	Versions
	Traffic
	NumCheck
)

// checkTable has for each check its name and what it is about.
var checkTable = [NumCheck]struct{ name, title string }{
	Answers:    {"answers", "every node answers every question"},
	GUIDs:      {"guids", "each GUID and each name belongs to one node or port"},
	LIDs:       {"lids", "each LID belongs to one port, and all have one"},
	Links:      {"links", "links are active and as wide and fast as both ends can"},
	Wiring:     {"wiring", "cables are where a fat tree has them"},
	Cables:     {"cables", "cables carry signals without errors"},
	Errors:     {"errors", "ports drop and refuse no packets"},
	Congestion: {"congestion", "ports need not wait to send"},
	Routing:    {"routing", "all pairs reach each other, no loops, no credit loops"},
	Lanes:      {"lanes", "lanes in use get their turn"},
	Partitions: {"partitions", "partition tables agree at both ends"},
	Managers:   {"managers", "one subnet manager is master and all ports know it"},
	Versions:   {"versions", "devices of a kind and programs have one version"},
	Traffic:    {"traffic", "traffic goes native rather than by IP"},
}

func (c Check) String() string {
	if c < NumCheck {
		return checkTable[c].name
	}
	return fmt.Sprintf("Check(%d)", uint8(c))
}

// Title says what a check wants to be so.
func (c Check) Title() string { return checkTable[c].title }

// MarshalText writes the check's name.
func (c Check) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads it.
func (c *Check) UnmarshalText(text []byte) error {
	for i := range checkTable {
		if checkTable[i].name == string(text) {
			*c = Check(i)
			return nil
		}
	}
	return fmt.Errorf("doctor: check %q: there is none of that name", text)
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Check    Check    `json:"check"`
	Severity Severity `json:"severity"`
	// Kind names it for scripts: "duplicate-lid", "bad-cable".
	Kind string `json:"kind"`
	// Objects are what it is about by name: nodes, ports as leaf1[5], both ends of a cable.
	Objects []string `json:"objects"`
	// Measured is what was found, in words with numbers and units; Threshold what would have been right.
	Measured  string `json:"measured"`
	Threshold string `json:"threshold,omitempty"`
	// Next is what to do.
	Next string `json:"next"`
	// BER is the estimate of a cable's bit error rate, and Direction who damages whose signals: "a-to-b" from the first
	// object to the second.
	BER       float64 `json:"ber,omitempty"`
	Direction string  `json:"direction,omitempty"`
}

// Section is one check's part of a report.
type Section struct {
	Check Check  `json:"check"`
	Title string `json:"title"`
	// Severity is the gravest of its findings.
	Severity Severity `json:"severity"`
	// Looked says at what: "64 cables". Why says why it was skipped.
	Looked string `json:"looked,omitempty"`
	Why    string `json:"why,omitempty"`
	// Findings are the gravest first, at most FindingsMax; More counts the rest.
	Findings []Finding `json:"findings,omitempty"`
	More     int       `json:"more,omitempty"`
}

// FindingsMax is how many findings of one section a report holds.
const FindingsMax = 500

// Fabric is what was looked at.
type Fabric struct {
	From  string `json:"from"` // the port that the questions were asked from
	Hosts int    `json:"hosts"`
	// ServiceNodes are channel adapters that are part of switches, and no hosts.
	ServiceNodes int `json:"service_nodes,omitempty"`
	Switches     int `json:"switches"`
	Routers      int `json:"routers,omitempty"`
	Cables       int `json:"cables"`
	Questions    int `json:"questions"` // datagrams
}

// Report is the doctor's word on a fabric.
type Report struct {
	Fabric Fabric `json:"fabric"`
	// IntervalSec is how long counters were watched; 0: those since the last reset were judged.
	IntervalSec float64   `json:"interval_sec"`
	Severity    Severity  `json:"severity"`
	Sections    []Section `json:"sections"`
}

// Healthy reports whether nothing is wrong; notes do not count.
func (r *Report) Healthy() bool { return r.Severity < Warn }

// Count is how many findings of a severity there are.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Sections {
		for j := range r.Sections[i].Findings {
			if r.Sections[i].Findings[j].Severity == s {
				n++
			}
		}
		if r.Sections[i].Severity == s {
			n += r.Sections[i].More
		}
	}
	return n
}

// Section is a check's part.
func (r *Report) Section(c Check) *Section {
	for i := range r.Sections {
		if r.Sections[i].Check == c {
			return &r.Sections[i]
		}
	}
	return nil
}

// add takes a finding into its section.
func (s *Section) add(f Finding) {
	f.Check = s.Check
	s.Severity = max(s.Severity, f.Severity)
	s.Findings = append(s.Findings, f)
}

// skip says that a check could not be made.
func (s *Section) skip(format string, v ...any) {
	s.Severity = max(s.Severity, Skipped)
	s.Why = fmt.Sprintf(format, v...)
}

// close sorts and cuts.
func (s *Section) close() {
	slices.SortStableFunc(s.Findings, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	if len(s.Findings) > FindingsMax {
		s.More = len(s.Findings) - FindingsMax
		s.Findings = s.Findings[:FindingsMax]
	}
}

// count writes a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
