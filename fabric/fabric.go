package fabric

import (
	"math/rand/v2"

	"softib/node/ibrouter"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Config is what an engine is made of besides its nodes.
type Config struct {
	// Pool is where all frames are from, also those of the switches.
	Pool *link.Pool
	// Rand decides what bad cables do.
	Rand *rand.Rand

	// SwitchLatency is from a packet's head reaching a switch to its forwarding.
	SwitchLatency ib.Time
	// StoreForward makes switches wait for the last byte of each packet.
	StoreForward bool
	// Instant cables take no time but what their Faults say, and flow control begins with the first packet: for a
	// driver that sends most packets by other ways.
	Instant bool
	// WireExact writes each packet as bytes and reads it back, both CRCs checked, at each hop. The history stays the
	// same.
	WireExact bool
	// AlwaysRefresh sends flow-control packets at least as often as IBA 7.9.4.2 asks. Without it a cable is refreshed
	// only after something was lost on it, and no more often than RefreshMin: where nothing was, a refresh tells
	// nothing new.
	AlwaysRefresh bool
	RefreshMin    ib.Time
	// TrainTime is from both ends polling to their note Trained.
	TrainTime ib.Time
	// ByPlace has events of one time happen in order of their places, a node's own before those that come by a cable,
	// and only what has one place and one cause in the order in which it was caused. What happens to a node is the same
	// then however many parts work on the fabric; see Split.
	ByPlace bool
	// AgentTime is how long a packet of management occupies its receive buffer before its node is told of it.
	AgentTime ib.Time
	// Logs keeps a record of each fault.
	Logs bool
	// TellDrops makes notes of packets that end within the engine.
	TellDrops bool
}

const (
	// NoEnd is the peer of a port that has none.
	NoEnd = ^uint32(0)
	// headBytes must have come before a switch knows the way.
	headBytes = 64
)

// Flags of a port's Site.
const (
	endWake    uint16 = 1 << iota // a wake event is pending
	endTimer                      // a port timer event is pending
	endTail                       // what leaves here counts as arrived with its last byte
	endSlow                       // some other port of the node is faster than this one
	endRefresh                    // a refresh event is pending
	endStopped                    // the node does nothing any more
	endFaulty                     // cables has an entry for what leaves here
	endInstant                    // what leaves here takes no time but what its faults say
	endFresh                      // nothing has gone over the cable yet, credits neither
	endTapped                     // the sink wants to see what arrives here
	endOutside                    // the cable ends outside
	endPort0                      // the driver wants to know when packets of the switch's own leave
	endAway                       // the other end of the cable is in another part
	endRouter                     // the node is a router
)

// Engine is cables, ports and switches. Make it with New, AddSwitch, AddHost and Join.
type Engine struct {
	now   ib.Time
	warm  uint64 // what touch has read; only so that it is read
	q     queue
	ports []*link.Port // every port of every node, port 0 included; its index is its place
	pool  *link.Pool
	hops  uint64
	hash  uint64
	cfg   Config

	notes ib.Queue[Note] // what Poll has to tell

	switches []*ibswitch.Switch // by node; nil for a host
	routers  []*ibrouter.Router // by node, up to the last; nil for others
	first    []uint32           // by node: the place of its port 0
	hosts    int32
	lengths  []ib.Time // by place: how long light takes on its cable
	used     []uint32  // ports of cables that were fresh
	outside  outside
	parts    parts

	cables  map[uint32]*cable // faults and errors of what leaves a port
	pulled  map[uint32]bool   // ends whose cable is pulled
	faults  [NumFaultKind]uint64
	drops   [link.NumReason]uint64
	log     []Record
	logDrop bool
	scratch []byte
	sink    Sink
	sinkErr error
}

// New makes an engine without nodes. seed begins its digest.
func New(cfg Config, seed uint64) *Engine {
	e := &Engine{cfg: cfg, pool: cfg.Pool, hash: seed, cables: map[uint32]*cable{}, pulled: map[uint32]bool{}}
	e.q = newQueue(&e.cfg)
	return e
}

// AddSwitch adds a switch, which is the next node.
func (e *Engine) AddSwitch(sw *ibswitch.Switch) {
	ports := make([]*link.Port, sw.NumPorts()+1)
	for i := range ports {
		ports[i] = sw.Port(ib.PortNum(i))
	}
	e.add(sw, -1, ports)
}

// AddHost adds a host with its ports, of which number 0 is none. It is the next node, and the next host.
func (e *Engine) AddHost(ports []*link.Port) {
	e.add(nil, e.hosts, ports)
	e.hosts++
}

// AddRouter adds a router with its ports, of which number 0 is none. It is the next node, and to its driver a host of
// this number: what comes for the router itself is noted as Arrived, and what the router says is sent by Send.
func (e *Engine) AddRouter(r *ibrouter.Router, ports []*link.Port, number int32) {
	for len(e.routers) <= len(e.first) {
		e.routers = append(e.routers, nil)
	}
	e.routers[len(e.first)] = r
	e.add(nil, number, ports)
	for _, p := range ports {
		p.Site.Flags |= endRouter
	}
}

func (e *Engine) add(sw *ibswitch.Switch, host int32, ports []*link.Port) {
	first, node := uint32(len(e.ports)), uint32(len(e.first))
	for num, p := range ports {
		p.Site = link.Site{First: first, Node: node, Host: host, Num: ib.PortNum(num), Peer: NoEnd}
	}
	e.ports = append(e.ports, ports...)
	e.lengths = append(e.lengths, make([]ib.Time, len(ports))...)
	e.first, e.switches = append(e.first, first), append(e.switches, sw)
}

// Join puts a cable between two ports, on which light takes so long.
func (e *Engine) Join(a, b uint32, length ib.Time) {
	for _, end := range [2][2]uint32{{a, b}, {b, a}} {
		e.ports[end[0]].Site.Peer = end[1]
		e.plug(end[0], length)
	}
}

func (e *Engine) plug(at uint32, length ib.Time) {
	e.lengths[at] = length
	if e.cfg.Instant {
		e.ports[at].Site.Flags |= endInstant | endFresh | endTail
	}
}

// Retime works out, for each cable of a node, how long packets take to it, whether the node can cut them through, and
// whether what leaves by it drains a receive buffer slower than some other port could fill it. The rates are those of
// the links now; whoever sets one calls it.
func (e *Engine) Retime(node int) {
	if e.cfg.Instant {
		return
	}
	ports := e.portsOf(node)
	fastest := int64(0)
	for _, p := range ports {
		if cabled(p) {
			fastest = max(fastest, p.Rate().Mbps())
		}
	}
	sw := e.switches[node]
	for num, p := range ports {
		if !cabled(p) {
			continue
		}
		slow := p.Rate().Mbps() < fastest
		setFlag(&p.Site.Flags, endSlow, slow)
		tail := sw == nil || slow || e.cfg.StoreForward
		delay := e.lengths[p.Site.First+uint32(num)]
		if sw != nil {
			delay += e.cfg.SwitchLatency
		}
		if !tail {
			delay += p.Rate().ByteTime(headBytes)
		}
		if p.Site.Flags&endOutside != 0 {
			e.outside.gates[p.Site.First+uint32(num)] = gate{delay: delay, tail: tail}
			continue
		}
		// The sender keeps the time and the flag: it computes the arrival.
		from := &e.ports[p.Site.Peer].Site
		setFlag(&from.Flags, endTail, tail)
		from.Delay = delay
	}
	e.makeHeadroom(ports)
}

func setFlag(flags *uint16, f uint16, on bool) {
	*flags &^= f
	if on {
		*flags |= f
	}
}

func (e *Engine) portsOf(node int) []*link.Port {
	end := len(e.ports)
	if node+1 < len(e.first) {
		end = int(e.first[node+1])
	}
	return e.ports[e.first[node]:end]
}

// Now is the engine's time: that of the last event, or later.
func (e *Engine) Now() ib.Time { return e.now }

// Advance lets time pass in which nothing happens: until now, or until the next event if that is due before.
func (e *Engine) Advance(now ib.Time) { e.now = max(e.now, min(now, e.q.next())) }

// Place numbers a port of a node.
func (e *Engine) Place(node int, port ib.PortNum) uint32 { return e.first[node] + uint32(port) }

// Places counts the ports.
func (e *Engine) Places() uint32 { return uint32(len(e.ports)) }

// PortAt is the port of a place.
func (e *Engine) PortAt(at uint32) *link.Port { return e.ports[at] }

// Ref names a place as a graph does whose nodes were added in their order.
func (e *Engine) Ref(at uint32) topo.PortRef {
	p := e.ports[at]
	return topo.PortRef{Node: int(p.Site.Node), Port: p.Site.Num}
}

// CutsThrough reports whether a packet counts as arrived at a port when its head has come, and how much that is.
func (e *Engine) CutsThrough(at uint32) (head int, ok bool) {
	peer := e.ports[at].Site.Peer
	return headBytes, peer != NoEnd && e.ports[peer].Site.Flags&endTail == 0
}

// TellRoom has notes made when packets of a switch's own leave by its ports.
func (e *Engine) TellRoom(node int) {
	for _, p := range e.portsOf(node) {
		p.Site.Flags |= endPort0
	}
}

// Router is a node's; nil for others.
func (e *Engine) Router(node int) *ibrouter.Router {
	if node >= len(e.routers) {
		return nil
	}
	return e.routers[node]
}

// Switch is a node's; nil for a host.
func (e *Engine) Switch(node int) *ibswitch.Switch { return e.switches[node] }

// Hops counts the packets that nodes have received, one for each link crossed.
func (e *Engine) Hops() uint64 {
	n := e.hops
	for _, o := range e.parts.others {
		n += o.hops
	}
	return n
}

// TraceHash is a digest of the history so far: every packet and credit that arrived, where and when.
func (e *Engine) TraceHash() uint64 {
	h := e.hash
	for _, o := range e.parts.others {
		h += o.hash
	}
	return h
}

// FramesInUse counts packets that are somewhere in the fabric; 0 at rest.
func (e *Engine) FramesInUse() int {
	n := e.pool.InUse()
	for _, o := range e.parts.others {
		n += o.pool.InUse()
	}
	return n
}

// Drops counts dropped packets by reason.
func (e *Engine) Drops() [link.NumReason]uint64 {
	sum := e.drops
	for _, o := range e.parts.others {
		for r, n := range o.drops {
			sum[r] += n
		}
	}
	return sum
}
