package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

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
	room := make([]byte, RoCEHeadroom+p.RoCESize())
	return append(b, p.PutRoCE(room, from, id)...)
}

// RoCEHeadroom is how much room PutRoCE needs in front of a payload: for headers, and for those in front of them that
// the ICRC covers.
const RoCEHeadroom = RoCEBefore + BTHSize + 64

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
	s := RoCESource{From: p.GRH.SGID, To: p.GRH.DGID, Port: from, ID: id}
	binary.LittleEndian.PutUint32(b[end:], s.icrc(b[:end], start))
	return b[start : end+ICRCSize]
}

// RoCESource is what the IP layer says of a datagram to RoCEPort.
type RoCESource struct {
	From, To ib.GID
	Port     uint16 // UDP's, at the source
	TClass   uint8  // DSCP and ECN
	HopLimit uint8
	// ID is IPv4's identification, as far as anybody can guess.
	ID uint16
}

// RoCEBefore is how many bytes in front of a datagram ParseRoCE writes to.
const RoCEBefore = LRHSize + ipv6Size + udpSize

// ParseRoCE reads a datagram, which begins at an offset of b. What is before it is used for the ICRC. GRH has what IP
// said; LRH is that of a global packet of this length, without addresses.
//
// An ordinary socket does not show IPv4's identification, which the ICRC covers. The CRC is linear, so that it says
// itself which identification would make it right, together with the flags beside it: it is right if those are as a
// sender can have set them. That leaves an error in a datagram a chance of 2^-15 here, behind the checksums of UDP and
// of Ethernet.
func (p *Packet) ParseRoCE(all []byte, at int, s *RoCESource) error {
	p.Count, p.FarLen, p.Far = 0, 0, nil
	b := all[at:]
	switch {
	case len(b) < roceMinSize:
		return truncated("RoCE", len(b), roceMinSize)
	case len(b)%4 != 0 || len(b) > roceMaxSize:
		return &ParseError{Kind: ErrLength, Layer: "RoCE", Field: "datagram", Got: uint64(len(b)), Want: roceMaxSize}
	}
	body := b[:len(b)-ICRCSize]
	crc, want := s.icrc(all[:at+len(body)], at), binary.LittleEndian.Uint32(b[len(body):])
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

// icrc is the ICRC of a datagram that begins at an offset of b and ends with it: of eight bytes of ones in LRH's place,
// of the headers of IP and UDP and of the datagram, with ones for what changes on the way (A17.3.3). The headers are
// written in front of it, so that all is one piece.
func (s *RoCESource) icrc(b []byte, at int) uint32 {
	be := binary.BigEndian
	length := uint16(udpSize + len(b) - at + ICRCSize)
	u := b[at-udpSize : at]
	be.PutUint16(u, s.Port)
	be.PutUint16(u[2:], RoCEPort)
	be.PutUint16(u[4:], length)
	u[6], u[7] = 0xFF, 0xFF
	from := at - udpSize
	if IsIPv4(s.From) {
		// Type of service, time to live and checksum are ones.
		from -= ipv4Size
		h := b[from : from+ipv4Size]
		h[0], h[1] = 0x45, 0xFF
		be.PutUint16(h[2:], ipv4Size+length)
		be.PutUint16(h[ipv4ID:], s.ID)
		be.PutUint32(h[6:], ipv4DontFragment<<24|0xFF<<8|ipUDP)
		h[10], h[11] = 0xFF, 0xFF
		copy(h[12:16], s.From[12:])
		copy(h[16:], s.To[12:])
	} else {
		// Traffic class, flow label and hop limit are.
		from -= ipv6Size
		h := b[from : from+ipv6Size]
		be.PutUint32(h, 0x6FFFFFFF)
		be.PutUint16(h[4:], length)
		h[6], h[7] = ipUDP, 0xFF
		copy(h[8:24], s.From[:])
		copy(h[24:], s.To[:])
	}
	from -= LRHSize
	binary.NativeEndian.PutUint64(b[from:], 1<<64-1)
	masked := &b[at+bthResv8a]
	was := *masked
	*masked = 0xFF
	crc := crc32.ChecksumIEEE(b[from:])
	*masked = was
	return crc
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
