package ipoib

import (
	"bytes"
	"encoding/binary"
)

// Frame is what is handed to the host at once: a packet, or a run of segments of one TCP connection that is handed over
// as the one packet that they were, or could have been, cut from.
type Frame struct {
	// Head is in front of the pieces, and empty for a packet that is handed over as it came.
	Head    []byte
	Pieces  [][]byte
	Offload Offload
}

// runsMax is how many connections are put together at the same time, and frameMax what the length of IP can say.
const (
	runsMax  = 8
	frameMax = 65535
)

// Coalescer puts segments of TCP together that follow each other: the host has the more to do the more packets there
// are, whatever their lengths. It keeps the order of each connection's segments. Packets are its until they were polled
// as frames.
type Coalescer struct {
	runs  []*run
	ready []*run
	free  []*run
	given *run
}

// run is a packet, or several that follow each other.
type run struct {
	frame   Frame
	head    [headerMax]byte
	first   []byte // the packet as it came
	ip, all int
	kind    SegmentKind
	size    int // of the first payload, and of all but the last
	total   int
	next    uint32 // the sequence number that follows
	closed  bool   // nothing follows
}

// Add takes a packet.
func (c *Coalescer) Add(p []byte) {
	ip, all, kind, ok := tcpHeaders(p)
	if !ok {
		c.alone(p)
		return
	}
	at := -1
	for i, r := range c.runs {
		if r.kind == kind && sameConnection(r.first, p, ip) {
			at = i
			break
		}
	}
	plain := isPlain(p, ip, all, kind)
	if at >= 0 {
		r := c.runs[at]
		if plain && r.extend(p, ip, all) {
			return
		}
		c.finish(at)
	}
	if !plain {
		c.alone(p)
		return
	}
	if len(c.runs) == runsMax {
		c.finish(0)
	}
	r := c.make(p)
	r.ip, r.all, r.kind, r.size = ip, all, kind, len(p)-all
	r.total = len(p)
	r.next = binary.BigEndian.Uint32(p[ip+4:]) + uint32(r.size)
	r.closed = p[ip+13]&tcpPSH != 0
	c.runs = append(c.runs, r)
}

// Flush ends all runs.
func (c *Coalescer) Flush() {
	for len(c.runs) > 0 {
		c.finish(0)
	}
}

// Poll is the next frame, good until the next Poll.
func (c *Coalescer) Poll() (*Frame, bool) {
	if c.given != nil {
		c.free = append(c.free, c.given)
		c.given = nil
	}
	if len(c.ready) == 0 {
		return nil, false
	}
	c.given = c.ready[0]
	c.ready = c.ready[:copy(c.ready, c.ready[1:])]
	return &c.given.frame, true
}

func (c *Coalescer) make(p []byte) *run {
	var r *run
	if n := len(c.free); n > 0 {
		r = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		r = &run{}
	}
	pieces := append(r.frame.Pieces[:0], p)
	r.frame = Frame{Pieces: pieces, Offload: Offload{IsValid: true}}
	r.first, r.closed, r.kind = p, false, Whole
	return r
}

// alone has a packet handed over as it came, and now.
func (c *Coalescer) alone(p []byte) { c.ready = append(c.ready, c.make(p)) }

// finish hands a run over.
func (c *Coalescer) finish(i int) {
	r := c.runs[i]
	c.runs = append(c.runs[:i], c.runs[i+1:]...)
	if len(r.frame.Pieces) > 1 {
		r.write()
	}
	c.ready = append(c.ready, r)
}

// sameConnection compares addresses and ports.
func sameConnection(a, b []byte, ip int) bool {
	from := 12
	if ip == ipv6Size {
		from = 8
	}
	return bytes.Equal(a[from:ip+4], b[from:ip+4])
}

// isPlain reports whether a segment is nothing but data: the length is that of the packet, no fragment, no flags but
// ACK and PSH.
func isPlain(p []byte, ip, all int, kind SegmentKind) bool {
	be := binary.BigEndian
	if kind == TCPv4 {
		if int(be.Uint16(p[2:])) != len(p) || be.Uint16(p[6:])&0x3FFF != 0 {
			return false
		}
	} else if int(be.Uint16(p[4:])) != len(p)-ipv6Size {
		return false
	}
	return len(p) > all && len(p) <= frameMax && p[ip+13]&^tcpPSH == tcpACK
}

// extend puts a segment behind a run, if it follows.
func (r *run) extend(p []byte, ip, all int) bool {
	n := len(p) - all
	be := binary.BigEndian
	if r.closed || all != r.all || n > r.size || r.total+n > frameMax || be.Uint32(p[ip+4:]) != r.next {
		return false
	}
	// What the host would see of each: type of service, hops and flags of IP, the acknowledgement, the window, and the
	// options of TCP.
	f := r.first
	if r.kind == TCPv4 {
		if f[1] != p[1] || f[6] != p[6] || f[8] != p[8] {
			return false
		}
	} else if !bytes.Equal(f[:4], p[:4]) || f[7] != p[7] {
		return false
	}
	if !bytes.Equal(f[ip+8:ip+12], p[ip+8:ip+12]) || !bytes.Equal(f[ip+14:ip+16], p[ip+14:ip+16]) ||
		!bytes.Equal(f[ip+18:all], p[ip+18:all]) {
		return false
	}
	if len(r.frame.Pieces) == 1 {
		copy(r.head[:], f[:all])
		r.frame.Pieces[0] = f[all:]
	}
	r.frame.Pieces = append(r.frame.Pieces, p[all:])
	r.total += n
	r.next += uint32(n)
	r.head[ip+13] |= p[ip+13]
	r.closed = n < r.size || p[ip+13]&tcpPSH != 0
	return true
}

// write makes the headers of a run of several.
func (r *run) write() {
	be := binary.BigEndian
	h := r.head[:r.all]
	if r.kind == TCPv4 {
		be.PutUint16(h[2:], uint16(r.total))
		setIPv4Checksum(h[:ipv4Size])
	} else {
		be.PutUint16(h[4:], uint16(r.total-ipv6Size))
	}
	be.PutUint16(h[r.ip+16:], fold(pseudo(h, protoTCP, r.total-r.ip)))
	r.frame.Head = h
	r.frame.Offload = Offload{NeedsChecksum: true, ChecksumStart: uint16(r.ip), ChecksumOffset: 16, Kind: r.kind,
		Size: uint16(r.size), HeaderLen: uint16(r.all)}
}
