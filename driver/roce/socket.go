package roce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/wire"
)

// ErrSocket is matched when an address cannot be used for RoCEv2.
var ErrSocket = errors.New("no socket for RoCEv2")

// socket sends and receives the datagrams of one address.
type socket struct {
	file *os.File
	fd   int
	gid  ib.GID
	zone uint32 // of a link-local address
	v4   bool
	cuts bool // the kernel cuts a message into datagrams
}

// wantBuffer is how much the kernel is asked to keep of what has come; it gives what it allows.
const wantBuffer = 4 << 20

func openSocket(a netip.Addr) (*socket, error) {
	s := &socket{gid: a.As16(), v4: a.Unmap().Is4()}
	if a.Zone() != "" {
		i, err := net.InterfaceByName(a.Zone())
		if err != nil {
			return nil, fmt.Errorf("roce: %v: %w: %w", a, ErrSocket, err)
		}
		s.zone = uint32(i.Index)
	}
	fail := func(what string, err error) (*socket, error) {
		unix.Close(s.fd)
		next := "see ip address for the addresses that there are"
		if errors.Is(err, unix.EADDRINUSE) {
			next = fmt.Sprintf("see ss -ulp for who has UDP port %d of it", wire.RoCEPort)
		}
		return nil, fmt.Errorf("roce: %v: %w: %s: %w; next: %s", a.Unmap(), ErrSocket, what, err, next)
	}
	var err error
	s.fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("roce: %v: %w: %w", a, ErrSocket, err)
	}
	// The ICRC covers that nothing may be fragmented. How datagrams were marked on their way is wanted for each.
	for _, o := range [...]struct{ level, name, value int }{
		{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0},
		{unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
		{unix.SOL_IP, unix.IP_RECVTOS, 1},
		{unix.SOL_IPV6, unix.IPV6_RECVTCLASS, 1},
	} {
		if err := unix.SetsockoptInt(s.fd, o.level, o.name, o.value); err != nil {
			return fail("option", err)
		}
	}
	if !s.v4 {
		// An address of IPv6 is not quite there for a second or two, while the kernel asks whether others have it.
		_ = unix.SetsockoptInt(s.fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	}
	s.cuts = unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == nil
	_ = unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	for _, name := range [...]int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, name, wantBuffer)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrInet6{Port: wire.RoCEPort, ZoneId: s.zone, Addr: s.gid}); err != nil {
		return fail("bind", err)
	}
	s.file = os.NewFile(uintptr(s.fd), "roce") // which makes the runtime wait for it
	return s, nil
}

// datagramMax is more than the longest datagram has.
const datagramMax = 4608

// sendMax is how many datagrams one system call sends; they are as many messages, or fewer where the kernel cuts one
// into datagrams of the same length (UDP_SEGMENT): cutMax at most, in cutBytes.
const (
	sendMax  = 128
	cutMax   = 64
	cutBytes = 60000
)

// message is C's struct mmsghdr.
type message struct {
	unix.Msghdr
	n uint32
	_ [4]byte
}

// controlBytes has room for a traffic class and a length.
const controlBytes = 64

// outgoing is what sendmmsg wants: datagrams in buffers of their own, and messages of one or several of them.
type outgoing struct {
	data [sendMax][datagramMax]byte
	iovs [sendMax]unix.Iovec
	n    int // datagrams

	msgs  [sendMax]message
	from  [sendMax]*socket
	class [sendMax]uint8
	names [sendMax]unix.RawSockaddrInet6
	ctrl  [sendMax][controlBytes]byte
	count int // messages
}

// buffer is room for the next datagram, and as which of those that the kernel cuts from one message it would go to an
// address: their identifications follow each other.
func (o *outgoing) buffer(s *socket, to ib.GID, class uint8, length int) (b []byte, id uint16) {
	if o.joins(s, to, class, length) {
		id = uint16(o.msgs[o.count-1].Iovlen)
	}
	return o.data[o.n][:0], id
}

// joins reports whether a datagram can be one of the last message: all of that have one length, and only its last may
// be shorter.
func (o *outgoing) joins(s *socket, to ib.GID, class uint8, length int) bool {
	if o.count == 0 || !s.cuts {
		return false
	}
	m := &o.msgs[o.count-1]
	k, at := int(m.Iovlen), o.n-int(m.Iovlen)
	each := int(o.iovs[at].Len)
	return o.from[o.count-1] == s && o.names[o.count-1].Addr == to && o.class[o.count-1] == class && k < cutMax &&
		(k+1)*each <= cutBytes && length <= each && int(o.iovs[o.n-1].Len) == each
}

// add adds the datagram that was written to buffer.
func (o *outgoing) add(s *socket, to ib.GID, class uint8, length int) {
	joins := o.joins(s, to, class, length)
	o.iovs[o.n] = unix.Iovec{Base: &o.data[o.n][0], Len: uint64(length)}
	if joins {
		o.msgs[o.count-1].Iovlen++
		o.n++
		return
	}
	i := o.count
	o.from[i], o.class[i] = s, class
	o.names[i] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swap(wire.RoCEPort), Addr: to}
	if to[0] == 0xFE && to[1]>>6 == 2 { // link-local
		o.names[i].Scope_id = s.zone
	}
	m := &o.msgs[i]
	m.Name, m.Namelen = (*byte)(unsafe.Pointer(&o.names[i])), unix.SizeofSockaddrInet6
	m.Iov, m.Iovlen = &o.iovs[o.n], 1
	o.n++
	o.count++
}

// seal writes what the kernel is told of each message.
func (o *outgoing) seal() {
	for i := range o.msgs[:o.count] {
		m, n := &o.msgs[i], 0
		if o.class[i] != 0 {
			level, kind := unix.SOL_IPV6, unix.IPV6_TCLASS
			if o.from[i].v4 {
				level, kind = unix.SOL_IP, unix.IP_TOS
			}
			*(*int32)(o.control(i, &n, level, kind, 4)) = int32(o.class[i])
		}
		if m.Iovlen > 1 {
			*(*uint16)(o.control(i, &n, unix.SOL_UDP, unix.UDP_SEGMENT, 2)) = uint16(m.Iov.Len)
		}
		m.Control, m.Controllen = nil, uint64(n)
		if n > 0 {
			m.Control = &o.ctrl[i][0]
		}
	}
}

// control adds a control message of so many bytes to message i, which has n bytes of them.
func (o *outgoing) control(i int, n *int, level, kind, size int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&o.ctrl[i][*n]))
	*h = unix.Cmsghdr{Level: int32(level), Type: int32(kind)}
	h.SetLen(unix.CmsgLen(size))
	at := unsafe.Pointer(&o.ctrl[i][*n+unix.CmsgLen(0)])
	*n += unix.CmsgSpace(size)
	return at
}

// incoming is what recvmmsg wants: messages of one or several datagrams of the same length, which the kernel has put
// together (UDP_GRO).
type incoming struct {
	msgs  [receiveMax]message
	iovs  [receiveMax]unix.Iovec
	names [receiveMax]unix.RawSockaddrInet6
	ctrl  [receiveMax][controlBytes]byte
	data  [receiveMax][joinedMax]byte
	facts [receiveMax]received
}

// received is what the kernel says of a message.
type received struct {
	class uint8
	each  int // bytes of a datagram; all are one if 0
}

const (
	receiveMax = 16
	joinedMax  = 1 << 16
)

// receive takes in what has come, without waiting, and returns how many messages that were.
func (s *socket) receive(b *incoming) (int, error) {
	for i := range b.msgs {
		b.iovs[i] = unix.Iovec{Base: &b.data[i][0], Len: joinedMax}
		m := &b.msgs[i]
		m.Iov, m.Iovlen = &b.iovs[i], 1
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(&b.names[i])), unix.SizeofSockaddrInet6
		m.Control, m.Controllen, m.Flags = &b.ctrl[i][0], controlBytes, 0
	}
	n, err := mmsg(unix.SYS_RECVMMSG, s.fd, b.msgs[:])
	for i := range n {
		b.facts[i] = facts(b.ctrl[i][:b.msgs[i].Controllen])
	}
	return n, err
}

// facts reads what the kernel says of a message: its traffic class, as one byte (IPv4) or as an integer, and the length
// of the datagrams that were put together.
func facts(control []byte) (f received) {
	for len(control) >= unix.CmsgLen(0)+1 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		value := unsafe.Pointer(&control[unix.CmsgLen(0)])
		switch {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_TOS, h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_TCLASS:
			f.class = *(*uint8)(value) // little-endian, and less than 256
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && h.Len >= uint64(unix.CmsgLen(4)):
			f.each = int(*(*int32)(value))
		}
		size := unix.CmsgSpace(int(h.Len) - unix.CmsgLen(0))
		if h.Len < uint64(unix.CmsgLen(0)) || size > len(control) {
			break
		}
		control = control[size:]
	}
	return f
}

// datagram is the one at an offset of message i, what IP says of it, and where the next one begins; 0 if it was the
// last.
func (b *incoming) datagram(i, at int, s *socket) (d []byte, from wire.RoCESource, next int) {
	from = wire.RoCESource{From: b.names[i].Addr, To: s.gid, Port: swap(b.names[i].Port), HopLimit: defaultHops,
		TClass: b.facts[i].class}
	all := b.data[i][:min(b.msgs[i].n, joinedMax)]
	if each := b.facts[i].each; each > 0 && at+each < len(all) {
		return all[at : at+each], from, at + each
	}
	return all[min(at, len(all)):], from, 0
}

// defaultHops stands for a hop limit that nobody has asked for.
const defaultHops = 64

func mmsg(call uintptr, fd int, msgs []message) (int, error) {
	for {
		n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)),
			unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
}

func swap(port uint16) uint16 { return port<<8 | port>>8 }
