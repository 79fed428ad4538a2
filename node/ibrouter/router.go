package ibrouter

import (
	"cmp"
	"slices"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// weightMax is how many routers may be on a way. What is further is not reached: that ends the counting up of managers
// which tell each other of subnets that are gone.
const weightMax = 16

// Router is one router. Make it with New.
type Router struct {
	ports []port // 0 is none
	// hops are the ways to all subnets, by prefix, the best of each.
	hops []nextHop
	// changed are ports whose managers have yet to hear that other subnets are reached than before, or other groups
	// wanted.
	changed ib.PortMask

	pool   *link.Pool
	copies link.Copies // of multicast packets
}

// port is a port, with what the manager of its subnet has told.
type port struct {
	link   *link.Port
	guid   ib.GUID
	prefix uint64
	lid    ib.LID
	guids  []ib.GUID // who has which LID
	lids   map[ib.GUID]ib.LID
	peers  []mad.NextHop // what other routers reach, block by block
	groups []mad.RouterGroup
	wanted []mad.RouterGroup // what follows from the groups of other ports
	mlids  map[ib.GID]ib.LID // of groups that have members there or beyond
}

// nextHop is a way to a subnet: by a port to the GUID's own LID, or to another router's.
type nextHop struct {
	prefix uint64
	out    ib.PortNum
	lid    ib.LID // of another router; 0 if the subnet is the port's
	weight uint8  // how many routers are on the way
}

// New makes a router of links, by number, of which 0 is none, whose ports have these GUIDs. Copies of multicast packets
// are taken from pool.
func New(links []*link.Port, guids []ib.GUID, pool *link.Pool) *Router {
	r := &Router{ports: make([]port, len(links)), pool: pool}
	for p := 1; p < len(links); p++ {
		r.ports[p] = port{link: links[p], guid: guids[p-1], prefix: ib.DefaultGIDPrefix, lids: map[ib.GUID]ib.LID{}}
	}
	return r
}

// SetPool gives a router that holds no packet another pool for its copies.
func (r *Router) SetPool(pool *link.Pool) { r.pool = pool }

// NumPorts counts the ports.
func (r *Router) NumPorts() int { return len(r.ports) - 1 }

// SetAddress is the LID and the subnet prefix that a manager has given to a port.
func (r *Router) SetAddress(num ib.PortNum, lid ib.LID, prefix uint64) {
	p := &r.ports[num]
	if p.lid != lid || p.prefix != prefix {
		p.lid, p.prefix = lid, prefix
		r.resolve()
	}
}

// Refresh looks which links are up: subnets are reached by those alone.
func (r *Router) Refresh() { r.resolve() }

// resolve finds the ways to all subnets.
func (r *Router) resolve() {
	var all []nextHop
	for i := 1; i < len(r.ports); i++ {
		p := &r.ports[i]
		if p.lid == 0 || p.prefix == ib.DefaultGIDPrefix || p.link.State() != ib.PortActive {
			continue // link-local GIDs are of one subnet (IBA 4.1.1)
		}
		all = append(all, nextHop{p.prefix, ib.PortNum(i), 0, 1})
		for _, e := range p.peers {
			if e.Prefix != 0 && e.Weight < weightMax {
				all = append(all, nextHop{e.Prefix, ib.PortNum(i), e.LID, e.Weight + 1})
			}
		}
	}
	slices.SortFunc(all, func(a, b nextHop) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.weight, b.weight), cmp.Compare(a.out, b.out),
			cmp.Compare(a.lid, b.lid))
	})
	old := r.hops
	r.hops = all[:0]
	for _, h := range all {
		if n := len(r.hops); n == 0 || r.hops[n-1].prefix != h.prefix || r.hops[n-1].weight == h.weight {
			r.hops = append(r.hops, h)
		}
	}
	r.regroup()
	if slices.Equal(old, r.hops) {
		return
	}
	for i := 1; i < len(r.ports); i++ {
		r.changed.Set(ib.PortNum(i))
	}
}

// ways are the ways to a subnet.
func (r *Router) ways(prefix uint64) []nextHop {
	byPrefix := func(h nextHop, p uint64) int { return cmp.Compare(h.prefix, p) }
	from, ok := slices.BinarySearchFunc(r.hops, prefix, byPrefix)
	if !ok {
		return nil
	}
	end := from
	for end < len(r.hops) && r.hops[end].prefix == prefix {
		end++
	}
	return r.hops[from:end]
}

// Decision is what a router does with a packet.
type Decision struct {
	// Here: it is for the router itself.
	Here bool
	// Fan: it is multicast, Fan lists its ways out, and Leave decides about each.
	Fan bool
	// Reason is link.OK if the packet goes on. If not, port At counts it.
	Reason link.Reason
	At     ib.PortNum
	// Out is the way out and VL the lane there, SLID and DLID are the addresses that it has from then on.
	Out        ib.PortNum
	VL         ib.VL
	SLID, DLID ib.LID
}

func drop(why link.Reason, at ib.PortNum) Decision { return Decision{Reason: why, At: at} }

// Decide says what becomes of a packet that was received at port in. It changes nothing.
func (r *Router) Decide(in ib.PortNum, lrh *wire.LRH, p *wire.Packet) Decision {
	if lrh.LNH != wire.LNHGlobal || lrh.VL == ib.VLMgmt {
		return Decision{Here: true}
	}
	g := &p.GRH
	prefix, guid := g.DGID.Prefix(), g.DGID.GUID()
	switch {
	case g.DGID.IsMulticast():
		return Decision{Fan: true}
	case r.isOwn(in, prefix, guid):
		return Decision{Here: true}
	case prefix == ib.DefaultGIDPrefix || prefix == r.ports[in].prefix:
		return drop(link.Looping, in) // it is where it should be, or never leaves (IBA 4.1.1)
	case g.HopLimit <= 1:
		return drop(link.HopLimit, in) // IBA 8.3.6
	}
	way, lid, ok := r.choose(in, prefix, guid, g)
	if !ok {
		return drop(link.NoRoute, in)
	}
	out := &r.ports[way]
	d := Decision{Out: way, At: way, SLID: out.lid, DLID: lid}
	d.VL, d.Reason = out.link.Depart(lrh.SL)
	return d
}

// isOwn reports whether a GID is one of the router's to who sends to a port of it: the port's, and those that its other
// ports have in their subnets.
func (r *Router) isOwn(in ib.PortNum, prefix uint64, guid ib.GUID) bool {
	for i := 1; i < len(r.ports); i++ {
		if p := &r.ports[i]; p.guid == guid {
			return prefix == p.prefix || ib.PortNum(i) == in && prefix == ib.DefaultGIDPrefix
		}
	}
	return false
}

// choose finds the port and the LID by which a packet goes on. Where there are several ways a flow stays with one: its
// packets keep their order.
func (r *Router) choose(in ib.PortNum, prefix uint64, guid ib.GUID, g *wire.GRH) (ib.PortNum, ib.LID, bool) {
	ways := r.ways(prefix)
	if len(ways) == 0 {
		return 0, 0, false
	}
	first := 0
	if len(ways) > 1 {
		first = int(flow(g) % uint64(len(ways)))
	}
	for i := range ways {
		w := &ways[(first+i)%len(ways)]
		p := &r.ports[w.out]
		lid := w.lid
		if lid == 0 {
			lid = p.lids[guid]
		}
		if lid != 0 && w.out != in && p.link.State() == ib.PortActive {
			return w.out, lid, true
		}
	}
	return 0, 0, false
}

// flow is a number that all packets of a flow have, and few others.
func flow(g *wire.GRH) uint64 {
	h := uint64(g.Flow)
	for _, v := range [...]uint64{uint64(g.SGID.GUID()), uint64(g.DGID.GUID())} {
		h = (h ^ v) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return h
}

// Readdress makes a packet that goes on what it is from then on.
func (d *Decision) Readdress(lrh *wire.LRH, p *wire.Packet) {
	lrh.SLID, lrh.DLID = d.SLID, d.DLID
	p.GRH.HopLimit--
}

// Result is what became of a packet.
type Result struct {
	// Here: it is for the router itself, and the caller's.
	Here bool
	// Reason is a drop's, whose frame is the caller's.
	Reason link.Reason
	// Outs are the ports that are to be polled since the packet was queued there.
	Outs ib.PortMask
}

// Handle takes a packet that port in has received.
func (r *Router) Handle(now ib.Time, in ib.PortNum, f *link.Frame) Result {
	d := r.Decide(in, &f.LRH, f.Packet)
	switch {
	case d.Here:
		return Result{Here: true}
	case d.Fan:
		return r.multicast(now, in, f)
	case d.Reason != link.OK:
		return Result{Reason: r.ports[d.At].link.Count(d.Reason)}
	}
	d.Readdress(&f.LRH, f.Packet)
	f.InPort = in
	res := Result{}
	switch why := r.ports[d.Out].link.Enqueue(now, f, d.VL); {
	case why == link.OK:
		res.Outs.Set(d.Out)
	case why.IsDrop():
		res.Reason = why
	}
	return res
}

// Left takes note that a packet has left, or was dropped from a queue, and reports whether its receive buffer is free
// now: other copies may hold it.
func (r *Router) Left(f *link.Frame) bool { return r.copies.End(f) }

// Holders leaves of the frames that are queued at the router's ports those that stand for a receive buffer.
func (r *Router) Holders(frames []*link.Frame) []*link.Frame { return r.copies.Holders(frames) }
