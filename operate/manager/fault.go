package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
)

// ErrFault is matched where a fault cannot be as asked.
var ErrFault = inspect.ErrFault

// FaultSpec is what somebody rehearses at a cable.
type FaultSpec struct {
	// Down takes the link down; the rest is for links that are up.
	Down bool `json:"down,omitempty"`
	// BER is the probability of a bit to be flipped, Drop that of a packet to vanish.
	BER  float64 `json:"ber,omitempty"`
	Drop float64 `json:"drop,omitempty"`
	// Rate is how many bits go over the cable in a second at most; 0 is no limit.
	Rate int64 `json:"rate,omitempty"`
	// Delay is what a packet takes longer.
	Delay time.Duration `json:"delay,omitempty"`
	// From names the node, or the port, whose signals meet the fault, where those of the other end do not.
	From string `json:"from,omitempty"`
	// Retrain is no state: the link recovers from an error once, and what else is set stays.
	Retrain bool `json:"retrain,omitempty"`
	// GUID names the node whose GUID a node answers with in place of its own: a fault of a node, which SetNodeGUID
	// sets, and of no cable.
	GUID string `json:"guid,omitempty"`
}

// Fault is a fault that is set.
type Fault struct {
	Port, Peer topo.PortRef `json:"-"`
	// Link names both ends, or the node.
	Link string `json:"link"`
	FaultSpec
	Since time.Time `json:"since"`
	// Dropped and Corrupted packets so far.
	Dropped   uint64 `json:"dropped"`
	Corrupted uint64 `json:"corrupted"`
}

// String is the fault as ParseFault reads it.
func (s FaultSpec) String() string {
	var w []string
	if s.Down {
		w = append(w, "down")
	}
	if s.BER > 0 {
		w = append(w, "ber="+strconv.FormatFloat(s.BER, 'g', -1, 64))
	}
	if s.Drop > 0 {
		w = append(w, "drop="+strconv.FormatFloat(s.Drop, 'g', -1, 64))
	}
	if s.Rate > 0 {
		w = append(w, "rate="+rateText(s.Rate))
	}
	if s.Delay > 0 {
		w = append(w, "delay="+s.Delay.String())
	}
	if s.From != "" {
		w = append(w, "from="+s.From)
	}
	if s.Retrain {
		w = append(w, "retrain")
	}
	if s.GUID != "" {
		w = append(w, "guid="+s.GUID)
	}
	if len(w) == 0 {
		return "up"
	}
	return strings.Join(w, " ")
}

// rateUnits are the ends of a rate's number, the largest first.
var rateUnits = []struct {
	name string
	bits float64
}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}}

func rateText(r int64) string {
	for _, u := range rateUnits {
		if float64(r) >= u.bits {
			return strconv.FormatFloat(float64(r)/u.bits, 'g', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(r, 10)
}

// ParseFault reads "down", "up", "ber=1e-9", "drop=0.01", "rate=10G" (bits a second), "delay=5us" or several of them,
// each once. Up is no fault; nothing else is.
func ParseFault(words []string) (s FaultSpec, err error) {
	bad := func(w, want string) (FaultSpec, error) {
		return FaultSpec{}, &FaultError{Word: w, Want: want}
	}
	if len(words) == 0 {
		return bad("", faultWords)
	}
	seen := map[string]bool{}
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		if seen[key] {
			return bad(w, key+" once")
		}
		seen[key] = true
		switch {
		case key == "down" && !has:
			s.Down = true
		case key == "up" && !has:
			if len(words) > 1 {
				return bad(w, "up alone: it lifts every fault of the link")
			}
		case key == "ber" || key == "drop":
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v > 0 && v < 1 || key == "drop" && v == 1) {
				return bad(w, key+"=P with a probability above 0, such as "+key+"=1e-6; up lifts the fault")
			}
			if key == "ber" {
				s.BER = v
			} else {
				s.Drop = v
			}
		case key == "retrain" && !has:
			s.Retrain = true
		case key == "from":
			if value == "" {
				return bad(w, "from=NODE with the end whose signals meet the fault")
			}
			s.From = value
		case key == "rate":
			v, err := ParseRate(value)
			if err != nil {
				return FaultSpec{}, err
			}
			s.Rate = v
		case key == "delay":
			v, err := time.ParseDuration(value)
			if err != nil || v <= 0 {
				return bad(w, "delay=TIME such as delay=5us or delay=1ms; up lifts the fault")
			}
			s.Delay = v
		default:
			return bad(w, faultWords)
		}
	}
	if s.Down && s != (FaultSpec{Down: true}) {
		return bad(strings.Join(words, " "), "down alone: a link that is down carries nothing")
	}
	if s.Retrain && s != (FaultSpec{Retrain: true}) {
		return bad(strings.Join(words, " "), "retrain alone: it happens once, and leaves what is set as it is")
	}
	if s.From != "" && s == (FaultSpec{From: s.From}) {
		return bad(strings.Join(words, " "), "from=NODE beside ber=…, drop=…, rate=… or delay=…")
	}
	return s, nil
}

const faultWords = "down, up, retrain, ber=…, drop=…, rate=…, delay=… or from=…"

// FaultError is a word that is no fault. It matches ErrFault.
type FaultError struct{ Word, Want string }

func (e *FaultError) Error() string { return fmt.Sprintf("fault %q: want %s", e.Word, e.Want) }

// Is matches ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }

// faultRefused is a fault that the fabric does not have. It matches whatever the fabric said, which is ErrFault if the
// fault cannot be.
type faultRefused struct {
	link string
	err  error
}

func (e *faultRefused) Error() string { return e.link + ": " + e.err.Error() }
func (e *faultRefused) Unwrap() error { return e.err }

// ParseRate reads bits a second: "10G", "2.5Gb/s", "100M", "9600".
func ParseRate(text string) (int64, error) {
	t := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(text, "/s"), "bps"), "b")
	unit := 1.0
	for _, u := range rateUnits {
		if rest, ok := strings.CutSuffix(t, u.name); ok {
			t, unit = rest, u.bits
			break
		}
	}
	v, err := strconv.ParseFloat(t, 64)
	if v *= unit; err != nil || !(v >= 1 && v < math.MaxInt64) {
		return 0, &FaultError{Word: "rate=" + text, Want: "bits a second, such as 10G or 100M"}
	}
	return int64(v), nil
}

// faults are the links that were taken down here; the fabric knows the others. Since is for all of them.
type faults struct {
	mu    sync.Mutex
	down  map[int]bool // by cable
	since map[int]time.Time
}

// adoptDown takes over links that the fabric has taken down for a manager that was here before.
func (m *Manager) adoptDown() {
	f, ok := m.opts.Fabric.(interface {
		LinksTaken() map[topo.PortRef]time.Time
	})
	if !ok {
		return
	}
	m.faults.down, m.faults.since = map[int]bool{}, map[int]time.Time{}
	for r, at := range f.LinksTaken() {
		if cable, ok := m.CableOf(r); ok {
			m.faults.down[cable], m.faults.since[cable] = true, at
		}
	}
}

// SetFault makes the cable at a port a bad one, in place of whatever it was; a spec that is empty makes it good again.
// Who is named in the journal.
func (m *Manager) SetFault(r topo.PortRef, s FaultSpec, who string) error {
	cable, ok := m.CableOf(r)
	if !ok {
		return fmt.Errorf("no cable is plugged into %s: %w", m.g.PortName(r), ErrUnknown)
	}
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	f := m.opts.Fabric
	if s.Retrain {
		return m.retrain(r, cable, who)
	}
	if s.From != "" {
		var err error
		if r, err = m.endOf(cable, s.From); err != nil {
			return err
		}
	}
	rest := inspect.Fault{BER: s.BER, Drop: s.Drop, Rate: s.Rate, Delay: s.Delay, OneWay: s.From != ""}
	if rest != (inspect.Fault{}) {
		if err := f.SetFault(r, rest); err != nil {
			return &faultRefused{m.LinkName(cable), err}
		}
	} else if err := f.ClearFault(r); err != nil && !errors.Is(err, ErrFault) { // which says that there was none
		return err
	}
	if s.Down != m.faults.down[cable] {
		if err := f.SetLink(r, !s.Down); err != nil {
			return err
		}
	}
	if m.faults.down == nil {
		m.faults.down, m.faults.since = map[int]bool{}, map[int]time.Time{}
	}
	if s.Down {
		m.faults.down[cable] = true
	} else {
		delete(m.faults.down, cable)
	}
	e := Event{Kind: "fault", Severity: Warning, Object: m.LinkName(cable),
		Text: fmt.Sprintf("%s set the link %s: %v", who, m.LinkName(cable), s)}
	if s == (FaultSpec{}) {
		delete(m.faults.since, cable)
		e.Severity, e.Text = Info, fmt.Sprintf("%s lifted the fault of the link %s", who, m.LinkName(cable))
	} else {
		m.faults.since[cable] = time.Now()
	}
	m.journal.Add(e)
	return nil
}

// endOf is the end of a cable that somebody names by its node or its port.
func (m *Manager) endOf(cable int, name string) (topo.PortRef, error) {
	c := m.cables[cable]
	for _, r := range [2]topo.PortRef{c.A, c.B} {
		if name == m.g.PortName(r) || name == m.g.Nodes[r.Node].Name && c.A.Node != c.B.Node {
			return r, nil
		}
	}
	return topo.PortRef{}, &FaultError{Word: "from=" + name, Want: "an end of the link: " + m.g.PortName(c.A) + " or " +
		m.g.PortName(c.B)}
}

// rehearsing is what a fabric can do besides that is of softib's own nodes.
type rehearsing interface {
	Retrain(topo.PortRef) error
	ResetSwitch(node int) error
	// SetNodeGUID has a node answer with another GUID; 0 is its own.
	SetNodeGUID(node int, guid ib.GUID) error
	FalseGUIDs() []inspect.FalseGUID
}

// retrain lets a link recover from an error.
func (m *Manager) retrain(r topo.PortRef, cable int, who string) error {
	f, ok := m.opts.Fabric.(rehearsing)
	if !ok {
		return &faultRefused{m.LinkName(cable), fmt.Errorf("the nodes of this fabric are not softib's: %w", ErrFault)}
	}
	if err := f.Retrain(r); err != nil {
		return &faultRefused{m.LinkName(cable), err}
	}
	m.journal.Add(Event{Kind: "fault", Severity: Warning, Object: m.LinkName(cable),
		Text: fmt.Sprintf("%s had the link %s train again", who, m.LinkName(cable))})
	return nil
}

// Reboot takes a switch's power away for a while: its links are down, and it has forgotten all that managers wrote when
// it comes back. Links that were down before stay so. It returns when the links are up again.
func (m *Manager) Reboot(ctx context.Context, name string, off time.Duration, who string) error {
	n := m.g.ByName(name)
	f, ok := m.opts.Fabric.(rehearsing)
	switch {
	case n == nil || !n.IsSwitch():
		return fmt.Errorf("there is no switch %q: %w", name, ErrUnknown)
	case !ok:
		return fmt.Errorf("%s is not a switch of softib's: %w", name, ErrFault)
	case off < 0 || off > rebootMax:
		return &FaultError{Word: off.String(), Want: fmt.Sprintf("a time from 0 to %v", rebootMax)}
	}
	m.journal.Add(Event{Kind: "fault", Severity: Warning, Object: name,
		Text: fmt.Sprintf("%s reboots switch %s, which is off for %v", who, name, off)})
	return m.restart(n, func() error {
		if err := f.ResetSwitch(n.Index); err != nil {
			return err
		}
		select {
		case <-time.After(off):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

// restart does something to a node while all its links are down.
func (m *Manager) restart(n *topo.Node, meanwhile func() error) error {
	links, err := m.powerOff(n)
	if err == nil {
		err = meanwhile()
	}
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	for _, r := range links {
		cable, _ := m.CableOf(r)
		if m.faults.down[cable] { // unless somebody has lifted it meanwhile
			delete(m.faults.down, cable)
			delete(m.faults.since, cable)
			err = errors.Join(err, m.opts.Fabric.SetLink(r, true))
		}
	}
	return err
}

// SetNodeGUID has a node answer with the GUID of another, as one whose firmware was cloned, or with its own again where
// other is none. It starts anew with that: its links go down and up, and a switch has forgotten what managers wrote.
// Who is named in the journal.
func (m *Manager) SetNodeGUID(name, other, who string) error {
	n, err := m.Node(name)
	if err != nil {
		return err
	}
	f, ok := m.opts.Fabric.(rehearsing)
	if !ok {
		return fmt.Errorf("%s is not a node of softib's: %w", name, ErrFault)
	}
	guid := n.GUID
	e := Event{Kind: "fault", Object: n.Name, Text: fmt.Sprintf("%s gave %s its own GUID back", who, n.Name)}
	if other != "" {
		of, err := m.Node(other)
		if err != nil {
			return err
		}
		if of == n {
			return &FaultError{Word: "guid=" + other, Want: "another node than " + n.Name}
		}
		guid = of.GUID
		e.Severity, e.Text = Warning, fmt.Sprintf("%s gave %s the GUID of %s, %v", who, n.Name, of.Name, guid)
	}
	err = m.restart(n, func() error {
		if err := f.SetNodeGUID(n.Index, guid); err != nil || !n.IsSwitch() {
			return err
		}
		return f.ResetSwitch(n.Index)
	})
	if err == nil {
		m.journal.Add(e)
	}
	return err
}

// falseGUIDs are the faults of nodes that answer with others' GUIDs.
func (m *Manager) falseGUIDs() (list []Fault) {
	f, ok := m.opts.Fabric.(rehearsing)
	if !ok {
		return nil
	}
	for _, x := range f.FalseGUIDs() {
		at, of := topo.PortRef{Node: x.Node}, x.GUID.String()
		if n := m.g.ByGUID(x.GUID); n != nil {
			of = n.Name
		}
		list = append(list, Fault{Port: at, Peer: at, Link: m.g.Nodes[x.Node].Name, Since: x.Since,
			FaultSpec: FaultSpec{GUID: of}})
	}
	return list
}

// powerOff takes the links of a switch down, as faults that are listed, and returns those that were not down before.
func (m *Manager) powerOff(n *topo.Node) (links []topo.PortRef, err error) {
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	if m.faults.down == nil {
		m.faults.down, m.faults.since = map[int]bool{}, map[int]time.Time{}
	}
	for p := 1; p < len(n.Ports); p++ {
		r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		cable, cabled := m.CableOf(r)
		if !cabled || m.faults.down[cable] {
			continue
		}
		if e := m.opts.Fabric.SetLink(r, false); e != nil {
			err = errors.Join(err, e)
			continue
		}
		m.faults.down[cable], m.faults.since[cable] = true, time.Now()
		links = append(links, r)
	}
	return links, err
}

// rebootMax is how long a switch may be off.
const rebootMax = 10 * time.Minute

// Faults are those that are set, in the order of the cables; those of nodes come last.
func (m *Manager) Faults() []Fault {
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	byCable := map[int]*Fault{}
	get := func(cable int) *Fault {
		x := byCable[cable]
		if x == nil {
			c := m.cables[cable]
			x = &Fault{Port: c.A, Peer: c.B, Link: m.LinkName(cable), Since: m.faults.since[cable]}
			byCable[cable] = x
		}
		return x
	}
	for cable := range m.faults.down {
		get(cable).Down = true
	}
	for _, f := range m.opts.Fabric.Faults() {
		if cable, ok := m.CableOf(f.Port); ok {
			x := get(cable)
			x.BER, x.Drop, x.Rate, x.Delay, x.Dropped, x.Corrupted = f.BER, f.Drop, f.Rate, f.Delay, f.Dropped,
				f.Corrupted
			if f.OneWay {
				x.From = m.g.PortName(f.Port)
			}
		}
	}
	order := make([]int, 0, len(byCable))
	for cable := range byCable {
		order = append(order, cable)
	}
	slices.Sort(order)
	list := make([]Fault, len(order))
	for i, cable := range order {
		list[i] = *byCable[cable]
	}
	return append(list, m.falseGUIDs()...)
}
