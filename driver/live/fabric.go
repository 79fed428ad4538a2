package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"softib/fabric"
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibrouter"
	"softib/node/ibswitch"
	"softib/node/inspect"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/topo"
	routing "softib/subnet/route"
	"softib/subnet/sm"
	"softib/verbs"
)

// Config tunes a fabric.
type Config struct {
	// Limits of every adapter; generous if zero.
	Limits hca.Limits
	// Adaptive says how switches choose among ports, where paths are switched. Adapters put packets in order again.
	Adaptive routing.Choice
	// Outside is what other machines have of the fabric.
	Outside Outside
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
	switches []*node
	hosts    []*Host
	nodes    []*node // in the graph's order
	pool     link.Pool

	managing sync.Mutex // one manager at a time; taken before all others
	groups   []sm.Group // that need no joining

	// Of the packets of management, under mu.
	agentIDs madrpc.AgentID
	now      ib.Time // no later than the clock
	// Nodes whose agents may have something to tell.
	restless []*node
	trapBell chan struct{}
	// Programs, how many channels they were given ever, and their ways to groups. Recent are those of this process that
	// have found a way since something last changed.
	procs     []*Process
	recent    []*Process
	groupWays map[*procRoute]bool
	channels  uint32
	waysBell  chan struct{}
	probe     link.Frame
	// What they have told of themselves: how long acknowledgements took, and how much was sent at once.
	paths  map[hostPair]*pathTimes
	bursts bursts
	// eng moves packets where cables have faults or ports are captured; plane, made with the first such, gives it time.
	eng    *fabric.Engine
	plane  *plane
	faulty []*inspect.FaultState
	terms  uint64 // of managers that rule in turn, see SetTerms
	// falseGUIDs are the nodes that answer with another's.
	falseGUIDs []inspect.FalseGUID
	captures   []*capture
	// outside are the ports, by cable, from which cables lead to other machines; message is what goes there next.
	outside map[int]*portState
	message []byte
	unsent  bool // messages that the trunk has and was not told to send

	closing chan struct{}
	closed  atomic.Bool
	staff   sync.Mutex // guards the starting of goroutines; taken after all others
	wg      sync.WaitGroup
}

// node is what hosts and switches have in common.
type node struct {
	topo    *topo.Node
	ports   []*portState // 0 of a host is nil
	agent   *agent.Agent
	mgmt    manageable
	host    *Host            // if it is one, or a router
	sw      *ibswitch.Switch // if it is neither
	rt      *ibrouter.Router // if it is one
	stirred bool             // it is among the restless
}

// manageable is what a node says to others than its agent.
type manageable interface {
	agent.Node
	TrainRate(ib.PortNum) ib.LinkRate
}

// portState is one port of a node, with what is on it. What each hop of a datagram looks at is in its first cache line.
type portState struct {
	link *link.Port
	peer *portState
	*node
	// smpsOut and smpsIn are packets of subnet management that went through and are not yet in the counters; see fold.
	smpsOut, smpsIn uint64
	num             ib.PortNum

	// unplugged: SetLink took the cable out.
	unplugged bool
	outside   *outsideEnd // of a cable to another machine; peer is nil then
	// managers counts the subnet managers that run here.
	managers int
	// fault is that of its cable, which both ends have, taps are the captures here.
	fault *inspect.FaultState
	taps  []*capture
	// inlets are the rings that the plane takes packets of a host's port from, and turn is whose turn it is.
	inlets []*inlet
	turn   int
	// service is that of programs, call is who waits for a datagram here.
	service *MgmtPort
	call    *call
	peaks   *portPeaks // made with the first traffic of programs
}

// New starts a fabric: every node powered, every cable trained, every port in Initialize. Somebody has to bring the
// subnet up.
func New(g *topo.Graph, cfg Config) (*Fabric, error) {
	if len(g.Hosts()) == 0 {
		return nil, fmt.Errorf("live: the topology has no host: add one, or try star:2")
	}
	f := &Fabric{graph: g, cfg: cfg, start: time.Now(), nodes: make([]*node, len(g.Nodes)),
		outside: map[int]*portState{}, groupWays: map[*procRoute]bool{}, paths: map[hostPair]*pathTimes{},
		closing: make(chan struct{}), trapBell: make(chan struct{}, 1), waysBell: make(chan struct{}, 1)}
	f.epoch.Store(1)
	// Hosts and switches know nothing of each other yet, and at ten thousand of them the second core pays.
	var switches sync.WaitGroup
	switches.Go(f.addSwitches)
	f.addHosts()
	switches.Wait()
	f.groups = []sm.Group{broadcast(g)}
	f.addEngine()
	for i, c := range g.Cables() {
		f.join(i, c)
	}
	if len(f.outside) > 0 {
		if err := f.startPlane(); err != nil {
			return nil, err
		}
	}
	for _, h := range f.hosts {
		h.syncPorts()
	}
	f.wg.Go(f.sendTraps)
	f.wg.Go(f.renewChanged)
	return f, nil
}

func (f *Fabric) addSwitches() {
	for _, t := range f.graph.Switches() {
		sw := ibswitch.New(ibswitch.Config{Ports: t.NumPorts()}, &f.pool)
		n := &node{topo: t, sw: sw}
		cfg := ibswitch.NodeConfig{PortGUID: t.PortGUID(0)}
		cfg.Identity, cfg.Supported = identity(f.graph, t)
		n.init(sw.Port, ibswitch.NewNode(sw, cfg))
		f.switches = append(f.switches, n)
		f.nodes[t.Index] = n
	}
}

func (f *Fabric) addHosts() {
	for _, t := range f.graph.Hosts() {
		h := newHost(f, t, len(f.hosts))
		f.hosts = append(f.hosts, h)
		f.nodes[t.Index] = &h.node
	}
	for i, t := range f.graph.Routers() {
		f.nodes[t.Index] = &newHost(f, t, len(f.hosts)+i).node
	}
}

// init makes the ports of a node, side by side, and its agent.
func (n *node) init(linkOf func(ib.PortNum) *link.Port, mgmt manageable) {
	states := make([]portState, len(n.topo.Ports))
	n.ports = make([]*portState, len(states))
	for i := range states {
		num := ib.PortNum(i)
		states[i] = portState{node: n, num: num, link: linkOf(num)}
		n.ports[i] = &states[i]
	}
	if n.host != nil {
		n.ports[0] = nil
	}
	n.mgmt, n.agent = mgmt, agent.New(mgmt)
}

// identity is what a node says of itself, and what its ports can do.
func identity(g *topo.Graph, n *topo.Node) (agent.Identity, []ib.LinkRate) {
	rates := make([]ib.LinkRate, len(n.Ports))
	for p := range rates {
		rates[p] = g.Capable(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
	}
	return agent.IdentityOf(n), rates
}

// refreshMin is how often credits are told anew while some may have been lost.
const refreshMin = 200 * ib.Microsecond

// addEngine gives all nodes, in the graph's order, to the engine.
func (f *Fabric) addEngine() {
	f.eng = fabric.New(fabric.Config{Pool: &f.pool, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Instant: true, RefreshMin: refreshMin, TellDrops: true}, 0)
	for _, n := range f.nodes {
		switch {
		case n.sw != nil:
			f.eng.AddSwitch(n.sw)
		case n.rt != nil:
			f.eng.AddRouter(n.rt, n.host.links, int32(n.host.index))
		default:
			f.eng.AddHost(n.host.links)
		}
	}
}

// place numbers the port as the engine does.
func (p *portState) place() uint32 { return p.link.Site.First + uint32(p.num) }

// ref names the port in the graph.
func (p *portState) ref() topo.PortRef { return topo.PortRef{Node: p.topo.Index, Port: p.num} }

// port finds a port of the graph, nil if there is none.
func (f *Fabric) port(r topo.PortRef) *portState {
	if n := f.node(r.Node); n != nil {
		return n.port(r.Port)
	}
	return nil
}

// node finds a node of the graph, nil if there is none.
func (f *Fabric) node(i int) *node {
	if i < 0 || i >= len(f.nodes) {
		return nil
	}
	return f.nodes[i]
}

// port is one of the node's, nil if it has no such.
func (n *node) port(num ib.PortNum) *portState {
	if int(num) >= len(n.ports) {
		return nil
	}
	return n.ports[num]
}

// lid is the address of a port; a switch's is its port 0's.
func (n *node) lid(port ib.PortNum) ib.LID {
	if n.sw != nil {
		lid, _ := n.sw.LID()
		return lid
	}
	return n.host.eng.Port(max(port, 1)).LID
}

// Now is the fabric's time.
func (f *Fabric) Now() ib.Time { return ib.Time(time.Since(f.start)) * ib.Nanosecond }

// Graph is what the fabric was built from.
func (f *Fabric) Graph() *topo.Graph { return f.graph }

// Hosts are the fabric's adapters, in the graph's order.
func (f *Fabric) Hosts() []*Host { return f.hosts }

// Host finds an adapter by its node's name.
func (f *Fabric) Host(name string) (*Host, error) {
	first, last := f.hosts[0].Name(), f.hosts[len(f.hosts)-1].Name()
	switch n := f.graph.ByName(name); {
	case n == nil:
		return nil, fmt.Errorf("live: no host %q: the hosts are %s to %s", name, first, last)
	case n.Type != ib.NodeCA:
		return nil, fmt.Errorf("live: %s is a %v, not a host: the hosts are %s to %s", name,
			strings.ToLower(n.Type.String()), first, last)
	case f.isElsewhere(n.Index):
		return nil, fmt.Errorf("live: %s is on machine %s: %w", name, f.cfg.Outside.Where(n.Index), ErrElsewhere)
	default:
		return f.nodes[n.Index].host, nil
	}
}

// without is a list less one of its elements.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(o T) bool { return o == x })
}

// ring makes who waits at a bell look, if not now then when it next waits.
func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// changed makes every route be walked anew. The fabric's lock is held.
func (f *Fabric) changed() {
	f.epoch.Add(1)
	if f.cfg.Outside.Lines != nil {
		f.cfg.Outside.Lines.Changed()
	}
	if f.plane != nil {
		f.plane.stale = true
		f.plane.knock()
	}
	if len(f.procs) > 0 {
		f.renewLocal()
		ring(f.waysBell)
	}
}

// train brings up the link at p where both ends poll and a cable joins them, at the best rate that both are allowed.
// The fabric's lock is held.
func (f *Fabric) train(p *portState) {
	far := p.peer
	if p.outside != nil {
		f.beginOutside(p, false)
		return
	}
	if far == nil || !p.canTrain() || !far.canTrain() {
		return
	}
	p.link.Train()
	far.link.Train()
	f.eng.Advance(f.Now())
	f.eng.LinkUp(p.place(), f.trainRate(p).Lesser(f.trainRate(far)))
}

// trainRate is the best that a port is allowed and its cable can: one that was dumped with a dead lane has it here
// too.
func (f *Fabric) trainRate(p *portState) ib.LinkRate {
	return p.mgmt.TrainRate(p.num).Lesser(f.graph.LinkRate(p.ref()))
}

// SetLink takes the cable at a port down or up again. Up means trained: the subnet has to be brought up there anew.
func (f *Fabric) SetLink(r topo.PortRef, up bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.port(r)
	if p == nil || !p.isCabled() {
		return fmt.Errorf("live: no cable at %s: see the topology for the ports in use", f.graph.PortName(r))
	}
	for _, q := range p.ends() {
		q.unplugged = !up
		if !up && q.link.Phys() == ib.PhysLinkUp {
			q.link.Down(f.Now())
		}
	}
	f.train(p)
	for _, q := range p.ends() {
		f.moved(q)
	}
	f.reroute()
	return nil
}

// isCabled reports whether a cable is at the port.
func (p *portState) isCabled() bool { return p.peer != nil || p.outside != nil }

// ends are the ends of the port's cable that are on this machine.
func (p *portState) ends() []*portState {
	if p.peer == nil {
		return []*portState{p}
	}
	return []*portState{p, p.peer}
}

// moved tells of a port whose link has changed its state. The fabric's lock is held.
func (f *Fabric) moved(p *portState) {
	f.stir(p.node)
	if p.host != nil {
		p.host.syncPorts()
	}
	if p.rt != nil {
		p.rt.Refresh()
	}
}

// employ starts a goroutine of the fabric, unless that is closed.
func (f *Fabric) employ(work func()) bool {
	f.staff.Lock()
	defer f.staff.Unlock()
	if f.closed.Load() {
		return false
	}
	f.wg.Go(work)
	return true
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
		c.end()
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
		all.Members = append(all.Members, h.PortGUIDs()...)
	}
	return all
}
