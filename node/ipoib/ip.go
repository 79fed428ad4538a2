package ipoib

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
)

// ErrFormat is matched by whatever is not as the RFCs want it.
var ErrFormat = errors.New("not as it must be")

// Sizes and protocols of IP.
const (
	ipv4Size = 20
	ipv6Size = 40
	tcpSize  = 20
	udpSize  = 8

	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// packetAddrs reads who sends a packet of IP to whom.
func packetAddrs(b []byte) (p Protocol, src, dst netip.Addr, ok bool) {
	switch {
	case len(b) >= ipv4Size && b[0]>>4 == 4:
		return IPv4, netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), true
	case len(b) >= ipv6Size && b[0]>>4 == 6:
		return IPv6, netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), true
	}
	return 0, src, dst, false
}

// isReport reports whether a packet is a host's report of the groups that it listens to: IGMP, or MLD behind the option
// that routers look at (RFC 2710 section 3).
func isReport(b []byte) bool {
	if b[0]>>4 == 4 {
		return b[9] == protoIGMP
	}
	const hopByHop = 8
	if b[6] != 0 || len(b) <= ipv6Size+hopByHop || b[ipv6Size] != protoICMPv6 || b[ipv6Size+1] != 0 {
		return false
	}
	switch b[ipv6Size+hopByHop] {
	case 131, 132, 143: // report and done, and the report of version 2 (RFC 3810)
		return true
	}
	return false
}

func appendIPv6(b []byte, length int, next, hops byte, src, dst netip.Addr) []byte {
	b = append(b, 0x60, 0, 0, 0, byte(length>>8), byte(length), next, hops)
	s, d := src.As16(), dst.As16()
	b = append(b, s[:]...)
	return append(b, d[:]...)
}

// sum adds 16-bit words in the order of the network to a sum that is not folded (RFC 1071). The words are taken eight
// bytes at a time: carries may come at any place, since the sum is one's complement.
func sum(s uint64, b []byte) uint64 {
	var c uint64
	for len(b) >= 64 {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[24:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[32:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[40:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[48:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[56:]), c)
		b = b[64:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
		b = b[8:]
	}
	if len(b) > 0 {
		var rest [8]byte
		copy(rest[:], b)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(rest[:]), c)
	}
	s, c = bits.Add64(s, 0, c)
	return s + c
}

// fold makes a sum one of 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xFFFFFFFF
	s = s>>32 + s&0xFFFFFFFF
	s = s>>16 + s&0xFFFF
	s = s>>16 + s&0xFFFF
	return uint16(s>>16 + s&0xFFFF)
}

// pseudo is the sum of the pseudo-header of a packet of IP for what its transport carries (RFC 768, RFC 8200 8.1).
func pseudo(b []byte, proto uint8, length int) uint64 {
	s := uint64(proto) + uint64(length)
	if b[0]>>4 == 4 {
		return sum(s, b[12:20])
	}
	return sum(s, b[8:40])
}

// checksumICMPv6 is what is to be put into the checksum of an ICMPv6 packet where that is 0, and 0 where it is right.
func checksumICMPv6(b []byte) uint16 {
	return ^fold(sum(pseudo(b, protoICMPv6, len(b)-ipv6Size), b[ipv6Size:]))
}

// setIPv4Checksum writes the checksum of a header.
func setIPv4Checksum(h []byte) {
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], ^fold(sum(0, h)))
}

// Codes of what a sender is told (RFC 792, RFC 1191, RFC 4443).
const (
	icmpUnreachable     = 3
	icmpHostUnreachable = 1
	icmpTooBig          = 4

	icmpv6Unreachable        = 1
	icmpv6AddressUnreachable = 3
	icmpv6TooBig             = 2
)

// complaint is the ICMP packet that tells the sender of p why it does not arrive: nobody has the address, or, with an
// MTU, that it is too big. It is nil where no such packet may be sent: about another of its kind, about fragments but
// the first, about what was sent to many (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
func complaint(p []byte, mtu int) []byte {
	const quoteMax = 576 - ipv4Size - 8
	proto, src, dst, ok := packetAddrs(p)
	if !ok || src.IsUnspecified() || src.IsMulticast() || dst.IsMulticast() || dst == limitedBroadcast {
		return nil
	}
	be := binary.BigEndian
	if proto == IPv4 {
		n := int(p[0]&0xF) * 4
		if n < ipv4Size || len(p) < n || be.Uint16(p[6:])&0x1FFF != 0 {
			return nil
		}
		if p[9] == protoICMP && (len(p) <= n || p[n] != 0 && p[n] != 8) {
			return nil
		}
		code := byte(icmpHostUnreachable)
		if mtu > 0 {
			code = icmpTooBig
		}
		quote := p[:min(len(p), quoteMax)]
		b := make([]byte, 0, ipv4Size+8+len(quote))
		b = append(b, 0x45, 0xC0, 0, 0, 0, 0, 0, 0, 64, protoICMP, 0, 0)
		b = append(b, p[12:16]...) // from the interface itself
		b = append(b, p[12:16]...)
		b = append(b, icmpUnreachable, code, 0, 0, 0, 0, byte(mtu>>8), byte(mtu))
		b = append(b, quote...)
		be.PutUint16(b[2:], uint16(len(b)))
		setIPv4Checksum(b[:ipv4Size])
		be.PutUint16(b[ipv4Size+2:], ^fold(sum(0, b[ipv4Size:])))
		return b
	}
	if p[6] == protoICMPv6 && (len(p) <= ipv6Size || p[ipv6Size] < 128 || isND(p)) {
		return nil
	}
	quote := p[:min(len(p), 1280-ipv6Size-8)]
	b := appendIPv6(make([]byte, 0, ipv6Size+8+len(quote)), 8+len(quote), protoICMPv6, 64, src, src)
	if mtu > 0 {
		b = append(b, icmpv6TooBig, 0, 0, 0)
	} else {
		b = append(b, icmpv6Unreachable, icmpv6AddressUnreachable, 0, 0)
	}
	b = be.AppendUint32(b, uint32(mtu))
	b = append(b, quote...)
	be.PutUint16(b[ipv6Size+2:], checksumICMPv6(b))
	return b
}
