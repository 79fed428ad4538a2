package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"softib/node/inspect"
	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// Fabric is what is managed. Where it sets the pace of samples itself, it is Paced.
type Fabric interface {
	Graph() *topo.Graph
	// Epoch moves on whenever a state, a table or a key changes.
	Epoch() uint64
	PortInfo(topo.PortRef) (mad.PortInfo, bool)
	PKeys(topo.PortRef) []ib.PKey
	CountersOf([]topo.PortRef) []ib.Counters
	Way(from topo.PortRef, dlid ib.LID, sl ib.SL, pkey ib.PKey) (inspect.Way, error)
	SetLink(r topo.PortRef, up bool) error
	SetFault(topo.PortRef, inspect.Fault) error
	ClearFault(topo.PortRef) error
	Faults() []inspect.FaultState
	// MgmtSession opens a management service of the fabric: that of an end port or, where a fabric is known from one
	// port only, that one.
	MgmtSession(topo.PortRef) (inspect.Session, error)
	// What programs that are attached tell of themselves.
	Programs() []inspect.ProgramStats
	HostStats() []inspect.HostStats
	PathLatencies() []inspect.PathLatency
	Peaks(over time.Duration) []inspect.PortPeak
}

// Subnet is the subnet manager that stays with the fabric.
type Subnet interface {
	// Do calls f with the manager, between two of its steps, and waits for it.
	Do(f func(*sm.Manager)) error
}

// Options say what is managed, and how.
type Options struct {
	// Name is the fabric's, Topology what it was made from as its user named it, Version softib's.
	Name, Topology, Version string
	Fabric                  Fabric
	// Since is when the fabric's counters began; zero where nobody knows.
	Since time.Time
	// Subnet is nil where somebody else's manager looks after the fabric.
	Subnet Subnet
	// Tenants are the fabric's, and Enforcer keeps them apart; both are nil where there can be none.
	Tenants  *tenant.Book
	Enforcer *Enforcer
	// Journal has what happened before there was a Manager; nil for a new one.
	Journal *Journal
	// Thresholds are what cables are judged by; nil for the default ones.
	Thresholds *health.Thresholds
	// Patience is how long a condition stands before it is an alarm, and is gone before it is none; nil for the
	// default.
	Patience *[health.NumKind]health.Patience
	// Dir is where state is kept. Empty is in memory only, and gone with the process.
	Dir string
	// Interval is the time between two samples; 0 is one that suits the fabric's size.
	Interval time.Duration
}

// Manager is the management service of a fabric.
type Manager struct {
	opts    Options
	g       *topo.Graph
	started time.Time
	journal *Journal

	ports  []topo.PortRef
	first  []int32 // index of a node's port 1 in ports
	cables []topo.Cable
	byPort []int32 // cable of a port, by index; -1 for none
	names  map[string]int

	sample  atomic.Pointer[Sample]
	samples bells
	sampler sampler

	faults faults
	state

	stop context.CancelFunc
	done sync.WaitGroup
}

// New starts the management of a fabric.
func New(o Options) (*Manager, error) {
	if o.Fabric == nil {
		return nil, errors.New("manager: no fabric")
	}
	if o.Journal == nil {
		o.Journal = NewJournal()
	}
	m := &Manager{opts: o, g: o.Fabric.Graph(), started: time.Now(), journal: o.Journal}
	m.index()
	if m.opts.Interval == 0 {
		m.opts.Interval = intervalFor(len(m.ports))
	}
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("manager: no folder for its state: %w", err)
		}
	}
	m.adoptDown()
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if err := m.openState(); err != nil {
		stop()
		return nil, err
	}
	m.take(time.Now())
	m.done.Go(func() { m.run(ctx) })
	m.done.Go(func() { m.watch(ctx) })
	return m, nil
}

// Close ends it. The fabric goes on.
func (m *Manager) Close() error {
	m.stop()
	m.done.Wait()
	return m.closeState()
}

// path is a file of the state; empty if that is in memory.
func (m *Manager) path(name string) string {
	if m.opts.Dir == "" {
		return ""
	}
	return filepath.Join(m.opts.Dir, name)
}

// index numbers ports and cables.
func (m *Manager) index() {
	m.first = make([]int32, len(m.g.Nodes))
	m.names = make(map[string]int, len(m.g.Nodes))
	for i, n := range m.g.Nodes {
		m.names[n.Name] = i
		m.first[i] = int32(len(m.ports))
		for p := 1; p <= n.NumPorts(); p++ {
			m.ports = append(m.ports, topo.PortRef{Node: i, Port: ib.PortNum(p)})
		}
	}
	m.cables = m.g.Cables()
	m.byPort = make([]int32, len(m.ports))
	for i := range m.byPort {
		m.byPort[i] = -1
	}
	for i, c := range m.cables {
		for _, r := range [2]topo.PortRef{c.A, c.B} {
			if k, ok := m.PortIndex(r); ok {
				m.byPort[k] = int32(i)
			}
		}
	}
}

// Name is the fabric's name, Topology what it was made from, Version the version of softib, Started when its management
// began.
func (m *Manager) Name() string       { return m.opts.Name }
func (m *Manager) Topology() string   { return m.opts.Topology }
func (m *Manager) Version() string    { return m.opts.Version }
func (m *Manager) Started() time.Time { return m.started }

// Fabric is what is managed, for those who show what only the fabric knows.
func (m *Manager) Fabric() Fabric { return m.opts.Fabric }

// Graph is the fabric's shape. It must not be changed.
func (m *Manager) Graph() *topo.Graph { return m.g }

// Ports are all ports that take a cable, node after node: the order of every Sample. It must not be changed.
func (m *Manager) Ports() []topo.PortRef { return m.ports }

// PortIndex is the place of a port in Ports.
func (m *Manager) PortIndex(r topo.PortRef) (int, bool) {
	if r.Node < 0 || r.Node >= len(m.first) || r.Port < 1 || int(r.Port) > m.g.Nodes[r.Node].NumPorts() {
		return 0, false
	}
	return int(m.first[r.Node]) + int(r.Port) - 1, true
}

// Cables are the fabric's cables, whether their links are up or not. It must not be changed.
func (m *Manager) Cables() []topo.Cable { return m.cables }

// CableOf is the cable at a port, by its place in Cables.
func (m *Manager) CableOf(r topo.PortRef) (int, bool) {
	k, ok := m.PortIndex(r)
	if !ok || m.byPort[k] < 0 {
		return 0, false
	}
	return int(m.byPort[k]), true
}

// Tenants are the fabric's tenants; nil where there can be none.
func (m *Manager) Tenants() *tenant.Book { return m.opts.Tenants }

// OwnManager is the port GUID of the subnet manager that stays with the fabric; 0 where that is another's business, or
// if it has ended.
func (m *Manager) OwnManager() (guid ib.GUID) {
	m.withManager(func(x *sm.Manager) { guid = x.GUID() })
	return guid
}

// Programs are those that are attached; nil where nobody knows.
func (m *Manager) Programs() []inspect.ProgramStats { return m.opts.Fabric.Programs() }

// Acknowledged are the tenants that are to be in force; none where another manages the fabric.
func (m *Manager) Acknowledged() []tenant.Tenant {
	if b := m.Tenants(); b != nil && b.Aside() == nil {
		return b.List()
	}
	return nil
}

// Enforcer keeps tenants apart, and knows hosts by what people call them; nil where there are no tenants.
func (m *Manager) Enforcer() *Enforcer { return m.opts.Enforcer }

// Journal has what happened.
func (m *Manager) Journal() *Journal { return m.journal }

// LID is the address of an end port, or of the switch that a port is part of; 0 where there is none yet.
func (m *Manager) LID(r topo.PortRef) ib.LID {
	if m.g.Nodes[r.Node].IsSwitch() {
		r.Port = 0
	}
	pi, _ := m.opts.Fabric.PortInfo(r)
	return pi.LID
}
