package wiring

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"softib/proto/topo"
)

// Severity is how much a finding matters.
type Severity uint8

// Severities.
const (
	// Note is worth knowing and costs nothing: it is no mistake.
	Note Severity = iota
	// Warning is a mistake that the fabric lives with, at a price.
	Warning
	// Broken keeps some part of the fabric from working.
	Broken
	NumSeverity
)

var severityNames = [NumSeverity]string{"note", "warning", "broken"}

func (s Severity) String() string {
	if s < NumSeverity {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText writes the severity by name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads it.
func (s *Severity) UnmarshalText(b []byte) error {
	i := slices.Index(severityNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("wiring: severity is %q: want one of %s", b, strings.Join(severityNames[:], ", "))
	}
	*s = Severity(i)
	return nil
}

// Kind is what a finding is about.
type Kind uint8

// The kinds, in the order in which they are reported.
const (
	// Fabric is a fault of the whole that topo.Check knows: no hosts, islands, doubled LIDs.
	Fabric Kind = iota
	// MissingNode and ExtraNode are nodes that only the plan or only the fabric has.
	MissingNode
	ExtraNode
	// Missing is a cable that should be there.
	Missing
	// Extra is a cable that should not.
	Extra
	// Swapped is two cables with their ends exchanged.
	Swapped
	// Miswired is a cable of which one end is at the wrong node.
	Miswired
	// WrongPort is a cable between the right nodes in another port than it should be.
	WrongPort
	// Degraded is a cable that runs narrower or slower than it should.
	Degraded
	// Faster is a cable that runs faster than the plan says.
	Faster
	// Uneven is a switch with more or fewer cables than its brothers, where nothing says which cable it is.
	Uneven
	// Length is a cable of another length.
	Length
	// Renamed is a node that the plan knows by another GUID or name.
	Renamed
	NumKind
)

var kinds = [NumKind]struct {
	name string
	// inferred says whether the structure alone shows a mistake of the kind, and if not always, when.
	inferred bool
	unless   string
}{
	Fabric:      {"fabric", true, ""},
	MissingNode: {"missing node", false, "a tree with a switch less is a tree"},
	ExtraNode:   {"extra node", false, "a tree with a host more is a tree"},
	Missing:     {"missing", true, "a host that is not there at all leaves only an empty port"},
	Extra:       {"extra", true, "a host on a free port of a leaf is a host"},
	Swapped:     {"swapped", true, "two hosts, or two cables of one switch, are as good either way round"},
	Miswired:    {"miswired", true, "a host on another leaf's free port shows as leaves with uneven numbers of hosts"},
	WrongPort:   {"wrong port", true, "it is a note only, and needs ports that most brothers use alike"},
	Degraded:    {"degraded", true, "if the cables of a level do not mostly run alike, nothing says what they should"},
	Faster:      {"faster", false, "what is faster than the rest is no fault"},
	Uneven:      {"uneven", true, ""},
	Length:      {"length", false, "any length is as good as another"},
	Renamed:     {"renamed", false, "names mean nothing to structure"},
}

func (k Kind) String() string {
	if k < NumKind {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// DetectableWithoutPlan reports whether the structure of a tree alone shows mistakes of a kind, and where it does not.
func (k Kind) DetectableWithoutPlan() (is bool, unless string) {
	if k >= NumKind {
		return false, ""
	}
	return kinds[k].inferred, kinds[k].unless
}

// MarshalText writes the kind by name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads it.
func (k *Kind) UnmarshalText(b []byte) error {
	for i := range kinds {
		if kinds[i].name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("wiring: kind of finding is %q: want one such as %v", b, Missing)
}

// Wire is a cable by the names of its ends, as in leaf1[5] and spine1[2]. A port that nothing determines is
// written leaf1[?].
type Wire struct {
	A string `json:"a"`
	B string `json:"b"`
}

func (w Wire) String() string { return w.A + " " + w.B }

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	// Node is the node that a finding without cables is about.
	Node string `json:"node,omitempty"`
	// Wired are the cables as they are, Wanted as they should be: one of each, or two where ends were swapped. A
	// missing cable has no Wired, an extra one no Wanted.
	Wired  []Wire `json:"wired,omitempty"`
	Wanted []Wire `json:"wanted,omitempty"`
	// Text says what is wrong and Do what to do about it.
	Text string `json:"text"`
	Do   string `json:"do,omitempty"`

	at       topo.PortRef // for the order
	to       topo.PortRef // where a missing cable that leaves from at should lead
	isolated bool         // the node has no cable at all
}

func (f Finding) String() string {
	s := fmt.Sprintf("%v: %v: %s", f.Severity, f.Kind, f.Text)
	if f.Do != "" {
		s += ": " + f.Do
	}
	return s
}

// Place is the cable that a finding is about, as it is or, if it is missing, as it should be, or the node twice. A port
// that nothing determines is 0.
func (f Finding) Place(g *topo.Graph) (a, b topo.PortRef) {
	if f.Kind == Missing && len(f.Wanted) == 1 {
		return f.at, f.to // and not what else may be plugged in there, which is another finding's
	}
	at := f.at
	at.Node = max(at.Node, 0)
	if far := g.Peer(at); at.Port != 0 && far.Port != 0 {
		return at, far
	}
	at.Port = 0
	return at, at
}

// sortFindings puts the worst first, then goes by kind and place.
func sortFindings(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.at.Node, b.at.Node), cmp.Compare(a.at.Port, b.at.Port))
	})
}

// numbered is "1 host", "2 hosts".
func numbered(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
