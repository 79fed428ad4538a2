package span

import (
	"slices"
	"sync"
	"time"

	"softib/internal/patience"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// own is what this machine has told of its nodes, and at which revision each has last changed.
type own struct {
	mu       sync.Mutex
	epoch    uint64
	revision uint64
	nodes    map[int]*ownNode
}

type ownNode struct {
	ports    []portTold
	revision uint64
}

// changed looks at the nodes that are here, if something may have changed, and says which have since a revision.
func (o *own) changed(f *Fabric, since uint64) (told portsTold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch := f.Fabric.Epoch(); o.nodes == nil || epoch != o.epoch {
		o.look(f)
		o.epoch = epoch
	}
	if since > o.revision {
		since = 0 // of a former life of this machine
	}
	told.Revision = o.revision
	for i := range f.cfg.Graph.Nodes {
		if n := o.nodes[i]; n != nil && n.revision > since {
			told.Nodes = append(told.Nodes, nodeTold{i, n.ports})
		}
	}
	return told
}

// look compares the nodes with what they were.
func (o *own) look(f *Fabric) {
	if o.nodes == nil {
		o.nodes = map[int]*ownNode{}
		o.revision = uint64(time.Now().UnixNano()) // later than in any former life
	}
	for i, n := range f.cfg.Graph.Nodes {
		if f.elsewhere(i) != "" {
			continue
		}
		ports := make([]portTold, len(n.Ports))
		for p := range ports {
			if p > 0 || n.IsSwitch() {
				ports[p] = f.describePort(topo.PortRef{Node: i, Port: ib.PortNum(p)})
			}
		}
		was := o.nodes[i]
		if was == nil || !slices.EqualFunc(was.ports, ports, func(a, b portTold) bool { return a.equal(&b) }) {
			o.revision++
			o.nodes[i] = &ownNode{ports, o.revision}
		}
	}
}

// mirror is what other machines have said of their nodes.
type mirror struct {
	mu       sync.Mutex
	cfg      *Config
	ports    [][]portSaid // by node and port; nil for what is not known
	machines map[string]*machine
}

// portSaid is a port as its machine has described it.
type portSaid struct {
	info  mad.PortInfo
	known bool
	pkeys []ib.PKey
	gids  []ib.GID
}

// machine is another machine, and the addresses of its hosts.
type machine struct {
	reached bool
	gen     int    // counts the ways to it
	since   uint64 // the revision of what it has said
	lids    map[ib.LID]bool
}

func (m *mirror) init(cfg *Config) {
	m.cfg = cfg
	m.ports = make([][]portSaid, len(cfg.Graph.Nodes))
	m.machines = map[string]*machine{}
	for _, name := range cfg.Where {
		m.machines[name] = &machine{}
	}
}

// reach notes that a machine is reached by a new way, and which that is.
func (m *mirror) reach(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[name]
	if x == nil {
		return 0
	}
	x.reached, x.since = true, 0
	x.gen++
	return x.gen
}

// heard is by which way a machine is reached, and the revision of what it has said.
func (m *mirror) heard(name string) (gen int, since uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.machines[name]; x != nil {
		return x.gen, x.since
	}
	return 0, 0
}

// isReached reports whether a machine can be asked.
func (m *mirror) isReached(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[name]
	return x != nil && x.reached
}

// lose forgets what a machine has said: its nodes are down.
func (m *mirror) lose(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.machines[name]; x != nil {
		x.reached, x.lids = false, nil
	}
	for i, at := range m.cfg.Where {
		if at == name {
			m.ports[i] = nil
		}
	}
}

// hear takes in what a machine says of nodes, as far as it has them, and reports whether that is by the way of now.
func (m *mirror) hear(name string, gen int, told portsTold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[name]
	if x == nil || !x.reached || x.gen != gen {
		return false
	}
	if told.Revision < x.since {
		return true // it was on its way when the machine was asked anew
	}
	x.since = told.Revision
	for _, n := range told.Nodes {
		if n.Node < 0 || n.Node >= len(m.ports) || m.cfg.Where[n.Node] != name ||
			len(n.Ports) != len(m.cfg.Graph.Nodes[n.Node].Ports) {
			continue // it speaks for what it does not have
		}
		said := make([]portSaid, len(n.Ports))
		for p := range said {
			said[p].info, said[p].known = n.Ports[p].info()
			said[p].pkeys, said[p].gids = n.Ports[p].PKeys, n.Ports[p].GIDs
		}
		m.ports[n.Node] = said
	}
	x.lids = map[ib.LID]bool{}
	for i, at := range m.cfg.Where {
		if at != name {
			continue
		}
		for _, p := range m.ports[i] {
			if p.known && p.info.LID.IsUnicast() {
				for n := range ib.LID(1) << (p.info.LMC & 7) {
					x.lids[p.info.LID+n] = true
				}
			}
		}
	}
	return true
}

// isSender reports whether an address is one of a machine's.
func (m *mirror) isSender(name string, lid ib.LID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[name]
	return x != nil && x.lids[lid]
}

// port is what is known of another machine's port.
func (m *mirror) port(r topo.PortRef) (p portSaid) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Node >= 0 && r.Node < len(m.ports) && int(r.Port) < len(m.ports[r.Node]) {
		p = m.ports[r.Node][r.Port]
	}
	return p
}

// follow keeps what a machine says up to date as long as it is reached by a way.
func (f *Fabric) follow(name string, gen int) {
	since := uint64(0)
	for {
		ctx, cancel := patience.Context(f.ctx, tellWait+callTime)
		told, err := askFor(ctx, f, name, opPorts, portsAsked{Since: since, Wait: tellWait})
		cancel()
		switch {
		case f.ctx.Err() != nil:
			return
		case err != nil:
			// It is lost, which the driver says, or busy.
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(tellEvery):
			}
			told = portsTold{Revision: since}
		}
		if !f.mirror.hear(name, gen, told) {
			return
		}
		if len(told.Nodes) > 0 {
			f.changes.Add(1)
		}
		since = told.Revision
	}
}
