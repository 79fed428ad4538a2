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

// batchMax is how many datagrams one system call sends or receives.
const batchMax = 64

// batch is what recvmmsg and sendmmsg want: one message a datagram.
type batch struct {
	msgs  [batchMax]message
	iovs  [batchMax]unix.Iovec
	names [batchMax]unix.RawSockaddrInet6
	ctrl  [batchMax][controlBytes]byte
	data  [batchMax][datagramMax]byte
}

// message is C's struct mmsghdr.
type message struct {
	unix.Msghdr
	n uint32
	_ [4]byte
}

// controlBytes has room for a traffic class.
const controlBytes = 24

func newBatch() *batch {
	b := new(batch)
	for i := range b.msgs {
		b.iovs[i].Base = &b.data[i][0]
		m := &b.msgs[i]
		m.Iov, m.Iovlen = &b.iovs[i], 1
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(&b.names[i])), unix.SizeofSockaddrInet6
	}
	return b
}

// receive takes in what has come, without waiting, and returns how many datagrams that were.
func (s *socket) receive(b *batch) (int, error) {
	for i := range b.msgs {
		b.iovs[i].Len = datagramMax
		m := &b.msgs[i]
		m.Namelen = unix.SizeofSockaddrInet6
		m.Control, m.Controllen, m.Flags = &b.ctrl[i][0], controlBytes, 0
	}
	return mmsg(unix.SYS_RECVMMSG, s.fd, b.msgs[:])
}

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

// datagram is a received one, and what IP says of it.
func (b *batch) datagram(i int, s *socket) ([]byte, wire.RoCESource) {
	from := wire.RoCESource{From: b.names[i].Addr, To: s.gid, Port: swap(b.names[i].Port), HopLimit: defaultHops}
	from.TClass = trafficClass(b.ctrl[i][:b.msgs[i].Controllen])
	return b.data[i][:min(b.msgs[i].n, datagramMax)], from
}

// defaultHops stands for a hop limit that nobody has asked for.
const defaultHops = 64

// trafficClass finds it in what the kernel says of a datagram, as one byte (IPv4) or as an integer.
func trafficClass(control []byte) uint8 {
	if len(control) < unix.SizeofCmsghdr+1 {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	if h.Level == unix.SOL_IP && h.Type == unix.IP_TOS || h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_TCLASS {
		return control[unix.SizeofCmsghdr] // little-endian, and less than 256
	}
	return 0
}

// put makes message i of a batch a datagram of n bytes to an address.
func (b *batch) put(i, n int, s *socket, to ib.GID, tclass uint8) {
	b.iovs[i].Len = uint64(n)
	b.names[i] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swap(wire.RoCEPort), Addr: to}
	if to[0] == 0xFE && to[1]>>6 == 2 { // link-local
		b.names[i].Scope_id = s.zone
	}
	m := &b.msgs[i]
	m.Control, m.Controllen = nil, 0
	if tclass == 0 {
		return
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b.ctrl[i][0]))
	*h = unix.Cmsghdr{Level: unix.SOL_IPV6, Type: unix.IPV6_TCLASS}
	if s.v4 {
		h.Level, h.Type = unix.SOL_IP, unix.IP_TOS
	}
	h.SetLen(unix.CmsgLen(4))
	*(*int32)(unsafe.Pointer(&b.ctrl[i][unix.SizeofCmsghdr])) = int32(tclass)
	m.Control, m.Controllen = &b.ctrl[i][0], controlBytes
}

func swap(port uint16) uint16 { return port<<8 | port>>8 }
