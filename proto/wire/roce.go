package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"

	"softib/proto/ib"
)

// RoCEv2 (IBA annex A17): BTH and all that follows it as the payload of a UDP datagram. IP takes GRH's place, so that a
// packet here keeps its addresses, traffic class and hop limit in GRH, IPv4 addresses as IPv6 maps them, and has an
// LRH that no wire sees.

// RoCEPort is the UDP port that RoCEv2 packets go to (A17.3.1.2).
const RoCEPort = 4791

// Lengths of the headers in front of BTH, which the ICRC covers.
const (
	ipv4Size = 20
	udpSize  = 8
	ipUDP    = 17 // IP's number for UDP
)

// Bits of IPv4's third word.
const (
	ipv4ID           = 4
	ipv4DontFragment = 0x40 // of byte 6
)

// roceMinSize is that of the shortest datagram.
const roceMinSize = BTHSize + ICRCSize

// roceMaxSize is that of the longest: every extended header and the largest MTU.
const roceMaxSize = BTHSize + 64 + 4096 + ICRCSize

// RoCESize is how many bytes AppendRoCE writes.
func (p *Packet) RoCESize() int {
	return BTHSize + int(p.BTH.Opcode.Info().ExtSize) + p.PayloadLen() + p.pad() + ICRCSize
}

// AppendRoCE writes the packet as a datagram from a UDP port. The ICRC covers IP's header, so the IP layer has to send
// it as it is told here: between the GIDs' addresses, over IPv4 not to be fragmented and with an identification. What
// goes for Append goes here as well.
func (p *Packet) AppendRoCE(b []byte, from, id uint16) []byte {
	b = slices.Grow(b, p.RoCESize())
	start := len(b)
	b = p.BTH.Append(b)
	b = p.appendExt(b, p.BTH.Opcode.Info().Ext)
	b = append(b, p.Payload...)
	b = append(b, zeroPad[:p.pad()]...)
	crc := roceICRC(p.GRH.SGID, p.GRH.DGID, from, id, b[start:])
	return binary.LittleEndian.AppendUint32(b, crc)
}

// RoCEHeadroom is how much room PutRoCE needs in front of a payload.
const RoCEHeadroom = BTHSize + 64

// PutRoCE writes what AppendRoCE does to b, whose bytes from RoCEHeadroom on have the payload already or get it now,
// and returns where it is.
func (p *Packet) PutRoCE(b []byte, from, id uint16) []byte {
	info := p.BTH.Opcode.Info()
	start := RoCEHeadroom - BTHSize - int(info.ExtSize)
	if len(p.Payload) > 0 && &p.Payload[0] != &b[RoCEHeadroom] {
		copy(b[RoCEHeadroom:], p.Payload)
	}
	p.appendExt(p.BTH.Append(b[:start]), info.Ext)
	end := RoCEHeadroom + len(p.Payload)
	end += copy(b[end:], zeroPad[:p.pad()])
	binary.LittleEndian.PutUint32(b[end:], roceICRC(p.GRH.SGID, p.GRH.DGID, from, id, b[start:end]))
	return b[start : end+ICRCSize]
}

// RoCESource is what the IP layer says of a datagram to RoCEPort.
type RoCESource struct {
	From, To ib.GID
	Port     uint16 // UDP's, at the source
	TClass   uint8  // DSCP and ECN
	HopLimit uint8
}

// ParseRoCE reads a datagram. GRH has what IP said; LRH is that of a global packet of this length, without addresses.
//
// An ordinary socket does not show IPv4's identification, which the ICRC covers. The CRC is linear, so that it says
// itself which identification would make it right, together with the flags beside it: it is right if those are as a
// sender can have set them. That leaves an error in a datagram a chance of 2^-15 here, behind the checksums of UDP and
// of Ethernet.
func (p *Packet) ParseRoCE(b []byte, s RoCESource) error {
	p.Count, p.FarLen, p.Far = 0, 0, nil
	switch {
	case len(b) < roceMinSize:
		return truncated("RoCE", len(b), roceMinSize)
	case len(b)%4 != 0 || len(b) > roceMaxSize:
		return &ParseError{Kind: ErrLength, Layer: "RoCE", Field: "datagram", Got: uint64(len(b)), Want: roceMaxSize}
	}
	body := b[:len(b)-ICRCSize]
	crc, want := roceICRC(s.From, s.To, s.Port, 0, body), binary.LittleEndian.Uint32(b[len(body):])
	if crc != want && !(IsIPv4(s.From) && roceIDFits(crc^want, len(body))) {
		return &ParseError{Kind: ErrICRC, Layer: "RoCE", Field: "ICRC", Got: uint64(bits.ReverseBytes32(want)),
			Want: uint64(bits.ReverseBytes32(crc))}
	}
	p.LRH = LRH{LNH: LNHGlobal, Length: uint16((LRHSize + GRHSize + len(b)) / 4)}
	p.GRH = GRH{IPVer: GRHVersion, TClass: s.TClass, PayLen: uint16(len(b)), NxtHdr: GRHNextIBA, HopLimit: s.HopLimit,
		SGID: s.From, DGID: s.To}
	n, err := p.BTH.parse(body)
	if err != nil {
		return err
	}
	return p.parseTransport(body[n:])
}

// roceICRC is the ICRC of a datagram whose bytes before it are b: of eight bytes of ones in LRH's place, of the headers
// of IP and UDP and of b, with ones for what changes on the way (A17.3.3).
func roceICRC(from, to ib.GID, port, id uint16, b []byte) uint32 {
	var room [ipv6Size + udpSize + bthResv8a + 1]byte
	h := room[:0]
	length := uint16(udpSize + len(b) + ICRCSize)
	if IsIPv4(from) {
		// Type of service, time to live and checksum are ones.
		h = append(h, 0x45, 0xFF)
		h = binary.BigEndian.AppendUint16(h, ipv4Size+length)
		h = binary.BigEndian.AppendUint16(h, id)
		h = append(h, ipv4DontFragment, 0, 0xFF, ipUDP, 0xFF, 0xFF)
		h = append(h, from[12:]...)
		h = append(h, to[12:]...)
	} else {
		// Traffic class, flow label and hop limit are.
		h = append(h, 0x6F, 0xFF, 0xFF, 0xFF)
		h = binary.BigEndian.AppendUint16(h, length)
		h = append(h, ipUDP, 0xFF)
		h = append(h, from[:]...)
		h = append(h, to[:]...)
	}
	h = binary.BigEndian.AppendUint16(h, port)
	h = binary.BigEndian.AppendUint16(h, RoCEPort)
	h = binary.BigEndian.AppendUint16(h, length)
	h = append(h, 0xFF, 0xFF)
	h = append(h, b[:bthResv8a]...)
	h = append(h, 0xFF)
	crc := crc32.Update(icrcMaskedLRH, crc32.IEEETable, h)
	return crc32.Update(crc, crc32.IEEETable, b[bthResv8a+1:])
}

// ipv6Size is the length of IPv6's header.
const ipv6Size = GRHSize

// ipv4Prefix is how IPv6 maps IPv4's addresses.
var ipv4Prefix = [12]byte{10: 0xFF, 11: 0xFF}

// IsIPv4 reports whether a GID is an IPv4 address, as IPv6 maps it.
func IsIPv4(g ib.GID) bool { return [12]byte(g[:12]) == ipv4Prefix }

// Area is what a datagram's receiver finds in front of the payload: GRH, or zeros and IPv4's header (A17.4.5.1).
func (h *GRH) Area() (a [GRHSize]byte) {
	if !IsIPv4(h.SGID) {
		h.Append(a[:0])
		return a
	}
	b := append(a[:GRHSize-ipv4Size], 0x45, h.TClass)
	b = binary.BigEndian.AppendUint16(b, ipv4Size+udpSize+h.PayLen)
	b = append(b, 0, 0, ipv4DontFragment, 0, h.HopLimit, ipUDP, 0, 0)
	b = append(b, h.SGID[12:]...)
	b = append(b, h.DGID[12:]...)
	// Programs tell the two by the checksum (RFC 791).
	var sum uint32
	for i := GRHSize - ipv4Size; i < GRHSize; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	binary.BigEndian.PutUint16(a[GRHSize-10:], ^uint16(sum>>16+sum))
	return a
}

// roceIDFits reports whether an ICRC that is off by diff is right for some identification of IPv4's header and for
// either value of its flag not to fragment, given n bytes from BTH to the ICRC.
func roceIDFits(diff uint32, n int) bool {
	// A difference in four bytes of the header has moved on by all the bytes after them, and itself by its own four:
	// taken back by that, it stands there as it was.
	back := ipv4Size - ipv4ID + udpSize + n
	v := crcTimes(diff, crcBack[back])
	return v>>16&^ipv4DontFragment == 0
}

// crcBack[n] is x^-8n modulo the CRC's polynomial: to multiply by it takes n bytes of zeros back out of a register.
var crcBack = func() (t [ipv4Size + udpSize + roceMaxSize]uint32) {
	c := uint32(1) << 31 // x^0: registers are reflected
	for i := range t {
		t[i] = c
		for range 8 {
			if c>>31 == 1 {
				c = (c^crc32.IEEE)<<1 | 1
			} else {
				c <<= 1
			}
		}
	}
	return t
}()

// crcTimes multiplies two reflected polynomials modulo the CRC's.
func crcTimes(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}
