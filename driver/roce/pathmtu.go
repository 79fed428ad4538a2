package roce

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/wire"
)

// A packet is as long as its queue pair's path MTU makes it, and must not be cut on its way. Where a link there has a
// smaller MTU than the interface, a router says so (ICMP), the kernel remembers it for that destination and takes no
// longer datagrams from then on. The queue pair can do nothing about it but end by its retries.

// narrowMax bounds for how many destinations it is remembered that somebody was warned.
const narrowMax = 64

// isTooLong reports whether a datagram of so many bytes is too long for the way to where a flow leads. Of each
// destination somebody is warned once.
func (l *link) isTooLong(f *flow, length int) bool {
	if l.narrow[f.to] {
		return true
	}
	const headerIPv4, headerIPv6, headerUDP = 20, 40, 8
	packet := length + headerUDP + headerIPv6
	if f.from.from.isIPv4() {
		packet = length + headerUDP + headerIPv4
	}
	mtu, err := f.from.from.pathMTU(f.to)
	if err != nil || mtu >= packet {
		return false
	}
	if len(l.narrow) < narrowMax {
		l.narrow[f.to] = true
		l.warn(narrowText(f.to, packet, mtu))
	}
	return true
}

// narrowText says that packets are too long, and what can be done.
func narrowText(to ib.GID, packet, mtu int) string {
	next := "raise the MTU of the links on the way"
	if fits, err := portMTU(mtu); err == nil {
		next = fmt.Sprintf("have both ends use a path MTU of %d at most (perftest: -m %[1]d), or "+next, fits.Bytes())
	}
	return fmt.Sprintf("packets of %d bytes do not pass to %v: a link on the way has an MTU of %d, and they must not "+
		"be fragmented; next: %s", packet, netip.AddrFrom16(to).Unmap(), mtu, next)
}

// pathMTU is the longest packet that the kernel believes to pass from an address to another.
func (a *address) pathMTU(to ib.GID) (int, error) {
	fd, err := a.bind(0, false)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	there := address{gid: to, index: a.index}
	if err := unix.Connect(fd, there.name(wire.RoCEPort)); err != nil {
		return 0, err
	}
	if a.isIPv4() {
		return unix.GetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU)
	}
	return unix.GetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MTU)
}
