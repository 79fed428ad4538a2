package rdmacm

import (
	"encoding/binary"
	"net/netip"

	"softib/proto/ib"
)

// Families of addresses, as Linux numbers them.
const (
	afNone  = 0
	afInet  = 2
	afInet6 = 10
	afIB    = 27
)

// sockaddr is an address of any family that rdma_cm has: struct sockaddr_in, sockaddr_in6 or sockaddr_ib. It is
// comparable.
type sockaddr struct {
	family uint16

	ip   netip.Addr // of the IP families
	port uint16
	flow uint32 // as on the wire; of IPv6 and InfiniBand
	// scope is an interface in IPv6, and nothing that matters in InfiniBand.
	scope uint64

	pkey      ib.PKey
	gid       ib.GID
	sid, mask uint64
}

// sockaddrSize is how long the struct of a family is, 0 for others.
func sockaddrSize(family uint16) int {
	switch family {
	case afInet:
		return sockaddrIn
	case afInet6:
		return sockaddrIn6
	case afIB:
		return sockaddrIB
	}
	return 0
}

// parseSockaddr reads an address; its family is afNone if there is none, or none that rdma_cm knows.
func parseSockaddr(b []byte) (a sockaddr) {
	if len(b) < 2 {
		return a
	}
	family := native.Uint16(b)
	if n := sockaddrSize(family); n == 0 || len(b) < n {
		return a
	}
	a.family = family
	be := binary.BigEndian
	switch family {
	case afInet:
		a.port, a.ip = be.Uint16(b[2:]), netip.AddrFrom4([4]byte(b[4:]))
	case afInet6:
		a.port, a.flow, a.ip = be.Uint16(b[2:]), be.Uint32(b[4:]), netip.AddrFrom16([16]byte(b[8:]))
		a.scope = uint64(native.Uint32(b[24:]))
	case afIB:
		a.pkey, a.flow, a.gid = ib.PKey(be.Uint16(b[2:])), be.Uint32(b[4:]), ib.GID(b[8:24])
		a.sid, a.mask, a.scope = be.Uint64(b[24:]), be.Uint64(b[32:]), native.Uint64(b[40:])
	}
	return a
}

// put writes the address to b, which has room, and returns its size.
func (a *sockaddr) put(b []byte) int {
	n := sockaddrSize(a.family)
	if n == 0 {
		return 0
	}
	be := binary.BigEndian
	native.PutUint16(b, a.family)
	switch a.family {
	case afInet:
		be.PutUint16(b[2:], a.port)
		if a.ip.IsValid() { // else it is any
			v := a.ip.As4()
			copy(b[4:], v[:])
		}
	case afInet6:
		be.PutUint16(b[2:], a.port)
		be.PutUint32(b[4:], a.flow)
		if a.ip.IsValid() {
			v := a.ip.As16()
			copy(b[8:], v[:])
		}
		native.PutUint32(b[24:], uint32(a.scope))
	case afIB:
		be.PutUint16(b[2:], uint16(a.pkey))
		be.PutUint32(b[4:], a.flow)
		copy(b[8:], a.gid[:])
		be.PutUint64(b[24:], a.sid)
		be.PutUint64(b[32:], a.mask)
		native.PutUint64(b[40:], a.scope)
	}
	return n
}

// loopbackGID is ::1, which stands for this host as in IPv6.
var loopbackGID = ib.GID{15: 1}

// isAny reports whether the address leaves open where it is: the wildcard, and the loopback address, which is every
// port of the host at once.
func (a *sockaddr) isAny() bool {
	if a.family == afIB {
		return a.gid.IsZero() || a.gid == loopbackGID
	}
	return !a.ip.IsValid() || a.ip.IsUnspecified() || a.ip.IsLoopback()
}

var (
	anyIPv4 = netip.IPv4Unspecified()
	anyIPv6 = netip.IPv6Unspecified()
)

// setLoopback makes the address this host's loopback address.
func (a *sockaddr) setLoopback() {
	switch a.family {
	case afInet:
		a.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case afInet6:
		a.ip = netip.IPv6Loopback()
	default:
		a.gid = loopbackGID
	}
}

// setHost makes it the address of a port.
func (a *sockaddr) setHost(ad *Adapter, p *Port) {
	switch a.family {
	case afInet:
		a.ip = ad.IP
	case afInet6:
		a.ip = ad.IP6
	default:
		a.gid = p.GID
	}
}

func (a *sockaddr) isLoopback() bool {
	if a.family == afIB {
		return a.gid == loopbackGID
	}
	return a.ip.IsLoopback()
}

// sameHost compares addresses without ports.
func (a *sockaddr) sameHost(b *sockaddr) bool {
	return a.family == b.family && a.ip == b.ip && a.gid == b.gid
}

// portNum is the port; of an InfiniBand address the part of the service ID that stands for it.
func (a *sockaddr) portNum() uint16 {
	if a.family == afIB {
		return uint16(a.sid & a.mask)
	}
	return a.port
}

func (a *sockaddr) setPort(p uint16) {
	if a.family == afIB {
		a.sid, a.mask = a.sid&a.mask|uint64(p), ^uint64(0)
		return
	}
	a.port = p
}

// portSpace is enum rdma_ucm_port_space: bytes 4 and 5 of the service IDs of its ports (IBA A11.2).
type portSpace uint16

const (
	psIPoIB portSpace = 0x0002
	psIB    portSpace = 0x013F
	psTCP   portSpace = 0x0106
	psUDP   portSpace = 0x0111
)

// serviceID is what a port of a space is called by the connection manager (IBA A11.2).
func serviceID(ps portSpace, a *sockaddr) uint64 {
	if a.family == afIB {
		return a.sid
	}
	return uint64(ps)<<16 | uint64(a.port)
}

// spaceOfServiceID finds the port space of an InfiniBand address's service ID, and what the whole ID and its mask
// become; 0 if the ID is in no space that ps goes with.
func spaceOfServiceID(ps portSpace, a *sockaddr) (space portSpace) {
	const psMask = 0xFFFFFFFFFFFF0000
	mask := a.mask & psMask
	for _, s := range []portSpace{psIB, psTCP, psUDP} {
		if (ps == psIB || ps == s) && a.sid&mask == uint64(s)<<16&mask {
			a.sid = uint64(s)<<16 | uint64(a.portNum())
			a.mask |= psMask
			return s
		}
	}
	return 0
}

// The head that private data of IP addresses begin with (IBA A11.3): version, addresses and the asker's port.
const ipHeadSize = 36

func putIPHead(b []byte, src, dst *sockaddr) {
	version := byte(4)
	if src.family == afInet6 {
		version = 6
	}
	b[0], b[1] = 0, version<<4
	binary.BigEndian.PutUint16(b[2:], src.port)
	putHeadIP(b[4:20], src.ip)
	putHeadIP(b[20:36], dst.ip)
}

// putHeadIP writes an address at the end of 16 bytes.
func putHeadIP(b []byte, a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		copy(b[12:16], v[:])
	} else if a.IsValid() {
		v := a.As16()
		copy(b, v[:])
	}
}

// parseIPHead reads who asks whom.
func parseIPHead(b []byte) (src, dst sockaddr, ok bool) {
	if len(b) < ipHeadSize || b[0] != 0 {
		return src, dst, false
	}
	switch b[1] >> 4 {
	case 4:
		src = sockaddr{family: afInet, ip: netip.AddrFrom4([4]byte(b[16:]))}
		dst = sockaddr{family: afInet, ip: netip.AddrFrom4([4]byte(b[32:]))}
	case 6:
		src = sockaddr{family: afInet6, ip: netip.AddrFrom16([16]byte(b[4:]))}
		dst = sockaddr{family: afInet6, ip: netip.AddrFrom16([16]byte(b[20:]))}
	default:
		return src, dst, false
	}
	src.port = binary.BigEndian.Uint16(b[2:])
	return src, dst, true
}

// Signatures of MGIDs, in their third and fourth byte (RFC 4391 §4). Groups of the UDP port space have one of their
// own, so that rdma_cm's and the IP stack's traffic stay apart.
const (
	signatureIPv4  = 0x401B
	signatureIPv6  = 0x601B
	signatureSA    = 0xA01B
	scopeLinkLocal = 2
)

// groupOf maps a multicast address to its group in a partition. The wildcard gives the zero GID: the administrator
// makes one up.
func groupOf(ps portSpace, a *sockaddr, key ib.PKey) (g ib.GID) {
	switch {
	case a.family == afIB:
		return a.gid
	case a.isAny():
		return g
	case a.family == afInet6 && isMadeUp(a.ip.As16()):
		return a.ip.As16()
	}
	g[0], g[1] = 0xFF, 0x10|scopeLinkLocal
	signature := uint16(signatureIPv4)
	if a.family == afInet6 {
		signature = signatureIPv6
		v := a.ip.As16()
		copy(g[6:], v[6:])
	} else {
		v := a.ip.As4()
		copy(g[12:], v[:])
		g[12] &= 0x0F
	}
	if ps == psUDP {
		signature = signature&0xFF00 | 0x01
	}
	binary.BigEndian.PutUint16(g[2:], signature)
	binary.BigEndian.PutUint16(g[4:], uint16(key|ib.PKeyFull))
	return g
}

// isMadeUp reports whether an IPv6 address is an MGID that an administrator made up.
func isMadeUp(g ib.GID) bool {
	return g[0] == 0xFF && g[1]&0xF0 == 0x10 && binary.BigEndian.Uint16(g[2:]) == signatureSA
}

// broadcastGroup is the group of a partition that every IP host is in, whose parameters others take (RFC 4391 §5).
func broadcastGroup(key ib.PKey) ib.GID {
	g := ib.GID{0xFF, 0x10 | scopeLinkLocal, signatureIPv4 >> 8, signatureIPv4 & 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF,
		15: 0xFF}
	binary.BigEndian.PutUint16(g[4:], uint16(key|ib.PKeyFull))
	return g
}
