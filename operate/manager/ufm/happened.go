package ufm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/topo"
)

// dismissed are events that a caller has deleted: they are shown no more here. The journal itself is history, and
// stays.
type dismissed struct {
	mu   sync.Mutex
	list map[uint64]bool
}

// dismissedMax is more than a journal has.
const dismissedMax = 1 << 14

func (d *dismissed) add(id, last uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list == nil {
		d.list = map[uint64]bool{}
	}
	if len(d.list) >= dismissedMax { // those that the journal has no more
		for k := range d.list {
			if k+dismissedMax/2 < last {
				delete(d.list, k)
			}
		}
	}
	d.list[id] = true
}

func (d *dismissed) has(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list[id]
}

// eventShape is an event as UFM's are.
type eventShape struct {
	ID          uint64 `json:"id"`
	Name        string `json:"name"`
	Type        string `json:"type"`
	EventType   string `json:"event_type"`
	Severity    string `json:"severity"`
	Timestamp   string `json:"timestamp"`
	Counter     string `json:"counter"`
	Category    string `json:"category"`
	ObjectName  string `json:"object_name"`
	ObjectPath  string `json:"object_path"`
	Syslog      bool   `json:"write_to_syslog"`
	Description string `json:"description"`
}

// severityWords are UFM's.
var severityWords = [manager.NumSeverity]string{sevInfo, sevWarning, sevCritical}

// kinds are UFM's words for the kinds of our events; others are its "Fabric Notification".
var kinds = map[string]struct{ name, category, number string }{
	"topology": {"Fabric Topology Changed", "Fabric Topology", "908"},
	"sweep":    {"Fabric Configuration Completed", "Fabric Notification", "902"},
	"problem":  {"Subnet Manager Problem", "Fabric Notification", "605"},
	"trap":     {"Trap Received", "Fabric Notification", "144"},
	"fault":    {"Fault Injected", "Maintenance", "1300"},
	"tenant":   {"Partition Changed", "Logical Model", "352"},
	"alarm":    {"Alarm", "Hardware", "110"},
	"health":   {"Link Health", "Hardware", "110"},
}

func shapeEvent(e *manager.Event) eventShape {
	k, ok := kinds[e.Kind]
	if !ok {
		k.name, k.category, k.number = e.Kind, "Fabric Notification", "901"
	}
	o := eventShape{ID: e.ID, Name: k.name, Type: "Site", EventType: k.number,
		Severity: severityWords[min(e.Severity, manager.Critical)], Timestamp: stamp(e.At), Counter: notAvailable,
		Category: k.category, ObjectName: e.Object, ObjectPath: "default", Description: e.Text}
	if e.Object == "" {
		o.ObjectName = "default"
	} else {
		o.ObjectPath = "default / " + e.Object
	}
	return o
}

// events lists what happened.
func (s *Server) events(c *call) error {
	object, kind, category := c.query.text("object_name"), c.query.text("type"), c.query.text("category")
	severity := c.query.oneOf("severity", "info", "warning", "minor", "major", "critical")
	p := pageOf(c.query)
	if c.query.err != nil {
		return c.query.err
	}
	list := s.cfg.Manager.Journal().After(0, 1<<30)
	writeList(c.w, p, func(yield func(eventShape) bool) {
		for i := range list {
			e := shapeEvent(&list[i])
			if s.dismissed.has(e.ID) || object != "" && e.ObjectName != object || kind != "" && e.Type != kind &&
				e.EventType != kind ||
				category != "" && !strings.EqualFold(e.Category, category) || severity != "" &&
				!strings.EqualFold(e.Severity, severity) {
				continue
			}
			if !yield(e) {
				return
			}
		}
	})
	return nil
}

// number reads an ID in a path.
func (c *call) number(name string) (uint64, *Error) {
	v, err := strconv.ParseUint(c.arg(name), 10, 64)
	if err != nil {
		return 0, bad(name, "%q: want a number", clip(c.arg(name)))
	}
	return v, nil
}

func (s *Server) findEvent(c *call) (manager.Event, *Error) {
	id, e := c.number("id")
	if e != nil {
		return manager.Event{}, e
	}
	ev, ok := s.cfg.Manager.Journal().Get(id)
	if !ok || s.dismissed.has(id) {
		return ev, &Error{Status: http.StatusNotFound, Field: "id", Reason: fmt.Sprintf("there is no event %d", id)}
	}
	return ev, nil
}

func (s *Server) event(c *call) error {
	ev, e := s.findEvent(c)
	if e != nil {
		return e
	}
	c.json(shapeEvent(&ev))
	return nil
}

func (s *Server) deleteEvent(c *call) error {
	ev, e := s.findEvent(c)
	if e != nil {
		return e
	}
	s.dismissed.add(ev.ID, s.cfg.Manager.Journal().Last())
	c.json(struct{}{})
	return nil
}

// alarmShape is an alarm as UFM's are.
type alarmShape struct {
	ID          uint64 `json:"id"`
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description"`
	EventType   int    `json:"event_type"`
	Duration    string `json:"duration"`
	Reason      string `json:"reason"`
	Severity    string `json:"severity"`
	Timestamp   string `json:"timestamp"`
	Counter     string `json:"counter"`
	EventCount  int    `json:"event_count"`
	ObjectName  string `json:"object_name"`
	ObjectPath  string `json:"object_path"`

	a, b topo.PortRef
}

// alarmWords are UFM's numbers and names for what is wrong with cables.
var alarmWords = map[health.Kind]struct {
	number int
	name   string
}{
	health.LinkDown: {329, "Link is Down"}, health.NotActive: {328, "Link is Not Active"},
	health.Slow:     {131, "Non-optimal Link Speed"},
	health.Damaging: {110, "Symbol Error"}, health.Flapping: {112, "Link Downed"},
}

// alarmList are the alarms that stand.
func (s *Server) alarmList() (list []alarmShape) {
	now := s.now()
	for _, a := range s.cfg.Manager.Alarms() {
		o := s.alarmShape(a.ID, &a.Reason, a.Severity, a.A, a.B, a.Last)
		o.EventCount, o.Duration = a.Count, fmt.Sprintf("%d s", int(now.Sub(a.Since).Seconds()))
		list = append(list, o)
	}
	return list
}

func (s *Server) alarmShape(id uint64, r *health.Reason, sev health.Severity, a, b topo.PortRef,
	at time.Time) alarmShape {
	g := s.cfg.Manager.Graph()
	w, ok := alarmWords[r.Kind]
	if !ok {
		w.number, w.name = 110, r.Kind.String()
	}
	where := r.At
	if where == (topo.PortRef{}) && r.Peer == (topo.PortRef{}) {
		where = a
	}
	n := g.Nodes[where.Node]
	_, kind := typeWords(n)
	o := alarmShape{ID: id, Type: "IBPort", Name: w.name, Description: w.name, EventType: w.number, Duration: "0 s",
		Reason: r.Text(g), Severity: sevWarning,
		Timestamp: stamp(at),
		Counter:   notAvailable, EventCount: 1, ObjectName: portName(n, where.Port),
		ObjectPath: fmt.Sprintf("default / %s: %s / %d", kind, n.Name, where.Port), a: a, b: b}
	if a != b {
		o.Reason += "; the link is " + g.PortName(a) + " " + g.PortName(b)
	}
	if sev >= health.Bad {
		o.Severity = sevCritical
	}
	if r.Excess.Count > 0 {
		o.Counter = ib.Counter(r.Excess.Counter).String()
	}
	return o
}

// alarmsAt are the alarms of a system, or all.
func (s *Server) alarmsAt(device string) ([]alarmShape, *Error) {
	list := s.alarmList()
	if device == "" {
		return list, nil
	}
	n, e := s.node("device_id", device)
	if e != nil {
		return nil, e
	}
	return slices.DeleteFunc(list, func(a alarmShape) bool { return a.a.Node != n.Index && a.b.Node != n.Index }), nil
}

func (s *Server) alarms(c *call) error {
	p := pageOf(c.query)
	if c.query.err != nil {
		return c.query.err
	}
	list, e := s.alarmsAt(c.query.text("device_id"))
	if e != nil {
		return e
	}
	writeList(c.w, p, slices.Values(list))
	return nil
}

func (s *Server) findAlarm(c *call) (alarmShape, *Error) {
	id, e := c.number("id")
	if e != nil {
		return alarmShape{}, e
	}
	for _, a := range s.alarmList() {
		if a.ID == id {
			return a, nil
		}
	}
	return alarmShape{}, &Error{Status: http.StatusNotFound, Field: "id",
		Reason: fmt.Sprintf("there is no alarm %d", id)}
}

func (s *Server) alarm(c *call) error {
	a, e := s.findAlarm(c)
	if e != nil {
		return e
	}
	c.json(a)
	return nil
}

func (s *Server) deleteAlarm(c *call) error {
	a, e := s.findAlarm(c)
	if e != nil {
		return e
	}
	s.cfg.Manager.ClearAlarm(a.ID)
	c.json(struct{}{})
	return nil
}

func (s *Server) deleteAlarms(c *call) error {
	device := c.query.text("device_id")
	if device == "" {
		return bad("device_id", "missing: want the GUID or the name of a system")
	}
	list, e := s.alarmsAt(device)
	if e != nil {
		return e
	}
	for _, a := range list {
		s.cfg.Manager.ClearAlarm(a.ID)
	}
	c.json(struct{}{})
	return nil
}
