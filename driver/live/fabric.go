package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"softib/fabric"
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs"
)

// Config tunes a fabric.
type Config struct {
	// Limits of every adapter; generous if zero.
	Limits hca.Limits
}

// ErrClosed is returned by calls that outlive their fabric.
var ErrClosed = fmt.Errorf("live: the fabric is down: %w", verbs.ErrClosed)

// ErrGroup is matched when a multicast group cannot be made as asked.
var ErrGroup = errors.New("multicast group")

// Fabric is a running fabric.
type Fabric struct {
	graph *topo.Graph
	cfg   Config
	start time.Time

	// mu guards the switches, the hosts, the ports' states and the walking of routes. Programs of this process take it
	// while they hold their endpoint's lock, so it comes second.
	mu       sync.Mutex
	epoch    atomic.Uint64
	switches []*switchNode
	hosts    []*Host
	nodes    []any // *Host or *switchNode by graph index
	agents   []*agent.Agent
	pool     link.Pool

	managing sync.Mutex // one manager at a time; taken before all others
	groups   []sm.Group // that need no joining

	// Of the packets of management, under mu.
	services map[topo.PortRef]*MgmtPort
	agentIDs madrpc.AgentID
	now      ib.Time // no later than the clock
	// Nodes whose agents may have something to tell.
	stirred  []bool
	restless []int
	trapBell chan struct{}
	// Programs, how many channels they were given ever, and their ways to groups. Recent are those of this process that
	// have found a way since something last changed.
	procs     []*Process
	recent    []*Process
	groupWays map[*procRoute]*Process
	channels  uint32
	waysBell  chan struct{}
	probe     link.Frame
	// What they have told of themselves: how long acknowledgements took, and how much was sent at once.
	paths  map[hostPair]*pathTimes
	bursts bursts
	// eng moves packets where cables have faults or ports are captured; plane, made with the first such, gives it time.
	eng      *fabric.Engine
	calls    map[topo.PortRef]*call
	plane    *plane
	faulty   []*cable
	captures []*capture

	closing chan struct{}
	closed  atomic.Bool
	staff   sync.Mutex // guards the starting of goroutines; taken after all others
	wg      sync.WaitGroup
}

// portState is one port of a node, with what is on it. What each hop of a datagram looks at is in its first cache line.
type portState struct {
	link *link.Port
	peer *portState
	host *Host
	sw   *switchNode
	// smpsOut and smpsIn are packets of subnet management that went through and are not yet in the counters; see fold.
	smpsOut, smpsIn uint64
	num             ib.PortNum

	// Traffic that went through by routes, and packets of management; the engines count what went
	// through them. Made with the first.
	count *ib.Counters
	lanes *laneCount
	// unplugged: SetLink took the cable out.
	unplugged bool
	// managers counts the subnet managers that run here.
	managers int
	// cable is what is wrong with its cable, taps are the captures here, and end is the plane's.
	cable *cable
	taps  []*capture
	end   *portEnd
	peaks *portPeaks // made with the first traffic of programs
}

type switchNode struct {
	node   *topo.Node
	engine *ibswitch.Switch
	ports  []*portState
	mgmt   *ibswitch.Node
}

// New starts a fabric: every node powered, every cable trained, every port in
// Initialize. Somebody has to bring the subnet up.
func New(g *topo.Graph, cfg Config) (*Fabric, error) {
	if len(g.Hosts()) == 0 {
		return nil, fmt.Errorf("live: the topology has no host: add one, or try star:2")
	}
	f := &Fabric{graph: g, cfg: cfg, start: time.Now(), closing: make(chan struct{}), nodes: make([]any, len(g.Nodes)),
		services: map[topo.PortRef]*MgmtPort{}, groupWays: map[*procRoute]*Process{},
		calls:   map[topo.PortRef]*call{},
		stirred: make([]bool, len(g.Nodes)), trapBell: make(chan struct{}, 1), waysBell: make(chan struct{}, 1)}
	f.epoch.Store(1)
	f.agents = make([]*agent.Agent, len(g.Nodes))
	// Hosts and switches know nothing of each other yet, and at ten thousand of them the second core pays.
	var switches sync.WaitGroup
	switches.Go(f.addSwitches)
	f.addHosts()
	switches.Wait()
	f.groups = []sm.Group{broadcast(g)}
	f.addEngine()
	for _, c := range g.Cables() {
		a, b := f.port(c.A), f.port(c.B)
		a.peer, b.peer = b, a
		f.eng.Join(a.place(), b.place(), 0)
		f.train(a)
	}
	for _, h := range f.hosts {
		h.syncPorts()
	}
	f.wg.Add(2)
	go f.sendTraps()
	go f.renewChanged()
	return f, nil
}

func (f *Fabric) addSwitches() {
	for _, n := range f.graph.Nodes {
		if !n.IsSwitch() {
			continue
		}
		s := &switchNode{node: n, engine: ibswitch.New(ibswitch.Config{Ports: n.NumPorts(), Port: portConfig()},
			&f.pool)}
		s.ports = newPorts(n.NumPorts()+1, portState{sw: s})
		for p := range s.ports {
			s.ports[p].link = s.engine.Port(ib.PortNum(p))
		}
		f.switches = append(f.switches, s)
		f.nodes[n.Index] = s
		f.manageSwitch(s)
	}
}

func (f *Fabric) addHosts() {
	for _, n := range f.graph.Nodes {
		if n.IsSwitch() {
			continue
		}
		h := newHost(f, n, len(f.hosts))
		f.hosts = append(f.hosts, h)
		f.nodes[n.Index] = h
		f.manageHost(h)
	}
}

// refreshMin is how often credits are told anew while some may have been lost.
const refreshMin = 200 * ib.Microsecond

// addEngine gives all nodes, in the graph's order, to the engine.
func (f *Fabric) addEngine() {
	f.eng = fabric.New(fabric.Config{Pool: &f.pool, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Instant: true, RefreshMin: refreshMin, TellDrops: true}, 0)
	for _, n := range f.nodes {
		switch n := n.(type) {
		case *switchNode:
			f.eng.AddSwitch(n.engine)
		case *Host:
			links := make([]*link.Port, len(n.links))
			for i := range links {
				links[i] = &n.links[i]
			}
			f.eng.AddHost(links)
		}
	}
}

// place numbers the port as the engine does.
func (p *portState) place() uint32 { return p.link.Site.First + uint32(p.num) }

// newPorts makes the ports of a node, side by side.
func newPorts(n int, like portState) []*portState {
	states, ports := make([]portState, n), make([]*portState, n)
	for i := range states {
		states[i] = like
		states[i].num = ib.PortNum(i)
		ports[i] = &states[i]
	}
	return ports
}

// name is the port in words.
func (p *portState) name() string {
	if p.host != nil {
		return fmt.Sprintf("%s/%d", p.host.node.Name, p.num)
	}
	return fmt.Sprintf("%s/%d", p.sw.node.Name, p.num)
}

func portConfig() link.Config { return link.Config{MTUCap: ib.MTU4096, VLCap: 8} }

// port finds the state of a port of the graph, nil if there is none.
func (f *Fabric) port(r topo.PortRef) *portState {
	if f.graph.Port(r) == nil {
		return nil
	}
	switch n := f.nodes[r.Node].(type) {
	case *switchNode:
		return n.ports[r.Port]
	case *Host:
		return n.ports[r.Port]
	}
	return nil
}

// Now is the fabric's time.
func (f *Fabric) Now() ib.Time { return ib.Time(time.Since(f.start)) * ib.Nanosecond }

// Graph is what the fabric was built from.
func (f *Fabric) Graph() *topo.Graph { return f.graph }

// Hosts are the fabric's adapters, in the graph's order.
func (f *Fabric) Hosts() []*Host { return f.hosts }

// Host finds an adapter by its node's name.
func (f *Fabric) Host(name string) (*Host, error) {
	if n := f.graph.ByName(name); n != nil {
		if h, ok := f.nodes[n.Index].(*Host); ok {
			return h, nil
		}
		return nil, fmt.Errorf("live: %s is a switch, not a host: the hosts are %s to %s", name, f.hosts[0].Name(),
			f.hosts[len(f.hosts)-1].Name())
	}
	return nil, fmt.Errorf("live: no host %q: the hosts are %s to %s", name, f.hosts[0].Name(),
		f.hosts[len(f.hosts)-1].Name())
}

// changed makes every route be walked anew. The fabric's lock is held.
func (f *Fabric) changed() {
	f.epoch.Add(1)
	if f.plane != nil {
		f.plane.stale = true
		f.plane.knock()
	}
	if len(f.procs) > 0 {
		f.renewLocal()
		select {
		case f.waysBell <- struct{}{}:
		default:
		}
	}
}

// SetLink takes the cable at a port down or up again. Up means trained: the
// subnet has to be brought up there anew.
func (f *Fabric) SetLink(r topo.PortRef, up bool) error {
	f.mu.Lock()
	p := f.port(r)
	if p == nil || p.peer == nil {
		f.mu.Unlock()
		return fmt.Errorf("live: no cable at %s: see the topology for the ports in use", f.graph.PortName(r))
	}
	for _, q := range []*portState{p, p.peer} {
		q.unplugged = !up
		if !up && q.link.Phys() == ib.PhysLinkUp {
			q.link.Down(f.Now())
		}
	}
	f.train(p)
	f.changed()
	for _, q := range []*portState{p, p.peer} {
		f.stir(q.index())
		if q.host != nil {
			q.host.syncPorts()
		}
	}
	f.mu.Unlock()
	f.RenewWays() // who has pulled a cable may rely on it: no program sends over it any more
	return nil
}

// Close stops the fabric. Calls that wait end with ErrClosed.
func (f *Fabric) Close() error {
	f.staff.Lock()
	was := f.closed.Swap(true)
	f.staff.Unlock()
	if was {
		return nil
	}
	close(f.closing)
	f.mu.Lock()
	f.plane.knock()
	for _, c := range f.captures {
		c.mu.Lock()
		c.stopped = true
		c.mu.Unlock()
		c.ring()
	}
	var devs []*Device
	for _, p := range f.procs {
		if p.device != nil {
			devs = append(devs, p.device)
		}
	}
	f.mu.Unlock()
	for _, d := range devs {
		_ = d.Close()
	}
	f.wg.Wait()
	return nil
}

// broadcast is the group that all hosts are in.
func broadcast(g *topo.Graph) sm.Group {
	all := sm.Group{MLID: sm.BroadcastMLID}
	for _, h := range g.Hosts() {
		for p := 1; p < len(h.Ports); p++ {
			all.Members = append(all.Members, h.PortGUID(ib.PortNum(p)))
		}
	}
	return all
}
