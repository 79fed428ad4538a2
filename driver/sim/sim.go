package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"softib/fabric"
	"softib/node/hca"
	"softib/node/ibrouter"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/node/nic"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// Host is an adapter as the driver sees it; *hca.HCA is one.
type Host interface {
	// HandlePacket takes a packet off the link. The payload is copied out before it returns.
	HandlePacket(now ib.Time, port ib.PortNum, p *wire.Packet)
	// NextSend is the flow whose turn it is.
	NextSend() (*hca.Send, bool)
	// Emit makes the flow's next packet, sealed; buf is memory for its payload.
	Emit(now ib.Time, s *hca.Send, p *wire.Packet, buf []byte) bool
	// Park takes a flow out of the turn until Unpark.
	Park(*hca.Send)
	Unpark(*hca.QP)
	// NextDeadline is when HandleTimeout wants to be called.
	NextDeadline() ib.Time
	HandleTimeout(now ib.Time)
	// HasEvent reports whether the workload should look at the host.
	HasEvent() bool
}

// Config is what a simulation is made of besides its graph. Zero fields take defaults.
type Config struct {
	// Seed of everything that is random.
	Seed uint64
	// NewHost makes the engine of a host; nil makes an hca.HCA.
	NewHost func(n *topo.Node) Host

	// Engines is the chain of routing engines for BringUp; empty is sm's own.
	Engines string
	// Adaptive says how switches choose among ports; see Reorder.
	Adaptive route.Choice
	// Port is the make of every port; the rate is the cable's.
	Port link.Config
	// HostQueue is how many packets a host's port holds for each lane before flows are parked; 0 is 2.
	HostQueue int
	// ByRefMin is the payload size from which packets of the adapters that New makes refer to the sender's memory
	// instead of carrying a copy; 0 copies always. It saves half of the memory traffic of large messages. A program
	// that changes memory while a request is outstanding may then be seen to have done so.
	ByRefMin int
	// Reorder is how many packets of a queue pair the adapters that New makes keep if they come before their turn, as
	// they do where switches choose the ways of packets; 0 is none. See hca.Config.
	Reorder int
	// CNP: such adapters tell who sent a marked packet that is not acknowledged by a packet of its own.
	CNP bool
	// RoCE makes the adapters that New makes ones of Ethernet; Port.Flow makes the ports so.
	RoCE hca.RoCE
	// Adapter is what the adapters that New makes cost; the zero value is nothing.
	Adapter nic.Config
	// ByPlace is what Split needs; see fabric.Config.
	ByPlace bool
	// HashPayload makes TraceHash cover what hosts are sent, not the headers alone.
	HashPayload bool
	// Sink sees every packet when it is not nil.
	Sink fabric.Sink
	// What the engine of the fabric is made of: see fabric.Config. A SwitchLatency of 0 is 100 ns, a negative one none;
	// a TrainTime of 0 is 10 us.
	SwitchLatency, TrainTime, AgentTime    ib.Time
	StoreForward, WireExact, AlwaysRefresh bool
}

// Defaults of Config's fields.
const (
	DefaultSwitchLatency = 100 * ib.Nanosecond
	DefaultHostQueue     = 2
	DefaultTrainTime     = 10 * ib.Microsecond

	// CableDelay is how long a millimetre of cable takes: 5 ns/m.
	CableDelay = 5 * ib.Picosecond
)

// Kinds of the driver's own events.
const (
	evHost       = fabric.Own + iota // a host's deadline; the place is the host
	evLoop                           // a host's packet to itself is there; the place is the host
	evLater                          // see later; the argument is its slot
	evManager                        // a manager's deadline; the place is its host, the argument its number
	evAgent                          // an agent may have traps to send; the place is the node
	evSending                        // a host's adapter can make a packet again; the place is the host
	evLeave                          // a packet is at its adapter's port; the argument is its frame
	evReceiving                      // a host's adapter can take a packet in again; the place is the host
	evReady                          // a packet has been taken in; the argument is its frame
	evPort0                          // a packet is at a switch's adapter; the place is its way in, the argument it
	evPort0Timer                     // that adapter's deadline; the place is the node
	evAggregate                      // a deadline of the node's reductions; the place is the node
)

// Sim is one simulation: the cables, ports and switches of a fabric.Engine, the hosts at them, and the time.
type Sim struct {
	*fabric.Engine
	pool  link.Pool
	cfg   Config
	hosts []hostNode          // routers after all others
	lots  []ib.Queue[*hca.QP] // see lot
	graph *topo.Graph
	nodes []nodeState

	wakes  ib.Queue[Wake] // what Next has to report
	timers []later
	free   []uint32 // of timers

	groups     []sm.Group        // that the bring-up programs
	autoActive bool              // links that train are activated at once
	managed    bool              // a manager has run: before the first, nobody sends traps
	gen        uint32            // managers that ever ran
	terms      uint64            // of managers that rule in turn
	saved      map[int]sm.Memory // by host: what its manager wrote down last
	reductions *Reductions       // nil if there are none
	watcher    Watcher
	served     ib.Queue[served] // that the watcher is told of once the links have followed
}

// nodeState is what the driver keeps for a node of the graph.
type nodeState struct {
	host    int32    // its number among the hosts, of which routers come last; -1 for a switch
	manager *manager // nil until needed
	port0   *port0   // a switch's adapter; nil if it has none
	trapAt  ib.Time  // when the agent's pending event comes; Never for none
	mute    ib.Time  // its agent does nothing until then
}

// New builds the engines of every node of g, with all links down.
func New(g *topo.Graph, cfg Config) (*Sim, error) {
	if len(g.Nodes) == 0 {
		return nil, fmt.Errorf("sim: graph has no nodes: want at least two")
	}
	cfg.SwitchLatency = max(cmp.Or(cfg.SwitchLatency, DefaultSwitchLatency), 0)
	cfg.HostQueue = cmp.Or(cfg.HostQueue, DefaultHostQueue)
	cfg.TrainTime = cmp.Or(cfg.TrainTime, DefaultTrainTime)
	cfg.Port.MTUCap = cmp.Or(cfg.Port.MTUCap, ib.MTU4096)
	if cfg.NewHost == nil {
		cfg.NewHost = func(n *topo.Node) Host { return newHCA(n, &cfg) }
	}
	s := &Sim{cfg: cfg, graph: g, nodes: make([]nodeState, len(g.Nodes)), saved: map[int]sm.Memory{}}
	s.pool.BufSize = cfg.Port.MTUCap.Bytes() + 64
	s.Engine = fabric.New(fabric.Config{
		Pool: &s.pool, Rand: rand.New(rand.NewPCG(cfg.Seed, 0x50F71B)), Logs: true,
		SwitchLatency: cfg.SwitchLatency, StoreForward: cfg.StoreForward, WireExact: cfg.WireExact,
		AlwaysRefresh: cfg.AlwaysRefresh, TrainTime: cfg.TrainTime, AgentTime: cfg.AgentTime, ByPlace: cfg.ByPlace,
	}, cfg.Seed)
	s.SetSink(cfg.Sink)
	s.build()
	return s, nil
}

func (s *Sim) build() {
	hostPorts := 0
	for _, n := range s.graph.Nodes {
		if !n.IsSwitch() {
			hostPorts += len(n.Ports)
		}
	}
	// The ports of all hosts lie together, as those of a switch do.
	ports := link.NewPorts(hostPorts, s.hostPort())
	s.hosts = make([]hostNode, len(s.graph.Hosts())+len(s.graph.Routers()))
	hosts, routers := int32(0), int32(len(s.graph.Hosts()))
	for i, n := range s.graph.Nodes {
		s.nodes[i] = nodeState{host: -1, trapAt: ib.Never}
		if n.IsSwitch() {
			s.AddSwitch(ibswitch.New(ibswitch.Config{Ports: n.NumPorts(), Port: s.switchPort(i)}, &s.pool))
			continue
		}
		mine := make([]*link.Port, len(n.Ports))
		for num := range mine {
			mine[num], ports = &ports[0], ports[1:]
		}
		if n.Type == ib.NodeRouter {
			// What is for the router itself is for its management: an adapter that nobody uses.
			s.AddRouter(ibrouter.New(mine, n.PortGUIDs(), &s.pool), mine, routers)
			s.nodes[i].host = routers
			s.hosts[routers] = hostNode{eng: newHCA(n, &Config{}), node: n, at: s.Place(i, 0), timerAt: ib.Never}
			routers++
			continue
		}
		s.AddHost(mine)
		s.nodes[i].host = hosts
		s.hosts[hosts] = hostNode{eng: s.cfg.NewHost(n), node: n, at: s.Place(i, 0), timerAt: ib.Never}
		s.hosts[hosts].keeper, _ = s.hosts[hosts].eng.(Keeper)
		if s.cfg.Adapter.On() {
			s.hosts[hosts].nic = newNIC(s.cfg.Adapter)
		}
		hosts++
	}
	s.lots = make([]ib.Queue[*hca.QP], int(s.Places())*(loopLane+1))
	for _, c := range s.graph.Cables() {
		a, b := s.place(c.A), s.place(c.B)
		s.Join(a, b, ib.Time(s.graph.Port(c.A).LengthMM)*CableDelay)
		for _, at := range [2]uint32{a, b} {
			s.PortAt(at).SetRate(s.cableRate(at))
		}
	}
	for i := range s.graph.Nodes {
		s.Retime(i)
	}
}

// place numbers a port of the graph as the engine does.
func (s *Sim) place(ref topo.PortRef) uint32 { return s.Place(ref.Node, ref.Port) }

// cableRate is what the cable of a port can carry. Ends that disagree settle on the slower.
func (s *Sim) cableRate(at uint32) ib.LinkRate {
	end := s.graph.Port(s.Ref(at))
	rate, far := end.Rate(), s.graph.Nodes[end.Peer].Ports[end.PeerPort].Rate()
	if far.Mbps() < rate.Mbps() {
		return far
	}
	return rate
}

// Graph is what was built. Read it only.
func (s *Sim) Graph() *topo.Graph { return s.graph }

// NumHosts counts the hosts; routers are none.
func (s *Sim) NumHosts() int { return len(s.graph.Hosts()) }

// Host is the engine of the i-th host.
func (s *Sim) Host(i int) Host { return s.hosts[i].eng }

// HostNode is the graph's node of the i-th host.
func (s *Sim) HostNode(i int) *topo.Node { return s.hosts[i].node }

// Port is a port's engine.
func (s *Sim) Port(ref topo.PortRef) *link.Port { return s.PortAt(s.place(ref)) }

// Counters reads a port's counters.
func (s *Sim) Counters(ref topo.PortRef) ib.Counters { return s.Port(ref).Counters() }

// SetFaults sets what happens to packets that leave a port from now on.
func (s *Sim) SetFaults(ref topo.PortRef, f fabric.Faults) { s.Engine.SetFaults(s.place(ref), f) }

// SetFaultsAll sets the same faults in both directions of every cable.
func (s *Sim) SetFaultsAll(f fabric.Faults) {
	for at := range s.Places() {
		s.Engine.SetFaults(at, f)
	}
}
