package link

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// BlockSize is the unit of flow-control credits in bytes (IBA 7.9.4.1).
const BlockSize = 64

// FrameFlags are what the driver knows of a packet's bits.
type FrameFlags uint8

// Flags of a frame.
const (
	// BadVCRC marks a packet whose link CRC failed on this hop.
	BadVCRC FrameFlags = 1 << iota
	// BadICRC marks a packet whose end-to-end CRC fails; only the last
	// node looks (IBA 7.8.1).
	BadICRC
	// Copied marks a packet that a fault or multicast has made from another.
	Copied
	// Routed marks a packet for another subnet, whose LIDs are others at each router.
	Routed
)

// IsFlight reports whether a packet has one sender and one receiver that its LIDs name all the way.
func (f *Frame) IsFlight() bool { return f.Flags&Routed == 0 && !f.LRH.DLID.IsMulticast() }

// Frame is a packet on its way. It is in one queue or in one hand at a time.
//
// What a hop reads is here, in one cache line of its own; the rest of the
// packet lies elsewhere and is touched only where it is made and where it ends,
// or where a filter or a capture asks for it. While the packet is on its way
// LRH is here; Packet.LRH is what it was when the packet was made, until Sync.
type Frame struct {
	next *Frame
	// Arrived is when the packet entered the node that holds it.
	Arrived ib.Time
	// Packet is the whole packet, with a stale LRH.
	Packet *wire.Packet
	// Bytes is the length on the wire, both CRCs included.
	Bytes uint16
	// Group is for a node's own use while it holds the frame.
	Group uint16
	// Blocks is the length in credits.
	Blocks uint8
	// InPort and InVL say which receive buffer the packet occupies.
	InPort ib.PortNum
	InVL   ib.VL
	Flags  FrameFlags
	body   *body
	index  uint32
	LRH    wire.LRH

	_ [frameTail]byte
}

// frameTail rounds Frame up to a cache line.
const frameTail = 10

// Index numbers the frame in its pool.
func (f *Frame) Index() uint32 { return f.index }

// body is what a frame points to.
type body struct {
	packet wire.Packet
	buf    []byte
}

// Measure takes over the packet that was made in f.Packet, and sealed: its LRH and
// its length.
func (f *Frame) Measure() {
	n := f.Packet.WireSize()
	// Nothing that long passes any MTU check; it only must not wrap.
	f.Bytes = uint16(min(n, 0xFFFF))
	f.Blocks = uint8(min((n+BlockSize-1)/BlockSize, 0xFF))
	f.LRH = f.Packet.LRH
}

// Seal completes the packet that was made in f.Packet, and measures it.
func (f *Frame) Seal() {
	f.Packet.Seal()
	f.Measure()
}

// Sync writes the LRH back, so that Packet is the packet as it is on the wire now.
func (f *Frame) Sync() *wire.Packet {
	f.Packet.LRH = f.LRH
	return f.Packet
}

// Buf is memory for the payload that belongs to the frame, all of it.
func (f *Frame) Buf() []byte { return f.body.buf }

// Own makes payload, copied into the frame's own memory, the packet's.
func (f *Frame) Own(payload []byte) {
	f.body.packet.Payload = append(f.body.buf[:0], payload...)
}

// Detach gives the packet a payload of its own where it refers to foreign memory.
func (f *Frame) Detach() {
	if p := f.body.packet.Payload; len(p) > 0 && (len(f.body.buf) == 0 || &p[0] != &f.body.buf[0]) {
		f.Own(p)
	}
}

// CopyFrom makes f a packet of its own with the same contents as g.
func (f *Frame) CopyFrom(g *Frame) {
	f.MoveFrom(g)
	f.Own(g.Packet.Payload)
	f.Flags |= Copied
}

// MoveFrom makes f, of another pool, the packet that g was. A payload that lies in foreign memory stays there.
func (f *Frame) MoveFrom(g *Frame) {
	own, next, index := f.body, f.next, f.index
	*f = *g
	f.body, f.Packet, f.next, f.index = own, &own.packet, next, index
	own.packet = *g.Packet
	if p := g.Packet.Payload; len(p) > 0 && len(g.body.buf) > 0 && &p[0] == &g.body.buf[0] {
		f.Own(p)
	}
}

// Pool hands out frames and takes them back, last in first out, so that the
// frames in use stay warm in the cache. The zero value is ready.
type Pool struct {
	free *Frame
	// BufSize is the payload memory that each frame is given.
	BufSize int
	slabs   [][]Frame
	inUse   int
}

// poolSlab is how many frames are allocated at once.
const (
	poolBits = 8
	poolSlab = 1 << poolBits
)

// At is the frame of a number.
func (p *Pool) At(i uint32) *Frame { return &p.slabs[i>>poolBits][i%poolSlab] }

// Get is a frame whose contents are whatever its last user left, apart from
// Flags and Group.
func (p *Pool) Get() *Frame {
	f := p.free
	if f == nil {
		f = p.grow()
	}
	p.free = f.next
	f.next = nil
	f.Flags = 0
	f.Group = 0
	p.inUse++
	return f
}

// Put takes a frame back. Its owner forgets it.
func (p *Pool) Put(f *Frame) {
	f.next = p.free
	p.free = f
	p.inUse--
}

func (p *Pool) grow() *Frame {
	slab := make([]Frame, poolSlab)
	bodies := make([]body, poolSlab)
	bufs := make([]byte, poolSlab*p.BufSize)
	for i := range slab {
		bodies[i].buf = bufs[i*p.BufSize : (i+1)*p.BufSize : (i+1)*p.BufSize]
		slab[i].body, slab[i].Packet = &bodies[i], &bodies[i].packet
		slab[i].index = uint32(len(p.slabs)<<poolBits + i)
		slab[i].next = p.free
		p.free = &slab[i]
	}
	p.slabs = append(p.slabs, slab)
	return p.free
}

// InUse counts frames that were taken and not given back.
func (p *Pool) InUse() int { return p.inUse }

// Made counts frames that exist.
func (p *Pool) Made() int { return len(p.slabs) << poolBits }

// Queue is a first-in first-out list of frames. The zero value is empty.
type Queue struct {
	head, tail *Frame
}

// Empty reports whether there is nothing in q.
func (q *Queue) Empty() bool { return q.head == nil }

// Push appends f.
func (q *Queue) Push(f *Frame) {
	f.next = nil
	if q.head == nil {
		q.head = f
	} else {
		q.tail.next = f
	}
	q.tail = f
}

// Pop takes the first frame, or nil.
func (q *Queue) Pop() *Frame {
	f := q.head
	if f != nil {
		q.head = f.next
		f.next = nil
	}
	return f
}

// Head is the first frame, or nil.
func (q *Queue) Head() *Frame { return q.head }

// Next is the frame behind f in whatever queue holds it; for walking only.
func (f *Frame) Next() *Frame { return f.next }
