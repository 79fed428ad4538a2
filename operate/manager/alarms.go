package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
	"unicode/utf8"

	"softib/internal/files"
	"softib/operate/manager/health"
	"softib/proto/topo"
)

// OpenAlarm is an alarm with what people have said about it.
type OpenAlarm struct {
	health.Alarm
	Link string // what it is about, as AlarmAt names it: a cable or a node
	// Text says what is wrong or, once it has stopped, for how long it has and what it was; Next what to do.
	Text, Next string
	// IsQuiet says that its condition was not seen in the last sample: it is about to be cleared.
	IsQuiet bool
	// Acknowledged is who looks after it, Muted the rule by which nobody is told of it; nil if there is none.
	Acknowledged *Acknowledgement
	Muted        *Mute
}

// Acknowledgement says who looks after an alarm.
type Acknowledgement struct {
	By   string    `json:"by"`
	Note string    `json:"note,omitempty"`
	At   time.Time `json:"at"`
}

// Mute is a rule about alarms of which nobody wants to be told: of a link or a node, of a kind, or both.
type Mute struct {
	ID uint64 `json:"id"`
	// Link is what alarms are about, as AlarmAt names it: a link or a node; empty is everything. Kind is that of
	// alarms; empty is every kind.
	Link string `json:"link,omitempty"`
	Kind string `json:"kind,omitempty"`
	// Until is when it ends; zero is never.
	Until time.Time `json:"until,omitzero"`
	By    string    `json:"by"`
	Note  string    `json:"note,omitempty"`
	At    time.Time `json:"at"`
}

func (u *Mute) covers(link string, kind health.Kind, now time.Time) bool {
	return (u.Until.IsZero() || now.Before(u.Until)) && (u.Link == "" || u.Link == link) &&
		(u.Kind == "" || u.Kind == kind.String())
}

// Bounds of what people may say about alarms.
const (
	mutesMax = 1024
	noteMax  = 500 // characters
)

// Errors of what people say about alarms.
var (
	ErrNoAlarm  = errors.New("no such alarm stands")
	ErrNoMute   = errors.New("no such rule")
	ErrBadMute  = errors.New("a rule needs a link or a node, a kind of alarm, or both")
	ErrManyMute = fmt.Errorf("there are %d rules already", mutesMax)
	ErrLongNote = fmt.Errorf("a note has at most %d characters", noteMax)
)

// mutesFile is where the rules are kept, in the folder of the state.
const mutesFile = "mutes.json"

// attention is what people have said about alarms.
type attention struct {
	acks  map[uint64]Acknowledgement // by alarm
	mutes []Mute
	next  uint64 // ID of the next rule
}

// openMutes reads the rules that were kept. A file that cannot be read is no reason to be without a fabric: then nobody
// is spared anything.
func (m *Manager) openMutes() {
	m.attention = attention{acks: map[uint64]Acknowledgement{}, next: 1}
	path := m.path(mutesFile)
	if path == "" {
		return
	}
	b, err := files.ReadText(path, 4<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var list []Mute
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		m.journal.Add(Event{Kind: "alarm", Severity: Warning, Object: path,
			Text: fmt.Sprintf("the rules about muted alarms cannot be read, none is in force: %v", err)})
		return
	}
	m.mutes = list[:min(len(list), mutesMax)]
	for i := range m.mutes {
		m.next = max(m.next, m.mutes[i].ID+1)
	}
}

// keepMutes writes the rules down. The state's lock is held.
func (m *Manager) keepMutes() error {
	path := m.path(mutesFile)
	if path == "" {
		return nil
	}
	b, err := json.Marshal(m.mutes)
	if err != nil {
		return err
	}
	return files.Replace(path, append(b, '\n'))
}

// OpenAlarms are the alarms that stand, gravest first.
func (m *Manager) OpenAlarms() []OpenAlarm {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	var list []OpenAlarm
	standing, now, last := m.standing(), time.Now(), m.judgedAt
	if len(standing) == 0 {
		return nil
	}
	type about struct {
		a, b topo.PortRef
		kind health.Kind
	}
	seen := map[about]*health.Reason{} // in the last sample; the gravest of a kind comes first
	for _, v := range m.Worst() {
		for i := range v.Reasons {
			k := about{v.A, v.B, v.Reasons[i].Kind}
			if seen[k] == nil {
				seen[k] = &v.Reasons[i]
			}
		}
	}
	for _, a := range standing {
		o := OpenAlarm{Alarm: a, Link: m.AlarmAt(&a), Next: a.Reason.Advice(m.g)}
		if r := seen[about{a.A, a.B, a.Kind}]; r != nil {
			o.Text = r.Text(m.g)
		} else if !a.Last.Before(last) {
			o.Text = a.Reason.Text(m.g) // of something else than a cable
		} else {
			o.IsQuiet = true
			quiet := health.Span(last.Sub(a.Last).Round(time.Second))
			o.Text = fmt.Sprintf("quiet for %s; it was %s", quiet, a.Reason.Text(m.g))
		}
		if ack, ok := m.acks[a.ID]; ok {
			o.Acknowledged = &ack
		}
		for _, u := range m.mutes {
			if u.covers(o.Link, a.Kind, now) {
				o.Muted = &u
				break
			}
		}
		list = append(list, o)
	}
	return list
}

// Acknowledge notes that somebody looks after an alarm.
func (m *Manager) Acknowledge(id uint64, by, note string) error {
	if utf8.RuneCountInString(note) > noteMax {
		return ErrLongNote
	}
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	standing := m.standing()
	for old := range m.acks {
		if !slices.ContainsFunc(standing, func(a health.Alarm) bool { return a.ID == old }) {
			delete(m.acks, old)
		}
	}
	i := slices.IndexFunc(standing, func(a health.Alarm) bool { return a.ID == id })
	if i < 0 {
		return fmt.Errorf("alarm %d: %w", id, ErrNoAlarm)
	}
	a := &standing[i]
	m.acks[id] = Acknowledgement{By: by, Note: note, At: time.Now()}
	object := m.AlarmAt(a)
	text := fmt.Sprintf("%s: %v acknowledged by %s", object, a.Kind, by)
	if note != "" {
		text += ": " + note
	}
	m.journal.Add(Event{Kind: "alarm", Object: object, Text: text})
	return nil
}

// standing are the alarms that stand. The state's lock is held.
func (m *Manager) standing() []health.Alarm {
	if m.alarms == nil {
		return nil
	}
	return m.alarms.Standing()
}

// Mutes are the rules that have not ended.
func (m *Manager) Mutes() []Mute {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	m.endMutes(time.Now())
	return slices.Clone(m.mutes)
}

// endMutes drops rules whose time is over. The state's lock is held.
func (m *Manager) endMutes(now time.Time) {
	m.mutes = slices.DeleteFunc(m.mutes, func(u Mute) bool { return !u.Until.IsZero() && !now.Before(u.Until) })
}

// AddMute adds a rule, and returns it with its number. A link has to be one of the
// fabric's, by the name that LinkName gives it, a node by its name.
func (m *Manager) AddMute(u Mute) (Mute, error) {
	if u.Link == "" && u.Kind == "" {
		return u, ErrBadMute
	}
	if utf8.RuneCountInString(u.Note) > noteMax {
		return u, ErrLongNote
	}
	if u.Kind != "" && !slices.ContainsFunc(Kinds(), func(k string) bool { return k == u.Kind }) {
		return u, fmt.Errorf("%w: %q is no kind of alarm, want one of %q", ErrBadMute, u.Kind, Kinds())
	}
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	u.At = time.Now()
	m.endMutes(u.At)
	if len(m.mutes) >= mutesMax {
		return u, ErrManyMute
	}
	u.ID = m.next
	was := m.mutes
	m.mutes = append(slices.Clone(m.mutes), u)
	if err := m.keepMutes(); err != nil {
		m.mutes = was
		return u, err
	}
	m.next++
	m.journal.Add(Event{Kind: "alarm", Object: u.Link, Text: fmt.Sprintf("%s muted by %s", u.words(), u.By)})
	return u, nil
}

// RemoveMute takes a rule away.
func (m *Manager) RemoveMute(id uint64, by string) error {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	i := slices.IndexFunc(m.mutes, func(u Mute) bool { return u.ID == id })
	if i < 0 {
		return fmt.Errorf("rule %d: %w", id, ErrNoMute)
	}
	u, was := m.mutes[i], m.mutes
	m.mutes = slices.Delete(slices.Clone(m.mutes), i, i+1)
	if err := m.keepMutes(); err != nil {
		m.mutes = was
		return err
	}
	m.journal.Add(Event{Kind: "alarm", Object: u.Link, Text: fmt.Sprintf("%s no longer muted, by %s", u.words(), by)})
	return nil
}

func (u *Mute) words() string {
	s := "alarms"
	if u.Kind != "" {
		s += " of kind " + u.Kind
	}
	if u.Link != "" {
		s += " of " + u.Link
	}
	if !u.Until.IsZero() {
		s += " until " + u.Until.Format(time.DateTime)
	}
	return s
}

// Kinds are the kinds of alarms, in words.
func Kinds() []string {
	var list []string
	for k := range health.NumKind {
		list = append(list, k.String())
	}
	return list
}
