package ipoib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// ICMPv6 types of neighbour discovery (RFC 4861 section 4).
const (
	ndSolicitation  = 135
	ndAdvertisement = 136
)

// Offsets and flags of both messages, which differ in their options only.
const (
	ndFlagsOff  = 4
	ndTargetOff = 8
	ndSize      = 24

	ndSolicited = 0x40
	ndOverride  = 0x20

	ndSourceOption = 1
	ndTargetOption = 2
	// ndOptionSize is an option with a link-layer address: type, length in units of 8 bytes, two bytes of padding and
	// the address (RFC 4391 section 9.3).
	ndOptionSize = 4 + LinkAddrSize
)

// ndMessage is a neighbour solicitation or advertisement.
type ndMessage struct {
	typ       uint8
	solicited bool
	override  bool
	src, dst  netip.Addr
	target    netip.Addr
	link      LinkAddr // from the option of the message's kind
	hasLink   bool
}

// isND reports whether an IPv6 packet is a neighbour solicitation or advertisement, right or not. Neither has extension
// headers in front (RFC 6980 forbids fragments, and nobody sends others).
func isND(b []byte) bool {
	return len(b) > ipv6Size && b[6] == protoICMPv6 && (b[ipv6Size] == ndSolicitation || b[ipv6Size] == ndAdvertisement)
}

// parseND reads one of which isND has said that it is there, and checks what RFC 4861 sections 7.1.1 and 7.1.2 want.
func parseND(b []byte) (m ndMessage, err error) {
	be := binary.BigEndian
	n := int(be.Uint16(b[4:])) + ipv6Size
	if n > len(b) || n < ipv6Size+ndSize {
		return m, fmt.Errorf("ipoib: neighbour discovery of %d bytes in %d, want at least %d: %w", n, len(b),
			ipv6Size+ndSize, ErrFormat)
	}
	b = b[:n]
	if b[7] != 255 {
		return m, fmt.Errorf("ipoib: neighbour discovery with hop limit %d, want 255: %w", b[7], ErrFormat)
	}
	if sum := checksumICMPv6(b); sum != 0 {
		return m, fmt.Errorf("ipoib: neighbour discovery whose checksum is off by 0x%04x: %w", sum, ErrFormat)
	}
	icmp := b[ipv6Size:]
	m = ndMessage{typ: icmp[0], solicited: icmp[ndFlagsOff]&ndSolicited != 0,
		override: icmp[ndFlagsOff]&ndOverride != 0, src: netip.AddrFrom16([16]byte(b[8:])),
		dst:    netip.AddrFrom16([16]byte(b[24:])),
		target: netip.AddrFrom16([16]byte(icmp[ndTargetOff:]))}
	if icmp[1] != 0 || m.target.IsMulticast() {
		return m, fmt.Errorf("ipoib: neighbour discovery with code %d for %v: %w", icmp[1], m.target, ErrFormat)
	}
	want := byte(ndSourceOption)
	if m.typ == ndAdvertisement {
		want = ndTargetOption
	}
	for o := icmp[ndSize:]; len(o) > 0; {
		if len(o) < 2 || o[1] == 0 || int(o[1])*8 > len(o) {
			return m, fmt.Errorf("ipoib: neighbour discovery with an option that does not end: %w", ErrFormat)
		}
		if o[0] == want && int(o[1])*8 == ndOptionSize {
			m.link, _ = ParseLinkAddr(o[4:ndOptionSize])
			m.hasLink = true
		}
		o = o[int(o[1])*8:]
	}
	return m, nil
}

// append writes the message as an IPv6 packet.
func (m *ndMessage) append(b []byte) []byte {
	at := len(b)
	n := ndSize
	if m.hasLink {
		n += ndOptionSize
	}
	b = appendIPv6(b, n, protoICMPv6, 255, m.src, m.dst)
	flags, option := byte(0), byte(ndSourceOption)
	if m.solicited {
		flags |= ndSolicited
	}
	if m.override {
		flags |= ndOverride
	}
	if m.typ == ndAdvertisement {
		option = ndTargetOption
	}
	b = append(b, m.typ, 0, 0, 0, flags, 0, 0, 0)
	v := m.target.As16()
	b = append(b, v[:]...)
	if m.hasLink {
		b = append(b, option, ndOptionSize/8, 0, 0)
		b = m.link.Append(b)
	}
	binary.BigEndian.PutUint16(b[at+ipv6Size+2:], checksumICMPv6(b[at:]))
	return b
}
