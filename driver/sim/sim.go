package sim

import (
	"fmt"
	"math/rand/v2"

	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/subnet/sm"
)

// Host is an adapter as the driver sees it; *hca.HCA is one.
type Host interface {
	// HandlePacket takes a packet off the link. The payload is copied out
	// before it returns.
	HandlePacket(now ib.Time, port ib.PortNum, p *wire.Packet)
	// NextSend is the flow whose turn it is.
	NextSend() (hca.Send, bool)
	// Emit makes the flow's next packet, sealed; buf is memory for its payload.
	Emit(now ib.Time, s hca.Send, p *wire.Packet, buf []byte) bool
	// Park takes a flow out of the turn until Unpark.
	Park(hca.Send)
	Unpark(*hca.QP)
	// NextDeadline is when HandleTimeout wants to be called.
	NextDeadline() ib.Time
	HandleTimeout(now ib.Time)
	// HasEvent reports whether the workload should look at the host.
	HasEvent() bool
}

// Config is what a simulation is made of besides its graph. Zero fields take
// defaults.
type Config struct {
	// Seed of everything that is random.
	Seed uint64
	// NewHost makes the engine of a host; nil makes an hca.HCA.
	NewHost func(n *topo.Node) Host

	// Port is the make of every port; the rate is the cable's.
	Port link.Config
	// SwitchLatency is from a packet's head reaching a switch to its
	// forwarding; 0 is 100 ns, negative none.
	SwitchLatency ib.Time
	// HostQueue is how many packets a host's port holds for each lane before
	// flows are parked; 0 is 2.
	HostQueue int
	// StoreForward makes switches wait for the last byte of each packet.
	StoreForward bool
	// WireExact writes each packet as bytes and reads it back, both CRCs
	// checked, at each hop. The history stays the same.
	WireExact bool
	// ByRefMin is the payload size from which packets of the adapters that New makes
	// refer to the sender's memory instead of carrying a copy; 0 copies always. It saves
	// half of the memory traffic of large messages. A program that changes
	// memory while a request is outstanding may then be seen to have done so.
	ByRefMin int
	// HashPayload makes TraceHash cover what hosts are sent, not the headers alone.
	HashPayload bool
	// Sink sees every packet when it is not nil.
	Sink Sink
	// AlwaysRefresh sends flow-control packets at least as often as IBA 7.9.4.2
	// asks. Without it a cable is refreshed only after something was lost on it:
	// where nothing was, a refresh tells nothing new.
	AlwaysRefresh bool
	// TrainTime is from both ends polling to LinkUp; 0 is 10 us.
	TrainTime ib.Time
	// AgentTime is how long an agent takes for a packet, during which the packet occupies its
	// receive buffer; 0 is no time.
	AgentTime ib.Time
}

// Defaults of Config's fields.
const (
	DefaultSwitchLatency = 100 * ib.Nanosecond
	DefaultHostQueue     = 2
	DefaultTrainTime     = 10 * ib.Microsecond

	// psPerMM is the delay of a cable, 5 ns/m.
	psPerMM = 5
	// headBytes must have come before a switch knows the way.
	headBytes = 64
)

const noEnd = ^uint32(0)

// Flags of a port's Site.
const (
	endWake    uint8 = 1 << iota // a wake event is pending
	endTimer                     // a port timer event is pending
	endTail                      // what leaves here counts as arrived with its last byte
	endSlow                      // some other port of the node is faster than this one
	endRefresh                   // a refresh event is pending
	endStopped                   // the node does nothing any more
	endFaulty                    // cables has an entry for what leaves here
)

// Sim is one simulation.
type Sim struct {
	now   ib.Time
	warm  uint64 // what touch has read; only so that it is read
	q     queue
	ports []*link.Port // every port of every node, port 0 included; its index is its place
	pool  link.Pool
	hops  uint64
	hash  uint64
	cfg   Config
	hosts []hostNode
	lots  []parking // see lot
	graph *topo.Graph
	// Place of each node: its first end, and its number among the hosts.
	firstEnd []uint32
	hostOf   []int32
	switches []*ibswitch.Switch // by node; nil for a host
	managers []*manager         // by node; nil until needed

	wakes   []Wake // what Next has to report
	wakesAt int
	timers  []uint64 // arguments of user timers
	free    []uint32

	lids       [][]ib.LID // by node and port; nil before BringUp
	groups     []sm.Group // that the bring-up programs
	autoActive bool       // links that train are activated at once
	mgmt       management
	written    []written // Sets that the watcher has yet to be told of

	rng     *rand.Rand
	cables  map[uint32]*cable // faults and errors of what leaves a port
	faults  faultState
	scratch []byte
	drops   [link.NumReason]uint64
	dropLog []DropRecord
	logDrop bool
	sinkErr error
}

// New builds the engines of every node of g, with all links down.
func New(g *topo.Graph, cfg Config) (*Sim, error) {
	if len(g.Nodes) == 0 {
		return nil, fmt.Errorf("sim: graph has no nodes: want at least two")
	}
	if cfg.SwitchLatency == 0 {
		cfg.SwitchLatency = DefaultSwitchLatency
	}
	cfg.SwitchLatency = max(cfg.SwitchLatency, 0)
	if cfg.HostQueue == 0 {
		cfg.HostQueue = DefaultHostQueue
	}
	if cfg.TrainTime == 0 {
		cfg.TrainTime = DefaultTrainTime
	}
	if cfg.Port.MTUCap == 0 {
		cfg.Port.MTUCap = ib.MTU4096
	}
	s := &Sim{
		cfg: cfg, graph: g,
		firstEnd: make([]uint32, len(g.Nodes)), hostOf: make([]int32, len(g.Nodes)),
		switches: make([]*ibswitch.Switch, len(g.Nodes)),
		managers: make([]*manager, len(g.Nodes)),
		rng:      rand.New(rand.NewPCG(cfg.Seed, 0x50F71B)),
		hash:     cfg.Seed,
		cables:   make(map[uint32]*cable),
	}
	s.q.init()
	s.pool.BufSize = cfg.Port.MTUCap.Bytes() + 64
	s.build()
	return s, nil
}

func (s *Sim) build() {
	total := 0
	for i, n := range s.graph.Nodes {
		s.firstEnd[i] = uint32(total)
		total += len(n.Ports)
	}
	s.ports = make([]*link.Port, total)
	s.lots = make([]parking, total*numLots)
	hostPorts := 0
	for _, n := range s.graph.Nodes {
		if !n.IsSwitch() {
			hostPorts += len(n.Ports)
		}
	}
	// The ports of all hosts lie together, as those of a switch do.
	ports := link.NewPorts(hostPorts, s.cfg.Port)
	for i, n := range s.graph.Nodes {
		first := s.firstEnd[i]
		s.hostOf[i] = -1
		if n.IsSwitch() {
			s.switches[i] = ibswitch.New(ibswitch.Config{Ports: n.NumPorts(), Port: s.cfg.Port}, &s.pool)
		} else {
			s.hostOf[i] = int32(len(s.hosts))
			s.hosts = append(s.hosts, s.newHost(n))
		}
		for num := range n.Ports {
			var p *link.Port
			if sw := s.switches[i]; sw != nil {
				p = sw.Port(ib.PortNum(num))
			} else {
				p, ports = &ports[0], ports[1:]
			}
			p.Site = link.Site{First: first, Node: uint32(i), Host: s.hostOf[i], Num: ib.PortNum(num), Peer: noEnd}
			s.ports[int(first)+num] = p
		}
	}
	for i, n := range s.graph.Nodes {
		for num := range n.Ports {
			if n.Ports[num].Connected() {
				s.plug(s.firstEnd[i]+uint32(num), &n.Ports[num])
			}
		}
	}
	for i := range s.graph.Nodes {
		s.timing(i)
	}
}

// plug sets what a port knows of its cable.
func (s *Sim) plug(at uint32, end *topo.Port) {
	s.ports[at].Site.Peer = s.firstEnd[end.Peer] + uint32(end.PeerPort)
	s.ports[at].SetRate(s.cableRate(at))
}

// cableRate is what the cable of a port can carry. Ends that disagree settle on
// the slower.
func (s *Sim) cableRate(at uint32) ib.LinkRate {
	end := s.graph.Port(s.ref(at))
	rate, far := end.Rate(), s.graph.Nodes[end.Peer].Ports[end.PeerPort].Rate()
	if far.Mbps() < rate.Mbps() {
		return far
	}
	return rate
}

// timing sets, for each cable of a node, how long packets take to it, whether the
// node can cut them through, and whether what leaves by it drains a receive buffer
// slower than some other port could fill it. The rates are those of the links now.
func (s *Sim) timing(node int) {
	n := s.graph.Nodes[node]
	fastest := int64(0)
	for num := range n.Ports {
		if n.Ports[num].Connected() {
			fastest = max(fastest, s.ports[s.firstEnd[node]+uint32(num)].Rate().Mbps())
		}
	}
	for num := range n.Ports {
		p := s.ports[s.firstEnd[node]+uint32(num)]
		if p.Site.Peer == noEnd {
			continue
		}
		slow := p.Rate().Mbps() < fastest
		setFlag(&p.Site.Flags, endSlow, slow)
		// The sender keeps the time and the flag: it computes the arrival.
		from := &s.ports[p.Site.Peer].Site
		tail := !n.IsSwitch() || slow || s.cfg.StoreForward
		setFlag(&from.Flags, endTail, tail)
		from.Delay = ib.Time(n.Ports[num].LengthMM) * psPerMM
		if n.IsSwitch() {
			from.Delay += s.cfg.SwitchLatency
		}
		if !tail {
			from.Delay += p.Rate().ByteTime(headBytes)
		}
	}
}

func setFlag(flags *uint8, f uint8, on bool) {
	*flags &^= f
	if on {
		*flags |= f
	}
}

// Now is the virtual time.
func (s *Sim) Now() ib.Time { return s.now }

// Graph is what was built. Read it only.
func (s *Sim) Graph() *topo.Graph { return s.graph }

// Hops counts the packets that nodes have received, one for each link crossed.
func (s *Sim) Hops() uint64 { return s.hops }

// TraceHash is a digest of the history so far: every packet and credit that
// arrived, where and when.
func (s *Sim) TraceHash() uint64 { return s.hash }

// NumHosts counts the hosts.
func (s *Sim) NumHosts() int { return len(s.hosts) }

// Host is the engine of the i-th host.
func (s *Sim) Host(i int) Host { return s.hosts[i].eng }

// HostNode is the graph's node of the i-th host.
func (s *Sim) HostNode(i int) *topo.Node { return s.hosts[i].node }

// Switch is the engine of a node of the graph; nil for a host.
func (s *Sim) Switch(node int) *ibswitch.Switch { return s.switches[node] }

// Port is a port's engine.
func (s *Sim) Port(ref topo.PortRef) *link.Port {
	return s.ports[s.firstEnd[ref.Node]+uint32(ref.Port)]
}

// Counters reads a port's counters.
func (s *Sim) Counters(ref topo.PortRef) ib.Counters { return s.Port(ref).Counters() }

// FramesInUse counts packets that are somewhere in the fabric; 0 at rest.
func (s *Sim) FramesInUse() int { return s.pool.InUse() }

// Drops counts dropped packets by reason.
func (s *Sim) Drops() [link.NumReason]uint64 { return s.drops }

// ref names an end as the graph does.
func (s *Sim) ref(at uint32) topo.PortRef {
	p := s.ports[at]
	return topo.PortRef{Node: int(p.Site.Node), Port: p.Site.Num}
}
