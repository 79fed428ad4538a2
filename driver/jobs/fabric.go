package jobs

import (
	"fmt"

	"softib/driver/sim"
	"softib/fabric/flow"
	"softib/node/nic"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Options are what a fabric is made of besides its graph. Zero fields take defaults.
type Options struct {
	// Routing is the chain of engines; empty is sm's own.
	Routing string
	// MTU of the paths; 0 is 4096.
	MTU ib.MTU
	// SwitchLatency is how long a switch takes to let a packet go on; 0 is sim.DefaultSwitchLatency.
	SwitchLatency ib.Time
	// Buffer is the receive buffer of a port's lane, in bytes; 0 is the port's own, eight packets of the largest MTU.
	Buffer int
	// Seed of what is random in a run by packets.
	Seed uint64
	// Cores is how many processors may work on a run by packets; 0 is one. The run does not depend on it.
	Cores int
	// Adaptive says how switches choose among ports, and FlowletGap how long a flow is silent before they choose anew;
	// 0 is route.FlowletGap.
	Adaptive   route.Choice
	FlowletGap ib.Time
	// Hash: each connection has one way, by a hash of who talks to whom; on Ethernet it has that anyway.
	Hash bool
	// Reduction is how switches do reductions.
	Reduction Reduction
	// Congestion is what is done against congestion.
	Congestion Congestion
	// Ethernet makes the fabric one of RoCEv2.
	Ethernet Ethernet
	// Adapter is what adapters cost in a run by packets, and Connections what they talk by.
	Adapter nic.Config
	Connections
	// Loss is what goes down in a run by packets.
	Loss Loss
	// NVLink joins the GPUs of a server.
	NVLink NVLink
	// Place is the end port of each rank, or of each rank and NIC one after the other; nil places ranks on the hosts in
	// the order of the graph, a rank's NICs on a host's ports.
	Place []topo.PortRef
	// Jobs is which of several jobs each rank is of; nil if there is one. Messages of one do not wait for another's
	// between the same two ports.
	Jobs []uint8
}

// Congestion is the standard's congestion control (IBA A10). Zero fields take those of policy.CongestionFor, at ccRate.
type Congestion struct {
	On bool
	// Threshold, 1 to 15, says how long a queue is before packets are marked: 15 is the shortest. Rate is every how
	// many packets of such a queue one is.
	Threshold uint8
	Rate      uint16
	// Timer is after how long a sender that was told goes a step faster, in units of 1.024 us, and Increase by how many
	// steps it goes slower when it is.
	Timer    uint16
	Increase uint8
	// CNP: who sent a marked packet that is not acknowledged, such as the data of a READ, is told by a packet of its
	// own, and not by the next that goes there anyway.
	CNP bool
}

// ccRate is the rate of links that Congestion's defaults are for, in bits a second.
const ccRate = 400e9

// Fabric is a graph with its tables.
type Fabric struct {
	Graph  *topo.Graph
	Net    *route.Network
	Tables *route.Tables
	// Engine is the one of the chain that made the tables.
	Engine string
	// Groups are what switches choose from; nil if they do not.
	Groups *route.Groups
	// Ways finds the links between ports, numbered as Network.Carried wants them.
	Ways    *flow.Ways
	opt     Options
	servers []int32 // by node: the server whose GPUs NVLink joins, or -1; nil if it joins none
}

// DefaultRouting is the subnet manager's own chain.
const DefaultRouting = "ftree,updn,minhop"

// NewFabric computes the tables.
func NewFabric(g *topo.Graph, opt Options) (*Fabric, error) {
	if n := len(g.Routers()); n > 0 {
		return nil, fmt.Errorf("the topology has %d routers, and a job runs in one subnet", n)
	}
	if opt.Routing == "" {
		opt.Routing = DefaultRouting
	}
	if opt.MTU == 0 {
		opt.MTU = ib.MTU4096
	}
	if opt.SwitchLatency == 0 {
		opt.SwitchLatency = sim.DefaultSwitchLatency
	}
	if opt.FlowletGap == 0 {
		opt.FlowletGap = route.FlowletGap
	}
	if opt.Place == nil {
		for _, h := range g.Hosts() {
			opt.Place = append(opt.Place, topo.PortRef{Node: h.Index, Port: 1})
		}
	}
	if err := opt.checkEthernet(); err != nil {
		return nil, err
	}
	chooses := opt.Adaptive != route.NoChoice || opt.hashes()
	n := route.FromGraph(g)
	res, err := route.Compute(n, opt.Routing, route.Options{Adaptive: chooses})
	if err != nil {
		return nil, opt.noECMP(fmt.Errorf("routing %s: %w", opt.Routing, err))
	}
	var groups *route.Groups
	if chooses {
		if groups, err = route.Adaptive(n, res.Tables); err != nil {
			return nil, opt.noECMP(err)
		}
	}
	return &Fabric{Graph: g, Net: n, Tables: res.Tables, Engine: res.Tables.Engine, Groups: groups, opt: opt,
		servers: servers(g, &opt),
		Ways: flow.NewWays(g, n, res.Tables, groups, flow.Timing{Switch: opt.SwitchLatency,
			PerMM: sim.CableDelay})}, nil
}

// Ranks is how many ranks have a place.
func (f *Fabric) Ranks() int { return len(f.opt.Place) }

// Place is the first port of a rank.
func (f *Fabric) Place(rank uint32) topo.PortRef { return f.opt.Place[rank] }

// pair is what a message goes through, from port to port.
func (f *Fabric) pair(from, to topo.PortRef, rank uint32) pair {
	p := pair{from: from, to: to}
	if f.opt.Jobs != nil {
		p.job = f.opt.Jobs[rank]
	}
	return p
}

// place is the port of a rank's NIC.
func (f *Fabric) place(rank uint32, nic uint8) topo.PortRef {
	ref := f.opt.Place[rank]
	ref.Port += ib.PortNum(nic)
	return ref
}
