package live

import (
	"encoding/binary"
	"net/netip"
)

// Hosts have addresses that rdma_cm programs use; no interface of the machine needs to have them. IPv4 ones are from
// the block that is set aside for benchmarks (RFC 2544), IPv6 ones from a unique local prefix (RFC 4193) that spells
// softib.
var (
	hostNet  = netip.MustParsePrefix("198.18.0.0/15")
	hostNet6 = netip.MustParsePrefix("fd53:6f66:7469:6200::/64")
)

// HostIP is the IPv4 address of host number i of any fabric, counted from 1 in the graph's order.
func HostIP(i int) netip.Addr {
	b := hostNet.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
	return netip.AddrFrom4(b)
}

// HostIP6 is its IPv6 address.
func HostIP6(i int) netip.Addr {
	b := hostNet6.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	return netip.AddrFrom16(b)
}

// HostByIP finds the host that has an address of either family.
func (f *Fabric) HostByIP(a netip.Addr) (*Host, bool) {
	var number uint64 // from 1 on
	switch a = a.WithZone("").Unmap(); {
	case hostNet.Contains(a):
		b, first := a.As4(), hostNet.Addr().As4()
		number = uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(first[:]))
	case hostNet6.Contains(a):
		b := a.As16()
		number = binary.BigEndian.Uint64(b[8:])
	}
	if number == 0 || number > uint64(len(f.hosts)) {
		return nil, false
	}
	return f.hosts[number-1], true
}

// IP is the host's IPv4 address.
func (h *Host) IP() netip.Addr { return HostIP(h.index + 1) }

// IP6 is its IPv6 address.
func (h *Host) IP6() netip.Addr { return HostIP6(h.index + 1) }
