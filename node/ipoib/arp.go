package ipoib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Offsets of an ARP packet with link-layer addresses of 20 bytes (RFC 826, RFC 4391 section 9.2).
const (
	arpOpOff       = 6
	arpSenderOff   = 8
	arpSenderIPOff = arpSenderOff + LinkAddrSize
	arpTargetOff   = arpSenderIPOff + 4
	arpTargetIPOff = arpTargetOff + LinkAddrSize
	arpSize        = arpTargetIPOff + 4
)

// Fixed fields of such packets.
const (
	arpHardware  = 32 // InfiniBand
	arpProtocol  = uint16(IPv4)
	arpLengths   = LinkAddrSize<<8 | 4
	arpRequestOp = 1
	arpReplyOp   = 2
)

// arpPacket is a question for the link-layer address of an IPv4 address, or the answer.
type arpPacket struct {
	op                 uint16
	sender, target     LinkAddr
	senderIP, targetIP netip.Addr
}

func parseARP(b []byte) (p arpPacket, err error) {
	be := binary.BigEndian
	if len(b) < arpSize {
		return p, fmt.Errorf("ipoib: ARP packet of %d bytes, want %d: %w", len(b), arpSize, ErrFormat)
	}
	if h, f, l := be.Uint16(b), be.Uint16(b[2:]), be.Uint16(b[4:]); h != arpHardware || f != arpProtocol ||
		l != arpLengths {
		return p, fmt.Errorf("ipoib: ARP packet for hardware %d, protocol 0x%04x, lengths 0x%04x, want %d, 0x%04x, "+
			"0x%04x: %w", h, f, l, arpHardware, arpProtocol, arpLengths, ErrFormat)
	}
	p.op = be.Uint16(b[arpOpOff:])
	if p.op != arpRequestOp && p.op != arpReplyOp {
		return p, fmt.Errorf("ipoib: ARP operation %d, want %d or %d: %w", p.op, arpRequestOp, arpReplyOp, ErrFormat)
	}
	p.sender, _ = ParseLinkAddr(b[arpSenderOff:arpSenderIPOff])
	p.target, _ = ParseLinkAddr(b[arpTargetOff:arpTargetIPOff])
	p.senderIP = netip.AddrFrom4([4]byte(b[arpSenderIPOff:]))
	p.targetIP = netip.AddrFrom4([4]byte(b[arpTargetIPOff:]))
	return p, nil
}

func (p *arpPacket) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, arpHardware)
	b = be.AppendUint16(b, arpProtocol)
	b = be.AppendUint16(b, arpLengths)
	b = be.AppendUint16(b, p.op)
	for _, end := range []struct {
		link LinkAddr
		ip   netip.Addr
	}{{p.sender, p.senderIP}, {p.target, p.targetIP}} {
		b = end.link.Append(b)
		v := end.ip.As4()
		b = append(b, v[:]...)
	}
	return b
}
