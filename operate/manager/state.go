package manager

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"softib/operate/manager/health"
	"softib/proto/ib"
)

// state is what a manager knows beyond the last sample.
type state struct {
	mu       sync.Mutex
	verdicts atomic.Pointer[[]health.Verdict]
	alarms   *health.Alarms
	judgedAt time.Time // the sample that alarms know of
	admin    adminProbe
	past     past
	base     baseline
	judged   []health.Cable // used again for each judgement
	static   static
	watched  watched
	attention
}

// watched are verdicts on what is looked at between samples; see watch.
type watched = atomic.Pointer[[]health.Verdict]

// static is what does not change while a fabric is what it is: verdicts on its wiring and names, and where its own
// manager is.
type static struct {
	once sync.Once
	list atomic.Pointer[[]health.Verdict]
	own  atomic.Uint64 // a port GUID; 0 until it is known
}

// baseline is what counters were a while ago: cables are judged by what was counted since. Two of them take turns, so
// that there are always at least judgeSpan to look back on once the fabric is that old.
type baseline struct {
	at      [2]time.Time
	ports   [2][]ib.Counters
	current int
}

// judgeSpan is how long a baseline lasts; cables are judged by the last one to two of them.
const judgeSpan = time.Minute

// openState opens what is kept, and closeState closes it.
func (m *Manager) openState() error {
	m.openMutes()
	return m.openHistory()
}
func (m *Manager) closeState() error { return m.past.store.Close() }

// sampled is called with each new sample, and the one before.
func (m *Manager) sampled(s, _ *Sample) {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	m.judge(s)
	m.keep(s)
}

// judge ranks the cables by what was counted since the older baseline.
func (m *Manager) judge(s *Sample) {
	b := &m.base
	if b.ports[0] == nil {
		for i := range b.ports {
			b.at[i], b.ports[i] = s.At, make([]ib.Counters, len(s.Ports))
			for k := range s.Ports {
				b.ports[i][k] = s.Ports[k].Counters
			}
		}
		m.judged = make([]health.Cable, len(m.cables))
	}
	if s.At.Sub(b.at[b.current]) >= judgeSpan {
		b.current = 1 - b.current
		b.at[b.current] = s.At
		for k := range s.Ports {
			b.ports[b.current][k] = s.Ports[k].Counters
		}
	}
	older := 1 - b.current
	if b.at[b.current].Before(b.at[older]) {
		older = b.current
	}
	for i, c := range m.cables {
		x, _ := m.PortIndex(c.A)
		y, _ := m.PortIndex(c.B)
		m.end(&m.judged[i].A, s, x, b.ports[older])
		m.end(&m.judged[i].B, s, y, b.ports[older])
	}
	// No time at all would stand for all time: at the first sample, and when the clock was set back.
	limits := m.limits()
	interval := max(s.At.Sub(b.at[older]), m.opts.Interval)
	list := health.Judge(m.judged, interval, limits)
	m.verdicts.Store(&list)
	if m.alarms == nil {
		patience := health.DefaultPatience()
		if m.opts.Patience != nil {
			patience = *m.opts.Patience
		}
		m.alarms = health.NewAlarms(patience)
	}
	m.judgedAt = s.At
	all := append(m.oneDead(list), health.Traffic(m.judged, interval, limits)...)
	for _, c := range m.alarms.Update(s.At, append(all, m.conditions()...)) {
		m.alarmChanged(c)
	}
}

// limits are what cables are judged by.
func (m *Manager) limits() health.Thresholds {
	if m.opts.Thresholds != nil {
		return *m.opts.Thresholds
	}
	return health.Default()
}

// Limits are what counters are judged by, and how long they have counted where somebody knows.
func (m *Manager) Limits() health.Thresholds {
	limits := m.limits()
	if !m.opts.Since.IsZero() {
		limits.Age = time.Since(m.opts.Since)
	}
	return limits
}

// alarmChanged writes an alarm down that was raised, got worse or was cleared.
func (m *Manager) alarmChanged(c health.Change) {
	a := &c.Alarm
	e := Event{Kind: "alarm", Severity: alarmSeverity(a.Severity), Object: m.AlarmAt(a)}
	e.Text = fmt.Sprintf("%s %v: %s", e.Object, c.Transition, a.Reason.Text(m.g))
	if c.Transition == health.Cleared {
		// What it said is no longer so, and whoever looks for errors by their words should not find it.
		e.Severity, e.Text = Info, fmt.Sprintf("%s is well again: the alarm of %s (%v) is over", e.Object,
			a.Since.Format(time.TimeOnly), a.Kind)
	} else {
		e.Text += "; next: " + a.Reason.Advice(m.g)
	}
	m.journal.Add(e)
}

func alarmSeverity(s health.Severity) Severity {
	if s >= health.Bad {
		return Critical
	}
	return Warning
}

// Alarms are the conditions that stand, gravest first.
func (m *Manager) Alarms() []health.Alarm {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	return m.standing()
}

// ClearAlarm takes an alarm away. If its condition still stands, it comes back under another ID.
func (m *Manager) ClearAlarm(id uint64) bool {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	if m.alarms == nil {
		return false
	}
	_, ok := m.alarms.Clear(id)
	return ok
}

// end fills in one end of a cable.
func (m *Manager) end(e *health.End, s *Sample, port int, base []ib.Counters) {
	p := &s.Ports[port]
	e.Ref, e.State, e.Rate, e.Capable, e.Total = m.ports[port], p.State, p.Rate, p.Capable, p.Counters
	e.MTU = p.MTU
	for k, v := range p.Counters {
		e.Delta[k] = v - min(base[port][k], v)
	}
}

// Worst are the cables that something is wrong with, worst first. It must not be changed.
func (m *Manager) Worst() []health.Verdict {
	if p := m.verdicts.Load(); p != nil {
		return *p
	}
	return nil
}
