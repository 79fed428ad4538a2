package sm

import (
	"fmt"

	"softib/proto/ib"
)

// EventKind says what an event is about.
type EventKind uint8

// Kinds of event.
const (
	EventState    EventKind = iota // the manager's own state
	EventSweep                     // a sweep began or ended
	EventTopology                  // nodes and links came or went
	EventRouting                   // tables were computed
	EventTrap                      // a node reported something
	EventProblem                   // something does not work as it should
	EventSA                        // subnet administration
	EventPolicy                    // partitions, quality of service, keys: what an operator has decided
	EventTamper                    // a node holds what somebody else has written
	NumEventKind
)

var eventKindNames = [NumEventKind]string{"state", "sweep", "topology", "routing", "trap", "problem", "sa", "policy",
	"tamper"}

func (k EventKind) String() string {
	if k < NumEventKind {
		return eventKindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is one line of the operator's log: what changed and why.
type Event struct {
	At   ib.Time
	Kind EventKind
	Text string
}

func (e Event) String() string { return e.Kind.String() + ": " + e.Text }

// Counters say what a manager has done and seen since it was made.
type Counters struct {
	// Sweeps were completed, LightSweeps begun.
	Sweeps, LightSweeps uint64
	// Sent counts datagrams.
	Sent uint64
	// Traps were received, those that repeat others included.
	Traps uint64
	// Problems went wrong, whether the log names them or only counts them; EventsLost were not polled in time.
	Problems, EventsLost uint64
	// Tampered counts ports that were found with partitions that somebody else had written.
	Tampered uint64
}

// Counters are the counters as they are now.
func (m *Manager) Counters() Counters {
	c := m.counters
	c.Sweeps, c.Sent = uint64(m.sweeps), m.sent
	return c
}

// maxEvents bounds the events that wait to be polled; older ones make room.
const maxEvents = 4096

func (m *Manager) event(k EventKind, format string, args ...any) {
	if k == EventProblem {
		m.counters.Problems++
	}
	if len(m.events) >= maxEvents {
		m.counters.EventsLost++
		m.events = m.events[1:]
	}
	m.events = append(m.events, Event{m.now, k, fmt.Sprintf(format, args...)})
}

// PollEvent gives the next line of the log.
func (m *Manager) PollEvent() (Event, bool) {
	if len(m.events) == 0 {
		return Event{}, false
	}
	e := m.events[0]
	m.events = m.events[1:]
	return e, true
}

// grumbles limits how many problems of one kind a sweep names one by one.
const grumbles = 8

// problem logs what is wrong with a node, up to a limit in each sweep.
func (s *sweep) problem(format string, args ...any) {
	s.problems++
	if s.problems <= grumbles {
		s.m.event(EventProblem, format, args...)
	} else {
		s.m.counters.Problems++
	}
}
