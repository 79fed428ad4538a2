package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"softib/subnet/sm"
)

// Severity of an event, an alarm or a finding.
type Severity uint8

// Severities, the worse the higher.
const (
	Info Severity = iota
	Warning
	Critical
	NumSeverity
)

var severityNames = [NumSeverity]string{"info", "warning", "critical"}

func (s Severity) String() string {
	if s < NumSeverity {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText is the name, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Event is one thing that happened.
type Event struct {
	// ID counts from 1.
	ID uint64    `json:"id"`
	At time.Time `json:"at"`
	// Kind is what it is about: those of a subnet manager (topology, sweep, trap, problem, …), and fault, tenant,
	// alarm, health, program.
	Kind     string   `json:"kind"`
	Severity Severity `json:"severity"`
	// Object is what it happened to, where that is one thing: a node, a port, a tenant.
	Object string `json:"object,omitempty"`
	Text   string `json:"text"`
}

// journalMax bounds what a journal keeps; older events make room.
const journalMax = 8192

// Journal is what happened to a fabric, in order.
type Journal struct {
	mu     sync.Mutex
	last   uint64
	events []Event // a ring once it is full: the event with ID i is at (i-1) % journalMax
	bells  bells
}

// NewJournal is an empty one.
func NewJournal() *Journal { return &Journal{} }

// Add writes an event down. Its ID, and its time if it has none, are given here.
func (j *Journal) Add(e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	j.mu.Lock()
	j.last++
	e.ID = j.last
	if len(j.events) < journalMax {
		j.events = append(j.events, e)
	} else {
		j.events[(e.ID-1)%journalMax] = e
	}
	j.mu.Unlock()
	j.bells.ring()
}

// AddSM writes down what a subnet manager has to say.
func (j *Journal) AddSM(e sm.Event) {
	s := Info
	switch e.Kind {
	case sm.EventProblem:
		s = Warning
	case sm.EventTamper:
		s = Critical
	case sm.EventTopology:
		if strings.Contains(e.Text, "gone") || strings.Contains(e.Text, "lost") || strings.Contains(e.Text, "down") {
			s = Warning
		}
	}
	j.Add(Event{Kind: e.Kind.String(), Severity: s, Text: e.Text})
}

// After are the events since one of that ID, oldest first, at most max of them: the newest. Those that made room are
// not among them.
func (j *Journal) After(id uint64, max int) []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := int(min(j.last-min(id, j.last), uint64(len(j.events)), uint64(max)))
	out := make([]Event, 0, n)
	for i := j.last - uint64(n) + 1; i <= j.last; i++ {
		out = append(out, j.events[(i-1)%journalMax])
	}
	return out
}

// Get is the event of that ID.
func (j *Journal) Get(id uint64) (Event, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if id == 0 || id > j.last || j.last-id >= uint64(len(j.events)) {
		return Event{}, false
	}
	return j.events[(id-1)%journalMax], true
}

// Last is the ID of the newest event.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Bell rings when there is a new event, until ctx ends.
func (j *Journal) Bell(ctx context.Context) <-chan struct{} { return j.bells.bell(ctx) }

// Sweeps are the reports of the subnet manager's last sweeps, newest last; nil where it is not ours or stands by.
func (m *Manager) Sweeps() (list []sm.SweepReport) {
	m.withManager(func(x *sm.Manager) { list = x.History() })
	return list
}

// withManager calls f with the subnet manager if there is one.
func (m *Manager) withManager(f func(*sm.Manager)) bool {
	return m.opts.Subnet != nil && m.opts.Subnet.Do(f) == nil
}

// SubnetState is how the subnet manager is.
type SubnetState struct {
	// Managed is false where the manager is not ours or has ended.
	Managed   bool             `json:"managed"`
	State     string           `json:"state,omitempty"`
	Sweeping  bool             `json:"sweeping,omitempty"`
	Engine    string           `json:"engine,omitempty"`
	Counters  sm.Counters      `json:"counters"`
	Managers  []ManagerSeen    `json:"managers,omitempty"`
	Partition []PartitionShown `json:"partitions,omitempty"`
}

// ManagerSeen is a subnet manager that ours knows of, itself included.
type ManagerSeen struct {
	Node     string `json:"node"`
	GUID     string `json:"guid"`
	LID      uint16 `json:"lid"`
	State    string `json:"state"`
	Priority uint8  `json:"priority"`
}

// PartitionShown is a partition in force.
type PartitionShown struct {
	Name    string `json:"name"`
	Key     string `json:"key"`
	Members int    `json:"members"`
	IPoIB   bool   `json:"ipoib,omitempty"`
	SL      uint8  `json:"sl"`
}

// Subnet is how the subnet manager is now.
func (m *Manager) Subnet() (s SubnetState) {
	s.Managed = m.withManager(func(x *sm.Manager) {
		s.State, s.Sweeping, s.Counters = x.State().String(), x.Sweeping(), x.Counters()
		sub := x.Subnet()
		if sub == nil {
			return
		}
		s.Engine = sub.Routing
		for _, o := range sub.Managers {
			name := o.Port.String()
			if r, ok := m.g.ByPortGUID(o.Port); ok {
				name = m.g.Nodes[r.Node].Name
			}
			s.Managers = append(s.Managers, ManagerSeen{Node: name, GUID: o.Port.String(), LID: uint16(o.LID),
				State: o.Info.SMState.String(), Priority: o.Info.Priority})
		}
		for i := range sub.Partitions {
			p := &sub.Partitions[i]
			s.Partition = append(s.Partition, PartitionShown{Name: p.Name, Key: p.Key.Base().String(),
				Members: len(p.Members), IPoIB: p.IPoIB, SL: uint8(p.SL)})
		}
	})
	slices.SortFunc(s.Partition, func(a, b PartitionShown) int { return strings.Compare(a.Key, b.Key) })
	return s
}
