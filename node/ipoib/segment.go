package ipoib

import (
	"encoding/binary"
	"fmt"
)

// SegmentKind says what a packet is that the host has left whole for the interface to cut.
type SegmentKind uint8

// Kinds of such packets.
const (
	Whole SegmentKind = iota
	TCPv4
	TCPv6
)

// Offload is what the host and the interface leave to each other.
type Offload struct {
	// NeedsChecksum: the checksum ChecksumOffset bytes behind ChecksumStart has the sum of the pseudo-header, and is to
	// be completed from ChecksumStart on.
	NeedsChecksum                 bool
	ChecksumStart, ChecksumOffset uint16
	// IsValid: the checksums need no look.
	IsValid bool
	// Kind and Size: the packet stands for several whose payloads have Size bytes, all but the last.
	Kind SegmentKind
	Size uint16
	// HeaderLen is the length of all headers, in front of what is cut.
	HeaderLen uint16
}

// headerMax is the most that headers of a packet can have which is cut or put together.
const headerMax = ipv6Size + 60

// tcpHeaders finds the TCP header of a packet without options and extension headers of IP, and its payload.
func tcpHeaders(b []byte) (ip, all int, kind SegmentKind, ok bool) {
	switch {
	case len(b) >= ipv4Size+tcpSize && b[0] == 0x45 && b[9] == protoTCP:
		ip, kind = ipv4Size, TCPv4
	case len(b) >= ipv6Size+tcpSize && b[0]>>4 == 6 && b[6] == protoTCP:
		ip, kind = ipv6Size, TCPv6
	default:
		return 0, 0, 0, false
	}
	n := int(b[ip+12]>>4) * 4
	return ip, ip + n, kind, n >= tcpSize && ip+n <= len(b)
}

// fitsMTU reports whether a packet, or what is cut from it, is short enough.
func fitsMTU(b []byte, o *Offload, mtu int) bool {
	if o.Kind == Whole {
		return len(b) <= mtu
	}
	_, all, _, ok := tcpHeaders(b)
	return ok && all+int(o.Size) <= mtu
}

// Complete writes the checksum that the host has left open. Packets that are to be cut have theirs made then.
func Complete(b []byte, o *Offload) error {
	if !o.NeedsChecksum || o.Kind != Whole {
		return nil
	}
	start, at := int(o.ChecksumStart), int(o.ChecksumStart)+int(o.ChecksumOffset)
	if at+2 > len(b) {
		return fmt.Errorf("ipoib: checksum at byte %d of a packet of %d: %w", at, len(b), ErrFormat)
	}
	c := ^fold(sum(0, b[start:]))
	if c == 0 {
		c = 0xFFFF // in UDP 0 is none (RFC 768), and elsewhere the two are the same
	}
	binary.BigEndian.PutUint16(b[at:], c)
	return nil
}

// Splitter cuts a packet of TCP that the host has left whole.
type Splitter struct {
	b       []byte
	ip, all int
	size    int
	at      int // in the payload
	kind    SegmentKind
	id      uint16
	seq     uint32
}

// Flags of TCP that not all segments have.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpACK = 0x10
	tcpCWR = 0x80
)

// Reset begins with a packet.
func (s *Splitter) Reset(b []byte, o *Offload) error {
	ip, all, kind, ok := tcpHeaders(b)
	if !ok || kind != o.Kind || o.Size == 0 {
		return fmt.Errorf("ipoib: a packet of %d bytes to be cut to %d as kind %d: %w", len(b), o.Size, o.Kind,
			ErrFormat)
	}
	*s = Splitter{b: b, ip: ip, all: all, size: int(o.Size), kind: kind, seq: binary.BigEndian.Uint32(b[ip+4:])}
	if kind == TCPv4 {
		s.id = binary.BigEndian.Uint16(b[4:])
	}
	return nil
}

// Next writes the headers of the next segment to head, which has room for headerMax, and returns their length and the
// payload, which is a part of the packet; false if there is none.
func (s *Splitter) Next(head []byte) (int, []byte, bool) {
	left := s.b[s.all:][s.at:]
	if len(left) == 0 {
		return 0, nil, false
	}
	payload := left[:min(s.size, len(left))]
	head = head[:copy(head[:s.all], s.b)]
	be := binary.BigEndian
	if s.kind == TCPv4 {
		be.PutUint16(head[2:], uint16(s.all+len(payload)))
		be.PutUint16(head[4:], s.id)
		s.id++
		setIPv4Checksum(head[:ipv4Size])
	} else {
		be.PutUint16(head[4:], uint16(s.all-ipv6Size+len(payload)))
	}
	tcp := head[s.ip:]
	be.PutUint32(tcp[4:], s.seq+uint32(s.at))
	if s.at > 0 {
		tcp[13] &^= tcpCWR
	}
	if len(payload) < len(left) {
		tcp[13] &^= tcpFIN | tcpPSH
	}
	tcp[16], tcp[17] = 0, 0
	be.PutUint16(tcp[16:], ^fold(sum(sum(pseudo(head, protoTCP, len(tcp)+len(payload)), tcp), payload)))
	s.at += len(payload)
	return s.all, payload, true
}
