package check

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"softib/driver/machine"
	"softib/driver/sim"
	"softib/fabric"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proof/workload"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Scenario is one history as data, but for the randomness of the faults, which
// follows from Seed.
type Scenario struct {
	Seed uint64
	// Topo is a generator's spec.
	Topo string
	// Tree routes along a spanning tree, so that no topology can deadlock. Without
	// it paths are shortest, or those of Engines.
	Tree    bool
	Engines string
	// Bias is how long packets wait before they take detours.
	Bias int
	// Adaptive says how switches choose among ports.
	Adaptive route.Choice
	// Notify: those that do tell each other where there is no way.
	Notify bool
	// Marking is how switches mark packets in congestion, and Slowing how adapters slow down that are told.
	Marking link.Marking
	Slowing *hca.Congestion
	// Ethernet makes it one of RoCEv2; nil is InfiniBand.
	Ethernet *Ethernet
	// HOQ and Life are 1 + the codes of the switches' two life times, at the head of a
	// queue and in all; 0 for ever.
	HOQ, Life uint8
	// Enforce has the switches check partitions where hosts are attached.
	Enforce       bool
	StoreForward  bool
	AlwaysRefresh bool
	// Buffer is each lane's receive buffer in packets of the MTU.
	Buffer int
	VLs    uint8
	MTU    ib.MTU
	// Calm: no faults, no misuse, nothing that has to be tried again.
	Calm   bool
	Faults []Fault
	Work   workload.Spec
	// Machine is the computer whose processes the hosts are, driven as those of users are.
	Machine machine.Config
}

// FaultKind sorts faults.
type FaultKind uint8

// Kinds of fault.
const (
	Cable FaultKind = iota // a cable harms packets
	Flap                   // a cable is pulled and plugged in again
	Stop                   // a host stops for good
)

// Fault is one thing that goes wrong for a while.
type Fault struct {
	Kind FaultKind
	At   ib.Time
	For  ib.Time
	// Cable is an index of the graph's cables, AllCables for all of them; Host is one
	// of its hosts.
	Cable, Host int
	Harm        fabric.Faults
}

// AllCables as a Fault's Cable.
const AllCables = -1

func (f Fault) String() string {
	switch f.Kind {
	case Flap:
		return fmt.Sprintf("at %v cable %d is pulled for %v", f.At, f.Cable, f.For)
	case Stop:
		return fmt.Sprintf("at %v h%d stops", f.At, f.Host+1)
	}
	return fmt.Sprintf("at %v cable %d for %v: drop %.3g corrupt %.3g duplicate %.3g delay %.3g reorder %.3g "+
		"flow-control loss %.3g error rate %.3g",
		f.At, f.Cable, f.For, f.Harm.Drop, f.Harm.Corrupt, f.Harm.Duplicate, f.Harm.Delay, f.Harm.Reorder,
		f.Harm.FCLoss, f.Harm.BER)
}

// Quiet is when the last fault is over.
func (sc *Scenario) Quiet() ib.Time {
	t := sc.Machine.Until + sc.Machine.StallMax
	for i := range sc.Faults {
		t = max(t, sc.Faults[i].At+sc.Faults[i].For)
	}
	return t
}

// HostsMax is how many hosts Draw can be asked for.
const HostsMax = 128

// Draw makes the scenario of a seed. hosts is how many to have, about, from 2 to
// HostsMax; 0 lets the seed choose among 2 to 16.
func Draw(seed uint64, hosts int) Scenario {
	rng := rand.New(rand.NewPCG(seed, 0x70A7))
	one := func(n int) bool { return rng.IntN(n) == 0 }
	sc := Scenario{Seed: seed, MTU: ib.MTU4096, Buffer: 8, VLs: 1 << rng.IntN(4)}
	if one(3) {
		sc.Buffer = 1 + rng.IntN(3)
	}
	if one(4) {
		sc.MTU = ib.MTU1024 + ib.MTU(rng.IntN(3))
	}
	if hosts == 0 {
		hosts = 2 + rng.IntN(15)
	}
	acyclic := sc.drawTopo(rng, hosts)
	acyclic = sc.drawDragonfly(hosts) || acyclic
	if !acyclic {
		if sc.Tree = one(2); !sc.Tree {
			sc.HOQ = uint8(1 + rng.IntN(5))
		}
	}
	sc.StoreForward, sc.AlwaysRefresh = one(8), one(8)
	sc.Calm = one(6) && (acyclic || sc.Tree)
	if !sc.Calm && one(8) {
		sc.Life = uint8(1 + rng.IntN(3))
	}
	faulty := !sc.Calm && !one(5)
	sc.Enforce = one(2)
	faulty = sc.drawMachine(rng, hosts, faulty)
	g := sc.graph()
	sc.drawKills(len(g.Hosts()))
	sc.Work = workload.Generate(rng, workload.Shape{
		Hosts: len(g.Hosts()), Conns: 6 + 2*len(g.Hosts()), Ops: 50, Bytes: 5 << 20, MTU: sc.MTU,
		Lossy: faulty || len(sc.Faults) > 0 || sc.HOQ > 0 || sc.Life > 0 || sc.Machine.Stalls > 0 ||
			sc.Machine.Renews > 0, Calm: sc.Calm,
		Partitions: one(3),
	})
	if faulty {
		sc.drawFaults(rng, g)
	}
	sc.drawAdaptive()
	sc.drawCongestion()
	sc.drawEthernet()
	return sc
}

// drawCongestion draws congestion control, by randomness of its own, as drawAdaptive.
func (sc *Scenario) drawCongestion() {
	rng := rand.New(rand.NewPCG(sc.Seed, 0xCC10))
	if rng.IntN(3) > 0 {
		return
	}
	sc.Marking = link.Marking{Threshold: uint8(1 + rng.IntN(15)), Rate: uint16(rng.IntN(4)), Victim: rng.IntN(4) == 0,
		PacketSize: uint8(rng.IntN(3) * 8)}
	c := &hca.Congestion{Levels: uint16(rng.Uint32()) | 1, ByLevel: rng.IntN(3) == 0, Limit: uint16(rng.IntN(20))}
	for i := range c.Entries {
		c.Entries[i] = hca.CongestionEntry{Timer: uint16(1 + rng.IntN(20)), Increase: uint8(1 + rng.IntN(3))}
	}
	for i := range 20 {
		c.Table[i] = uint16(rng.IntN(4))<<14 | uint16(i)
	}
	sc.Slowing = c
	if rng := rand.New(rand.NewPCG(sc.Seed, 0xCC12)); rng.IntN(3) == 0 {
		sc.Marking.Starvation = uint8(1 + rng.IntN(15))
	}
	sc.Machine.CNP = rand.New(rand.NewPCG(sc.Seed, 0xCC11)).IntN(2) == 0
}

// drawAdaptive draws whether switches choose, by randomness of its own: the histories of seeds from before they could
// stay what they were otherwise.
func (sc *Scenario) drawAdaptive() {
	rng := rand.New(rand.NewPCG(sc.Seed, 0xADA7))
	if sc.Tree || rng.IntN(3) > 0 && sc.Engines == "" {
		return
	}
	sc.Adaptive = route.ByPacket + route.Choice(rng.IntN(3))
	sc.Notify = rand.New(rand.NewPCG(sc.Seed, 0x5E1F)).IntN(2) == 0
	if sc.Machine.Reorder = [...]int{8, 64, 256}[rng.IntN(3)]; sc.Calm {
		sc.Machine.Reorder = 1 << 16 // more than there are: nothing has to be tried again, however far ahead it comes
	}
}

// drawDragonfly makes some scenarios ones of dragonflies, by randomness of its own, as drawAdaptive. What keeps those
// from deadlock are lanes that rise along the way, while switches choose.
func (sc *Scenario) drawDragonfly(hosts int) bool {
	rng := rand.New(rand.NewPCG(sc.Seed, 0xD7A6))
	shapes := [...]struct{ a, h, g int }{{2, 1, 3}, {1, 3, 4}, {2, 2, 5}, {3, 1, 4}, {4, 1, 5}, {3, 2, 4}, {4, 2, 3}}
	x := shapes[rng.IntN(len(shapes))]
	if rng.IntN(10) > 0 || hosts < x.a*x.g {
		return false
	}
	_, cable, _ := strings.Cut(sc.Topo, "speed=")
	sc.Topo = fmt.Sprintf("dragonfly:a=%d,h=%d,g=%d,p=%d,speed=%s", x.a, x.h, x.g, hosts/(x.a*x.g), cable)
	sc.Engines, sc.VLs, sc.Bias = "dragonfly", 4<<rng.IntN(2), -rng.IntN(2)
	return true
}

// drawMachine draws a computer. It reports whether cables go wrong as well: where all ways are direct no packet crosses
// one.
func (sc *Scenario) drawMachine(rng *rand.Rand, hosts int, faulty bool) bool {
	m := machine.Config{Seed: sc.Seed, Direct: [...]int{0, 0, 50, 100, 100}[rng.IntN(5)]}
	if sc.Engines != "" {
		m.Direct = 0 // lanes are of cables
	}
	for range hosts {
		m.Habits = append(m.Habits, machine.Habit(rng.IntN(int(machine.NumHabit))))
	}
	if !sc.Calm && rng.IntN(4) > 0 {
		sc.AlwaysRefresh = false // one is due every few microseconds, and processes stand still for seconds
		m.Stalls = [...]int{20, 100, 1000}[rng.IntN(3)]
		m.StallMax = [...]ib.Time{100 * ib.Microsecond, 10 * ib.Millisecond, 3 * ib.Second}[rng.IntN(3)]
		m.Until = 2 * busy
	}
	if !sc.Calm && rng.IntN(3) == 0 {
		m.Renews = [...]ib.Time{5 * ib.Microsecond, 50 * ib.Microsecond}[rng.IntN(2)]
		m.Until = 2 * busy
	}
	if m.Direct > 0 {
		sc.Enforce, sc.HOQ, sc.Life = false, 0, 0 // direct ways go past the switches
	} else if !sc.Calm && rng.IntN(3) == 0 {
		sc.Life = uint8(1 + rng.IntN(2)) // processes send with pauses, so that packets seldom grow old
	}
	sc.Machine = m
	return faulty && m.Direct < 100
}

// drawKills draws processes that are killed where all ways are direct and nothing else goes wrong, by randomness of its
// own, as drawAdaptive.
func (sc *Scenario) drawKills(hosts int) {
	rng := rand.New(rand.NewPCG(sc.Seed, 0x1C11))
	if sc.Calm || sc.Machine.Direct < 100 || rng.IntN(3) > 0 {
		return
	}
	for range 1 + rng.IntN(2) {
		sc.Faults = append(sc.Faults, Fault{Kind: Stop, At: ib.Time(rng.Int64N(int64(busy))), Host: rng.IntN(hosts)})
	}
}

// drawTopo draws a topology. It reports whether shortest paths on it, and a multicast tree,
// cannot deadlock.
func (sc *Scenario) drawTopo(rng *rand.Rand, hosts int) bool {
	speeds := [...]string{"QDR", "FDR", "EDR", "HDR", "NDR"}
	cable := fmt.Sprintf("speed=%s,length=%dm", speeds[rng.IntN(len(speeds))], 1+rng.IntN(30))
	per := 1 + rng.IntN(3)
	switch k := rng.IntN(10); {
	case hosts == 2 && k < 4:
		sc.Topo = "pair:" + cable
		return true
	case k < 3:
		sc.Topo = fmt.Sprintf("star:%d,%s", hosts, cable)
		return true
	case k < 5:
		sc.Topo = fmt.Sprintf("line:%d,hosts=%d,%s", max(2, hosts/per), per, cable)
		return true
	case k < 7:
		radix := 4
		for radix*radix/2 < hosts {
			radix += 2
		}
		sc.Topo = fmt.Sprintf("fat-tree:radix=%d,levels=2,hosts=%d,%s", radix, hosts, cable)
		return true
	case k < 8:
		sc.Topo = fmt.Sprintf("ring:%d,hosts=%d,%s", max(3, hosts/per), per, cable)
	case k < 9:
		sc.Topo = fmt.Sprintf("torus:3x%d,hosts=1,%s", max(2, hosts/3), cable)
	default:
		switches := 2 + rng.IntN(6)
		sc.Topo = fmt.Sprintf("random:switches=%d,hosts=%d,links=%d,seed=%d,%s", switches, hosts, switches-1+
			rng.IntN(switches), rng.IntN(1<<20), cable)
	}
	return false
}

// graph builds the topology. A spec that Draw makes is never wrong.
func (sc *Scenario) graph() *topo.Graph {
	g, err := topo.ParseSpec(sc.Topo)
	if err != nil {
		panic(err)
	}
	return g
}

// busy is about how long the load of a scenario lasts.
const busy = 250 * ib.Microsecond

func (sc *Scenario) drawFaults(rng *rand.Rand, g *topo.Graph) {
	rate := func() float64 { return [...]float64{0.002, 0.01, 0.03, 0.1, 0.3}[rng.IntN(5)] }
	sometimes := func(n int) float64 {
		if rng.IntN(n) == 0 {
			return rate()
		}
		return 0
	}
	at := func() ib.Time { return ib.Time(rng.Int64N(int64(busy))) }
	for range 1 + rng.IntN(4) {
		f := Fault{At: at(), Cable: rng.IntN(g.NumCables()), Host: rng.IntN(len(g.Hosts()))}
		if rng.IntN(2) == 0 {
			f.At = 0
		}
		switch rng.IntN(10) {
		case 0, 1, 2:
			f.Kind, f.For = Flap, ib.Time(1+rng.IntN(800))*ib.Microsecond
		case 3:
			if rng.IntN(3) > 0 {
				continue
			}
			f.Kind = Stop
		default:
			f.For = ib.Time(20+rng.IntN(2000)) * ib.Microsecond
			f.Harm = fabric.Faults{
				Drop: sometimes(2), Corrupt: sometimes(4), Duplicate: sometimes(4), Delay: sometimes(4),
				Reorder: sometimes(4), FCLoss: sometimes(4), DelayMax: ib.Time(1+rng.IntN(40)) * ib.Microsecond,
			}
			if rng.IntN(6) == 0 {
				f.Harm.BER = 1e-7
			}
			if rng.IntN(4) == 0 {
				f.Cable = AllCables
			}
		}
		sc.Faults = append(sc.Faults, f)
	}
}

// build makes the simulation of a scenario, up and routed, with its faults
// planned.
func (sc *Scenario) build(g *topo.Graph, sink fabric.Sink, wireExact bool) (*machine.Machine, error) {
	return machine.New(sc.Machine, func(newHost func(*topo.Node) sim.Host) (*sim.Sim, error) {
		return sc.buildFabric(g, sink, wireExact, newHost)
	})
}

func (sc *Scenario) buildFabric(g *topo.Graph, sink fabric.Sink, wireExact bool,
	newHost func(*topo.Node) sim.Host) (*sim.Sim, error) {
	mtuBlocks := (sc.MTU.Bytes() + 124 + 2 + link.BlockSize - 1) / link.BlockSize
	cfg := sim.Config{
		Seed: sc.Seed, NewHost: newHost, WireExact: wireExact, HashPayload: true, Sink: sink,
		StoreForward: sc.StoreForward, AlwaysRefresh: sc.AlwaysRefresh, Adaptive: sc.Adaptive, Engines: sc.Engines,
		Port: link.Config{MTUCap: sc.MTU, VLCap: sc.VLs, BufferBlocks: sc.Buffer * mtuBlocks},
	}
	sc.setEthernet(&cfg)
	s, err := sim.New(g, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := s.BringUp(); err != nil {
		return nil, err
	}
	s.LogDrops(true)
	if sc.Tree {
		if err := routeTree(s); err != nil {
			return nil, err
		}
	}
	for _, n := range g.Switches() {
		for num := 1; num < len(n.Ports); num++ {
			s.Switch(n.Index).Port(ib.PortNum(num)).SetMarking(sc.Marking)
		}
		if sc.Life > 0 {
			s.Switch(n.Index).SetLifeTime(sc.Life - 1)
		}
		for num := 1; num < len(n.Ports); num++ {
			p := s.Switch(n.Index).Port(ib.PortNum(num))
			if sc.HOQ > 0 {
				p.SetHOQLife(sc.HOQ - 1)
			}
			if peer := n.Ports[num].Peer; sc.Enforce && n.Ports[num].Connected() && !g.Nodes[peer].IsSwitch() {
				for i := range sc.Work.Hosts {
					if s.HostNode(i).Index == peer {
						p.SetPKeys(fullKeys(sc.Work.PKeys[i]))
						p.SetEnforcement(link.EnforcePKeyIn | link.EnforcePKeyOut)
					}
				}
			}
		}
	}
	sc.setChoosing(s, g)
	cables := g.Cables()
	for i := range sc.Faults {
		sc.plan(s, &sc.Faults[i], cables)
	}
	return s, nil
}

// fullKeys are a host's keys as the switch in front of it holds them: a switch must pass
// what limited members send, and whether two of them may talk is the host's to
// check (IBA 10.9.3).
func fullKeys(keys []ib.PKey) []ib.PKey {
	full := make([]ib.PKey, len(keys))
	for i, k := range keys {
		full[i] = k | ib.PKeyFull
	}
	return full
}

func (sc *Scenario) plan(s *sim.Sim, f *Fault, cables []topo.Cable) {
	if f.Kind == Stop {
		s.PlanStop(f.At, s.HostNode(f.Host).Index)
		return
	}
	if f.Cable != AllCables {
		cables = cables[f.Cable : f.Cable+1]
	}
	if f.Kind == Flap {
		s.PlanFlap(f.At, cables[0].A, f.For)
		return
	}
	for _, c := range cables {
		for _, ref := range [2]topo.PortRef{c.A, c.B} {
			s.PlanFaults(f.At, ref, f.Harm)
			s.PlanFaults(f.At+f.For, ref, fabric.Faults{})
		}
	}
}

// routeTree writes forwarding tables that use the cables of one spanning tree alone.
func routeTree(s *sim.Sim) error {
	g := s.Graph()
	if len(g.Switches()) == 0 {
		return nil
	}
	root := g.Switches()[0].Index
	up := make([]topo.PortRef, len(g.Nodes)) // the switch's own port that leads to its parent
	seen := make([]bool, len(g.Nodes))
	seen[root] = true
	order := []int{root}
	kids := make([][]topo.PortRef, len(g.Nodes))
	for i := 0; i < len(order); i++ {
		n := g.Nodes[order[i]]
		for num := 1; num < len(n.Ports); num++ {
			p := &n.Ports[num]
			if !p.Connected() || seen[p.Peer] {
				continue
			}
			seen[p.Peer] = true
			kids[n.Index] = append(kids[n.Index], topo.PortRef{Node: p.Peer, Port: ib.PortNum(num)})
			if g.Nodes[p.Peer].IsSwitch() {
				up[p.Peer] = topo.PortRef{Node: n.Index, Port: p.PeerPort}
				order = append(order, p.Peer)
			}
		}
	}
	// below lists the LIDs in each node's subtree.
	below := make([][]ib.LID, len(g.Nodes))
	for _, n := range g.Hosts() {
		below[n.Index] = []ib.LID{s.LID(topo.PortRef{Node: n.Index, Port: 1})}
	}
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		below[n] = append(below[n], s.LID(topo.PortRef{Node: n}))
		for _, k := range kids[n] {
			below[n] = append(below[n], below[k.Node]...)
		}
	}
	for _, n := range order {
		sw := s.Switch(n)
		for _, lid := range below[root] {
			if err := sw.SetRoute(lid, up[n].Port); err != nil {
				return err
			}
		}
		if err := set(sw, s.LID(topo.PortRef{Node: n}), 0); err != nil {
			return err
		}
		for _, k := range kids[n] {
			for _, lid := range below[k.Node] {
				if err := set(sw, lid, k.Port); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func set(sw *ibswitch.Switch, lid ib.LID, port ib.PortNum) error { return sw.SetRoute(lid, port) }
