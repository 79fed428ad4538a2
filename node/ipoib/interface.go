package ipoib

import (
	"net/netip"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Config is what does not change about an interface.
type Config struct {
	// Self is the interface's link-layer address.
	Self LinkAddr
	// PKey is the partition.
	PKey ib.PKey
	// Connected has packets for neighbours who take connections go by these (RFC 4755).
	Connected bool
}

// Times and bounds. Those of neighbours are Linux's defaults, which people know: one is asked AskTries times.
const (
	AskTries    = 3
	AskInterval = ib.Second
	// reachable is how long a neighbour counts as there after it was heard.
	reachable = 30 * ib.Second
	// forgetAfter is how long one is kept that nothing is sent to.
	forgetAfter = 120 * ib.Second
	// pathPatience is how long the administrator may take; who asks for the driver repeats the question by itself.
	pathPatience = 20 * ib.Second
	pathAgain    = ib.Second
	// connectAgain is how long a neighbour that has refused a connection gets datagrams.
	connectAgain = 10 * ib.Second
	joinPatience = 20 * ib.Second
	joinAgain    = ib.Second
	joinAgainMax = 16 * ib.Second
	// sendOnlyAfter is how long a group that is only sent to is kept.
	sendOnlyAfter = 60 * ib.Second

	neighboursMax   = 8192
	groupsMax       = 1024
	queueBytesMax   = 256 << 10 // that wait for a neighbour or a group
	queuePacketsMax = 64
	waitBytesMax    = 8 << 20 // that wait for any
)

// Stats count what an interface has done.
type Stats struct {
	Malformed   uint64 // packets and datagrams that are not as they must be
	Forged      uint64 // whose addresses are not those of who sent them
	Overflow    uint64 // packets that had to wait where there was no room
	Unreachable uint64 // packets whose neighbour does not answer
	TooBig      uint64
	NoGroup     uint64 // multicasts to groups that the administrator does not know
}

// Interface is one interface: a partition of a port.
type Interface struct {
	cfg   Config
	self  LinkAddr
	Stats Stats

	addrs     []netip.Addr   // the host's
	prefixes  []netip.Prefix // of the IPv4 ones
	listens   []netip.Addr   // groups that its programs listen to
	broadcast *group
	scope     uint8

	neighbours map[netip.Addr]*neighbour
	order      []*neighbour // as they were made
	paths      map[ib.GID]*path
	groups     map[ib.GID]*group
	groupOrder []*group

	tries   int // how often a neighbour is asked
	waiting int // bytes in all queues
	next    ib.Time
	out     ib.Queue[Action]
}

// New makes an interface that has yet to join its broadcast group: the first thing that Poll gives.
func New(now ib.Time, cfg Config) *Interface {
	i := &Interface{cfg: cfg, self: cfg.Self, neighbours: map[netip.Addr]*neighbour{}, paths: map[ib.GID]*path{},
		groups: map[ib.GID]*group{}, scope: mad.ScopeLinkLocal, next: ib.Never, tries: AskTries}
	if cfg.Connected {
		i.self.Flags |= TakesRC
	}
	i.broadcast = i.newGroup(BroadcastGroup(cfg.PKey, i.scope), true)
	i.join(now, i.broadcast)
	return i
}

// Way is where datagrams go: to a neighbour or to a group. A driver keeps what it makes of one until Poll closes it.
type Way struct {
	Multicast bool
	QPN       ib.QPN
	QKey      ib.QKey
	// MTU bounds a packet of IP.
	MTU int

	DLID      ib.LID
	SL        ib.SL
	Rate      mad.Rate
	IsGlobal  bool
	DGID      ib.GID
	FlowLabel uint32
	HopLimit  uint8
	TClass    uint8

	// Connect has the driver make a connection for what is sent here, if that is not nil (RFC 4755). Packets of up to
	// Datagram bytes may go as datagrams until it stands.
	Connect  *LinkAddr
	Datagram int
	// Path is the administrator's record, of a neighbour.
	Path mad.PathRecord
}

// ActionKind says what a driver has to do.
type ActionKind uint8

// Kinds of action.
const (
	// Send sends Packet to Way.
	Send ActionKind = iota
	// Deliver hands Packet to the host.
	Deliver
	// AskPath asks the administrator for the path to GID, and calls HandlePath.
	AskPath
	// Join joins the group GID, as a full member or only to send, and calls HandleJoined.
	Join
	// Leave leaves it.
	Leave
	// Close says that Way is not used any more.
	Close
	// Listens says that the host's groups have changed: look them up, and call SetGroups.
	Listens
)

// Action is what a driver has to do.
type Action struct {
	Kind     ActionKind
	Way      *Way
	Protocol Protocol
	Packet   []byte // the driver's from now on
	Offload  Offload
	GID      ib.GID
	SendOnly bool
}

// Poll is the next thing to do.
func (i *Interface) Poll() (Action, bool) { return i.out.Pop() }

// NextDeadline is when HandleTimer wants to be called.
func (i *Interface) NextDeadline() ib.Time { return i.next }

func (i *Interface) wake(at ib.Time) ib.Time {
	i.next = min(i.next, at)
	return at
}

// IsUp reports whether the broadcast group is joined, without which there is no interface (RFC 4391 section 5).
func (i *Interface) IsUp() bool { return i.broadcast.way != nil }

// HasAddrs reports whether the host has all of these addresses.
func (i *Interface) HasAddrs(addrs []netip.Prefix) bool {
	for _, a := range addrs {
		if !slices.Contains(i.addrs, a.Addr()) {
			return false
		}
	}
	return true
}

// IsReady reports whether programs can begin: the interface is up, the host has its addresses, and the administrator
// has said yes or no to each group that it listens to. Before, a question would have no address to be asked from, and
// one for the host might be sent to a group that it is not in.
func (i *Interface) IsReady(addrs []netip.Prefix) bool {
	return i.IsUp() && i.HasAddrs(addrs) &&
		!slices.ContainsFunc(i.groupOrder, func(g *group) bool { return g.full && g.way == nil && !g.refused })
}

// Self is the interface's link-layer address.
func (i *Interface) Self() LinkAddr { return i.self }

// packet is one that waits.
type packet struct {
	proto   Protocol
	data    []byte
	offload Offload
}

// queue holds packets for a way that is not known yet.
type queue struct {
	packets []packet
	bytes   int
}

// Waiting is how many bytes of packets wait for a neighbour or a group.
func (i *Interface) Waiting() int { return i.waiting }

// put lets a packet wait. The oldest go first: their senders have waited longest, and send again.
func (i *Interface) put(q *queue, p packet) {
	for len(q.packets) > 0 && (len(q.packets) >= queuePacketsMax || q.bytes+len(p.data) > queueBytesMax) {
		i.Stats.Overflow++
		q.bytes -= len(q.packets[0].data)
		i.waiting -= len(q.packets[0].data)
		q.packets = slices.Delete(q.packets, 0, 1)
	}
	if i.waiting+len(p.data) > waitBytesMax {
		i.Stats.Overflow++
		return
	}
	q.packets = append(q.packets, p)
	q.bytes += len(p.data)
	i.waiting += len(p.data)
}

// take empties a queue.
func (i *Interface) take(q *queue) []packet {
	all := q.packets
	i.waiting -= q.bytes
	*q = queue{}
	return all
}

// flush sends what has waited for a way.
func (i *Interface) flush(q *queue, w *Way) {
	for _, p := range i.take(q) {
		if i.fits(&p, w) {
			i.out.Push(Action{Kind: Send, Way: w, Protocol: p.proto, Packet: p.data, Offload: p.offload})
		}
	}
}

// fits reports whether a packet may go a way. Who sent one that is too big is told.
func (i *Interface) fits(p *packet, w *Way) bool {
	if fitsMTU(p.data, &p.offload, w.MTU) {
		return true
	}
	i.Stats.TooBig++
	i.complain(p.data, w.MTU)
	return false
}

func (i *Interface) complain(p []byte, mtu int) {
	if c := complaint(p, mtu); c != nil {
		i.out.Push(Action{Kind: Deliver, Packet: c})
	}
}

// SetAddrs says which addresses the host has, with their prefixes, sorted or not. Neighbours are told of new ones, so
// that those who knew another owner forget it.
func (i *Interface) SetAddrs(now ib.Time, addrs []netip.Prefix) {
	had := i.addrs
	i.addrs, i.prefixes = nil, nil
	for _, p := range addrs {
		i.addrs = append(i.addrs, p.Addr())
		if p.Addr().Is4() && p.Bits() < 31 {
			i.prefixes = append(i.prefixes, p)
		}
	}
	i.wanted(now)
	for _, a := range i.addrs {
		if !slices.Contains(had, a) && i.IsUp() {
			i.announce(now, a)
		}
	}
}

// announce tells everybody of an address (RFC 5227 section 3, RFC 4861 section 7.2.6).
func (i *Interface) announce(now ib.Time, a netip.Addr) {
	if a.Is4() {
		p := arpPacket{op: arpRequestOp, sender: i.self, senderIP: a, targetIP: a}
		i.toGroup(now, i.broadcast, packet{proto: ARP, data: p.append(nil)})
		return
	}
	m := ndMessage{typ: ndAdvertisement, override: true, src: a, dst: allNodes, target: a, link: i.self, hasLink: true}
	i.toGroup(now, i.group(now, allNodes), packet{proto: IPv6, data: m.append(nil)})
}

// isBroadcast reports whether an IPv4 address stands for everybody.
func (i *Interface) isBroadcast(a netip.Addr) bool {
	if a == limitedBroadcast {
		return true
	}
	v := a.As4()
	for _, p := range i.prefixes {
		if p.Contains(a) {
			host := uint32(1)<<(32-p.Bits()) - 1
			return (uint32(v[0])<<24|uint32(v[1])<<16|uint32(v[2])<<8|uint32(v[3]))&host == host
		}
	}
	return false
}

// HandlePacket takes a packet of the host's. If there is a way the driver sends it at once, and the packet stays the
// driver's; if not it was copied to wait for one, or is dropped.
func (i *Interface) HandlePacket(now ib.Time, data []byte, o Offload) *Way {
	proto, _, dst, ok := packetAddrs(data)
	if !ok {
		i.Stats.Malformed++
		return nil
	}
	if isReport(data) {
		// Whom groups lead to is the administrator's matter, so nobody on the link asks for reports of members.
		i.out.Push(Action{Kind: Listens})
		return nil
	}
	p := packet{proto: proto, data: data, offload: o}
	var way *Way
	var wait *queue
	switch {
	case dst.IsMulticast() || proto == IPv4 && i.isBroadcast(dst):
		if isInterfaceLocal(dst) {
			return nil
		}
		g := i.broadcast
		if dst.IsMulticast() {
			g = i.group(now, dst)
		}
		if g == nil {
			return nil
		}
		way, wait = i.useGroup(now, g)
		if wait == nil && way == nil {
			i.Stats.NoGroup++
			return nil
		}
	default:
		n := i.neighbour(now, dst)
		if n == nil {
			i.Stats.Overflow++
			return nil
		}
		n.used = now
		if way = n.way; way != nil {
			if now-n.confirmed > reachable && n.tries == 0 {
				i.probe(now, n)
			}
		} else {
			wait = &n.queue
		}
	}
	if way == nil {
		p.data = slices.Clone(data)
		i.put(wait, p)
		return nil
	}
	if !i.fits(&p, way) {
		return nil
	}
	return way
}

// isInterfaceLocal reports whether a group does not leave its host (RFC 4291 section 2.7).
func isInterfaceLocal(a netip.Addr) bool { return a.IsInterfaceLocalMulticast() }

// Datagram is what has come to the interface's queue pair.
type Datagram struct {
	SrcQPN ib.QPN
	// SGID is from the global route header, zero if there is none.
	SGID ib.GID
	// Payload is behind the header of 40 bytes that datagrams have room for.
	Payload []byte
}

// HandleDatagram takes a datagram, and returns the packet in it if that is for the host; it is a part of the payload.
func (i *Interface) HandleDatagram(now ib.Time, d *Datagram) []byte {
	proto, data, err := ParseHeader(d.Payload)
	if err != nil {
		i.Stats.Malformed++
		return nil
	}
	switch proto {
	case ARP:
		i.handleARP(now, d, data)
		return nil
	case IPv4, IPv6:
	default:
		return nil // of no concern here
	}
	is, src, _, ok := packetAddrs(data)
	if !ok || is != proto {
		i.Stats.Malformed++
		return nil
	}
	if proto == IPv6 && isND(data) {
		i.handleND(now, d, data)
		return nil
	}
	if slices.Contains(i.addrs, src) {
		i.Stats.Forged++
		return nil
	}
	i.Heard(now, src, d.SrcQPN)
	return data
}

// Heard notes that a neighbour has sent something from a queue pair. One that now has another one is asked again before
// anything else is sent to it.
func (i *Interface) Heard(now ib.Time, src netip.Addr, from ib.QPN) {
	n := i.neighbours[src]
	switch {
	case n == nil || n.way == nil:
	case n.link.QPN == from:
		n.confirmed = now
		n.tries = 0
	case n.tries == 0:
		i.probe(now, n)
	}
}

// isForged reports whether a link-layer address is not that of who sent it.
func (d *Datagram) isForged(a LinkAddr) bool {
	return a.QPN != d.SrcQPN || !d.SGID.IsZero() && a.GID != d.SGID
}

// handleARP does what RFC 826 says, with the check that who speaks is who it says it is.
func (i *Interface) handleARP(now ib.Time, d *Datagram, data []byte) {
	p, err := parseARP(data)
	switch {
	case err != nil || !p.sender.isUsable():
		i.Stats.Malformed++
		return
	case p.sender.same(i.self):
		return
	case d.isForged(p.sender):
		i.Stats.Forged++
		return
	}
	forUs := slices.Contains(i.addrs, p.targetIP)
	asks := forUs && p.op == arpRequestOp
	n := i.learn(now, p.senderIP, p.sender, asks)
	if !asks {
		return
	}
	r := arpPacket{op: arpReplyOp, sender: i.self, senderIP: p.targetIP, target: p.sender, targetIP: p.senderIP}
	i.answer(n, packet{proto: ARP, data: r.append(nil)})
}

// handleND is the same for IPv6 (RFC 4861 section 7.2).
func (i *Interface) handleND(now ib.Time, d *Datagram, data []byte) {
	m, err := parseND(data)
	switch {
	case err != nil || m.hasLink && !m.link.isUsable():
		i.Stats.Malformed++
		return
	case m.hasLink && m.link.same(i.self):
		return
	case m.hasLink && d.isForged(m.link):
		i.Stats.Forged++
		return
	}
	if m.typ == ndAdvertisement {
		if m.hasLink {
			i.learn(now, m.target, m.link, false)
		}
		return
	}
	asks := slices.Contains(i.addrs, m.target)
	if !m.hasLink || m.src.IsUnspecified() {
		if asks && m.src.IsUnspecified() { // somebody wants the address for itself (RFC 4862 section 5.4.3)
			i.announce(now, m.target)
		}
		return
	}
	n := i.learn(now, m.src, m.link, asks)
	if asks {
		a := ndMessage{typ: ndAdvertisement, solicited: true, override: true, src: m.target, dst: m.src,
			target: m.target, link: i.self, hasLink: true}
		i.answer(n, packet{proto: IPv6, data: a.append(nil)})
	}
}

// answer sends an answer to who asked, as soon as there is a path.
func (i *Interface) answer(n *neighbour, p packet) {
	switch {
	case n == nil:
		i.Stats.Overflow++
	case n.way != nil:
		i.out.Push(Action{Kind: Send, Way: n.way, Protocol: p.proto, Packet: p.data})
	default:
		i.put(&n.queue, p)
	}
}

// SetTries has neighbours asked that often before they count as gone, and AskTries times at least: where they are
// processes of a busy machine, none of which answers when it has no turn.
func (i *Interface) SetTries(n int) { i.tries = max(n, AskTries) }

// HandleTimer does what is due.
func (i *Interface) HandleTimer(now ib.Time) {
	if now < i.next {
		return
	}
	i.next = ib.Never
	for _, g := range slices.Clone(i.groupOrder) {
		i.groupTimer(now, g)
	}
	for _, n := range slices.Clone(i.order) {
		i.neighbourTimer(now, n)
	}
	i.pathTimer(now)
}

// HandleLink says that the port, its addresses, its manager or its partitions have changed: paths and memberships are
// asked for anew. What is known serves until the answers are there, since most often nothing has changed for it.
func (i *Interface) HandleLink(now ib.Time, self LinkAddr) {
	changed := !self.same(i.self)
	self.Flags = i.self.Flags
	i.self = self
	for _, g := range i.groupOrder {
		i.join(now, g)
	}
	for _, n := range i.order {
		if p := i.paths[n.link.GID]; p != nil && !p.asked && n.way != nil {
			i.ask(now, p)
		}
	}
	if changed {
		for _, a := range i.addrs {
			i.announce(now, a)
		}
	}
}
