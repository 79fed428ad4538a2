package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/mmsg"
	"softib/proto/ib"
	"softib/proto/wire"
)

// ErrSocket is matched when an address cannot be used for RoCEv2.
var ErrSocket = errors.New("no socket for RoCEv2")

// address is one of the interface's.
type address struct {
	netip.Addr
	gid   ib.GID
	index int // of the interface
}

func (a *address) isIPv4() bool { return a.Unmap().Is4() }

// name is the address as sockets take it, with a port.
func (a *address) name(port int) unix.Sockaddr {
	if withoutIPv6() {
		return &unix.SockaddrInet4{Port: port, Addr: [4]byte(a.gid[12:])}
	}
	n := &unix.SockaddrInet6{Port: port, Addr: a.gid}
	if hasZone(a.gid) {
		n.ZoneId = uint32(a.index)
	}
	return n
}

// hasZone reports whether an address means something only together with an interface: link-local ones of IPv6, and its
// groups.
func hasZone(g ib.GID) bool { return g[0] == 0xFE && g[1]>>6 == 2 || g[0] == 0xFF }

// isGroupIPv4 reports whether an address is that of a group of IPv4.
func isGroupIPv4(g ib.GID) bool { return wire.IsIPv4(g) && g[12]>>4 == 0xE }

// bind makes a socket at a port of an address. Several may share a port if all say so.
func (a *address) bind(port int, shared bool) (int, error) {
	fail := func(what string, err error) (int, error) {
		next := "see ip address for the addresses that there are"
		if errors.Is(err, unix.EADDRINUSE) {
			next = fmt.Sprintf("see ss -ulp for who has UDP port %d of it", port)
		}
		return -1, fmt.Errorf("roce: %v: %w: %s: %w; next: %s", a.Unmap(), ErrSocket, what, err, next)
	}
	// The ICRC covers that nothing may be fragmented. How datagrams were marked on their way is wanted for each.
	fd, err := mmsg.Open(withoutIPv6(),
		mmsg.Option{Level: unix.SOL_IP, Name: unix.IP_RECVTOS, Value: 1},
		mmsg.Option{Level: unix.SOL_IPV6, Name: unix.IPV6_RECVTCLASS, Value: 1},
		mmsg.Option{Level: unix.SOL_SOCKET, Name: unix.SO_REUSEPORT, Value: flag(shared)},
		mmsg.Option{Level: unix.SOL_SOCKET, Name: unix.SO_REUSEADDR,
			Value: flag(shared && a.Unmap().IsMulticast())}, // other users' too
	)
	if err != nil {
		return fail("socket", err)
	}
	if !a.isIPv4() || shared {
		// An address of IPv6 is not quite there for a second or two, while the kernel asks whether others have it; and
		// one that an interface has lost may come back.
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1)
	}
	if err := unix.Bind(fd, a.name(port)); err != nil {
		unix.Close(fd)
		return fail("bind", err)
	}
	return fd, nil
}

// localName is the address and the port of a socket.
func localName(fd int) (g ib.GID, port uint16, err error) {
	name, err := unix.Getsockname(fd)
	switch n := name.(type) {
	case *unix.SockaddrInet6:
		return n.Addr, uint16(n.Port), err
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(n.Addr).As16(), uint16(n.Port), err
	}
	return g, 0, errors.Join(err, unix.EAFNOSUPPORT)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// socket is where datagrams come in.
type socket struct {
	fd int
	to *address // of which its datagrams are
	// isIPv4 says that it speaks IPv4 alone, and relayed that the server hands datagrams on by it.
	isIPv4, relayed bool
	// group is the one that it is for, if it is for one.
	group ib.GID
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func closeAll(socks []*socket) {
	for _, s := range socks {
		unix.Close(s.fd)
	}
}

// bindGroup makes a socket for what is sent to a group, which the interface joins: by the address of the same kind. All
// sockets of a group have copies of it.
func bindGroup(at []*address, g ib.GID) (int, *address, error) {
	i := slices.IndexFunc(at, func(a *address) bool { return a.isIPv4() == wire.IsIPv4(g) })
	if i < 0 {
		return -1, nil, fmt.Errorf("roce: %v: %w: the interface has no address of its kind", g, ErrSocket)
	}
	group := address{netip.AddrFrom16(g), g, at[i].index}
	fd, err := group.bind(wire.RoCEPort, true)
	if err == nil {
		if err = group.join(fd); err != nil {
			unix.Close(fd)
		}
	}
	return fd, at[i], err
}

// join makes the interface a member of the group that a is.
func (a *address) join(fd int) (err error) {
	if a.isIPv4() {
		err = unix.SetsockoptIPMreqn(fd, unix.SOL_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: [4]byte(a.gid[12:]), Ifindex: int32(a.index)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.SOL_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: a.gid, Interface: uint32(a.index)})
	}
	if err != nil {
		return fmt.Errorf("roce: %v: %w: joining: %w; next: see ip link for MULTICAST among the interface's flags",
			a.Unmap(), ErrSocket, err)
	}
	return nil
}

// numSenders is how many ports datagrams of an address leave by. Which one depends on the block of the queue pair that
// they go to: the kernel there may put datagrams that follow each other between two ports together, and give them all
// to the process that the first is for. Beyond that they spread what goes to different processes over a network's ways.
const numSenders = 64

// sender is where datagrams go out.
type sender struct {
	from *address
	fd   int
	port uint16
	cuts bool // the kernel cuts a message into datagrams
	// isIPv4 says that the socket speaks IPv4 alone.
	isIPv4 bool
}

// senders are those of one address; they are made when they are first needed.
type senders struct {
	from *address
	all  [numSenders]*sender
}

// to is the one for a queue pair.
func (s *senders) to(qpn ib.QPN) (*sender, error) {
	at := &s.all[blockOf(qpn)%numSenders]
	if *at != nil {
		return *at, nil
	}
	fd, err := s.from.bind(0, false)
	if err != nil {
		return nil, err
	}
	o := &sender{from: s.from, fd: fd, isIPv4: withoutIPv6(), cuts: mmsg.Cuts(fd)}
	if s.from.isIPv4() {
		_ = unix.SetsockoptIPMreqn(fd, unix.SOL_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(s.from.index)})
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MULTICAST_TTL, defaultHops)
	} else {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MULTICAST_IF, s.from.index)
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MULTICAST_HOPS, defaultHops)
	}
	if _, o.port, err = localName(fd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("roce: %v: %w: %w", s.from.Unmap(), ErrSocket, err)
	}
	*at = o
	return o, nil
}

func (s *senders) close() {
	for _, o := range s.all {
		if o != nil {
			unix.Close(o.fd)
		}
	}
}

// blockOf is the block of a queue pair's number, by which processes are told apart.
func blockOf(qpn ib.QPN) uint16 { return uint16(qpn >> endpoint.BlockBits) }

// datagramMax is more than the longest datagram has.
const datagramMax = wire.RoCEHeadroom + 4608

// sendMax is how many datagrams one system call sends at most. They are as many messages, or fewer where the kernel
// cuts one into datagrams of the same length (UDP_SEGMENT), of cutBytes at most.
const (
	sendMax  = windowMax / 4
	cutBytes = 60000
)

// outgoing is what sendmmsg wants: datagrams in buffers of their own, and messages of one or several of them.
type outgoing struct {
	data [sendMax][datagramMax]byte
	iovs [sendMax]unix.Iovec
	n    int // datagrams

	msgs  [sendMax]mmsg.Message
	flows [sendMax]flow
	names [sendMax]unix.RawSockaddrInet6
	ctrl  [sendMax]mmsg.Control
	bytes [sendMax]uint64
	count int // messages
}

// flow is where datagrams come from and go to, and how. What the kernel cuts from one message has one.
type flow struct {
	from  *sender
	to    ib.GID
	block uint16
	class uint8
}

// place is as which of those that the kernel cuts from one message a datagram would go: their identifications follow
// each other.
func (o *outgoing) place(f flow, length int) uint16 {
	if o.joins(f, length) {
		return uint16(o.msgs[o.count-1].Iovlen)
	}
	return 0
}

// joins reports whether a datagram can be one of the last message: all of that have one length, and only its last may
// be shorter.
func (o *outgoing) joins(f flow, length int) bool {
	if o.count == 0 || !f.from.cuts || o.flows[o.count-1] != f {
		return false
	}
	m := &o.msgs[o.count-1]
	k, at := int(m.Iovlen), o.n-int(m.Iovlen)
	each := int(o.iovs[at].Len)
	return (k+1)*each <= cutBytes && length <= each && int(o.iovs[o.n-1].Len) == each
}

// add adds a datagram, to the last message or as another one.
func (o *outgoing) add(f flow, d []byte, joins bool) {
	o.iovs[o.n] = unix.Iovec{Base: &d[0], Len: uint64(len(d))}
	if joins {
		o.bytes[o.count-1] += uint64(len(d))
		o.msgs[o.count-1].Iovlen++
		o.n++
		return
	}
	i := o.count
	o.flows[i], o.bytes[i] = f, uint64(len(d))
	zone := 0
	if hasZone(f.to) {
		zone = f.from.from.index
	}
	o.names[i] = mmsg.Name(netip.AddrPortFrom(netip.AddrFrom16(f.to), wire.RoCEPort), uint32(zone))
	m := &o.msgs[i]
	m.Name, m.Namelen = (*byte)(unsafe.Pointer(&o.names[i])), unix.SizeofSockaddrInet6
	if f.from.isIPv4 {
		m.Namelen = narrow(&o.names[i])
	}
	m.Iov, m.Iovlen = &o.iovs[o.n], 1
	o.n++
	o.count++
}

// seal writes what the kernel is told of each message.
func (o *outgoing) seal() {
	for i := range o.msgs[:o.count] {
		m, n := &o.msgs[i], 0
		if f := &o.flows[i]; f.class != 0 {
			level, kind := unix.SOL_IPV6, unix.IPV6_TCLASS
			if f.from.from.isIPv4() {
				level, kind = unix.SOL_IP, unix.IP_TOS
			}
			*(*int32)(o.ctrl[i].Add(&n, level, kind, 4)) = int32(f.class)
		}
		if m.Iovlen > 1 {
			o.ctrl[i].Cut(&n, int(m.Iov.Len))
		}
		m.Set(&o.ctrl[i], n)
	}
}

// incoming is what recvmmsg wants: messages of one or several datagrams of the same length, which the kernel has put
// together (UDP_GRO).
type incoming struct {
	msgs  [receiveMax]mmsg.Message
	iovs  [receiveMax]unix.Iovec
	names [receiveMax]unix.RawSockaddrInet6
	ctrl  [receiveMax]mmsg.Control
	heads [receiveMax][relayHead]byte
	pairs [receiveMax][2]unix.Iovec // of relays: a head, and what follows
	data  [receiveMax][wire.RoCEBefore + joinedMax]byte
	facts [receiveMax]received
	used  int // messages that the kernel has written to
	// relayed says what kind of socket they are set up for.
	relayed bool
	from    wire.RoCESource // of the datagram that was asked for last
}

// received is what the kernel says of a message.
type received struct {
	mmsg.Facts
	id uint16 // then its identification
}

const (
	receiveMax = 16
	joinedMax  = 1 << 16
)

// local is the address that a socket's datagrams go to.
func (s *socket) local() ib.GID {
	if !s.group.IsZero() {
		return s.group
	}
	return s.to.gid
}

// receive takes in what has come, without waiting, and returns how many messages that were.
func (s *socket) receive(b *incoming) (int, error) {
	if b.msgs[0].Iov == nil || b.relayed != s.relayed {
		b.used, b.relayed = receiveMax, s.relayed
	}
	for i := range b.used {
		b.iovs[i] = unix.Iovec{Base: &b.data[i][wire.RoCEBefore], Len: joinedMax}
		m := &b.msgs[i]
		m.Iov, m.Iovlen = &b.iovs[i], 1
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(&b.names[i])), unix.SizeofSockaddrInet6
		m.Set(&b.ctrl[i], len(b.ctrl[i]))
		m.Flags = 0
		if s.relayed {
			b.pairs[i] = [2]unix.Iovec{{Base: &b.heads[i][0], Len: relayHead}, b.iovs[i]}
			m.Iov, m.Iovlen = &b.pairs[i][0], 2
		}
	}
	n, err := mmsg.Receive(s.fd, b.msgs[:])
	b.used = n
	if n > 0 && s.relayed && b.msgs[0].N < relayHead {
		return 0, io.EOF // the server has ended
	}
	for i := range n {
		switch {
		case s.relayed:
			b.unrelay(i)
		case s.isIPv4:
			widen(&b.names[i])
			fallthrough
		default:
			b.facts[i] = received{Facts: b.ctrl[i].Read(b.msgs[i].Controllen)}
		}
	}
	return n, err
}

// unrelay makes a message that the server has handed on what it was there.
func (b *incoming) unrelay(i int) {
	h := &b.heads[i]
	b.names[i] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: mmsg.Swap(binary.BigEndian.Uint16(h[16:])),
		Addr: [16]byte(h[:16])}
	b.facts[i] = received{Facts: mmsg.Facts{Class: h[18]}, id: binary.BigEndian.Uint16(h[20:])}
	b.msgs[i].N -= min(b.msgs[i].N, relayHead)
}

// bytes is how many have come.
func (b *incoming) bytes() (n uint64) {
	for i := range b.used {
		n += uint64(b.msgs[i].N)
	}
	return n
}

// datagram is the one at an offset of message i: it ends with d and begins at an offset of that. Next is where the next
// one of the message is; 0 if it was the last. What IP says of it is in from: what a kernel has cut from one message
// has identifications that follow each other.
func (b *incoming) datagram(i, at int, s *socket) (d []byte, begin, next int) {
	b.from = wire.RoCESource{From: b.names[i].Addr, To: s.local(), Port: mmsg.Swap(b.names[i].Port),
		HopLimit: defaultHops, TClass: b.facts[i].Class, ID: b.facts[i].id}
	end := int(min(b.msgs[i].N, joinedMax))
	if each := b.facts[i].Each; each > 0 {
		b.from.ID = uint16(at / each)
		if at+each < end {
			end, next = at+each, at+each
		}
	}
	at = min(at, end)
	return b.data[i][:wire.RoCEBefore+end], wire.RoCEBefore + at, next
}

// defaultHops stands for a hop limit that nobody has asked for.
const defaultHops = 64
