package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Keys below the fabric's prefix. Everything below nowPrefix is watched by every member; the history is not, since
// nobody needs it to go on.
const (
	nowPrefix     = "now/"
	memberPrefix  = nowPrefix + "members/"
	sectionPrefix = nowPrefix + "sections/"
	MasterKey     = nowPrefix + "master"
	HeadKey       = nowPrefix + "head"
	HistoryPrefix = "history/"
)

// Sections that this package knows the form of.
const (
	SpecSection      = "spec"      // a Spec
	PlacementSection = "placement" // as package place writes it
)

// historyMax is how many changes the store remembers.
const historyMax = 1000

// HistoryKey is where the change is that made a revision.
func HistoryKey(revision int64) string { return fmt.Sprintf("%s%020d", HistoryPrefix, revision) }

// Info is what a machine tells the others about itself.
type Info struct {
	Name string `json:"name"`
	// Instance tells this process from others that had, or want, the name.
	Instance uint64 `json:"instance,string"`
	// Control and Data are where its daemon and its end of the cables to other machines are reached.
	Control string `json:"control,omitempty"`
	Data    string `json:"data,omitempty"`
	// Since is when it came, as people write it, and Version its softib's.
	Since   string `json:"since,omitempty"`
	Version string `json:"version,omitempty"`
	// Follows: it cannot say what the fabric is, so it does not become the master before somebody has.
	Follows bool `json:"follows,omitempty"`
}

// Member is a machine that is there.
type Member struct {
	Info
	Lease LeaseID
	// Create is the revision at which it came: the order of members.
	Create int64
}

// Spec is what all machines build the fabric from.
type Spec struct {
	// Topology is a generator's spec or a file in ibnetdiscover's format, whole.
	Topology string            `json:"topology"`
	Options  map[string]string `json:"options,omitempty"`
	// Secret is what the managers of all machines make the keys from by which they guard the subnet.
	Secret []byte `json:"secret,omitempty"`
}

// master is the value of MasterKey. The lease is the key's own.
type master struct {
	Name     string `json:"name"`
	Instance uint64 `json:"instance,string"`
}

// Head is the newest revision of what the fabric is, and who made it.
type Head struct {
	Revision int64  `json:"revision"`
	Change   string `json:"change"`
	By       string `json:"by"`
}

// Change is one revision's difference to the one before. It applies only on the revision that it was made for.
type Change struct {
	// ID tells it from all others; who proposes it leaves it empty.
	ID   string `json:"id"`
	By   string `json:"by"`
	Base int64  `json:"base"`
	// What says it in words, and When as people write it; both are for the history.
	What string `json:"what,omitempty"`
	When string `json:"when,omitempty"`
	// Put are the new values of sections, Drop the names of those that go.
	Put  []Section `json:"-"`
	Drop []string  `json:"drop,omitempty"`
	// Sections names what is put, for the history: the values themselves are not kept there.
	Sections []string `json:"sections,omitempty"`
}

// Section is a named part of what the fabric is.
type Section struct {
	Name  string
	Value []byte
}

// checkSection refuses names that are no last part of a key.
func checkSection(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) {
		return fmt.Errorf("cluster: section %q: want up to 64 small letters, digits and hyphens", name)
	}
	return nil
}

// encode is for values of this package, which are always JSON.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// parseInfo, parseMaster and parseHead believe nothing: others write to the store too.
func parseInfo(p *Pair) (Member, error) {
	m := Member{Lease: p.Lease, Create: p.Create}
	err := json.Unmarshal(p.Value, &m.Info)
	if want := strings.TrimPrefix(p.Key, memberPrefix); err == nil && m.Name != want {
		err = fmt.Errorf("it is called %q", m.Name)
	}
	if err != nil {
		return m, fmt.Errorf("cluster: %s: %w", p.Key, err)
	}
	return m, nil
}

func parseMaster(p *Pair) (m master, err error) {
	if err = json.Unmarshal(p.Value, &m); err == nil && m.Name == "" {
		err = fmt.Errorf("it has no name")
	}
	if err != nil {
		return m, fmt.Errorf("cluster: %s: %w", p.Key, err)
	}
	return m, nil
}

func parseHead(p *Pair) (h Head, err error) {
	if err = json.Unmarshal(p.Value, &h); err == nil && h.Revision < 1 {
		err = fmt.Errorf("revision %d: want 1 or more", h.Revision)
	}
	if err != nil {
		return h, fmt.Errorf("cluster: %s: %w", p.Key, err)
	}
	return h, nil
}

// ParseChange reads an entry of the history.
func ParseChange(p *Pair) (c Change, err error) {
	if err = json.Unmarshal(p.Value, &c); err == nil && c.ID == "" {
		err = fmt.Errorf("it has no id")
	}
	if err != nil {
		return c, fmt.Errorf("cluster: %s: %w", p.Key, err)
	}
	return c, nil
}
