package ipoib

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"softib/proto/ib"
)

// LinkAddrSize is the length of a link-layer address (RFC 4391 section 9.1.1).
const LinkAddrSize = 20

// Flags of a link-layer address: which connections its owner takes beside datagrams (RFC 4755 section 3.1).
const (
	TakesRC uint8 = 0x80
	TakesUC uint8 = 0x40
)

// LinkAddr is the link-layer address of an interface: a queue pair for datagrams, and the port that it is at.
type LinkAddr struct {
	Flags uint8
	QPN   ib.QPN
	GID   ib.GID
}

// ParseLinkAddr reads an address.
func ParseLinkAddr(b []byte) (LinkAddr, error) {
	if len(b) < LinkAddrSize {
		return LinkAddr{}, fmt.Errorf("ipoib: link-layer address of %d bytes, want %d: %w", len(b), LinkAddrSize,
			ErrFormat)
	}
	return LinkAddr{Flags: b[0], QPN: ib.QPN(binary.BigEndian.Uint32(b)) & ib.QPNMask, GID: ib.GID(b[4:20])}, nil
}

// Append writes the address after b.
func (a LinkAddr) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(a.Flags)<<24|uint32(a.QPN&ib.QPNMask))
	return append(b, a.GID[:]...)
}

func (a LinkAddr) String() string { return fmt.Sprintf("%02x:%06x:%v", a.Flags, uint32(a.QPN), a.GID) }

// same reports whether two addresses are of one interface; what else it takes may change.
func (a LinkAddr) same(b LinkAddr) bool { return a.QPN == b.QPN && a.GID == b.GID }

// isUsable reports whether datagrams can be sent there.
func (a LinkAddr) isUsable() bool {
	return a.QPN > 1 && a.QPN != ib.QPNMulticast && !a.GID.IsMulticast() && !a.GID.IsZero()
}

// HeaderSize is the length of what is in front of every packet (RFC 4391 section 6).
const HeaderSize = 4

// Protocol is what a packet is, by its Ethernet type.
type Protocol uint16

// Protocols that travel here (RFC 4391 section 6).
const (
	IPv4 Protocol = 0x0800
	ARP  Protocol = 0x0806
	IPv6 Protocol = 0x86DD
)

func (p Protocol) String() string {
	switch p {
	case IPv4:
		return "IPv4"
	case ARP:
		return "ARP"
	case IPv6:
		return "IPv6"
	}
	return fmt.Sprintf("protocol(0x%04x)", uint16(p))
}

// ParseHeader reads the header of a payload and returns what follows it. What is reserved is ignored on receipt.
func ParseHeader(b []byte) (Protocol, []byte, error) {
	if len(b) < HeaderSize {
		return 0, nil, fmt.Errorf("ipoib: payload of %d bytes, want a header of %d: %w", len(b), HeaderSize, ErrFormat)
	}
	return Protocol(binary.BigEndian.Uint16(b)), b[HeaderSize:], nil
}

// AppendHeader writes the header after b.
func AppendHeader(b []byte, p Protocol) []byte { return append(b, byte(p>>8), byte(p), 0, 0) }

// Signatures of MGIDs, in their third and fourth byte (RFC 4391 section 4).
const (
	signatureIPv4 = 0x401B
	signatureIPv6 = 0x601B
)

// GroupOf maps a multicast address of IP to its group in a partition, in the scope of the broadcast group (RFC 4391
// section 4). The limited broadcast address has the broadcast group.
func GroupOf(a netip.Addr, key ib.PKey, scope uint8) (g ib.GID) {
	g[0], g[1] = 0xFF, 0x10|scope&0xF
	binary.BigEndian.PutUint16(g[4:], uint16(key|ib.PKeyFull))
	if a.Is4() {
		v := a.As4()
		binary.BigEndian.PutUint16(g[2:], signatureIPv4)
		copy(g[12:], v[:])
		if a != limitedBroadcast {
			g[12] &= 0x0F
		}
		return g
	}
	v := a.As16()
	binary.BigEndian.PutUint16(g[2:], signatureIPv6)
	copy(g[6:], v[6:])
	return g
}

// BroadcastGroup is the group of a partition that every interface is in.
func BroadcastGroup(key ib.PKey, scope uint8) ib.GID { return GroupOf(limitedBroadcast, key, scope) }

// IsGroup reports whether an MGID is one of IP over InfiniBand's, which take their parameters from the broadcast group
// of their partition (RFC 4391 section 5).
func IsGroup(g ib.GID) bool {
	s := binary.BigEndian.Uint16(g[2:])
	return g[0] == 0xFF && g[1]&0xF0 == 0x10 && (s == signatureIPv4 || s == signatureIPv6)
}

var (
	limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	allHosts         = netip.AddrFrom4([4]byte{224, 0, 0, 1})
	allNodes         = netip.IPv6LinkLocalAllNodes()
)

// solicitedNode is the group that neighbours ask for an address in (RFC 4291 section 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	v := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xFF, 1: 0x02, 11: 1, 12: 0xFF, 13: v[13], 14: v[14], 15: v[15]})
}
