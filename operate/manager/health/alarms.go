package health

import (
	"cmp"
	"slices"
	"time"

	"softib/proto/topo"
)

// Patience is the hysteresis of one kind of alarm: how long a condition must stand before it is raised, and how long it
// must have been gone before it is cleared. Zero is at once, with the first sample that says so.
type Patience struct{ Raise, Clear time.Duration }

// DefaultPatience is the table. States are facts: they count at once. Errors come in bursts, so their end is believed
// only after a while; a single sample above the limit is raised, because a burst is what a bad cable looks like.
func DefaultPatience() [NumKind]Patience {
	return [NumKind]Patience{
		LinkDown:  {0, 0},
		NotActive: {30 * time.Second, 0}, // a link that comes up passes Initialize and Armed
		Slow:      {0, 0},
		Damaging:  {0, 5 * time.Minute},
		Flapping:  {0, 15 * time.Minute},
		MTUs:      {5 * time.Second, 0}, // a manager sets one end after the other
		Congested: {10 * time.Second, 30 * time.Second},
		Refused:   {0, 5 * time.Minute},
		// While one manager takes over from another, or a cable is moved, there may be none, two, or a node that is at
		// both ends; and tables are written one after the other.
		NoMaster:   {30 * time.Second, 0},
		TwoMasters: {10 * time.Second, 0},
		TwinGUID:   {5 * time.Second, 0},
		BadTables:  {10 * time.Second, 0},
	}
}

// Alarm is a standing condition of one cable or, where both its ends are the same, of a node.
type Alarm struct {
	ID       uint64 // from 1, in the order in which alarms were raised
	Kind     Kind
	Severity Severity // the worst since it was raised
	A, B     topo.PortRef
	Since    time.Time
	Last     time.Time // when it was last seen
	Reason   Reason    // the gravest so far, as it was seen
	Count    int       // samples that showed it
}

// OfNode reports whether it is about a node and not about a cable.
func (a *Alarm) OfNode() bool { return a.A == a.B }

// Transition is what happened to an alarm.
type Transition uint8

// Transitions.
const (
	Raised Transition = iota
	Worse
	Cleared
	NumTransition
)

var transitionNames = [NumTransition]string{"raised", "worse", "cleared"}

func (t Transition) String() string { return nameOf(transitionNames[:], int(t), "Transition") }

// MarshalText writes the transition's name.
func (t Transition) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Change is a transition of an alarm.
type Change struct {
	Transition Transition
	Alarm      Alarm
}

// Alarms turns verdicts, sample by sample, into alarms. It is a plain value for one caller.
type Alarms struct {
	patience [NumKind]Patience
	all      map[alarmKey]*standing
	nextID   uint64
	last     time.Time
}

type alarmKey struct {
	a, b topo.PortRef
	kind Kind
}

// standing is a condition that is seen, raised or not yet.
type standing struct {
	Alarm
	raised bool
	first  time.Time // seen without a break since
}

// NewAlarms starts without any.
func NewAlarms(p [NumKind]Patience) *Alarms {
	return &Alarms{patience: p, all: map[alarmKey]*standing{}, nextID: 1}
}

// Update takes the verdicts on one sample and says what changed, in the order of the verdicts; what cleared comes
// last, by ID. Nothing is cleared by a clock that goes backward: waiting begins anew.
func (s *Alarms) Update(at time.Time, verdicts []Verdict) []Change {
	if at.Before(s.last) {
		for _, x := range s.all {
			x.Last, x.first = at, at
		}
	}
	s.last = at
	var changes []Change
	for i := range verdicts {
		v := &verdicts[i]
		var seen [NumKind]bool
		for j := range v.Reasons {
			r := &v.Reasons[j]
			// The gravest reason of a kind comes first and speaks for it.
			if seen[r.Kind] {
				continue
			}
			seen[r.Kind] = true
			if c, ok := s.see(at, v, r); ok {
				changes = append(changes, c)
			}
		}
	}
	return append(changes, s.expire(at)...)
}

// see notes that a condition stands at a time.
func (s *Alarms) see(at time.Time, v *Verdict, r *Reason) (Change, bool) {
	k := alarmKey{v.A, v.B, r.Kind}
	x := s.all[k]
	if x == nil {
		x = &standing{Alarm: Alarm{Kind: r.Kind, A: v.A, B: v.B}, first: at}
		s.all[k] = x
	}
	x.Last = at
	x.Count++
	worse := r.Severity > x.Severity
	if worse || r.Severity == x.Severity && r.score >= x.Reason.score {
		x.Severity, x.Reason = r.Severity, *r
	}
	switch {
	case !x.raised && at.Sub(x.first) >= s.patience[r.Kind].Raise:
		x.raised = true
		x.ID, x.Since = s.nextID, x.first
		s.nextID++
		return Change{Raised, x.Alarm}, true
	case x.raised && worse:
		return Change{Worse, x.Alarm}, true
	}
	return Change{}, false
}

// expire clears what was not seen for long enough, and forgets what was not seen again before it was raised.
func (s *Alarms) expire(at time.Time) []Change {
	var cleared []Change
	for k, x := range s.all {
		if x.Last.Equal(at) {
			continue
		}
		if !x.raised {
			delete(s.all, k)
			continue
		}
		if at.Sub(x.Last) >= s.patience[x.Kind].Clear {
			delete(s.all, k)
			cleared = append(cleared, Change{Cleared, x.Alarm})
		}
	}
	slices.SortFunc(cleared, func(a, b Change) int { return cmp.Compare(a.Alarm.ID, b.Alarm.ID) })
	return cleared
}

// Standing lists what is raised, gravest first, then oldest.
func (s *Alarms) Standing() []Alarm {
	var all []Alarm
	for _, x := range s.all {
		if x.raised {
			all = append(all, x.Alarm)
		}
	}
	slices.SortFunc(all, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Forget drops every alarm of cables for which gone says so: they were unplugged for good, or the topology is another
// one. Nothing is reported about them.
func (s *Alarms) Forget(gone func(a, b topo.PortRef) bool) {
	for k := range s.all {
		if gone(k.a, k.b) {
			delete(s.all, k)
		}
	}
}

// Clear drops the raised alarm with an ID and reports whether there was one. If its condition still stands the next
// sample raises it again, under another ID.
func (s *Alarms) Clear(id uint64) (Alarm, bool) {
	for k, x := range s.all {
		if x.raised && x.ID == id {
			delete(s.all, k)
			return x.Alarm, true
		}
	}
	return Alarm{}, false
}
