package mmsg

import (
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Message is C's struct mmsghdr; N is how many bytes of it were sent or have come.
type Message struct {
	unix.Msghdr
	N uint32
	_ [4]byte
}

// Send sends messages without waiting, and returns how many.
func Send(fd int, msgs []Message) (int, error) { return call(unix.SYS_SENDMMSG, fd, msgs) }

// Receive takes in messages that have come without waiting, and returns how many.
func Receive(fd int, msgs []Message) (int, error) { return call(unix.SYS_RECVMMSG, fd, msgs) }

func call(number uintptr, fd int, msgs []Message) (int, error) {
	for {
		n, _, errno := unix.Syscall6(number, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)),
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

// Control is what the kernel is told of a message besides its bytes, or tells: there is room for a traffic class and a
// length.
type Control [64]byte

// Add adds a control message of so many bytes behind n bytes of others, and returns where its value goes.
func (c *Control) Add(n *int, level, kind, size int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[*n]))
	*h = unix.Cmsghdr{Level: int32(level), Type: int32(kind)}
	h.SetLen(unix.CmsgLen(size))
	at := unsafe.Pointer(&c[*n+unix.CmsgLen(0)])
	*n += unix.CmsgSpace(size)
	return at
}

// Set makes the first n bytes of c those of a message.
func (m *Message) Set(c *Control, n int) {
	m.Control, m.Controllen = nil, uint64(n)
	if n > 0 {
		m.Control = &c[0]
	}
}

// Cut tells the kernel to cut a message into datagrams of so many bytes; n is as in Add.
func (c *Control) Cut(n *int, bytes int) {
	*(*uint16)(c.Add(n, unix.SOL_UDP, unix.UDP_SEGMENT, 2)) = uint16(bytes)
}

// Facts is what the kernel says of a message that has come.
type Facts struct {
	Class uint8
	Each  int // bytes of a datagram; all are one if 0
}

// Read reads the facts from n bytes of control messages: the traffic class, as one byte (IPv4) or as an integer, and
// the length of the datagrams that were put together.
func (c *Control) Read(n uint64) (f Facts) {
	for rest := c[:min(n, uint64(len(c)))]; len(rest) >= unix.CmsgLen(0)+1; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&rest[0]))
		value := unsafe.Pointer(&rest[unix.CmsgLen(0)])
		switch {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_TOS, h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_TCLASS:
			f.Class = *(*uint8)(value) // little-endian, and less than 256
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && h.Len >= uint64(unix.CmsgLen(4)):
			f.Each = int(*(*int32)(value))
		}
		if h.Len < uint64(unix.CmsgLen(0)) || h.Len > uint64(len(rest)) {
			break
		}
		rest = rest[min(len(rest), unix.CmsgSpace(int(h.Len)-unix.CmsgLen(0))):]
	}
	return f
}

// Swap is a port as the kernel wants it in a name.
func Swap(port uint16) uint16 { return port<<8 | port>>8 }

// Name is an address and a port as a socket of IPv6 takes them; one of IPv4 becomes its form in IPv6.
func Name(at netip.AddrPort, zone uint32) unix.RawSockaddrInet6 {
	return unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: Swap(at.Port()), Addr: at.Addr().As16(), Scope_id: zone}
}

// Option is a socket option that has to be granted.
type Option struct{ Level, Name, Value int }

// WantBuffer is how much the kernel is asked to keep of what has come; it gives what it allows.
const WantBuffer = 4 << 20

// Open makes a socket for datagrams of IPv6 and IPv4, or of IPv4 alone, that are never fragmented on their way, does
// not wait, and is put together by the kernel where it can. Somebody else binds it.
func Open(onlyIPv4 bool, options ...Option) (int, error) {
	family := unix.AF_INET6
	if onlyIPv4 {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return -1, err
	}
	for _, o := range append([]Option{
		{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0},
		{unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
	}, options...) {
		if onlyIPv4 && o.Level == unix.SOL_IPV6 {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.Level, o.Name, o.Value); err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	for _, name := range [...]int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, name, WantBuffer)
	}
	return fd, nil
}

// Cuts reports whether the kernel cuts messages of a socket.
func Cuts(fd int) bool { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == nil }
